/* The folder of one run: see store/rundir.h. */
#include "gateway/store/rundir_internal.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/base/say.h"
#include "gateway/log/audit.h"
#include "gateway/log/events.h"
#include "gateway/store/mounts.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static int join(char ret[PATH_MAX], const char *a, const char *b)
{
	int n = snprintf(ret, PATH_MAX, "%s/%s", a, b);

	return n < 0 || n >= PATH_MAX ? -ENAMETOOLONG : 0;
}

static int fail_state(struct ak_err *err, int code, const char *path)
{
	return ak_fail(err, code, "%s: %s: agentkernel keeps its records there; make it writable or set XDG_STATE_HOME", path,
		strerror(code));
}

int rundir_empty(const struct ak_paths *paths, char ret[PATH_MAX], struct ak_err *err)
{
	int rc = join(ret, paths->runtime, "empty");

	if (rc == 0)
		rc = ak_mkdir_p(ret, 0700);
	return rc < 0 ? ak_fail_errno(err, -rc, "%s", ret) : 0;
}

/* ---- spare folders ---- */

/*
 * The folder of a pruned run, with emptied files, is kept under one of a few names for a later run. Creating and removing files is
 * cheap, but on ext4, creating files soon after others were removed costs a search past all removed inodes.
 */
#define SPARES 128 /* enough for a burst of ending runs; further folders are removed */
#define STOCK 32 /* the first of these are created in advance */
#define PROBES 16 /* names that a run tries before it tries the stock, and then creates its own folder */

/* This process makes the stock, and looks there first. All others look elsewhere first, because they run at the same time. */
static bool keeps_stock;

static const char *const files[] = { "network.jsonl", "run.jsonl", "policy.json" };

static void spare_name(unsigned i, char ret[static 16])
{
	snprintf(ret, 16, ".spare-%u", i % SPARES);
}

/* A different number for each call, so that concurrent runs rarely try the same name. */
unsigned rundir_lot(void)
{
	return (unsigned)(ak_now_us() ^ (uint64_t)getpid());
}

/* Lock FD, which was found under NAME; true if we got it and NAME still refers to it. */
static bool claim(int runs, const char *name, int fd)
{
	struct stat opened, there;

	return flock(fd, LOCK_EX | LOCK_NB) == 0 && fstat(fd, &opened) == 0 &&
		fstatat(runs, name, &there, AT_SYMLINK_NOFOLLOW) == 0 && opened.st_ino == there.st_ino;
}

/* Rename a spare folder to NAME; -1 if there is none. Locks it first: pruning would take it for the oldest run of all. */
static int take_spare(int runs, const char *name)
{
	unsigned lot = rundir_lot(), stock_at = keeps_stock ? 0 : PROBES, probes_at = keeps_stock ? STOCK : 0;
	char spare[16];

	for (unsigned i = 0; i < PROBES + STOCK; i++) {
		_cleanup_close_ int fd = -1;

		spare_name(i - stock_at < STOCK ? i - stock_at : lot + i - probes_at, spare);
		fd = openat(runs, spare, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (fd >= 0 && claim(runs, spare, fd) && renameat2(runs, spare, runs, name, RENAME_NOREPLACE) == 0)
			return TAKE_FD(fd);
	}
	return -1;
}

static size_t entries_of(int fd)
{
	int again = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = again < 0 ? NULL : fdopendir(again);
	size_t n = 0;

	if (!dir) {
		ak_close(again);
		return SIZE_MAX;
	}
	for (struct dirent *e; (e = readdir(dir));)
		n += strcmp(e->d_name, ".") && strcmp(e->d_name, "..");
	closedir(dir);
	return n;
}

/* True if DIR contains only the files of a run, which are now empty. */
static bool emptied(int dir)
{
	size_t n = 0;

	for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
		_cleanup_close_ int fd = openat(dir, files[i], O_WRONLY | O_TRUNC | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
		struct stat st;

		if (fd < 0 && errno == ENOENT)
			continue;
		if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_nlink != 1)
			return false;
		n++;
	}
	return entries_of(dir) == n;
}

/* Rename NAME, whose files are empty, to the first free spare name from START on. */
static bool put_spare(int runs, const char *name, unsigned start)
{
	char spare[16];

	for (unsigned i = 0; i < SPARES; i++) {
		spare_name(start + i, spare);
		if (renameat2(runs, name, runs, spare, RENAME_NOREPLACE) == 0)
			return true;
	}
	return false;
}

void rundir_recycle(int runs, const char *name, int fd)
{
	if (!emptied(fd) || !put_spare(runs, name, rundir_lot()))
		(void)ak_remove_tree(runs, name);
}

