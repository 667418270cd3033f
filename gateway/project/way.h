/*
 * Open a path of the host that the user typed.
 *
 * A sandbox that could write a folder may have left a symbolic link in it, and no record of past runs is complete. So we do not ask
 * who made a link but who could have: one in a folder that the user may write is not followed. Links of the system are, and so
 * are those on the way to the home and directly in the home, which is a project only after the user has confirmed it; WRITTEN tells
 * whether that ever was so. A relative path begins with the links by which the user came to the current folder (PWD). If PWD
 * names another folder, there may have been a link that a sandbox has renamed since: refused if PWD leads into a folder that WRITTEN knows, and we are outside.
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

/*
 * The same for a path that nobody typed, such as a folder of settings that the user keeps elsewhere, behind a chain of links: a link is followed unless
 * WRITTEN knows its folder.
 */
int way_open_kept(const char *path, way_written_fn written, void *ctx, struct ak_err *err);

#endif
