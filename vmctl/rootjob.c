/*
 * The sandbox's root: the half that belongs to one job. It adds names, the home, writable folders and the caller's mounts,
 * then seals the root and detaches the host's tree.
 */
#include "vmctl/internal.h"

#include "gateway/base/cleanup.h"
#include "vmctl/mnt.h"
#include "vmctl/path.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEFAULT_TMP_BYTES (UINT64_C(512) << 20)

/* ---- writable folders ---- */

static int add_tmp(const struct sb_root *r, struct ak_err *err)
{
	uint64_t bytes = r->ctx->spec->limits.tmp_bytes;
	_cleanup_close_ int tree = -1, again = -1;
	int rc;

	if (r->ctx->spec->upper_dir) {
		tree = sb_root_store(r, "tmp", 01777);
	} else {
		char size[32];
		const char *const opts[][2] = { { "size", size }, { "mode", "1777" }, { NULL, NULL } };

		snprintf(size, sizeof(size), "%llu", (unsigned long long)(bytes ? bytes : DEFAULT_TMP_BYTES));
		tree = mnt_new("tmpfs", opts, MNT_SAFE);
	}
	rc = tree < 0 ? tree : mnt_attach(tree, r->fd, "tmp");
	if (rc < 0)
		return sb_root_failed(err, rc, "/tmp");
	again = mnt_clone(r->fd, "tmp", false); /* a symbolic link does not work: a project may lie below it */
	rc = again < 0 ? again : mnt_attach(again, r->fd, "var/tmp");
	return rc < 0 ? sb_root_failed(err, rc, "/var/tmp") : 0;
}

/* If the root becomes read-only, a mount of the folder on itself stays writable. */
static int keep_writable(const struct sb_root *r, int dir_fd)
{
	_cleanup_close_ int tree = mnt_clone(dir_fd, "", false);
	int rc = tree < 0 ? tree : mnt_attr(tree, false, MNT_SAFE, 0);

	return rc < 0 ? rc : mnt_attach(tree, dir_fd, "");
}

/* A home below a host folder that every sandbox sees (/opt, /usr) would show the user's own: mount an empty one over it. */
static int hide_home(const struct sb_root *r, const char *home, int *fd)
{
	static const char *const opts[][2] = { { "mode", "0755" }, { NULL, NULL } };
	_cleanup_close_ int tree = -1;
	int rc;

	if (strncmp(home, "/opt/", 5) != 0 && strncmp(home, "/usr/", 5) != 0)
		return 0;
	tree = r->ctx->spec->upper_dir ? sb_root_store(r, "home", 0755) : mnt_new("tmpfs", opts, MNT_SAFE);
	rc = tree < 0 ? tree : mnt_attach(tree, *fd, "");
	if (rc < 0)
		return rc;
	ak_close(*fd);
	*fd = TAKE_FD(tree);
	return 0;
}

