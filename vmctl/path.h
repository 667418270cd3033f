/*
 * Create folders and files below a descriptor without following symbolic links. A sandbox may have written a kept
 * root, and mounts and files must land at the intended place in it.
 *
 * If the sandbox replaced something that every root has, that is renamed ("etc" becomes "etc.replaced"), so that it
 * can neither redirect us nor prevent the next start. This happens only in the root's own mount, never in a host
 * folder that is mounted there.
 */
#ifndef AK_VMCTL_PATH_H
#define AK_VMCTL_PATH_H

#include <sys/types.h>

/*
 * mkdir -p below ROOT_FD; *RET_FD is an O_PATH descriptor of the last component. PATH may start with a slash; ".." is
 * refused.
 */
int path_make_dir(int root_fd, const char *path, mode_t mode, int *ret_fd);

/*
 * The same, but call it only while nothing of the host is mounted on PATH: also renames what is in the way in mounts
 * that belong to the root, such as /tmp.
 */
int path_make_own_dir(int root_fd, const char *path, mode_t mode, int *ret_fd);

/* Like path_make_dir for all but the last component, which is an empty file (created when missing). */
int path_make_file(int root_fd, const char *path, int *ret_fd);

/* Create the folder PATH in the root's own mount. The parent must exist. */
int path_folder(int root_fd, const char *path, mode_t mode);

/* The same, or an empty file when PATH has no trailing slash; returns an O_PATH descriptor to mount on. */
int path_target(int root_fd, const char *path);

/* Create a symbolic link, unless the name exists. */
int path_link(int root_fd, const char *path, const char *target);

/* Replace the content of the file PATH (its folder exists) by TEXT, mode 0644. */
int path_write(int root_fd, const char *path, const char *text);

#endif
