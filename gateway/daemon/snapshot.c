/*
 * Snapshots of a stopped sandbox: snapshot, restore, fork.
 *
 * Theory of operation. A forked process copies the files, which may be many, hostile or owned by other ids, into a folder of their own. The daemon waits
 * for its result and then moves the copy to its place, so that a daemon that dies leaves nothing half-made: nobody moves that copy, and the
 * next daemon removes it. Until then the request occupies the sandbox: a start waits behind it.
 */
#include "gateway/daemon/internal.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/base/say.h"
#include "gateway/base/title.h"
#include "gateway/ipc/spawn.h"
#include "gateway/log/audit.h"
#include "gateway/log/events.h"
#include "gateway/store/info.h"
#include "gateway/store/snapshot.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What the process that copies sends: at most one write, so it arrives whole. */
struct outcome {
	int rc;
	struct ak_clone copied;
	struct ak_err err;
};

struct copying {
	const struct ak_paths *paths; /* borrowed: outlives us */
	char name[AK_NAME_MAX], from[AK_NAME_MAX]; /* the sandbox; the tag whose files are copied, "": the present ones */
	char to[AK_NAME_MAX]; /* the new tag, or the new sandbox */
	struct snapshot_work work;
	int user_ns; /* borrowed; -1 when there is none */
	int result; /* owned: our end of a pipe */
	struct event *on_result; /* owned */
	int (*finish)(struct dsb *sb, const struct ak_clone *copied, cJSON **ret, struct ak_err *err);
};

void copying_free(struct copying *c)
{
	if (!c)
		return;
	if (c->on_result)
		event_free(c->on_result);
	ak_close(c->result);
	snapshot_work_done(&c->work);
	free(c);
}

/* ---- the process that copies ---- */

/* Root may read and give away every file; others only from inside the user namespace that has all ids of their sandboxes. */
static void copy_files(void *ctx)
{
	struct copying *c = ctx;
	struct outcome o = { .rc = 0 };

	ak_title_set("agentkernel copy");
	if (geteuid() != 0 && c->user_ns >= 0 && setns(c->user_ns, CLONE_NEWUSER) < 0)
		o.rc = ak_fail_errno(&o.err, errno, "joining the user namespace of the sandboxes");
	if (o.rc == 0)
		o.rc = snapshot_copy(c->paths, c->name, c->from, &c->work, &o.copied, &o.err);
	if (o.rc < 0)
		(void)ak_remove_tree(AT_FDCWD, c->work.path);
	if (write(c->result, &o, sizeof(o)) != sizeof(o)) /* the daemon has ended */
		(void)ak_remove_tree(AT_FDCWD, c->work.path);
}

static int spawn_copy(struct copying *c, struct ak_err *err)
{
	int fds[2], keep[3], rc;

	if (pipe2(fds, O_CLOEXEC | O_NONBLOCK) < 0)
		return ak_fail_errno(err, errno, "pipe");
	c->result = keep[0] = fds[1];
	keep[1] = c->user_ns;
	keep[2] = c->work.dir;
	rc = spawn_fork(copy_files, c, keep, 3, err);
	ak_close(fds[1]);
	c->result = rc < 0 ? ak_close(fds[0]) : fds[0];
	return rc;
}

/* ---- the daemon's part ---- */

static void on_result(evutil_socket_t fd, short what, void *ctx)
{
	struct dsb *sb = ctx;
	struct copying *c = sb->copying;
	struct request *r = sb->op;
	struct outcome o = { .rc = 0 };
	cJSON *answer = NULL;

	if (read(fd, &o, sizeof(o)) != sizeof(o))
		o.rc = ak_fail(&o.err, EIO, "the process that copies the files of '%s' was killed; nothing was changed", c->name);
	if (o.rc == 0)
		o.rc = c->finish(sb, &o.copied, &answer, &o.err);
	/* Whatever is still there: a copy that could not be used, or the files that it replaced. */
	removal_later(sb->d, c->work.path);
	copying_free(TAKE(sb->copying));
	if (o.rc < 0)
		request_fail(r, -o.rc, o.err.text);
	else
		request_answer(r, answer);
}

