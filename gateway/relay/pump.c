/*
 * Moves bytes between the two sockets of a TCP flow.
 *
 * Sockets are watched edge-triggered: each direction remembers that its source may have bytes and its destination may have
 * room, until a call returns EAGAIN. A direction reads only when nothing waits in it. This provides back pressure and makes
 * EAGAIN from splice unambiguous (an empty pipe has room). After a few rounds the flow lets others run and goes back to
 * the queue.
 */
#include "gateway/relay/flow.h"

#include "gateway/base/cleanup.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define ROUNDS 8
#define LOOK_ROUNDS 4 /* inspection takes longer: it counts as this many rounds */
#define LOOK_BYTES HTTP_HEAD_MAX /* buffer of every flow: fits a request head and nearly every ClientHello */
#define LARGE_PER_SANDBOX 32 /* flows that may buffer TLS_HELLO_MAX at the same time */
#define COPY_BYTES 65536

/* ---- buffers ---- */

static int dir_room(struct relay_dir *d, size_t max)
{
	size_t cap = d->cap ? d->cap * 2 : 4096;
	uint8_t *buf;

	if (d->len < d->cap)
		return 0;
	if (cap > max)
		cap = max;
	if (cap <= d->len)
		return -ENOBUFS;
	buf = realloc(d->buf, cap);
	if (!buf)
		return -ENOMEM;
	d->buf = buf;
	d->cap = cap;
	return 0;
}

