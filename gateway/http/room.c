/*
 * Connection limits: which connection is closed when there are too many. See http/http.h.
 *
 * A connection is a stranger until it has sent a valid key. On a server without keys, connections of other users stay strangers. The number
 * of strangers is limited in total, and per user and address. A new stranger replaces the oldest of the same user or address, so that idle
 * connections cannot lock others out; a client that sends its key at once is authenticated long before it could be replaced.
 */
#include "gateway/http/conn.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define NET6_BYTES 8 /* a /64 usually belongs to one customer */

void http_room_look(struct http_conn *conn, int fd)
{
	struct http_server *s = conn->s;
	struct sockaddr_storage ss = { 0 };
	socklen_t len = sizeof(ss);

	if (getpeername(fd, (struct sockaddr *)&ss, &len) == 0)
		conn->from = ak_addr_from_sockaddr(&ss, NULL);
	if (conn->from.family == AF_INET6)
		memset(conn->from.bytes + NET6_BYTES, 0, sizeof(conn->from.bytes) - NET6_BYTES);
	conn->uid = s->peer_fd < 0 ? HTTP_PEER_NONE : http_peer_uid(s->peer_fd, fd);
	conn->known = !s->conf->keys.n && conn->uid == geteuid();
}

static bool alike(const struct http_conn *a, const struct http_conn *b)
{
	return a->uid == b->uid && (a->uid != HTTP_PEER_NONE || ak_addr_eq(&a->from, &b->from));
}

static size_t limit_of(const struct http_conn *conn)
{
	size_t half = conn->s->strangers_max / 2;

	if (conn->uid == geteuid())
		return conn->s->strangers_max;
	return half < HTTP_STRANGERS_EACH ? half : HTTP_STRANGERS_EACH;
}

/* Count the strangers of the same user or address as CONN, and find the oldest of them. */
static size_t count_alike(const struct http_conn *conn, struct http_conn **ret_oldest)
{
	struct http_conn *other;
	size_t n = 0;

	*ret_oldest = NULL;
	TAILQ_FOREACH(other, &conn->s->conns, link) {
		if (other->known || !alike(conn, other))
			continue;
		if (!n++)
			*ret_oldest = other;
	}
	return n;
}

static void give_way(struct http_conn *conn)
{
	conn->s->stats.gave_way++;
	http_conn_free(conn);
}

/* Close the oldest connection of the user or address with the most strangers. */
bool http_room_drop(struct http_server *s)
{
	struct http_conn *conn, *oldest, *worst = NULL;
	size_t most = 0;

	TAILQ_FOREACH(conn, &s->conns, link) {
		size_t n = conn->known ? 0 : count_alike(conn, &oldest);

		if (n <= most)
			continue;
		most = n;
		worst = oldest;
		if (most > s->n_strangers / 2)
			break; /* no other can have more */
	}
	if (worst)
		give_way(worst);
	return worst != NULL;
}

static bool drop_idle(struct http_server *s)
{
	struct http_conn *conn;

	TAILQ_FOREACH(conn, &s->conns, link) {
		if (conn->state == CONN_HEAD && conn->idle) {
			http_conn_free(conn);
			return true;
		}
	}
	return false;
}

bool http_room_make(const struct http_conn *conn)
{
	struct http_server *s = conn->s;
	struct http_conn *oldest;

	if (!conn->known && count_alike(conn, &oldest) >= limit_of(conn))
		give_way(oldest);
	if (!conn->known && s->n_strangers >= s->strangers_max)
		http_room_drop(s);
	return s->n_conns < HTTP_CONNS_MAX || http_room_drop(s) || drop_idle(s);
}

void http_room_known(struct http_conn *conn)
{
	if (conn->known)
		return;
	conn->known = true;
	conn->s->n_strangers--;
}
