/*
 * The kernel's file-descriptor mount interface (Linux 5.12), as thin wrappers. Raw system calls, because C libraries
 * got them late and their header does not go together with the kernel's.
 */
#ifndef AK_VMCTL_MNT_H
#define AK_VMCTL_MNT_H

#include <linux/mount.h>
#include <stdbool.h>
#include <stdint.h>

#define MNT_SAFE (MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV)

/* A detached copy of what is mounted at PATH, with everything below it when RECURSIVE. */
int mnt_clone(int dirfd, const char *path, bool recursive);

/* A new file system; OPTS are name, value pairs, a NULL name ends them. */
int mnt_new(const char *fstype, const char *const opts[][2], uint64_t attrs);

/* Change one option of the file system that FD is on. */
int mnt_reconfigure(int fd, const char *name, const char *value);

/* Set and clear attributes of the mount that FD is on; of all below it when RECURSIVE. */
int mnt_attr(int fd, bool recursive, uint64_t set, uint64_t clear);

/* Let the detached TREE show owners as USER_NS names them. File systems that cannot: -EINVAL. */
int mnt_map_owners(int tree, bool recursive, int user_ns);

/* Mount the detached TREE on the file or folder PATH below DIRFD ("" is DIRFD itself). */
int mnt_attach(int tree, int dirfd, const char *path);

/* Nothing that is mounted from now on is seen outside, nor the other way. */
int mnt_make_private(void);

/* Make the mount that ROOT_FD is on the root of this namespace and let go of the old one. */
int mnt_pivot(int root_fd);

#endif
