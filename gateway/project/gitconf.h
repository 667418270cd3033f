/* Read single values of git's configuration files, without git: no include is followed and nothing is run. */
#ifndef AK_GITCONF_H
#define AK_GITCONF_H

#include <stddef.h>

#define GITCONF_MAX (256u << 10) /* larger files are not read */

/* The content of a small regular file without trailing white space; NULL if there is none. FLAGS: O_NOFOLLOW or 0. */
char *gitconf_read(int dir, const char *name, int flags, size_t max);

/* The last value of SECTION.KEY in TEXT; NULL if missing. Modifies TEXT, and points into it. */
const char *gitconf_value(char *text, const char *section, const char *key);

#endif
