/*
 * One persistent sandbox in the daemon: coordinates its record on disk, its supervisor and the gateway.
 *
 * Theory of operation. One request acts on the sandbox at a time; the others wait. Start: fork the supervisor → its "ready" → ADD acknowledged by the
 * gateway → "go" → its "running". Stop has one path, whatever caused it (a stop request, a failed start, a supervisor that died): the supervisor has
 * ended → REMOVE acknowledged → state saved → request answered.
 */
#include "gateway/daemon/internal.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/base/say.h"
#include "gateway/log/audit_anchor.h"
#include "gateway/log/events.h"
#include "gateway/log/stats.h"
#include "gateway/run/gw_log.h"
#include "gateway/run/vm.h"
#include "gateway/super/super.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define START_TIMEOUT_MS 45000
#define DISK_MAX (1ull << 50)
#define STOP_SLACK_MS 10000 /* after the grace period, for the kernel to tear everything down */

static void down(struct dsb *sb);
static void start_failed(struct dsb *sb, const char *reason);
static void on_hosted(void *ctx, int rc, const struct gw_msg *answer, const struct ak_err *err);

/* ---- lookup and queue ---- */

struct dsb *dsb_find(struct daemon *d, const char *name)
{
	struct dsb *sb;

	TAILQ_FOREACH(sb, &d->sandboxes, link) {
		if (!sb->removed && !strcmp(sb->state.name, name))
			return sb;
	}
	return NULL;
}

struct dsb *dsb_by_link(struct daemon *d, uint32_t link_id)
{
	struct dsb *sb;

	TAILQ_FOREACH(sb, &d->sandboxes, link) {
		if (!sb->removed && sb->state.link_id == link_id)
			return sb;
	}
	return NULL;
}

int dsb_get(struct daemon *d, const char *name, struct dsb **ret, struct ak_err *err)
{
	struct dsb *sb = dsb_find(d, name);
	struct state_sandbox s;
	int rc = sb ? 0 : state_load(d->paths, name, &s, err);

	if (rc < 0)
		return rc;
	if (!sb && dsb_new(d, &s, &sb) < 0) {
		state_done(&s);
		return ak_fail(err, ENOMEM, "out of memory");
	}
	*ret = sb;
	return 0;
}

int dsb_log_path(const struct dsb *sb, char ret[static PATH_MAX])
{
	return state_path(sb->d->paths, sb->state.name, "network.jsonl", ret);
}

static void on_next(evutil_socket_t fd, short what, void *ctx)
{
	struct dsb *sb = ctx;
	struct request *r = TAILQ_FIRST(&sb->queue);

	if (sb->op)
		return;
	if (sb->removed && !r) {
		dsb_free(sb);
		return;
	}
	if (!r)
		return;
	TAILQ_REMOVE(&sb->queue, r, link);
	sb->op = r;
	if (sb->removed) {
		char text[128];

		snprintf(text, sizeof(text), "no sandbox named '%s'", sb->state.name);
		request_fail(r, ENOENT, text);
	} else {
		r->op->run(r);
	}
}

void dsb_begin(struct dsb *sb, struct request *r)
{
	r->sb = sb;
	TAILQ_INSERT_TAIL(&sb->queue, r, link);
	if (!sb->op)
		event_active(sb->on_next, EV_TIMEOUT, 0);
}

void dsb_end(struct dsb *sb, struct request *r)
{
	if (sb->op == r)
		sb->op = NULL;
	event_active(sb->on_next, EV_TIMEOUT, 0);
}

/* The supervisor takes too long to start or to stop: kill it. */
static void on_deadline(evutil_socket_t fd, short what, void *ctx)
{
	struct dsb *sb = ctx;

	if (sb->status == DSB_STARTING)
		ak_fail(&sb->failure, ETIMEDOUT, "the sandbox was not ready after %d s", START_TIMEOUT_MS / 1000);
	if (sb->super && sb->super_pid > 0) /* its connection is open, so the pid was not reused */
		kill(sb->super_pid, SIGKILL);
	else if (sb->super)
		ipc_peer_end(sb->super);
}

