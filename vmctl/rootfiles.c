/*
 * /etc, /dev and /proc of the sandbox.
 *
 * Only a fixed list of the host's /etc is visible, file by file: a sandbox of root could otherwise read the host's secrets.
 * The same applies to /proc: what the host's root may write there is read-only or covered.
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

/* ---- /etc ---- */

/*
 * Visible read-only if the host has them. A trailing slash marks a folder that is public as a whole. Their parents are in the
 * skeleton. Every system call per entry counts: this is a good part of a sandbox's start. Folders that are usually small may
 * be copied (rootcopy.c).
 */
static const struct {
	const char *name;
	bool small;
} host_etc[] = {
	{ "ld.so.cache", false },
	{ "ld.so.conf", false },
	{ "ld.so.conf.d/", true },
	{ "ld-musl-x86_64.path", false },
	{ "ld-musl-aarch64.path", false },
	{ "alternatives/", false },
	{ "protocols", false },
	{ "services", false },
	{ "mime.types", false },
	{ "terminfo/", true },
	{ "ssl/certs/", false },
	{ "ssl/openssl.cnf", false },
	{ "ssl/cert.pem", false },
	{ "ca-certificates/", true },
	{ "ca-certificates.conf", false },
	{ "pki/ca-trust/", false },
	{ "pki/tls/certs/", false },
	{ "pki/tls/cert.pem", false },
	{ "pki/tls/openssl.cnf", false },
	{ "crypto-policies/", false },
	{ "fonts/", false },
	{ "java-8-openjdk/", false },
	{ "java-11-openjdk/", false },
	{ "java-17-openjdk/", false },
	{ "java-21-openjdk/", false },
	{ "java-25-openjdk/", false },
	{ "maven/", true },
	{ "gradle/", true },
	{ "perl/", true },
	{ "python3/", true },
	{ "python3.9/", true },
	{ "python3.10/", true },
	{ "python3.11/", true },
	{ "python3.12/", true },
	{ "python3.13/", true },
};

/* Links into /usr are recreated instead of mounted: a mount would follow them. */
static const char *const host_etc_links[] = { "localtime", "os-release" };

/* A new root has no links to guard against, so plain calls are safe and save system calls. */
static int make_fresh(int root, const char *path)
{
	int rc = path[strlen(path) - 1] == '/' ? mkdirat(root, path, 0755) : mknodat(root, path, S_IFREG | 0644, 0);

	return rc < 0 && errno != EEXIST ? -errno : 0;
}

/* Attach TREE, a mount of the host's /NAME, at the same path. */
static int attach_same(const struct sb_root *r, int tree, const char *path)
{
	_cleanup_close_ int target = -1;
	int rc;

	if (!sb_root_guarded(r)) {
		rc = make_fresh(r->fd, path + 1);
		return rc < 0 ? rc : mnt_attach(tree, r->fd, path + 1);
	}
	target = path_target(r->fd, path + 1);
	return target < 0 ? target : mnt_attach(tree, target, "");
}

/* Missing, of another type, or not readable by this user: leave it out. */
static bool is_missing(int rc)
{
	return rc == -ENOENT || rc == -ENOTDIR || rc == -EACCES;
}

static int bind_same(const struct sb_root *r, const char *path)
{
	_cleanup_close_ int tree = mnt_clone(AT_FDCWD, path, path[strlen(path) - 1] == '/');

	if (tree < 0)
		return is_missing(tree) ? 0 : tree;
	return attach_same(r, tree, path);
}

/* The same for a folder, through an overlay. */
static int overlay_same(const struct sb_root *r, const char *path)
{
	_cleanup_close_ int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC), tree = -1;

	if (fd < 0)
		return -errno;
	tree = sb_root_overlay(r, fd);
	return tree < 0 ? tree : attach_same(r, tree, path);
}

/* Mount an overlay over the host's folder: later mounts from there use the overlay. */
static int shield_etc(const struct sb_root *r)
{
	_cleanup_close_ int fd = open("/etc", O_PATH | O_DIRECTORY | O_CLOEXEC);

	return fd < 0 ? -errno : sb_root_shield(r, fd);
}

/*
 * In containers these files are mounts, and the kernel then refuses an overlay of /etc. Check first, because every refusal
 * logs a line in the host's kernel log. This is only a guess: an overlay that is refused anyway is handled.
 */
static bool etc_has_mounts(void)
{
	static const char *const usual[] = { "/etc/resolv.conf", "/etc/hosts", "/etc/hostname" };
	struct statx st;

	for (size_t i = 0; i < ARRAY_SIZE(usual); i++) {
		if (statx(AT_FDCWD, usual[i], AT_SYMLINK_NOFOLLOW, 0, &st) == 0 && (st.stx_attributes & STATX_ATTR_MOUNT_ROOT))
			return true;
	}
	return false;
}

