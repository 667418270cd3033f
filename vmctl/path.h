/*
 * Making folders and files below a descriptor without ever following a symbolic link: a kept root was written by a
 * sandbox, and what is mounted or written into it must land where it was meant to.
 *
 * What a sandbox put in the place of something that every root has is moved aside ("etc" becomes "etc.replaced"), so that it
 * can neither lead elsewhere nor keep the sandbox from starting again. That happens in the root's own mount only, never in
 * a folder of the host that is mounted there.
 */
#ifndef AK_VMCTL_PATH_H
#define AK_VMCTL_PATH_H

#include <sys/types.h>

/* mkdir -p below ROOT_FD; *RET_FD is an O_PATH descriptor of the last part. PATH may start with a slash; ".." is refused. */
int path_make_dir(int root_fd, const char *path, mode_t mode, int *ret_fd);

/* The same while nothing of the host is mounted on PATH: /tmp, a mount of its own, belongs to the root as well. */
int path_make_own_dir(int root_fd, const char *path, mode_t mode, int *ret_fd);

/* As path_make_dir for all but the last part, which is an empty file (made when missing). */
int path_make_file(int root_fd, const char *path, int *ret_fd);

/* The folder PATH, whose parent exists, in the root's own mount. */
int path_folder(int root_fd, const char *path, mode_t mode);

/* The same, or with a name that ends in no slash an empty file; an O_PATH descriptor to mount on. */
int path_target(int root_fd, const char *path);

/* A symbolic link, unless something has that name. */
int path_link(int root_fd, const char *path, const char *target);

/* Replace the file PATH (its folder exists) by TEXT, mode 0644. */
int path_write(int root_fd, const char *path, const char *text);

#endif