static void on_expire(evutil_socket_t fd, short what, void *ctx)
{
	struct dsb *sb = ctx;

	request_own(sb->d, &op_expire, sb);
}

void dsb_arm_expiry(struct dsb *sb)
{
	uint64_t next = state_edits_next(&sb->state), now = ak_deadline_now_us(), left;
	struct timeval delay;

	evtimer_del(sb->on_expire);
	if (!next || sb->status != DSB_RUNNING)
		return;
	/* Check at least every hour: the wall clock may be changed. */
	left = next > now ? next - now + 1000 : 1000;
	if (left > 3600ull * 1000000)
		left = 3600ull * 1000000;
	delay = (struct timeval){ (time_t)(left / 1000000), (suseconds_t)(left % 1000000) };
	evtimer_add(sb->on_expire, &delay);
}

static void arm_deadline(struct dsb *sb, uint64_t ms)
{
	struct timeval delay = { (time_t)(ms / 1000), (suseconds_t)(ms % 1000 * 1000) };

	evtimer_add(sb->on_deadline, &delay);
}

static void insert_sorted(struct daemon *d, struct dsb *sb)
{
	struct dsb *at = TAILQ_LAST(&d->sandboxes, dsb_list);

	while (at && strcmp(at->state.name, sb->state.name) > 0)
		at = TAILQ_PREV(at, dsb_list, link);
	if (at)
		TAILQ_INSERT_AFTER(&d->sandboxes, at, sb, link);
	else
		TAILQ_INSERT_HEAD(&d->sandboxes, sb, link);
}

int dsb_new(struct daemon *d, struct state_sandbox *s, struct dsb **ret)
{
	struct dsb *sb = calloc(1, sizeof(*sb));

	if (!sb)
		return -ENOMEM;
	sb->d = d;
	sb->peer_rtnl = -1;
	TAILQ_INIT(&sb->queue);
	sb->on_next = evtimer_new(d->base, on_next, sb);
	sb->on_deadline = evtimer_new(d->base, on_deadline, sb);
	sb->on_expire = evtimer_new(d->base, on_expire, sb);
	sb->state = *s;
	insert_sorted(d, sb);
	if (!sb->on_next || !sb->on_deadline || !sb->on_expire) {
		memset(&sb->state, 0, sizeof(sb->state)); /* still owned by the caller */
		dsb_free(sb);
		return -ENOMEM;
	}
	s->env = NULL;
	s->mounts = NULL;
	s->n_mounts = 0;
	s->tools = NULL;
	s->path = NULL;
	s->edits = NULL;
	s->n_edits = 0;
	*ret = sb;
	return 0;
}

void dsb_free(struct dsb *sb)
{
	struct request *r;

	TAILQ_REMOVE(&sb->d->sandboxes, sb, link);
	request_free(sb->op);
	while ((r = TAILQ_FIRST(&sb->queue))) {
		TAILQ_REMOVE(&sb->queue, r, link);
		request_free(r);
	}
	if (sb->super)
		ipc_peer_set_data(sb->super, NULL);
	removal_free(sb->removal);
	copying_free(sb->copying);
	if (sb->on_next)
		event_free(sb->on_next);
	if (sb->on_deadline)
		event_free(sb->on_deadline);
	if (sb->on_expire)
		event_free(sb->on_expire);
	ak_close(sb->peer_rtnl);
	dsb_ports_close(sb);
	policy_unref(sb->policy);
	state_done(&sb->state);
	free(sb->changed);
	free(sb);
}

static void save(struct dsb *sb)
{
	struct ak_err err;

	if (state_save(sb->d->paths, &sb->state, &err) < 0)
		ak_say("%s", err.text);
}

/* ---- the gateway ---- */

static int open_log(struct dsb *sb, struct gw_log_state *ret, int fds[static GW_LOG_FDS], struct ak_err *err)
{
	char path[PATH_MAX];
	int rc = dsb_log_path(sb, path);

	return rc < 0 ? ak_fail_errno(err, -rc, "network log") : gw_log_open(sb->d->paths, sb->state.name, path, ret, fds, err);
}

