/*
 * Thin wrappers of the kernel's file-descriptor mount interface (Linux 5.12). They use raw system calls, because C
 * libraries added them late and their header conflicts with the kernel's.
 */
#ifndef AK_VMCTL_MNT_H
#define AK_VMCTL_MNT_H

#include <linux/mount.h>
#include <stdbool.h>
#include <stdint.h>

#define MNT_SAFE (MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV)

/* Clone the mount at PATH as a detached mount; with everything mounted below it when RECURSIVE. */
int mnt_clone(int dirfd, const char *path, bool recursive);

/* Mount a new file system, detached. OPTS are name and value pairs; a NULL name ends them. */
int mnt_new(const char *fstype, const char *const opts[][2], uint64_t attrs);

/* Change one option of the file system of FD. */
int mnt_reconfigure(int fd, const char *name, const char *value);

/* Set and clear attributes of the mount of FD, and of all mounts below it when RECURSIVE. */
int mnt_attr(int fd, bool recursive, uint64_t set, uint64_t clear);

/* Map file owners of the detached TREE as USER_NS does. -EINVAL on file systems without support. */
int mnt_map_owners(int tree, bool recursive, int user_ns);

/* Mount the detached TREE on the file or folder PATH below DIRFD ("" is DIRFD itself). */
int mnt_attach(int tree, int dirfd, const char *path);

/* Stop mount propagation in both directions. */
int mnt_make_private(void);

/* Unmount what is mounted over ROOT_FD, the root of this process. -EBUSY if something stays. */
int mnt_uncover(int root_fd);

/* Make the mount of ROOT_FD the root of this mount namespace and unmount the old root. */
int mnt_pivot(int root_fd);

#endif
