/*
 * The sandbox's root, assembled in its own mount namespace: the half that is the same for every job.
 *
 * A "store" (a tmpfs, or the folder of a kept sandbox) holds everything writable. The host's programs are mounted on it
 * read-only, and a few files are generated. The order matters: read-only parts are mounted first and sealed with one recursive
 * call; writable parts follow, most of them in the other half (rootjob.c).
 */
#include "vmctl/internal.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "vmctl/mnt.h"
#include "vmctl/path.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <unistd.h>

int sb_root_failed(struct ak_err *err, int rc, const char *what)
{
	return ak_fail_errno(err, -rc, "assembling the root: %s", what);
}

/* ---- creating names in the root ---- */

/*
 * A sandbox wrote a kept root, and strangers wrote an image, so path.h guards against links in them. A new root has no links yet,
 * so plain calls are safe and save system calls.
 */
bool sb_root_guarded(const struct sb_root *r)
{
	return r->ctx->spec->upper_dir || r->ctx->spec->image_root;
}

int sb_root_folder(const struct sb_root *r, const char *path, mode_t mode)
{
	if (sb_root_guarded(r))
		return path_folder(r->fd, path, mode);
	return mkdirat(r->fd, path, mode) < 0 && errno != EEXIST ? -errno : 0;
}

int sb_root_link(const struct sb_root *r, const char *path, const char *target)
{
	if (sb_root_guarded(r))
		return path_link(r->fd, path, target);
	return symlinkat(target, r->fd, path) < 0 && errno != EEXIST ? -errno : 0;
}

