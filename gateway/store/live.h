/*
 * Commands that run now, in the foreground: STATE/live. Each `run` registers what it may write and under which rules, so that the next one can
 * tell the user whom it shares a folder with.
 *
 * An entry counts as long as the process that made it holds its lock. The kernel drops that lock when the process ends, however it ends, so a
 * killed run leaves nothing that is reported. Neither reading nor writing waits for anybody.
 *
 * A running persistent sandbox has an entry only if its git folder is outside its project, which its state does not know. The entry has that folder and
 * no rules: those of the state may change meanwhile.
 */
#ifndef AK_LIVE_H
#define AK_LIVE_H

#include "gateway/base/paths.h"
#include "gateway/base/sha256.h"
#include "gateway/store/plan.h"

#define LIVE_MAX 256 /* commands; further ones are not registered */
#define LIVE_FOLDERS_MAX (RUN_MOUNTS_MAX + 2) /* the project, its git folder elsewhere, mounts */

struct live_entry {
	const char *name, *mode; /* borrowed, like all texts here */
	char rules[SHA256_HEX]; /* of mode and changes to its policy: equal for equal networks; "": see the state */
	const char *project; /* "": none */
	const char *agent; /* the agent's state that it has, "": none */
	const char *folders[LIVE_FOLDERS_MAX]; /* what it may write */
	size_t n_folders;
};

void live_add_folder(struct live_entry *e, const char *path); /* ignores "" */

/* Register E. The descriptor is the entry: it ends when it is closed. Register first and look then: of two runs that start at once, one sees the other. */
int live_register(const struct ak_paths *paths, const struct live_entry *e);

/*
 * Call FN for each running command; the entry is valid during the call. Fails if there may be others: if the file cannot be opened, or with -EUSERS if it
 * is full.
 */
int live_each(const struct ak_paths *paths, void (*fn)(void *ctx, const struct live_entry *e), void *ctx);

#endif
