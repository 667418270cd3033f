/*
 * The warm pool: idle sandboxes, parked before their mounts, with their link up under the policy of their mode (no edits). Each serves one job
 * and is then destroyed. They are children of this process and end with it.
 */
#include "gateway/daemon/internal.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/base/say.h"
#include "gateway/store/policy_dirs.h"
#include "gateway/store/rundir.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>

#define AGE_MAX_MS (10 * 60 * 1000)
#define BUILD_MAX_MS 30000
#define BUILD_VM_MAX_MS 90000 /* software emulation on a busy host */
#define TICK_MS 1000
#define RETRY_MS 5000 /* after a failed build */
#define BUILD_AT_ONCE 4
#define REFILL_LATER_MS 50 /* leave the CPUs to the job that has just started */
#define FREE_LATER_MS 20 /* by then its processes have usually ended and sandbox_free does not block */
#define FREE_LOOKS_MAX 100 /* after this many checks let sandbox_free block */
#define LINKS (GWNS_ID_MAX - STATE_LINK_MAX)

/* ---- counting ---- */

size_t pool_count(const struct daemon *d, enum ak_mode mode, enum warm_status from, enum warm_status to)
{
	const struct warm *w;
	size_t n = 0;

	TAILQ_FOREACH(w, &d->pool.all, link)
		n += w->mode == mode && w->status >= from && w->status <= to;
	return n;
}

static size_t building(const struct daemon *d)
{
	size_t n = 0;

	for (int m = 0; m < AK_MODE_NUM; m++)
		n += pool_count(d, (enum ak_mode)m, WARM_BUILDING, WARM_ADDING);
	return n;
}

static unsigned ready(const struct daemon *d)
{
	size_t n = 0;

	for (int m = 0; m < AK_MODE_NUM; m++)
		n += pool_count(d, (enum ak_mode)m, WARM_READY, WARM_READY);
	return (unsigned)n;
}

/* ---- destroying a sandbox ---- */

void warm_free(struct warm *w)
{
	TAILQ_REMOVE(&w->d->pool.all, w, link);
	if (w->on_sandbox)
		event_free(w->on_sandbox);
	if (w->on_late)
		event_free(w->on_late);
	job_free(w->job);
	ak_close(w->net_sock);
	ak_close(w->peer_rtnl);
	sandbox_free(w->sandbox);
	if (w->plan)
		run_plan_done(w->plan);
	free(w->plan);
	free(w);
}

static const struct timeval free_delay = { 0, FREE_LATER_MS * 1000 };

/* sandbox_free blocks until all processes have ended. Check again later instead: clients are waiting. */
static void on_free(evutil_socket_t fd, short what, void *ctx)
{
	struct warm *w = ctx;
	struct daemon *d = w->d;

	if (!sandbox_gone(w->sandbox) && w->looks++ < FREE_LOOKS_MAX && evtimer_add(w->on_late, &free_delay) == 0)
		return;
	warm_free(w);
	pool_refill(d);
}

static void free_later(struct warm *w)
{
	if (w->on_sandbox)
		event_del(w->on_sandbox);
	if (evtimer_add(w->on_late, &free_delay) < 0)
		event_active(w->on_late, EV_TIMEOUT, 0); /* needs no memory; not freed here, because callers still use it */
}

static void on_removed(void *ctx, int rc, const struct gw_msg *answer, const struct ak_err *err)
{
	free_later(ctx);
}

void warm_destroy(struct warm *w)
{
	struct gw_msg msg = { .type = GW_MSG_REMOVE, .id = w->net.id };

	w->status = WARM_ENDING;
	if (w->on_sandbox)
		event_del(w->on_sandbox);
	(void)sandbox_signal(w->sandbox, SIGKILL);
	if (w->hosting)
		return; /* the reply calls us again */
	if (!w->hosted || dgw_send(w->d, &msg, NULL, 0, on_removed, w) < 0)
		free_later(w);
	w->hosted = false;
}

/* ---- building a sandbox ---- */

static void answer_waiting(struct daemon *d);