int sb_root_write(const struct sb_root *r, const char *path, const char *text)
{
	_cleanup_close_ int fd = -1;

	if (sb_root_guarded(r))
		return path_write(r->fd, path, text);
	fd = openat(r->fd, path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
	return fd < 0 ? -errno : ak_write_all(fd, text, strlen(text));
}

/* Folders that every root has. Parents come first. HOST_ONLY: an image has its own, or none. */
static const struct {
	const char *path;
	mode_t mode;
	bool host_only;
} folders[] = {
	{ "usr", 0755, true },
	{ "etc", 0755, false },
	{ "etc/ssl", 0755, true },
	{ "etc/pki", 0755, true },
	{ "etc/pki/tls", 0755, true },
	{ "dev", 0755, false },
	{ "dev/pts", 0755, false },
	{ "dev/shm", 01777, false },
	{ "proc", 0555, false },
	{ "sys", 0555, false }, /* stays empty; also mounted over folders of /proc that the sandbox must not see */
	{ "run", 0755, false },
	{ "tmp", 01777, false },
	{ "home", 0755, true },
	{ "root", 0700, true },
	{ "mnt", 0755, true },
	{ "srv", 0755, true },
	{ "var", 0755, false },
	{ "var/lib", 0755, true },
	{ "var/cache", 0755, true },
	{ "var/log", 0755, true },
	{ "var/spool", 0755, true },
	{ "var/tmp", 01777, false },
};

static const struct {
	const char *path, *target;
} links[] = {
	{ "var/run", "../run" },
	{ "var/lock", "../run" },
	{ "dev/fd", "/proc/self/fd" },
	{ "dev/stdin", "/proc/self/fd/0" },
	{ "dev/stdout", "/proc/self/fd/1" },
	{ "dev/stderr", "/proc/self/fd/2" },
	{ "dev/ptmx", "pts/ptmx" },
};

/*
 * Overlays use /sys as an empty layer. In a kept root it may lie inside the home, which can be another layer, and in an image it may
 * have files: then make it a file system of its own.
 */
static int separate_sys(const struct sb_root *r)
{
	static const char *const opts[][2] = { { "size", "4096" }, { "mode", "0555" }, { NULL, NULL } };
	_cleanup_close_ int tree = mnt_new("tmpfs", opts, MNT_SAFE);

	return tree < 0 ? tree : mnt_attach(tree, r->fd, "sys");
}

static int make_skeleton(const struct sb_root *r, struct ak_err *err)
{
	int rc;

	for (size_t i = 0; i < ARRAY_SIZE(folders); i++) {
		if (folders[i].host_only && r->ctx->spec->image_root)
			continue;
		rc = sb_root_folder(r, folders[i].path, folders[i].mode);
		if (rc < 0)
			return sb_root_failed(err, rc, folders[i].path);
	}
	for (size_t i = 0; i < ARRAY_SIZE(links); i++) {
		rc = sb_root_link(r, links[i].path, links[i].target);
		if (rc < 0)
			return sb_root_failed(err, rc, links[i].path);
	}
	rc = sb_root_guarded(r) ? separate_sys(r) : 0;
	return rc < 0 ? sb_root_failed(err, rc, "/sys") : 0;
}

/* ---- the store and the root on it ---- */

/*
 * Default size of a writable root without a memory limit: half of the memory, at most 4 GiB, so that one sandbox cannot take
 * it all.
 */
static uint64_t default_store_bytes(void)
{
	const uint64_t most = UINT64_C(4) << 30;
	struct sysinfo info;
	uint64_t half = sysinfo(&info) == 0 ? (uint64_t)info.totalram * info.mem_unit / 2 : most;

	return half < most ? half : most;
}

static int open_tmpfs(uint64_t bytes)
{
	char size[32];
	const char *const opts[][2] = { { "size", size }, { "mode", "0755" }, { NULL, NULL } };

	if (!bytes)
		bytes = default_store_bytes();
	snprintf(size, sizeof(size), "%llu", (unsigned long long)bytes);
	return mnt_new("tmpfs", opts, MNT_SAFE);
}

static int open_store(const struct sb_ctx *ctx)
{
	const struct sandbox_spec *spec = ctx->spec;
	int fd;

	if (!spec->upper_dir)
		return open_tmpfs(spec->limits.memory_bytes);
	fd = ctx->trees.store >= 0 ? fcntl(ctx->trees.store, F_DUPFD_CLOEXEC, 3) : mnt_clone(AT_FDCWD, spec->upper_dir, false);
	if (fd >= 0)
		mnt_attr(fd, false, MNT_SAFE, 0);
	return fd;
}

int sb_root_store(const struct sb_root *r, const char *name, mode_t mode)
{
	int rc = path_folder(r->store, name, mode);

	return rc < 0 ? rc : mnt_clone(r->store, name, false);
}

/*
 * Mount the root over "/", because pivot_root requires a mount. This hides nothing from us: our own root stays the one below.
 * If the store holds more than the root, the root is a folder of it, so that the rest stays invisible.
 */
static int mount_root(struct sb_root *r, struct ak_err *err)
{
	const struct sandbox_spec *spec = r->ctx->spec;
	int rc = open_store(r->ctx);

	if (rc < 0)
		return sb_root_failed(err, rc, spec->upper_dir ? spec->upper_dir : "tmpfs");
	r->store = rc;
	rc = mnt_attach(r->store, AT_FDCWD, "/");
	if (rc < 0)
		return sb_root_failed(err, rc, "mounting it");
	if (spec->image_root)
		return sb_root_image(r, err);
	if (!spec->upper_dir && !r->private_usr) {
		r->fd = fcntl(r->store, F_DUPFD_CLOEXEC, 3);
		return r->fd < 0 ? sb_root_failed(err, -errno, "descriptor") : 0;
	}
	r->fd = sb_root_store(r, "root", 0755);
	if (r->fd < 0)
		return sb_root_failed(err, r->fd, "root folder");
	rc = mnt_attach(r->fd, r->store, "");
	return rc < 0 ? sb_root_failed(err, rc, "mounting it") : 0;
}

/* ---- the host's programs ---- */

static int bind_host(const struct sb_root *r, const char *source, const char *target)
{
	_cleanup_close_ int tree = mnt_clone(AT_FDCWD, source, true);

	return tree < 0 ? tree : mnt_attach(tree, r->fd, target);
}

/* Detached. An overlay without an upper folder needs two lower ones; /sys is empty. */
int sb_root_overlay(const struct sb_root *r, int folder_fd)
{
	_cleanup_close_ int empty = openat(r->fd, "sys", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	char lower[64];
	const char *const opts[][2] = { { "lowerdir", lower }, { "redirect_dir", "nofollow" }, { NULL, NULL } };

	if (empty < 0)
		return -errno;
	snprintf(lower, sizeof(lower), "/proc/self/fd/%d:/proc/self/fd/%d", folder_fd, empty);
	return mnt_new("overlay", opts, MNT_SAFE | MOUNT_ATTR_RDONLY);
}

/*
 * Mount a read-only overlay of a folder over it, in our own mount namespace. Its files have other inodes, so nobody can
 * connect to a service's socket in it, and locks and leases are private to the sandbox. Mounts below the folder are not
 * visible; if they are locked for us, the kernel refuses the overlay (-EINVAL).
 */
int sb_root_shield(const struct sb_root *r, int folder_fd)
{
	_cleanup_close_ int tree = sb_root_overlay(r, folder_fd);

	return tree < 0 ? tree : mnt_attach(tree, folder_fd, "");
}

/*
 * Nobody gains rights inside, so these programs could only fail. Scripts look whether they are there: make them absent, by
 * whiteouts in LAYER, a folder that covers the host's /usr. Returns whether there are any.
 */
static bool hide_setuid(int layer)
{
	static const char *const names[] = { "bin/sudo", "bin/sudoedit", "bin/doas", "bin/pkexec" };
	bool any = false;

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		char host[32];

		snprintf(host, sizeof(host), "/usr/%s", names[i]);
		if (faccessat(AT_FDCWD, host, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		if (!any)
			path_folder(layer, "bin", 0755);
		any |= mknodat(layer, names[i], S_IFCHR, 0) == 0;
	}
	return any;
}

/* The same as sb_root_overlay for /usr. The layer with the whiteouts lies where /proc will be mounted, so nobody sees it. */
static int overlay_usr(const struct sb_root *r, int usr_fd)
{
	_cleanup_close_ int layer = -1;
	char lower[64];
	const char *const opts[][2] = { { "lowerdir", lower }, { "redirect_dir", "nofollow" }, { NULL, NULL } };
	int rc = sb_root_folder(r, "proc/layer", 0755);

	layer = rc < 0 ? -1 : openat(r->fd, "proc/layer", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (layer < 0 || !hide_setuid(layer))
		return sb_root_overlay(r, usr_fd);
	snprintf(lower, sizeof(lower), "/proc/self/fd/%d:/proc/self/fd/%d", layer, usr_fd);
	return mnt_new("overlay", opts, MNT_SAFE | MOUNT_ATTR_RDONLY);
}

/* Mount one of the host's folders through an overlay. */
static int add_shielded(const struct sb_root *r, const char *source, const char *target)
{
	_cleanup_close_ int host = open(source, O_PATH | O_DIRECTORY | O_CLOEXEC), tree = -1;

	if (host < 0)
		return -errno;
	tree = strcmp(target, "usr") ? sb_root_overlay(r, host) : overlay_usr(r, host);
	return tree < 0 ? tree : mnt_attach(tree, r->fd, target);
}

/*
 * Note that FOLDER is mounted directly, because it cannot be overlaid (something is mounted below it, in a container) and
 * programs do not run without it.
 */
void sb_root_note_open(const struct sb_root *r, const char *folder, int rc)
{
	char note[160];

	snprintf(note, sizeof(note), "cannot overlay %s (%s): the sandbox can connect to sockets of host programs in it", folder,
		strerror(-rc));
	sb_send(r->ctx->ctl, SB_MSG_NOTE, 0, note, -1);
}

/* An empty /opt needs no overlay: the sandbox's own empty folder does. */
static bool has_opt(void)
{
	return access("/opt", X_OK) == 0 && !sb_root_is_empty("/opt");
}

/* Programs run without /opt: if it cannot be overlaid, leave it out. */
static void add_opt(const struct sb_root *r)
{
	char note[96];
	int rc = add_shielded(r, "/opt", "opt");

	if (rc == 0)
		return;
	snprintf(note, sizeof(note), "cannot overlay /opt (%s): it is not visible in the sandbox", strerror(-rc));
	sb_send(r->ctx->ctl, SB_MSG_NOTE, 0, note, -1);
}

/* /bin, /lib and so on: links where /usr is merged, folders elsewhere. */
static int add_usr_names(const struct sb_root *r, struct ak_err *err)
{
	static const char *const names[] = { "bin", "sbin", "lib", "lib64", "lib32", "libx32" };

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		char host[16], target[PATH_MAX];
		ssize_t len;
		int rc = 0;

		snprintf(host, sizeof(host), "/%s", names[i]);
		len = readlink(host, target, sizeof(target) - 1);
		if (len < 0 && errno == ENOENT)
			continue;
		if (len > 0) {
			target[len] = '\0';
			rc = sb_root_link(r, names[i], target);
		} else {
			rc = sb_root_folder(r, names[i], 0755);
			if (rc == 0)
				rc = bind_host(r, host, names[i]);
		}
		if (rc < 0)
			return sb_root_failed(err, rc, host);
	}
	return 0;
}

static int add_host(const struct sb_root *r, struct ak_err *err)
{
	int rc;

	if (!r->private_usr) {
		rc = add_shielded(r, "/usr", "usr");
		if (rc < 0) {
			sb_root_note_open(r, "/usr", rc);
			rc = bind_host(r, "/usr", "usr");
		}
		if (rc < 0)
			return sb_root_failed(err, rc, "/usr");
	}
	rc = add_usr_names(r, err);
	if (rc < 0)
		return rc;
	if (sb_root_folder(r, "opt", 0755) == 0 && !r->private_usr && has_opt())
		add_opt(r);
	return 0;
}

/* ---- privately writable /usr and /opt ---- */

/*
 * Create folders of /usr/local in the upper layer. They are merged with the host's but belong to the sandbox's user, so that
 * an ordinary user, who owns nothing in the host's /usr, can install there.
 */
static void make_local_folders(int upper)
{
	static const char *const names[] = { "local", "local/bin", "local/sbin", "local/lib", "local/include", "local/share",
		"local/etc", "local/share/man", "local/lib/node_modules" };

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		path_folder(upper, names[i], 0755);
}

/* A folder of the host that is privately writable. */
struct private_folder {
	const char *host, *name, *work; /* WORK is overlayfs's own scratch folder */
};

static int mount_overlay(const struct sb_root *r, const struct private_folder *f)
{
	char upper[64], work[64];
	const char *const opts[][2] = { { "lowerdir", f->host }, { "upperdir", upper }, { "workdir", work },
		{ "userxattr", NULL }, { NULL, NULL } };
	_cleanup_close_ int upper_fd = -1, tree = -1;
	int rc = path_folder(r->store, f->name, 0755);

	if (rc == 0)
		rc = path_folder(r->store, f->work, 0755);
	if (rc < 0)
		return rc;
	upper_fd = openat(r->store, f->name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (upper_fd < 0)
		return -errno;
	if (!strcmp(f->name, "usr")) {
		make_local_folders(upper_fd);
		hide_setuid(upper_fd);
	}
	/* By descriptor: the store has no path, because the root is mounted over it. */
	snprintf(upper, sizeof(upper), "/proc/self/fd/%d", upper_fd);
	snprintf(work, sizeof(work), "/proc/self/fd/%d/%s", r->store, f->work);
	tree = mnt_new("overlay", opts, MNT_SAFE);
	return tree < 0 ? tree : mnt_attach(tree, r->fd, f->name);
}

static int add_private_folder(const struct sb_root *r, const struct private_folder *f, struct ak_err *err)
{
	char note[128];
	_cleanup_close_ int tree = -1;
	int rc = mount_overlay(r, f);

	if (rc == 0)
		return 0;
	if (!strcmp(f->name, "opt")) {
		add_opt(r);
		return 0;
	}
	snprintf(note, sizeof(note), "cannot create a private overlay (%s): %s is read-only", strerror(-rc), f->host);
	sb_send(r->ctx->ctl, SB_MSG_NOTE, 0, note, -1);
	if (add_shielded(r, f->host, f->name) == 0)
		return 0;
	sb_root_note_open(r, f->host, rc);
	tree = mnt_clone(AT_FDCWD, f->host, true);
	rc = tree < 0 ? tree : mnt_attr(tree, true, MNT_SAFE | MOUNT_ATTR_RDONLY, 0);
	if (rc == 0)
		rc = mnt_attach(tree, r->fd, f->name);
	return rc < 0 ? sb_root_failed(err, rc, f->host) : 0;
}

static int add_private_folders(const struct sb_root *r, struct ak_err *err)
{
	static const struct private_folder folders_of_host[] = { { "/usr", "usr", "work" }, { "/opt", "opt", "work-opt" } };
	int rc = add_private_folder(r, &folders_of_host[0], err);

	/* A kept root may have its own files there. */
	if (rc == 0 && (r->ctx->spec->upper_dir ? access("/opt", X_OK) == 0 : has_opt()))
		rc = add_private_folder(r, &folders_of_host[1], err);
	return rc;
}

/* ---- the whole base ---- */

/* Everything mounted so far is the host's: make it read-only in one call, then make only the root itself writable again. */
static int seal_host(const struct sb_root *r, struct ak_err *err)
{
	int rc = mnt_attr(r->fd, true, MNT_SAFE | MOUNT_ATTR_RDONLY, 0);

	if (rc == 0)
		rc = mnt_attr(r->fd, false, 0, MOUNT_ATTR_RDONLY);
	return rc < 0 ? sb_root_failed(err, rc, "making it read-only") : 0;
}

/* The host's programs and the files that they need. */
static int add_programs(const struct sb_root *r, struct ak_err *err)
{
	int rc = add_host(r, err);

	if (rc == 0)
		rc = sb_root_etc(r, err);
	if (rc == 0)
		rc = seal_host(r, err);
	return rc < 0 || !r->private_usr ? rc : add_private_folders(r, err);
}

static int assemble(struct sb_root *r, struct ak_err *err)
{
	int rc = mnt_make_private();

	if (rc < 0)
		return sb_root_failed(err, rc, "private mounts");
	if ((rc = mount_root(r, err)) < 0 || (rc = make_skeleton(r, err)) < 0)
		return rc;
	rc = r->ctx->spec->image_root ? sb_root_resolver(r, err) : add_programs(r, err);
	if (rc < 0)
		return rc;
	rc = sb_root_dev(r, err);
	return rc < 0 ? rc : sb_root_proc(r, err);
}

bool sb_root_read_only(const struct sandbox_spec *spec)
{
	return spec->readonly_root || spec->isolation == SANDBOX_STRICT;
}

int sb_root_base(struct sb_root *r, const struct sb_ctx *ctx, struct ak_err *err)
{
	mode_t mask = umask(0);
	int rc;

	*r = (struct sb_root){ .ctx = ctx,
		.store = -1,
		.fd = -1,
		.pid_max = -1,
		.private_usr = !sb_root_read_only(ctx->spec) && !ctx->spec->image_root };
	rc = assemble(r, err);
	umask(mask);
	return rc;
}

void sb_root_done(struct sb_root *r)
{
	r->store = ak_close(r->store);
	r->fd = ak_close(r->fd);
	r->pid_max = ak_close(r->pid_max);
}
