/*
 * Parses the requests of an HTTP/1.x connection as far as the relay needs it: the end of each head, its host, and the length
 * of the body. Pure: no allocation, no I/O.
 *
 * Deliberately strict (RFC 9112 sections 2.2, 3.2, 5.1, 6.3): anything that two servers could frame differently is refused,
 * so that no second request can be smuggled inside the first.
 */
#ifndef AK_HTTP_HEAD_H
#define AK_HTTP_HEAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define HTTP_HEAD_MAX 16384

enum http_status {
	HTTP_MORE, /* valid so far, incomplete */
	HTTP_OK,
	HTTP_BAD,
	HTTP_STATUS_NUM
};

/* What is wrong with a bad one, for whoever answers it. */
enum http_fault { HTTP_FAULT_SYNTAX, HTTP_FAULT_LENGTH, HTTP_FAULT_VERSION };

struct http_head {
	size_t len; /* of the head including its empty line */
	bool has_host;
	char host[256]; /* from the absolute form or Host; as sent, without the port; "" if empty or absent */
	bool chunked;
	bool has_length;
	uint64_t length; /* of the body, if not chunked */
	bool websocket; /* requests an upgrade to WebSocket and nothing else */
	bool stray_body; /* has a body although its method defines none (RFC 9110 sections 9.3.1, 9.3.2, 9.3.5, 9.3.8) */
	enum http_fault fault; /* of BAD */
	const char *why; /* set for BAD */
};

/* Parser state of one head; zero-initialised. */
struct http_reader {
	struct http_head head; /* valid for OK; head.why for BAD */
	size_t line; /* offset of the first incomplete line */
	size_t seen; /* every byte before this offset has been checked */
	bool begun; /* the request line is complete */
	bool http10, bodiless;
	unsigned n_host, n_length, n_encoding, n_upgrade;
	size_t host, host_len; /* the value of Host, as an offset into the data */
};

/*
 * Parse the LEN bytes of one request received so far; DATA must still contain all bytes of the previous calls. Bytes are not
 * examined twice, so the cost is linear however the head is split.
 */
enum http_status http_head_read(struct http_reader *r, const char *data, size_t len);

/* The same for a complete buffer. */
enum http_status http_head_parse(const char *data, size_t len, struct http_head *ret);

enum http_body_state {
	HTTP_BODY_DONE,
	HTTP_BODY_LENGTH,
	HTTP_BODY_SIZE, /* in the size of a chunk */
	HTTP_BODY_EXT, /* in a chunk extension */
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
	uint64_t left; /* remaining bytes of the body or chunk */
	unsigned digits; /* of the chunk size so far */
	unsigned extra; /* bytes of extensions and trailers, which are limited */
};

void http_body_init(struct http_body *b, const struct http_head *h);

/* Advance by N bytes within the body or chunk. */
void http_body_skip(struct http_body *b, uint64_t n);

/* Returns how many of the LEN bytes belong to the body; B->state is HTTP_BODY_DONE at its end. -EBADMSG: bad framing. */
ssize_t http_body_take(struct http_body *b, const char *data, size_t len);

#endif
