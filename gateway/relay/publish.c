/*
 * Published ports: connections from the host to what listens on a sandbox's own loopback.
 *
 * Theory of operation. A port has a listener in the host's network namespace and a channel to the sandbox's init (base/publish.h), which provides
 * unconnected sockets of the sandbox's network namespace. For each accepted connection:
 *
 *   ask      wait for such a socket, or for one that is connected already
 *   connect  to the port on 127.0.0.1; when nothing listens there, ask again and try ::1
 *   splice   as every TCP flow: relay/pump.c, which copies the bytes of such a flow without looking at them
 *
 * The flow's client is the sandbox and its server is the host's side, so that "out" is what leaves the sandbox, as for every other flow. The
 * connection can only be made inwards: the sandbox has no way to make the gateway accept or connect.
 */
#include "gateway/relay/flow.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/base/publish.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define ACCEPT_BUDGET 16
#define ANSWER_BUDGET 64
#define RESUME_MS 100

struct relay_publish {
	struct relay *relay; /* borrowed */
	struct relay_sandbox *sb; /* borrowed */
	struct relay_publish *next; /* the sandbox's list */
	struct ak_publish at;
	char rule[AK_PUBLISH_TEXT]; /* names the port in records */
	int listener, channel; /* owned; channel is -1 once init has closed it */
	struct event on_accept, on_answer, resume;
	uint32_t last_id;
};

static void ask(struct relay_tcp *t);

/* ---- connect ---- */

static struct ak_addr inside(const struct relay_tcp *t)
{
	static const struct ak_addr one = { .family = AF_INET6, .bytes = { [15] = 1 } };

	return t->dialled_v6 ? one : ak_addr_v4(INADDR_LOOPBACK);
}

static void client_close(struct relay_tcp *t)
{
	if (event_initialized(&t->on_client))
		event_del(&t->on_client);
	t->client = ak_close(t->client);
}

static void refused(struct relay_tcp *t)
{
	client_close(t);
	if (t->dialled_v6) {
		t->flow.target.dst = ak_addr_v4(INADDR_LOOPBACK); /* stands for both in the record */
		relay_tcp_end(t, RELAY_END_UNREACHABLE, NULL);
		return;
	}
	t->dialled_v6 = true;
	ask(t);
}

/* FD is what init sent as a socket: use it only if it is one. */
static bool is_stream(int fd, int family, int want_proto)
{
	int domain = 0, proto = 0, type = 0;
	socklen_t len = sizeof(int);

	return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) == 0 &&
		getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &proto, &len) == 0 &&
		getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) == 0 && domain == family && proto == want_proto &&
		type == SOCK_STREAM && ak_set_nonblock(fd, true) == 0;
}

/* One end of a pair, which is connected from birth. */
static bool is_pair(int fd)
{
	struct sockaddr_storage ss;
	socklen_t len = sizeof(ss);

	return is_stream(fd, AF_UNIX, 0) && getpeername(fd, (struct sockaddr *)&ss, &len) == 0;
}

static void connected(struct relay_tcp *t)
{
	t->flow.target.dst = inside(t);
	relay_tcp_join(t);
}

static void on_dialled(evutil_socket_t fd, short what, void *arg)
{
	struct relay_tcp *t = arg;
	int error = 0;
	socklen_t len = sizeof(error);

	if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) < 0)
		error = errno;
	if (error) {
		refused(t);
		return;
	}
	event_del(&t->on_client);
	connected(t);
}

/* Takes ownership of FD. */
static void dial(struct relay_tcp *t, int fd)
{
	struct ak_addr addr = inside(t);
	struct sockaddr_storage ss;
	socklen_t len = ak_addr_to_sockaddr(&addr, t->flow.target.port, &ss);
	int one = 1;

	t->client = fd;
	if (is_pair(fd)) {
		connected(t);
		return;
	}
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	if (!is_stream(fd, addr.family, IPPROTO_TCP) || (connect(fd, (struct sockaddr *)&ss, len) < 0 && errno != EINPROGRESS)) {
		refused(t);
		return;
	}
	event_assign(&t->on_client, t->flow.relay->base, fd, EV_WRITE, on_dialled, t);
	if (event_add(&t->on_client, NULL) < 0)
		relay_tcp_end(t, RELAY_END_LIMIT, "out of memory");
}