static int add_message(struct dsb *sb, struct gw_msg *msg, int fds[GW_FDS_MAX], struct ak_err *err)
{
	int log[GW_LOG_FDS] = { -1, -1 }, rc;

	*msg = (struct gw_msg){ .type = GW_MSG_ADD, .id = sb->state.link_id, .generation = sb->state.generation };
	memcpy(msg->name, sb->state.name, sizeof(sb->state.name));
	for (int i = 0; i < GW_FDS_MAX; i++)
		fds[i] = -1;
	fds[0] = dgw_policy_file(sb->policy);
	if (fds[0] < 0)
		return ak_fail_errno(err, -fds[0], "policy");
	rc = open_log(sb, &msg->log, log, err);
	fds[1] = log[GW_LOG_OWN];
	fds[3] = log[GW_LOG_KEPT];
	if (rc < 0)
		return rc;
	fds[2] = fcntl(sb->peer_rtnl, F_DUPFD_CLOEXEC, 3);
	return fds[2] < 0 ? ak_fail_errno(err, errno, "link") : 0;
}

/* On failure send ADD without descriptors: the gateway refuses it, so DONE is called from the event loop as always. */
void dsb_host(struct dsb *sb, dgw_done_fn done)
{
	struct gw_msg msg;
	struct ak_err err;
	int fds[GW_FDS_MAX], rc = add_message(sb, &msg, fds, &err);

	sb->failure.text[0] = '\0';
	if (rc < 0) {
		for (int i = 0; i < GW_FDS_MAX; i++)
			ak_close(fds[i]);
		fds[0] = -1;
		sb->failure = err;
	}
	memset(&sb->stats, 0, sizeof(sb->stats));
	sb->hosting = dgw_send(sb->d, &msg, fds, rc < 0 ? 0 : fds[3] < 0 ? 3 : 4, done, sb) == 0;
	/* Out of memory: the gateway is restarted. That adds running sandboxes again and fails those that are starting. */
	sb->awaiting = !sb->hosting && sb->status == DSB_STARTING;
}

/* Saturating: a larger number would make the state file unreadable. */
static uint64_t sum(uint64_t a, uint64_t b)
{
	return a + b < GW_COUNT_MAX ? a + b : GW_COUNT_MAX;
}

static void count_stats(struct dsb *sb)
{
	sb->state.allowed = sum(sb->state.allowed, sb->stats.allowed);
	sb->state.denied = sum(sb->state.denied, sb->stats.denied);
	net_counts_add(&sb->d->counted[sb->state.mode], &sb->stats.counts);
	sb->d->lost = sum(sb->d->lost, sb->stats.lost);
	memset(&sb->stats, 0, sizeof(sb->stats));
}

void dsb_gateway_lost(struct daemon *d)
{
	struct dsb *sb;

	TAILQ_FOREACH(sb, &d->sandboxes, link) {
		if (sb->hosted)
			count_stats(sb);
		sb->hosted = false;
		if (sb->awaiting)
			start_failed(sb, d->gw.reason.text);
		sb->awaiting = false;
	}
}

/* Programs in the sandbox may have cached addresses: keep those allowed until their TTL ends. */
static void restore_learned(struct dsb *sb)
{
	struct gw_msg msg = { .type = GW_MSG_LEARNED, .id = sb->state.link_id };
	_cleanup_strbuf_ struct strbuf out = { 0 };
	char path[PATH_MAX];
	int fd;

	if (dsb_log_path(sb, path) < 0 || adopt_learned(path, sb->started_us, ak_wall_us(), &out) <= 0 || out.failed)
		return;
	fd = ak_memory_file("learned", out.data, out.len);
	if (fd >= 0)
		(void)dgw_send(sb->d, &msg, &fd, 1, NULL, NULL);
}

