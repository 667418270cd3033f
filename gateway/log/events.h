/* The life of persistent sandboxes as records of STATE/events.jsonl. */
#ifndef AK_EVENTS_H
#define AK_EVENTS_H

#include "gateway/base/paths.h"
#include "gateway/base/strbuf.h"

#define EVENT_TEXT_MAX 1024 /* bytes of one text as JSON, … */
#define EVENT_LIST_MAX                                                                                                           \
	2048 /* … and of all texts of a list: what a sandbox or its caller chose can neither be too long for a record nor fill the log */

/*
 * One record: EVENT ("sandbox_start") of SANDBOX, with MORE as further members, each after a comma (`,"generation":3`; NULL for none).
 * What cannot be written is also said on stderr. An event of what has happened must not end that; what is still to happen must not without its event.
 */
int event_write(const struct ak_paths *paths, const char *event, const char *sandbox, const struct strbuf *more);

/* Members for MORE. What is too long is cut, ends with an ellipsis, and is followed by KEY_bytes and KEY_sha256 of the whole (of a list also KEY_count). */
void event_put_text(struct strbuf *out, const char *key, const char *value);
void event_put_list(struct strbuf *out, const char *key, char *const *list);

#endif
