/* Who may talk to the API: keys, the Host header (names that a rebound domain never has) and the Origin of browsers. Pure but for key files. */
#ifndef AK_HTTP_AUTH_H
#define AK_HTTP_AUTH_H

#include "gateway/base/addr.h"
#include "gateway/base/err.h"
#include "gateway/base/sha256.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Keys are kept as their digests: comparing takes the same time whatever their length and however many bytes agree. */
struct http_keys {
	uint8_t (*digests)[SHA256_SIZE]; /* owned */
	size_t n;
};

int http_keys_add(struct http_keys *k, const char *key, struct ak_err *err);

/* One key a line; '#' starts a comment line; blanks around a key are not part of it. At least one, or -EINVAL. */
int http_keys_load(struct http_keys *k, const char *path, struct ak_err *err);
void http_keys_done(struct http_keys *k);

/* AUTHORIZATION is "Bearer KEY" with one of the keys (NULL: none was sent). */
bool http_keys_ok(const struct http_keys *k, const char *authorization);

bool http_is_loopback(const struct ak_addr *a);

/*
 * HOST ("name[:port]", "[v6]:port") is a loopback name or address, the LOCAL address of the connection, or one of NAMES
 * (NULL-terminated; whatever the port).
 */
bool http_host_ok(const char *host, const char *const *names, const struct ak_addr *local);

/* ORIGIN is this very server as HOST names it. */
bool http_origin_ok(const char *origin, const char *host);

#endif
