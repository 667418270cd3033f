/* Requests for the status of the daemon and its sandboxes. */
#include "gateway/daemon/internal.h"

#include "gateway/base/cleanup.h"
#include "gateway/log/audit.h"
#include "gateway/store/info.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const status_names[] = {
	[DSB_STOPPED] = "stopped",
	[DSB_STARTING] = "starting",
	[DSB_RUNNING] = "running",
	[DSB_STOPPING] = "stopping",
};
static_assert(ARRAY_SIZE(status_names) == DSB_STATUS_NUM, "a name for each status");

/* ---- one sandbox ---- */

/* SandboxInfo, with the notes of its last start and stop. */
cJSON *dsb_info(const struct dsb *sb)
{
	const struct sandbox_info about = {
		.state = &sb->state,
		.status = status_names[sb->status],
		.allowed = sb->state.allowed + sb->stats.allowed,
		.denied = sb->state.denied + sb->stats.denied,
		.publish = sb->n_ports ? sb->ports : NULL,
	};
	_cleanup_json_ cJSON *obj = sandbox_info_json(&about);

	if (!obj || !cJSON_AddStringToObject(obj, "notes", sb->notes) ||
		(sb->changed && !cJSON_AddStringToObject(obj, "changed", sb->changed)))
		return NULL;
	return TAKE(obj);
}

/* ---- list, get and counts: ask the gateway for current counters, then reply ---- */

struct listing {
	struct request *request; /* owned */
	struct daemon *d; /* borrowed */
	cJSON *(*tell)(const struct listing *l);
	size_t pending;
};

static cJSON *tell_one(const struct listing *l)
{
	return dsb_info(l->request->sb);
}

static cJSON *tell_all(const struct listing *l)
{
	_cleanup_json_ cJSON *obj = cJSON_CreateObject();
	cJSON *array = obj ? cJSON_AddArrayToObject(obj, "sandboxes") : NULL;
	struct dsb *sb;

	if (!array)
		return NULL;
	TAILQ_FOREACH(sb, &l->d->sandboxes, link) {
		cJSON *info = sb->removed ? NULL : dsb_info(sb);

		if (info)
			cJSON_AddItemToArray(array, info);
	}
	return TAKE(obj);
}

/* The counters of all sandboxes, including stopped ones. */
static cJSON *tell_counts(const struct listing *l)
{
	_cleanup_json_ cJSON *obj = cJSON_CreateObject();
	cJSON *modes = obj ? cJSON_AddObjectToObject(obj, "modes") : NULL;
	uint64_t lost = l->d->lost;
	const struct dsb *sb;

	if (!modes || !cJSON_AddNumberToObject(obj, "started_us", (double)l->d->started_us))
		return NULL;
	for (int mode = 0; mode < AK_MODE_NUM; mode++) {
		struct net_counts sum = l->d->counted[mode];
		cJSON *item;

		TAILQ_FOREACH(sb, &l->d->sandboxes, link) {
			if ((int)sb->state.mode == mode)
				net_counts_add(&sum, &sb->stats.counts);
		}
		item = net_counts_to_json(&sum);
		if (!item || !cJSON_AddItemToObject(modes, ak_mode_name((enum ak_mode)mode), item)) {
			cJSON_Delete(item);
			return NULL;
		}
	}
	TAILQ_FOREACH(sb, &l->d->sandboxes, link)
		lost += sb->stats.lost;
	return cJSON_AddNumberToObject(obj, "lost", (double)lost) ? TAKE(obj) : NULL;
}

static void maybe_answer(struct listing *l)
{
	cJSON *obj = l->pending ? NULL : l->tell(l);

	if (l->pending > 0)
		return;
	if (obj)
		request_answer(l->request, obj);
	else
		request_fail(l->request, ENOMEM, "out of memory");
	free(l);
}

static void on_counts(void *ctx, int rc, const struct gw_msg *answer, const struct ak_err *err)
{
	struct listing *l = ctx;
	struct dsb *sb = rc == 0 ? dsb_by_link(l->d, answer->id) : NULL;

	if (sb && sb->hosted)
		sb->stats = answer->stats;
	l->pending--;
	maybe_answer(l);
}

static void ask_counts(struct listing *l, struct dsb *sb)
{
	struct gw_msg msg = { .type = GW_MSG_COUNTS, .id = sb->state.link_id };

	if (!sb->hosted || sb->removed)
		return;
	if (dgw_send(l->d, &msg, NULL, 0, on_counts, l) == 0)
		l->pending++;
}

static struct listing *listing_new(struct request *r, cJSON *(*tell)(const struct listing *l))
{
	struct listing *l = calloc(1, sizeof(*l));