static int begin(struct dsb *sb, struct copying *c, struct ak_err *err)
{
	struct ak_err ignored;
	int rc;

	c->paths = sb->d->paths;
	c->result = c->work.dir = -1;
	snprintf(c->name, sizeof(c->name), "%s", sb->state.name);
	(void)dgw_usable(sb->d, &ignored); /* creates the user namespace */
	c->user_ns = sb->d->gw.user_ns;
	rc = snapshot_work_begin(c->paths, &c->work, err);
	if (rc < 0)
		return rc;
	rc = spawn_copy(c, err);
	if (rc == 0) {
		c->on_result = event_new(sb->d->base, c->result, EV_READ, on_result, sb);
		if (!c->on_result || event_add(c->on_result, NULL) < 0)
			rc = ak_fail(err, ENOMEM, "out of memory");
	}
	if (rc < 0)
		removal_later(sb->d, c->work.path);
	return rc;
}

/* Begin to copy the files of R's sandbox, or those of its snapshot FROM. C has the rest; it is copied. */
static void copy(struct request *r, const char *from, const struct copying *how)
{
	struct dsb *sb = r->sb;
	_cleanup_(ak_freep) struct copying *c = calloc(1, sizeof(*c));
	struct snapshot s = { .damaged = false };
	struct ak_err err;
	int rc = c ? 0 : ak_fail(&err, ENOMEM, "out of memory");

	if (rc == 0 && from[0])
		rc = snapshot_find(sb->d->paths, sb->state.name, from, &s, &err);
	if (rc == 0 && s.damaged)
		rc = ak_fail(&err, EBADMSG, "the snapshot '%s' of '%s' is damaged; it can only be removed", from, sb->state.name);
	if (rc == 0) {
		*c = *how;
		snprintf(c->from, sizeof(c->from), "%s", s.tag);
		rc = begin(sb, c, &err);
	}
	if (rc < 0) {
		copying_free(TAKE(c));
		request_fail(r, -rc, err.text);
		return;
	}
	sb->copying = TAKE(c);
	r->begun = true;
}

/* True if the sandbox is stopped. A start or stop in progress runs the request again; a running one is refused. */
static bool is_stopped(struct request *r)
{
	struct dsb *sb = r->sb;
	char text[160];

	if (sb->status == DSB_STOPPED)
		return true;
	if (sb->status == DSB_STOPPING)
		return false; /* tell_down runs it again */
	snprintf(text, sizeof(text), "sandbox '%s' is running; stop it first, or use --stop", sb->state.name);
	request_fail(r, EBUSY, text);
	return false;
}

/* ---- snapshot ---- */

static int finish_snapshot(struct dsb *sb, const struct ak_clone *copied, cJSON **ret, struct ak_err *err)
{
	struct snapshot s = { .created_us = ak_wall_us(), .bytes = copied->bytes, .files = copied->files };
	_cleanup_strbuf_ struct strbuf more = { 0 };
	_cleanup_json_ cJSON *obj = cJSON_CreateObject();
	char when[AUDIT_TIME_MAX];
	int rc;

	snprintf(s.tag, sizeof(s.tag), "%s", sb->copying->to);
	if (!obj || !cJSON_AddStringToObject(obj, "tag", s.tag) || !cJSON_AddNumberToObject(obj, "bytes", (double)s.bytes) ||
		!cJSON_AddNumberToObject(obj, "files", (double)s.files) ||
		!cJSON_AddStringToObject(obj, "created_at", audit_time_print(s.created_us, when)))
		return ak_fail(err, ENOMEM, "out of memory");
	rc = snapshot_finish(sb->d->paths, sb->state.name, &s, &sb->copying->work, err);
	if (rc < 0)
		return rc;
	event_put_text(&more, "tag", s.tag);
	event_put_text(&more, "origin", state_origin(&sb->state));
	event_write(sb->d->paths, "sandbox_snapshot", sb->state.name, &more);
	*ret = TAKE(obj);
	return 0;
}

