/*
 * Selects the past runs to remove: see store/rundir.h.
 *
 * Runs are divided into shares by origin and by whether they had denials. Each share is pruned separately, oldest first: a flood of
 * short runs from one origin does not remove those of another, and runs without denials never displace runs with denials.
 */
#include "gateway/store/rundir_internal.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/log/audit.h"
#include "gateway/log/audit_anchor.h"
#include "gateway/log/events.h"
#include "gateway/log/netlog.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define PRUNE_ONE_IN 16
#define DAY_US (24ull * 3600 * 1000000)
#define TAIL 512 /* end of run.jsonl: contains the class of the run */
#define BATCH 16 /* runs that share one event */
#define DENIALS_MAX 16 /* kinds of denials listed individually in the event of a run */
#define RECORDS_MAX 20000 /* records of a log that are read for it */
#define SHARES (2 * RUN_ORIGIN_NUM)
#define MARK ".pruned" /* the size of this file is the number of runs left the last time */

struct past {
	char name[AK_NAME_MAX];
	unsigned share;
	uint64_t when_us, bytes;
};

struct pass {
	const struct ak_paths *paths;
	char runs[PATH_MAX], events[PATH_MAX];
	int fd; /* of the runs folder; borrowed */
	uint64_t now_us;
	struct past *all; /* owned */
	size_t n, cap;
	/* A batch of runs without denials, locked for removal. */
	const struct past *batch[BATCH];
	int locked[BATCH];
	unsigned n_batch;
};

static bool was_denied(unsigned share)
{
	return share % 2;
}

static enum run_origin origin_of(unsigned share)
{
	return (enum run_origin)(share / 2);
}

/* ---- the existing runs ---- */

/* The share that TAIL, the end of a run.jsonl, names with DENIED_TEXT; SHARES if it names none. */
static unsigned find_share(const char *tail, const char *denied_text, bool denied)
{
	for (unsigned origin = 0; origin < RUN_ORIGIN_NUM; origin++) {
		char class[64];

		snprintf(class, sizeof(class), RUNDIR_CLASS, run_origin_name((enum run_origin)origin), denied_text);
		if (strstr(tail, class))
			return 2 * origin + denied;
	}
	return SHARES;
}

/* A run without an end counts as one of its origin with denials; an unknown file counts as the user's own, which is kept longest. */
static unsigned share_of(int runs, const char *name)
{
	char path[AK_NAME_MAX + sizeof("/" RUNDIR_FILE)], tail[TAIL + 1];
	_cleanup_close_ int fd = -1;
	struct stat st;
	unsigned share;
	ssize_t n;

	snprintf(path, sizeof(path), "%s/" RUNDIR_FILE, name);
	fd = openat(runs, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0)
		return 2 * RUN_ORIGIN_CLI + 1;
	n = pread(fd, tail, TAIL, st.st_size > TAIL ? st.st_size - TAIL : 0);
	tail[n > 0 ? n : 0] = '\0';
	share = find_share(tail, "false", false);
	if (share == SHARES)
		share = find_share(tail, "true", true);
	if (share == SHARES)
		share = find_share(tail, RUNDIR_UNFINISHED, true);
	return share == SHARES ? 2 * RUN_ORIGIN_CLI + 1 : share;
}

static uint64_t size_of(int runs, const char *name, const char *file)
{
	char path[AK_NAME_MAX + 32];
	struct stat st;

	snprintf(path, sizeof(path), "%s/%s", name, file);
	return fstatat(runs, path, &st, AT_SYMLINK_NOFOLLOW) == 0 ? (uint64_t)st.st_size : 0;
}

static uint64_t bytes_of(int runs, const char *name)
{
	static const char *const more[] = { "network.jsonl.first", "network.jsonl.kept", "network.jsonl.1", "network.jsonl.2",
		"network.jsonl.3" };
	uint64_t sum =
		size_of(runs, name, "network.jsonl") + size_of(runs, name, RUNDIR_FILE) + size_of(runs, name, "policy.json");

	for (size_t i = 0; i < ARRAY_SIZE(more); i++) {
		uint64_t size = size_of(runs, name, more[i]);

		sum += size;
		if (i == 0 && size == 0) /* not rotated yet */
			break;
	}
	return sum;
}

/* A run that was removed meanwhile counts as old; removing it again does nothing. */
static void examine(const struct pass *p, struct past *run)
{
	struct stat st = { 0 };

	(void)fstatat(p->fd, run->name, &st, AT_SYMLINK_NOFOLLOW);
	run->when_us = (uint64_t)st.st_mtim.tv_sec * 1000000 + (uint64_t)st.st_mtim.tv_nsec / 1000;
	run->share = share_of(p->fd, run->name);
	run->bytes = bytes_of(p->fd, run->name);
}

