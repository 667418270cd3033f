/* What harnesses share: claims, inputs that are read piece by piece, and what is open. */
#ifndef AK_FUZZ_H
#define AK_FUZZ_H

#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define must(ok) ((ok) ? (void)0 : fuzz_failed(__FILE__, __LINE__, #ok))
_Noreturn static inline void fuzz_failed(const char *file, int line, const char *claim)
{
	fprintf(stderr, "%s:%d: not so: %s\n", file, line, claim);
	abort();
}

struct input {
	const uint8_t *data;
	size_t len;
};

static inline const uint8_t *take(struct input *in, size_t n)
{
	const uint8_t *at = in->data;

	must(n <= in->len);
	in->data += n;
	in->len -= n;
	return at;
}

static inline uint8_t take_byte(struct input *in)
{
	return in->len ? *take(in, 1) : 0;
}

/* Two bytes of length and as much, or what is left of it. */
static inline struct input take_part(struct input *in)
{
	size_t n = take_byte(in);

	n |= (size_t)take_byte(in) << 8;
	n = n < in->len ? n : in->len;
	return (struct input){ take(in, n), n };
}

/* As many before as after when nothing stayed behind. */
static inline int open_fds(void)
{
	int n = 0;

	for (int fd = 0; fd < 128; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

#endif