static void on_rehosted(void *ctx, int rc, const struct gw_msg *answer, const struct ak_err *err)
{
	struct dsb *sb = ctx;

	const char *reason = rc < 0 && sb->failure.text[0] ? sb->failure.text : rc < 0 ? err->text : "";

	sb->hosting = false;
	sb->hosted = rc == 0;
	if (rc == 0)
		dsb_ports_serve(sb);
	else if (rc != -EPIPE) /* else the restarted gateway gets it anyway */
		dgw_rehost_later(sb->d);
	if (rc < 0 && strcmp(sb->no_network.text, reason) != 0)
		ak_say("%s has no network: %s", sb->state.name, reason);
	snprintf(sb->no_network.text, sizeof(sb->no_network.text), "%s", reason);
	if (sb->status == DSB_STOPPING && !sb->super)
		down(sb);
}

void dsb_rehost_all(struct daemon *d)
{
	struct dsb *sb;

	TAILQ_FOREACH(sb, &d->sandboxes, link) {
		bool awaited = sb->awaiting;

		sb->awaiting = false;
		if (awaited && sb->super)
			dsb_host(sb, on_hosted);
		if (sb->status != DSB_RUNNING || !sb->policy || sb->hosted || sb->hosting || sb->peer_rtnl < 0)
			continue;
		dsb_host(sb, on_rehosted);
		restore_learned(sb);
	}
}

/* ---- stopping ---- */

/* A start that failed changes nothing: the limit that it asked for may be the reason. */
static void fail_start(struct request *r, int code, const char *reason)
{
	r->sb->state.limits.disk_bytes = r->disk_before;
	request_fail(r, code, reason);
}

/* The sandbox has stopped: finish the current request. */
static void tell_down(struct dsb *sb)
{
	struct request *r = sb->op;

	if (!r || r->op->run == op_expire_run || r->op->run == op_policy)
		return;
	if (!r->begun) {
		r->op->run(r);
		return;
	}
	if (r->op->run == op_start)
		fail_start(r, EIO, sb->failure.text[0] ? sb->failure.text : "the sandbox ended while it was starting");
	else if (r->op->run == op_remove || r->op->run == op_orphan_run)
		removal_begin(sb);
	else
		request_answer(r, dsb_info(sb));
}

static void record_stop(const struct dsb *sb, const struct gw_stats *last)
{
	_cleanup_strbuf_ struct strbuf more = { 0 };

	strbuf_printf(&more, ",\"allowed\":%llu,\"denied\":%llu", (unsigned long long)(sb->state.allowed),
		(unsigned long long)(sb->state.denied));
	if (sb->over.text[0])
		event_put_text(&more, "reason", sb->over.text);
	else if (!sb->op || sb->op->op->run == op_start)
		event_put_text(&more, "reason", "it ended by itself");
	gw_log_put_mark(&more, last);
	event_put_text(&more, "origin", state_origin(&sb->state));
	event_write(sb->d->paths, "sandbox_stop", sb->state.name, &more);
}

/* A supervisor that was killed could not unlink its socket. */
static void forget_socket(const struct dsb *sb)
{
	char path[PATH_MAX];

	if (super_path(sb->d->paths, sb->state.name, path) == 0)
		(void)ipc_remove_stale(path);
}

static void is_down(struct dsb *sb)
{
	struct gw_stats last = sb->stats;
	bool ran = sb->state.running;

	forget_socket(sb);
	evtimer_del(sb->on_deadline);
	count_stats(sb);
	policy_unref(TAKE(sb->policy));
	dsb_ports_close(sb);
	sb->status = DSB_STOPPED;
	sb->super_pid = 0;
	sb->started_us = 0;
	sb->asked = false;
	sb->no_network.text[0] = '\0';
	evtimer_del(sb->on_expire);
	if (ran) {
		sb->state.running = false;
		save(sb);
		record_stop(sb, &last);
	}
	tell_down(sb);
}

static void on_removed(void *ctx, int rc, const struct gw_msg *answer, const struct ak_err *err)
{
	struct dsb *sb = ctx;

	if (rc == 0) {
		sb->stats = answer->stats;
		gw_log_anchor(sb->d->paths, sb->state.name, &sb->stats);
	}
	is_down(sb);
}