void op_snapshot(struct request *r)
{
	struct copying how = { .finish = finish_snapshot };
	const char *tag = json_text(r->obj, "tag", "");
	struct ak_err err;
	int rc;

	if (!is_stopped(r))
		return;
	snapshot_tag(ak_wall_us(), how.to);
	rc = snapshot_check_new(r->d->paths, r->sb->state.name, tag[0] ? tag : how.to, &err);
	if (rc < 0) {
		request_fail(r, -rc, err.text);
		return;
	}
	if (tag[0])
		snprintf(how.to, sizeof(how.to), "%s", tag);
	copy(r, "", &how);
}

void op_snapshot_remove(struct request *r)
{
	char gone[PATH_MAX];
	struct ak_err err;
	int rc = snapshot_remove(r->d->paths, r->sb->state.name, json_text(r->obj, "tag", ""), gone, &err);

	if (rc < 0) {
		request_fail(r, -rc, err.text);
		return;
	}
	removal_later(r->d, gone);
	request_answer(r, NULL);
}

/* ---- restore ---- */

/* A new generation, so that records tell the time before from the time after; MCP servers keep what they were given. */
static int finish_restore(struct dsb *sb, const struct ak_clone *copied, cJSON **ret, struct ak_err *err)
{
	_cleanup_strbuf_ struct strbuf more = { 0 };
	struct state_sandbox *s = &sb->state;
	struct ak_err why;
	int rc = snapshot_swap(sb->d->paths, s->name, &sb->copying->work, err);

	if (rc < 0)
		return rc;
	s->mcp.generation += s->mcp.generation == s->generation;
	s->generation++;
	if (state_save(sb->d->paths, s, &why) < 0)
		ak_say("%s", why.text);
	event_put_text(&more, "tag", sb->copying->from);
	strbuf_printf(&more, ",\"generation\":%llu", (unsigned long long)s->generation);
	event_put_text(&more, "origin", state_origin(s));
	event_write(sb->d->paths, "sandbox_restore", s->name, &more);
	*ret = dsb_info(sb);
	return 0;
}

void op_restore(struct request *r)
{
	static const struct copying how = { .finish = finish_restore };
	const char *tag = json_text(r->obj, "tag", "");

	if (!tag[0])
		request_fail(r, EINVAL, "no tag given");
	else if (is_stopped(r))
		copy(r, tag, &how);
}

/* ---- fork ---- */

static void record_fork(struct dsb *sb, const struct state_sandbox *s)
{
	_cleanup_strbuf_ struct strbuf more = { 0 };

	event_put_text(&more, "uuid", s->uuid);
	event_put_text(&more, "mode", state_mode(s));
	event_put_text(&more, "origin", state_origin(s));
	event_write(sb->d->paths, "sandbox_create", s->name, &more);
	strbuf_done(&more);
	more = (struct strbuf){ 0 };
	event_put_text(&more, "of", sb->state.name);
	if (sb->copying->from[0])
		event_put_text(&more, "tag", sb->copying->from);
	event_write(sb->d->paths, "sandbox_fork", s->name, &more);
}

static int finish_fork(struct dsb *sb, const struct ak_clone *copied, cJSON **ret, struct ak_err *err)
{
	_cleanup_(state_done) struct state_sandbox s = { 0 };
	_cleanup_(policy_unrefp) struct policy *policy = NULL;
	struct ak_err ignored;
	int rc = snapshot_fork(sb->d->paths, &sb->state, sb->copying->to, &sb->copying->work, &s, err);

	if (rc < 0)
		return rc;
	snapshot_work_done(&sb->copying->work); /* its lock is that of the new sandbox now */
	record_fork(sb, &s);
	if (state_policy(sb->d->paths, &s, ak_wall_us(), &policy, &ignored) == 0)
		(void)state_write_policy(sb->d->paths, s.name, policy, &ignored);
	*ret = sandbox_info_json(&(struct sandbox_info){ .state = &s, .status = "stopped" });
	return 0;
}

void op_fork(struct request *r)
{
	struct copying how = { .finish = finish_fork };
	const char *name = json_text(r->obj, "new", "");

	if (!ak_sandbox_name_ok(name)) {
		request_fail(r, EINVAL, "new: not a name");
		return;
	}
	if (!is_stopped(r))
		return;
	snprintf(how.to, sizeof(how.to), "%s", name);
	copy(r, json_text(r->obj, "tag", ""), &how);
}
