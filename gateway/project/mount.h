/*
 * Which files and folders of the host a user may mount besides the project, and where.
 *
 * A mount must not bypass the rules of the project: it must not show keys or our own folders, and must not make anything
 * writable that the user's own tools later run or read as settings.
 */
#ifndef AK_MOUNT_H
#define AK_MOUNT_H

#include "gateway/base/err.h"
#include "gateway/project/owndir.h"
#include "gateway/project/project.h"

#include <stdbool.h>
#include <sys/types.h>

struct mount_ask {
	const char *source; /* resolved */
	mode_t mode; /* its type */
	bool writable;
	enum project_word word;
	bool tool; /* found by tools_find, not named by the user: no file of a key folder, no folder around the home or ours */
};

/* Whether SOURCE is a dot file or dot folder of HOME, lies in one that holds more than copies, or is one of the user's own programs. */
bool mount_is_setting(const char *source, const char *home);

/* Whether SOURCE may be mounted at all; -EINVAL with the reason and the fix. OWN must be current. */
int mount_check_source(const struct mount_ask *ask, struct owndir *own, struct ak_err *err);

/*
 * Whether the writable SOURCE has nothing in common with OTHER, a folder that is also writable inside, whose protected files
 * would be writable through it. OTHER may be "".
 */
int mount_check_apart(const struct mount_ask *ask, const char *other, const char *what, struct owndir *own, struct ak_err *err);

/* Check TARGET, a path inside, and copy it to RET without repeated and trailing slashes. */
int mount_check_target(const char *target, char ret[static PATH_MAX], struct ak_err *err);

#endif