static void failed(struct warm *w, const char *reason)
{
	struct pool_mode *m = &w->d->pool.modes[w->mode];

	m->failed++;
	m->retry_at_ms = ak_now_ms() + RETRY_MS;
	ak_fail(&m->failure, EIO, "%s", reason);
	ak_say("pool: %s: %s", ak_mode_name(w->mode), reason);
	warm_destroy(w);
	answer_waiting(w->d);
}

static void on_added(void *ctx, int rc, const struct gw_msg *answer, const struct ak_err *err)
{
	struct warm *w = ctx;
	struct pool_mode *m = &w->d->pool.modes[w->mode];

	w->hosting = false;
	w->hosted = rc == 0;
	if (w->status == WARM_ENDING) {
		warm_destroy(w);
	} else if (rc < 0) {
		failed(w, err->text);
	} else {
		w->status = WARM_READY;
		m->built++;
		rundir_stock(w->d->paths, ready(w->d));
		m->failure.text[0] = '\0';
		answer_waiting(w->d);
		pool_refill(w->d);
	}
}

/* Nothing runs in it yet, so it logs to /dev/null; a job brings its own log. */
static int host(struct warm *w, struct ak_err *err)
{
	struct gw_msg msg = { .type = GW_MSG_ADD, .id = w->net.id, .generation = 1 };
	_cleanup_(policy_unrefp) struct policy *p = NULL;
	int fds[3] = { -1, -1, -1 }, sockets[GWNS_FD_NUM];
	int rc = gwns_sockets_receive(w->net_sock, sockets, err);

	if (rc < 0)
		return rc;
	w->net_sock = ak_close(w->net_sock);
	w->peer_rtnl = TAKE_FD(sockets[GWNS_PEER_RTNL]);
	for (int i = 0; i < GWNS_FD_NUM; i++)
		ak_close(sockets[i]);
	rc = ak_policy_load(w->d->paths, ak_mode_name(w->mode), NULL, 0, &p, err);
	if (rc < 0)
		return rc;
	memcpy(msg.name, w->plan->name, strlen(w->plan->name) + 1);
	fds[0] = dgw_policy_file(p);
	fds[1] = open("/dev/null", O_WRONLY | O_APPEND | O_CLOEXEC);
	fds[2] = TAKE_FD(w->peer_rtnl);
	if (fds[0] < 0 || fds[1] < 0 || fds[2] < 0) {
		for (int i = 0; i < 3; i++)
			ak_close(fds[i]);
		return ak_fail(err, EIO, "cannot open the descriptors for the gateway");
	}
	if (dgw_send(w->d, &msg, fds, 3, on_added, w) < 0)
		return ak_fail(err, ENOMEM, "out of memory");
	w->status = WARM_ADDING;
	w->hosting = true;
	return 0;
}

static void on_sandbox(evutil_socket_t fd, short what, void *ctx)
{
	struct warm *w = ctx;
	enum sandbox_state state;
	struct ak_err err;

	if (w->status == WARM_JOB) {
		job_sandbox_event(w);
		return;
	}
	state = sandbox_poll(w->sandbox);
	if (state == SANDBOX_ENDED && w->status != WARM_ENDING)
		failed(w, sandbox_result(w->sandbox)->err.text);
	else if (state == SANDBOX_READY && w->status == WARM_BUILDING && host(w, &err) < 0)
		failed(w, err.text);
}

static int start_sandbox(struct warm *w, struct ak_err *err)
{
	char resolv[PLAN_RESOLV_MAX];
	_cleanup_(sandbox_vm_done) struct sandbox_vm vm = SANDBOX_VM_NONE;
	struct sandbox_spec spec;
	int pair[2], rc;

	if (w->vm && (rc = machine_lend(w->d, VM_MEMORY_DEFAULT_MB, &vm, err)) < 0)
		return rc;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return ak_fail_errno(err, errno, "socketpair");
	run_plan_spec(w->plan, &w->net, resolv, &spec);
	spec.parked = true;
	spec.vm = w->vm ? &vm : NULL;
	spec.gw_user_ns = w->d->gw.user_ns;
	spec.gw_net_ns = w->d->gw.net_ns;
	spec.stdio[0] = spec.stdio[1] = spec.stdio[2] = -1;
	rc = sandbox_start(&spec, pair[0], &w->sandbox, err);
	ak_close(pair[0]);
	w->net_sock = pair[1];
	ak_set_nonblock(w->net_sock, true);
	return rc;
}