static void list(struct pass *p, DIR *dir)
{
	for (struct dirent *e; (e = readdir(dir));) {
		if (!ak_sandbox_name_ok(e->d_name))
			continue;
		if (p->n == p->cap) {
			size_t cap = p->cap ? 2 * p->cap : 256;
			struct past *grown = realloc(p->all, cap * sizeof(*grown));

			if (!grown)
				return;
			p->all = grown;
			p->cap = cap;
		}
		memcpy(p->all[p->n++].name, e->d_name, strlen(e->d_name) + 1);
	}
}

/* ---- removing a run ---- */

/* Lock a run that is neither alive (its supervisor holds the lock) nor kept. Returns the descriptor, or -1. */
static int lock_run(int runs, const char *name)
{
	_cleanup_close_ int fd = openat(runs, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0 || faccessat(fd, "upper", F_OK, 0) == 0)
		return -1;
	return TAKE_FD(fd);
}

struct summary {
	struct netlog *log; /* owned */
	size_t records;
};

static int add_record(void *ctx, const char *line, size_t len, bool whole)
{
	struct summary *s = ctx;
	struct netlog_rec rec;
	int rc = 0;

	if (++s->records > RECORDS_MAX)
		return -ECANCELED;
	if (!whole || netlog_rec_parse(line, len, &rec) < 0)
		return 0;
	if (!strcmp(rec.verdict, "deny"))
		rc = netlog_add(s->log, &rec);
	netlog_rec_done(&rec);
	return rc;
}

static void put_rows(struct strbuf *out, struct netlog_row *const *rows, size_t n)
{
	uint64_t total = 0;

	strbuf_puts(out, ",\"denials\":[");
	for (size_t i = 0; i < n; i++) {
		total += rows[i]->count;
		if (i >= DENIALS_MAX)
			continue;
		strbuf_printf(out, "%s{\"count\":%llu", i ? "," : "", (unsigned long long)rows[i]->count);
		event_put_text(out, "dest", rows[i]->dest);
		event_put_text(out, "proto", rows[i]->proto);
		event_put_text(out, "rule", rows[i]->rule);
		event_put_text(out, "reason", rows[i]->reason);
		strbuf_putc(out, '}');
	}
	strbuf_printf(out, "],\"kinds\":%zu,\"denied\":%llu", n, (unsigned long long)total);
}

int rundir_put_denials(const char *dir, uint64_t now_us, struct strbuf *out)
{
	_cleanup_(netlog_freep) struct netlog *log = NULL;
	_cleanup_free_ struct netlog_row **rows = NULL;
	static struct audit_reader r; /* too large for the stack */
	struct summary s = { 0 };
	char path[PATH_MAX];
	struct ak_err err;
	size_t n = 0;
	int rc = netlog_new(&log);

	if (rc < 0)
		return rc;
	s.log = log;
	if (ak_path_join(path, dir, "network.jsonl", NULL) < 0)
		return -ENAMETOOLONG;
	r = (struct audit_reader){ .fd = -1 };
	(void)audit_reader_drain(&r, path, true, add_record, &s, &err); /* as much as can be read */
	audit_reader_done(&r);
	rc = netlog_rows(log, NETLOG_DENIED, now_us, 0, &rows, &n);
	if (rc == 0)
		put_rows(out, rows, n);
	return rc < 0 ? rc : out->failed ? -ENOMEM : (int)n;
}

static void let_go(const struct pass *p, const struct past *run, int fd)
{
	audit_anchor_drop(p->paths->state, run->name); /* first, because an anchor without its log is reported as a missing log */
	rundir_recycle(p->fd, run->name, fd);
}

/* A run is removed only after the events log has recorded it. */
static void prune_denied(struct pass *p, const struct past *run)
{
	_cleanup_strbuf_ struct strbuf out = { 0 };
	_cleanup_close_ int fd = lock_run(p->fd, run->name);
	char dir[PATH_MAX];
	struct ak_err err;

	if (fd < 0 || ak_path_join(dir, p->runs, run->name, NULL) < 0)
		return;
	strbuf_printf(&out, "\"event\":\"run_prune\",\"sandbox\":\"%s\",\"origin\":\"%s\"", run->name,
		run_origin_name(origin_of(run->share)));
	if (rundir_put_denials(dir, p->now_us, &out) >= 0 && audit_event(p->events, out.data, &err) == 0)
		let_go(p, run, fd);
}

static void flush_batch(struct pass *p)
{
	_cleanup_strbuf_ struct strbuf out = { 0 };
	struct ak_err err;
	bool recorded;

	if (!p->n_batch)
		return;
	strbuf_printf(
		&out, "\"event\":\"run_prune\",\"origin\":\"%s\",\"runs\":[", run_origin_name(origin_of(p->batch[0]->share)));
	for (unsigned i = 0; i < p->n_batch; i++)
		strbuf_printf(&out, "%s\"%s\"", i ? "," : "", p->batch[i]->name);
	strbuf_puts(&out, "]");
	recorded = !out.failed && audit_event(p->events, out.data, &err) == 0;
	for (unsigned i = 0; i < p->n_batch; i++) {
		if (recorded)
			let_go(p, p->batch[i], p->locked[i]);
		ak_close(p->locked[i]);
	}
	p->n_batch = 0;
}

