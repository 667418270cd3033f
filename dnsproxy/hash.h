/* A keyed hash for tables whose keys a sandbox chooses: without the key, nobody can cause collisions on purpose. */
#ifndef AK_DNS_HASH_H
#define AK_DNS_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* One multiply-fold round over both halves of the 128-bit product: every input bit affects every output bit. */
static inline uint64_t dns_hash_fold(uint64_t a, uint64_t b)
{
	unsigned __int128 product = (unsigned __int128)a * b;

	return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static inline uint64_t dns_hash(const uint64_t key[2], const void *data, size_t len)
{
	const uint8_t *p = data;
	uint64_t h = key[0] ^ len;

	while (len > 0) {
		uint64_t word = 0;
		size_t n = len < sizeof(word) ? len : sizeof(word);

		memcpy(&word, p, n);
		h = dns_hash_fold(h ^ word, key[1] | 1);
		h += key[0];
		p += n;
		len -= n;
	}
	return dns_hash_fold(h ^ (h >> 32), key[0] | 1);
}

#endif
