/*
 * Connections to the API: read a request with strict parsing and limits, turn it into a call, answer it. See http/http.h.
 *
 * Theory of operation. A kept-alive connection cycles through HEAD → BODY → BUSY. LINGER follows the last answer: we read and drop what the
 * client still sends for a while, so that a TCP reset does not destroy the answer. Whatever the head alone decides (Host, key, route,
 * length) is refused before any byte of the body is stored. While BUSY the connection keeps reading, only to notice when the client
 * disconnects. Of pipelined requests we answer a few, then serve other connections; and none while the client does not read its
 * answers.
 */
#include "gateway/http/conn.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/base/jsonscan.h"

#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define HEAD_MS 10000 /* timeout for a complete head, from its first byte or from the start of the connection */
#define BODY_MS 120000
#define IDLE_MS 75000
#define LINGER_MS 2000
#define WRITE_S 60 /* close the connection when the client reads nothing for this long */
#define AHEAD_MAX (64u << 10) /* bytes that a client may send before its answer */
#define TURN_MAX 8 /* requests answered before other connections are served */

static void process(struct http_conn *conn);

/* ---- opening and closing ---- */

static void set_deadline(struct http_conn *conn, unsigned ms)
{
	struct timeval tv = { ms / 1000, (ms % 1000) * 1000 };

	if (ms)
		event_add(conn->on_deadline, &tv);
	else
		event_del(conn->on_deadline);
}

void http_conn_free(struct http_conn *conn)
{
	struct http_call *call = conn->call;
	struct http_server *s = conn->s;

	if (!conn->listed)
		return;
	conn->listed = false;
	TAILQ_REMOVE(&s->conns, conn, link);
	s->n_conns--;
	s->n_strangers -= !conn->known;
	if (call) {
		conn->call = NULL;
		call->conn = NULL;
		if (call->gone)
			call->gone(call);
	}
	event_free(conn->on_deadline);
	event_free(conn->on_turn);
	s->held -= evbuffer_get_length(bufferevent_get_output(conn->bev));
	bufferevent_free(conn->bev);
	http_request_done(&conn->req);
	free(conn->params.path);
	strbuf_done(&conn->body);
	free(conn);
}

static void linger(struct http_conn *conn)
{
	conn->state = CONN_LINGER;
	conn->closing = true;
	set_deadline(conn, LINGER_MS);
}

static void on_deadline(evutil_socket_t fd, short what, void *arg)
{
	struct http_conn *conn = arg;
	bool partial = conn->state == CONN_BODY ||
		(conn->state == CONN_HEAD && evbuffer_get_length(bufferevent_get_input(conn->bev)) > 0);

	if (!partial) {
		http_conn_free(conn);
		return;
	}
	http_conn_refuse(conn, 408, "the request did not arrive in time");
}

static void on_read(struct bufferevent *bev, void *arg)
{
	struct http_conn *conn = arg;

	if (!evtimer_pending(conn->on_turn, NULL))
		process(conn);
}

static void on_turn(evutil_socket_t fd, short what, void *arg)
{
	process(arg);
}

static void on_write(struct bufferevent *bev, void *arg)
{
	struct http_conn *conn = arg;
	bool empty = evbuffer_get_length(bufferevent_get_output(bev)) == 0;

	if (conn->eof && conn->state == CONN_LINGER && empty)
		http_conn_free(conn);
	else if (conn->state == CONN_LINGER && empty)
		shutdown(bufferevent_getfd(bev), SHUT_WR);
	else if (conn->call && conn->call->streaming && conn->call->drained)
		conn->call->drained(conn->call);
	else if (conn->state == CONN_HEAD)
		on_read(bev, conn);
}

/* The client reads its answers too slowly: do not write more. */
static bool is_behind(const struct http_conn *conn)
{
	return evbuffer_get_length(bufferevent_get_output(conn->bev)) > HTTP_STREAM_HIGH;
}

/* The client has closed its sending side, and all complete requests have been handled. */
static void after_eof(struct http_conn *conn)
{
	if (conn->call || evbuffer_get_length(bufferevent_get_output(conn->bev)) == 0)
		http_conn_free(conn); /* a client that still waits for an answer has disconnected */
	else
		conn->state = CONN_LINGER;
}

