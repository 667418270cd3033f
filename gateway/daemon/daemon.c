/*
 * The daemon process: see daemon/daemon.h. Start: open the socket, load the sandboxes from disk, adopt running supervisors, start the gateway; only
 * then serve clients. End: stop the gateway and destroy the pool; supervisors and their sandboxes keep running.
 */
#include "gateway/daemon/internal.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/base/say.h"
#include "gateway/ipc/spawn.h"
#include "gateway/store/vitals.h"
#include "gateway/store/state_server.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#define STOP_TIMEOUT_MS 5000

/* ---- hooks of the two servers ---- */

static void on_client_message(void *ctx, struct ipc_peer *peer, struct ipc_message *msg)
{
	/* A connection that runs a job talks to the job. */
	if (ipc_peer_data(peer))
		job_peer_message(ctx, peer, msg->obj);
	else
		request_dispatch(ctx, peer, msg);
}

static void on_client_gone(void *ctx, struct ipc_peer *peer)
{
	job_peer_gone(ctx, peer);
}

static void on_super_message(void *ctx, struct ipc_peer *peer, struct ipc_message *msg)
{
	dsb_super_message(ctx, peer, msg);
}

static void on_super_gone(void *ctx, struct ipc_peer *peer)
{
	dsb_super_gone(ctx, peer);
}

/* ---- signals ---- */

static void on_signal(evutil_socket_t fd, short what, void *ctx)
{
	struct signalfd_siginfo info;

	while (read(fd, &info, sizeof(info)) == sizeof(info))
		daemon_shutdown(ctx);
}

/* A signalfd instead of handlers: forked processes inherit no handler. */
static int take_signals(struct daemon *d, struct ak_err *err)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
	d->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (d->signal_fd < 0)
		return ak_fail_errno(err, errno, "signalfd");
	d->on_signal = event_new(d->base, d->signal_fd, EV_READ | EV_PERSIST, on_signal, d);
	return d->on_signal && event_add(d->on_signal, NULL) == 0 ? 0 : ak_fail(err, ENOMEM, "out of memory");
}

/* ---- end ---- */

static void on_stopped(evutil_socket_t fd, short what, void *ctx)
{
	struct daemon *d = ctx;

	event_base_loopbreak(d->base);
}

void daemon_shutdown(struct daemon *d)
{
	static const struct timeval limit = { STOP_TIMEOUT_MS / 1000, 0 };

	if (d->stopping)
		return;
	d->stopping = true;
	(void)vitals_stop(d->paths); /* before any supervisor sees our connection close */
	evtimer_add(d->on_stopped, &limit);
	dgw_stop(d);
}

static void daemon_free(struct daemon *d)
{
	pool_done(d);
	machines_done(d);
	dgw_done(d);
	while (!TAILQ_EMPTY(&d->sandboxes))
		dsb_free(TAILQ_FIRST(&d->sandboxes));
	policy_share_done(d);
	ipc_server_free(d->clients);
	ipc_server_free(d->supers);
	if (d->on_signal)
		event_free(d->on_signal);
	if (d->on_stopped)
		event_free(d->on_stopped);
	ak_close(d->signal_fd);
	if (d->base)
		event_base_free(d->base);
	free(d);
}

static void daemon_freep(struct daemon **d)
{
	if (*d)
		daemon_free(*d);
}

/* ---- start ---- */

static int load_one(void *ctx, struct state_sandbox *s)
{
	struct dsb *sb;

	return dsb_new(ctx, s, &sb);
}

static void cannot_load(void *ctx, const char *name, const char *reason)
{
	ak_say("%s", reason);
}

