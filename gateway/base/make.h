/*
 * Create files in a sandbox's folder. If the host's root runs a sandbox, its file systems map only the sandbox's own ids: for
 * root the kernel returns EOVERFLOW, and the file is then created as the owner of the folder.
 */
#ifndef AK_BASE_MAKE_H
#define AK_BASE_MAKE_H

#include <sys/types.h>

/* Create a file for writing, never through a link; returns the descriptor or -errno. */
int ak_make_file(int dir_fd, const char *name, mode_t mode);

/* Return 0 or -errno; -EEXIST if the name exists. */
int ak_make_folder(int dir_fd, const char *name, mode_t mode);
int ak_make_link(int dir_fd, const char *name, const char *target);

/* Rename FROM to TO within one folder. */
int ak_make_renamed(int dir_fd, const char *from, const char *to);

#endif
