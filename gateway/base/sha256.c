/* SHA-256: see sha256.h. Section numbers are those of FIPS 180-4. */
#include "gateway/base/sha256.h"

#include <stdbool.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#if __has_include(<sys/platform/x86.h>)
#include <sys/platform/x86.h>
#else
#include <cpuid.h>
#endif
#endif

/* 4.2.2 */
static const uint32_t round_k[64] = {
	0x428a2f98,
	0x71374491,
	0xb5c0fbcf,
	0xe9b5dba5,
	0x3956c25b,
	0x59f111f1,
	0x923f82a4,
	0xab1c5ed5,
	0xd807aa98,
	0x12835b01,
	0x243185be,
	0x550c7dc3,
	0x72be5d74,
	0x80deb1fe,
	0x9bdc06a7,
	0xc19bf174,
	0xe49b69c1,
	0xefbe4786,
	0x0fc19dc6,
	0x240ca1cc,
	0x2de92c6f,
	0x4a7484aa,
	0x5cb0a9dc,
	0x76f988da,
	0x983e5152,
	0xa831c66d,
	0xb00327c8,
	0xbf597fc7,
	0xc6e00bf3,
	0xd5a79147,
	0x06ca6351,
	0x14292967,
	0x27b70a85,
	0x2e1b2138,
	0x4d2c6dfc,
	0x53380d13,
	0x650a7354,
	0x766a0abb,
	0x81c2c92e,
	0x92722c85,
	0xa2bfe8a1,
	0xa81a664b,
	0xc24b8b70,
	0xc76c51a3,
	0xd192e819,
	0xd6990624,
	0xf40e3585,
	0x106aa070,
	0x19a4c116,
	0x1e376c08,
	0x2748774c,
	0x34b0bcb5,
	0x391c0cb3,
	0x4ed8aa4a,
	0x5b9cca4f,
	0x682e6ff3,
	0x748f82ee,
	0x78a5636f,
	0x84c87814,
	0x8cc70208,
	0x90befffa,
	0xa4506ceb,
	0xbef9a3f7,
	0xc67178f2,
};

static uint32_t ror(uint32_t x, unsigned n)
{
	return x >> n | x << (32 - n);
}

static void block_portable(uint32_t state[8], const uint8_t *p)
{
	uint32_t w[64];
	uint32_t a = state[0], b = state[1], c = state[2], d = state[3], e = state[4], f = state[5], g = state[6], h = state[7];

	for (int i = 0; i < 16; i++)
		w[i] = (uint32_t)p[4 * i] << 24 | (uint32_t)p[4 * i + 1] << 16 | (uint32_t)p[4 * i + 2] << 8 | p[4 * i + 3];
	for (int i = 16; i < 64; i++) {
		uint32_t x = w[i - 15], y = w[i - 2];

		w[i] = w[i - 16] + w[i - 7] + (ror(x, 7) ^ ror(x, 18) ^ x >> 3) + (ror(y, 17) ^ ror(y, 19) ^ y >> 10);
	}
	for (int i = 0; i < 64; i++) {
		uint32_t t1 = h + (ror(e, 6) ^ ror(e, 11) ^ ror(e, 25)) + ((e & f) ^ (~e & g)) + round_k[i] + w[i];
		uint32_t t2 = (ror(a, 2) ^ ror(a, 13) ^ ror(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));

		h = g;
		g = f;
		f = e;
		e = d + t1;
		d = c;
		c = b;
		b = a;
		a = t1 + t2;
	}
	state[0] += a;
	state[1] += b;
	state[2] += c;
	state[3] += d;
	state[4] += e;
	state[5] += f;
	state[6] += g;
	state[7] += h;
}

#if defined(__x86_64__)
/*
 * The same with the CPU's SHA instructions, because every audit record is hashed while a DNS answer waits. The instructions expect
 * the state as two words, A B E F and C D G H, highest first.
 */
