/* The life of persistent sandboxes as records of STATE/events.jsonl. */
#ifndef AK_EVENTS_H
#define AK_EVENTS_H

#include "gateway/base/strbuf.h"
#include "gateway/paths.h"

/*
 * One record: EVENT ("sandbox_start") of SANDBOX, with MORE as further members, each after a comma (`,"generation":3`; NULL for none).
 * What cannot be written is said on stderr: an event that is lost must not end what it tells of.
 */
void event_write(const struct ak_paths *paths, const char *event, const char *sandbox, const struct strbuf *more);

/* Members for MORE. */
void event_put_text(struct strbuf *out, const char *key, const char *value);
void event_put_list(struct strbuf *out, const char *key, char *const *list);

#endif