static int bind_etc(const struct sb_root *r, const char *name, bool shielded, bool small)
{
	char path[64];
	int rc;

	snprintf(path, sizeof(path), "/etc/%s", name);
	if (!shielded && path[strlen(path) - 1] == '/') {
		if (small && !sb_root_guarded(r) && sb_root_copy(r, path) == 0)
			return 0;
		rc = overlay_same(r, path);
		if (rc == 0 || is_missing(rc))
			return 0;
		sb_root_note_open(r, path, rc);
	}
	return bind_same(r, path);
}

static int copy_etc_link(const struct sb_root *r, const char *name)
{
	char path[64], target[PATH_MAX];
	ssize_t len;

	snprintf(path, sizeof(path), "/etc/%s", name);
	len = readlink(path, target, sizeof(target) - 1);
	if (len < 0)
		return errno == EINVAL ? bind_etc(r, name, true, false) : 0;
	target[len] = '\0';
	return sb_root_link(r, path + 1, target);
}

static int write_etc(const struct sb_root *r, const char *path, const char *text, struct ak_err *err)
{
	int rc = sb_root_write(r, path, text);

	return rc < 0 ? ak_fail_errno(err, -rc, "writing /%s", path) : 0;
}

/* The value of KEY in the environment of the command, if it can stand in /etc/passwd; else OTHERWISE. */
static const char *name_of(const struct sb_root *r, const char *key, const char *otherwise)
{
	char *const *e = r->ctx->spec->envp;
	size_t len = strlen(key);

	for (; e && *e; e++) {
		const char *value = *e + len + 1;

		if (!strncmp(*e, key, len) && (*e)[len] == '=' && *value && !value[strcspn(value, ":\n")] && strlen(value) < 256)
			return value;
	}
	return otherwise;
}

static int write_users(const struct sb_root *r, struct ak_err *err)
{
	const struct sb_ids *ids = &r->ctx->ids;
	const char *home = r->ctx->spec->home ? r->ctx->spec->home : "/", *shell = name_of(r, "SHELL", "/bin/sh"),
		   *user = name_of(r, "USER", "agent");
	char text[PATH_MAX + 1280];
	int rc;

	if (!strcmp(user, "root") || !strcmp(user, "nobody"))
		user = "agent";
	if (ids->inner_uid)
		snprintf(text, sizeof(text),
			"root:x:0:0:root:/root:/bin/sh\n%s:x:%u:%u:%s:%s:%s\nnobody:x:65534:65534:nobody:/:/bin/false\n", user,
			(unsigned)ids->inner_uid, (unsigned)ids->inner_gid, user, home, shell);
	else
		snprintf(text, sizeof(text), "root:x:0:0:root:%s:%s\nnobody:x:65534:65534:nobody:/:/bin/false\n", home, shell);
	rc = write_etc(r, "etc/passwd", text, err);
	if (rc < 0)
		return rc;
	if (ids->inner_gid)
		snprintf(text, sizeof(text), "root:x:0:\n%s:x:%u:\ntty:x:5:\nnogroup:x:65534:\n", user, (unsigned)ids->inner_gid);
	else
		snprintf(text, sizeof(text), "root:x:0:\ntty:x:5:\nnogroup:x:65534:\n");
	return write_etc(r, "etc/group", text, err);
}

int sb_root_names(const struct sb_root *r, struct ak_err *err)
{
	const struct sandbox_spec *spec = r->ctx->spec;
	char text[512];
	int rc = spec->image_root ? sb_root_image_users(r, err) : write_users(r, err);

	if (rc < 0)
		return rc;
	snprintf(text, sizeof(text), "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n127.0.0.1\t%s\n::1\t%s\n",
		spec->name, spec->name);
	rc = write_etc(r, "etc/hosts", text, err);
	if (rc < 0)
		return rc;
	snprintf(text, sizeof(text), "%s\n", spec->name);
	return write_etc(r, "etc/hostname", text, err);
}

int sb_root_resolver(const struct sb_root *r, struct ak_err *err)
{
	const char *resolv_conf = r->ctx->spec->resolv_conf;

	return write_etc(r, "etc/resolv.conf", resolv_conf ? resolv_conf : "", err);
}

static int write_resolver(const struct sb_root *r, struct ak_err *err)
{
	int rc = write_etc(r, "etc/nsswitch.conf",
		"passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nnetworks: files\nprotocols: files\nservices: files\nethers: files\nrpc: files\n",
		err);

	return rc < 0 ? rc : sb_root_resolver(r, err);
}

int sb_root_etc(const struct sb_root *r, struct ak_err *err)
{
	int rc = write_resolver(r, err);
	bool shielded;

	if (rc < 0)
		return rc;
	rc = sb_root_link(r, "etc/mtab", "../proc/self/mounts");
	if (rc < 0)
		return ak_fail_errno(err, -rc, "/etc/mtab");
	shielded = !etc_has_mounts() && shield_etc(r) >= 0;
	for (size_t i = 0; i < ARRAY_SIZE(host_etc); i++) {
		rc = bind_etc(r, host_etc[i].name, shielded, host_etc[i].small);
		if (rc < 0)
			return ak_fail_errno(err, -rc, "/etc/%s", host_etc[i].name);
	}
	for (size_t i = 0; i < ARRAY_SIZE(host_etc_links); i++) {
		rc = copy_etc_link(r, host_etc_links[i]);
		if (rc < 0)
			return ak_fail_errno(err, -rc, "/etc/%s", host_etc_links[i]);
	}
	return 0;
}

