/*
 * Open a path of the host that the user typed.
 *
 * A sandbox that could write a folder may have left a symbolic link in it, and runs leave no record that lasts. So we do not ask
 * who made a link but who could have: one in a folder that the user may write is not followed. Links of the system are, and so
 * are those on the way to the home and directly in the home, which is a project only after the user has confirmed it.
 */
#ifndef AK_WAY_H
#define AK_WAY_H

#include "gateway/base/err.h"

#include <stdbool.h>

/* Whether a sandbox is known to have been able to write FOLDER, a resolved path. */
typedef bool (*way_written_fn)(void *ctx, const char *folder);

/*
 * Open PATH, a file or a folder, with O_PATH; the caller owns the result. -ELOOP for a link that is not followed: ERR names it,
 * and the real path to give instead. WRITTEN (may be NULL) is asked about folders whose links would be followed.
 */
int way_open(const char *path, way_written_fn written, void *ctx, struct ak_err *err);

#endif
