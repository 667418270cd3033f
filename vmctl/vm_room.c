/*
 * The room of the process that runs a guest: a root and a mount namespace of its own inside the sandbox. It holds the host's programs, read-only, and in GUEST what the guest may
 * see: "root", the sandbox's root without /proc and terminals, and "usr", its programs. So QEMU runs whatever the sandbox's root is, an image included, and a guest that speaks 9p by
 * itself finds neither QEMU's memory nor QEMU's devices in its share.
 *
 * A parked sandbox has no complete root yet. QEMU runs already, and only a process in its mount namespace can mount the root later: the keeper. It waits for one message of
 * init, mounts what came with it and ends.
 */
#include "vmctl/vm_internal.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "vmctl/mnt.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define FS_ALL UINT64_C(0x7fff) /* what Landlock ABI 3 knows */
#define FS_ALL_V1 UINT64_C(0x1fff)
#define KVM "/dev/kvm"

/* ---- before the host's tree is detached ---- */

int sb_vm_open_host(const struct sb_root *r, struct sb_vm_host *ret, struct ak_err *err)
{
	_cleanup_close_ int usr = open("/usr", O_PATH | O_DIRECTORY | O_CLOEXEC);
	int rc;

	*ret = (struct sb_vm_host){ -1, -1 };
	ret->usr = usr < 0 ? -errno : sb_root_overlay(r, usr);
	if (ret->usr < 0 && usr >= 0) { /* something is mounted below it */
		ret->usr = mnt_clone(usr, "", true);
		rc = ret->usr < 0 ? ret->usr : mnt_attr(ret->usr, true, MNT_SAFE | MOUNT_ATTR_RDONLY, 0);
	} else {
		rc = ret->usr;
	}
	if (rc >= 0 && r->ctx->spec->vm->kvm)
		rc = ret->kvm = mnt_clone(AT_FDCWD, KVM, false);
	return rc < 0 ? ak_fail_errno(err, -rc, "the host's programs for the virtual machine") : 0;
}

/* ---- in the process of its own ---- */

static int add_usr(int room, int usr)
{
	static const char *const names[] = { "bin", "lib", "lib64" };
	int rc = mkdirat(room, "usr", 0755) < 0 ? -errno : mnt_attach(usr, room, "usr");

	for (size_t i = 0; i < ARRAY_SIZE(names) && rc == 0; i++) {
		char target[16];

		snprintf(target, sizeof(target), "usr/%s", names[i]);
		if (symlinkat(target, room, names[i]) < 0)
			rc = -errno;
	}
	return rc;
}

