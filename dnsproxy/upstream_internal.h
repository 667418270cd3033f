/*
 * Internal structures of the upstream.
 *
 * upstream.c      the life of a query: servers in turn, timeouts, validation of answers
 * upstream_udp.c  sockets that carry one query at a time, each time from another port
 * upstream_tcp.c  one query over its own connection
 * upstream_conf.c the list of servers
 */
#ifndef AK_DNS_UPSTREAM_INTERNAL_H
#define AK_DNS_UPSTREAM_INTERNAL_H

#include "dnsproxy/upstream.h"

#include <sys/queue.h>
#include <sys/socket.h>

struct event;

struct dns_server {
	struct sockaddr_storage addr;
	socklen_t len;
};

/* Immutable and shared: a query in flight ends with the servers it started with. */
struct dns_servers {
	unsigned refs;
	size_t n;
	struct dns_server at[DNS_UPSTREAM_SERVERS_MAX];
};
int dns_servers_parse(const char *csv, struct dns_servers **ret, struct ak_err *err);
struct dns_servers *dns_servers_ref(struct dns_servers *s);
void dns_servers_unref(struct dns_servers *s);

/* One UDP socket. While idle it has no port, so it cannot receive anything. */
struct dns_port {
	struct dns_port *next_idle;
	struct dns_upstream *up;
	struct dns_asking *asking; /* NULL: idle */
	struct event *event; /* owned; always added */
	int fd; /* owned */
	sa_family_t family;
	bool broken; /* an error was reported: do not reuse */
	struct sockaddr_storage to;
};

struct dns_link {
	int fd; /* owned; -1: none */
	struct event *event; /* owned */
	size_t done; /* octets written, then octets read */
	size_t size; /* of the answer including its length field; 0: not known yet */
	uint8_t head[2];
	uint8_t *answer; /* owned */
};

/* One query in progress. */
struct dns_asking {
	LIST_ENTRY(dns_asking) all;
	struct dns_upstream *up;
	uint64_t id; /* chosen by the caller */
	uint64_t deadline_ms;
	struct dns_servers *servers; /* a reference */
	unsigned tries; /* sent so far; the next one goes to server tries % n */
	unsigned wrong;
	bool tcp;
	struct dns_port *port; /* while waiting for a UDP answer */
	struct dns_link link; /* while a connection is open */
	size_t len, question_len;
	uint8_t frame[2 + DNS_WIRE_QUERY_MAX]; /* length and message, as sent over TCP */
};
LIST_HEAD(dns_asking_list, dns_asking);

#define DNS_PORTS_IDLE_MAX 128
#define DNS_RANDOM_WORDS 256

struct dns_upstream {
	struct event_base *base; /* borrowed */
	struct dns_upstream_hooks hooks;
	struct dns_servers *servers; /* a reference */
	unsigned timeout_ms, tries;
	struct dns_asking_list asking;
	struct event *tick, *rest; /* owned */
	struct dns_port *idle;
	size_t n_idle, idle_max;
	uint64_t no_edns_until_ms;
	uint64_t random[DNS_RANDOM_WORDS];
	size_t n_random;
};

/* ---- upstream.c ---- */

/*
 * Handle a message received for Q; MSG is NULL if it came from an unknown sender. Returns false if Q was freed or no longer uses
 * this port or connection.
 */
bool dns_asking_heard(struct dns_asking *q, const uint8_t *msg, size_t len);
/* The current try of Q failed. May free Q. */
void dns_asking_failed(struct dns_asking *q);
/* Called around every event: callers update their clock and can send in batches. */
void dns_upstream_begin(struct dns_upstream *up);
void dns_upstream_end(struct dns_upstream *up);

/* ---- upstream_udp.c ---- */
int dns_port_send(struct dns_asking *q, const struct dns_server *to); /* uses Q's socket, or assigns one */
void dns_port_release(struct dns_asking *q);
void dns_ports_done(struct dns_upstream *up);

/* ---- upstream_tcp.c ---- */
int dns_link_dial(struct dns_asking *q, const struct dns_server *to);
void dns_link_close(struct dns_asking *q);

static inline uint8_t *dns_asking_msg(struct dns_asking *q)
{
	return q->frame + 2;
}

#endif