static int plan(struct warm *w, struct ak_err *err)
{
	_cleanup_free_ struct run_request *opts = calloc(1, sizeof(*opts));
	char name[AK_NAME_MAX];

	w->plan = calloc(1, sizeof(*w->plan));
	if (!opts || !w->plan)
		return ak_fail(err, ENOMEM, "out of memory");
	snprintf(name, sizeof(name), "warm-%u", w->net.id);
	opts->mode = w->mode;
	opts->vm = w->vm;
	opts->profile = AK_PROFILE_MODERATE;
	opts->name = name;
	opts->fixed_env = (char *const[]){ NULL };
	return run_plan_init(w->plan, opts, w->d->paths, "", err);
}

/* The next unused link id. Terminates: there are far more ids than sandboxes. */
static uint32_t next_link(struct daemon *d)
{
	const struct warm *w;
	uint32_t id;

	do {
		id = STATE_LINK_MAX + 1 + d->pool.next_link++ % LINKS;
		TAILQ_FOREACH(w, &d->pool.all, link) {
			if (w->net.id == id)
				break;
		}
	} while (w);
	return id;
}

static struct warm *warm_new(struct daemon *d, enum ak_mode mode)
{
	struct warm *w = calloc(1, sizeof(*w));

	if (!w)
		return NULL;
	w->d = d;
	w->mode = mode;
	w->vm = d->pool.modes[mode].vm;
	w->on_late = evtimer_new(d->base, on_free, w);
	if (!w->on_late) {
		free(w);
		return NULL;
	}
	w->net_sock = w->peer_rtnl = -1;
	w->born_ms = ak_now_ms();
	gwns_link_plan(next_link(d), &w->net);
	TAILQ_INSERT_TAIL(&d->pool.all, w, link);
	return w;
}

static void build(struct daemon *d, enum ak_mode mode)
{
	struct pool_mode *m = &d->pool.modes[mode];
	struct warm *w = warm_new(d, mode);
	struct ak_err err;
	int rc = w ? plan(w, &err) : ak_fail(&err, ENOMEM, "out of memory");

	if (rc == 0)
		rc = start_sandbox(w, &err);
	if (rc == 0) {
		w->on_sandbox = event_new(d->base, sandbox_fd(w->sandbox), EV_READ | EV_PERSIST, on_sandbox, w);
		if (!w->on_sandbox || event_add(w->on_sandbox, NULL) < 0)
			rc = ak_fail(&err, ENOMEM, "out of memory");
	}
	if (rc == 0)
		return;
	m->failed++;
	m->retry_at_ms = ak_now_ms() + RETRY_MS;
	m->failure = err;
	if (w)
		warm_free(w);
}

void pool_refill(struct daemon *d)
{
	uint64_t now = ak_now_ms();

	if (d->gw.state != DGW_UP || d->stopping)
		return;
	for (int i = 0; i < AK_MODE_NUM; i++) {
		struct pool_mode *m = &d->pool.modes[i];
		enum ak_mode mode = (enum ak_mode)i;

		while (pool_count(d, mode, WARM_BUILDING, WARM_READY) < m->min && now >= m->retry_at_ms &&
			building(d) < BUILD_AT_ONCE)
			build(d, mode);
	}
}

static void on_refill(evutil_socket_t fd, short what, void *ctx)
{
	pool_refill(ctx);
}

void pool_refill_later(struct daemon *d)
{
	static const struct timeval delay = { 0, REFILL_LATER_MS * 1000 };

	if (!evtimer_pending(d->pool.on_refill, NULL))
		evtimer_add(d->pool.on_refill, &delay);
}

/* ---- taking a sandbox ---- */

