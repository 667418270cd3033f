/*
 * What a TLS ClientHello says of itself, from the first bytes of a stream. Pure: no allocation, no I/O.
 * The hello may span any number of records and arrive in any number of pieces.
 */
#ifndef AK_TLS_HELLO_H
#define AK_TLS_HELLO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TLS_HELLO_MAX 16384 /* bytes of the stream, record headers included */

enum tls_hello_status {
	TLS_HELLO_MORE, /* right so far, not whole yet */
	TLS_HELLO_OK,
	TLS_HELLO_NOT_TLS, /* the bytes are something else */
	TLS_HELLO_BAD, /* begins like TLS and is malformed or too long */
	TLS_HELLO_STATUS_NUM
};

struct tls_hello {
	bool has_sni;
	bool ech; /* carries encrypted_client_hello, real or GREASE; the SNI is then the outer one */
	char sni[256]; /* as sent, without a NUL inside; "" when there is none */
	const char *why; /* set for NOT_TLS and BAD: "SSLv2 hello", "several names in SNI" … */
};

/* Judge the LEN bytes that have come so far; *RET is written for every status. */
enum tls_hello_status tls_hello_parse(const uint8_t *data, size_t len, struct tls_hello *ret);

#endif
