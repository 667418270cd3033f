/* Commands in a running sandbox, one per connection. See super/super.h. */
#include "gateway/super/internal.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/say.h"
#include "gateway/log/events.h"

#include <errno.h>
#include <event2/event.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define TIMEOUT_MAX_MS (366ull * 86400 * 1000)

/* A parsed request. */
struct ask {
	char **argv, **env; /* owned */
	char **envp; /* owned array of borrowed strings */
	const char *workdir; /* borrowed from the message */
	int tty;
	uint64_t rows, cols, timeout_ms;
};

static void ask_done(struct ask *a)
{
	json_strings_free(a->argv);
	json_strings_free(a->env);
	free(a->envp);
}

static bool same_key(const char *a, const char *b)
{
	size_t n = strcspn(a, "=");

	return n == strcspn(b, "=") && !memcmp(a, b, n);
}

/* The sandbox's environment, overridden by the command's own variables. */
static int merge_env(const struct super *v, struct ask *a, struct ak_err *err)
{
	size_t n_own = 0, n = 0;

	while (a->env && a->env[n_own])
		n_own++;
	if (n_own > PLAN_ENV_MAX)
		return ak_fail(err, E2BIG, "env: more than %d variables", PLAN_ENV_MAX);
	a->envp = calloc(v->plan.n_env + n_own + 1, sizeof(*a->envp));
	if (!a->envp)
		return ak_fail(err, ENOMEM, "out of memory");
	for (size_t i = 0; i < v->plan.n_env; i++)
		a->envp[n++] = v->plan.env[i];
	for (size_t k = 0; k < n_own; k++) {
		size_t i = 0;

		if (a->env[k][0] == '=' || !strchr(a->env[k], '='))
			return ak_fail(err, EINVAL, "env[%zu]: must be KEY=VALUE", k);
		while (i < n && !same_key(a->envp[i], a->env[k]))
			i++;
		a->envp[i] = a->env[k];
		n = i == n ? n + 1 : n;
	}
	return 0;
}

static int parse(const struct super *v, const cJSON *obj, struct ask *a, struct ak_err *err)
{
	int rc = json_get_strings(obj, "argv", &a->argv, err);

	if (rc >= 0 && (!a->argv || !a->argv[0]))
		return ak_fail(err, EINVAL, "argv: empty; give a command");
	if (rc >= 0)
		rc = json_get_strings(obj, "env", &a->env, err);
	if (rc >= 0)
		rc = json_get_string(obj, "workdir", &a->workdir, err);
	if (rc >= 0)
		rc = json_get_bool(obj, "tty", &a->tty, err);
	if (rc >= 0)
		rc = json_get_uint(obj, "rows", UINT16_MAX, &a->rows, err);
	if (rc >= 0)
		rc = json_get_uint(obj, "cols", UINT16_MAX, &a->cols, err);
	if (rc >= 0)
		rc = json_get_uint(obj, "timeout_ms", TIMEOUT_MAX_MS, &a->timeout_ms, err);
	if (rc < 0)
		return rc;
	if (a->workdir && a->workdir[0] != '/')
		return ak_fail(err, EINVAL, "workdir '%.200s': must be an absolute path inside the sandbox", a->workdir);
	return merge_env(v, a, err);
}

/* ---- one command's life ---- */

static void exec_free(struct super_exec *e)
{
	ipc_server_forget(e->super->server, e->peer_id);
	LIST_REMOVE(e, link);
	e->super->n_execs--;
	if (e->on_timeout)
		event_free(e->on_timeout);
	free(e);
}

static void on_timeout(evutil_socket_t fd, short what, void *ctx)
{
	struct super_exec *e = ctx;

	e->timed_out = true;
	(void)sandbox_exec_signal(e->super->sandbox, e->id, SIGKILL);
}

static struct super_exec *exec_new(struct super *v, struct ipc_peer *peer, uint64_t timeout_ms)
{
	struct timeval limit = { (time_t)(timeout_ms / 1000), (suseconds_t)(timeout_ms % 1000 * 1000) };
	struct super_exec *e = calloc(1, sizeof(*e));

	if (!e)
		return NULL;
	e->super = v;
	e->id = ++v->last_id;
	e->peer_id = ipc_peer_id(peer);
	LIST_INSERT_HEAD(&v->execs, e, link);
	v->n_execs++;
	if (timeout_ms) {
		e->on_timeout = evtimer_new(v->base, on_timeout, e);
		if (!e->on_timeout || evtimer_add(e->on_timeout, &limit) < 0) {
			exec_free(e);
			return NULL;
		}
	}
	ipc_peer_set_data(peer, e);
	return e;
}

/* Called before the command starts: a command that cannot be recorded must not run. */
static int record(const struct super *v, char *const *argv, struct ak_err *err)
{
	_cleanup_strbuf_ struct strbuf more = { 0 };
	int rc;

	event_put_list(&more, "command", argv);
	rc = event_write(v->paths, "sandbox_exec", v->state->name, &more);
	return rc < 0 ? ak_fail_errno(err, -rc, "the command was not started: cannot record it in the events log") : 0;
}

static int start(struct super *v, struct ipc_peer *peer, const struct ask *a, const int *fds, struct ak_err *err)
{
	struct sandbox_exec ex = {
		.argv = a->argv,
		.envp = a->envp,
		.workdir = a->workdir ? a->workdir : v->plan.workdir,
		.tty = a->tty != 0,
		.rows = (uint16_t)a->rows,
		.cols = (uint16_t)a->cols,
		.stdio = { -1, -1, -1 },
	};
	struct super_exec *e = exec_new(v, peer, a->timeout_ms);
	int rc;

	if (!e)
		return ak_fail(err, ENOMEM, "out of memory");
	if (!a->tty)
		memcpy(ex.stdio, fds, sizeof(ex.stdio));
	e->oom_before = sandbox_oom_kills(v->sandbox);
	e->pids_before = sandbox_pids_refused(v->sandbox);
	rc = sandbox_exec(v->sandbox, e->id, &ex, err);
	if (rc < 0)
		exec_free(e);
	return rc;
}