static void on_event(struct bufferevent *bev, short what, void *arg)
{
	struct http_conn *conn = arg;

	/* A client that only closed its sending side still gets the finished answers, and answers to its pipelined requests. */
	if (!(what & BEV_EVENT_EOF) || conn->call) {
		http_conn_free(conn);
		return;
	}
	conn->eof = true;
	bufferevent_disable(bev, EV_READ);
	if (!evtimer_pending(conn->on_turn, NULL) && !is_behind(conn))
		after_eof(conn);
}

/* Takes FD over. On out of memory, closes FD and returns NULL. */
static struct http_conn *conn_new(struct http_server *s, int fd)
{
	struct http_conn *conn = calloc(1, sizeof(*conn));

	if (conn) {
		conn->s = s;
		conn->bev = bufferevent_socket_new(s->base, fd, BEV_OPT_CLOSE_ON_FREE);
		conn->on_deadline = event_new(s->base, -1, 0, on_deadline, conn);
		conn->on_turn = event_new(s->base, -1, 0, on_turn, conn);
	}
	if (conn && conn->bev && conn->on_deadline && conn->on_turn)
		return conn;
	if (conn && conn->on_deadline)
		event_free(conn->on_deadline);
	if (conn && conn->on_turn)
		event_free(conn->on_turn);
	if (conn && conn->bev)
		bufferevent_free(conn->bev);
	else
		ak_close(fd);
	free(conn);
	return NULL;
}

void http_conn_accept(struct http_server *s, int fd)
{
	struct http_conn *conn = conn_new(s, fd);
	struct timeval patience = { WRITE_S, 0 };
	struct sockaddr_storage ss = { 0 };
	socklen_t len = sizeof(ss);
	bool full;

	if (!conn)
		return;
	if (getsockname(fd, (struct sockaddr *)&ss, &len) == 0)
		conn->local = ak_addr_from_sockaddr(&ss, NULL);
	http_room_look(conn, fd);
	full = !http_room_make(conn);
	conn->known = conn->known && !full; /* a connection that is only refused counts as a stranger */
	TAILQ_INSERT_TAIL(&s->conns, conn, link);
	conn->listed = true;
	s->n_conns++;
	s->n_strangers += !conn->known;
	s->stats.connections++;
	http_hold(s, bufferevent_get_output(conn->bev));
	bufferevent_setcb(conn->bev, on_read, on_write, on_event, conn);
	bufferevent_set_timeouts(conn->bev, NULL, &patience);
	bufferevent_setwatermark(conn->bev, EV_READ, 0, 2 * AHEAD_MAX);
	bufferevent_setwatermark(conn->bev, EV_WRITE, HTTP_STREAM_LOW, 0);
	bufferevent_enable(conn->bev, EV_READ | EV_WRITE);
	set_deadline(conn, HEAD_MS);
	if (full)
		http_conn_refuse(conn, 429, "too many connections");
}

void http_conns_finish(struct http_server *s, bool all)
{
	struct http_conn *conn = TAILQ_FIRST(&s->conns), *next;

	for (; conn; conn = next) {
		next = TAILQ_NEXT(conn, link);
		if (all || !conn->call)
			http_conn_free(conn);
		else
			conn->closing = true;
	}
}

/* ---- a request's head ---- */

static unsigned status_of_fault(enum http_fault fault)
{
	switch (fault) {
	case HTTP_FAULT_SYNTAX:
		return 400;
	case HTTP_FAULT_LENGTH:
		return 431;
	case HTTP_FAULT_VERSION:
		return 505;
	}
	return 400;
}

/* May the client use the server? Without a key, only our own user may. */
static bool may_ask(struct http_conn *conn, struct ak_err *err)
{
	const struct http_keys *keys = &conn->s->conf->keys;

	if (keys->n ? http_keys_ok(keys, conn->req.authorization) : conn->known) {
		http_room_known(conn);
		return true;
	}
	if (keys->n)
		ak_fail(err, EACCES, "missing or wrong API key; send the header Authorization: Bearer KEY");
	else
		ak_fail(err, EACCES, "%s; to allow others, start it with a key in AGENTKERNEL_API_KEY or --api-key-file",
			conn->uid == HTTP_PEER_NONE
				? "this server has no key, and the kernel does not report the user of this connection"
				: "this server has no key and answers only the user who started it");
	return false;
}

