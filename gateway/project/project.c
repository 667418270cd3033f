/* The project folder: see project/project.h. */
#include "gateway/project/project.h"

#include "gateway/base/cleanup.h"
#include "gateway/project/mount.h"
#include "gateway/project/owndir.h"
#include "vmctl/source.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

/* ---- identity ---- */

const char *project_id_print(const struct project_id *id, char ret[static PROJECT_ID_TEXT])
{
	snprintf(ret, PROJECT_ID_TEXT, "%" PRIu64 ":%" PRIu64 ":%" PRIu64, (uint64_t)id->dev, (uint64_t)id->ino, id->born_ns);
	return ret;
}

int project_id_parse(const char *text, struct project_id *ret)
{
	uint64_t n[3];
	char *end;

	for (size_t i = 0; i < ARRAY_SIZE(n); i++) {
		if (text[0] < '0' || text[0] > '9')
			return -EINVAL;
		errno = 0;
		n[i] = strtoull(text, &end, 10);
		if (errno || *end != (i + 1 < ARRAY_SIZE(n) ? ':' : '\0'))
			return -EINVAL;
		text = end + 1;
	}
	*ret = (struct project_id){ .dev = (dev_t)n[0], .ino = (ino_t)n[1], .born_ns = n[2] };
	return 0;
}

bool project_id_same(const struct project_id *a, const struct project_id *b)
{
	return a->ino == b->ino && (a->born_ns && b->born_ns ? a->born_ns == b->born_ns : a->dev == b->dev);
}

static int identify(int fd, const char *path, struct project_id *ret, mode_t *ret_mode)
{
	struct statx st;

	if (statx(fd, path, path[0] ? 0 : AT_EMPTY_PATH, STATX_BASIC_STATS | STATX_BTIME, &st) < 0)
		return -errno;
	ret->dev = makedev(st.stx_dev_major, st.stx_dev_minor);
	ret->ino = st.stx_ino;
	ret->born_ns = st.stx_mask & STATX_BTIME ? (uint64_t)st.stx_btime.tv_sec * 1000000000 + st.stx_btime.tv_nsec : 0;
	*ret_mode = st.stx_mode;
	return 0;
}

int project_id_of(const char *path, struct project_id *ret)
{
	mode_t ignored;

	return identify(AT_FDCWD, path, ret, &ignored);
}

/* ---- path ---- */

bool project_inside(const char *a, const char *b)
{
	size_t n = strlen(b);

	if (n == 1) /* "/" */
		return true;
	return !strncmp(a, b, n) && (a[n] == '\0' || a[n] == '/');
}

/*
 * The identity is that of PATH, not of the result: if a link is swapped in between, the two differ, and whoever opens the
 * result notices.
 */
int project_name(const char *path, const char *what, char ret[static PATH_MAX], struct project_id *ret_id, struct ak_err *err)
{
	mode_t mode = 0;
	int rc;

	if (!realpath(path, ret))
		return ak_fail_errno(err, errno, "%s '%s'", what, path);
	rc = identify(AT_FDCWD, path, ret_id, &mode);
	if (rc < 0)
		return ak_fail_errno(err, -rc, "%s '%s'", what, ret);
	if (!S_ISDIR(mode))
		return ak_fail(err, ENOTDIR, "%s '%s' is not a folder", what, ret);
	if (access(ret, R_OK | X_OK) < 0)
		return ak_fail_errno(err, errno, "%s '%s' cannot be read", what, ret);
	return 0;
}

int project_name_open(
	int fd, const char *what, char ret[static PATH_MAX], struct project_id *ret_id, mode_t *ret_mode, struct ak_err *err)
{
	char proc[64];
	ssize_t n;
	int rc = identify(fd, "", ret_id, ret_mode);

	if (rc < 0)
		return ak_fail_errno(err, -rc, "%s", what);
	snprintf(proc, sizeof(proc), "/proc/self/fd/%d", fd);
	n = readlink(proc, ret, PATH_MAX - 1);
	ret[n > 0 ? n : 0] = '\0';
	if (ret[0] != '/')
		return ak_fail(err, ENOENT, "%s: it has no path here", what);
	if (access(proc, S_ISDIR(*ret_mode) ? R_OK | X_OK : R_OK) < 0)
		return ak_fail_errno(err, errno, "%s '%s' cannot be read", what, ret);
	return 0;
}

int project_again_any(const char *path, const char *what, const struct project_id *was, struct project_id *ret_now,
	mode_t *ret_mode, struct ak_err *err)
{
	_cleanup_close_ int fd = -1;
	struct ak_err why;
	int rc;

	fd = mnt_source_open(&(struct sandbox_mount){ .source = path }, &why);
	if (fd == -ELOOP)
		return ak_fail(err, ELOOP,
			"%s '%s': it, or a folder above it, is now a symbolic link; nothing was mounted. "
			"Put it back, or remove the sandbox and create it again",
			what, path);
	if (fd < 0)
		return ak_fail_errno(err, -fd, "%s '%s'", what, path);
	rc = identify(fd, "", ret_now, ret_mode);
	if (rc < 0)
		return ak_fail_errno(err, -rc, "%s '%s'", what, path);
	if (was->ino && !project_id_same(was, ret_now))
		return ak_fail(err, ESTALE,
			"%s '%s': it is not what it was when the sandbox was created; nothing was mounted. "
			"Put the old one back, remove the sandbox and create it again, or accept the new one with 'start --accept-dir'",
			what, path);
	return 0;
}

