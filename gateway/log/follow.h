/* Wait for changes in a folder, for --follow. Also works without inotify, with a delay. */
#ifndef AK_FOLLOW_H
#define AK_FOLLOW_H

struct ak_follow {
	int fd; /* owned; -1 without inotify */
};

void ak_follow_init(struct ak_follow *f, const char *dir);
void ak_follow_done(struct ak_follow *f);

/* Return when the folder has changed, or after TIMEOUT_MS. */
void ak_follow_wait(struct ak_follow *f, int timeout_ms);

#endif
