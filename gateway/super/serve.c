/* A running supervisor: requests on its socket, and the end of the sandbox. See super/super.h. */
#include "gateway/super/internal.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PEERS_MAX 256
#define GRACE_MAX_MS 3600000
#define STOP_LOOK_MS 10

/* ---- requests ---- */

static void answer_empty(struct ipc_peer *peer, const int *fds, size_t n_fds)
{
	_cleanup_json_ cJSON *obj = cJSON_CreateObject();

	ipc_peer_send(peer, obj, fds, n_fds);
}

static void on_root(struct super *v, struct ipc_peer *peer, struct ipc_message *msg)
{
	_cleanup_close_ int fd = sandbox_root_fd(v->sandbox);

	if (fd < 0)
		ipc_peer_fail(peer, -fd, "cannot open the sandbox's root folder");
	else
		answer_empty(peer, &fd, 1);
}

static void on_namespaces(struct super *v, struct ipc_peer *peer, struct ipc_message *msg)
{
	_cleanup_json_ cJSON *obj = cJSON_CreateObject();
	bool ok = obj && cJSON_AddStringToObject(obj, "name", v->state->name) &&
		cJSON_AddStringToObject(obj, "uuid", v->state->uuid) &&
		cJSON_AddNumberToObject(obj, "link_id", v->state->link_id) && cJSON_AddNumberToObject(obj, "pid", getpid()) &&
		cJSON_AddNumberToObject(obj, "init_pid", sandbox_init_pid(v->sandbox)) &&
		cJSON_AddBoolToObject(obj, "network", v->peer_rtnl >= 0) &&
		cJSON_AddNumberToObject(obj, "started_us", (double)v->started_us);
	const int fds[] = { v->user_ns, v->net_ns, v->peer_rtnl };

	super_watch_daemon(v, peer);
	ipc_peer_send(peer, ok ? obj : NULL, fds, v->peer_rtnl >= 0 ? 3 : 0);
}

/* A channel to init, for a published port of this sandbox. */
static void on_channel(struct super *v, struct ipc_peer *peer, struct ipc_message *msg)
{
	struct ak_err err;
	int rc = msg->n_fds == 1 ? sandbox_channel(v->sandbox, msg->fds[0], &err)
				 : ak_fail(&err, EINVAL, "one descriptor is needed");

	if (rc < 0)
		ipc_peer_fail(peer, -rc, err.text);
	else
		answer_empty(peer, NULL, 0);
}

static void on_signal_op(struct super *v, struct ipc_peer *peer, struct ipc_message *msg)
{
	super_exec_signal(v, peer, msg->obj);
}

/* ---- stopping ---- */

static void look_again(struct super *v)
{
	static const struct timeval delay = { 0, STOP_LOOK_MS * 1000 };

	if (ak_now_ms() >= v->kill_at_ms || sandbox_idle(v->sandbox))
		(void)sandbox_signal(v->sandbox, SIGKILL);
	else
		evtimer_add(v->on_stop, &delay);
}

static void on_stop_look(evutil_socket_t fd, short what, void *ctx)
{
	look_again(ctx);
}

static void on_stop(struct super *v, struct ipc_peer *peer, struct ipc_message *msg)
{
	uint64_t grace = SUPER_GRACE_MS, until;
	struct ak_err err;

	if (json_get_uint(msg->obj, "grace_ms", GRACE_MAX_MS, &grace, &err) < 0) {
		ipc_peer_fail(peer, EINVAL, err.text);
		return;
	}
	if (v->n_waiters == SUPER_WAITERS_MAX) {
		ipc_peer_fail(peer, EBUSY, "the sandbox is being stopped");
		return;
	}
	v->waiters[v->n_waiters++] = ipc_peer_id(peer);
	until = ak_now_ms() + grace;
	if (v->stopping && until >= v->kill_at_ms)
		return;
	v->kill_at_ms = until; /* a second stop may give a shorter grace period */
	v->stopping = true;
	if (grace)
		(void)sandbox_signal(v->sandbox, SIGTERM);
	look_again(v);
}

/* ---- the limit of its files ---- */

static void arm_disk(struct super *v)
{
	uint64_t due = disk_watch_due_ms(&v->disk), now = ak_now_ms(), ms = due > now ? due - now : 0;
	const struct timeval delay = { (time_t)(ms / 1000), (suseconds_t)(ms % 1000 * 1000) };

	if (due)
		evtimer_add(v->on_disk, &delay);
}

/* The daemon records the reason. */
static void tell_over(struct super *v)
{
	_cleanup_json_ cJSON *obj = cJSON_CreateObject();
	_cleanup_strbuf_ struct strbuf why = { 0 };
	struct ipc_peer *daemon = v->daemon_id ? ipc_server_find(v->server, v->daemon_id) : NULL;

	run_outcome_tell(&why, &v->over);
	if (why.len)
		why.data[why.len - 1] = '\0'; /* its only line */
	if (daemon && obj && !why.failed && cJSON_AddStringToObject(obj, "event", "over") &&
		cJSON_AddStringToObject(obj, "reason", why.data))
		ipc_peer_send(daemon, obj, NULL, 0);
}

