/*
 * Room that is set aside for records: see log/audit.h. A file system that is filled by others, the sandbox among them, still takes what
 * fallocate has promised to the log. The size of the file does not change by it, so readers and the chain notice nothing.
 */
#include "gateway/log/audit_line.h"

#include "gateway/base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#define RECORD_ROOM 2048u /* one of the longer records */
#define SLACK 32768u /* for questions under way and refusals */
#define CHUNK 65536u /* asked for beyond what is needed, so that it is seldom asked for */
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

/* What cannot promise anything is trusted until a write fails. */
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
	/* Say what was lost before anything else happens; that it can be said shows that the file can be written again. */
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