int project_again(const char *path, const struct project_id *was, struct project_id *ret_now, struct ak_err *err)
{
	mode_t mode = S_IFDIR;
	int rc = project_again_any(path, "project folder", was, ret_now, &mode, err);

	if (!S_ISDIR(mode) && (rc == 0 || rc == -ESTALE))
		return ak_fail(err, ENOTDIR, "project folder '%s' is no longer a folder; nothing was mounted", path);
	return rc;
}

/* ---- permission ---- */

bool project_is_broad(const char *project, const char *home)
{
	static const char *const broad[] = { "/tmp", "/var/tmp", "/run", "/var", "/home", "/root", "/mnt", "/media", "/opt",
		"/srv" };
	char real[PATH_MAX];
	struct stat st;

	for (size_t i = 0; i < ARRAY_SIZE(broad); i++) {
		if (!strcmp(project, broad[i]))
			return true;
		if (lstat(broad[i], &st) == 0 && S_ISLNK(st.st_mode) && realpath(broad[i], real) && !strcmp(project, real))
			return true;
	}
	return home[0] && !strcmp(project, home);
}

const char *const project_private_names[] = { ".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".password-store",
	".mozilla", ".thunderbird", ".oci", ".config/gcloud", ".config/gh", ".config/glab-cli", ".config/doctl", ".config/hcloud",
	".config/rclone", ".config/google-chrome", ".config/chromium", ".config/BraveSoftware", ".config/microsoft-edge",
	".config/vivaldi", ".config/opera", ".config/op", ".config/Bitwarden", ".local/share/keyrings", ".local/share/kwalletd",
	"snap/firefox", "snap/chromium", NULL };

bool project_is_private(const char *project, const char *home)
{
	char path[PATH_MAX];

	for (size_t i = 0; home[0] && project_private_names[i]; i++) {
		if (snprintf(path, sizeof(path), "%s/%s", home, project_private_names[i]) < (int)sizeof(path) &&
			project_inside(project, path))
			return true;
	}
	return false;
}

void project_home(char ret[static PATH_MAX])
{
	const char *named = getenv("HOME");

	if (!named || !realpath(named, ret))
		ret[0] = '\0';
}

static int check_broad(const char *project, enum project_word word, struct ak_err *err)
{
	char home[PATH_MAX];

	if (word == PROJECT_CONFIRMED)
		return 0;
	project_home(home);
	if (project_is_private(project, home))
		return ak_fail(err, EINVAL,
			"the project folder would be '%s', which holds keys or sessions; name another with --dir, or confirm it with --dir %s --allow-broad-dir",
			project, project);
	if (home[0] && mount_is_setting(project, home))
		return ak_fail(err, EINVAL,
			"the project folder would be '%s', where your own programs are or read their settings; name another with --dir, or confirm it with --dir %s --allow-broad-dir",
			project, project);
	if (!project_is_broad(project, home))
		return 0;
	return ak_fail(err, EINVAL,
		"the project folder would be '%s': the sandbox could reach all files and sockets of other programs in it; go into a project or name "
		"one with --dir, or confirm it with --dir %s --allow-broad-dir",
		project, project);
}

bool project_is_system(const char *path)
{
	static const char *const system_dirs[] = { "/proc", "/sys", "/dev", "/etc", "/usr", "/bin", "/sbin", "/lib", "/lib64",
		"/boot" };

	for (size_t i = 0; i < ARRAY_SIZE(system_dirs); i++) {
		if (project_inside(path, system_dirs[i]))
			return true;
	}
	return false;
}

/* The project is mounted writable: refuse folders that would give the sandbox the whole system or our own records. */
int project_check(const char *project, enum project_word word, struct owndir *own, struct ak_err *err)
{
	int rc;

	if (!strcmp(project, "/"))
		return ak_fail(err, EINVAL,
			"the project folder is '/': that would expose the whole system; go into a project, or name one with --dir");
	if (project_is_system(project))
		return ak_fail(err, EINVAL, "the project folder '%s' is part of the system; name another with --dir", project);
	if (project_inside(project, "/run") && word != PROJECT_CONFIRMED)
		return ak_fail(err, EINVAL,
			"the project folder '%s' is part of the system; name another with --dir, or confirm it with --allow-broad-dir",
			project);
	rc = check_broad(project, word, err);
	return rc < 0 ? rc : owndir_check_writable(own, project, "the project folder", "name another project with --dir", err);
}
