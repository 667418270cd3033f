/*
 * Queries to the host's resolvers.
 *
 * Theory: to forge an answer, an attacker must guess the port, the id and the letter case of a query in progress; all three are
 * random for each query (RFC 5452; 0x20: draft-vixie-dnsext-dns0x20). Each query has its own socket, so a wrong answer there
 * is not a late answer to another query. After a few wrong answers the query is sent over TCP and the forgery is reported. A
 * server that changes the letter case is queried over TCP too, which does not need this protection.
 *
 * A try goes to one server and ends with an answer, an error or its deadline; then the next server is tried, `tries` rounds in
 * total, with twice the timeout in each round. One timer checks the deadlines while any query is in flight.
 */
#include "dnsproxy/upstream_internal.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"

#include <event2/event.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/random.h>

#define TICK_MS 100
#define NO_EDNS_MS 600000
#define FLAG_QR 0x80 /* in the third octet, like the next one */
#define FLAG_TC 0x02
#define QUESTION_TAIL 4 /* type and class */

/* ---- around events ---- */

void dns_upstream_begin(struct dns_upstream *up)
{
	up->hooks.wake(up->hooks.ctx);
}

/* Runs once after all sockets of this loop iteration, so that the replies are sent together. */
void dns_upstream_end(struct dns_upstream *up)
{
	event_active(up->rest, EV_TIMEOUT, 0);
}

static void on_rest(evutil_socket_t fd, short what, void *arg)
{
	struct dns_upstream *up = arg;

	up->hooks.rest(up->hooks.ctx);
}

static void tick_arm(struct dns_upstream *up)
{
	static const struct timeval interval = { .tv_usec = TICK_MS * 1000 };

	if (!evtimer_pending(up->tick, NULL))
		evtimer_add(up->tick, &interval);
}

static void on_tick(evutil_socket_t fd, short what, void *arg)
{
	struct dns_upstream *up = arg;
	struct dns_asking *q = LIST_FIRST(&up->asking);
	uint64_t now = ak_now_ms();

	dns_upstream_begin(up);
	while (q) {
		struct dns_asking *next = LIST_NEXT(q, all); /* ending one query never ends another */

		if (now >= q->deadline_ms)
			dns_asking_failed(q);
		q = next;
	}
	if (!LIST_EMPTY(&up->asking))
		tick_arm(up);
	dns_upstream_end(up);
}

/* ---- random id and letter case ---- */

static int next_random(struct dns_upstream *up, uint64_t *ret)
{
	if (up->n_random == 0) {
		if (getrandom(up->random, sizeof(up->random), 0) != (ssize_t)sizeof(up->random))
			return -EIO;
		up->n_random = DNS_RANDOM_WORDS;
	}
	*ret = up->random[--up->n_random];
	return 0;
}

static bool is_letter(uint8_t c)
{
	return (c | 0x20) >= 'a' && (c | 0x20) <= 'z';
}

/* Set a new id and a random case for each letter of the name. A length octet is at most 63, never a letter. */
static int shuffle(struct dns_asking *q)
{
	uint8_t *msg = dns_asking_msg(q), *name = msg + DNS_WIRE_HEADER;
	uint64_t bits;
	unsigned left = 48;

	if (next_random(q->up, &bits) < 0)
		return -EIO;
	msg[0] = (uint8_t)(bits >> 56);
	msg[1] = (uint8_t)(bits >> 48);
	for (size_t i = 0; i + QUESTION_TAIL < q->question_len; i++) {
		if (!is_letter(name[i]))
			continue;
		if (left == 0) {
			if (next_random(q->up, &bits) < 0)
				return -EIO;
			left = 64;
		}
		name[i] = (uint8_t)((name[i] & ~0x20) | (bits & 1) << 5);
		bits >>= 1;
		left--;
	}
	return 0;
}

/* ---- validating answers ---- */

enum match {
	MATCH_EXACT,
	MATCH_OTHER_CASE, /* correct except for the letter case: the server does not preserve it, or a forger guessed well */
	MATCH_NONE,
};