/* ---- sockets of the sandbox ---- */

static void ask(struct relay_tcp *t)
{
	struct relay_publish *p = t->published;
	struct ak_socket_ask msg = { .id = ++p->last_id, .family = inside(t).family, .port = t->flow.target.port };

	t->asked = msg.id;
	if (p->channel < 0)
		relay_tcp_end(t, RELAY_END_UNREACHABLE, "the sandbox does not respond");
	else if (ak_send_fds(p->channel, &msg, sizeof(msg), NULL, 0) < 0)
		relay_tcp_end(t, RELAY_END_LIMIT, "the sandbox does not respond");
}

static struct relay_tcp *next_of(struct relay_flow *f, const struct relay_publish *p)
{
	for (; f; f = f->next) {
		if (f->route == RELAY_ROUTE_PUBLISHED && ((struct relay_tcp *)f)->published == p)
			return (struct relay_tcp *)f;
	}
	return NULL;
}

static struct relay_tcp *find_asked(const struct relay_publish *p, uint32_t id)
{
	for (struct relay_tcp *t = next_of(p->sb->flows, p); t; t = next_of(t->flow.next, p)) {
		if (t->asked == id && t->client < 0)
			return t;
	}
	return NULL;
}

/* Late answers are for connections that have timed out. */
static void answered(struct relay_publish *p, const struct ak_socket_answer *answer, int fd, bool lost)
{
	struct relay_tcp *t = find_asked(p, answer->id);

	if (!t) {
		ak_close(fd);
		return;
	}
	t->asked = 0;
	if (fd >= 0)
		dial(t, fd);
	else if (lost)
		relay_tcp_end(t, RELAY_END_LIMIT, "out of file descriptors");
	else
		refused(t);
}

/* init has ended or breaks the protocol: nothing more can be connected. */
static void channel_lost(struct relay_publish *p)
{
	struct relay_tcp *next;

	event_del(&p->on_answer);
	p->channel = ak_close(p->channel);
	for (struct relay_tcp *t = next_of(p->sb->flows, p); t; t = next) {
		next = next_of(t->flow.next, p);
		if (t->asked)
			relay_tcp_end(t, RELAY_END_UNREACHABLE, "the sandbox does not respond");
	}
}

static void on_answer(evutil_socket_t fd, short what, void *arg)
{
	struct relay_publish *p = arg;

	for (int i = 0; i < ANSWER_BUDGET && p->channel >= 0; i++) {
		struct ak_socket_answer answer = { .id = 0 };
		size_t n_fds = 1;
		int got = -1;
		ssize_t n = ak_recv_fds(fd, &answer, sizeof(answer), &got, &n_fds);

		if (n == -EAGAIN)
			return;
		if (n != sizeof(answer) && n != -EMSGSIZE) {
			if (n > 0 && n_fds)
				ak_close(got);
			channel_lost(p);
			return;
		}
		answered(p, &answer, n > 0 && n_fds ? got : -1, n == -EMSGSIZE);
	}
}

/* ---- accept ---- */

static void on_resume(evutil_socket_t fd, short what, void *arg)
{
	struct relay_publish *p = arg;

	event_add(&p->on_accept, NULL);
}

/* Out of descriptors: leave the others in the backlog for a moment. */
static void pause_accepting(struct relay_publish *p)
{
	static const struct timeval delay = { .tv_usec = RESUME_MS * 1000 };

	event_del(&p->on_accept);
	event_add(&p->resume, &delay);
}

