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

/* Iterate over all values. TEXT is modified, and the values point into it. */
struct gitconf_scan {
	char *text;
	char *save; /* the rest is zero at first */
	bool started, plain;
	char name[32]; /* of the current section */
};
struct gitconf_entry {
	const char *section, *key, *value; /* SECTION is the first word of the section's header */
	bool plain; /* the header has no other */
};
bool gitconf_each(struct gitconf_scan *c, struct gitconf_entry *ret); /* false at the end */

#endif
