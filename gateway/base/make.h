/*
 * Making files in a folder of a sandbox. The sandboxes of the host's root have ids of their own, and their file systems know no other: there
 * the kernel answers EOVERFLOW to root, and the thing is made as the owner of the folder.
 */
#ifndef AK_BASE_MAKE_H
#define AK_BASE_MAKE_H

#include <sys/types.h>

/* A new file, never through a link, open for writing; the descriptor or -errno. */
int ak_make_file(int dir_fd, const char *name, mode_t mode);

/* -errno; -EEXIST when the name is taken. */
int ak_make_folder(int dir_fd, const char *name, mode_t mode);
int ak_make_link(int dir_fd, const char *name, const char *target);

/* FROM becomes TO, in one folder. */
int ak_make_renamed(int dir_fd, const char *from, const char *to);

#endif
