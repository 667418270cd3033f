/* What may be mounted besides the project: see project/mount.h. */
#include "gateway/project/mount.h"

#include "gateway/base/cleanup.h"
#include "gateway/project/guard_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define HOMES_MAX 2

/* Agents' own sign-in and sessions. A program may be installed in one of them, so they are not in project_private_names. */
static const char *const agent_names[] = { ".claude", ".codex", ".gemini", ".config/opencode", ".local/share/opencode", NULL };

/* Folders of a home that many programs read as settings, or start programs from. */
static const char *const settings_names[] = { ".config", ".local/bin", ".local/share/applications", ".local/share/systemd",
	".vim", ".emacs.d", NULL };

/* Dot folders of a home that hold only copies of what was fetched. All others may hold settings or programs. */
static const char *const cache_names[] = { ".cache", ".npm", ".m2/repository", ".gradle/caches", NULL };

/* Records and programs' data of the system, which root can write. */
static const char *const record_dirs[] = { "/var/lib", "/var/spool", "/var/log", "/var/backups", NULL };

/* The folder that the checks apply to: the source itself, or the folder of a file. */
static int folder_of(const struct mount_ask *ask, char ret[static PATH_MAX])
{
	const char *slash = strrchr(ask->source, '/');

	if (S_ISDIR(ask->mode))
		slash = ask->source + strlen(ask->source);
	if (slash == ask->source)
		return snprintf(ret, PATH_MAX, "/") < 0 ? -EINVAL : 0;
	return snprintf(ret, PATH_MAX, "%.*s", (int)(slash - ask->source), ask->source) >= PATH_MAX ? -ENAMETOOLONG : 0;
}

/* ---- broad folders and parts of the system ---- */

static int check_system(const struct mount_ask *ask, struct ak_err *err)
{
	const char *s = ask->source;
	bool folder = S_ISDIR(ask->mode);

	if (!folder && !S_ISREG(ask->mode))
		return ak_fail(err, EINVAL, "'%s' is neither a file nor a folder", s);
	if (!strcmp(s, "/") || !strcmp(s, "/home"))
		return ak_fail(err, EINVAL, "'%s' holds everything of the machine or of its users; name a folder below it", s);
	if (project_inside(s, "/proc") || project_inside(s, "/sys") || project_inside(s, "/dev") || project_inside(s, "/boot") ||
		(project_is_system(s) && (folder || ask->writable)))
		return ak_fail(err, EINVAL, "'%s' is part of the system; only single files of it can be mounted, read-only", s);
	return 0;
}

static int check_broad(const struct mount_ask *ask, const char *home, struct ak_err *err)
{
	const char *s = ask->source;

	if (ask->word == PROJECT_CONFIRMED)
		return 0;
	if (project_inside(s, "/run"))
		return ak_fail(
			err, EINVAL, "'%s' is part of the running system; name another, or confirm it with --allow-broad-dir", s);
	for (size_t i = 0; ask->writable && record_dirs[i]; i++) {
		if (project_inside(s, record_dirs[i]) && !(home[0] && project_inside(s, home)))
			return ak_fail(err, EINVAL,
				"'%s' is in %s, where the system keeps its data; mount it read-only, or confirm it with --allow-broad-dir",
				s, record_dirs[i]);
	}
	if (S_ISDIR(ask->mode) && project_is_broad(s, home))
		return ak_fail(err, EINVAL,
			"'%s' holds files of many programs; name a folder below it, or confirm it with --allow-broad-dir", s);
	return 0;
}

/* ---- folders that the user's programs trust ---- */

/* The relation of FOLDER to the folder NAME of HOME, resolved; 0 if there is no such folder. */
static int relation_in(struct owndir *own, const char *folder, const char *home, const char *name, struct ak_err *err)
{
	char path[PATH_MAX], real[PATH_MAX];

	if (ak_path_join(path, home, name, NULL) < 0)
		return 0;
	if (project_inside(folder, path))
		return OWNDIR_INSIDE | (strcmp(folder, path) ? 0 : OWNDIR_AROUND);
	if (!realpath(path, real) || access(real, X_OK) < 0)
		return 0; /* it does not exist, or its content is out of the caller's reach */
	return owndir_relation(own, folder, real, err);
}