__attribute__((target("sha,sse4.1"))) static void block_x86(uint32_t state[8], const uint8_t *p)
{
	const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0bll, 0x0405060700010203ll);
	__m128i abcd = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)(const void *)state), 0xb1);
	__m128i efgh = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)(const void *)(state + 4)), 0x1b);
	__m128i abef = _mm_alignr_epi8(abcd, efgh, 8), cdgh = _mm_blend_epi16(efgh, abcd, 0xf0);
	__m128i abef_in = abef, cdgh_in = cdgh, m[4];

	for (int i = 0; i < 4; i++)
		m[i] = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(const void *)(p + 16 * i)), swap);
	for (int i = 0; i < 16; i++) { /* four rounds each */
		__m128i w = m[i & 3], next;
		__m128i wk = _mm_add_epi32(w, _mm_loadu_si128((const __m128i *)(const void *)(round_k + 4 * i)));

		cdgh = _mm_sha256rnds2_epu32(cdgh, abef, wk);
		abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(wk, 0x0e));
		next = _mm_add_epi32(_mm_sha256msg1_epu32(w, m[(i + 1) & 3]), _mm_alignr_epi8(m[(i + 3) & 3], m[(i + 2) & 3], 4));
		m[i & 3] = _mm_sha256msg2_epu32(next, m[(i + 3) & 3]);
	}
	abef = _mm_shuffle_epi32(_mm_add_epi32(abef, abef_in), 0x1b);
	cdgh = _mm_shuffle_epi32(_mm_add_epi32(cdgh, cdgh_in), 0xb1);
	_mm_storeu_si128((__m128i *)(void *)state, _mm_blend_epi16(abef, cdgh, 0xf0));
	_mm_storeu_si128((__m128i *)(void *)(state + 4), _mm_alignr_epi8(cdgh, abef, 8));
}

#if __has_include(<sys/platform/x86.h>)
/* The C library asked when the program started. In a virtual machine the host answers each CPUID instruction, which takes 15 µs here. */
static bool ask_processor(void)
{
	return x86_cpu_present(x86_cpu_SHA) && x86_cpu_present(x86_cpu_SSSE3) && x86_cpu_present(x86_cpu_SSE4_1);
}
#else
/* CPUID leaf 7, EBX bit 29: SHA; leaf 1, ECX bits 9 and 19: SSSE3 and SSE4.1. */
static bool ask_processor(void)
{
	unsigned a, b, c, d;

	return __get_cpuid(1, &a, &b, &c, &d) && (c >> 9 & 1) && (c >> 19 & 1) && __get_cpuid_count(7, 0, &a, &b, &c, &d) &&
		(b >> 29 & 1);
}
#endif

static bool has_x86_sha(void)
{
	static int known = -1;

	if (known < 0)
		known = ask_processor();
	return known;
}
#endif

static void sha256_block(struct sha256 *s, const uint8_t *p)
{
#if defined(__x86_64__)
	if (has_x86_sha()) {
		block_x86(s->state, p);
		return;
	}
#endif
	block_portable(s->state, p);
}

void sha256_init(struct sha256 *s)
{
	static const uint32_t start[8] = {
		/* 5.3.3 */
		0x6a09e667,
		0xbb67ae85,
		0x3c6ef372,
		0xa54ff53a,
		0x510e527f,
		0x9b05688c,
		0x1f83d9ab,
		0x5be0cd19,
	};

	memcpy(s->state, start, sizeof(start));
	s->total = 0;
}

void sha256_add(struct sha256 *s, const void *data, size_t len)
{
	const uint8_t *p = data;

	while (len > 0) {
		size_t at = s->total % 64, n = 64 - at < len ? 64 - at : len;

		memcpy(s->block + at, p, n);
		s->total += n;
		p += n;
		len -= n;
		if (s->total % 64 == 0)
			sha256_block(s, s->block);
	}
}

void sha256_done(struct sha256 *s, uint8_t ret[static SHA256_SIZE])
{
	uint64_t bits = s->total * 8;
	uint8_t length[8];

	sha256_add(s, "\x80", 1);
	while (s->total % 64 != 56)
		sha256_add(s, "", 1);
	for (int i = 0; i < 8; i++)
		length[i] = (uint8_t)(bits >> (56 - 8 * i));
	sha256_add(s, length, sizeof(length));
	for (int i = 0; i < SHA256_SIZE; i++)
		ret[i] = (uint8_t)(s->state[i / 4] >> (24 - 8 * (i % 4)));
}

void sha256_hex(const uint8_t digest[static SHA256_SIZE], char ret[static SHA256_HEX])
{
	static const char digits[] = "0123456789abcdef";

	for (int i = 0; i < SHA256_SIZE; i++) {
		ret[2 * i] = digits[digest[i] >> 4];
		ret[2 * i + 1] = digits[digest[i] & 15];
	}
	ret[SHA256_HEX - 1] = '\0';
}
