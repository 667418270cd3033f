/* Answers: the envelope, whole or as an event stream. See http/http.h. */
#include "gateway/http/conn.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"

#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static const char *phrase(unsigned status)
{
	static const struct {
		unsigned status;
		const char *text;
	} known[] = {
		{ 200, "OK" },
		{ 201, "Created" },
		{ 400, "Bad Request" },
		{ 401, "Unauthorized" },
		{ 403, "Forbidden" },
		{ 404, "Not Found" },
		{ 405, "Method Not Allowed" },
		{ 408, "Request Timeout" },
		{ 409, "Conflict" },
		{ 413, "Content Too Large" },
		{ 429, "Too Many Requests" },
		{ 431, "Request Header Fields Too Large" },
		{ 500, "Internal Server Error" },
		{ 505, "HTTP Version Not Supported" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(known); i++) {
		if (known[i].status == status)
			return known[i].text;
	}
	return "Error";
}

/* IMF-fixdate (RFC 9110 section 5.6.7), made once a second. */
static const char *date_now(struct http_server *s)
{
	uint64_t now = ak_wall_us() / 1000000;
	time_t t = (time_t)now;
	struct tm tm;

	if (now != s->date_s) {
		s->date_s = now;
		strftime(s->date, sizeof(s->date), "%a, %d %b %Y %H:%M:%S GMT", gmtime_r(&t, &tm));
	}
	return s->date;
}

/* Write the common headers; the caller adds the length and the empty line. */
static struct evbuffer *put_head(struct http_conn *conn, unsigned status, const char *type)
{
	struct evbuffer *out = bufferevent_get_output(conn->bev);

	evbuffer_add_printf(out,
		"HTTP/1.1 %u %s\r\nDate: %s\r\nContent-Type: %s\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n%s",
		status, phrase(status), date_now(conn->s), type, conn->closing ? "Connection: close\r\n" : "");
	if (status == 401)
		evbuffer_add_printf(out, "WWW-Authenticate: Bearer\r\n");
	if (status == 405 && conn->allow[0])
		evbuffer_add_printf(out, "Allow: %s\r\n", conn->allow);
	if (status == 429)
		evbuffer_add_printf(out, "Retry-After: 1\r\n");
	return out;
}

static void put_whole(struct http_conn *conn, unsigned status, const char *type, const char *before, const char *data, size_t len,
	const char *after)
{
	struct evbuffer *out = put_head(conn, status, type);

	evbuffer_add_printf(out, "Content-Length: %zu\r\n\r\n", strlen(before) + len + strlen(after));
	if (conn->head_only)
		return;
	evbuffer_add(out, before, strlen(before));
	evbuffer_add(out, data, len);
	evbuffer_add(out, after, strlen(after));
}

/* Write DATA in its envelope, moving the bytes out of DATA. */
static void put_buffer(struct http_conn *conn, unsigned status, struct evbuffer *data)
{
	static const char before[] = "{\"success\":true,\"data\":", after[] = "}\n";
	struct evbuffer *out = put_head(conn, status, "application/json");

	evbuffer_add_printf(out, "Content-Length: %zu\r\n\r\n", sizeof(before) + sizeof(after) - 2 + evbuffer_get_length(data));
	if (conn->head_only)
		return;
	evbuffer_add(out, before, sizeof(before) - 1);
	evbuffer_add_buffer(out, data);
	evbuffer_add(out, after, sizeof(after) - 1);
}

static void put_error(struct http_conn *conn, unsigned status, const char *why)
{
	_cleanup_strbuf_ struct strbuf text = { 0 };

	strbuf_json_utf8(&text, why, strlen(why));
	if (text.failed)
		put_whole(conn, status, "application/json", "{\"success\":false,\"error\":", "\"out of memory\"", 15, "}\n");
	else
		put_whole(conn, status, "application/json", "{\"success\":false,\"error\":", text.data, text.len, "}\n");
}

/* ---- before there is a call ---- */

/* Has the whole request arrived? Only then the next bytes are the next request. */
static bool request_whole(const struct http_conn *conn)
{
	return conn->state == CONN_BUSY ||
		(conn->state == CONN_HEAD && conn->req.text && !conn->req.head.chunked && !conn->req.head.length);
}

void http_conn_refuse(struct http_conn *conn, unsigned status, const char *why)
{
	conn->closing = conn->closing || !request_whole(conn) || !conn->req.keep_alive;
	conn->head_only = conn->req.text && conn->req.method == HTTP_HEAD;
	put_error(conn, status, why);
	http_stats_request(&conn->s->stats, conn->route, status, ak_now_us() - conn->began_us);
	http_request_done(&conn->req);
	free(conn->params.path);
	conn->params.path = NULL;
	strbuf_done(&conn->body);
	conn->route = NULL;
	http_conn_next(conn);
}

/* ---- memory accounting ---- */

static void on_change(struct evbuffer *buffer, const struct evbuffer_cb_info *info, void *arg)
{
	struct http_server *s = arg;

	s->held += info->n_added;
	s->held -= info->n_deleted;
}

void http_hold(struct http_server *s, struct evbuffer *buffer)
{
	evbuffer_add_cb(buffer, on_change, s);
}

/* ---- calls ---- */

void http_call_free(struct http_call *c)
{
	http_request_done(&c->req);
	free(c->params.path);
	cJSON_Delete(c->body);
	free(c);
}

static void finish(struct http_call *c, unsigned status)
{
	struct http_conn *conn = c->conn;

	http_stats_request(&c->s->stats, c->route, status, ak_now_us() - c->began_us);
	http_call_free(c);
	if (!conn)
		return;
	conn->call = NULL;
	conn->route = NULL;
	http_conn_next(conn);
}

static void prepare(struct http_call *c)
{
	c->conn->closing = c->conn->closing || !c->req.keep_alive;
}

void http_reply_data(struct http_call *c, unsigned status, const char *data, size_t len)
{
	if (c->conn) {
		prepare(c);
		put_whole(c->conn, status, "application/json", "{\"success\":true,\"data\":", data, len, "}\n");
	}
	finish(c, status);
}

void http_reply_buffer(struct http_call *c, unsigned status, struct evbuffer *data)
{
	if (!data) {
		http_reply_error(c, 500, "out of memory");
		return;
	}
	if (c->conn) {
		prepare(c);
		put_buffer(c->conn, status, data);
	}
	evbuffer_free(data);
	finish(c, status);
}

static void free_text(const void *data, size_t len, void *text)
{
	free(text);
}

unsigned http_status_of(int rc)
{
	switch (-rc) {
	case EINVAL:
	case ENOTSUP:
	case ENOTDIR:
	case EISDIR:
	case ELOOP:
	case E2BIG:
	case ENAMETOOLONG:
	case EXDEV:
	case EACCES:
	case EPERM:
	case ERANGE:
	case EADDRNOTAVAIL:
		return 400;
	case ENOENT:
		return 404;
	case EEXIST:
	case EALREADY:
	case ESRCH:
	case EBUSY:
	case EADDRINUSE:
	case ENOTEMPTY:
		return 409;
	case EFBIG:
		return 413;
	case EAGAIN:
		return 429;
	default:
		return 500;
	}
}

void http_reply_failure(struct http_call *c, int rc, const char *why, size_t len)
{
	http_reply_error(c, http_status_of(rc), "%.*s", (int)len, why);
}

void http_reply_result(struct http_call *c, int rc, const char *payload, size_t len, struct http_job *j)
{
	struct strbuf frame = j->worker.frame;
	struct evbuffer *data;

	if (rc < 0) {
		http_reply_failure(c, rc, payload, len);
		return;
	}
	if (c->s->held > HTTP_HELD_MAX) {
		http_reply_error(c, 429, "too much output is waiting to be sent; try again soon");
		return;
	}
	data = evbuffer_new();
	if (data && evbuffer_add_reference(data, payload, len, free_text, frame.data) == 0) {
		c->s->held -= frame.len;
		j->worker.frame = (struct strbuf){ 0 };
	} else if (data) {
		evbuffer_free(data);
		data = NULL;
	}
	http_reply_buffer(c, c->route->created ? 201 : 200, data);
}

void http_reply_error(struct http_call *c, unsigned status, const char *fmt, ...)
{
	char text[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (c->route && !http_route_answers(c->route, status))
		status = 500; /* send only statuses that the OpenAPI description lists */
	if (c->conn) {
		prepare(c);
		put_error(c->conn, status, text);
	}
	finish(c, status);
}

void http_reply_raw(struct http_call *c, unsigned status, const char *type, const char *text, size_t len)
{
	if (c->conn) {
		prepare(c);
		put_whole(c->conn, status, type, "", text, len, "");
	}
	finish(c, status);
}

/* ---- event streams ---- */

void http_stream_begin(struct http_call *c)
{
	c->streaming = true;
	if (!c->conn)
		return;
	prepare(c);
	c->conn->closing = c->conn->closing || c->req.http10;
	evbuffer_add_printf(put_head(c->conn, 200, "text/event-stream"), "X-Accel-Buffering: no\r\n%s\r\n",
		c->req.http10 ? "" : "Transfer-Encoding: chunked\r\n");
}

static void put_chunk(struct http_call *c, const struct strbuf *text)
{
	struct evbuffer *out = bufferevent_get_output(c->conn->bev);

	if (!c->req.http10)
		evbuffer_add_printf(out, "%zx\r\n", text->len);
	evbuffer_add(out, text->data, text->len);
	if (!c->req.http10)
		evbuffer_add(out, "\r\n", 2);
}

void http_stream_event(struct http_call *c, const char *event, const char *data, size_t len)
{
	_cleanup_strbuf_ struct strbuf text = { 0 };

	if (!c->conn)
		return;
	strbuf_printf(&text, "event: %s\ndata: ", event);
	strbuf_add(&text, data, len);
	strbuf_puts(&text, "\n\n");
	if (!text.failed)
		put_chunk(c, &text);
}

void http_conns_ping(struct http_server *s)
{
	static char comment[] = ": still here\n\n";
	const struct strbuf text = { .data = comment, .len = sizeof(comment) - 1 };
	struct http_conn *conn;

	TAILQ_FOREACH(conn, &s->conns, link) {
		if (conn->call && conn->call->streaming && evbuffer_get_length(bufferevent_get_output(conn->bev)) == 0)
			put_chunk(conn->call, &text);
	}
}

bool http_stream_behind(const struct http_call *c)
{
	return c->conn && evbuffer_get_length(bufferevent_get_output(c->conn->bev)) > HTTP_STREAM_HIGH;
}

void http_stream_end(struct http_call *c)
{
	if (c->conn && !c->req.http10)
		evbuffer_add(bufferevent_get_output(c->conn->bev), "0\r\n\r\n", 5);
	finish(c, 200);
}

const char *http_body_text(const struct http_call *c, const char *key)
{
	return json_text(c->body, key, NULL);
}
