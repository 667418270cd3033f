/* Life-cycle events of sandboxes as records of STATE/events.jsonl. */
#ifndef AK_EVENTS_H
#define AK_EVENTS_H

#include "gateway/base/paths.h"
#include "gateway/base/strbuf.h"

#define EVENT_TEXT_MAX 1024 /* limit for one text in JSON, … */
#define EVENT_LIST_MAX                                                                                                           \
	2048 /* … and for all texts of a list, so that a sandbox or caller can neither exceed a record nor fill the log */

/*
 * Write one record: EVENT ("sandbox_start") of SANDBOX; MORE are further members, each after a comma (`,"generation":3`; NULL for
 * none). A failure is also reported on stderr. If the action has already happened, the caller continues despite a failure; if
 * not, the caller must not perform it.
 */
int event_write(const struct ak_paths *paths, const char *event, const char *sandbox, const struct strbuf *more);

/*
 * Append members for MORE. Long texts are truncated, end with an ellipsis, and are followed by KEY_bytes and KEY_sha256 of the whole
 * text (for a list also KEY_count).
 */
void event_put_text(struct strbuf *out, const char *key, const char *value);
void event_put_list(struct strbuf *out, const char *key, char *const *list);

#endif