/* Check what the head alone decides. Returns 0, or the status to refuse with. */
static unsigned check_head(struct http_conn *conn, struct ak_err *err)
{
	const struct http_request *req = &conn->req;
	struct http_server *s = conn->s;
	unsigned status = 0;

	if (!*req->host && (ak_fail(err, EINVAL, "the Host header is missing"), true))
		return 400;
	if (!http_host_ok(req->host, s->names, &conn->local)) {
		ak_fail(err, EACCES, "Host '%.80s' is not a name of this server; start it with --server-name to add one",
			req->host);
		return 403;
	}
	if (req->cross_site || (req->origin && !http_origin_ok(req->origin, req->host))) {
		ak_fail(err, EACCES, "cross-origin request refused");
		return 403;
	}
	conn->route = http_route_find(req, &conn->params, &status, conn->allow, err);
	if (!(conn->route && conn->route->open) && !may_ask(conn, err))
		return 401;
	if (!conn->route)
		return status;
	if (http_query_read(&conn->req, conn->route->query, err) < 0)
		return 400;
	if (!req->head.chunked && req->head.length > HTTP_BODY_CAP) {
		ak_fail(err, EFBIG, "the body is larger than %u bytes", HTTP_BODY_CAP);
		return 413;
	}
	return 0;
}

static void begin_body(struct http_conn *conn)
{
	http_body_init(&conn->framing, &conn->req.head);
	conn->state = CONN_BODY;
	set_deadline(conn, BODY_MS);
	if (conn->req.expect_continue && conn->framing.state != HTTP_BODY_DONE)
		evbuffer_add_printf(bufferevent_get_output(conn->bev), "HTTP/1.1 100 Continue\r\n\r\n");
}

/* True when the caller should process more input at once. */
static bool read_head(struct http_conn *conn)
{
	struct evbuffer *in = bufferevent_get_input(conn->bev);
	size_t len = evbuffer_get_length(in);
	const struct http_head *head = &conn->reader.head;
	struct ak_err err = { "" };
	const char *data;
	unsigned status;

	if (len > HTTP_HEAD_MAX)
		len = HTTP_HEAD_MAX;
	data = len ? (const char *)evbuffer_pullup(in, (ev_ssize_t)len) : NULL;
	if (!data)
		return false;
	if (conn->idle) {
		conn->idle = false;
		set_deadline(conn, HEAD_MS);
	}
	conn->began_us = ak_now_us();
	switch (http_head_read(&conn->reader, data, len)) {
	case HTTP_MORE:
		return false;
	case HTTP_BAD:
	case HTTP_STATUS_NUM:
		http_conn_refuse(conn, status_of_fault(head->fault), head->why);
		return true;
	case HTTP_OK:
		break;
	}
	conn->turns++;
	status = http_request_parse(data, head, &conn->req, &err) < 0 ? 400 : 0;
	evbuffer_drain(in, head->len);
	if (!status)
		status = check_head(conn, &err);
	if (status)
		http_conn_refuse(conn, status, err.text);
	else
		begin_body(conn);
	return true;
}

/* ---- body ---- */

#define BODY_DEPTH 32

/* An empty body means {}. */
static int parse_body(struct http_conn *conn, cJSON **ret, struct ak_err *err)
{
	static const struct json_bounds bounds = { .depth = BODY_DEPTH, .members = 16384, .values = 1u << 20 };
	_cleanup_json_ cJSON *obj = NULL;
	bool nul = false;
	int rc;

	if (!conn->route->body)
		return conn->body.len ? ak_fail(err, EINVAL, "this route takes no body") : 0;
	if (conn->body.len) {
		rc = json_scan(conn->body.data, conn->body.len, &bounds, &nul, err);
		if (rc == 0 && nul)
			rc = ak_fail(err, EINVAL, "a string contains a NUL character (\\u0000); send such content as base64");
		if (rc == 0)
			rc = json_parse(conn->body.data, conn->body.len, &obj, err);
		if (rc < 0)
			return ak_err_prefix(err, rc, "the body");
	} else {
		obj = cJSON_CreateObject();
	}
	if (!cJSON_IsObject(obj))
		return ak_fail(err, EINVAL, "the body must be a JSON object");
	rc = fields_check(conn->route->body, FIELD_HTTP, obj, err);
	if (rc == 0)
		*ret = TAKE(obj);
	return rc;
}

