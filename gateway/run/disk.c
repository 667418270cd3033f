/* The limit of a sandbox's files on the disk: see run/disk.h. */
#include "gateway/run/disk.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "vmctl/sandbox.h"

#include <errno.h>
#include <signal.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <time.h>

#define LOOK_MIN_MS 50
#define LOOK_MAX_MS 1000
#define LOOK_FLOOR_MS 30000 /* with nothing but the floor to watch, and far from it */
#define BYTES_PER_MS (4ull << 20) /* faster than a sandbox writes */
#define OLD_MS 2000 /* measure again after this time, if anything on the file system has changed */
#define REST 4 /* rest so many times as long as a measurement took */
#define FLOOR_BYTES (1ull << 30)
#define FLOOR_PART 20 /* of the size of the file system */

static int ask(const char *dir, uint64_t *ret_left, uint64_t *ret_size)
{
	struct statvfs fs;

	if (statvfs(dir, &fs) < 0)
		return -errno;
	*ret_left = (uint64_t)fs.f_bavail * fs.f_frsize;
	*ret_size = (uint64_t)fs.f_blocks * fs.f_frsize;
	return 0;
}

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

void disk_watch_begin(struct disk_watch *w, const char *dir, uint64_t limit, pid_t init)
{
	uint64_t left = 0, size = 0;

	*w = (struct disk_watch){ .fd = -1 };
	if (!dir || ask(dir, &left, &size) < 0)
		return;
	w->dir = dir;
	w->limit = limit;
	/* On a file system that is nearly full already, half of what is left: the sandbox is not to blame for the rest. */
	w->floor = least(least(FLOOR_BYTES, size / FLOOR_PART), left / 2);
	w->init = init;
	w->began_s = time(NULL);
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

static bool judge(struct disk_watch *w, const struct sandbox_usage *u, uint64_t left, struct run_outcome *ret)
{
	bool over = w->limit && (u->bytes > w->limit || u->too_deep);
	bool full = left < w->floor && left + u->fresh >= w->floor;

	w->headroom = w->limit > u->bytes ? w->limit - u->bytes : 0;
	if (!over && !full)
		return false;
	ret->out_of_disk = true;
	ret->disk_bytes = over ? w->limit : 0;
	ret->disk_left = left;
	return true;
}

static void begin_measuring(struct disk_watch *w, uint64_t now_ms, uint64_t left)
{
	struct sandbox_measure m = { .dir = w->dir, .init = w->init, .since_s = w->began_s, .enough = w->limit };
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
	uint64_t lost = w->left_then > left ? w->left_then - left : 0;
	bool old = now_ms >= w->measured_ms + OLD_MS;

	if (w->left_then == UINT64_MAX)
		return w->limit || left < w->floor;
	if (left == w->left_then || now_ms < w->measured_ms + REST * w->took_ms)
		return false;
	return w->limit ? old || lost > w->headroom / 2 : old && left < w->floor;
}

static uint64_t pause_ms(const struct disk_watch *w, uint64_t left)
{
	uint64_t room = left > w->floor ? left - w->floor : 0, longest = LOOK_FLOOR_MS, ms;

	if (w->limit) {
		room = least(room, w->headroom / 2);
		longest = LOOK_MAX_MS;
	}
	ms = room / BYTES_PER_MS;
	return ms < LOOK_MIN_MS ? LOOK_MIN_MS : least(ms, longest);
}

bool disk_watch_tick(struct disk_watch *w, uint64_t now_ms, struct run_outcome *ret)
{
	struct sandbox_usage usage;
	uint64_t left = 0, size = 0;
	int rc;

	if (!w->dir || now_ms < w->next_ms || ask(w->dir, &left, &size) < 0)
		return false;
	if (!w->child && must_measure(w, now_ms, left))
		begin_measuring(w, now_ms, left);
	rc = w->child ? sandbox_measure_end(w->child, w->fd, &usage) : -ENODATA;
	if (w->child && rc != -EAGAIN) {
		w->child = 0;
		w->took_ms = now_ms - w->measured_ms;
		if (rc == 0 && judge(w, &usage, left, ret)) {
			w->dir = NULL;
			return true;
		}
	}
	w->next_ms = now_ms + (w->child ? LOOK_MIN_MS : pause_ms(w, left));
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
