/*
 * A growing string. Errors stick: after one failed append every later one is a
 * no-op and strbuf_failed() tells, so that callers check once at the end.
 */
#ifndef AK_BASE_STRBUF_H
#define AK_BASE_STRBUF_H

#include <stdbool.h>
#include <stddef.h>

struct strbuf {
	char *data; /* owned; NUL-terminated once anything was appended */
	size_t len;
	size_t cap;
	bool failed;
};

void strbuf_done(struct strbuf *sb);
void strbuf_reset(struct strbuf *sb);
void strbuf_add(struct strbuf *sb, const void *data, size_t len);
void strbuf_puts(struct strbuf *sb, const char *text);
void strbuf_putc(struct strbuf *sb, char c);
void strbuf_printf(struct strbuf *sb, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Append TEXT as a JSON string with its quotes; bytes that are not printable ASCII are escaped
 * (\u00XX), so that the result is valid whatever the bytes are. NULL appends null. */
void strbuf_json(struct strbuf *sb, const char *text);
void strbuf_jsonn(struct strbuf *sb, const char *bytes, size_t len);

/* The same for text meant for people: valid UTF-8 stays as it is, bytes that are not become U+FFFD. */
void strbuf_json_utf8(struct strbuf *sb, const char *bytes, size_t len);

/*
 * The same without quotes, and no further than SB may grow to MAX bytes: how many of BYTES are in it. A character is in it whole or not at all.
 */
size_t strbuf_json_part(struct strbuf *sb, const char *bytes, size_t len, size_t max);

/* Length of the valid UTF-8 sequence at P (RFC 3629 section 4), 0 when there is none; LEN is at least 1. */
size_t ak_utf8_length(const unsigned char *p, size_t len);

/* Hand over the text ("" when empty); NULL when an append failed. */
char *strbuf_take(struct strbuf *sb);

#define _cleanup_strbuf_ __attribute__((cleanup(strbuf_done)))

#endif
