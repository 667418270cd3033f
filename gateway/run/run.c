/*
 * One `run` with its own sandbox and gateway: see run/run.h.
 *
 * Theory of operation. This process forks two children at once: the sandbox's setup child, which creates the namespaces (the sandbox's init is our child, too),
 * and the gateway, which waits for the sockets that the setup child opens. Meanwhile we write the records to disk. run/life.h decides the rest; the
 * caller's loop (run/loop.h) passes events to it. If the gateway dies, its link disappears and the command continues without a network.
 */
#include "gateway/run/run.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/base/sabotage.h"
#include "gateway/base/say.h"
#include "gateway/run/gateway.h"
#include "gateway/run/ports.h"
#include "gateway/run/vm.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define START_MAX_MS 30000

struct cold {
	struct run_front *front; /* borrowed */
	struct run_life life;
	struct run_gw gw;
	struct run_desk desk;
	struct gwns_link link;
	int net_sock; /* owned: the sandbox's setup sends its sockets for the gateway here */
	struct sandbox *sandbox; /* owned */
	bool wants_vm;
	struct sandbox_vm vm; /* owned; only with WANTS_VM */
	struct sandbox_limits limits;
};

/* ---- callbacks of run/life.h ---- */

static void fill_spec(const struct cold *c, char resolv[static PLAN_RESOLV_MAX], struct sandbox_spec *spec)
{
	const struct run_front *f = c->front;

	run_plan_spec(&f->plan, f->plan.network ? &c->link : NULL, resolv, spec);
	spec->argv = f->plan.argv ? f->plan.argv : f->opts->argv;
	spec->upper_dir = c->life.dir.upper[0] ? c->life.dir.upper : NULL;
	spec->limits = c->limits;
	spec->vm = c->wants_vm ? &c->vm : NULL;
	spec->debug = f->opts->debug ? STDERR_FILENO : 0;
	spec->tty = f->opts->tty;
	memcpy(spec->stdio, f->stdio, sizeof(spec->stdio));
}

