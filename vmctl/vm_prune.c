/*
 * Old templates. Each takes some eighty megabytes, and each size of memory, kernel or version of this program has its own. Whoever makes one removes those that are too old to
 * be used, the remains of makers that were killed, and of the others all but the last used. The folder is locked meanwhile, so nobody opens one; guests that run have
 * copies of their own.
 */
#include "vmctl/vm_internal.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#define KEPT 8u /* besides the new one */
#define SEEN 256u /* more are left for the next time */
#define NAME_LEN 32u /* hexadecimal digits */

struct old {
	char name[48];
	time_t used;
};

/* A template, or one that was being made: "….new". */
static bool is_template(const char *name, bool *ret_fresh)
{
	size_t n = strspn(name, "0123456789abcdef");

	*ret_fresh = !strcmp(name + n, ".new");
	return n == NAME_LEN && (!name[n] || *ret_fresh);
}

/* When it was used last; 0: it never will be. */
static time_t last_use(int store, const char *name)
{
	_cleanup_close_ int dir = openat(store, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct stat made, used;

	if (dir < 0 || fstat(dir, &used) < 0 || fstatat(dir, "complete", &made, AT_SYMLINK_NOFOLLOW) < 0 ||
		time(NULL) - made.st_mtime >= VM_AGE_MAX_S)
		return 0;
	return used.st_mtime > 0 ? used.st_mtime : 1;
}

static int newest_first(const void *a, const void *b)
{
	const struct old *x = a, *y = b;

	return x->used < y->used ? 1 : x->used > y->used ? -1 : strcmp(x->name, y->name);
}

void vm_prune(int store, const char *keep)
{
	static struct old list[SEEN];
	int fd = openat(store, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	size_t n = 0;

	for (struct dirent *e; dir && n < SEEN && (e = readdir(dir));) {
		bool fresh;

		if (!is_template(e->d_name, &fresh) || !strcmp(e->d_name, keep))
			continue;
		snprintf(list[n].name, sizeof(list[n].name), "%.40s", e->d_name);
		list[n++].used = fresh ? 0 : last_use(store, e->d_name);
	}
	if (dir)
		closedir(dir);
	else
		ak_close(fd);
	qsort(list, n, sizeof(*list), newest_first);
	for (size_t i = 0; i < n; i++) {
		if (i >= KEPT || !list[i].used)
			(void)ak_remove_tree(store, list[i].name);
	}
}
