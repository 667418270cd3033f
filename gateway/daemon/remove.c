/*
 * Remove the files of a sandbox. Its name is free at once. Its files may be many, deep or owned by other ids, so a forked process deletes
 * them. The request is answered when that process is done, with an error if files are left.
 */
#include "gateway/daemon/internal.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/base/say.h"
#include "gateway/base/title.h"
#include "gateway/ipc/spawn.h"
#include "gateway/log/audit_anchor.h"
#include "gateway/log/events.h"
#include "gateway/store/rundir.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WAIT_S 45 /* clients wait for a minute */

struct removal {
	char path[PATH_MAX];
	const struct ak_paths *paths; /* borrowed */
	char name[AK_NAME_MAX]; /* of the sandbox whose log goes with it; "" if there is none */
	const char *origin; /* of that sandbox */
	int user_ns; /* borrowed; -1 when there is none */
	int result; /* owned: our end of a pipe; the forked process writes the reason of a failure, or nothing */
	struct event *on_result; /* owned */
};

/* ---- the process that removes ---- */

/* What is left of its network log, as of that of a run: a model that removes its sandbox does not hide what it was denied. */
static void record_denials(const struct removal *rm)
{
	_cleanup_strbuf_ struct strbuf more = { 0 };

	if (!rm->name[0])
		return;
	event_put_text(&more, "origin", rm->origin);
	if (rundir_put_denials(rm->path, ak_wall_us(), &more) > 0)
		event_write(rm->paths, "sandbox_denials", rm->name, &more);
}

/* Files owned by ids that are mapped only in the sandboxes' user namespace must be removed from inside it. */
static void remove_files(void *ctx)
{
	const struct removal *rm = ctx;
	char where[AK_WHERE_MAX];
	struct ak_err err;
	int rc;

	ak_title_set("agentkernel remove");
	record_denials(rm);
	rc = ak_remove_tree_told(AT_FDCWD, rm->path, where);

	if (rc < 0 && rm->user_ns >= 0 && setns(rm->user_ns, CLONE_NEWUSER) == 0)
		rc = ak_remove_tree_told(AT_FDCWD, rm->path, where);
	if (rc == 0)
		return;
	ak_fail_errno(&err, -rc, "'%.*s/%s'", (int)(strrchr(rm->path, '/') - rm->path), rm->path, where);
	(void)!write(rm->result, err.text, strlen(err.text));
}

static int spawn_removal(struct removal *rm, struct ak_err *err)
{
	int fds[2], keep[2], rc;

	if (pipe2(fds, O_CLOEXEC | O_NONBLOCK) < 0)
		return ak_fail_errno(err, errno, "pipe");
	rm->result = fds[1];
	keep[0] = fds[1];
	keep[1] = rm->user_ns;
	rc = spawn_fork(remove_files, rm, keep, 2, err);
	ak_close(fds[1]);
	rm->result = rc < 0 ? ak_close(fds[0]) : fds[0];
	return rc;
}

void removal_later(struct daemon *d, const char *path)
{
	struct removal rm = { .user_ns = d->gw.user_ns, .result = -1 };
	struct ak_err err;

	snprintf(rm.path, sizeof(rm.path), "%s", path);
	if (spawn_fork(remove_files, &rm, &rm.user_ns, 1, &err) < 0)
		ak_say("'%s' is left; the next daemon removes it: %s", path, err.text);
}

/* ---- waiting for it ---- */

void removal_free(struct removal *rm)
{
	if (!rm)
		return;
	if (rm->on_result)
		event_free(rm->on_result);
	ak_close(rm->result);
	free(rm);
}

static void fail(struct dsb *sb, int code, const char *reason)
{
	struct ak_err err;

	ak_fail(&err, code, "sandbox '%s' was removed, but some of its files are left: %s", sb->state.name, reason);
	ak_say("%s", err.text);
	request_fail(sb->op, code, err.text);
}

/* A sandbox that was still running was stopped first: what it changed in the project is told as by "stop". */
static void succeed(struct dsb *sb)
{
	_cleanup_json_ cJSON *obj = sb->changed ? cJSON_CreateObject() : NULL;

	if (sb->changed && (!obj || !cJSON_AddStringToObject(obj, "changed", sb->changed)))
		request_fail(sb->op, ENOMEM, "out of memory");
	else
		request_answer(sb->op, TAKE(obj));
}