static int refuse_private(const struct mount_ask *ask, int relation, const char *home, const char *name, struct ak_err *err)
{
	if (relation == 0)
		return 0;
	if (ask->tool)
		return ak_fail(err, EINVAL, "'%s' %s '%s/%s', which holds keys or sessions", ask->source,
			relation & OWNDIR_INSIDE ? "lies in" : "contains", home, name);
	if (relation & OWNDIR_INSIDE)
		return ak_fail(err, EINVAL, "'%s': '%s/%s' holds keys or sessions; %s", ask->source, home, name,
			S_ISDIR(ask->mode) ? "name the exact file that the sandbox needs" : "mount the file read-only");
	return ak_fail(err, EINVAL,
		"'%s' contains '%s/%s', which holds keys or sessions; name a folder that does not contain it, or the exact file",
		ask->source, home, name);
}

/* The part of RELATION that is a reason to refuse. */
static int reason(const struct mount_ask *ask, int relation, bool agent)
{
	if (!S_ISDIR(ask->mode)) /* a file that the user names exactly may be read */
		relation &= ask->writable || ask->tool ? OWNDIR_INSIDE : 0;
	if (ask->tool && agent) /* the agent itself may be installed there */
		relation &= OWNDIR_AROUND;
	return relation;
}

static int check_private(
	const struct mount_ask *ask, const char *folder, struct owndir *own, const char *home, struct ak_err *err)
{
	const char *const *const lists[] = { project_private_names, agent_names };

	for (size_t l = 0; l < ARRAY_SIZE(lists); l++) {
		for (size_t i = 0; lists[l][i]; i++) {
			int relation = relation_in(own, folder, home, lists[l][i], err);

			if (relation > 0)
				relation = reason(ask, relation, lists[l] == agent_names);
			if (relation < 0 || (relation = refuse_private(ask, relation, home, lists[l][i], err)) < 0)
				return relation;
		}
	}
	return 0;
}

/* The caller's home, and the one that the path itself is in. */
static size_t find_homes(const char *source, char ret[static HOMES_MAX][PATH_MAX])
{
	size_t n = 0, len = strncmp(source, "/home/", 6) != 0 ? 0 : 6 + strcspn(source + 6, "/");

	project_home(ret[n]);
	n += ret[0][0] != '\0' && strcmp(ret[0], "/") != 0;
	if (project_inside(source, "/root"))
		len = strlen("/root");
	if (len)
		snprintf(ret[n++], PATH_MAX, "%.*s", (int)len, source);
	return n;
}

/* ---- tools ---- */

/* A package or tool chain is a folder of its own. Prefixes that many programs share, such as ~/.local, hold other things as well. */
static int check_prefix(const struct mount_ask *ask, struct owndir *own, const char *home, struct ak_err *err)
{
	static const char *const prefixes[] = { ".local", ".local/share", ".local/state", ".config", ".cache", ".var", "snap" };
	char path[PATH_MAX], real[PATH_MAX];
	int relation = project_inside(home, ask->source) ? OWNDIR_AROUND : 0;

	if (!relation && access(home, X_OK) == 0)
		relation = owndir_relation(own, ask->source, home, err);
	if (relation < 0)
		return relation;
	if (relation & OWNDIR_AROUND)
		return ak_fail(err, EINVAL, "'%s' contains the home folder '%s'", ask->source, home);
	for (size_t i = 0; i < ARRAY_SIZE(prefixes); i++) {
		if (ak_path_join(path, home, prefixes[i], NULL) == 0 &&
			(!strcmp(path, ask->source) || (realpath(path, real) && !strcmp(real, ask->source))))
			return ak_fail(err, EINVAL, "'%s' holds files of many programs", ask->source);
	}
	return 0;
}

static int check_tool(const struct mount_ask *ask, struct owndir *own, const char *home, struct ak_err *err)
{
	char ours[OWNDIR_COVERS_MAX][PATH_MAX];
	int rc = S_ISDIR(ask->mode) ? check_prefix(ask, own, home, err) : 1;

	if (rc != 0)
		return rc < 0 ? rc : 0;
	rc = owndir_covers(own, &ask->source, 1, ours, err);
	return rc > 0 ? ak_fail(err, EINVAL, "'%s' contains agentkernel's own folder '%s'", ask->source, ours[0]) : rc;
}

