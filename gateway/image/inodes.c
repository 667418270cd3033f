/* A set of inode numbers: an open hash table. See inodes.h. */
#include "gateway/image/inodes.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>

static size_t slot_of(const struct inodes *set, ino_t ino)
{
	size_t i = (size_t)(ino * UINT64_C(0x9e3779b97f4a7c15)) & (set->cap - 1);

	while (set->slots[i] && set->slots[i] != ino)
		i = (i + 1) & (set->cap - 1);
	return i;
}

bool inodes_has(const struct inodes *set, ino_t ino)
{
	return set->cap && set->slots[slot_of(set, ino)] == ino;
}

static int grow(struct inodes *set)
{
	struct inodes next = { .n = set->n, .cap = set->cap ? 2 * set->cap : 1024 };

	next.slots = calloc(next.cap, sizeof(*next.slots));
	if (!next.slots)
		return -ENOMEM;
	for (size_t i = 0; i < set->cap; i++) {
		if (set->slots[i])
			next.slots[slot_of(&next, set->slots[i])] = set->slots[i];
	}
	free(set->slots);
	*set = next;
	return 0;
}

int inodes_add(struct inodes *set, ino_t ino)
{
	int rc = 2 * (set->n + 1) > set->cap ? grow(set) : 0;
	size_t i;

	if (rc < 0)
		return rc;
	i = slot_of(set, ino);
	set->n += !set->slots[i];
	set->slots[i] = ino;
	return 0;
}

void inodes_done(struct inodes *set)
{
	free(set->slots);
	*set = (struct inodes){ 0 };
}
