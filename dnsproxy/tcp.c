/*
 * DNS over TCP (RFC 7766): frames of a 16-bit length and a message, pipelined.
 *
 * Theory: a connection has one fixed input buffer and one bounded output buffer. It stops reading while too many queries are
 * unanswered or too much is unsent, so its memory is bounded. Its deadline moves only when a complete frame arrives or an
 * answer is sent: single octets do not extend it. At the limit, a new connection replaces the sandbox's longest idle one.
 */
#include "dnsproxy/internal.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"

#include <event2/event.h>
#include <string.h>
#include <sys/socket.h>

#define CONNS_PER_CLIENT 32
#define CONNS_MAX 1024
#define QUESTION_MAX 4096 /* far larger than any legitimate query; a longer frame closes the connection */
#define UNANSWERED_MAX 64 /* pipelined queries in flight per connection */
#define UNSENT_MAX 32768 /* stop reading queries while this much output is pending */
#define QUIET_S 10
#define ACCEPT_AT_ONCE 16
#define ACCEPT_PAUSE_MS 100

struct dns_conn {
	TAILQ_ENTRY(dns_conn) of_client;
	struct dns_tcp *tcp; /* borrowed */
	struct dns_client *client; /* borrowed: frees us first */
	struct event *read, *write, *deadline; /* owned */
	int fd; /* owned */
	uint32_t slot, generation;
	unsigned unanswered;
	bool ended; /* the client has closed its sending side */
	size_t in_len;
	size_t out_len, out_off, out_cap;
	uint8_t *out; /* owned */
	uint8_t in[2 + QUESTION_MAX];
};

struct dns_tcp {
	struct dns_proxy *proxy; /* borrowed */
	int fds[2]; /* owned */
	struct event *events[2]; /* owned */
	struct event *pause; /* owned: resumes accepting */
	struct dns_conn *conns[CONNS_MAX];
	uint32_t generations[CONNS_MAX];
	uint32_t first_free; /* all lower slots are in use */
};

static const struct timeval quiet = { .tv_sec = QUIET_S };

static void conn_free(struct dns_conn *conn)
{
	struct dns_tcp *tcp = conn->tcp;

	if (tcp->conns[conn->slot] == conn) {
		tcp->conns[conn->slot] = NULL;
		if (conn->slot < tcp->first_free)
			tcp->first_free = conn->slot;
		TAILQ_REMOVE(&conn->client->conns, conn, of_client);
		conn->client->n_conns--;
	}
	if (conn->read)
		event_free(conn->read);
	if (conn->write)
		event_free(conn->write);
	if (conn->deadline)
		event_free(conn->deadline);
	ak_close(conn->fd);
	free(conn->out);
	free(conn);
}

/* A complete frame arrived or an answer left: restart the deadline and move the connection to the end of the idle list. */
static void conn_touch(struct dns_conn *conn)
{
	TAILQ_REMOVE(&conn->client->conns, conn, of_client);
	TAILQ_INSERT_TAIL(&conn->client->conns, conn, of_client);
	evtimer_add(conn->deadline, &quiet);
}

/* ---- output ---- */

static bool out_room(struct dns_conn *conn, size_t n)
{
	size_t cap = conn->out_cap ? conn->out_cap : 1024;
	uint8_t *out;

	if (conn->out_off > 0) {
		memmove(conn->out, conn->out + conn->out_off, conn->out_len - conn->out_off);
		conn->out_len -= conn->out_off;
		conn->out_off = 0;
	}
	while (cap < conn->out_len + n)
		cap *= 2;
	if (cap == conn->out_cap)
		return true;
	out = realloc(conn->out, cap);
	if (!out)
		return false;
	conn->out = out;
	conn->out_cap = cap;
	return true;
}

/*
 * Only queues the reply: the caller may be reading from this connection. The queue is bounded, because each reply belongs to a
 * query that was read within the limits above.
 */
void dns_tcp_send(struct dns_tcp *tcp, const struct dns_origin *origin, const uint8_t *msg, size_t len)
{
	struct dns_conn *conn = tcp->conns[origin->conn.slot];

	if (!conn || conn->generation != origin->conn.generation)
		return;
	if (conn->unanswered > 0)
		conn->unanswered--;
	if (len > UINT16_MAX || !out_room(conn, len + 2)) {
		tcp->proxy->stats.dropped++;
		return;
	}
	conn->out[conn->out_len++] = (uint8_t)(len >> 8);
	conn->out[conn->out_len++] = (uint8_t)len;
	memcpy(conn->out + conn->out_len, msg, len);
	conn->out_len += len;
	event_add(conn->write, NULL);
}

