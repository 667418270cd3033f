/* A growing set of inode numbers of one file system. All zero is the empty set. */
#ifndef AK_IMAGE_INODES_H
#define AK_IMAGE_INODES_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct inodes {
	ino_t *slots; /* owned; 0: free */
	size_t n, cap; /* cap: a power of two */
};

bool inodes_has(const struct inodes *set, ino_t ino);
int inodes_add(struct inodes *set, ino_t ino); /* -ENOMEM */
void inodes_done(struct inodes *set);

#endif