/* The supervisor has ended. Wait for a pending ADD, then remove the sandbox from the gateway. */
static void down(struct dsb *sb)
{
	struct gw_msg msg = { .type = GW_MSG_REMOVE, .id = sb->state.link_id };

	sb->status = DSB_STOPPING;
	sb->peer_rtnl = ak_close(sb->peer_rtnl);
	if (sb->hosting)
		return;
	if (!sb->hosted) {
		is_down(sb);
		return;
	}
	sb->hosted = false;
	if (dgw_send(sb->d, &msg, NULL, 0, on_removed, sb) < 0)
		is_down(sb);
}

void dsb_super_gone(struct daemon *d, struct ipc_peer *peer)
{
	struct dsb *sb = ipc_peer_data(peer);

	if (!sb)
		return;
	sb->super = NULL;
	down(sb);
}

/* ---- starting ---- */

static void start_failed(struct dsb *sb, const char *reason)
{
	ak_fail(&sb->failure, EIO, "%s", reason);
	if (sb->super)
		ipc_peer_end(sb->super); /* no command runs yet, so it ends with the connection; dsb_super_gone does the rest */
	else
		down(sb);
}

static void send_op(struct dsb *sb, const char *op, const char *key, double value)
{
	_cleanup_json_ cJSON *obj = cJSON_CreateObject();
	bool ok = obj && cJSON_AddStringToObject(obj, "op", op) && (!key || cJSON_AddNumberToObject(obj, key, value));

	ipc_peer_send(sb->super, ok ? obj : NULL, NULL, 0);
}

static void on_hosted(void *ctx, int rc, const struct gw_msg *answer, const struct ak_err *err)
{
	struct dsb *sb = ctx;

	sb->hosting = false;
	sb->hosted = rc == 0;
	if (!sb->super)
		down(sb);
	else if (rc == -EPIPE && !sb->d->stopping)
		sb->awaiting = true; /* the gateway died: try once more when it has restarted */
	else if (rc < 0)
		start_failed(sb, sb->failure.text[0] ? sb->failure.text : err->text);
	else
		send_op(sb, "go", NULL, 0);
}

static void on_super_ready(struct dsb *sb, struct ipc_message *msg)
{
	const char *notes = "";
	uint64_t pid = 0;
	struct ak_err err;

	(void)json_get_string(msg->obj, "notes", &notes, &err);
	(void)json_get_uint(msg->obj, "pid", INT32_MAX, &pid, &err);
	sb->super_pid = (pid_t)pid;
	snprintf(sb->notes, sizeof(sb->notes), "%s", notes);
	dsb_ports_note(sb);
	if (!sb->policy) {
		send_op(sb, "go", NULL, 0);
		return;
	}
	if (msg->n_fds < 1) {
		start_failed(sb, "the supervisor did not send the sandbox's link");
		return;
	}
	sb->peer_rtnl = TAKE_FD(msg->fds[0]);
	dsb_host(sb, on_hosted);
}

static void record_start(const struct dsb *sb)
{
	_cleanup_strbuf_ struct strbuf more = { 0 };

	strbuf_printf(&more, ",\"generation\":%llu,\"anchored\":%s", (unsigned long long)sb->state.generation,
		sb->policy ? "true" : "false");
	event_put_text(&more, "origin", state_origin(&sb->state));
	event_write(sb->d->paths, "sandbox_start", sb->state.name, &more);
}

/* Answer before saving: the saved state is for the next daemon, and the disk may be slow. */
static void on_super_running(struct dsb *sb)
{
	struct ak_err err;

	evtimer_del(sb->on_deadline);
	sb->status = DSB_RUNNING;
	sb->state.running = true;
	sb->started_us = ak_wall_us();
	dsb_ports_serve(sb);
	record_start(sb);
	if (sb->policy && state_write_policy(sb->d->paths, sb->state.name, sb->policy, &err) < 0)
		ak_say("%s", err.text);
	if (sb->op && sb->op->op->run == op_start)
		request_answer(sb->op, dsb_info(sb));
	dsb_arm_expiry(sb);
	save(sb);
}