static unsigned count_stock(int runs)
{
	char spare[16];
	unsigned n = 0;

	for (unsigned i = 0; i < STOCK; i++) {
		spare_name(i, spare);
		n += faccessat(runs, spare, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
	}
	return n;
}

/* Create a new spare folder. Until it is complete it has one fixed name: the next daemon finishes what a killed one left. */
static bool new_spare(int runs)
{
	static const char name[] = ".new";
	_cleanup_close_ int dir = -1;

	if ((mkdirat(runs, name, 0700) < 0 && errno != EEXIST) ||
		(dir = openat(runs, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)) < 0)
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
		_cleanup_close_ int fd = openat(dir, files[i], O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);

		if (fd < 0)
			return false;
	}
	return emptied(dir) && put_spare(runs, name, 0);
}

void rundir_stock(const struct ak_paths *paths, unsigned n)
{
	char runs[PATH_MAX];
	struct audit_key key;
	struct ak_err err;
	_cleanup_close_ int fd = join(runs, paths->state, "runs") < 0 ? -1 : open(runs, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	keeps_stock = true;
	if (fd < 0 && errno == ENOENT && ak_mkdir_p(runs, 0700) == 0)
		fd = open(runs, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	for (unsigned have = fd < 0 ? n : count_stock(fd); have < n && have < STOCK && new_spare(fd); have++)
		;
	(void)audit_key_of(paths->state, &key, &err); /* also the key: otherwise a run may have to create it on a full disk */
}

/* ---- creating a folder ---- */

/* -EEXIST if another run has the name. */
static int mkdir_new(const char *path, const char *runs)
{
	int rc = mkdir(path, 0700) < 0 ? -errno : 0;

	if (rc != -ENOENT)
		return rc;
	rc = ak_mkdir_p(runs, 0700);
	return rc < 0 ? rc : mkdir(path, 0700) < 0 ? -errno : 0;
}

/* Create a folder or use a spare one; sets its time to now. */
static int make_dir(struct rundir *d, const char *runs, const char *name, bool *ret_spare)
{
	_cleanup_close_ int fd = open(runs, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int rc = 0;

	d->dir_fd = fd >= 0 ? take_spare(fd, name) : -1;
	*ret_spare = d->dir_fd >= 0;
	if (*ret_spare)
		return futimens(d->dir_fd, NULL) < 0 ? -errno : 0;
	rc = mkdir_new(d->path, runs);
	if (rc == 0 && (d->dir_fd = open(d->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)) < 0)
		rc = -errno;
	if (rc == 0 && flock(d->dir_fd, LOCK_EX | LOCK_NB) < 0)
		rc = -errno;
	return rc;
}

static int open_dir(struct rundir *d, const char *runs, const char *name, struct ak_err *err)
{
	const int flags = O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC;
	struct stat st;
	bool spare;
	int rc = make_dir(d, runs, name, &spare);

	if (rc < 0)
		return fail_state(err, -rc, d->path);
	d->log_fd = openat(d->dir_fd, "network.jsonl", flags | (spare ? 0 : O_EXCL), 0600);
	if (d->log_fd < 0 || fstat(d->log_fd, &st) < 0)
		return fail_state(err, errno, d->log_path);
	return st.st_size == 0 ? 0 : fail_state(err, EEXIST, d->log_path);
}

int rundir_create(struct rundir *d, const struct ak_paths *paths, const char *name, bool keep, struct ak_err *err)
{
	char runs[PATH_MAX];
	int rc;

	memset(d, 0, sizeof(*d));
	d->dir_fd = d->log_fd = -1;
	d->started_us = ak_wall_us();
	rc = join(runs, paths->state, "runs");
	if (rc == 0)
		rc = join(d->path, runs, name);
	if (rc == 0)
		rc = join(d->log_path, d->path, "network.jsonl");
	if (rc == 0)
		rc = join(d->events_path, paths->state, "events.jsonl");
	if (rc < 0)
		return ak_fail_errno(err, -rc, "%s", paths->state);
	rc = open_dir(d, runs, name, err);
	if (rc == 0 && keep && (join(d->upper, d->path, "upper") < 0 || mkdir(d->upper, 0700) < 0))
		rc = fail_state(err, errno, d->upper);
	if (rc < 0) {
		if (d->dir_fd >= 0)
			rundir_discard(d);
		rundir_done(d);
	}
	return rc;
}

static void put_time(struct strbuf *out, const char *key, uint64_t us)
{
	time_t s = (time_t)(us / 1000000);
	struct tm tm;
	char text[32];

	gmtime_r(&s, &tm);
	strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &tm);
	strbuf_printf(out, ",\"%s\":\"%s.%06uZ\"", key, text, (unsigned)(us % 1000000));
}

/* Mounts of the host besides the system and the project. */
static void put_mounts(struct strbuf *out, const struct run_plan *plan)
{
	char *list[TOOLS_MAX];

	for (size_t i = 0; i < plan->tools.n; i++)
		list[i] = plan->tools.list[i].path;
	run_mounts_event(out, list, plan->tools.n, plan->asked, plan->n_asked);
}

static void put_ports(struct strbuf *out, const char *key, const struct ak_publish *list, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		char text[AK_PUBLISH_TEXT];

		if (i == 0)
			strbuf_printf(out, ",\"%s\":[", key);
		strbuf_printf(out, "%s\"%s\"", i ? "," : "", ak_publish_print(&list[i], text));
	}
	if (n)
		strbuf_putc(out, ']');
}

/* The JSON members that start and end share; each begins with a comma. */
static void put_run(struct strbuf *out, const struct run_plan *plan, const struct run_request *opts)
{
	event_put_text(out, "backend", run_backend_name(plan->vm, opts->podman));
	event_put_text(out, "mode", ak_mode_policy(opts->mode, opts->own));
	event_put_text(out, "profile", ak_profile_name(opts->profile));
	event_put_text(out, "origin", run_origin_name(opts->origin));
	strbuf_printf(out, ",\"network\":%s", plan->network ? "true" : "false");
	event_put_list(out, "command", opts->argv);
	if (plan->project[0])
		event_put_text(out, "project", plan->project);
	put_mounts(out, plan);
	put_ports(out, "publish", opts->publish, opts->n_publish);
}

static void put_outcome(struct strbuf *out, const struct run_outcome *o)
{
	strbuf_printf(out, ",\"exit_code\":%d,\"start_us\":%llu,\"duration_ms\":%llu", o->exit_code,
		(unsigned long long)o->start_us, (unsigned long long)o->duration_ms);
	if (o->timed_out)
		strbuf_puts(out, ",\"timed_out\":true");
	if (o->out_of_memory)
		strbuf_puts(out, ",\"out_of_memory\":true");
	if (o->out_of_disk)
		strbuf_puts(out, ",\"out_of_disk\":true");
	strbuf_printf(
		out, ",\"allowed\":%llu,\"denied\":%llu", (unsigned long long)o->net.allowed, (unsigned long long)o->net.denied);
}

/*
 * Append to a file in the run's folder, created if missing. It does not use a temporary file: a run is short, and creating and
 * removing files slows down later runs.
 */
static int append(int dir_fd, const char *name, const struct strbuf *text)
{
	_cleanup_close_ int fd = -1;

	if (text->failed)
		return -ENOMEM;
	fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	return fd < 0 ? -errno : ak_write_all(fd, text->data, text->len);
}

/* One line at the start and one at the end; the last line is valid. */
static int write_run_json(
	struct rundir *d, const struct run_plan *plan, const struct run_request *opts, const struct run_outcome *outcome)
{
	_cleanup_strbuf_ struct strbuf out = { 0 };

	strbuf_printf(&out, "{\"v\":1,\"name\":\"%s\"", plan->name);
	put_run(&out, plan, opts);
	strbuf_printf(&out, ",\"kept\":%s,\"pid\":%d", opts->keep ? "true" : "false", (int)getpid());
	put_time(&out, "started", d->started_us);
	if (outcome) {
		put_outcome(&out, outcome);
		put_time(&out, "ended", ak_wall_us());
	}
	strbuf_printf(&out, RUNDIR_CLASS, run_origin_name(opts->origin),
		!outcome		      ? RUNDIR_UNFINISHED
			: outcome->net.denied ? "true"
					      : "false");
	strbuf_puts(&out, "}\n");
	return append(d->dir_fd, RUNDIR_FILE, &out);
}

int rundir_write(const char *dir, uint64_t started_us, const struct run_plan *plan, const struct run_request *opts,
	const struct run_outcome *outcome)
{
	_cleanup_close_ int fd = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct rundir d = { .dir_fd = fd, .log_fd = -1, .started_us = started_us };

	return fd < 0 ? -errno : write_run_json(&d, plan, opts, outcome);
}

/* The record goes last: with it the folder is a run that can be listed and pruned. */
int rundir_archive(const struct ak_paths *paths, const char *from, const char *name, struct ak_err *err)
{
	static const char *const parts[] = { "network.jsonl.first", "network.jsonl.kept", "network.jsonl.3", "network.jsonl.2",
		"network.jsonl.1", "network.jsonl", "policy.json", RUNDIR_OUTPUT, RUNDIR_FILE };
	_cleanup_close_ int source = open(from, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), target = -1;
	char runs[PATH_MAX], path[PATH_MAX];
	int rc = source < 0 ? -errno : 0;

	if (rc == 0)
		rc = join(runs, paths->state, "runs");
	if (rc == 0)
		rc = join(path, runs, name);
	if (rc == 0)
		rc = mkdir_new(path, runs);
	if (rc == 0 && (target = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)) < 0)
		rc = -errno;
	for (size_t i = 0; i < ARRAY_SIZE(parts) && rc == 0; i++) {
		if (renameat(source, parts[i], target, parts[i]) < 0 && errno != ENOENT)
			rc = -errno;
	}
	return rc < 0 ? ak_fail_errno(err, -rc, "the log of '%s' could not be moved to %s", name, runs) : 0;
}

