/*
 * A growing string. Errors are sticky: after a failed append, later ones do
 * nothing and strbuf_failed() returns true, so callers check once at the end.
 */
#ifndef AK_BASE_STRBUF_H
#define AK_BASE_STRBUF_H

#include <stdbool.h>
#include <stddef.h>

struct strbuf {
	char *data; /* owned; NUL-terminated after the first append */
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

/*
 * Append TEXT as a JSON string with quotes; bytes that are not printable ASCII are escaped (\u00XX), so the result is always
 * valid. NULL appends null.
 */
void strbuf_json(struct strbuf *sb, const char *text);
void strbuf_jsonn(struct strbuf *sb, const char *bytes, size_t len);

/* The same for text that users read: valid UTF-8 is kept, invalid bytes become U+FFFD. */
void strbuf_json_utf8(struct strbuf *sb, const char *bytes, size_t len);

/*
 * The same without quotes, until SB has MAX bytes. Returns how many of BYTES were used; characters are never split.
 */
size_t strbuf_json_part(struct strbuf *sb, const char *bytes, size_t len, size_t max);

/*
 * Append TEXT, LEN bytes from outside, for a terminal: characters that could control it (C0, DEL, and C1 encoded as UTF-8) and bytes
 * that are not UTF-8 become \xNN.
 */
void strbuf_shown(struct strbuf *sb, const char *text, size_t len);

/* Whether strbuf_shown would change nothing. */
bool ak_is_shown(const char *text, size_t len);

/* Length of the valid UTF-8 sequence at P (RFC 3629 section 4), 0 if it is invalid; LEN is at least 1. */
size_t ak_utf8_length(const unsigned char *p, size_t len);

/* Return the text, which the caller owns ("" if empty); NULL if an append failed. */
char *strbuf_take(struct strbuf *sb);

#define _cleanup_strbuf_ __attribute__((cleanup(strbuf_done)))

#endif