/* The supervisor's reply to "stop", its last message. */
static void on_super_stopped(struct dsb *sb, struct ipc_message *msg)
{
	const char *changed = json_text(msg->obj, "changed", "");

	free(sb->changed);
	sb->changed = changed[0] ? strdup(changed) : NULL;
}

void dsb_super_message(struct daemon *d, struct ipc_peer *peer, struct ipc_message *msg)
{
	struct dsb *sb = ipc_peer_data(peer);
	const char *event = "";
	struct ak_err err;

	if (sb && sb->asked) {
		adopt_answer(sb, msg);
		return;
	}
	if (sb && sb->status == DSB_STOPPING)
		on_super_stopped(sb, msg);
	if (sb && sb->status == DSB_RUNNING && !strcmp(json_text(msg->obj, "event", ""), "over"))
		snprintf(sb->over.text, sizeof(sb->over.text), "%s", json_text(msg->obj, "reason", ""));
	if (!sb || sb->status != DSB_STARTING)
		return;
	if (ipc_error_parse(msg->obj, &err) < 0) {
		start_failed(sb, err.text);
		return;
	}
	(void)json_get_string(msg->obj, "event", &event, &err);
	if (!strcmp(event, "ready"))
		on_super_ready(sb, msg);
	else if (!strcmp(event, "running"))
		on_super_running(sb);
}

void dsb_adopted(struct dsb *sb)
{
	struct ak_err err;

	sb->status = DSB_RUNNING;
	sb->state.running = true;
	(void)state_edits_expire(&sb->state, ak_deadline_now_us());
	if (sb->peer_rtnl >= 0 && state_policy(sb->d->paths, &sb->state, ak_deadline_now_us(), &sb->policy, &err) < 0)
		ak_say("%s has no network: %s", sb->state.name, err.text);
	sb->policy = policy_share(sb->d, sb->policy);
	dsb_ports_reopen(sb);
	dsb_arm_expiry(sb);
}

/* Without a saved guest to lend, the supervisor opens one of its own, and boots it if need be. */
static struct sandbox_vm lend_machine(struct dsb *sb)
{
	struct sandbox_limits limits = sb->state.limits;
	struct sandbox_vm vm = SANDBOX_VM_NONE;
	struct ak_err ignored;
	uint32_t mb = 0;

	if (sb->state.vm && run_vm_limits(&limits, &mb, &ignored) == 0 && machine_lend(sb->d, mb, &vm, &ignored) < 0)
		vm = SANDBOX_VM_NONE;
	return vm;
}

static int spawn(struct dsb *sb, int *ret_control, struct ak_err *err)
{
	bool network = state_network(&sb->state);
	_cleanup_(sandbox_vm_done) struct sandbox_vm vm = lend_machine(sb);

	return super_spawn(&sb->state, network ? sb->d->gw.user_ns : -1, network ? sb->d->gw.net_ns : -1, &vm, ret_control, err);
}

static int launch(struct dsb *sb, struct ak_err *err)
{
	struct daemon *d = sb->d;
	bool network = state_network(&sb->state);
	int control, rc = 0;

	sb->failure.text[0] = sb->over.text[0] = '\0';
	(void)state_edits_expire(&sb->state, ak_deadline_now_us());
	if (network)
		rc = state_policy(d->paths, &sb->state, ak_deadline_now_us(), &sb->policy, err);
	if (rc == 0 && network)
		sb->policy = policy_share(d, sb->policy);
	if (rc == 0 && network)
		rc = dgw_usable(d, err);
	if (rc == 0)
		rc = dsb_ports_open(sb, err);
	if (rc == 0)
		rc = spawn(sb, &control, err);
	if (rc == 0 && ipc_server_adopt(d->supers, control, sb, &sb->super) < 0)
		rc = ak_fail(err, ENOMEM, "out of memory");
	if (rc < 0) {
		policy_unref(TAKE(sb->policy));
		dsb_ports_close(sb);
	}
	return rc;
}