/* Read once into D's buffer. Returns the count, 0 at the end, -EAGAIN or another -errno. */
static ssize_t dir_read(struct relay_dir *d, int fd, size_t max)
{
	int rc = dir_room(d, max);
	size_t end;
	ssize_t n;

	if (rc < 0)
		return rc;
	end = d->cap < max ? d->cap : max;
	if (end <= d->len)
		return -ENOBUFS;
	do {
		n = recv(fd, d->buf + d->len, end - d->len, MSG_DONTWAIT);
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	d->len += (size_t)n;
	return n;
}

void relay_large_done(struct relay_tcp *t)
{
	if (t->large)
		t->flow.sb->n_large--;
	t->large = false;
}

ssize_t relay_look_read(struct relay_tcp *t)
{
	if (t->out.len < LOOK_BYTES)
		return dir_read(&t->out, t->client, LOOK_BYTES);
	if (!t->large && t->flow.sb->n_large >= LARGE_PER_SANDBOX)
		return -EDQUOT;
	t->flow.sb->n_large += t->large ? 0 : 1;
	t->large = true;
	return dir_read(&t->out, t->client, TLS_HELLO_MAX);
}

void relay_dir_done(struct relay *r, struct relay_dir *d)
{
	relay_pipe_put(&r->pipes, d->pipe, d->piped == 0);
	free(d->buf);
	memset(d, 0, sizeof(*d));
}

/* Free buffer and pipe of an empty direction. */
static void dir_rest(struct relay *r, struct relay_dir *d)
{
	if (!d->piped) {
		relay_pipe_put(&r->pipes, d->pipe, true);
		d->pipe = NULL;
	}
	if (!d->len) {
		free(d->buf);
		d->buf = NULL;
		d->cap = 0;
	}
}

/* ---- one direction ---- */

struct way {
	struct relay_tcp *t;
	struct relay_dir *d;
	int src, dst;
	bool out;
};

static size_t way_clamp(const struct way *w, size_t n)
{
	uint64_t left = w->out ? relay_egress_left(w->t->flow.sb) : UINT64_MAX;

	return left < n ? (size_t)left : n;
}

/* Handle the result RC of a write: 1 if it made progress, 0 if there is no room, -1 if the flow ends. */
static int way_wrote(const struct way *w, ssize_t rc)
{
	if (rc > 0) {
		relay_flow_count(&w->t->flow, w->out, (uint64_t)rc);
		return 1;
	}
	if (rc < 0 && errno == EINTR)
		return 1;
	if (rc == 0 || errno == EAGAIN) {
		w->d->writable = false;
		return 0;
	}
	return relay_flow_fail(&w->t->flow, RELAY_END_RESET, w->out ? "reset by the far side" : "reset by the sandbox");
}

static int way_over_limit(const struct way *w)
{
	w->t->flow.decision = (struct policy_decision){
		.reason = POLICY_REASON_RULE, .policy = policy_name(w->t->flow.sb->policy), .rule = "limits.egress_bytes"
	};
	return relay_flow_fail(&w->t->flow, RELAY_END_LIMIT, "egress limit reached");
}

/* Write the judged part of the buffer; 1 if all of it was written. */
static int flush_buf(const struct way *w)
{
	struct relay_dir *d = w->d;

	while (d->ready) {
		size_t n = way_clamp(w, d->ready);
		ssize_t sent;
		int rc;

		if (!n)
			return way_over_limit(w);
		sent = send(w->dst, d->buf, n, MSG_NOSIGNAL | MSG_DONTWAIT);
		rc = way_wrote(w, sent);
		if (rc <= 0)
			return rc;
		if (sent > 0) {
			d->len -= (size_t)sent;
			d->ready -= (size_t)sent;
			memmove(d->buf, d->buf + sent, d->len);
		}
	}
	return 1;
}

static int flush_pipe(const struct way *w)
{
	struct relay_dir *d = w->d;

	while (d->piped) {
		size_t n = way_clamp(w, d->piped);
		ssize_t sent;
		int rc;

		if (!n)
			return way_over_limit(w);
		sent = splice(d->pipe->fd[0], NULL, w->dst, NULL, n, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
		rc = way_wrote(w, sent);
		if (rc <= 0)
			return rc;
		if (sent > 0)
			d->piped -= (size_t)sent;
	}
	return 1;
}

/* Handle the result RC of a read (a count or -errno); 1 if there is something to do. */
static int way_read(const struct way *w, ssize_t rc)
{
	if (rc > 0 || rc == -EINTR)
		return 1;
	if (rc == 0) {
		w->d->eof = true;
		w->d->readable = false;
		return 1;
	}
	if (rc == -EAGAIN) {
		w->d->readable = false;
		return 0;
	}
	if (rc == -EDQUOT)
		return relay_flow_fail(&w->t->flow, RELAY_END_LIMIT, RELAY_TOO_LARGE);
	if (rc == -ENOMEM || rc == -ENOBUFS)
		return relay_flow_fail(&w->t->flow, RELAY_END_RESET, "out of memory");
	return relay_flow_fail(&w->t->flow, RELAY_END_RESET, w->out ? "reset by the sandbox" : "reset by the far side");
}

/* Move at most MAX bytes into the pipe without inspecting them; *RET_N is the count. */
static int fill_blind(const struct way *w, uint64_t max, size_t *ret_n)
{
	struct relay_dir *d = w->d;
	ssize_t n;

	/* The sandbox shares its socket of a published port and could make it blocking, which only splice(2) heeds: copy instead. */
	if (!d->pipe && !w->t->published)
		d->pipe = relay_pipe_get(&w->t->flow.relay->pipes);
	if (!d->pipe) {
		n = dir_read(d, w->src, max < COPY_BYTES ? (size_t)max : COPY_BYTES);
		d->ready = d->len;
	} else {
		n = splice(w->src, NULL, d->pipe->fd[1], NULL, max < d->pipe->size ? (size_t)max : d->pipe->size,
			SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
		n = n < 0 ? -errno : n;
		d->piped += n > 0 ? (size_t)n : 0;
	}
	*ret_n = n > 0 ? (size_t)n : 0;
	return way_read(w, n);
}

/* The rest of a body with known length needs no inspection, nor does the rest of a long chunk. */
static bool body_is_blind(const struct relay_tcp *t)
{
	if (t->inspect != RELAY_INSPECT_HTTP || !t->in_body || t->out.len)
		return false;
	return t->body.state == HTTP_BODY_LENGTH || (t->body.state == HTTP_BODY_DATA && t->body.left >= LOOK_BYTES);
}

static int fill_body(const struct way *w)
{
	struct relay_tcp *t = w->t;
	size_t n;
	int rc = fill_blind(w, t->body.left, &n);

	http_body_skip(&t->body, n);
	t->in_body = t->body.state != HTTP_BODY_DONE;
	return rc;
}

static int fill_looked(const struct way *w)
{
	struct relay_tcp *t = w->t;
	ssize_t n;
	int rc;

	if (t->upgrade == RELAY_UPGRADE_ASKED)
		return 0;
	if (body_is_blind(t))
		return fill_body(w);
	n = relay_look_read(t);
	rc = way_read(w, n);
	if (rc <= 0 || n <= 0)
		return rc;
	return relay_tcp_look(t) == RELAY_LOOK_CUT ? -1 : 1;
}

/*
 * Parse the server's response to a WebSocket upgrade before forwarding it: after 101 the sandbox's bytes are no longer HTTP,
 * after any other status they still are. 1 if the result is known.
 */
static int fill_upgrade(const struct way *w)
{
	static const char yes[] = "HTTP/1.1 101";
	struct relay_tcp *t = w->t;
	char start[sizeof(yes) - 1];
	ssize_t n = recv(w->src, start, sizeof(start), MSG_PEEK);
	bool same = n > 0 && memcmp(start, yes, (size_t)n) == 0;

	if (n < 0)
		return way_read(w, -errno);
	if (n == 0)
		way_read(w, 0);
	if (same && (size_t)n < sizeof(start)) {
		w->d->readable = false;
		return 0;
	}
	t->upgrade = same ? RELAY_UPGRADE_DONE : RELAY_UPGRADE_NONE;
	if (same)
		t->inspect = RELAY_INSPECT_OFF;
	return relay_tcp_look(t) == RELAY_LOOK_CUT ? -1 : 1;
}

static int way_fill(const struct way *w)
{
	size_t n;
	int rc;

	if (w->out && w->t->inspect != RELAY_INSPECT_OFF)
		return fill_looked(w);
	if (!w->out && w->t->upgrade == RELAY_UPGRADE_ASKED) {
		rc = fill_upgrade(w);
		if (rc <= 0 || w->d->eof)
			return rc;
	}
	return fill_blind(w, SIZE_MAX, &n);
}

/* The source has ended and the judged bytes were written: shut the destination down. */
static void way_finish(const struct way *w)
{
	struct relay_dir *d = w->d;

	if (d->shut)
		return;
	/* Drop the bytes of an incomplete request. (An incomplete ClientHello never gets here.) */
	if (d->len && w->out && w->t->upgrade == RELAY_UPGRADE_ASKED)
		return;
	shutdown(w->dst, SHUT_WR);
	d->shut = true;
}

static bool way_release_rest(const struct way *w)
{
	struct relay_tcp *t = w->t;

	if (!w->out || !w->d->len || t->upgrade == RELAY_UPGRADE_ASKED)
		return false;
	if (t->must_read || (t->inspect == RELAY_INSPECT_HTTP && t->flow.route == RELAY_ROUTE_NAMED))
		return false;
	t->inspect = RELAY_INSPECT_OFF;
	w->d->ready = w->d->len;
	return true;
}

/* Number of rounds that the next one counts as. */
static int way_cost(const struct way *w)
{
	return w->out && w->t->inspect != RELAY_INSPECT_OFF && !body_is_blind(w->t) ? LOOK_ROUNDS : 1;
}

/* 0 if this direction waits, 1 if it used up its turn, -1 if the flow is to end. */
static int way_pump(const struct way *w)
{
	struct relay_dir *d = w->d;
	int rc, cost;

	for (int left = ROUNDS; left > 0; left -= cost) {
		cost = 1;
		if ((d->ready || d->piped) && !d->writable)
			return 0;
		rc = flush_buf(w);
		rc = rc <= 0 ? rc : flush_pipe(w);
		if (rc <= 0)
			return rc;
		if (d->eof && way_release_rest(w))
			continue;
		if (d->eof)
			way_finish(w);
		cost = way_cost(w);
		rc = d->eof || !d->readable ? 0 : way_fill(w);
		if (rc <= 0) {
			dir_rest(w->t->flow.relay, d);
			if (w->out && !d->len)
				relay_large_done(w->t);
			return rc;
		}
	}
	return 1;
}

/* ---- both directions ---- */

int relay_pump(struct relay_tcp *t)
{
	const struct way out = { t, &t->out, t->client, t->server, true };
	const struct way in = { t, &t->in, t->server, t->client, false };
	bool asked = t->upgrade == RELAY_UPGRADE_ASKED;
	int a = way_pump(&out), b;

	if (a < 0)
		return a;
	b = way_pump(&in);
	if (b < 0)
		return b;
	if (t->out.shut && t->in.shut)
		return relay_flow_fail(&t->flow, RELAY_END_CLOSED, NULL);
	/* The response to an upgrade unblocks the other direction. */
	if (asked && t->upgrade != RELAY_UPGRADE_ASKED)
		return 1;
	return a > b ? a : b;
}
