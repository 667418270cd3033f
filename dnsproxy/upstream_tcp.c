/* One query over its own connection: for answers too large for a datagram, and when UDP answers cannot be trusted. */
#include "dnsproxy/upstream_internal.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"

#include <event2/event.h>
#include <stdlib.h>
#include <string.h>

#define FRAME_HEAD 2

void dns_link_close(struct dns_asking *q)
{
	struct dns_link *l = &q->link;

	if (l->event)
		event_free(l->event);
	ak_close(l->fd);
	free(l->answer);
	*l = (struct dns_link){ .fd = -1 };
}

static void on_link(evutil_socket_t fd, short what, void *arg);

static int watch(struct dns_asking *q, short what)
{
	struct dns_link *l = &q->link;

	if (l->event)
		event_free(l->event);
	l->event = event_new(q->up->base, l->fd, what | EV_PERSIST, on_link, q);
	return l->event && event_add(l->event, NULL) == 0 ? 0 : -ENOMEM;
}

/* 1 if the whole query was sent, 0 to continue later. */
static int write_some(struct dns_asking *q)
{
	struct dns_link *l = &q->link;
	size_t size = FRAME_HEAD + q->len;
	ssize_t n = send(l->fd, q->frame + l->done, size - l->done, MSG_NOSIGNAL);

	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	l->done += (size_t)n;
	if (l->done < size)
		return 0;
	l->done = 0;
	return watch(q, EV_READ) < 0 ? -ENOMEM : 1;
}

/* 1 if the whole answer was read. */
static int read_some(struct dns_asking *q)
{
	struct dns_link *l = &q->link;
	uint8_t *into = l->size ? l->answer + l->done - FRAME_HEAD : l->head + l->done;
	ssize_t n = recv(l->fd, into, (l->size ? l->size : FRAME_HEAD) - l->done, 0);

	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	if (n == 0)
		return -ECONNRESET;
	l->done += (size_t)n;
	if (l->size)
		return l->done == l->size;
	if (l->done < FRAME_HEAD)
		return 0;
	l->size = FRAME_HEAD + (size_t)(l->head[0] << 8 | l->head[1]);
	if (l->size < FRAME_HEAD + DNS_WIRE_HEADER)
		return -EBADMSG;
	l->answer = malloc(l->size - FRAME_HEAD);
	return l->answer ? 0 : -ENOMEM;
}

static void on_link(evutil_socket_t fd, short what, void *arg)
{
	struct dns_asking *q = arg;
	struct dns_upstream *up = q->up;
	int rc;

	dns_upstream_begin(up);
	rc = what & EV_WRITE ? write_some(q) : read_some(q);
	if (rc < 0) {
		dns_asking_failed(q);
	} else if (rc > 0 && !(what & EV_WRITE)) {
		_cleanup_free_ uint8_t *answer = TAKE(q->link.answer);

		dns_asking_heard(q, answer, q->link.size - FRAME_HEAD);
	}
	dns_upstream_end(up);
}

int dns_link_dial(struct dns_asking *q, const struct dns_server *to)
{
	struct dns_link *l = &q->link;

	l->fd = socket(to->addr.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (l->fd < 0)
		return -errno;
	if (connect(l->fd, (const struct sockaddr *)&to->addr, to->len) < 0 && errno != EINPROGRESS)
		return -errno;
	return watch(q, EV_WRITE);
}
