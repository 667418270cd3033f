/*
 * Sealed copies of a template's files, and their checksums. A sealed copy can be mapped by any number of guests and changed by none, so that a guest that has taken over its
 * monitor cannot reach the next one.
 *
 * The checksum finds damage, not forgery: who can write to the user's own folder needs no guest. It is taken while the file is copied anyway, and has to keep up with that. A page of
 * zeros adds nothing, so holes do not matter; a change of one word always shows, because every step is a bijection.
 */
#include "vmctl/vm_internal.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define PAGE 4096u
#define LANES 4u
#define BLOCK (1u << 20)
#define ODD UINT64_C(0x9e3779b97f4a7c15)

static uint64_t page_sum(const uint64_t page[static PAGE / 8])
{
	uint64_t lane[LANES] = { 0 }, sum = 0;

	for (size_t i = 0; i < PAGE / 8; i += LANES) {
		for (size_t l = 0; l < LANES; l++) {
			uint64_t x = (lane[l] ^ page[i + l]) * ODD;

			lane[l] = x << 29 | x >> 35;
		}
	}
	for (size_t l = 0; l < LANES; l++)
		sum = (sum ^ lane[l]) * ODD;
	return sum;
}

/* Copy what lies between AT and END; TO < 0: read only. */
static int take_part(int from, int to, off_t at, off_t end, uint64_t *sum)
{
	static uint64_t block[BLOCK / 8];

	while (at < end) {
		size_t want = end - at < (off_t)BLOCK ? (size_t)(end - at) : BLOCK;
		ssize_t n = ak_pread_all(from, (char *)block, want, (uint64_t)at);

		if (n < 0)
			return (int)n;
		if ((size_t)n != want)
			return -EBADMSG;
		memset((char *)block + n, 0, -(size_t)n % PAGE);
		for (size_t p = 0; p < (size_t)n; p += PAGE)
			*sum += page_sum(block + p / 8) * (2 * ((uint64_t)at + p) / PAGE + 1);
		for (ssize_t done = 0, w; to >= 0 && done < n; done += w) {
			w = pwrite(to, (char *)block + done, (size_t)(n - done), at + done);
			if (w <= 0)
				return w < 0 ? -errno : -EIO;
		}
		at += n;
	}
	return 0;
}

/* Add the checksum of FROM to *SUM, and copy it to TO unless that is negative. */
static int take(int from, int to, uint64_t *sum)
{
	uint64_t own = 0;
	struct stat st;
	off_t at = 0;
	int rc = 0;

	if (fstat(from, &st) < 0 || (to >= 0 && ftruncate(to, st.st_size) < 0))
		return -errno;
	while (rc == 0 && at < st.st_size && (at = lseek(from, at, SEEK_DATA)) >= 0) {
		off_t end = lseek(from, at, SEEK_HOLE);

		if (end < 0)
			return -errno;
		at -= at % (off_t)PAGE;
		end += -end & (off_t)(PAGE - 1);
		end = end < st.st_size ? end : st.st_size;
		rc = take_part(from, to, at, end, &own);
		at = end;
	}
	if (rc == 0 && at < 0 && errno != ENXIO) /* ENXIO: no more data */
		return -errno;
	*sum = (*sum + own) * ODD + (uint64_t)st.st_size;
	return rc;
}

int vm_sum(int dir, const char *name, uint64_t *sum)
{
	_cleanup_close_ int from = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);

	return from < 0 ? -errno : take(from, -1, sum);
}

int vm_seal(int dir, const char *name, uint64_t *sum)
{
	_cleanup_close_ int from = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	_cleanup_close_ int to = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	int rc = from < 0 || to < 0 ? -errno : take(from, to, sum);

	if (rc == 0 && fcntl(to, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) < 0)
		rc = -errno;
	return rc < 0 ? rc : TAKE_FD(to);
}