static void accepted(struct relay_publish *p, int fd)
{
	const struct relay_target target = { .dst = ak_addr_v4(INADDR_LOOPBACK), .port = p->at.port, .proto = POLICY_TCP };
	struct relay_tcp *t = relay_tcp_new(p->relay, p->sb, &target);
	int one = 1;

	if (!t) {
		ak_close(fd);
		return;
	}
	t->server = fd;
	t->published = p;
	t->flow.route = RELAY_ROUTE_PUBLISHED;
	t->state = RELAY_DIAL;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	t->flow.decision =
		(struct policy_decision){ .allow = true, .reason = POLICY_REASON_RULE, .policy = "publish", .rule = p->rule };
	if (!relay_flow_admit_published(&t->flow)) {
		relay_tcp_end(t, t->flow.end, t->flow.detail);
		return;
	}
	relay_flow_link(&t->flow);
	relay_timer_arm(&t->flow, p->relay->conf.connect_timeout_ms);
	ask(t);
}

static void on_accept(evutil_socket_t listener, short what, void *arg)
{
	struct relay_publish *p = arg;

	for (int i = 0; i < ACCEPT_BUDGET; i++) {
		int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd >= 0) {
			accepted(p, fd);
			continue;
		}
		if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
			pause_accepting(p);
		if (errno != ECONNABORTED && errno != EINTR)
			return;
	}
}

/* ---- begin and end ---- */

static void publish_free(struct relay_publish *p, enum relay_end end, const char *detail)
{
	struct relay_tcp *t;

	/* The port first: a client whose connection is cut must not find it open. */
	event_del(&p->on_accept);
	event_del(&p->resume);
	ak_close(p->listener);
	while ((t = next_of(p->sb->flows, p)))
		relay_tcp_end(t, end, detail);
	if (p->channel >= 0)
		event_del(&p->on_answer);
	ak_close(p->channel);
	free(p);
}

static struct relay_publish **find(struct relay_sandbox *sb, const struct ak_publish *at)
{
	struct relay_publish **p = &sb->published;

	while (*p && !ak_publish_clash(&(*p)->at, at))
		p = &(*p)->next;
	return p;
}

int relay_publish(struct relay *r, struct relay_sandbox *sb, const struct ak_publish *at, int listener, int channel)
{
	struct relay_publish *p, **end = find(sb, at);
	size_t n = 0;

	for (p = sb->published; p; p = p->next)
		n++;
	p = !*end && n < AK_PUBLISH_MAX && sb->pprev ? calloc(1, sizeof(*p)) : NULL;
	if (!p) {
		ak_close(listener);
		ak_close(channel);
		return *end ? -EEXIST : -ENOBUFS;
	}
	*p = (struct relay_publish){ .relay = r, .sb = sb, .at = *at, .listener = listener, .channel = channel };
	ak_publish_host(at, p->rule);
	*end = p;
	event_assign(&p->on_accept, r->base, listener, EV_READ | EV_PERSIST, on_accept, p);
	event_assign(&p->on_answer, r->base, channel, EV_READ | EV_PERSIST, on_answer, p);
	event_assign(&p->resume, r->base, -1, 0, on_resume, p);
	if (event_add(&p->on_accept, NULL) == 0 && event_add(&p->on_answer, NULL) == 0)
		return 0;
	*end = NULL;
	publish_free(p, RELAY_END_STOPPED, NULL);
	return -ENOMEM;
}

int relay_unpublish(struct relay_sandbox *sb, const struct ak_publish *at)
{
	struct relay_publish **p = find(sb, at), *gone = *p;

	if (!gone)
		return -ENOENT;
	*p = gone->next;
	publish_free(gone, RELAY_END_REVOKED, "the port is no longer published");
	return 0;
}

void relay_unpublish_all(struct relay_sandbox *sb)
{
	struct relay_publish *p;

	while ((p = sb->published)) {
		sb->published = p->next;
		publish_free(p, RELAY_END_STOPPED, NULL);
	}
}
