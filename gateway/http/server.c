/* The API server: listening, signals and graceful shutdown. See http/http.h. */
#include "gateway/http/http.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/http/peer.h"

#include <errno.h>
#include <event2/event.h>
#include <netdb.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define BACKLOG 512
#define ACCEPT_MAX 8
#define TICK_S 15 /* keep-alive interval of event streams */
#define GRACE_S 10 /* for requests in flight after the first signal */
#define STRANGERS_MIN 8
#define PAUSE_MS 100 /* stop accepting for this long when out of descriptors */

/* ---- accepting ---- */

static void on_accept_again(evutil_socket_t fd, short what, void *arg)
{
	struct http_server *s = arg;

	for (size_t i = 0; i < s->n_listeners; i++)
		event_add(s->listeners[i].on_accept, NULL);
}

/* Out of descriptors: close a stranger's connection; if there is none, stop accepting for a while. */
static void out_of_descriptors(struct http_listener *l)
{
	struct timeval tv = { 0, PAUSE_MS * 1000 };

	if (http_room_drop(l->s))
		return;
	event_del(l->on_accept);
	event_base_once(l->s->base, -1, EV_TIMEOUT, on_accept_again, l->s, &tv);
}

/* Accept only a few at once, so that existing connections are served in between. */
static void on_accept(evutil_socket_t listening, short what, void *arg)
{
	struct http_listener *l = arg;

	for (int i = 0; i < ACCEPT_MAX; i++) {
		int fd = accept4(listening, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (fd >= 0) {
			http_conn_accept(l->s, fd);
		} else if (errno != ECONNABORTED && errno != EINTR) {
			if (errno != EAGAIN)
				out_of_descriptors(l);
			return;
		}
	}
}

/* ---- addresses ---- */

static int listen_on(struct http_server *s, const struct sockaddr *sa, socklen_t len)
{
	_cleanup_close_ int fd = socket(sa->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	struct http_listener *l = &s->listeners[s->n_listeners];
	const int on = 1;

	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (sa->sa_family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
	if (bind(fd, sa, len) < 0 || listen(fd, BACKLOG) < 0)
		return -errno;
	if (s->n_listeners == HTTP_LISTENERS_MAX)
		return -E2BIG;
	l->s = s;
	l->on_accept = event_new(s->base, fd, EV_READ | EV_PERSIST, on_accept, l);
	if (!l->on_accept)
		return -ENOMEM;
	l->fd = TAKE_FD(fd);
	s->n_listeners++;
	event_add(l->on_accept, NULL);
	return 0;
}

static void close_listeners(struct http_server *s)
{
	for (size_t i = 0; i < s->n_listeners; i++) {
		event_free(s->listeners[i].on_accept);
		ak_close(s->listeners[i].fd);
	}
	s->n_listeners = 0;
}

static uint16_t port_of(const struct http_server *s)
{
	struct sockaddr_storage ss = { 0 };
	socklen_t len = sizeof(ss);
	uint16_t port = 0;

	if (s->n_listeners && getsockname(s->listeners[0].fd, (struct sockaddr *)&ss, &len) == 0)
		ak_addr_from_sockaddr(&ss, &port);
	return port;
}

/* Listen on every address of HOST. With port 0, all addresses use the port that the first one got. */
static int open_host(struct http_server *s, const char *host, struct ak_err *err)
{
	struct addrinfo hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE }, *list, *ai;
	char port[8];
	int rc;

	snprintf(port, sizeof(port), "%u", s->n_listeners ? port_of(s) : s->conf->port);
	rc = getaddrinfo(host, port, &hints, &list);
	if (rc != 0)
		return ak_fail(err, EINVAL, "--host '%s': %s", host, gai_strerror(rc));
	for (ai = list, rc = 0; ai && rc == 0; ai = ai->ai_next) {
		struct sockaddr_storage ss = { 0 };
		struct ak_addr addr;
		uint16_t number;

		memcpy(&ss, ai->ai_addr, ai->ai_addrlen);
		addr = ak_addr_from_sockaddr(&ss, &number);
		if (!http_is_loopback(&addr) && !s->conf->keys.n) {
			rc = ak_fail(err, EINVAL,
				"--host '%s' is reachable from other machines, which requires a key in AGENTKERNEL_API_KEY or --api-key-file",
				host);
			break;
		}
		rc = listen_on(s, ai->ai_addr, ai->ai_addrlen);
		if (rc < 0)
			ak_fail_errno(err, -rc, "cannot listen on %s port %s", host, port);
	}
	freeaddrinfo(list);
	return rc;
}

static int open_listeners(struct http_server *s, struct ak_err *err)
{
	struct ak_err ignored;
	int rc = 0;

	for (const char *const *h = s->conf->hosts; h && *h && rc == 0; h++)
		rc = open_host(s, *h, err);
	if (s->conf->hosts && s->conf->hosts[0])
		return rc;
	rc = open_host(s, "127.0.0.1", err);
	if (rc == 0) {
		rc = open_host(s, "::1", &ignored);
		/* Not every host has IPv6. But if the port is in use there, clients of ::1 would talk to another server. */
		if (rc == -EADDRINUSE)
			*err = ignored;
		else
			rc = 0;
	}
	return rc;
}

static int collect_names(struct http_server *s)
{
	const char *const *lists[] = { s->conf->hosts, s->conf->names };
	size_t n = 0;

	for (size_t i = 0; i < ARRAY_SIZE(lists); i++)
		for (const char *const *p = lists[i]; p && *p; p++)
			n++;
	s->names = calloc(n + 1, sizeof(*s->names));
	if (!s->names)
		return -ENOMEM;
	n = 0;
	for (size_t i = 0; i < ARRAY_SIZE(lists); i++)
		for (const char *const *p = lists[i]; p && *p; p++)
			s->names[n++] = *p;
	return 0;
}

static void tell_ready(const struct http_server *s, void (*ready)(void *ctx, const char *url), void *ctx)
{
	for (size_t i = 0; i < s->n_listeners; i++) {
		struct sockaddr_storage ss = { 0 };
		socklen_t len = sizeof(ss);
		char text[AK_ADDR_TEXT], url[AK_ADDR_TEXT + 32];
		struct ak_addr addr;
		uint16_t port;

		if (getsockname(s->listeners[i].fd, (struct sockaddr *)&ss, &len) < 0)
			continue;
		addr = ak_addr_from_sockaddr(&ss, &port);
		snprintf(url, sizeof(url), addr.family == AF_INET6 ? "http://[%s]:%u" : "http://%s:%u",
			ak_addr_print(&addr, text), port);
		ready(ctx, url);
	}
}

/* ---- shutdown ---- */

static void maybe_over(struct http_server *s)
{
	if (s->stopping && TAILQ_EMPTY(&s->conns) && TAILQ_EMPTY(&s->jobs) && TAILQ_EMPTY(&s->waiting))
		event_base_loopbreak(s->base);
}

static void end_now(struct http_server *s)
{
	http_detached_end(s);
	http_jobs_kill(s);
	http_conns_finish(s, true);
}

static void on_stop(evutil_socket_t fd, short what, void *arg)
{
	end_now(arg);
	maybe_over(arg);
}

/* On the first signal, stop accepting, end background commands and streams, and let running requests finish. On the second, end those too. */
static void stop(struct http_server *s)
{
	struct timeval tv = { GRACE_S, 0 };
	struct http_job *j, *next;

	if (s->stopping) {
		end_now(s);
		return;
	}
	s->stopping = true;
	close_listeners(s);
	http_detached_end(s);
	for (j = TAILQ_FIRST(&s->jobs); j; j = next) {
		next = TAILQ_NEXT(j, link);
		if (j->ops->kind == HTTP_JOB_FOLLOW)
			http_job_cancel(j);
	}
	http_conns_finish(s, false);
	event_add(s->on_stop, &tv);
}

static void on_signal(evutil_socket_t fd, short what, void *arg)
{
	struct http_server *s = arg;
	struct signalfd_siginfo info;
	unsigned stops = 0;

	while (read(fd, &info, sizeof(info)) == sizeof(info))
		stops += info.ssi_signo != SIGCHLD;
	http_jobs_reap(s);
	while (stops-- > 0)
		stop(s);
}

static void on_tick(evutil_socket_t fd, short what, void *arg)
{
	http_conns_ping(arg);
}

/* ---- the server ---- */

static int take_signals(struct http_server *s, struct ak_err *err)
{
	static const int wanted[] = { SIGINT, SIGTERM, SIGHUP, SIGCHLD };

	signal(SIGPIPE, SIG_IGN);
	s->signal_fd = ak_signal_fd(wanted, ARRAY_SIZE(wanted));
	return s->signal_fd < 0 ? ak_fail_errno(err, -s->signal_fd, "signalfd") : 0;
}

/* Without a key, the peer's user decides who may use the server. With a key, it only decides which connections are closed first. */
static int take_peers(struct http_server *s, struct ak_err *err)
{
	struct rlimit files = { 0 };
	size_t share;

	s->peer_fd = http_peer_open();
	if (s->peer_fd < 0 && !s->conf->keys.n)
		return ak_fail_errno(err, -s->peer_fd,
			"the kernel cannot report the user of a connection (no sock_diag); set a key in AGENTKERNEL_API_KEY or --api-key-file");
	(void)getrlimit(RLIMIT_NOFILE, &files);
	share = files.rlim_cur > 8 * HTTP_STRANGERS_MAX ? HTTP_STRANGERS_MAX : (size_t)files.rlim_cur / 8;
	s->strangers_max = share < STRANGERS_MIN ? STRANGERS_MIN : share;
	return 0;
}

static int server_init(struct http_server *s, struct ak_err *err)
{
	struct timeval tick = { TICK_S, 0 };

	TAILQ_INIT(&s->conns);
	TAILQ_INIT(&s->jobs);
	TAILQ_INIT(&s->waiting);
	TAILQ_INIT(&s->detached);
	s->started_us = ak_wall_us();
	s->stats.routes = calloc(http_n_routes + 1, sizeof(*s->stats.routes));
	s->base = event_base_new();
	if (!s->base || !s->stats.routes || collect_names(s) < 0)
		return ak_fail(err, ENOMEM, "out of memory");
	s->on_signal = event_new(s->base, s->signal_fd, EV_READ | EV_PERSIST, on_signal, s);
	s->on_tick = event_new(s->base, -1, EV_PERSIST, on_tick, s);
	s->on_stop = event_new(s->base, -1, 0, on_stop, s);
	if (!s->on_signal || !s->on_tick || !s->on_stop)
		return ak_fail(err, ENOMEM, "out of memory");
	event_add(s->on_signal, NULL);
	event_add(s->on_tick, &tick);
	return take_peers(s, err);
}

static void server_done(struct http_server *s)
{
	struct event *events[] = { s->on_signal, s->on_tick, s->on_stop };

	close_listeners(s);
	if (s->stats.routes && s->base)
		http_detached_end(s);
	for (size_t i = 0; i < ARRAY_SIZE(events); i++) {
		if (events[i])
			event_free(events[i]);
	}
	if (s->base)
		event_base_free(s->base);
	ak_close(s->signal_fd);
	ak_close(s->peer_fd);
	free(s->names);
	free(s->stats.routes);
}

int http_serve(const struct http_conf *conf, void (*ready)(void *ctx, const char *url), void *ctx, struct ak_err *err)
{
	struct http_server s = { .conf = conf, .paths = conf->paths, .signal_fd = -1, .peer_fd = -1 };
	int rc = take_signals(&s, err);

	if (rc == 0)
		rc = server_init(&s, err);
	if (rc == 0)
		rc = open_listeners(&s, err);
	if (rc == 0) {
		tell_ready(&s, ready, ctx);
		do {
			event_base_loop(s.base, EVLOOP_ONCE);
			maybe_over(&s);
		} while (!event_base_got_break(s.base));
	}
	server_done(&s);
	return rc;
}
