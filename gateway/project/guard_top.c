/*
 * The names in the project's top folder: see project/guard.h.
 *
 * A project has only a few of the protected and watched names. One listing of the folder rules out all the others at once. It
 * is kept as a set of hashes, which can report a missing name as present, but never the reverse. The same listing finds the names that are known
 * only by their end.
 */
#include "gateway/project/guard_internal.h"

#include "gateway/base/cleanup.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define LIST_BYTES (16 << 10) /* for one call */
#define LISTS_MAX 64 /* some 30,000 names */

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

static void add_name(struct guard_top *top, const char *name, size_t len)
{
	int bit = hash_name(name, len);

	if (bit < 0)
		top->known = false;
	else
		top->bits[bit / 64] |= UINT64_C(1) << bit % 64;
}

bool guard_has_suffix(const char *name)
{
	size_t len = strlen(name);

	for (size_t i = 0; guard_suffixes[i]; i++) {
		size_t n = strlen(guard_suffixes[i]);

		if (len >= n && !strcasecmp(name + len - n, guard_suffixes[i]))
			return true;
	}
	return false;
}

static void add_match(struct guard_top *top, const char *name)
{
	char *copy = top->n_matches < GUARD_MATCHES_MAX ? strdup(name) : NULL;

	if (copy)
		top->matches[top->n_matches++] = copy;
	else
		top->cut = true;
}

static void add_names(struct guard_top *top, const char *list, size_t len)
{
	for (size_t at = 0; at < len;) {
		const struct dirent64 *e = (const void *)(list + at);
		size_t n = strlen(e->d_name);

		if (top->known)
			add_name(top, e->d_name, n);
		if (guard_has_suffix(e->d_name))
			add_match(top, e->d_name);
		at += e->d_reclen;
	}
}

void guard_top_look(struct guard *g)
{
	_cleanup_close_ int dir = openat(g->roots[GUARD_PROJECT].fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	_Alignas(struct dirent64) char list[LIST_BYTES];
	ssize_t n = -1;

	guard_top_forget(g);
	g->top.known = true;
	for (int i = 0; dir >= 0 && i < LISTS_MAX && (n = getdents64(dir, list, sizeof(list))) > 0; i++)
		add_names(&g->top, list, (size_t)n);
	g->top.known = g->top.known && n == 0;
	g->top.cut = g->top.cut || n != 0;
}

void guard_top_forget(struct guard *g)
{
	for (size_t i = 0; i < g->top.n_matches; i++)
		free(g->top.matches[i]);
	g->top = (struct guard_top){ .known = false };
}

bool guard_top_lacks(const struct guard *g, const char *rel)
{
	int bit = g->top.known && rel[0] ? hash_name(rel, strcspn(rel, "/")) : -1;

	return bit >= 0 && !(g->top.bits[bit / 64] >> bit % 64 & 1);
}
