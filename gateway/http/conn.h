/* One connection of the API: shared by http/conn.c (reading) and http/reply.c (writing). */
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
	bool known; /* of our own user where there is no key, else one that showed it: the others give way */
	uid_t uid; /* of the process at the other end; HTTP_PEER_NONE: not told */
	struct ak_addr from; /* of an IPv6 address the network */
	bool idle; /* between two requests */
	bool closing; /* after this answer */
	bool eof; /* the client sends nothing more */
	bool head_only; /* HEAD: the answer has no body */
	struct ak_addr local;
	uint64_t began_us; /* of this request */
	struct http_reader reader; /* of a head */
	unsigned turns; /* requests answered since others had their turn */
	struct event *on_turn; /* owned: the next turn */
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

/* ---- room (http/room.c) ---- */

/* Who is at the other end of FD. */
void http_room_look(struct http_conn *conn, int fd);

/* Room for CONN, which is not listed yet, at the cost of others that must give way. False: there is none. */
bool http_room_make(const struct http_conn *conn);

/* It may use the server: strangers give way to it from now on. */
void http_room_known(struct http_conn *conn);

/* The answer is written: on to the next request, or to the end. */
void http_conn_next(struct http_conn *conn);

#endif
