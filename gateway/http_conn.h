/* One connection of the API: shared by http_conn.c (reading) and http_reply.c (writing). */
#ifndef AK_HTTP_CONN_H
#define AK_HTTP_CONN_H

#include "gateway/http.h"

struct bufferevent;

enum http_conn_state { CONN_HEAD, CONN_BODY, CONN_BUSY, CONN_LINGER };

struct http_conn {
	TAILQ_ENTRY(http_conn) link;
	struct http_server *s; /* borrowed: outlives us */
	struct bufferevent *bev; /* owned */
	struct event *on_deadline; /* owned */
	enum http_conn_state state;
	bool listed, processing;
	bool idle; /* between two requests */
	bool closing; /* after this answer */
	bool eof; /* the client sends nothing more */
	bool head_only; /* HEAD: the answer has no body */
	struct ak_addr local;
	uint16_t local_port;
	uint64_t began_us; /* of this request */
	/* Of the request that is being read; the call takes them over. */
	struct http_request req;
	const struct http_route *route;
	struct http_params params;
	char allow[HTTP_ALLOW_MAX];
	struct http_body framing;
	struct strbuf body;
	struct http_call *call; /* borrowed: in flight, or NULL */
};

/* Answer with an error before there is a call. What is left of the request is not read: the connection ends. */
void http_conn_refuse(struct http_conn *conn, unsigned status, const char *why);

/* The answer is written: on to the next request, or to the end. */
void http_conn_next(struct http_conn *conn);

#endif