int rundir_record_start(struct rundir *d, const struct run_plan *plan, const struct run_request *opts,
	const struct policy *policy, struct ak_err *err)
{
	_cleanup_strbuf_ struct strbuf out = { 0 };
	int rc = write_run_json(d, plan, opts, NULL);

	if (rc == 0 && policy) {
		policy_print(policy, &out);
		rc = append(d->dir_fd, "policy.json", &out);
	}
	if (rc < 0)
		return fail_state(err, -rc, d->path);
	strbuf_reset(&out);
	strbuf_printf(&out, "\"event\":\"run_start\",\"sandbox\":\"%s\"", plan->name);
	put_run(&out, plan, opts);
	if (out.failed)
		return ak_fail(err, ENOMEM, "out of memory");
	rc = audit_event(d->events_path, out.data, err);
	d->recorded = rc == 0;
	d->origin = opts->origin;
	return rc;
}

void rundir_record_ports(struct rundir *d, const struct run_plan *plan, const struct run_request *opts, const char *key,
	const struct ak_publish *list, size_t n)
{
	_cleanup_strbuf_ struct strbuf out = { 0 };
	struct ak_err err = { .text = "out of memory" };
	int rc = write_run_json(d, plan, opts, NULL);

	if (rc < 0)
		(void)fail_state(&err, -rc, d->path);
	strbuf_printf(&out, "\"event\":\"sandbox_publish\",\"sandbox\":\"%s\"", plan->name);
	put_ports(&out, key, list, n);
	event_put_text(&out, "origin", run_origin_name(opts->origin));
	if (rc == 0)
		rc = out.failed ? -ENOMEM : audit_event(d->events_path, out.data, &err);
	if (rc < 0)
		ak_say("%s", err.text);
}