	if (!l) {
		request_fail(r, ENOMEM, "out of memory");
		return NULL;
	}
	l->request = r;
	l->d = r->d;
	l->tell = tell;
	return l;
}

static void ask_all(struct request *r, cJSON *(*tell)(const struct listing *l))
{
	struct listing *l = listing_new(r, tell);
	struct dsb *sb;

	if (!l)
		return;
	TAILQ_FOREACH(sb, &r->d->sandboxes, link)
		ask_counts(l, sb);
	maybe_answer(l);
}

void op_list(struct request *r)
{
	ask_all(r, tell_all);
}

void op_counts(struct request *r)
{
	ask_all(r, tell_counts);
}

void op_get(struct request *r)
{
	struct listing *l = listing_new(r, tell_one);

	if (!l)
		return;
	ask_counts(l, r->sb);
	maybe_answer(l);
}

/* ---- the daemon ---- */

static cJSON *self_json(const struct daemon *d)
{
	_cleanup_json_ cJSON *obj = cJSON_CreateObject();
	char when[AUDIT_TIME_MAX];

	if (!obj || !cJSON_AddNumberToObject(obj, "pid", getpid()) || !cJSON_AddStringToObject(obj, "version", AK_VERSION) ||
		!cJSON_AddStringToObject(obj, "started_at", audit_time_print(d->started_us, when)))
		return NULL;
	return TAKE(obj);
}

void op_ping(struct request *r)
{
	request_answer(r, self_json(r->d));
}

static bool put_gateway(cJSON *obj, const struct dgw *g)
{
	static const char *const names[] = {
		[DGW_DOWN] = "down", [DGW_STARTING] = "starting", [DGW_UP] = "up", [DGW_STOPPING] = "stopping"
	};
	cJSON *out = cJSON_AddObjectToObject(obj, "gateway");

	return out && cJSON_AddStringToObject(out, "state", names[g->state]) && cJSON_AddNumberToObject(out, "pid", g->pid) &&
		cJSON_AddNumberToObject(out, "restarts", (double)(g->restarts ? g->restarts - 1 : 0)) &&
		(g->state != DGW_DOWN || cJSON_AddStringToObject(out, "reason", g->reason.text));
}

static bool put_sandboxes(cJSON *obj, const struct daemon *d)
{
	cJSON *out = cJSON_AddObjectToObject(obj, "sandboxes");
	unsigned total = 0, running = 0;
	const struct dsb *sb;

	TAILQ_FOREACH(sb, &d->sandboxes, link) {
		total += !sb->removed;
		running += sb->status == DSB_RUNNING;
	}
	return out && cJSON_AddNumberToObject(out, "total", total) && cJSON_AddNumberToObject(out, "running", running);
}

static bool put_mode(cJSON *array, const struct daemon *d, enum ak_mode mode)
{
	const struct pool_mode *m = &d->pool.modes[mode];
	cJSON *out = cJSON_CreateObject();

	return out && cJSON_AddItemToArray(array, out) && cJSON_AddStringToObject(out, "mode", ak_mode_name(mode)) &&
		cJSON_AddNumberToObject(out, "min", (double)m->min) && cJSON_AddNumberToObject(out, "max", (double)m->max) &&
		cJSON_AddNumberToObject(out, "warm", (double)pool_count(d, mode, WARM_READY, WARM_READY)) &&
		cJSON_AddNumberToObject(out, "building", (double)pool_count(d, mode, WARM_BUILDING, WARM_ADDING)) &&
		cJSON_AddNumberToObject(out, "in_use", (double)pool_count(d, mode, WARM_JOB, WARM_JOB)) &&
		cJSON_AddNumberToObject(out, "hits", (double)m->hits) &&
		cJSON_AddNumberToObject(out, "misses", (double)m->misses) &&
		cJSON_AddNumberToObject(out, "failed", (double)m->failed) &&
		(!m->failure.text[0] || cJSON_AddStringToObject(out, "reason", m->failure.text));
}

void op_status(struct request *r)
{
	const struct daemon *d = r->d;
	_cleanup_json_ cJSON *obj = self_json(d);
	bool ok = obj && put_gateway(obj, &d->gw) && put_sandboxes(obj, d);
	cJSON *pool = ok ? cJSON_AddArrayToObject(obj, "pool") : NULL;

	ok = ok && pool;
	for (int mode = 0; ok && mode < AK_MODE_OWN; mode++) /* the pool keeps none for policies of one's own */
		ok = put_mode(pool, d, (enum ak_mode)mode);
	if (!ok)
		request_fail(r, ENOMEM, "out of memory");
	else
		request_answer(r, TAKE(obj));
}

void op_shutdown(struct request *r)
{
	struct daemon *d = r->d;

	request_answer(r, NULL);
	daemon_shutdown(d);
}
