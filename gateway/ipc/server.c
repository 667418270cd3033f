/* Serves many peers on one event loop: see ipc/server.h. */
#include "gateway/ipc/server.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"

#include <errno.h>
#include <event2/event.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/socket.h>

#define READ_BUDGET 16 /* messages of one peer per event, so that other peers get their turn */
#define ACCEPT_BUDGET 32
#define ACCEPT_PAUSE_MS 100 /* retry after this when out of descriptors */

struct ipc_peer {
	TAILQ_ENTRY(ipc_peer) link;
	struct ipc_server *server; /* borrowed: outlives us */
	uint64_t id;
	pid_t pid;
	int fd; /* owned */
	void *data;
	struct event *on_read, *on_write, *on_dead; /* owned */
	struct ipc_packet *first, **last; /* owned queue */
	size_t n_queued;
	bool ending, dead;
};

struct ipc_server {
	struct event_base *base; /* borrowed */
	struct ipc_hooks hooks;
	int listener; /* owned */
	struct event *on_accept, *on_retry; /* owned */
	TAILQ_HEAD(, ipc_peer) peers;
	size_t n_peers, max_peers;
	uint64_t last_id;
};

/* ---- life cycle of a peer ---- */

static void peer_free(struct ipc_peer *p)
{
	struct ipc_packet *next;

	TAILQ_REMOVE(&p->server->peers, p, link);
	p->server->n_peers--;
	for (struct ipc_packet *k = p->first; k; k = next) {
		next = k->next;
		ipc_packet_free(k);
	}
	if (p->on_read)
		event_free(p->on_read);
	if (p->on_write)
		event_free(p->on_write);
	if (p->on_dead)
		event_free(p->on_dead);
	ak_close(p->fd);
	free(p);
}

/* The event loop reports the end later, so that current users of the peer can finish. */
static void peer_kill(struct ipc_peer *p)
{
	if (p->dead)
		return;
	p->dead = true;
	event_del(p->on_read);
	event_del(p->on_write);
	event_active(p->on_dead, EV_TIMEOUT, 0);
}

static void on_dead(evutil_socket_t fd, short what, void *ctx)
{
	struct ipc_peer *p = ctx;

	if (p->server->hooks.on_gone)
		p->server->hooks.on_gone(p->server->hooks.ctx, p);
	peer_free(p);
}

static void message_done(struct ipc_message *msg)
{
	cJSON_Delete(msg->obj);
	for (size_t i = 0; i < msg->n_fds; i++)
		ak_close(msg->fds[i]);
}

static void on_readable(evutil_socket_t fd, short what, void *ctx)
{
	struct ipc_peer *p = ctx;

	for (int i = 0; i < READ_BUDGET && !p->dead && event_pending(p->on_read, EV_READ, NULL); i++) {
		struct ipc_message msg = { .n_fds = IPC_FDS_MAX };
		int rc = ipc_recv(fd, &msg.obj, msg.fds, &msg.n_fds);

		if (rc == -EAGAIN)
			return;
		if (rc <= 0) { /* closed, or a malformed message */
			peer_kill(p);
			return;
		}
		p->server->hooks.on_message(p->server->hooks.ctx, p, &msg);
		message_done(&msg);
	}
}

static void on_writable(evutil_socket_t fd, short what, void *ctx)
{
	struct ipc_peer *p = ctx;

	while (p->first) {
		struct ipc_packet *k = p->first;
		int rc = ipc_packet_send(fd, k);

		if (rc == -EAGAIN)
			return;
		if (rc < 0) {
			peer_kill(p);
			return;
		}
		p->first = k->next;
		p->n_queued--;
		ipc_packet_free(k);
	}
	p->last = &p->first;
	event_del(p->on_write);
	if (p->ending)
		peer_kill(p);
}

int ipc_server_adopt(struct ipc_server *s, int fd, void *data, struct ipc_peer **ret)
{
	struct ipc_peer *p = calloc(1, sizeof(*p));
	struct ucred cred = { 0 };
	socklen_t len = sizeof(cred);

	if (!p) {
		ak_close(fd);
		return -ENOMEM;
	}
	ak_set_nonblock(fd, true);
	(void)getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len);
	p->server = s;
	p->id = ++s->last_id;
	p->pid = cred.pid;
	p->fd = fd;
	p->data = data;
	p->last = &p->first;
	TAILQ_INSERT_TAIL(&s->peers, p, link);
	s->n_peers++;
	p->on_read = event_new(s->base, fd, EV_READ | EV_PERSIST, on_readable, p);
	p->on_write = event_new(s->base, fd, EV_WRITE | EV_PERSIST, on_writable, p);
	p->on_dead = evtimer_new(s->base, on_dead, p);
	if (!p->on_read || !p->on_write || !p->on_dead || event_add(p->on_read, NULL) < 0) {
		peer_free(p);
		return -ENOMEM;
	}
	if (ret)
		*ret = p;
	return 0;
}

