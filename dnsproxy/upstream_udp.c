/*
 * UDP sockets for one query at a time.
 *
 * Theory: the first datagram sent from an unbound socket gets a random port, and connecting to AF_UNSPEC releases the port. A
 * reused socket is therefore as good as a new one, for a fraction of the system calls. Sockets are not connected, which would
 * cost more than everything else: the code compares the source of an answer, and enables reporting of network errors.
 */
#include "dnsproxy/upstream_internal.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"

#include <assert.h>
#include <event2/event.h>
#include <netinet/in.h>
#include <stdlib.h>

#define READS_MAX 16 /* datagrams per event, more than one query accepts */
static_assert(READS_MAX > DNS_UPSTREAM_WRONG_MAX, "with edge triggering, one event must read all that a query accepts");
#define READ_SIZE 4096 /* larger than the size that we advertise */

static void port_free(struct dns_port *p)
{
	if (p->event)
		event_free(p->event);
	ak_close(p->fd);
	free(p);
}

static void idle_drop(struct dns_port *p)
{
	struct dns_port **at = &p->up->idle;

	while (*at != p)
		at = &(*at)->next_idle;
	*at = p->next_idle;
	p->up->n_idle--;
	port_free(p);
}

static bool same_source(const struct sockaddr_storage *a, const struct sockaddr_storage *b)
{
	uint16_t a_port, b_port;
	struct ak_addr x = ak_addr_from_sockaddr(a, &a_port), y = ak_addr_from_sockaddr(b, &b_port);

	return a_port == b_port && ak_addr_eq(&x, &y);
}

/* Read one datagram. False if nothing is left, or if the port may have been freed. */
static bool port_read(struct dns_port *p)
{
	struct sockaddr_storage from;
	socklen_t from_len = sizeof(from);
	uint8_t msg[READ_SIZE];
	ssize_t n = recvfrom(p->fd, msg, sizeof(msg), 0, (struct sockaddr *)&from, &from_len);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return false;
	if (n < 0 && !p->asking) {
		idle_drop(p); /* its error queue would never become empty */
		return false;
	}
	if (!p->asking)
		return true; /* for a previous query */
	if (n < 0) {
		p->broken = true;
		dns_asking_failed(p->asking); /* port closed or no route */
		return false;
	}
	return dns_asking_heard(p->asking, same_source(&from, &p->to) ? msg : NULL, (size_t)n);
}

static void on_port(evutil_socket_t fd, short what, void *arg)
{
	struct dns_port *p = arg;
	struct dns_upstream *up = p->up;

	dns_upstream_begin(up);
	for (unsigned i = 0; i < READS_MAX && port_read(p); i++)
		;
	dns_upstream_end(up);
}

static int port_open(struct dns_port *p)
{
	int on = 1, whole = IP_PMTUDISC_PROBE;

	p->fd = socket(p->family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (p->fd < 0)
		return -errno;
	if (p->family == AF_INET) {
		setsockopt(p->fd, IPPROTO_IP, IP_RECVERR, &on, sizeof(on));
		/* Queries are never fragmented, so packets need no IP identification number. */
		setsockopt(p->fd, IPPROTO_IP, IP_MTU_DISCOVER, &whole, sizeof(whole));
	} else {
		setsockopt(p->fd, IPPROTO_IPV6, IPV6_RECVERR, &on, sizeof(on));
	}
	/* Edge-triggered: an answer is read immediately, so the kernel need not check again for more. */
	p->event = event_new(p->up->base, p->fd, EV_READ | EV_ET | EV_PERSIST, on_port, p);
	return p->event && event_add(p->event, NULL) == 0 ? 0 : -ENOMEM;
}

static struct dns_port *port_new(struct dns_upstream *up, sa_family_t family)
{
	struct dns_port *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	p->up = up;
	p->fd = -1;
	p->family = family;
	if (port_open(p) < 0) {
		port_free(p);
		return NULL;
	}
	return p;
}

static struct dns_port *port_get(struct dns_upstream *up, sa_family_t family)
{
	for (struct dns_port **at = &up->idle; *at; at = &(*at)->next_idle) {
		struct dns_port *p = *at;

		if (p->family == family) {
			*at = p->next_idle;
			up->n_idle--;
			return p;
		}
	}
	return port_new(up, family);
}

void dns_port_release(struct dns_asking *q)
{
	static const struct sockaddr nobody = { .sa_family = AF_UNSPEC };
	struct dns_upstream *up = q->up;
	struct dns_port *p = q->port;

	if (!p)
		return;
	q->port = NULL;
	p->asking = NULL;
	/* Forged datagrams may still be queued, and the next query must not read them. */
	if (p->broken || q->wrong > 0 || up->n_idle >= up->idle_max || connect(p->fd, &nobody, sizeof(nobody)) < 0) {
		port_free(p);
		return;
	}
	p->next_idle = up->idle;
	up->idle = p;
	up->n_idle++;
}

int dns_port_send(struct dns_asking *q, const struct dns_server *to)
{
	struct dns_port *p = q->port;

	if (!p) {
		p = port_get(q->up, to->addr.ss_family);
		if (!p)
			return -ENOMEM;
		p->asking = q;
		p->to = to->addr;
		q->port = p;
	}
	if (sendto(p->fd, dns_asking_msg(q), q->len, 0, (const struct sockaddr *)&to->addr, to->len) >= 0)
		return 0;
	p->broken = true;
	return -errno;
}

void dns_ports_done(struct dns_upstream *up)
{
	struct dns_port *p;

	while ((p = up->idle) != NULL) {
		up->idle = p->next_idle;
		port_free(p);
	}
	up->n_idle = 0;
}