/* False if the connection must be closed. */
static bool conn_write(struct dns_conn *conn)
{
	while (conn->out_off < conn->out_len) {
		ssize_t n = send(conn->fd, conn->out + conn->out_off, conn->out_len - conn->out_off, MSG_DONTWAIT | MSG_NOSIGNAL);

		if (n < 0)
			return errno == EAGAIN || errno == EINTR;
		conn->out_off += (size_t)n;
		conn_touch(conn);
	}
	conn->out_off = conn->out_len = 0;
	if (conn->out_cap > UNSENT_MAX) {
		free(conn->out);
		conn->out = NULL;
		conn->out_cap = 0;
	}
	event_del(conn->write);
	return true;
}

/* ---- input ---- */

static bool may_take(const struct dns_conn *conn)
{
	return conn->unanswered < UNANSWERED_MAX && conn->out_len - conn->out_off < UNSENT_MAX;
}

static size_t frame_len(const struct dns_conn *conn)
{
	return conn->in_len < 2 ? 0 : (size_t)(conn->in[0] << 8 | conn->in[1]);
}

static void report_oversized(const struct dns_conn *conn)
{
	const struct dns_hooks *hooks = &conn->tcp->proxy->hooks;
	struct dns_event event = { .outcome = DNS_OUTCOME_MALFORMED, .name = "", .detail = "oversized or empty TCP frame" };

	conn->tcp->proxy->stats.queries++;
	hooks->event(hooks->ctx, conn->client->sandbox, &event);
}

/* Process the complete frames in the buffer. False: close the connection. */
static bool take_frames(struct dns_conn *conn)
{
	struct dns_origin origin = {
		.tcp = true,
		.arrived_us = conn->tcp->proxy->now_us,
		.conn = { .slot = conn->slot, .generation = conn->generation },
	};
	size_t off = 0;

	while (conn->in_len - off >= 2 && may_take(conn)) {
		size_t len = (size_t)(conn->in[off] << 8 | conn->in[off + 1]);

		if (len < DNS_WIRE_HEADER || len > QUESTION_MAX) {
			report_oversized(conn);
			return false;
		}
		if (conn->in_len - off < 2 + len)
			break;
		conn->unanswered++;
		conn_touch(conn);
		dns_query_handle(conn->client, &origin, conn->in + off + 2, len);
		off += 2 + len;
	}
	memmove(conn->in, conn->in + off, conn->in_len - off);
	conn->in_len -= off;
	return true;
}

/* Wait for input only if the buffer has room. */
static void set_interest(struct dns_conn *conn)
{
	bool whole = conn->in_len >= 2 && conn->in_len >= 2 + frame_len(conn);

	if (conn->ended || whole || conn->in_len == sizeof(conn->in))
		event_del(conn->read);
	else
		event_add(conn->read, NULL);
}

/* Process buffered input and output; frees the connection at its end. */
static void conn_pump(struct dns_conn *conn)
{
	bool alive = take_frames(conn) && conn_write(conn);

	/* writing may have made room for frames that are already buffered */
	while (alive && may_take(conn) && conn->in_len >= 2 && conn->in_len >= 2 + frame_len(conn))
		alive = take_frames(conn) && conn_write(conn);
	if (!alive || (conn->ended && conn->unanswered == 0 && conn->out_len == 0)) {
		conn_free(conn);
		return;
	}
	set_interest(conn);
}

static void on_conn_read(evutil_socket_t fd, short what, void *arg)
{
	struct dns_conn *conn = arg;
	ssize_t n = recv(fd, conn->in + conn->in_len, sizeof(conn->in) - conn->in_len, MSG_DONTWAIT);

	dns_proxy_wake(conn->tcp->proxy);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n < 0) {
		conn_free(conn);
		return;
	}
	if (n == 0)
		conn->ended = true;
	conn->in_len += (size_t)n;
	conn_pump(conn);
}

static void on_conn_write(evutil_socket_t fd, short what, void *arg)
{
	struct dns_conn *conn = arg;

	dns_proxy_wake(conn->tcp->proxy);
	conn_pump(conn);
}

static void on_conn_deadline(evutil_socket_t fd, short what, void *arg)
{
	struct dns_conn *conn = arg;

	/* The upstream is slow, not the client: queries in flight have their own timeouts. */
	if (conn->unanswered > 0 && conn->out_len == 0)
		evtimer_add(conn->deadline, &quiet);
	else
		conn_free(conn);
}

/* ---- accept ---- */

/* Make room for one more connection of C; closes the longest idle one if needed. */
static bool make_room(struct dns_client *c)
{
	struct dns_conn *conn;

	if (c->n_conns < CONNS_PER_CLIENT)
		return true;
	TAILQ_FOREACH(conn, &c->conns, of_client) {
		if (conn->unanswered > 0)
			continue;
		conn_free(conn);
		return true;
	}
	return false;
}