/* ---- accepting ---- */

static void pause_accept(struct ipc_server *s)
{
	static const struct timeval delay = { 0, ACCEPT_PAUSE_MS * 1000 };

	event_del(s->on_accept);
	evtimer_add(s->on_retry, &delay);
}

static void on_retry(evutil_socket_t fd, short what, void *ctx)
{
	struct ipc_server *s = ctx;

	event_add(s->on_accept, NULL);
}

static void on_accept(evutil_socket_t listener, short what, void *ctx)
{
	struct ipc_server *s = ctx;

	for (int i = 0; i < ACCEPT_BUDGET; i++) {
		int fd = ipc_accept(listener);

		if (fd == -EAGAIN)
			return;
		if (fd == -EPERM)
			continue;
		if (fd < 0) {
			pause_accept(s);
			return;
		}
		if (s->n_peers >= s->max_peers) {
			(void)ipc_send_error(fd, EBUSY, "too many clients at once; try again later");
			ak_close(fd);
			continue;
		}
		(void)ipc_server_adopt(s, fd, NULL, NULL);
	}
}

int ipc_server_new(
	struct event_base *base, int listener, size_t max_peers, const struct ipc_hooks *hooks, struct ipc_server **ret)
{
	struct ipc_server *s = calloc(1, sizeof(*s));

	if (!s) {
		ak_close(listener);
		return -ENOMEM;
	}
	s->base = base;
	s->hooks = *hooks;
	s->listener = listener;
	s->max_peers = max_peers;
	TAILQ_INIT(&s->peers);
	if (listener >= 0) {
		s->on_accept = event_new(base, listener, EV_READ | EV_PERSIST, on_accept, s);
		s->on_retry = evtimer_new(base, on_retry, s);
		if (!s->on_accept || !s->on_retry || event_add(s->on_accept, NULL) < 0) {
			ipc_server_free(s);
			return -ENOMEM;
		}
	}
	*ret = s;
	return 0;
}

void ipc_server_free(struct ipc_server *s)
{
	if (!s)
		return;
	while (!TAILQ_EMPTY(&s->peers))
		peer_free(TAILQ_FIRST(&s->peers));
	if (s->on_accept)
		event_free(s->on_accept);
	if (s->on_retry)
		event_free(s->on_retry);
	ak_close(s->listener);
	free(s);
}

/* ---- functions for callers ---- */

struct ipc_peer *ipc_server_find(const struct ipc_server *s, uint64_t id)
{
	struct ipc_peer *p;

	TAILQ_FOREACH(p, &s->peers, link) {
		if (p->id == id)
			return p->dead ? NULL : p;
	}
	return NULL;
}

void ipc_server_forget(struct ipc_server *s, uint64_t id)
{
	struct ipc_peer *p;

	TAILQ_FOREACH(p, &s->peers, link) {
		if (p->id == id)
			p->data = NULL;
	}
}

size_t ipc_server_count(const struct ipc_server *s)
{
	return s->n_peers;
}

uint64_t ipc_peer_id(const struct ipc_peer *p)
{
	return p->id;
}

pid_t ipc_peer_pid(const struct ipc_peer *p)
{
	return p->pid;
}

int ipc_peer_pidfd(const struct ipc_peer *p)
{
	return ipc_pidfd(p->fd);
}

void *ipc_peer_data(const struct ipc_peer *p)
{
	return p->data;
}

void ipc_peer_set_data(struct ipc_peer *p, void *data)
{
	p->data = data;
}

void ipc_peer_send(struct ipc_peer *p, const cJSON *obj, const int *fds, size_t n_fds)
{
	struct ipc_packet *k = NULL;
	int rc;

	if (p->dead)
		return;
	rc = obj ? ipc_packet_new(obj, fds, n_fds, &k) : -ENOMEM;
	if (rc == 0 && !p->first) {
		rc = ipc_packet_send(p->fd, k);
		if (rc == 0) {
			ipc_packet_free(k);
			return;
		}
	} else if (rc == 0) {
		rc = -EAGAIN;
	}
	if (rc != -EAGAIN || p->n_queued >= IPC_QUEUE_MAX) {
		ipc_packet_free(k);
		peer_kill(p);
		return;
	}
	*p->last = k;
	p->last = &k->next;
	p->n_queued++;
	event_add(p->on_write, NULL);
}

void ipc_peer_fail(struct ipc_peer *p, int code, const char *text)
{
	_cleanup_json_ cJSON *obj = ipc_error(code, text);

	ipc_peer_send(p, obj, NULL, 0);
}

void ipc_peer_pause(struct ipc_peer *p, bool paused)
{
	if (p->dead)
		return;
	if (paused)
		event_del(p->on_read);
	else
		event_add(p->on_read, NULL);
}

void ipc_peer_end(struct ipc_peer *p)
{
	p->ending = true;
	if (!p->first)
		peer_kill(p);
}