static int add_home(const struct sb_root *r, struct ak_err *err)
{
	const struct sandbox_spec *spec = r->ctx->spec;
	_cleanup_close_ int home = -1, shm = -1;
	int rc;

	if (spec->home) {
		rc = path_make_own_dir(r->fd, spec->home, 0755, &home);
		if (rc == 0 && !spec->image_root)
			rc = hide_home(r, spec->home, &home);
		if (rc < 0)
			return ak_fail_errno(err, -rc, "home '%s'", spec->home);
	}
	if (!sb_root_read_only(spec))
		return 0;
	rc = home < 0 ? 0 : keep_writable(r, home);
	if (rc < 0)
		return ak_fail_errno(err, -rc, "home '%s'", spec->home);
	shm = openat(r->fd, "dev/shm", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	rc = shm < 0 ? -errno : keep_writable(r, shm);
	return rc < 0 ? sb_root_failed(err, rc, "/dev/shm") : 0;
}

/* ---- the caller's mounts ---- */

static bool is_below(const char *path, const char *dir)
{
	size_t len = strlen(dir);

	return !strncmp(path, dir, len) && (path[len] == '\0' || path[len] == '/');
}

static int check_target(const char *target, struct ak_err *err)
{
	static const char *const reserved[] = { "/proc", "/dev", "/sys" };

	if (target[0] != '/' || strspn(target, "/") == strlen(target))
		return ak_fail(err, EINVAL, "mount target '%s': must be an absolute path other than /", target);
	for (size_t i = 0; i < ARRAY_SIZE(reserved); i++) {
		if (is_below(target, reserved[i]))
			return ak_fail(err, EINVAL, "mount target '%s': %s is the sandbox's own", target, reserved[i]);
	}
	return 0;
}

/* Fail if there is no overlay: sockets in the folder could be connected to. */
static int shield_mount(const struct sb_root *r, const struct sandbox_mount *m, int tree, struct ak_err *err)
{
	int rc = sb_root_shield(r, tree);

	if (rc == -EINVAL)
		return ak_fail(err, EINVAL,
			"'%s' cannot be shown: other file systems are mounted below it; unmount them, or leave it out (another --mount or --profile)",
			m->source);
	return rc < 0 ? ak_fail_errno(err, -rc, "'%s' cannot be shown without the sockets in it", m->source) : 0;
}

static int add_mount(const struct sb_root *r, size_t i, struct ak_err *err)
{
	const struct sandbox_mount *m = &r->ctx->spec->mounts[i];
	_cleanup_close_ int tree = -1, target = -1;
	struct stat st;
	int rc = check_target(m->target, err);

	if (rc < 0)
		return rc;
	rc = tree = i < r->ctx->trees.n ? fcntl(r->ctx->trees.mounts[i], F_DUPFD_CLOEXEC, 3) : sb_tree_open(m, err);
	if (rc < 0)
		return rc;
	if (fstat(tree, &st) < 0)
		return ak_fail_errno(err, errno, "mounting '%s'", m->source);
	rc = mnt_attr(tree, true, MNT_SAFE | (m->readonly ? MOUNT_ATTR_RDONLY : 0), 0);
	if (rc < 0)
		return ak_fail_errno(err, -rc, "mounting '%s'", m->source);
	if (S_ISDIR(st.st_mode))
		rc = path_make_dir(r->fd, m->target, 0755, &target);
	else
		rc = path_make_file(r->fd, m->target, &target);
	if (rc < 0)
		return ak_fail_errno(err, -rc, "mount target '%s'", m->target);
	rc = mnt_attach(tree, target, "");
	if (rc < 0)
		return ak_fail_errno(err, -rc, "mounting '%s' on '%s'", m->source, m->target);
	return m->shielded ? shield_mount(r, m, tree, err) : 0;
}

static int add_mounts(const struct sb_root *r, struct ak_err *err)
{
	const struct sandbox_spec *spec = r->ctx->spec;

	for (size_t i = 0; i < spec->n_mounts; i++) {
		int rc = add_mount(r, i, err);

		if (rc < 0)
			return rc;
	}
	return 0;
}

/* The folder of PATH, made if it is missing. */
static int make_parent(const struct sb_root *r, const char *path, int *ret_dir, struct ak_err *err)
{
	const char *slash = strrchr(path, '/');
	char parent[PATH_MAX];
	int rc = check_target(path, err);

	if (rc < 0)
		return rc;
	if (snprintf(parent, sizeof(parent), "%.*s", (int)(slash - path), path) >= (int)sizeof(parent) || !slash[1])
		return ak_fail(err, EINVAL, "'%s': not a path", path);
	if (parent[0])
		rc = path_make_dir(r->fd, parent, 0755, ret_dir);
	else if ((*ret_dir = fcntl(r->fd, F_DUPFD_CLOEXEC, 3)) < 0)
		rc = -errno;
	return rc < 0 ? ak_fail_errno(err, -rc, "'%s'", parent) : 0;
}

/* A link of an earlier start may lead to a version that is gone. Anything else of that name is the sandbox's own. */
static int renew_link(int dir, const char *name, const char *target)
{
	char old[PATH_MAX];
	ssize_t n = readlinkat(dir, name, old, sizeof(old));

	if (n < 0 || ((size_t)n == strlen(target) && !memcmp(old, target, (size_t)n)))
		return 0;
	if (unlinkat(dir, name, 0) < 0 || symlinkat(target, dir, name) < 0)
		return -errno;
	return 0;
}

static int add_link(const struct sb_root *r, const struct sandbox_link *l, struct ak_err *err)
{
	const char *name = strrchr(l->path, '/') + 1;
	_cleanup_close_ int dir = -1;
	int rc = make_parent(r, l->path, &dir, err);

	if (rc < 0)
		return rc;
	if (symlinkat(l->target, dir, name) < 0)
		rc = errno != EEXIST ? -errno : r->ctx->spec->upper_dir ? renew_link(dir, name, l->target) : 0;
	return rc < 0 ? ak_fail_errno(err, -rc, "link '%s'", l->path) : 0;
}

static int add_file(const struct sb_root *r, const struct sandbox_file *f, struct ak_err *err)
{
	_cleanup_close_ int dir = -1;
	int rc = make_parent(r, f->path, &dir, err);

	if (rc < 0)
		return rc;
	rc = path_write(r->fd, f->path + 1, f->text);
	return rc < 0 ? ak_fail_errno(err, -rc, "file '%s'", f->path) : 0;
}

/* Call it before the mounts: it replaces what is there, which must not be a file of the host. */
static int add_files(const struct sb_root *r, struct ak_err *err)
{
	const struct sandbox_file *files = r->ctx->spec->files;
	int rc = 0;

	for (size_t i = 0; i < SANDBOX_FILES_MAX && rc == 0; i++)
		rc = files[i].path ? add_file(r, &files[i], err) : 0;
	return rc;
}

static int add_links(const struct sb_root *r, struct ak_err *err)
{
	const struct sandbox_spec *spec = r->ctx->spec;
	int rc = 0;

	for (size_t i = 0; i < spec->n_links && rc == 0; i++)
		rc = add_link(r, &spec->links[i], err);
	return rc;
}

/* ---- the whole job ---- */

/* A root that was prepared before its memory limit was known has the default size. */
static int resize_store(const struct sb_root *r)
{
	char size[32];

	if (!r->ctx->was_parked || !r->ctx->spec->limits.memory_bytes)
		return 0;
	snprintf(size, sizeof(size), "%llu", (unsigned long long)r->ctx->spec->limits.memory_bytes);
	return mnt_reconfigure(r->store, "size", size);
}

/* Linux 6.14 has a pid_max per pid namespace; on older kernels there is no descriptor for it. */
static int limit_pids(const struct sb_root *r)
{
	const uint32_t reserved = 300, most = 1 << 22; /* pids that the kernel does not reuse; the kernel's maximum */
	uint32_t pids = r->ctx->spec->limits.pids ? r->ctx->spec->limits.pids : SANDBOX_PIDS_DEFAULT;
	char text[16];

	if (r->pid_max < 0)
		return 0;
	snprintf(text, sizeof(text), "%u", pids > most - reserved ? most : pids + reserved);
	return write(r->pid_max, text, strlen(text)) < 0 ? -errno : 0;
}

static int finish(const struct sb_root *r, struct ak_err *err)
{
	int rc = resize_store(r);

	if (rc < 0)
		return sb_root_failed(err, rc, "its size");
	rc = limit_pids(r);
	if (rc < 0)
		return ak_fail_errno(err, -rc, "limiting processes");
	if ((rc = sb_root_names(r, err)) < 0 || (rc = add_tmp(r, err)) < 0 || (rc = add_home(r, err)) < 0 ||
		(rc = add_files(r, err)) < 0 || (rc = add_mounts(r, err)) < 0 || (rc = add_links(r, err)) < 0)
		return rc;
	/* podman creates the files that it mounts over, and then makes the root read-only itself. */
	if (!r->ctx->spec->podman && sb_root_read_only(r->ctx->spec) && (rc = mnt_attr(r->fd, false, MOUNT_ATTR_RDONLY, 0)) < 0)
		return sb_root_failed(err, rc, "making it read-only");
	rc = mnt_attr(r->fd, true, MOUNT_ATTR_NOSUID, 0); /* regardless of its previous attributes */
	if (rc < 0)
		return sb_root_failed(err, rc, "nosuid");
	rc = r->ctx->spec->podman ? 0 : mnt_pivot(r->fd);
	return rc < 0 ? sb_root_failed(err, rc, "pivot_root") : 0;
}

int sb_root_job(const struct sb_root *r, struct ak_err *err)
{
	mode_t mask = umask(0);
	int rc = finish(r, err);

	umask(mask);
	return rc;
}
