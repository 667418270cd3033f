/*
 * Making folders and files below a descriptor without ever following a symbolic link: a kept root was written by a
 * sandbox, and what is mounted or written into it must land where it was meant to.
 */
#ifndef AK_VMCTL_PATH_H
#define AK_VMCTL_PATH_H

#include <sys/types.h>

/* mkdir -p below ROOT_FD; *RET_FD is an O_PATH descriptor of the last part. PATH may start with a slash; ".." is refused. */
int path_make_dir(int root_fd, const char *path, mode_t mode, int *ret_fd);

/* As path_make_dir for all but the last part, which is an empty file (made when missing). */
int path_make_file(int root_fd, const char *path, int *ret_fd);

/* Replace the file PATH (its folder exists) by TEXT, mode 0644. */
int path_write(int root_fd, const char *path, const char *text);

#endif
