/* HTTP requests as a stream: heads and bodies in turn, and the same in pieces, must agree about where each request begins. */
#include "gateway/wire/http_head.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A head that comes STEP bytes at a time. */
static enum http_status read_head(const char *data, size_t size, size_t step, struct http_head *ret)
{
	struct http_reader r = { 0 };
	enum http_status st = HTTP_MORE;

	for (size_t n = 0; n < size && st == HTTP_MORE;) {
		n = size - n < step ? size : n + step;
		st = http_head_read(&r, data, n);
	}
	if (st == HTTP_BAD && !r.head.why)
		abort();
	*ret = r.head;
	return st;
}

/* Walk requests, giving the parser at most STEP bytes at a time; where the walk stopped. */
static size_t walk(const char *data, size_t size, size_t step)
{
	size_t at = 0;

	while (at < size) {
		struct http_head head;
		struct http_body body;

		if (read_head(data + at, size - at, step, &head) != HTTP_OK)
			return at;
		if (!head.len || head.len > size - at || !memchr(head.host, 0, sizeof(head.host)))
			abort();
		at += head.len;
		http_body_init(&body, &head);
		while (body.state != HTTP_BODY_DONE && at < size) {
			ssize_t n = http_body_take(&body, data + at, size - at < step ? size - at : step);

			if (n < 0)
				return SIZE_MAX;
			at += (size_t)n;
		}
	}
	return at;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (walk((const char *)data, size, SIZE_MAX) != walk((const char *)data, size, 3))
		abort();
	return 0;
}
