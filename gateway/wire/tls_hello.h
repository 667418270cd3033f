/*
 * Reads the server name from a TLS ClientHello at the start of a stream. Pure: no allocation, no I/O.
 * The hello may span many records and arrive in any number of pieces; each byte is examined a fixed number of times.
 */
#ifndef AK_TLS_HELLO_H
#define AK_TLS_HELLO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * The longest message, with all vectors of RFC 8446 section 4.1.2 full: version, random, session id, cipher suites, compression
 * methods, extensions. OpenSSL has the same limit.
 */
#define TLS_HELLO_BODY_MAX (2 + 32 + (1 + 32) + (2 + 65534) + (1 + 255) + (2 + 65535))

/* Bytes of the stream including record headers: enough for the longest message in records of at least 64 bytes. */
#define TLS_HELLO_MAX 147456

enum tls_hello_status {
	TLS_HELLO_MORE, /* valid so far, incomplete */
	TLS_HELLO_OK,
	TLS_HELLO_NOT_TLS, /* a different protocol */
	TLS_HELLO_BAD, /* starts like TLS, but is malformed or too long */
	TLS_HELLO_STATUS_NUM
};

struct tls_hello {
	bool has_sni;
	bool ech; /* has encrypted_client_hello, real or GREASE; the SNI is then the outer one */
	char sni[256]; /* as sent, without an embedded NUL; "" if there is none */
	const char *why; /* set for NOT_TLS and BAD: "SSLv2 hello", "several names in SNI" … */
};

/* Parser state of one hello; zero-initialised. */
struct tls_hello_reader {
	size_t record; /* offset of the first incomplete record */
	size_t have; /* bytes of the message in earlier records */
	uint8_t head[4]; /* the message header, as far as received */
};

/*
 * Parse the LEN bytes received so far; DATA must still contain all bytes of the previous calls. *RET is set for every
 * status.
 */
enum tls_hello_status tls_hello_read(struct tls_hello_reader *r, const uint8_t *data, size_t len, struct tls_hello *ret);

/* The same for a complete buffer. */
enum tls_hello_status tls_hello_parse(const uint8_t *data, size_t len, struct tls_hello *ret);

#endif