static void prune_run(struct pass *p, const struct past *run)
{
	int fd;

	if (was_denied(run->share)) {
		prune_denied(p, run);
		return;
	}
	fd = lock_run(p->fd, run->name);
	if (fd < 0)
		return;
	p->batch[p->n_batch] = run;
	p->locked[p->n_batch++] = fd;
	if (p->n_batch == BATCH)
		flush_batch(p);
}

/* ---- selecting runs ---- */

static int by_share_and_age(const void *a, const void *b)
{
	const struct past *x = a, *y = b;

	if (x->share != y->share)
		return x->share < y->share ? -1 : 1;
	return x->when_us < y->when_us ? -1 : x->when_us > y->when_us;
}

/* Prune one share, oldest first: N runs with BYTES of logs in total. */
static void prune_share(struct pass *p, const struct past *runs, size_t n, uint64_t bytes)
{
	size_t most = n && was_denied(runs->share) ? RUNDIR_DENIED_MAX : RUNDIR_CLEAN_MAX;

	for (; n > 0; runs++, n--) {
		bool old = runs->when_us + DAY_US < p->now_us;

		if (n <= most && bytes <= RUNDIR_BYTES_MAX && !(old && n > RUNDIR_KEEP))
			return;
		prune_run(p, runs);
		bytes -= runs->bytes;
	}
}

static void prune_shares(struct pass *p)
{
	size_t end;

	for (size_t i = 0; i < p->n; i++)
		examine(p, &p->all[i]);
	qsort(p->all, p->n, sizeof(*p->all), by_share_and_age);
	for (size_t i = 0; i < p->n; i = end) {
		uint64_t bytes = 0;

		for (end = i; end < p->n && p->all[end].share == p->all[i].share; end++)
			bytes += p->all[end].bytes;
		prune_share(p, p->all + i, end - i, bytes);
		flush_batch(p);
	}
}

/* Prune only after some new runs, so that not every run reads all of them; and once a day in any case. */
static bool is_due(const struct pass *p)
{
	struct stat st;
	size_t left;

	if (fstatat(p->fd, MARK, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return p->n > RUNDIR_KEEP + RUNDIR_KEEP / 10;
	left = (size_t)st.st_size > RUNDIR_KEEP ? (size_t)st.st_size : RUNDIR_KEEP;
	return p->n > left + left / 10 || (p->n > RUNDIR_KEEP && (uint64_t)st.st_mtim.tv_sec * 1000000 + DAY_US < p->now_us);
}

static void mark(const struct pass *p, DIR *dir)
{
	_cleanup_close_ int fd = openat(p->fd, MARK, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
	off_t left = 0;

	rewinddir(dir);
	for (struct dirent *e; (e = readdir(dir));)
		left += ak_sandbox_name_ok(e->d_name);
	if (fd >= 0)
		(void)!ftruncate(fd, left); /* a sparse file: its size is the number */
}

void rundir_prune(const struct ak_paths *paths)
{
	struct pass p = { .paths = paths, .now_us = ak_wall_us() };
	DIR *dir;

	if (ak_path_join(p.runs, paths->state, "runs", NULL) < 0 ||
		ak_path_join(p.events, paths->state, "events.jsonl", NULL) < 0 || !(dir = opendir(p.runs)))
		return;
	p.fd = dirfd(dir);
	list(&p, dir);
	if (is_due(&p) && flock(p.fd, LOCK_EX | LOCK_NB) == 0) { /* only one process prunes at a time */
		prune_shares(&p);
		mark(&p, dir);
	}
	free(p.all);
	closedir(dir);
}

/* Best effort, without the lock of the runs folder: `audit verify` holds it for as long as it reads, and a start must not wait for it. */
bool rundir_forget(const struct ak_paths *paths, const char *name)
{
	struct pass p = { .paths = paths, .now_us = ak_wall_us() };
	_cleanup_close_ int fd = -1;
	struct past run = { 0 };

	if (ak_path_join(p.runs, paths->state, "runs", NULL) < 0 ||
		ak_path_join(p.events, paths->state, "events.jsonl", NULL) < 0 ||
		(fd = open(p.runs, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0)
		return true;
	p.fd = fd;
	if (faccessat(fd, name, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
		return true;
	memcpy(run.name, name, strlen(name) + 1);
	examine(&p, &run);
	prune_run(&p, &run);
	flush_batch(&p);
	return faccessat(fd, name, F_OK, AT_SYMLINK_NOFOLLOW) < 0;
}

void rundir_prune_sometimes(const struct ak_paths *paths)
{
	if (rundir_lot() % PRUNE_ONE_IN == 0)
		rundir_prune(paths);
}