/* ---- /dev ---- */

int sb_root_dev(const struct sb_root *r, struct ak_err *err)
{
	static const char *const devices[] = { "/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty" };
	/* The host has some 3,000 terminals for all namespaces but its own. */
	static const char *const pts_opts[][2] = { { "newinstance", NULL }, { "ptmxmode", "0666" }, { "mode", "0620" },
		{ "max", "256" }, { NULL, NULL } };
	_cleanup_close_ int pts = -1;
	int rc;

	for (size_t i = 0; i < ARRAY_SIZE(devices); i++) {
		rc = bind_same(r, devices[i]);
		if (rc < 0)
			return ak_fail_errno(err, -rc, "%s", devices[i]);
	}
	rc = r->ctx->spec->kvm ? bind_same(r, "/dev/kvm") : 0;
	if (rc < 0)
		return ak_fail_errno(err, -rc, "/dev/kvm");
	pts = mnt_new("devpts", pts_opts, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC);
	rc = pts < 0 ? pts : mnt_attach(pts, r->fd, "dev/pts");
	return rc < 0 ? ak_fail_errno(err, -rc, "/dev/pts") : 0;
}

/* ---- /proc ---- */

/* Covered by an empty read-only folder, or by the null device. NULL ends each list. */
static const char *const masked_folders[] = { "acpi", "asound", "bus", "driver", "dynamic_debug", "fs", "irq", "scsi", NULL };
static const char *const masked_files[] = { "keys", "key-users", "kallsyms", NULL };
/* Readable by root only, so they need a cover only if the sandbox's user is root in the namespace that started it. */
static const char *const masked_for_root[] = { "kcore", "timer_list", "sched_debug", "sysrq-trigger", "latency_stats", "kmsg",
	"kpagecount", "kpageflags", "kpagecgroup", "slabinfo", "vmallocinfo", "pagetypeinfo", "mtrr", "vmcore", "bootconfig",
	"allocinfo", NULL };

/*
 * Mount copies of SOURCE, a mount in the root, on each of NAMES that exists in this kernel's /proc. Check first: a copy
 * without a target would have to be unmounted, which waits for an RCU grace period.
 */
static int cover(const struct sb_root *r, const char *source, int proc, const char *const *names, struct ak_err *err)
{
	for (; *names; names++) {
		_cleanup_close_ int tree = -1;
		int rc;

		if (faccessat(proc, *names, F_OK, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT)
			continue;
		tree = mnt_clone(r->fd, source, false);
		rc = tree < 0 ? tree : mnt_attach(tree, proc, *names);
		if (rc < 0)
			return ak_fail_errno(err, -rc, "covering /proc/%s", *names);
	}
	return 0;
}

/* Bind PATH to itself read-only; clones of the mount inherit that. */
static int make_read_only(int dirfd, const char *path)
{
	_cleanup_close_ int tree = mnt_clone(dirfd, path, false);
	int rc = tree < 0 ? tree : mnt_attr(tree, false, MNT_SAFE | MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOEXEC, 0);

	return rc < 0 ? rc : mnt_attach(tree, dirfd, path);
}

static int cover_all(const struct sb_root *r, int proc, struct ak_err *err)
{
	int rc = make_read_only(proc, "sys");

	if (rc == 0)
		rc = make_read_only(r->fd, "sys");
	if (rc < 0)
		return ak_fail_errno(err, -rc, "/proc/sys");
	rc = cover(r, "sys", proc, masked_folders, err);
	if (rc == 0)
		rc = cover(r, "dev/null", proc, masked_files, err);
	if (rc == 0 && r->ctx->ids.outer_uid == 0)
		rc = cover(r, "dev/null", proc, masked_for_root, err);
	return rc;
}

int sb_root_proc(struct sb_root *r, struct ak_err *err)
{
	_cleanup_close_ int proc = mnt_new("proc", NULL, MNT_SAFE | MOUNT_ATTR_NOEXEC);
	int rc = proc < 0 ? proc : mnt_attach(proc, r->fd, "proc");

	if (rc == -EPERM)
		return ak_fail(err, EPERM,
			"/proc: the host's own /proc is partly covered (a container?), so the kernel refuses a new one");
	if (rc < 0)
		return ak_fail_errno(err, -rc, "/proc");
	/*
	 * Open it before /proc becomes read-only. Older kernels have one pid_max for the whole host, so the caller has checked
	 * the version.
	 */
	if (r->ctx->kernel_pid_max) {
		r->pid_max = openat(proc, "sys/kernel/pid_max", O_WRONLY | O_CLOEXEC);
		if (r->pid_max < 0)
			return ak_fail_errno(err, errno, "limiting processes");
	}
	return cover_all(r, proc, err);
}