static bool same_letters(const uint8_t *a, const uint8_t *b, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (a[i] != b[i] && !(is_letter(a[i]) && (a[i] ^ b[i]) == 0x20))
			return false;
	return true;
}

static enum match match_answer(struct dns_asking *q, const uint8_t *msg, size_t len)
{
	const uint8_t *sent = dns_asking_msg(q);
	size_t name_len = q->question_len - QUESTION_TAIL;

	if (!msg || len < DNS_WIRE_HEADER + q->question_len || memcmp(msg, sent, 2) != 0 || !(msg[2] & FLAG_QR))
		return MATCH_NONE;
	msg += DNS_WIRE_HEADER;
	sent += DNS_WIRE_HEADER;
	if (memcmp(msg, sent, q->question_len) == 0)
		return MATCH_EXACT;
	return memcmp(msg + name_len, sent + name_len, QUESTION_TAIL) == 0 && same_letters(msg, sent, name_len) ? MATCH_OTHER_CASE
														: MATCH_NONE;
}

/* ---- the life of a query ---- */

static void release_sockets(struct dns_asking *q)
{
	dns_port_release(q);
	dns_link_close(q);
}

static void asking_free(struct dns_asking *q)
{
	release_sockets(q);
	LIST_REMOVE(q, all);
	dns_servers_unref(q->servers);
	free(q);
}

static void finish(struct dns_asking *q, int status, const uint8_t *msg, size_t len)
{
	struct dns_upstream *up = q->up;
	uint64_t id = q->id;

	asking_free(q);
	up->hooks.answered(up->hooks.ctx, id, status, msg, len);
}

/* Send the next try; -ECANCELED if none is left. */
static int try_next(struct dns_asking *q)
{
	struct dns_upstream *up = q->up;
	size_t n = q->servers->n;

	for (; q->tries < n * up->tries; q->tries++) {
		const struct dns_server *to = &q->servers->at[q->tries % n];
		int rc;

		/* Same server again: an answer to the first datagram is still valid. */
		if (q->tcp || n > 1 || !q->port) {
			release_sockets(q);
			if (shuffle(q) < 0)
				return -EIO;
		}
		q->deadline_ms = ak_now_ms() + ((uint64_t)up->timeout_ms << (q->tries / n));
		rc = q->tcp ? dns_link_dial(q, to) : dns_port_send(q, to);
		if (rc == 0)
			return 0;
		release_sockets(q);
	}
	return -ECANCELED;
}

void dns_asking_failed(struct dns_asking *q)
{
	bool late = ak_now_ms() >= q->deadline_ms;

	q->tries++;
	if (try_next(q) < 0)
		finish(q, late ? -ETIMEDOUT : -EIO, NULL, 0);
}

/* Send the query to the same server again, over TCP. */
static void ask_by_tcp(struct dns_asking *q)
{
	if (q->wrong > 0)
		q->up->hooks.forged(q->up->hooks.ctx, q->id, q->wrong);
	q->tcp = true;
	if (try_next(q) < 0)
		finish(q, -EIO, NULL, 0);
}

/* RFC 1035 section 4.1.1: with these codes, another server may still have an answer. */
static bool may_try_another(uint8_t rcode)
{
	return rcode == DNS_RCODE_SERVFAIL || rcode == DNS_RCODE_NOTIMP || rcode == DNS_RCODE_REFUSED;
}

static void answered(struct dns_asking *q, const uint8_t *msg, size_t len)
{
	if (!q->tcp && msg[2] & FLAG_TC) {
		ask_by_tcp(q);
		return;
	}
	if (may_try_another(msg[3] & 15) && q->tries + 1 < q->servers->n) {
		dns_asking_failed(q);
		return;
	}
	finish(q, 0, msg, len);
}

bool dns_asking_heard(struct dns_asking *q, const uint8_t *msg, size_t len)
{
	enum match match = match_answer(q, msg, len);

	if (match == MATCH_EXACT || (match == MATCH_OTHER_CASE && q->tcp)) {
		answered(q, msg, len);
	} else if (q->tcp) {
		dns_asking_failed(q);
	} else {
		q->wrong += match == MATCH_NONE;
		if (match == MATCH_NONE && q->wrong < DNS_UPSTREAM_WRONG_MAX)
			return true;
		ask_by_tcp(q);
	}
	return false;
}