struct warm *pool_take(struct daemon *d, enum ak_mode mode, bool vm, const struct run_plan *want)
{
	struct pool_mode *m = &d->pool.modes[mode];
	struct warm *w;

	TAILQ_FOREACH(w, &d->pool.all, link) {
		if (w->status != WARM_READY || w->mode != mode || w->vm != vm || w->plan->isolation != want->isolation ||
			w->plan->readonly_root != want->readonly_root)
			continue;
		if (d->gw.state == DGW_UP && sandbox_poll(w->sandbox) == SANDBOX_READY && !sandbox_stale(w->sandbox))
			break;
	}
	if (w)
		m->hits++;
	else
		m->misses++;
	return w;
}

/* The client does not notice, because it takes the cold path: the reason is in the daemon's own output. */
void pool_failed(const struct warm *w, const char *reason)
{
	struct pool_mode *m = &w->d->pool.modes[w->mode];

	m->hits--;
	m->misses++;
	ak_say("pool: %s: a job did not start: %s", ak_mode_name(w->mode), reason);
}

/* ---- periodic checks ---- */

static void check(struct warm *w, uint64_t now)
{
	if (w->status == WARM_READY &&
		(now - w->born_ms > AGE_MAX_MS || w->vm != w->d->pool.modes[w->mode].vm ||
			sandbox_poll(w->sandbox) != SANDBOX_READY || sandbox_stale(w->sandbox)))
		warm_destroy(w);
	else if (w->status == WARM_BUILDING && now - w->born_ms > (w->vm ? BUILD_VM_MAX_MS : BUILD_MAX_MS))
		failed(w, "the sandbox was not ready in time");
}

static void on_tick(evutil_socket_t fd, short what, void *ctx)
{
	struct daemon *d = ctx;
	struct warm *w, *next;
	uint64_t now = ak_now_ms();

	for (w = TAILQ_FIRST(&d->pool.all); w; w = next) {
		next = TAILQ_NEXT(w, link);
		check(w, now);
	}
	pool_refill(d);
	machines_sweep(d);
	answer_waiting(d);
}

/* The rules ended with the gateway, so idle sandboxes are useless. */
void pool_gateway_lost(struct daemon *d)
{
	struct warm *w, *next;

	for (w = TAILQ_FIRST(&d->pool.all); w; w = next) {
		next = TAILQ_NEXT(w, link);
		w->hosted = false;
		if (w->status == WARM_JOB)
			job_gateway_lost(w);
		else if (w->status != WARM_ENDING)
			warm_destroy(w);
	}
}

/* ---- prewarm ---- */

static void answer_mode(struct request *r, enum ak_mode mode)
{
	const struct pool_mode *m = &r->d->pool.modes[mode];
	_cleanup_json_ cJSON *obj = cJSON_CreateObject();
	bool ok = obj && cJSON_AddStringToObject(obj, "mode", ak_mode_name(mode)) &&
		cJSON_AddNumberToObject(obj, "min", (double)m->min) &&
		cJSON_AddNumberToObject(obj, "warm", (double)pool_count(r->d, mode, WARM_READY, WARM_READY));

	if (ok)
		request_answer(r, TAKE(obj));
	else
		request_fail(r, ENOMEM, "out of memory");
}

static enum ak_mode mode_of(const struct request *r)
{
	const char *text = "native";
	enum ak_mode mode = AK_MODE_NATIVE;
	struct ak_err err;

	(void)json_get_string(r->obj, "mode", &text, &err);
	(void)ak_mode_parse(text, &mode, &err);
	return mode;
}

static void answer_waiting(struct daemon *d)
{
	struct request *r, *next;

	for (r = TAILQ_FIRST(&d->pool.waiting); r; r = next) {
		enum ak_mode mode = mode_of(r);
		const struct pool_mode *m = &d->pool.modes[mode];

		next = TAILQ_NEXT(r, link);
		if (pool_count(d, mode, WARM_READY, WARM_READY) >= m->min) {
			TAILQ_REMOVE(&d->pool.waiting, r, link);
			answer_mode(r, mode);
		} else if (m->failure.text[0] || d->gw.state == DGW_DOWN) {
			TAILQ_REMOVE(&d->pool.waiting, r, link);
			request_fail(r, EIO, m->failure.text[0] ? m->failure.text : d->gw.reason.text);
		}
	}
}

