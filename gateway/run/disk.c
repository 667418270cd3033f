/* The limit of a sandbox's files on the disk: see run/disk.h. */
#include "gateway/run/disk.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "vmctl/sandbox.h"

#include <errno.h>
#include <signal.h>
#include <sys/statvfs.h>
#include <sys/wait.h>

#define LOOK_MIN_MS 50
#define LOOK_MAX_MS 1000
#define BYTES_PER_MS (4ull << 20) /* faster than a sandbox writes */
#define OLD_MS 2000 /* measure again after this time, if anything on the file system has changed */
#define REST 4 /* rest so many times as long as a measurement took, unless the limit may be exceeded already */

static int free_space(const char *dir, uint64_t *ret)
{
	struct statvfs fs;

	if (statvfs(dir, &fs) < 0)
		return -errno;
	*ret = (uint64_t)fs.f_bavail * fs.f_frsize;
	return 0;
}

void disk_watch_begin(struct disk_watch *w, const char *dir, uint64_t limit, pid_t init)
{
	*w = (struct disk_watch){ .fd = -1 };
	if (!limit)
		return;
	w->dir = dir;
	w->limit = limit;
	w->init = init;
	w->left_then = UINT64_MAX;
	w->next_ms = ak_now_ms();
}

static void end_child(struct disk_watch *w)
{
	if (w->child <= 0)
		return;
	kill(w->child, SIGKILL);
	while (waitpid(w->child, NULL, 0) < 0 && errno == EINTR)
		;
	w->fd = ak_close(w->fd);
	w->child = 0;
}

void disk_watch_done(struct disk_watch *w)
{
	if (w->dir)
		end_child(w);
	w->dir = NULL;
}

uint64_t disk_watch_due_ms(const struct disk_watch *w)
{
	return w->dir ? w->next_ms : 0;
}

/* ---- what a measurement says ---- */

static bool judge(struct disk_watch *w, const struct sandbox_usage *u, struct run_outcome *ret)
{
	w->headroom = w->limit > u->bytes ? w->limit - u->bytes : 0;
	if (u->bytes <= w->limit && !u->too_deep)
		return false;
	ret->out_of_disk = true;
	ret->disk_bytes = w->limit;
	return true;
}

static void begin_measuring(struct disk_watch *w, uint64_t now_ms, uint64_t left)
{
	struct sandbox_measure m = { .dir = w->dir, .init = w->init, .enough = w->limit };
	pid_t pid = sandbox_measure_begin(&m, &w->fd);

	if (pid < 0)
		return; /* tried again at the next look */
	w->child = pid;
	w->measured_ms = now_ms;
	w->left_then = left;
}

/* ---- when to measure ---- */

static bool must_measure(const struct disk_watch *w, uint64_t now_ms, uint64_t left)
{
	uint64_t lost = w->left_then > left ? w->left_then - left : 0, rest = lost > w->headroom ? 1 : REST;

	if (w->left_then == UINT64_MAX)
		return true;
	if (left == w->left_then || now_ms < w->measured_ms + rest * w->took_ms)
		return false;
	return now_ms >= w->measured_ms + OLD_MS || lost > w->headroom / 2;
}

static uint64_t pause_ms(const struct disk_watch *w)
{
	uint64_t ms = w->headroom / 2 / BYTES_PER_MS;

	return ms < LOOK_MIN_MS ? LOOK_MIN_MS : ms > LOOK_MAX_MS ? LOOK_MAX_MS : ms;
}

bool disk_watch_tick(struct disk_watch *w, uint64_t now_ms, struct run_outcome *ret)
{
	struct sandbox_usage usage;
	uint64_t left = 0;
	int rc;

	if (!w->dir || now_ms < w->next_ms)
		return false;
	if (free_space(w->dir, &left) < 0) {
		w->next_ms = now_ms + LOOK_MAX_MS;
		return false;
	}
	if (!w->child && must_measure(w, now_ms, left))
		begin_measuring(w, now_ms, left);
	rc = w->child ? sandbox_measure_end(w->child, w->fd, &usage) : -ENODATA;
	if (w->child && rc != -EAGAIN) {
		w->child = 0;
		w->took_ms = now_ms - w->measured_ms;
		if (rc == 0 && judge(w, &usage, ret)) {
			w->dir = NULL;
			return true;
		}
	}
	w->next_ms = now_ms + (w->child ? LOOK_MIN_MS : pause_ms(w));
	return false;
}

/* ---- before a start ---- */

int disk_check_start(const char *name, const char *dir, uint64_t limit, struct ak_err *err)
{
	struct sandbox_measure m = { .dir = dir, .enough = limit };
	struct sandbox_usage usage;

	if (!limit || sandbox_measure_now(&m, &usage) < 0 || (usage.bytes <= limit && !usage.too_deep))
		return 0;
	return ak_fail(err, EDQUOT,
		"out of disk space: the files of sandbox '%s' exceed its limit of %llu MiB; copy out what you need ('agentkernel cp'), go back to a snapshot "
		"('agentkernel restore'), or raise the limit ('agentkernel start --disk SIZE %s')",
		name, (unsigned long long)(limit >> 20), name);
}
