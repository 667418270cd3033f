/* Walking a path component by component: see walk.h. */
#include "gateway/project/walk.h"

#include "gateway/base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LINKS_MAX 40 /* the kernel's limit */

int walk_next(struct walk *w, char ret_name[static NAME_MAX + 1])
{
	size_t skip = strspn(w->rest, "/"), len = strcspn(w->rest + skip, "/");

	if (len == 0)
		return 0;
	if (len > NAME_MAX)
		return -ENAMETOOLONG;
	memcpy(ret_name, w->rest + skip, len);
	ret_name[len] = '\0';
	memmove(w->rest, w->rest + skip + len, strlen(w->rest + skip + len) + 1);
	return 1;
}

int walk_follow(struct walk *w, int link)
{
	char target[PATH_MAX], rest[sizeof(w->rest)];
	ssize_t n = readlinkat(link, "", target, sizeof(target) - 1);

	if (n < 0)
		return -errno;
	target[n] = '\0';
	if (n == 0)
		return -ENOENT;
	if (++w->links > LINKS_MAX)
		return -ELOOP;
	if (snprintf(rest, sizeof(rest), "%s/%s", target, w->rest) >= (int)sizeof(rest))
		return -ENAMETOOLONG;
	memcpy(w->rest, rest, strlen(rest) + 1);
	if (target[0] == '/') {
		ak_close(w->dir);
		w->dir = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	}
	return w->dir < 0 ? -errno : 0;
}
