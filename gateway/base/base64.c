/* Base64: see base64.h. */
#include "gateway/base/base64.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

static void encode_group(struct strbuf *out, const uint8_t *p, size_t n)
{
	uint32_t v = (uint32_t)p[0] << 16 | (n > 1 ? (uint32_t)p[1] << 8 : 0) | (n > 2 ? p[2] : 0);
	char text[4] = { alphabet[v >> 18], alphabet[v >> 12 & 63], n > 1 ? alphabet[v >> 6 & 63] : '=',
		n > 2 ? alphabet[v & 63] : '=' };

	strbuf_add(out, text, 4);
}

void base64_encode(struct strbuf *out, const void *data, size_t len)
{
	const uint8_t *p = data;

	for (size_t i = 0; i < len; i += 3)
		encode_group(out, p + i, len - i < 3 ? len - i : 3);
}

static int value_of(char c)
{
	const char *at = c ? strchr(alphabet, c) : NULL;

	return at ? (int)(at - alphabet) : -1;
}

/* Decode four characters into at most three bytes; returns their number, or -EINVAL. Only the LAST group may be padded. */
static int decode_group(const char *t, bool last, uint8_t ret[static 3])
{
	int pad = t[3] != '=' ? 0 : t[2] != '=' ? 1 : 2;
	uint32_t v = 0;

	if (pad && !last)
		return -EINVAL;
	for (int i = 0; i < 4; i++) {
		int d = i >= 4 - pad ? 0 : value_of(t[i]);

		if (d < 0)
			return -EINVAL;
		v = v << 6 | (uint32_t)d;
	}
	if ((pad == 1 && (v & 0xff)) || (pad == 2 && (v & 0xffff)))
		return -EINVAL;
	ret[0] = (uint8_t)(v >> 16);
	ret[1] = (uint8_t)(v >> 8);
	ret[2] = (uint8_t)v;
	return 3 - pad;
}

int base64_decode(const char *text, size_t len, char **ret, size_t *ret_len, struct ak_err *err)
{
	char *out = len % 4 ? NULL : malloc(len / 4 * 3 + 1);
	size_t at = 0;

	if (!out)
		return len % 4 ? ak_fail(err, EINVAL, "not base64: its length is no multiple of 4")
			       : ak_fail(err, ENOMEM, "out of memory");
	for (size_t i = 0; i < len; i += 4) {
		uint8_t group[3];
		int n = decode_group(text + i, i + 4 == len, group);

		if (n < 0) {
			free(out);
			return ak_fail(err, EINVAL, "not base64 in characters %zu to %zu", i + 1, i + 4);
		}
		memcpy(out + at, group, (size_t)n);
		at += (size_t)n;
	}
	out[at] = '\0';
	*ret = out;
	*ret_len = at;
	return 0;
}
