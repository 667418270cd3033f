/*
 * The names in the project's top folder: see project/guard.h.
 *
 * A project has only a few of the protected and watched names. One listing of the folder rules out all the others at once. It
 * is kept as a set of hashes, which can report a missing name as present, but never the reverse.
 */
#include "gateway/project/guard_internal.h"

#include "gateway/base/cleanup.h"

#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define LIST_BYTES 4096 /* for one call */
#define LISTS_MAX 2 /* beyond this, looking up each name is cheaper */

/*
 * Ignore case, because some file systems do. -1: a character beyond ASCII, which such a file system may treat as equal to an
 * ASCII letter.
 */
static int hash_name(const char *name, size_t len)
{
	uint32_t h = 2166136261u; /* FNV-1a */

	for (size_t i = 0; i < len; i++) {
		unsigned char c = (unsigned char)name[i];

		if (c >= 0x80)
			return -1;
		h = (h ^ (c >= 'A' && c <= 'Z' ? c + 32u : c)) * 16777619u;
	}
	return (int)((h ^ h >> 16) % GUARD_TOP_BITS);
}

static bool add_names(struct guard_top *top, const char *list, size_t len)
{
	for (size_t at = 0; at < len;) {
		const struct dirent64 *e = (const void *)(list + at);
		int bit = hash_name(e->d_name, strlen(e->d_name));

		if (bit < 0)
			return false;
		top->bits[bit / 64] |= UINT64_C(1) << bit % 64;
		at += e->d_reclen;
	}
	return true;
}

void guard_top_look(struct guard *g)
{
	_cleanup_close_ int dir = openat(g->roots[GUARD_PROJECT].fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	_Alignas(struct dirent64) char list[LIST_BYTES];
	ssize_t n = -1;

	g->top = (struct guard_top){ .known = false };
	for (int i = 0; dir >= 0 && i <= LISTS_MAX && (n = getdents64(dir, list, sizeof(list))) > 0; i++) {
		if (i == LISTS_MAX || !add_names(&g->top, list, (size_t)n))
			return;
	}
	g->top.known = n == 0;
}

void guard_top_forget(struct guard *g)
{
	g->top.known = false;
}

bool guard_top_lacks(const struct guard *g, const char *rel)
{
	int bit = g->top.known && rel[0] ? hash_name(rel, strcspn(rel, "/")) : -1;

	return bit >= 0 && !(g->top.bits[bit / 64] >> bit % 64 & 1);
}
