/* Who may use the API: keys, the Host header (against DNS rebinding) and the Origin header of browsers. No I/O except reading key files. */
#ifndef AK_HTTP_AUTH_H
#define AK_HTTP_AUTH_H

#include "gateway/base/addr.h"
#include "gateway/base/err.h"
#include "gateway/base/sha256.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Keys are stored as digests, so that a comparison takes the same time for every length and for every number of matching bytes. */
struct http_keys {
	uint8_t (*digests)[SHA256_SIZE]; /* owned */
	size_t n;
};

int http_keys_add(struct http_keys *k, const char *key, struct ak_err *err);

/* Load a file with one key per line. Lines that start with '#' are comments; blanks around a key are ignored. -EINVAL when there is no key. */
int http_keys_load(struct http_keys *k, const char *path, struct ak_err *err);
void http_keys_done(struct http_keys *k);

/* Is AUTHORIZATION "Bearer KEY" with one of the keys? NULL: the header is absent. */
bool http_keys_ok(const struct http_keys *k, const char *authorization);

bool http_is_loopback(const struct ak_addr *a);

/*
 * Is HOST ("name[:port]", "[v6]:port") a loopback name or address, the LOCAL address of the connection, or one of NAMES
 * (NULL-terminated)? The port is ignored.
 */
bool http_host_ok(const char *host, const char *const *names, const struct ak_addr *local);

/* Is ORIGIN the server that HOST names? */
bool http_origin_ok(const char *origin, const char *host);

#endif
