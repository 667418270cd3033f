/*
 * The requests of an HTTP/1.x connection as the relay must see them: where each head ends, whose it is, and how
 * long its body is. Pure: no allocation, no I/O.
 *
 * Strict on purpose (RFC 9112 sections 2.2, 3.2, 5.1, 6.3): whatever two servers could frame in two ways is refused,
 * so that no second request can hide inside the first.
 */
#ifndef AK_HTTP_HEAD_H
#define AK_HTTP_HEAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define HTTP_HEAD_MAX 16384

enum http_status {
	HTTP_MORE, /* right so far, not whole yet */
	HTTP_OK,
	HTTP_BAD,
	HTTP_STATUS_NUM
};

struct http_head {
	size_t len; /* of the head with its empty line */
	bool has_host;
	char host[256]; /* of the absolute form or of Host; as sent, without the port; "" when empty or absent */
	bool chunked;
	bool has_length;
	uint64_t length; /* of the body, when not chunked */
	bool websocket; /* asks to become a WebSocket and nothing else */
	bool stray_body; /* has a body, of which its method knows nothing (RFC 9110 sections 9.3.1, 9.3.2, 9.3.5, 9.3.8) */
	const char *why; /* set for BAD */
};

/* How far a head has been read; all zero before its first byte. */
struct http_reader {
	struct http_head head; /* meaningful for OK, HEAD.why for BAD */
	size_t line; /* where the line begins that has not ended */
	size_t seen; /* up to here each byte has been looked at */
	bool begun; /* the request line is behind us */
	bool http10, bodiless;
	unsigned n_host, n_length, n_encoding, n_upgrade;
	size_t host, host_len; /* the value of Host, from the start of the data */
};

/*
 * Judge the LEN bytes that have come so far of one request, of which DATA still holds all that were there at the last call. Bytes that
 * were looked at are not looked at again, so a head costs its length, however it comes.
 */
enum http_status http_head_read(struct http_reader *r, const char *data, size_t len);

/* The same in one go. */
enum http_status http_head_parse(const char *data, size_t len, struct http_head *ret);

enum http_body_state {
	HTTP_BODY_DONE,
	HTTP_BODY_LENGTH,
	HTTP_BODY_SIZE, /* in a chunk's size */
	HTTP_BODY_EXT, /* in a chunk's extension */
	HTTP_BODY_SIZE_LF,
	HTTP_BODY_DATA,
	HTTP_BODY_DATA_CR,
	HTTP_BODY_DATA_LF,
	HTTP_BODY_TRAILER, /* at the start of a trailer line */
	HTTP_BODY_TRAILER_LINE,
	HTTP_BODY_TRAILER_LF,
	HTTP_BODY_LAST_LF,
	HTTP_BODY_STATE_NUM
};

struct http_body {
	enum http_body_state state;
	uint64_t left; /* of the length or the chunk */
	unsigned digits; /* of the chunk's size so far */
	unsigned extra; /* bytes of extensions and trailers: bounded */
};

void http_body_init(struct http_body *b, const struct http_head *h);

/* N bytes of what is left of the length or the chunk have passed. */
void http_body_skip(struct http_body *b, uint64_t n);

/* How many of the LEN bytes belong to the body; it has ended when B->state is HTTP_BODY_DONE. -EBADMSG: bad framing. */
ssize_t http_body_take(struct http_body *b, const char *data, size_t len);

#endif
