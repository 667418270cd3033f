/*
 * Room for connections: who must give way when there is none. See http/http.h.
 *
 * A connection is a stranger until it has shown a key, or for good when it is of another user and there is no key. Strangers are few
 * in all and few of each user and address. A new one pushes the oldest of its own kind out, so that nobody keeps others out by
 * connections that say nothing, and whoever sends its key at once has been heard long before its turn comes.
 */
#include "gateway/http/conn.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define NET6_BYTES 8 /* a /64 is one customer's */

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

/* How many strangers are like CONN, and the oldest of them. */
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

/* The oldest of those who have most. */
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
			break; /* nobody has more */
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
