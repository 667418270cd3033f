/* Records of STATE/events.jsonl: see events.h. */
#include "gateway/events.h"

#include "gateway/audit.h"
#include "gateway/cmd.h"

#include <string.h>

void event_put_text(struct strbuf *out, const char *key, const char *value)
{
	strbuf_printf(out, ",\"%s\":", key);
	strbuf_json_utf8(out, value, strlen(value));
}

void event_put_list(struct strbuf *out, const char *key, char *const *list)
{
	strbuf_printf(out, ",\"%s\":[", key);
	for (size_t i = 0; list[i]; i++) {
		if (i)
			strbuf_putc(out, ',');
		strbuf_json_utf8(out, list[i], strlen(list[i]));
	}
	strbuf_putc(out, ']');
}

void event_write(const struct ak_paths *paths, const char *event, const char *sandbox, const struct strbuf *more)
{
	_cleanup_strbuf_ struct strbuf out = { 0 };
	char path[PATH_MAX];
	struct ak_err err;

	strbuf_printf(&out, "\"event\":\"%s\",\"sandbox\":\"%s\"", event, sandbox);
	if (more && more->len)
		strbuf_add(&out, more->data, more->len);
	if (out.failed || (more && more->failed) || ak_path_join(path, paths->state, "events.jsonl", NULL) < 0)
		ak_say("event %s of %s was lost: out of memory", event, sandbox);
	else if (audit_event(path, out.data, &err) < 0)
		ak_say("event %s of %s was lost: %s", event, sandbox, err.text);
}
