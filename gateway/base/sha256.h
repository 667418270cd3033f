/* SHA-256 (FIPS 180-4), for the audit chain and content addresses. */
#ifndef AK_BASE_SHA256_H
#define AK_BASE_SHA256_H

#include <stddef.h>
#include <stdint.h>

#define SHA256_SIZE 32
#define SHA256_HEX 65 /* including the NUL */

struct sha256 {
	uint32_t state[8];
	uint64_t total;
	uint8_t block[64];
};

void sha256_init(struct sha256 *s);
void sha256_add(struct sha256 *s, const void *data, size_t len);
void sha256_done(struct sha256 *s, uint8_t ret[static SHA256_SIZE]);
void sha256_hex(const uint8_t digest[static SHA256_SIZE], char ret[static SHA256_HEX]);

#endif
