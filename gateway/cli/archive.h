/* Tar archives on stdin and stdout for `cp`, packed and unpacked by the host's tar in a private folder. */
#ifndef AK_ARCHIVE_H
#define AK_ARCHIVE_H

#include "gateway/base/err.h"
#include "gateway/base/paths.h"

#include <limits.h>

struct archive {
	char path[PATH_MAX]; /* STATE/cp-XXXXXX */
	int dir; /* owned */
};

int archive_open(struct archive *a, const struct ak_paths *paths, struct ak_err *err);
void archive_done(struct archive *a); /* removes the folder */

/* Unpack stdin into the folder; pack NAME in the folder to stdout. -EINTR if a signal ended us meanwhile. */
int archive_unpack(const struct archive *a, struct ak_err *err);
int archive_pack(const struct archive *a, const char *name, struct ak_err *err);

#endif
