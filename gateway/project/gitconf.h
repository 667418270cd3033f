/* Read single values of git's configuration files, without git: no include is followed and nothing is run. */
#ifndef AK_GITCONF_H
#define AK_GITCONF_H

#include <stdbool.h>
#include <stddef.h>

#define GITCONF_MAX (256u << 10) /* larger files are not read */

/* The content of a small regular file without trailing white space; NULL if there is none. FLAGS: O_NOFOLLOW or 0. */
char *gitconf_read(int dir, const char *name, int flags, size_t max);

/* The last value of SECTION.KEY in TEXT; NULL if missing. Modifies TEXT, and points into it. */
const char *gitconf_value(char *text, const char *section, const char *key);

/*
 * Iterate over the values of KEY in all sections SECTION; with PREFIX, in all whose header begins with it. TEXT is modified, and the values point
 * into it.
 */
struct gitconf_scan {
	char *text;
	const char *section, *key;
	bool prefix;
	char *save; /* the rest is zero at first */
	bool started, here;
};
const char *gitconf_next(struct gitconf_scan *c); /* NULL at the end */

#endif
