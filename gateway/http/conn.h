/* One connection to the API. Shared by http/conn.c (reading) and http/reply.c (writing). */
#ifndef AK_HTTP_CONN_H
#define AK_HTTP_CONN_H

#include "gateway/http/http.h"
#include "gateway/http/peer.h"

struct bufferevent;

enum http_conn_state { CONN_HEAD, CONN_BODY, CONN_BUSY, CONN_LINGER };

struct http_conn {
	TAILQ_ENTRY(http_conn) link;
	struct http_server *s; /* borrowed: outlives us */
	struct bufferevent *bev; /* owned */
	struct event *on_deadline; /* owned */
	enum http_conn_state state;
	bool listed, processing;
	bool known; /* authenticated: sent a key or, when the server has no key, belongs to our own user. Others are closed first */
	uid_t uid; /* of the process at the other end; HTTP_PEER_NONE: unknown */
	struct ak_addr from; /* the peer's address; for IPv6, its /64 network */
	bool idle; /* between two requests */
	bool closing; /* close after this answer */
	bool eof; /* the client sends nothing more */
	bool head_only; /* HEAD: the answer has no body */
	struct ak_addr local;
	uint64_t began_us; /* when this request began */
	struct http_reader reader; /* reads the head */
	unsigned turns; /* requests answered since other connections were served */
	struct event *on_turn; /* owned: continues after other connections were served */
	/* The request being read. The call takes these members over. */
	struct http_request req;
	const struct http_route *route;
	struct http_params params;
	char allow[HTTP_ALLOW_MAX];
	struct http_body framing;
	struct strbuf body;
	struct http_call *call; /* borrowed: the call in flight, or NULL */
};

/* Answer with an error before there is a call. Closes the connection unless the whole request has arrived: the rest of it is not read. */
void http_conn_refuse(struct http_conn *conn, unsigned status, const char *why);

/* ---- room (http/room.c) ---- */

/* Find out the user and address at the other end of FD. */
void http_room_look(struct http_conn *conn, int fd);

/* Make room for CONN, which is not listed yet, by closing connections of strangers if needed. False when that is not possible. */
bool http_room_make(const struct http_conn *conn);

/* Mark CONN as authenticated: it no longer counts as a stranger. */
void http_room_known(struct http_conn *conn);

/* The answer is written: read the next request, or close the connection. */
void http_conn_next(struct http_conn *conn);

#endif
