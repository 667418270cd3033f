/* Walking a path component by component, following symbolic links ourselves. Internal to gateway/project. */
#ifndef AK_PROJECT_WALK_H
#define AK_PROJECT_WALK_H

#include <limits.h>

struct walk {
	int dir; /* owned: the folder that has been reached */
	char rest[2 * PATH_MAX]; /* the rest of the path */
	unsigned links; /* followed so far */
};

/* Take the next component off the rest; returns 1, 0 at the end of the path, or -ENAMETOOLONG. */
int walk_next(struct walk *w, char ret_name[static NAME_MAX + 1]);

/* Put the target of LINK, an O_PATH descriptor, before the rest; -errno. */
int walk_follow(struct walk *w, int link);

#endif