/* ---- writable ---- */

static int refuse_writable(const struct mount_ask *ask, const char *why, struct ak_err *err)
{
	return ak_fail(err, EINVAL, "'%s' cannot be mounted writable: %s; mount it read-only, or name another", ask->source, why);
}

/* Whether PATH has NAME, of one or more components, in it. */
static bool has_part(const char *path, const char *name)
{
	size_t len = strlen(name);

	for (const char *at = path; (at = strstr(at, name)); at += len) {
		if (at > path && at[-1] == '/' && (at[len] == '/' || at[len] == '\0'))
			return true;
	}
	return false;
}

static bool has_any(const char *path, const char *const *names)
{
	while (*names && !has_part(path, *names))
		names++;
	return *names != NULL;
}

static bool is_bare_repository(const char *folder)
{
	static const char *const names[] = { "HEAD", "objects", "refs" };
	char path[PATH_MAX];

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		if (ak_path_join(path, folder, names[i], NULL) < 0 || access(path, F_OK) < 0)
			return false;
	}
	return true;
}

static int check_names(const struct mount_ask *ask, struct ak_err *err)
{
	struct stat st;

	if (has_part(ask->source, ".git") || (S_ISDIR(ask->mode) && is_bare_repository(ask->source)))
		return refuse_writable(ask, "git runs hooks and settings from it; for work on a repository use --dir", err);
	if (has_any(ask->source, guard_names) || has_any(ask->source, guard_more_names) || guard_has_suffix(ask->source))
		return refuse_writable(ask, "your own tools run or read it later", err);
	if (!S_ISDIR(ask->mode) && (lstat(ask->source, &st) < 0 || st.st_nlink > 1))
		return refuse_writable(ask, "the file has other names", err);
	return 0;
}

/* A folder of PATH, or around one: programs that a sandbox leaves there run later. */
static int check_path(const struct mount_ask *ask, const char *folder, struct owndir *own, struct ak_err *err)
{
	const char *path = getenv("PATH");
	_cleanup_free_ char *copy = path ? strdup(path) : NULL;
	char *save = NULL, real[PATH_MAX];

	for (char *entry = copy ? strtok_r(copy, ":", &save) : NULL; entry; entry = strtok_r(NULL, ":", &save)) {
		int relation = entry[0] == '/' && realpath(entry, real) && access(real, X_OK) == 0
			? owndir_relation(own, folder, real, err)
			: 0;

		if (relation < 0)
			return relation;
		if (relation & OWNDIR_INSIDE || (relation && S_ISDIR(ask->mode)))
			return refuse_writable(ask, "programs on your PATH are in it", err);
	}
	return 0;
}

bool mount_is_setting(const char *source, const char *home)
{
	const char *name = project_inside(source, home) ? source + strlen(home) : "";

	name += name[0] == '/';
	if (project_inside(name, "bin"))
		return true;
	for (size_t i = 0; cache_names[i]; i++) {
		if (project_inside(name, cache_names[i]))
			return false;
	}
	return name[0] == '.';
}

static int check_settings(
	const struct mount_ask *ask, const char *folder, struct owndir *own, const char *home, struct ak_err *err)
{
	if (mount_is_setting(ask->source, home))
		return refuse_writable(ask, "your own programs read their settings there, or are there", err);
	for (size_t i = 0; settings_names[i]; i++) {
		int relation = relation_in(own, folder, home, settings_names[i], err);

		if (relation < 0)
			return relation;
		if (relation & OWNDIR_INSIDE || (relation && S_ISDIR(ask->mode)))
			return refuse_writable(ask, "your own programs read their settings there", err);
	}
	return 0;
}

static int check_writable(const struct mount_ask *ask, const char *folder, struct owndir *own, struct ak_err *err)
{
	int rc = check_names(ask, err);

	if (rc == 0 && access(ask->source, W_OK) < 0)
		rc = refuse_writable(ask, strerror(errno), err);
	if (rc == 0)
		rc = check_path(ask, folder, own, err);
	if (rc == 0 && S_ISDIR(ask->mode))
		rc = owndir_check_writable(own, ask->source, "the writable mount", "mount it read-only", err);
	return rc;
}

/* ---- the whole check ---- */