static int daemon_new(const struct ak_paths *paths, const struct daemon_conf *conf, struct daemon **ret, struct ak_err *err)
{
	_cleanup_(daemon_freep) struct daemon *d = calloc(1, sizeof(*d));
	struct ipc_hooks supers = { .on_message = on_super_message, .on_gone = on_super_gone };
	int rc;

	if (!d)
		return ak_fail(err, ENOMEM, "out of memory");
	d->paths = paths;
	d->signal_fd = -1;
	d->started_us = ak_wall_us();
	TAILQ_INIT(&d->sandboxes);
	TAILQ_INIT(&d->pool.all);
	TAILQ_INIT(&d->pool.waiting);
	d->gw.user_ns = d->gw.net_ns = d->gw.control = -1;
	d->base = event_base_new();
	d->on_stopped = d->base ? evtimer_new(d->base, on_stopped, d) : NULL;
	supers.ctx = d;
	if (!d->on_stopped || ipc_server_new(d->base, -1, 0, &supers, &d->supers) < 0)
		return ak_fail(err, ENOMEM, "out of memory");
	rc = take_signals(d, err);
	if (rc == 0)
		rc = dgw_init(d, err);
	if (rc == 0)
		rc = pool_init(d, conf, err);
	if (rc == 0)
		*ret = TAKE(d);
	return rc;
}

static int open_socket(const struct ak_paths *paths, struct ak_err *err)
{
	char path[PATH_MAX];
	int rc = ak_mkdir_p(paths->runtime, 0700);

	if (rc == 0)
		rc = daemon_socket_path(paths, path);
	if (rc < 0)
		return ak_fail_errno(err, -rc, "%s", paths->runtime);
	rc = ipc_listen(path, err);
	return rc == -EADDRINUSE ? ak_fail(err, EADDRINUSE, "a daemon is running already (%s)", path) : rc;
}

/* Remove the sandboxes of MCP servers that ended while no daemon was running, before serving clients. */
static void remove_orphans(struct daemon *d)
{
	struct dsb *sb;

	TAILQ_FOREACH(sb, &d->sandboxes, link) {
		if (state_orphaned(d->paths, &sb->state))
			request_own(d, &op_orphan, sb);
	}
}

static void tell_ready(int fd)
{
	static const int good = 0;

	if (fd >= 0)
		(void)!write(fd, &good, sizeof(good));
	ak_close(fd);
}

static int serve(struct daemon *d, int listener, int ready_fd, struct ak_err *err)
{
	struct ipc_hooks clients = { .ctx = d, .on_message = on_client_message, .on_gone = on_client_gone };
	bool wait = false;
	int rc;

	removal_sweep(d->paths);
	rc = state_each(d->paths, load_one, cannot_load, d, err);
	if (rc == 0)
		rc = adopt_all(d, &wait, err);
	if (rc == 0 && ipc_server_new(d->base, listener, DAEMON_CLIENTS_MAX, &clients, &d->clients) < 0)
		rc = ak_fail(err, ENOMEM, "out of memory");
	if (rc < 0)
		return rc;
	remove_orphans(d);
	if (wait)
		dgw_start_later(d);
	else
		dgw_start(d);
	tell_ready(ready_fd);
	event_base_dispatch(d->base);
	return 0;
}

int daemon_serve(const struct ak_paths *paths, const struct daemon_conf *conf, int listener, int ready_fd, struct ak_err *err)
{
	_cleanup_(daemon_freep) struct daemon *d = NULL;
	char path[PATH_MAX];
	bool own = listener < 0;
	int rc;

	umask(077);
	spawn_prepare();
	if (own) {
		listener = open_socket(paths, err);
		if (listener < 0)
			return listener;
	}
	ak_set_nonblock(listener, true);
	ipc_listen_as_us(listener);
	rc = vitals_begin(paths, conf && conf->healing, daemon_log_bytes(), err);
	if (rc == 0)
		rc = daemon_new(paths, conf, &d, err);
	if (rc == 0)
		rc = serve(d, listener, ready_fd, err);
	/* Unlink while the listener is open: nobody else can have bound the path yet. */
	if (own && daemon_socket_path(paths, path) == 0)
		unlink(path);
	return rc;
}