static void on_disk(evutil_socket_t fd, short what, void *ctx)
{
	struct super *v = ctx;

	if (disk_watch_tick(&v->disk, ak_now_ms(), &v->over)) {
		v->stopping = true; /* no new commands */
		tell_over(v);
		(void)sandbox_signal(v->sandbox, SIGKILL);
	}
	arm_disk(v);
}

/* ---- dispatch ---- */

static const struct {
	const char *op;
	void (*run)(struct super *v, struct ipc_peer *peer, struct ipc_message *msg);
} ops[] = {
	{ "exec", super_exec_request },
	{ "signal", on_signal_op },
	{ "root", on_root },
	{ "namespaces", on_namespaces },
	{ "channel", on_channel },
	{ "stop", on_stop },
};

static void on_message(void *ctx, struct ipc_peer *peer, struct ipc_message *msg)
{
	const char *op = "";
	struct ak_err err;

	if (json_get_string(msg->obj, "op", &op, &err) >= 0) {
		for (size_t i = 0; i < ARRAY_SIZE(ops); i++) {
			if (!strcmp(ops[i].op, op)) {
				ops[i].run(ctx, peer, msg);
				return;
			}
		}
	}
	ipc_peer_fail(peer, EOPNOTSUPP, "unknown request");
}

static void on_gone(void *ctx, struct ipc_peer *peer)
{
	super_exec_peer_gone(ctx, peer);
	super_watch_gone(ctx, peer);
}

static void on_sandbox(evutil_socket_t fd, short what, void *ctx)
{
	struct super *v = ctx;
	bool ended = sandbox_poll(v->sandbox) == SANDBOX_ENDED;

	super_exec_events(v);
	if (ended)
		event_base_loopbreak(v->base);
}

static void answer_stopped(struct ipc_peer *peer, const char *changed)
{
	_cleanup_json_ cJSON *obj = cJSON_CreateObject();
	bool ok = obj && (!changed || cJSON_AddStringToObject(obj, "changed", changed));

	ipc_peer_send(peer, ok ? obj : NULL, NULL, 0);
}

/* Unlink the socket, reap the sandbox, check what it changed in the project, and only then reply. */
void super_finish(struct super *v)
{
	_cleanup_free_ char *changed = NULL;

	unlink(v->path);
	v->path[0] = '\0';
	disk_watch_done(&v->disk);
	sandbox_free(TAKE(v->sandbox));
	v->live = ak_close(v->live);
	changed = run_plan_tell(&v->plan, v->paths, state_origin(v->state));
	for (size_t i = 0; i < v->n_waiters; i++) {
		struct ipc_peer *peer = ipc_server_find(v->server, v->waiters[i]);

		if (peer)
			answer_stopped(peer, changed);
	}
}

int super_open(struct super *v, struct ak_err *err)
{
	static const struct ipc_hooks hooks = { .on_message = on_message, .on_gone = on_gone };
	struct ipc_hooks own = hooks;
	struct ipc_peer *daemon = NULL;

	own.ctx = v;
	v->base = event_base_new();
	if (!v->base || ipc_server_new(v->base, TAKE_FD(v->listener), PEERS_MAX, &own, &v->server) < 0)
		return ak_fail(err, ENOMEM, "out of memory");
	v->on_sandbox = event_new(v->base, sandbox_fd(v->sandbox), EV_READ | EV_PERSIST, on_sandbox, v);
	v->on_stop = evtimer_new(v->base, on_stop_look, v);
	v->on_disk = evtimer_new(v->base, on_disk, v);
	if (!v->on_sandbox || !v->on_stop || !v->on_disk || event_add(v->on_sandbox, NULL) < 0 || super_watch_open(v) < 0 ||
		ipc_server_adopt(v->server, TAKE_FD(v->control), NULL, &daemon) < 0)
		return ak_fail(err, ENOMEM, "out of memory");
	super_watch_daemon(v, daemon);
	disk_watch_begin(&v->disk, v->upper[0] ? v->upper : NULL, v->state->limits.disk_bytes, sandbox_init_pid(v->sandbox));
	arm_disk(v);
	return 0;
}

static void tell_running(struct super *v)
{
	_cleanup_json_ cJSON *obj = cJSON_CreateObject();
	int rc = obj && cJSON_AddStringToObject(obj, "event", "running") ? ipc_send(v->control, obj, NULL, 0) : -ENOMEM;

	(void)rc; /* if the daemon has ended, the next one adopts us */
}

int super_serve(struct super *v, struct ak_err *err)
{
	int rc;

	v->started_us = ak_wall_us();
	tell_running(v);
	rc = super_open(v, err);
	if (rc < 0)
		return rc;
	event_base_dispatch(v->base);
	super_finish(v);
	return 0;
}