/* The pool of a mode has one backend at a time. */
static void choose_backend(struct daemon *d, enum ak_mode mode, bool vm)
{
	struct warm *w, *next;

	d->pool.modes[mode].vm = vm;
	for (w = TAILQ_FIRST(&d->pool.all); w; w = next) {
		next = TAILQ_NEXT(w, link);
		if (w->mode == mode && w->vm != vm && w->status < WARM_JOB)
			warm_destroy(w);
	}
}

void op_prewarm(struct request *r)
{
	const char *text = NULL;
	enum ak_mode mode;
	struct pool_mode *m;
	uint64_t count = 1;
	struct ak_err err;
	const char *backend = json_text(r->obj, "backend", "ns");
	int wait = 1, rc = json_get_string(r->obj, "mode", &text, &err);

	if (rc >= 0)
		rc = text ? ak_mode_parse(text, &mode, &err) : ak_fail(&err, EINVAL, "mode: missing");
	if (rc >= 0)
		rc = json_get_uint(r->obj, "count", DAEMON_WARM_MAX, &count, &err);
	if (rc >= 0)
		rc = json_get_bool(r->obj, "wait", &wait, &err);
	if (rc >= 0)
		rc = dgw_usable(r->d, &err);
	if (rc < 0) {
		request_fail(r, -rc, err.text);
		return;
	}
	m = &r->d->pool.modes[mode];
	choose_backend(r->d, mode, !strcmp(backend, "vm"));
	m->min = count;
	m->max = m->max < count ? count : m->max;
	m->retry_at_ms = 0;
	m->failure.text[0] = '\0';
	pool_refill(r->d);
	if (!wait) {
		answer_mode(r, mode);
		return;
	}
	TAILQ_INSERT_TAIL(&r->d->pool.waiting, r, link);
	answer_waiting(r->d);
}

/* ---- init and done ---- */

int pool_init(struct daemon *d, const struct daemon_conf *conf, struct ak_err *err)
{
	static const struct timeval every = { TICK_MS / 1000, TICK_MS % 1000 * 1000 };

	for (int i = 0; i < AK_MODE_NUM; i++) {
		struct pool_mode *m = &d->pool.modes[i];

		m->vm = conf && conf->vm[i];
		m->max = conf && conf->max_warm[i] ? conf->max_warm[i] : DAEMON_WARM_DEFAULT_MAX;
		m->max = m->max > DAEMON_WARM_MAX ? DAEMON_WARM_MAX : m->max;
		m->min = conf ? conf->min_warm[i] : 0;
		m->min = m->min > m->max ? m->max : m->min;
	}
	/* Links of the previous daemon may not be deleted yet: start at a random id. */
	if (getrandom(&d->pool.next_link, sizeof(d->pool.next_link), 0) != sizeof(d->pool.next_link))
		d->pool.next_link = (uint32_t)ak_wall_us();
	d->pool.next_link %= LINKS;
	d->pool.on_tick = event_new(d->base, -1, EV_PERSIST, on_tick, d);
	d->pool.on_refill = evtimer_new(d->base, on_refill, d);
	if (!d->pool.on_tick || !d->pool.on_refill || event_add(d->pool.on_tick, &every) < 0)
		return ak_fail(err, ENOMEM, "out of memory");
	return 0;
}

void pool_done(struct daemon *d)
{
	struct request *r;

	while (!TAILQ_EMPTY(&d->pool.all))
		warm_free(TAILQ_FIRST(&d->pool.all));
	while ((r = TAILQ_FIRST(&d->pool.waiting))) {
		TAILQ_REMOVE(&d->pool.waiting, r, link);
		request_free(r);
	}
	if (d->pool.on_tick)
		event_free(d->pool.on_tick);
	if (d->pool.on_refill)
		event_free(d->pool.on_refill);
}
