/*
 * Ownership: every local that owns something is declared with
 * _cleanup_(x_freep) and passes it on with TAKE().
 */
#ifndef AK_BASE_CLEANUP_H
#define AK_BASE_CLEANUP_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define _cleanup_(fn) __attribute__((cleanup(fn)))

/* Pass on the pointer P: the local becomes NULL, so that its cleanup does nothing. */
#define TAKE(p)                                                                                                                  \
	__extension__({                                                                                                          \
		__typeof__(p) taken_ = (p);                                                                                      \
		(p) = NULL;                                                                                                      \
		taken_;                                                                                                          \
	})

/* The same for a file descriptor, which becomes -1. */
#define TAKE_FD(fd)                                                                                                              \
	__extension__({                                                                                                          \
		int taken_ = (fd);                                                                                               \
		(fd) = -1;                                                                                                       \
		taken_;                                                                                                          \
	})

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

static inline void ak_freep(void *p)
{
	free(*(void **)p);
}

/* Close FD unless it is negative; keeps errno. Returns -1 for `x = ak_close(x)`. */
static inline int ak_close(int fd)
{
	int saved = errno;

	if (fd >= 0)
		close(fd);
	errno = saved;
	return -1;
}

static inline void ak_closep(int *fd)
{
	ak_close(*fd);
}

static inline void ak_fclosep(FILE **f)
{
	if (*f)
		fclose(*f);
}

#define _cleanup_free_ _cleanup_(ak_freep)
#define _cleanup_close_ _cleanup_(ak_closep)
#define _cleanup_fclose_ _cleanup_(ak_fclosep)

#endif
