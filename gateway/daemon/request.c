/* Client requests: dispatched by a table, one at a time per connection and one at a time per sandbox. */
#include "gateway/daemon/internal.h"

#include "gateway/base/cleanup.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const struct op ops[] = {
	{ "ping", op_ping, false, false },
	{ "start", op_start, true, false },
	{ "stop", op_stop, true, false },
	{ "remove", op_remove, true, false },
	{ "list", op_list, false, false },
	{ "get", op_get, true, false },
	{ "counts", op_counts, false, false },
	{ "policy", op_policy, true, false },
	{ "publish", op_publish, true, false },
	{ "snapshot", op_snapshot, true, false },
	{ "snapshot_remove", op_snapshot_remove, true, false },
	{ "restore", op_restore, true, false },
	{ "fork", op_fork, true, false },
	{ "status", op_status, false, false },
	{ "prewarm", op_prewarm, false, false },
	{ "run", op_run, false, true },
	{ "shutdown", op_shutdown, false, false },
};

const struct op op_expire = { "expire", op_expire_run, true, false };
const struct op op_orphan = { "orphan", op_orphan_run, true, false };

void request_free(struct request *r)
{
	if (!r)
		return;
	cJSON_Delete(r->obj);
	for (size_t i = 0; i < r->n_fds; i++)
		ak_close(r->fds[i]);
	state_done(&r->change);
	policy_unref(r->policy);
	free(r);
}

static void finish(struct request *r, const cJSON *answer)
{
	struct ipc_peer *peer = r->peer_id ? ipc_server_find(r->d->clients, r->peer_id) : NULL;

	if (peer) {
		ipc_peer_send(peer, answer, NULL, 0);
		ipc_peer_pause(peer, false);
	}
	if (r->sb)
		dsb_end(r->sb, r);
	request_free(r);
}

void request_answer(struct request *r, cJSON *obj)
{
	_cleanup_json_ cJSON *answer = obj ? obj : cJSON_CreateObject();

	finish(r, answer);
}

void request_fail(struct request *r, int code, const char *text)
{
	_cleanup_json_ cJSON *answer = ipc_error(code, text);

	finish(r, answer);
}

static const struct op *find_op(const cJSON *obj)
{
	const char *name = NULL;
	struct ak_err err;

	if (json_get_string(obj, "op", &name, &err) <= 0)
		return NULL;
	for (size_t i = 0; i < ARRAY_SIZE(ops); i++) {
		if (!strcmp(ops[i].name, name))
			return &ops[i];
	}
	return NULL;
}

/* The sandbox that R names. A damaged one can only be removed, and only with "force". */
static int find_sandbox(const struct request *r, const char *name, struct dsb **ret, struct ak_err *err)
{
	int rc = dsb_get(r->d, name, ret, err), force = 0;
	const char *uuid = NULL;
	struct ak_err ignored;

	if (state_damaged(rc) && r->op->run == op_remove && json_get_bool(r->obj, "force", &force, &ignored) > 0 && force)
		return dsb_get_damaged(r->d, name, ret, err);
	if (rc == 0 && json_get_string(r->obj, "uuid", &uuid, &ignored) > 0 && strcmp(uuid, (*ret)->state.uuid) != 0)
		return ak_fail(err, ENOENT, "sandbox '%s' was removed; another sandbox has this name now", name);
	return rc == -ENOENT && !ak_sandbox_name_ok(name) ? -EINVAL : rc;
}

static void run(struct request *r)
{
	const char *name = NULL;
	struct dsb *sb = NULL;
	struct ak_err err;
	int rc;

	if (!r->op->named) {
		r->op->run(r);
		return;
	}
	rc = json_get_string(r->obj, "name", &name, &err);
	if (rc == 0)
		rc = ak_fail(&err, EINVAL, "name: missing");
	if (rc > 0)
		rc = find_sandbox(r, name, &sb, &err);
	if (rc == -ENOENT && r->op->run == op_publish && job_publish(r, name))
		return;
	if (rc < 0)
		request_fail(r, -rc, err.text);
	else
		dsb_begin(sb, r);
}

void request_dispatch(struct daemon *d, struct ipc_peer *peer, struct ipc_message *msg)
{
	const struct op *op = find_op(msg->obj);
	struct request *r;

	if (!op || d->stopping) {
		ipc_peer_fail(peer, op ? ESHUTDOWN : EOPNOTSUPP, op ? "the daemon is ending" : "unknown request");
		return;
	}
	r = calloc(1, sizeof(*r));
	if (!r) {
		ipc_peer_fail(peer, ENOMEM, "out of memory");
		return;
	}
	r->d = d;
	r->peer_id = ipc_peer_id(peer);
	r->op = op;
	r->obj = TAKE(msg->obj);
	memcpy(r->fds, msg->fds, msg->n_fds * sizeof(msg->fds[0]));
	r->n_fds = msg->n_fds;
	msg->n_fds = 0;
	/* Read the next request only after this one is answered. */
	if (!op->talks)
		ipc_peer_pause(peer, true);
	run(r);
}

void request_own(struct daemon *d, const struct op *op, struct dsb *sb)
{
	struct request *r = calloc(1, sizeof(*r));

	if (!r)
		return;
	r->d = d;
	r->op = op;
	dsb_begin(sb, r);
}