/* ---- requests ---- */

static void fail_state(struct request *r, int code, const char *what)
{
	char text[160];

	snprintf(text, sizeof(text), "sandbox '%s' %s", r->sb->state.name, what);
	request_fail(r, code, text);
}

/* "accept_dir": the user confirms that what is now at the paths of the project and the mounts is right, even if it was replaced. */
static int accept_dir(struct request *r, struct ak_err *err)
{
	static const struct project_id anything = { .ino = 0 };
	struct state_sandbox *s = &r->sb->state;
	int asked = 0, rc = json_get_bool(r->obj, "accept_dir", &asked, err);
	mode_t mode;

	if (rc < 0 || !asked)
		return rc;
	rc = s->dir[0] ? project_again(s->dir, &anything, &s->dir_id, err) : 0;
	for (size_t i = 0; i < s->n_mounts && rc == 0; i++)
		rc = project_again_any(s->mounts[i].source, "mount", &anything, &s->mounts[i].id, &mode, err);
	return rc;
}

/* The supervisor removes its socket when its sandbox has ended, and ends a little later. Clients see a stopped sandbox from then on. */
static bool is_ending(const struct dsb *sb)
{
	char path[PATH_MAX];

	return sb->status == DSB_RUNNING && super_path(sb->d->paths, sb->state.name, path) == 0 && !ipc_listens(path);
}

void op_start(struct request *r)
{
	struct dsb *sb = r->sb;
	struct ak_err err;
	int rc;

	if (is_ending(sb)) {
		sb->status = DSB_STOPPING;
		arm_deadline(sb, STOP_SLACK_MS);
	}
	if (sb->status == DSB_STOPPING)
		return; /* tell_down runs it again once it has stopped */
	if (sb->status == DSB_RUNNING) {
		fail_state(r, EALREADY, "is running already");
		return;
	}
	r->disk_before = sb->state.limits.disk_bytes;
	rc = accept_dir(r, &err);
	if (rc >= 0)
		rc = json_get_uint(r->obj, "disk_bytes", DISK_MAX, &sb->state.limits.disk_bytes, &err); /* saved once it runs */
	if (rc >= 0)
		rc = launch(sb, &err);
	if (rc < 0) {
		fail_start(r, -rc, err.text);
		return;
	}
	r->begun = true;
	free(TAKE(sb->changed));
	sb->status = DSB_STARTING;
	arm_deadline(sb, START_TIMEOUT_MS);
}

static void begin_stop(struct dsb *sb, struct request *r, uint64_t grace_ms)
{
	r->begun = true;
	if (sb->status == DSB_STOPPING)
		return;
	sb->status = DSB_STOPPING;
	send_op(sb, "stop", "grace_ms", (double)grace_ms);
	arm_deadline(sb, grace_ms + STOP_SLACK_MS);
}

void op_stop(struct request *r)
{
	uint64_t grace = SUPER_GRACE_MS;
	struct ak_err err;

	if (json_get_uint(r->obj, "grace_ms", 3600000, &grace, &err) < 0)
		request_fail(r, EINVAL, err.text);
	else if (r->sb->status == DSB_STOPPED)
		fail_state(r, EALREADY, "is not running");
	else
		begin_stop(r->sb, r, grace);
}

void op_remove(struct request *r)
{
	struct dsb *sb = r->sb;
	struct ak_err err;
	int force = 0;

	if (json_get_bool(r->obj, "force", &force, &err) < 0)
		request_fail(r, EINVAL, err.text);
	else if (sb->status == DSB_STOPPED)
		removal_begin(sb);
	else if (!force && sb->status == DSB_RUNNING)
		fail_state(r, EBUSY, "is running: stop it first, or remove it with --force");
	else
		begin_stop(sb, r, 0);
}

void op_orphan_run(struct request *r)
{
	if (r->sb->status == DSB_STOPPED)
		removal_begin(r->sb);
	else
		begin_stop(r->sb, r, 0);
}