static void on_result(evutil_socket_t fd, short what, void *ctx)
{
	struct dsb *sb = ctx;
	struct removal *rm = sb->removal;
	char text[AK_ERR_MAX];
	ssize_t n = what & EV_TIMEOUT ? 0 : read(fd, text, sizeof(text) - 1);

	text[n > 0 ? n : 0] = '\0';
	if (what & EV_TIMEOUT)
		snprintf(text, sizeof(text), "'%.400s' is still being removed", rm->path);
	if (text[0])
		fail(sb, what & EV_TIMEOUT ? EINPROGRESS : EIO, text);
	else
		succeed(sb);
}

static int watch(struct dsb *sb)
{
	static const struct timeval limit = { WAIT_S, 0 };
	struct removal *rm = sb->removal;

	rm->on_result = event_new(sb->d->base, rm->result, EV_READ, on_result, sb);
	return rm->on_result && event_add(rm->on_result, &limit) == 0 ? 0 : -ENOMEM;
}

static void record(const struct dsb *sb)
{
	_cleanup_strbuf_ struct strbuf more = { 0 };

	if (sb->damaged)
		event_put_text(&more, "reason", "its record could not be read");
	event_put_text(&more, "origin", state_origin(&sb->state));
	event_write(sb->d->paths, "sandbox_remove", sb->state.name, &more);
}

/*
 * "archive": the sandbox was a run in the background. Its log stays, as that of any run, and so does the anchor; the event says how long the log was when
 * the run ended.
 */
static int archive(const struct dsb *sb, struct ak_err *err)
{
	_cleanup_strbuf_ struct strbuf more = { 0 };
	struct audit_anchor a;
	char dir[PATH_MAX];
	int rc = state_path(sb->d->paths, sb->state.name, NULL, dir);

	if (rc < 0)
		return ak_fail_errno(err, -rc, "%s", sb->d->paths->state);
	strbuf_printf(&more, ",\"exit_code\":%llu,\"allowed\":%llu,\"denied\":%llu",
		(unsigned long long)json_number(sb->op->obj, "exit_code", 0), (unsigned long long)sb->state.allowed,
		(unsigned long long)sb->state.denied);
	if (audit_anchor_get(sb->d->paths->state, sb->state.name, NULL, &a) == 0 && a.newest.seq)
		strbuf_printf(&more, ",\"network_records\":%llu,\"network_hash\":\"%s\"", (unsigned long long)a.newest.seq,
			a.newest.hash);
	event_put_text(&more, "origin", state_origin(&sb->state));
	event_write(sb->d->paths, "run_end", sb->state.name, &more);
	return rundir_archive(sb->d->paths, dir, sb->state.name, err);
}

void removal_begin(struct dsb *sb)
{
	struct removal *rm = calloc(1, sizeof(*rm));
	struct ak_err err;
	int rc = rm ? 0 : ak_fail(&err, ENOMEM, "out of memory");

	if (rc == 0 && !sb->damaged && json_truth(sb->op->obj, "archive"))
		rc = archive(sb, &err);
	else if (rc == 0)
		audit_anchor_drop(sb->d->paths->state, sb->state.name); /* first: an anchor left alone reports a missing log */
	if (rc == 0)
		rc = state_remove(sb->d->paths, sb->state.name, rm->path, &err);
	if (rc < 0) {
		free(rm);
		sb->removed = sb->damaged;
		request_fail(sb->op, -rc, err.text);
		return;
	}
	record(sb);
	rm->result = -1;
	rm->user_ns = sb->d->gw.user_ns;
	rm->paths = sb->d->paths;
	rm->origin = state_origin(&sb->state);
	snprintf(rm->name, sizeof(rm->name), "%s", sb->state.name);
	sb->removal = rm;
	sb->removed = true;
	rc = spawn_removal(rm, &err);
	if (rc == 0 && watch(sb) < 0)
		rc = ak_fail(&err, ENOMEM, "out of memory");
	if (rc < 0)
		fail(sb, -rc, err.text);
}

/* ---- removals that a crash interrupted ---- */

static void tell_left(void *ctx, const char *name, const char *where, int error)
{
	_cleanup_strbuf_ struct strbuf more = { 0 };

	event_put_text(&more, "place", where);
	event_put_text(&more, "reason", strerror(error));
	event_write(ctx, "sandbox_files_left", name, &more);
}

static void sweep(void *ctx)
{
	state_sweep(ctx, tell_left, ctx);
}

void removal_sweep(const struct ak_paths *paths)
{
	struct ak_paths copy = *paths; /* the forked process has its own copy */
	struct ak_err err;

	if (spawn_fork(sweep, &copy, NULL, 0, &err) < 0)
		ak_say("cannot remove files that an earlier daemon left; the next daemon tries again: %s", err.text);
}
