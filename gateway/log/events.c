/* Records of STATE/events.jsonl: see log/events.h. */
#include "gateway/log/events.h"

#include "gateway/base/say.h"
#include "gateway/base/sha256.h"
#include "gateway/log/audit.h"

#include <errno.h>
#include <string.h>

/* Append TEXT as JSON, at most MAX bytes and an ellipsis; returns whether it was truncated. */
static bool put_cut(struct strbuf *out, const char *text, size_t max)
{
	size_t len = strlen(text), n;

	strbuf_putc(out, '"');
	n = strbuf_json_part(out, text, len, out->len + max);
	strbuf_puts(out, n < len ? "…\"" : "\"");
	return n < len;
}

/* Add length and hash of a truncated text, as members named after KEY, so that its owner can identify it. */
static void put_whole(struct strbuf *out, const char *key, size_t bytes, struct sha256 *s)
{
	uint8_t digest[SHA256_SIZE];
	char hex[SHA256_HEX];

	sha256_done(s, digest);
	sha256_hex(digest, hex);
	strbuf_printf(out, ",\"%s_bytes\":%zu,\"%s_sha256\":\"%s\"", key, bytes, key, hex);
}

void event_put_text(struct strbuf *out, const char *key, const char *value)
{
	struct sha256 s;

	strbuf_printf(out, ",\"%s\":", key);
	if (!put_cut(out, value, EVENT_TEXT_MAX))
		return;
	sha256_init(&s);
	sha256_add(&s, value, strlen(value));
	put_whole(out, key, strlen(value), &s);
}

/* Hash each item with its terminating NUL: different lists never have the same hash input. */
static void put_whole_list(struct strbuf *out, const char *key, char *const *list)
{
	size_t n = 0, bytes = 0;
	struct sha256 s;

	sha256_init(&s);
	for (; list[n]; n++) {
		sha256_add(&s, list[n], strlen(list[n]) + 1);
		bytes += strlen(list[n]) + 1;
	}
	strbuf_printf(out, ",\"%s_count\":%zu", key, n);
	put_whole(out, key, bytes, &s);
}

void event_put_list(struct strbuf *out, const char *key, char *const *list)
{
	size_t end, i = 0;
	bool cut = false;

	strbuf_printf(out, ",\"%s\":[", key);
	for (end = out->len + EVENT_LIST_MAX; list[i] && out->len < end; i++) {
		size_t room = end - out->len;

		strbuf_puts(out, i ? "," : "");
		cut |= put_cut(out, list[i], room < EVENT_TEXT_MAX ? room : EVENT_TEXT_MAX);
	}
	strbuf_putc(out, ']');
	if (cut || list[i])
		put_whole_list(out, key, list);
}

int event_write(const struct ak_paths *paths, const char *event, const char *sandbox, const struct strbuf *more)
{
	_cleanup_strbuf_ struct strbuf out = { 0 };
	char path[PATH_MAX];
	struct ak_err err;
	int rc;

	strbuf_printf(&out, "\"event\":\"%s\",\"sandbox\":\"%s\"", event, sandbox);
	if (more && more->len)
		strbuf_add(&out, more->data, more->len);
	if (out.failed || (more && more->failed) || ak_path_join(path, paths->state, "events.jsonl", NULL) < 0)
		rc = ak_fail(&err, ENOMEM, "out of memory");
	else
		rc = audit_event(path, out.data, &err);
	if (rc < 0)
		ak_say("event %s of %s was lost: %s", event, sandbox, err.text);
	return rc;
}