static bool conn_start(struct dns_tcp *tcp, struct dns_conn *conn)
{
	struct event_base *base = tcp->proxy->base;

	conn->read = event_new(base, conn->fd, EV_READ | EV_PERSIST, on_conn_read, conn);
	conn->write = event_new(base, conn->fd, EV_WRITE | EV_PERSIST, on_conn_write, conn);
	conn->deadline = evtimer_new(base, on_conn_deadline, conn);
	return conn->read && conn->write && conn->deadline && event_add(conn->read, NULL) == 0 &&
		evtimer_add(conn->deadline, &quiet) == 0;
}

static void conn_open(struct dns_tcp *tcp, int fd, struct dns_client *c)
{
	struct dns_conn *conn;
	uint32_t slot = tcp->first_free;

	if (!make_room(c)) {
		ak_close(fd);
		return;
	}
	if (tcp->first_free < slot)
		slot = tcp->first_free;
	while (slot < CONNS_MAX && tcp->conns[slot])
		slot++;
	conn = slot < CONNS_MAX ? malloc(sizeof(*conn)) : NULL;
	if (!conn) {
		ak_close(fd);
		return;
	}
	memset(conn, 0, offsetof(struct dns_conn, in));
	tcp->first_free = slot + 1;
	conn->tcp = tcp;
	conn->client = c;
	conn->fd = fd;
	conn->slot = slot;
	conn->generation = ++tcp->generations[slot];
	tcp->conns[slot] = conn;
	TAILQ_INSERT_TAIL(&c->conns, conn, of_client);
	c->n_conns++;
	if (!conn_start(tcp, conn))
		conn_free(conn);
}

static void accept_pause(struct dns_tcp *tcp)
{
	static const struct timeval pause = { .tv_usec = ACCEPT_PAUSE_MS * 1000 };

	for (size_t i = 0; i < 2; i++)
		if (tcp->events[i])
			event_del(tcp->events[i]);
	evtimer_add(tcp->pause, &pause);
}

static void on_pause_over(evutil_socket_t fd, short what, void *arg)
{
	struct dns_tcp *tcp = arg;

	for (size_t i = 0; i < 2; i++)
		if (tcp->events[i])
			event_add(tcp->events[i], NULL);
}

static void on_accept(evutil_socket_t listener, short what, void *arg)
{
	struct dns_tcp *tcp = arg;
	const struct dns_hooks *hooks = &tcp->proxy->hooks;

	for (unsigned i = 0; i < ACCEPT_AT_ONCE; i++) {
		struct sockaddr_storage ss;
		socklen_t len = sizeof(ss);
		struct dns_client *c;
		struct ak_addr src;
		int fd = accept4(listener, (struct sockaddr *)&ss, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (fd < 0) {
			if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)
				accept_pause(tcp);
			return;
		}
		src = ak_addr_from_sockaddr(&ss, NULL);
		c = hooks->client_of(hooks->ctx, 0, &src);
		if (c) {
			conn_open(tcp, fd, c);
		} else {
			tcp->proxy->stats.dropped++;
			ak_close(fd);
		}
	}
}

/* ---- create and free ---- */

static int watch(struct dns_tcp *tcp, unsigned sock)
{
	int fd = tcp->fds[sock], rc;

	if (fd < 0)
		return 0;
	rc = ak_set_nonblock(fd, true);
	if (rc < 0)
		return rc;
	tcp->events[sock] = event_new(tcp->proxy->base, fd, EV_READ | EV_PERSIST, on_accept, tcp);
	if (!tcp->events[sock] || event_add(tcp->events[sock], NULL) < 0)
		return -ENOMEM;
	return 0;
}

int dns_tcp_new(struct dns_proxy *proxy, int fd4, int fd6, struct dns_tcp **ret, struct ak_err *err)
{
	struct dns_tcp *tcp = calloc(1, sizeof(*tcp));
	int rc;

	if (!tcp) {
		ak_close(fd4);
		ak_close(fd6);
		return ak_fail(err, ENOMEM, "out of memory");
	}
	tcp->proxy = proxy;
	tcp->fds[0] = fd4;
	tcp->fds[1] = fd6;
	tcp->pause = evtimer_new(proxy->base, on_pause_over, tcp);
	rc = tcp->pause ? watch(tcp, 0) : -ENOMEM;
	if (rc == 0)
		rc = watch(tcp, 1);
	if (rc < 0) {
		dns_tcp_free(tcp);
		return ak_fail_errno(err, -rc, "cannot watch the DNS listeners");
	}
	*ret = tcp;
	return 0;
}

void dns_tcp_free(struct dns_tcp *tcp)
{
	if (!tcp)
		return;
	for (size_t i = 0; i < 2; i++) {
		if (tcp->events[i])
			event_free(tcp->events[i]);
		ak_close(tcp->fds[i]);
	}
	if (tcp->pause)
		event_free(tcp->pause);
	free(tcp);
}

void dns_tcp_drop(struct dns_client *c)
{
	struct dns_conn *conn;

	while ((conn = TAILQ_FIRST(&c->conns)) != NULL)
		conn_free(conn);
}
