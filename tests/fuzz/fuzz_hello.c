/* ClientHello parser: whatever the bytes, a whole answer and no byte read past the end; a longer input never turns OK into MORE. */
#include "gateway/wire/tls_hello.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static enum tls_hello_status in_pieces(const uint8_t *data, size_t size, struct tls_hello *ret)
{
	struct tls_hello_reader r = { 0 };
	enum tls_hello_status st = tls_hello_read(&r, data, 0, ret);

	for (size_t n = 0; n < size && st == TLS_HELLO_MORE;) {
		n = size - n < 7 ? size : n + 7;
		st = tls_hello_read(&r, data, n, ret);
	}
	return st;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct tls_hello whole, part;
	enum tls_hello_status st = tls_hello_parse(data, size, &whole);
	enum tls_hello_status half;

	if ((st == TLS_HELLO_NOT_TLS || st == TLS_HELLO_BAD) && !whole.why)
		abort();
	if (whole.has_sni && (st != TLS_HELLO_OK || !whole.sni[0] || !memchr(whole.sni, 0, sizeof(whole.sni))))
		abort();
	/* However it comes, it is the same. */
	if (in_pieces(data, size, &part) != st || part.has_sni != whole.has_sni || strcmp(part.sni, whole.sni) != 0)
		abort();
	half = tls_hello_parse(data, size / 2, &part);
	/* A verdict once given stands, whatever follows. */
	if (half == TLS_HELLO_OK && (st != TLS_HELLO_OK || strcmp(part.sni, whole.sni) != 0))
		abort();
	return 0;
}
