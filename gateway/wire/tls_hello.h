/*
 * What a TLS ClientHello says of itself, from the first bytes of a stream. Pure: no allocation, no I/O.
 * The hello may span many records and arrive in any number of pieces; each byte is looked at a fixed number of times.
 */
#ifndef AK_TLS_HELLO_H
#define AK_TLS_HELLO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * The longest message with all vectors of RFC 8446 section 4.1.2 full: version, random, session id, cipher suites, compression methods, extensions.
 * OpenSSL has the same bound.
 */
#define TLS_HELLO_BODY_MAX (2 + 32 + (1 + 32) + (2 + 65534) + (1 + 255) + (2 + 65535))

/* Bytes of the stream, record headers included: room for the longest message in records of 64 bytes and more. */
#define TLS_HELLO_MAX 147456

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

/* How far a hello has been read; all zero before its first byte. */
struct tls_hello_reader {
	size_t record; /* where the record begins that has not ended */
	size_t have; /* bytes of the message in the records before it */
	uint8_t head[4]; /* the message's header, as far as it has come */
};

/*
 * Judge the LEN bytes that have come so far, of which DATA still holds all that were there at the last call; *RET is written for every
 * status.
 */
enum tls_hello_status tls_hello_read(struct tls_hello_reader *r, const uint8_t *data, size_t len, struct tls_hello *ret);

/* The same in one go. */
enum tls_hello_status tls_hello_parse(const uint8_t *data, size_t len, struct tls_hello *ret);

#endif