int mount_check_source(const struct mount_ask *ask, struct owndir *own, struct ak_err *err)
{
	char homes[HOMES_MAX][PATH_MAX] = { "", "" }, folder[PATH_MAX];
	size_t n = find_homes(ask->source, homes);
	int rc = check_system(ask, err);

	if (rc == 0 && (rc = folder_of(ask, folder)) < 0)
		ak_fail_errno(err, -rc, "'%s'", ask->source);
	if (rc == 0)
		rc = owndir_check_outside(own, folder, ask->source, ask->writable, err);
	for (size_t i = 0; i < n && rc == 0; i++)
		rc = check_private(ask, folder, own, homes[i], err);
	if (rc == 0)
		rc = check_broad(ask, homes[0], err);
	for (size_t i = 0; i < n && rc == 0 && ask->tool; i++)
		rc = check_tool(ask, own, homes[i], err);
	if (rc == 0 && ask->writable)
		rc = check_writable(ask, folder, own, err);
	for (size_t i = 0; i < n && rc == 0 && ask->writable; i++)
		rc = check_settings(ask, folder, own, homes[i], err);
	return rc;
}

int mount_check_apart(const struct mount_ask *ask, const char *other, const char *what, struct owndir *own, struct ak_err *err)
{
	char folder[PATH_MAX];
	int rc = ask->writable && other[0] ? folder_of(ask, folder) : 1;

	if (rc != 0)
		return rc < 0 ? ak_fail_errno(err, -rc, "'%s'", ask->source) : 0;
	rc = owndir_relation(own, folder, other, err);
	if (rc > 0 && (rc & OWNDIR_INSIDE || S_ISDIR(ask->mode)))
		return ak_fail(err, EINVAL,
			"'%s' overlaps %s '%s', which is writable already; leave it out, or mount it read-only", ask->source,
			what, other);
	return rc < 0 ? rc : 0;
}

/* ---- targets ---- */

/* Copy without repeated and trailing slashes; -EINVAL for "." and "..". */
static int tidy(const char *target, char ret[static PATH_MAX])
{
	size_t n = 0;

	for (const char *p = target; *p;) {
		size_t skip = strspn(p, "/"), len = strcspn(p + skip, "/");

		p += skip;
		if ((len == 1 && p[0] == '.') || (len == 2 && p[0] == '.' && p[1] == '.'))
			return -EINVAL;
		if (len == 0)
			break;
		if (n + len + 2 > PATH_MAX)
			return -ENAMETOOLONG;
		ret[n++] = '/';
		memcpy(ret + n, p, len);
		n += len;
		p += len;
	}
	ret[n] = '\0';
	return n ? 0 : -EINVAL;
}

int mount_check_target(const char *target, char ret[static PATH_MAX], struct ak_err *err)
{
	/* The sandbox's own, with everything in them. /bin and the like may be links in the root. */
	static const char *const reserved[] = { "/proc", "/sys", "/dev", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32",
		"/var/run", "/var/lock" };
	/* Folders and files that a sandbox does not work without; others may be mounted in them. */
	static const char *const whole[] = { "/usr", "/usr/bin", "/usr/sbin", "/usr/lib", "/usr/lib64", "/etc", "/opt", "/run",
		"/tmp", "/var", "/var/tmp", "/home", "/root", "/boot", "/etc/resolv.conf", "/etc/hosts", "/etc/hostname",
		"/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/etc/ld.so.cache", "/etc/ld.so.preload" };
	int rc = target[0] == '/' ? tidy(target, ret) : -EINVAL;

	if (rc < 0)
		return ak_fail(err, EINVAL,
			"'%.200s': must be an absolute path inside the sandbox, without '.' and '..', and not '/'", target);
	for (size_t i = 0; i < ARRAY_SIZE(reserved); i++) {
		if (project_inside(ret, reserved[i]))
			return ak_fail(err, EINVAL, "'%s': %s is the sandbox's own; choose another place, for example /mnt/NAME",
				ret, reserved[i]);
	}
	for (size_t i = 0; i < ARRAY_SIZE(whole); i++) {
		if (!strcmp(ret, whole[i]))
			return ak_fail(
				err, EINVAL, "'%s' is the sandbox's own; choose another place, for example /mnt/NAME", ret);
	}
	return 0;
}