/* STATE/last contains the name of the newest run in its first line. What a longer name left behind that line is ignored. */
void rundir_point_last(const struct ak_paths *paths, const char *name)
{
	char last[PATH_MAX], line[AK_NAME_MAX + 1];
	int n = snprintf(line, sizeof(line), "%s\n", name);
	_cleanup_close_ int fd = -1;

	if (join(last, paths->state, "last") < 0)
		return;
	fd = open(last, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd >= 0)
		(void)!pwrite(fd, line, (size_t)n, 0);
}

int rundir_record_end(struct rundir *d, const struct run_plan *plan, const struct run_request *opts,
	const struct run_outcome *outcome, struct ak_err *err)
{
	_cleanup_strbuf_ struct strbuf out = { 0 };
	int rc = write_run_json(d, plan, opts, outcome), rc2;

	strbuf_printf(&out, "\"event\":\"run_end\",\"sandbox\":\"%s\"", plan->name);
	event_put_text(&out, "origin", run_origin_name(opts->origin));
	put_outcome(&out, outcome);
	if (outcome->has_net)
		strbuf_printf(&out, ",\"network_records\":%llu,\"network_lost\":%llu,\"network_hash\":\"%s\"",
			(unsigned long long)outcome->net.records, (unsigned long long)outcome->net.lost, outcome->net.hash);
	if (out.failed)
		return ak_fail(err, ENOMEM, "out of memory");
	rc2 = audit_event(d->events_path, out.data, err);
	return rc < 0 ? fail_state(err, -rc, d->path) : rc2;
}

/* If the events log has the start, it must get an end too: otherwise the missing folder would look deleted by someone. */
static void record_discard(const struct rundir *d)
{
	const char *slash = strrchr(d->path, '/');
	char fields[128];
	struct ak_err err;

	snprintf(fields, sizeof(fields), "\"event\":\"run_discard\",\"sandbox\":\"%s\",\"origin\":\"%s\"", slash ? slash + 1 : "",
		run_origin_name(d->origin));
	(void)audit_event(d->events_path, fields, &err);
}

void rundir_discard(struct rundir *d)
{
	if (d->recorded)
		record_discard(d);
	(void)ak_remove_tree(AT_FDCWD, d->path);
}

void rundir_done(struct rundir *d)
{
	d->log_fd = ak_close(d->log_fd);
	d->dir_fd = ak_close(d->dir_fd);
}