static struct http_call *make_call(struct http_conn *conn)
{
	struct http_call *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->s = conn->s;
	c->conn = conn;
	c->route = conn->route;
	c->req = conn->req;
	conn->req = (struct http_request){ 0 };
	c->params = conn->params;
	conn->params.path = NULL;
	c->began_us = conn->began_us;
	conn->call = c;
	conn->head_only = c->req.method == HTTP_HEAD;
	return c;
}

static void dispatch(struct http_conn *conn)
{
	struct http_call *c;
	struct ak_err err;
	cJSON *body = NULL;

	conn->state = CONN_BUSY;
	set_deadline(conn, 0);
	if (parse_body(conn, &body, &err) < 0) {
		http_conn_refuse(conn, 400, err.text);
		return;
	}
	strbuf_done(&conn->body);
	c = make_call(conn);
	if (!c) {
		cJSON_Delete(body);
		http_conn_refuse(conn, 500, "out of memory");
		return;
	}
	c->body = body;
	if (c->route->handle)
		c->route->handle(c);
	else
		http_call_work(c);
}

static bool read_body(struct http_conn *conn)
{
	struct evbuffer *in = bufferevent_get_input(conn->bev);
	struct evbuffer_iovec v;

	while (conn->framing.state != HTTP_BODY_DONE && evbuffer_peek(in, -1, NULL, &v, 1) > 0 && v.iov_len) {
		ssize_t n = http_request_body(&conn->framing, v.iov_base, v.iov_len, &conn->body);

		if (n < 0) {
			conn->framing.state = HTTP_BODY_EXT; /* the body is incomplete */
			if (n == -EFBIG)
				http_conn_refuse(conn, 413, "the body is too large");
			else
				http_conn_refuse(conn, n == -EBADMSG ? 400 : 500,
					n == -EBADMSG ? "malformed chunked body" : "out of memory");
			return true;
		}
		evbuffer_drain(in, (size_t)n);
	}
	if (conn->framing.state != HTTP_BODY_DONE)
		return false;
	dispatch(conn);
	return true;
}

/* ---- the state machine ---- */

void http_conn_next(struct http_conn *conn)
{
	if (conn->closing) {
		linger(conn);
		if (evbuffer_get_length(bufferevent_get_output(conn->bev)) == 0)
			shutdown(bufferevent_getfd(conn->bev), SHUT_WR);
	} else {
		conn->state = CONN_HEAD;
		conn->idle = true;
		conn->reader = (struct http_reader){ 0 };
		set_deadline(conn, IDLE_MS);
	}
	process(conn);
}

/* May we read another request now? If not, on_turn continues later, or on_write once the client has read its answers. */
static bool has_turn(struct http_conn *conn)
{
	static const struct timeval soon = { 0, 0 };

	if (is_behind(conn))
		return false;
	if (conn->turns < TURN_MAX)
		return true;
	evtimer_add(conn->on_turn, &soon);
	return false;
}

/* Run the state machine. Answering a request calls this function again: only the outermost call loops. */
static void process(struct http_conn *conn)
{
	struct evbuffer *in = bufferevent_get_input(conn->bev);
	bool more = true;

	if (conn->processing)
		return;
	conn->processing = true;
	conn->turns = 0;
	while (more) {
		switch (conn->state) {
		case CONN_HEAD:
			more = has_turn(conn) && read_head(conn);
			break;
		case CONN_BODY:
			more = read_body(conn);
			break;
		case CONN_BUSY:
			more = false;
			break;
		case CONN_LINGER:
			evbuffer_drain(in, evbuffer_get_length(in));
			more = false;
			break;
		}
	}
	conn->processing = false;
	if (conn->state == CONN_BUSY && evbuffer_get_length(in) > AHEAD_MAX)
		http_conn_free(conn);
	else if (conn->eof && !evtimer_pending(conn->on_turn, NULL) && !is_behind(conn))
		after_eof(conn);
}