static int build(struct run_life *l, struct ak_err *err)
{
	struct cold *c = l->ctx;
	char resolv[PLAN_RESOLV_MAX];
	struct sandbox_spec spec;
	int pair[2] = { -1, -1 }, rc;

	gwns_link_plan(RUN_LINK_ID, &c->link);
	if (l->plan->network && socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return ak_fail_errno(err, errno, "socketpair");
	c->net_sock = pair[1];
	fill_spec(c, resolv, &spec);
	rc = sandbox_start(&spec, pair[0], &c->sandbox, err);
	ak_close(pair[0]);
	run_io_close_writers(c->front->stdio); /* only the sandbox keeps them open */
	l->sandbox = c->sandbox;
	return rc;
}

static int host(struct run_life *l, struct ak_err *err)
{
	struct cold *c = l->ctx;
	int rc = run_gw_start(&c->gw, &c->link, c->net_sock, err);

	c->net_sock = ak_close(c->net_sock);
	return rc;
}

/* Before the command runs, so that a client never meets a program whose port is not open yet. */
static void publish(struct cold *c)
{
	struct run_front *f = c->front;
	struct ak_err err;

	for (size_t i = 0; i < f->n_listeners; i++) {
		if (run_gw_publish(&c->gw, &f->opts->publish[i], f->listeners[i], &err) < 0)
			ak_say("%s", err.text);
	}
	run_front_close_ports(f);
}

static void going(struct run_life *l)
{
	publish(l->ctx);
	if (!l->opts->quiet)
		run_say_notes(l->plan->notes);
}

/* After the command has started, so that it does not wait for this. */
static void started(struct run_life *l)
{
	struct cold *c = l->ctx;

	if (l->plan->network && !c->wants_vm)
		run_desk_open(&c->desk, l->dir.dir_fd);
}

static void unhost(struct run_life *l)
{
	struct cold *c = l->ctx;

	run_desk_done(&c->desk);
	run_gw_stop(&c->gw);
}

static const struct life_ops life_ops = { .build = build, .host = host, .going = going, .started = started, .unhost = unhost };

/* ---- ports that are published later ---- */

static int open_port(void *ctx, const struct ak_publish *p, int listener, struct ak_err *err)
{
	return run_gw_publish(&((struct cold *)ctx)->gw, p, listener, err);
}

static void close_port(void *ctx, const struct ak_publish *p)
{
	run_gw_unpublish(&((struct cold *)ctx)->gw, p);
}

static const struct run_ports_ops ports_ops = { .open = open_port, .close = close_port };

static void serve_desk(struct cold *c)
{
	_cleanup_json_ cJSON *request = NULL, *answer = NULL;
	struct run_front *f = c->front;
	struct ak_err err;
	int rc;

	if (!run_desk_serve(&c->desk, &request))
		return;
	if (f->opts != &f->own)
		f->own = *f->opts;
	f->opts = c->life.opts = &f->own;
	rc = run_ports_change(&c->life, &f->own, request, &ports_ops, &answer, &err);
	run_desk_answer(&c->desk, rc, answer, &err);
}

/* ---- callbacks of run/loop.h ---- */

enum { P_SANDBOX, P_CONTROL, P_DESK };

static void backend_poll(const void *ctx, struct pollfd p[static RUN_BACKEND_FDS])
{
	const struct cold *c = ctx;

	/* The descriptor of an ended sandbox stays readable. */
	p[P_SANDBOX] = (struct pollfd){ .fd = c->life.state < LIFE_ENDING ? sandbox_fd(c->sandbox) : -1, .events = POLLIN };
	p[P_CONTROL] = (struct pollfd){ .fd = c->gw.control, .events = POLLIN };
	p[P_DESK] = (struct pollfd){ .fd = run_desk_fd(&c->desk), .events = POLLIN };
}

/* Sandbox first: the loop opens the terminal between two calls, so a command's start and end must not happen in the same call. */
static void backend_serve(void *ctx, const struct pollfd p[static RUN_BACKEND_FDS])
{
	struct cold *c = ctx;

	if (p[P_SANDBOX].revents)
		life_poll(&c->life);
	if (p[P_CONTROL].revents)
		run_gw_read(&c->gw);
	if (p[P_DESK].revents || (c->desk.until_ms && ak_now_ms() >= c->desk.until_ms))
		serve_desk(c);
	life_tick(&c->life);
	run_gw_tick(&c->gw);
}

static uint64_t backend_due_ms(const void *ctx)
{
	const struct cold *c = ctx;
	const uint64_t due[] = { life_due_ms(&c->life), run_gw_due_ms(&c->gw), c->desk.until_ms };
	uint64_t first = 0;

	for (size_t i = 0; i < ARRAY_SIZE(due); i++)
		first = due[i] && (!first || due[i] < first) ? due[i] : first;
	return first;
}

static void backend_signal(void *ctx, int sig)
{
	life_signal(&((struct cold *)ctx)->life, sig);
}

static int backend_tty_fd(const void *ctx)
{
	const struct cold *c = ctx;

	return c->life.ran ? sandbox_tty_fd(c->sandbox) : -1;
}

static bool backend_over(const void *ctx)
{
	return ((const struct cold *)ctx)->life.state == LIFE_OVER;
}

static const struct run_backend backend = {
	.poll = backend_poll,
	.serve = backend_serve,
	.due_ms = backend_due_ms,
	.signal = backend_signal,
	.tty_fd = backend_tty_fd,
	.over = backend_over,
};

/* ---- run ---- */

static void init(struct cold *c, struct run_front *f)
{
	c->front = f;
	c->net_sock = -1;
	c->sandbox = NULL;
	c->limits = f->opts->limits;
	c->vm = SANDBOX_VM_NONE;
	c->wants_vm = f->plan.vm = run_vm_wanted(f->paths, f->opts);
	life_init(&c->life, &life_ops, c);
	c->life.paths = f->paths;
	c->life.opts = f->opts;
	c->life.plan = &f->plan;
	c->life.needs_host = f->plan.network;
	c->life.began_us = f->began_us;
	c->life.start_max_ms = START_MAX_MS;
	run_gw_init(&c->gw, &c->life);
	run_desk_init(&c->desk);
}

static int execute(struct cold *c, struct ak_err *err)
{
	struct run_front *f = c->front;
	int rc;

	life_begin(&c->life);
	if (c->life.state == LIFE_BUILDING)
		run_front_look(f);
	rc = run_loop(&f->io, &backend, c);
	if (rc < 0)
		return ak_fail_errno(err, -rc, "poll");
	if (c->life.ran)
		run_drain(&f->io, -1); /* all processes in the sandbox have ended, so end of file is certain */
	*err = c->life.failure;
	return c->life.rc;
}

int run_cold(struct run_front *f, struct run_report *ret, struct ak_err *err)
{
	struct cold c;
	int rc = sabotage_check(err);

	memcpy(ret->name, f->plan.name, sizeof(ret->name));
	if (rc < 0)
		return rc;
	init(&c, f);
	if (c.wants_vm) /* before the run begins: making a template takes its time */
		rc = run_vm_open(f->paths, &c.limits, f->opts->quiet, &c.vm, err);
	if (rc == 0)
		rc = execute(&c, err);
	sandbox_vm_done(&c.vm);
	if (c.sandbox && sandbox_notes(c.sandbox)[0])
		ret->notes = strdup(sandbox_notes(c.sandbox));
	sandbox_free(c.sandbox);
	run_gw_done(&c.gw);
	run_desk_done(&c.desk);
	ret->outcome = c.life.outcome;
	if (c.life.ran && rc == 0)
		rc = run_front_report(f, ret, err);
	else if (ret->notes && !f->opts->quiet)
		run_say_notes(ret->notes);
	ak_close(c.net_sock);
	life_done(&c.life);
	return rc;
}