void super_exec_request(struct super *v, struct ipc_peer *peer, struct ipc_message *msg)
{
	_cleanup_(ask_done) struct ask a = { 0 };
	struct ak_err err;
	int rc;

	if (v->over.out_of_disk)
		rc = ak_fail(&err, ESHUTDOWN, "the sandbox is being ended: it is out of disk space");
	else if (v->stopping)
		rc = ak_fail(&err, ESHUTDOWN, "the sandbox is being stopped");
	else if (ipc_peer_data(peer))
		rc = ak_fail(&err, EBUSY, "a command is already running on this connection");
	else
		rc = parse(v, msg->obj, &a, &err);
	if (rc == 0 && !a.tty && msg->n_fds < 3)
		rc = ak_fail(&err, EINVAL, "exec without a terminal needs three descriptors");
	if (rc == 0)
		rc = record(v, a.argv, &err);
	if (rc == 0)
		rc = start(v, peer, &a, msg->fds, &err);
	if (rc < 0)
		ipc_peer_fail(peer, -rc, err.text);
}

void super_exec_signal(struct super *v, struct ipc_peer *peer, const cJSON *obj)
{
	struct super_exec *e = ipc_peer_data(peer);
	uint64_t sig = 0;
	struct ak_err err;

	/* No reply: if the command has just ended, the client gets its exit event. */
	if (e && json_get_uint(obj, "sig", SIGRTMAX, &sig, &err) > 0 && sig > 0)
		(void)sandbox_exec_signal(v->sandbox, e->id, (int)sig);
}

void super_exec_peer_gone(struct super *v, struct ipc_peer *peer)
{
	struct super_exec *e = ipc_peer_data(peer);

	if (!e)
		return;
	e->peer_id = 0;
	(void)sandbox_exec_signal(v->sandbox, e->id, SIGKILL);
}

/* ---- events from the sandbox ---- */

static int reason_code(int exit_code)
{
	return exit_code == 127 ? ENOENT : exit_code == 126 ? EACCES : EIO;
}

static void tell_exit(struct ipc_peer *peer, const struct super_exec *e, const struct sandbox_exec_event *ev)
{
	int code = e->timed_out ? AK_EXIT_TIMEOUT : ev->exit_code;
	_cleanup_json_ cJSON *obj = cJSON_CreateObject();
	bool ok = obj && cJSON_AddStringToObject(obj, "event", "exit") && cJSON_AddNumberToObject(obj, "id", e->id) &&
		cJSON_AddNumberToObject(obj, "exit_code", code) && cJSON_AddBoolToObject(obj, "timed_out", e->timed_out);

	if (ok && !e->timed_out && ev->err.text[0])
		ok = cJSON_AddStringToObject(obj, "error", ev->err.text) &&
			cJSON_AddNumberToObject(obj, "code", reason_code(code));
	if (ok && sandbox_oom_kills(e->super->sandbox) > e->oom_before)
		ok = cJSON_AddNumberToObject(obj, "oom_limit", (double)e->super->state->limits.memory_bytes);
	if (ok && sandbox_pids_refused(e->super->sandbox) > e->pids_before)
		ok = cJSON_AddNumberToObject(obj, "pids_limit", e->super->state->limits.pids);
	if (ok && e->super->over.out_of_disk)
		ok = cJSON_AddTrueToObject(obj, "out_of_disk") &&
			cJSON_AddNumberToObject(obj, "disk_limit", (double)e->super->over.disk_bytes);
	if (ok && ev->n_left)
		ok = cJSON_AddNumberToObject(obj, "n_left", ev->n_left) && cJSON_AddStringToObject(obj, "left", ev->left);
	ipc_peer_send(peer, ok ? obj : NULL, NULL, 0);
}

static void tell_started(struct ipc_peer *peer, const struct super_exec *e, int tty_fd)
{
	_cleanup_json_ cJSON *obj = cJSON_CreateObject();
	bool ok = obj && cJSON_AddStringToObject(obj, "event", "started") && cJSON_AddNumberToObject(obj, "id", e->id);

	ipc_peer_send(peer, ok ? obj : NULL, &tty_fd, tty_fd >= 0 ? 1 : 0);
}

static struct super_exec *find(const struct super *v, uint32_t id)
{
	struct super_exec *e;

	LIST_FOREACH(e, &v->execs, link) {
		if (e->id == id)
			return e;
	}
	return NULL;
}

void super_exec_events(struct super *v)
{
	struct sandbox_exec_event ev;

	while (sandbox_exec_next(v->sandbox, &ev)) {
		_cleanup_close_ int tty_fd = ev.state == SANDBOX_EXEC_STARTED ? ev.tty_fd : -1;
		struct super_exec *e = find(v, ev.id);
		struct ipc_peer *peer = e && e->peer_id ? ipc_server_find(v->server, e->peer_id) : NULL;

		if (!e)
			continue;
		if (ev.state == SANDBOX_EXEC_STARTED) {
			if (peer)
				tell_started(peer, e, tty_fd);
			continue;
		}
		if (peer)
			tell_exit(peer, e, &ev);
		exec_free(e);
	}
}
