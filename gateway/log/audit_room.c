/*
 * Reserved space for records: see log/audit.h. Even if others, including the sandbox, fill the file system, the log can use the
 * space that fallocate has reserved. The file size does not change, so readers and the chain are not affected.
 */
#include "gateway/log/audit_line.h"

#include "gateway/base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#define RECORD_ROOM 2048u /* size of a long record */
#define SLACK 32768u /* for queries in flight and denials */
#define CHUNK 65536u /* reserved beyond the need, so that reservations are rare */
#define RETRY_MS 250

void audit_writer_lose(struct audit_writer *w, int code)
{
	w->lost++;
	w->lost_total++;
	w->lost_errno = code;
}

bool audit_writer_spare(const struct audit_writer *w, uint32_t pending)
{
	return !w->tight || w->size + (uint64_t)pending * RECORD_ROOM < w->reserved;
}

static int set_aside(struct audit_writer *w, uint64_t len)
{
	int rc;

	do {
		rc = fallocate(w->fd, FALLOC_FL_KEEP_SIZE, (off_t)w->size, (off_t)len) < 0 ? -errno : 0;
	} while (rc == -EINTR);
	if (rc == 0)
		w->reserved = w->size + len;
	return rc;
}

int audit_set_room(int fd, uint32_t bytes)
{
	int rc = fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, (off_t)bytes) < 0 ? -errno : 0;

	return rc == -ENOSPC || rc == -EDQUOT ? rc : 0;
}

/* If the file system cannot reserve space, trust it until a write fails. */
static bool makes_no_promises(int rc)
{
	return rc == -EOPNOTSUPP || rc == -ENODEV || rc == -ESPIPE || rc == -ENOSYS || rc == -EPERM || rc == -EINVAL;
}

static bool reserve(struct audit_writer *w, uint64_t need)
{
	int rc;

	if (w->unreservable || w->reserved >= w->size + need)
		return true;
	rc = set_aside(w, need + CHUNK);
	if (rc == -ENOSPC || rc == -EDQUOT || rc == -EFBIG)
		rc = set_aside(w, need);
	w->unreservable = makes_no_promises(rc);
	w->tight = rc < 0 && !w->unreservable;
	return !w->tight;
}

bool audit_writer_ready(struct audit_writer *w, const char *sandbox, uint32_t pending)
{
	uint64_t need = (pending + 1ull) * RECORD_ROOM + SLACK, now_ms;

	if (!w->lost && (w->unreservable || w->reserved >= w->size + need))
		return true;
	now_ms = ak_now_ms();
	if (w->fd < 0 || now_ms < w->retry_ms)
		return false;
	/* Record the loss first; if that works, the file is writable again. */
	if (reserve(w, need) && (!w->lost || audit_write_loss(w, sandbox) == 0))
		return true;
	w->retry_ms = now_ms + RETRY_MS;
	return false;
}

void audit_writer_trim(struct audit_writer *w)
{
	if (w->fd >= 0 && w->reserved > w->size && !w->torn_open)
		(void)!ftruncate(w->fd, (off_t)w->size);
	w->reserved = 0;
}
