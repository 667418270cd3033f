/* ClientHellos for tests, built field by field so that each of them can be wrong. */
#ifndef AK_TEST_HELLO_BUILD_H
#define AK_TEST_HELLO_BUILD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct hello_opts {
	const char *sni; /* NULL: none */
	size_t sni_len; /* 0: strlen */
	const char *second_sni; /* a second entry of the same list */
	bool sni_twice; /* the extension twice */
	bool ech, grease, no_extensions;
	size_t suites; /* bytes of cipher suites, 0: two of them */
	size_t key_share; /* bytes of filler, for post-quantum sizes */
	size_t record_size; /* 0: one record */
};

struct hello_buf {
	uint8_t data[300000];
	size_t len;
};

static inline void hello_put(struct hello_buf *b, const void *data, size_t n)
{
	memcpy(b->data + b->len, data, n);
	b->len += n;
}

static inline void hello_uint(struct hello_buf *b, size_t v, unsigned bytes)
{
	while (bytes--)
		b->data[b->len++] = (uint8_t)(v >> 8 * bytes);
}

static inline void hello_set16(struct hello_buf *b, size_t at, size_t v)
{
	b->data[at] = (uint8_t)(v >> 8);
	b->data[at + 1] = (uint8_t)v;
}

static inline void hello_sni(struct hello_buf *b, const struct hello_opts *o)
{
	const char *names[2] = { o->sni, o->second_sni };
	size_t ext, list;

	hello_uint(b, 0, 2);
	ext = b->len;
	hello_uint(b, 0, 2);
	list = b->len;
	hello_uint(b, 0, 2);
	for (int i = 0; i < 2 && names[i]; i++) {
		size_t n = i == 0 && o->sni_len ? o->sni_len : strlen(names[i]);

		hello_uint(b, 0, 1);
		hello_uint(b, n, 2);
		hello_put(b, names[i], n);
	}
	hello_set16(b, list, b->len - list - 2);
	hello_set16(b, ext, b->len - ext - 2);
}

static inline void hello_filler(struct hello_buf *b, unsigned type, size_t n)
{
	hello_uint(b, type, 2);
	hello_uint(b, n, 2);
	memset(b->data + b->len, 0x5a, n);
	b->len += n;
}

/* The handshake message. */
static inline void hello_message(struct hello_buf *b, const struct hello_opts *o)
{
	static const uint8_t suites[] = { 0x13, 0x01, 0xc0, 0x2f };
	size_t exts;

	b->len = 0;
	hello_uint(b, 1, 1);
	hello_uint(b, 0, 3);
	hello_uint(b, 0x0303, 2);
	memset(b->data + b->len, 7, 32);
	b->len += 32;
	hello_uint(b, 32, 1);
	memset(b->data + b->len, 9, 32);
	b->len += 32;
	hello_uint(b, o->suites ? o->suites : sizeof(suites), 2);
	for (size_t i = 0; i < (o->suites ? o->suites : sizeof(suites)); i++)
		hello_put(b, suites + i % sizeof(suites), 1);
	hello_uint(b, 1, 1);
	hello_uint(b, 0, 1);
	if (!o->no_extensions) {
		exts = b->len;
		hello_uint(b, 0, 2);
		if (o->grease)
			hello_filler(b, 0x1a1a, 0);
		if (o->key_share)
			hello_filler(b, 51, o->key_share);
		if (o->sni)
			hello_sni(b, o);
		if (o->sni_twice)
			hello_sni(b, o);
		if (o->ech)
			hello_filler(b, 0xfe0d, 200);
		hello_set16(b, exts, b->len - exts - 2);
	}
	b->data[1] = (uint8_t)((b->len - 4) >> 16);
	hello_set16(b, 2, b->len - 4);
}

/* The message in records. */
static inline void hello_build(struct hello_buf *ret, const struct hello_opts *o)
{
	static struct hello_buf msg;
	size_t step;

	hello_message(&msg, o);
	step = o->record_size ? o->record_size : msg.len;
	ret->len = 0;
	for (size_t at = 0; at < msg.len; at += step) {
		size_t n = msg.len - at < step ? msg.len - at : step;

		hello_uint(ret, 22, 1);
		hello_uint(ret, 0x0301, 2);
		hello_uint(ret, n, 2);
		hello_put(ret, msg.data + at, n);
	}
}

#endif
