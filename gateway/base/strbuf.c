/* A growing string: see strbuf.h. */
#include "gateway/base/strbuf.h"

#include <stdarg.h>
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

void strbuf_jsonn(struct strbuf *sb, const char *bytes, size_t len)
{
	strbuf_putc(sb, '"');
	for (size_t i = 0; i < len; i++) {
		unsigned char c = (unsigned char)bytes[i];

		if (c == '"' || c == '\\') {
			strbuf_putc(sb, '\\');
			strbuf_putc(sb, (char)c);
		} else if (c >= 0x20 && c < 0x7f) {
			strbuf_putc(sb, (char)c);
		} else {
			strbuf_printf(sb, "\\u%04x", c);
		}
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
