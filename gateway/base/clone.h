/* Copy a tree that a sandbox wrote, with owners, modes, times, extended attributes, holes and hard links. */
#ifndef AK_BASE_CLONE_H
#define AK_BASE_CLONE_H

#include "gateway/base/io.h"

#define AK_CLONE_ENTRIES_MAX (16u << 20)

struct ak_clone {
	uint64_t files; /* entries copied, folders included */
	uint64_t bytes; /* disk space that their contents take */
	char where[AK_WHERE_MAX]; /* after a failure: the entry that could not be copied */
};

/*
 * Copy the contents and attributes of the folder FROM to the empty folder TO. LINKS is another empty folder of the same file system; names of files with
 * several links are left in it for the caller to remove. Follows no link, opens nothing but regular files and folders, and works for trees of any depth
 * with few descriptors. Nothing may change FROM meanwhile. Set-uid and set-gid bits of files are dropped; devices are left out, except overlayfs's
 * whiteouts. -EOVERFLOW: more than AK_CLONE_ENTRIES_MAX entries.
 */
int ak_clone_tree(int from, int to, int links, struct ak_clone *ret);

/* Copy the data of FROM to the empty file TO: shares blocks if the file system can, else keeps holes. */
int ak_clone_data(int from, int to, off_t size);

#endif
