/* ClientHello parser: whatever the bytes, a whole answer and no byte read past the end; a longer input never turns OK into MORE. */
#include "gateway/tls_hello.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct tls_hello whole, part;
	enum tls_hello_status st = tls_hello_parse(data, size, &whole);
	enum tls_hello_status half = tls_hello_parse(data, size / 2, &part);

	if ((st == TLS_HELLO_NOT_TLS || st == TLS_HELLO_BAD) && !whole.why)
		abort();
	if (whole.has_sni && (st != TLS_HELLO_OK || !whole.sni[0] || !memchr(whole.sni, 0, sizeof(whole.sni))))
		abort();
	/* A verdict once given stands, whatever follows. */
	if (half == TLS_HELLO_OK && (st != TLS_HELLO_OK || strcmp(part.sni, whole.sni) != 0))
		abort();
	return 0;
}
