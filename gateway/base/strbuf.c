/* A growing string: see strbuf.h. */
#include "gateway/base/strbuf.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void strbuf_done(struct strbuf *sb)
{
	free(sb->data);
	*sb = (struct strbuf){ 0 };
}

void strbuf_reset(struct strbuf *sb)
{
	sb->len = 0;
	sb->failed = false;
	if (sb->data)
		sb->data[0] = '\0';
}

static bool strbuf_reserve(struct strbuf *sb, size_t extra)
{
	size_t cap = sb->cap ? sb->cap : 64;
	char *data;

	if (sb->failed)
		return false;
	if (sb->cap - sb->len > extra) /* room for EXTRA and the NUL */
		return true;
	while (cap - sb->len <= extra)
		cap *= 2;
	data = realloc(sb->data, cap);
	if (!data) {
		sb->failed = true;
		return false;
	}
	sb->data = data;
	sb->cap = cap;
	return true;
}

void strbuf_add(struct strbuf *sb, const void *data, size_t len)
{
	if (!strbuf_reserve(sb, len))
		return;
	if (len)
		memcpy(sb->data + sb->len, data, len);
	sb->len += len;
	sb->data[sb->len] = '\0';
}

void strbuf_puts(struct strbuf *sb, const char *text)
{
	strbuf_add(sb, text, strlen(text));
}

void strbuf_putc(struct strbuf *sb, char c)
{
	strbuf_add(sb, &c, 1);
}

void strbuf_printf(struct strbuf *sb, const char *fmt, ...)
{
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	if (n < 0 || !strbuf_reserve(sb, (size_t)n)) {
		sb->failed = true;
		return;
	}
	va_start(ap, fmt);
	vsnprintf(sb->data + sb->len, (size_t)n + 1, fmt, ap);
	va_end(ap);
	sb->len += (size_t)n;
}

/* Bytes that need no escape in a JSON string. */
static bool json_plain(unsigned char c)
{
	return c >= 0x20 && c < 0x7f && c != '"' && c != '\\';
}

void strbuf_jsonn(struct strbuf *sb, const char *bytes, size_t len)
{
	strbuf_putc(sb, '"');
	for (size_t i = 0, n; i < len; i += n) {
		unsigned char c = (unsigned char)bytes[i];

		for (n = 0; i + n < len && json_plain((unsigned char)bytes[i + n]);)
			n++;
		if (n > 0) {
			strbuf_add(sb, bytes + i, n);
			continue;
		}
		n = 1;
		if (c == '"' || c == '\\')
			strbuf_printf(sb, "\\%c", c);
		else
			strbuf_printf(sb, "\\u%04x", c);
	}
	strbuf_putc(sb, '"');
}

void strbuf_json(struct strbuf *sb, const char *text)
{
	if (text)
		strbuf_jsonn(sb, text, strlen(text));
	else
		strbuf_puts(sb, "null");
}

size_t ak_utf8_length(const unsigned char *p, size_t len)
{
	size_t n = *p < 0x80 ? 1 : *p < 0xc2 ? 0 : *p < 0xe0 ? 2 : *p < 0xf0 ? 3 : *p < 0xf5 ? 4 : 0;

	if (n == 0 || n > len)
		return 0;
	for (size_t i = 1; i < n; i++) {
		if ((p[i] & 0xc0) != 0x80)
			return 0;
	}
	if ((*p == 0xe0 && p[1] < 0xa0) || (*p == 0xed && p[1] > 0x9f) || (*p == 0xf0 && p[1] < 0x90) ||
		(*p == 0xf4 && p[1] > 0x8f))
		return 0; /* overlong, surrogate, past U+10FFFF */
	return n;
}

#define JSON_CHAR 6 /* length of the longest escape */

/* Encode the character at P for JSON: consumes *RET_USED bytes of P and returns the number of bytes written to OUT. */
static size_t json_char(const unsigned char *p, size_t len, char out[static JSON_CHAR], size_t *ret_used)
{
	static const char hex[] = "0123456789abcdef", escape[4] = { '\\', 'u', '0', '0' };
	static const char brief[256] = { ['"'] = '"', ['\\'] = '\\', ['\n'] = 'n', ['\r'] = 'r', ['\t'] = 't' };
	size_t n;

	*ret_used = 1;
	if (brief[*p]) {
		out[0] = '\\';
		out[1] = brief[*p];
		return 2;
	}
	if (*p < 0x20 || *p == 0x7f) {
		memcpy(out, escape, sizeof(escape));
		out[4] = hex[*p >> 4];
		out[5] = hex[*p & 15];
		return 6;
	}
	n = ak_utf8_length(p, len);
	memcpy(out, n ? (const char *)p : "\xef\xbf\xbd", n ? n : 3);
	*ret_used = n ? n : 1;
	return n ? n : 3;
}

/* Like strbuf_json_part, for bytes that may need an escape. */
static size_t json_others(struct strbuf *sb, const char *bytes, size_t len, size_t max)
{
	char out[128 * JSON_CHAR];
	size_t i = 0, at = 0, room = max - sb->len, used;

	while (i < len && !json_plain((unsigned char)bytes[i]) && at + JSON_CHAR <= sizeof(out)) {
		size_t n = json_char((const unsigned char *)bytes + i, len - i, out + at, &used);

		if (at + n > room)
			break;
		at += n;
		i += used;
	}
	strbuf_add(sb, out, at);
	return i;
}

size_t strbuf_json_part(struct strbuf *sb, const char *bytes, size_t len, size_t max)
{
	size_t i = 0, used = 1;

	while (i < len && used > 0 && sb->len < max && !sb->failed) {
		size_t n = 0, room = max - sb->len;

		while (i + n < len && n < room && json_plain((unsigned char)bytes[i + n])) /* copy plain bytes in one go */
			n++;
		strbuf_add(sb, bytes + i, n);
		i += n;
		used = n;
		if (i < len && n < room) {
			used = json_others(sb, bytes + i, len - i, max);
			i += used;
		}
	}
	return i;
}

void strbuf_json_utf8(struct strbuf *sb, const char *bytes, size_t len)
{
	strbuf_putc(sb, '"');
	strbuf_json_part(sb, bytes, len, SIZE_MAX);
	strbuf_putc(sb, '"');
}

char *strbuf_take(struct strbuf *sb)
{
	char *data;

	strbuf_add(sb, "", 0);
	if (sb->failed) {
		strbuf_done(sb);
		return NULL;
	}
	data = sb->data;
	*sb = (struct strbuf){ 0 };
	return data;
}

/* The bytes at P that a terminal may get as they are; 0 if the first must be escaped. */
static size_t shown_length(const unsigned char *p, size_t len)
{
	if (*p < 0x20 || *p == 0x7f || (*p == 0xc2 && len > 1 && p[1] < 0xa0))
		return 0;
	return ak_utf8_length(p, len);
}

void strbuf_shown(struct strbuf *sb, const char *text, size_t len)
{
	const unsigned char *p = (const unsigned char *)text;

	while (len > 0) {
		size_t n = shown_length(p, len);

		if (n)
			strbuf_add(sb, p, n);
		else
			strbuf_printf(sb, "\\x%02x", *p);
		n += n == 0;
		p += n;
		len -= n;
	}
}

bool ak_is_shown(const char *text, size_t len)
{
	const unsigned char *p = (const unsigned char *)text;
	size_t n = 1;

	for (; len > 0 && n > 0; p += n, len -= n)
		n = shown_length(p, len);
	return len == 0;
}
