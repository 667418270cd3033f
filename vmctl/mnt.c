/* File-descriptor mounts: see mnt.h. */
#include "vmctl/mnt.h"

#include "gateway/base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef AT_RECURSIVE
#define AT_RECURSIVE 0x8000
#endif
#define UMOUNT_DETACH 2 /* MNT_DETACH, whose header conflicts with linux/mount.h */

int mnt_clone(int dirfd, const char *path, bool recursive)
{
	unsigned flags = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_NO_AUTOMOUNT;
	long fd;

	if (recursive)
		flags |= AT_RECURSIVE;
	if (!path[0])
		flags |= AT_EMPTY_PATH;
	fd = syscall(SYS_open_tree, dirfd, path, flags);
	return fd < 0 ? -errno : (int)fd;
}

int mnt_new(const char *fstype, const char *const opts[][2], uint64_t attrs)
{
	_cleanup_close_ int fs = (int)syscall(SYS_fsopen, fstype, FSOPEN_CLOEXEC);
	long fd;

	if (fs < 0)
		return -errno;
	for (size_t i = 0; opts && opts[i][0]; i++) {
		unsigned kind = opts[i][1] ? FSCONFIG_SET_STRING : FSCONFIG_SET_FLAG;

		if (syscall(SYS_fsconfig, fs, kind, opts[i][0], opts[i][1], 0) < 0)
			return -errno;
	}
	if (syscall(SYS_fsconfig, fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
		return -errno;
	fd = syscall(SYS_fsmount, fs, FSMOUNT_CLOEXEC, (unsigned)attrs);
	return fd < 0 ? -errno : (int)fd;
}

int mnt_reconfigure(int fd, const char *name, const char *value)
{
	_cleanup_close_ int fs = (int)syscall(SYS_fspick, fd, "", FSPICK_CLOEXEC | FSPICK_EMPTY_PATH);

	if (fs < 0 || syscall(SYS_fsconfig, fs, FSCONFIG_SET_STRING, name, value, 0) < 0)
		return -errno;
	return syscall(SYS_fsconfig, fs, FSCONFIG_CMD_RECONFIGURE, NULL, NULL, 0) < 0 ? -errno : 0;
}

int mnt_attr(int fd, bool recursive, uint64_t set, uint64_t clear)
{
	struct mount_attr attr = { .attr_set = set, .attr_clr = clear };
	unsigned flags = AT_EMPTY_PATH | (recursive ? AT_RECURSIVE : 0);

	return syscall(SYS_mount_setattr, fd, "", flags, &attr, sizeof(attr)) < 0 ? -errno : 0;
}

int mnt_map_owners(int tree, bool recursive, int user_ns)
{
	struct mount_attr attr = { .attr_set = MOUNT_ATTR_IDMAP, .userns_fd = (uint64_t)user_ns };
	unsigned flags = AT_EMPTY_PATH | (recursive ? AT_RECURSIVE : 0);

	return syscall(SYS_mount_setattr, tree, "", flags, &attr, sizeof(attr)) < 0 ? -errno : 0;
}

int mnt_attach(int tree, int dirfd, const char *path)
{
	unsigned flags = MOVE_MOUNT_F_EMPTY_PATH | (path[0] ? 0 : MOVE_MOUNT_T_EMPTY_PATH);

	return syscall(SYS_move_mount, tree, "", dirfd, path, flags) < 0 ? -errno : 0;
}

int mnt_make_private(void)
{
	return syscall(SYS_mount, NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ? -errno : 0;
}

/* Is nothing mounted over the root? "/.." stays in the root and then follows mounts stacked on it; "/" does not. */
static bool root_is_bare(int root_fd)
{
	struct stat root, top;

	return fstat(root_fd, &root) == 0 && stat("/..", &top) == 0 && root.st_dev == top.st_dev && root.st_ino == top.st_ino;
}

int mnt_uncover(int root_fd)
{
	for (int layers = 0; layers < 4 && !root_is_bare(root_fd); layers++) {
		if (syscall(SYS_umount2, "/..", UMOUNT_DETACH) < 0)
			return -errno;
	}
	return root_is_bare(root_fd) ? 0 : -EBUSY; /* never run a command that could see the host's root */
}

/*
 * With "." for both, the old root is stacked on the new one and can be unmounted without a folder for it. There may be more
 * than one layer: the store, which contains the root, lies on the old root.
 */
int mnt_pivot(int root_fd)
{
	int rc = fchdir(root_fd) < 0 || syscall(SYS_pivot_root, ".", ".") < 0 ? -errno : mnt_uncover(root_fd);

	return rc < 0 ? rc : chdir("/") < 0 ? -errno : 0;
}