static struct dns_asking *asking_new(struct dns_upstream *up, uint64_t id, const struct dns_name *name, uint16_t qtype, bool edns)
{
	struct dns_asking *q = malloc(sizeof(*q));

	if (!q)
		return NULL;
	q->up = up;
	q->id = id;
	q->servers = dns_servers_ref(up->servers);
	q->tries = q->wrong = 0;
	q->tcp = false;
	q->port = NULL;
	q->link = (struct dns_link){ .fd = -1 };
	q->len = dns_query_build(dns_asking_msg(q), 0, name, qtype, edns);
	q->question_len = name->len + QUESTION_TAIL;
	q->frame[0] = (uint8_t)(q->len >> 8);
	q->frame[1] = (uint8_t)q->len;
	LIST_INSERT_HEAD(&up->asking, q, all);
	return q;
}

int dns_upstream_ask(struct dns_upstream *up, uint64_t id, const struct dns_name *name, uint16_t qtype, bool edns)
{
	struct dns_asking *q = asking_new(up, id, name, qtype, edns);

	if (!q)
		return -ENOMEM;
	tick_arm(up);
	if (try_next(q) < 0)
		finish(q, -EIO, NULL, 0);
	return 0;
}

bool dns_upstream_edns(const struct dns_upstream *up)
{
	return up->no_edns_until_ms == 0 || ak_now_ms() >= up->no_edns_until_ms;
}

void dns_upstream_no_edns(struct dns_upstream *up)
{
	up->no_edns_until_ms = ak_now_ms() + NO_EDNS_MS;
}

/* ---- create and free ---- */

/* Limit the idle sockets, so that they do not use up the file descriptors that connections need. */
static size_t idle_ports(void)
{
	struct rlimit lim;
	size_t share = getrlimit(RLIMIT_NOFILE, &lim) < 0 ? 0 : (size_t)(lim.rlim_cur / 64);

	return share < DNS_PORTS_IDLE_MAX ? share : DNS_PORTS_IDLE_MAX;
}

int dns_upstream_new(struct event_base *base, const struct dns_upstream_conf *conf, const struct dns_upstream_hooks *hooks,
	struct dns_upstream **ret, struct ak_err *err)
{
	struct dns_upstream *up = calloc(1, sizeof(*up));
	int rc;

	if (!up)
		return ak_fail(err, ENOMEM, "out of memory");
	up->base = base;
	up->hooks = *hooks;
	up->timeout_ms = conf->timeout_ms ? conf->timeout_ms : 1000;
	up->tries = conf->tries ? conf->tries : 2;
	up->idle_max = idle_ports();
	LIST_INIT(&up->asking);
	up->tick = evtimer_new(base, on_tick, up);
	up->rest = event_new(base, -1, 0, on_rest, up);
	rc = up->tick && up->rest ? dns_servers_parse(conf->servers_csv, &up->servers, err)
				  : ak_fail(err, ENOMEM, "out of memory");
	if (rc < 0) {
		dns_upstream_free(up);
		return rc;
	}
	*ret = up;
	return 0;
}

void dns_upstream_free(struct dns_upstream *up)
{
	if (!up)
		return;
	while (!LIST_EMPTY(&up->asking))
		asking_free(LIST_FIRST(&up->asking));
	dns_ports_done(up);
	if (up->tick)
		event_free(up->tick);
	if (up->rest)
		event_free(up->rest);
	dns_servers_unref(up->servers);
	free(up);
}

int dns_upstream_set(struct dns_upstream *up, const struct dns_upstream_conf *conf, struct ak_err *err)
{
	struct dns_servers *servers;
	int rc = dns_servers_parse(conf->servers_csv, &servers, err);

	if (rc < 0)
		return rc;
	dns_servers_unref(up->servers);
	up->servers = servers;
	up->no_edns_until_ms = 0;
	return 0;
}