static int add_devices(int room, int kvm)
{
	_cleanup_close_ int file = -1;

	if (mkdirat(room, "dev", 0755) < 0)
		return -errno;
	if (kvm < 0)
		return 0;
	file = openat(room, "dev/kvm", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	return file < 0 ? -errno : mnt_attach(kvm, room, "dev/kvm");
}

/* Processes and terminals of the sandbox, which stand for the guest's own, are no business of the guest. */
static int furnish(int room, int root)
{
	int rc = mnt_attach(root, room, "guest/root");

	if (rc == 0 &&
		(fchdir(room) < 0 || umount2("guest/root/proc", MNT_DETACH) < 0 || umount2("guest/root/dev/pts", MNT_DETACH) < 0))
		rc = -errno;
	return rc;
}

/* Clones of the sandbox's mounts, detached; -1 if none. */
struct clones {
	int proc, usr, root; /* owned */
};

static void clones_close(struct clones *c)
{
	ak_close(c->proc);
	ak_close(c->usr);
	ak_close(c->root);
}

static int add_guest(int room, const struct clones *c)
{
	int rc = mkdirat(room, "guest", 0755) < 0 || mkdirat(room, "guest/root", 0755) < 0 || mkdirat(room, "guest/usr", 0755) < 0
		? -errno
		: 0;

	if (rc == 0 && c->usr >= 0)
		rc = mnt_attach(c->usr, room, "guest/usr");
	return rc < 0 || c->root < 0 ? rc : furnish(room, c->root);
}

static int build(const struct sb_vm_host *host, const struct clones *c)
{
	static const char *const opts[][2] = { { "size", "65536" }, { "mode", "0755" }, { NULL, NULL } };
	_cleanup_close_ int room = mnt_new("tmpfs", opts, MNT_SAFE);
	int rc = room < 0 ? room : mnt_attr(c->proc, true, MOUNT_ATTR_RDONLY, 0);

	if (rc == 0)
		rc = mnt_attach(room, AT_FDCWD, "/");
	if (rc == 0)
		rc = add_usr(room, host->usr);
	if (rc == 0)
		rc = add_devices(room, host->kvm);
	if (rc == 0)
		rc = add_guest(room, c);
	if (rc == 0)
		rc = mkdirat(room, "proc", 0555) < 0 ? -errno : mnt_attach(c->proc, room, "proc");
	if (rc == 0)
		rc = mnt_attr(room, false, MOUNT_ATTR_RDONLY, 0);
	if (rc == 0 && fchdir(room) < 0)
		rc = -errno;
	return rc < 0 ? rc : mnt_pivot(room);
}

/* Clone before the change of namespaces: BASE is a mount of the old one. */
int vm_room_enter(const struct sb_vm_host *host, int base, bool complete, struct ak_err *err)
{
	_cleanup_(clones_close) struct clones c = { mnt_clone(base, "proc", true), mnt_clone(base, "usr", true),
		complete ? mnt_clone(base, "", true) : -1 };
	int rc = c.proc < 0 ? c.proc : complete && c.root < 0 ? c.root : unshare(CLONE_NEWNS) < 0 ? -errno : build(host, &c);

	return rc < 0 ? ak_fail_errno(err, -rc, "the room of the virtual machine") : 0;
}

/* ---- the keeper ---- */

static _Noreturn void keep(int sock)
{
	int root = -1, rc;
	size_t n = 1;
	char byte;

	ak_close_others(&sock, 1);
	prctl(PR_SET_NAME, "ak-vm-room");
	if (ak_recv_fds(sock, &byte, 1, &root, &n) != 1 || n != 1)
		_exit(0); /* there will be no job */
	_cleanup_close_ int room = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);

	rc = room < 0 ? -errno : furnish(room, root);
	(void)!write(sock, &rc, sizeof(rc));
	_exit(0);
}

/* The keeper is init's child, which reaps it; QEMU would not. */
int vm_room_keep(int sock)
{
	pid_t pid = fork();
	int status = 0;

	if (pid == 0) {
		pid = fork();
		if (pid == 0)
			keep(sock);
		_exit(pid < 0 ? 1 : 0);
	}
	if (pid < 0 || waitpid(pid, &status, 0) < 0)
		return -errno;
	return status ? -EAGAIN : 0;
}

/* ---- what it may open ---- */

static int allow(int ruleset, const char *path, uint64_t rights)
{
	_cleanup_close_ int fd = open(path, O_PATH | O_CLOEXEC);
	struct landlock_path_beneath_attr rule = { .allowed_access = rights, .parent_fd = fd };

	return fd < 0 || syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) < 0 ? -errno : 0;
}

/* QEMU opens its memory files through /proc/self/fd, which Landlock does not count as files of /proc. */
int vm_room_close(bool kvm)
{
	const uint64_t read = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR | LANDLOCK_ACCESS_FS_EXECUTE;
	long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
	struct {
		uint64_t fs;
	} attr = { .fs = abi >= 3 ? FS_ALL : FS_ALL_V1 };
	_cleanup_close_ int ruleset = -1;
	int rc;

	if (abi < 1)
		return -EOPNOTSUPP;
	ruleset = (int)syscall(SYS_landlock_create_ruleset, &attr, sizeof(attr), 0);
	rc = ruleset < 0 ? -errno : allow(ruleset, "/usr", read);
	if (rc == 0)
		rc = allow(ruleset, "/guest", attr.fs);
	if (rc == 0 && kvm)
		rc = allow(ruleset, KVM, LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE);
	if (rc == 0 && syscall(SYS_landlock_restrict_self, ruleset, 0) < 0)
		rc = -errno;
	return rc;
}
