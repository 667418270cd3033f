/*
 * c-ares on libevent.
 *
 * Theory: c-ares tells which of its sockets to watch; a socket that is ready, or a tick while anything is in flight, lets it go
 * on. Its sockets are closed whenever nothing is in flight, so that each quiet moment brings a new source port.
 */
#include "dnsproxy/upstream.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"

#define CARES_NO_DEPRECATED /* newer c-ares would have us use its record API, which 1.18 lacks */
#include <ares.h>
#include <event2/event.h>
#include <arpa/inet.h>
#include <string.h>
#include <sys/random.h>

#define CHANNELS 2
#define WATCHES_MAX 64 /* sockets of one channel: two a server */
#define TICK_MS 100 /* how often time-outs are looked for while anything is in flight */
#define NO_EDNS_MS 600000
#define IDS_AT_ONCE 128

/* c-ares promises one callback per question, so this lives exactly as long as it needs to. */
struct ticket {
	struct ticket *next_idle;
	struct channel *channel;
	uint64_t id;
};

struct watch {
	int fd; /* -1: free */
	short events;
	struct event *event; /* owned */
	struct channel *channel;
};

struct channel {
	struct dns_upstream *up; /* borrowed: frees us before itself */
	ares_channel ares;
	bool made;
	size_t pending;
	struct watch watches[WATCHES_MAX];
};

struct dns_upstream {
	struct event_base *base; /* borrowed */
	struct dns_upstream_hooks hooks;
	struct channel channels[CHANNELS];
	unsigned active;
	bool closing;
	struct event *tick; /* owned */
	struct ticket *idle;
	uint64_t no_edns_until_ms;
	uint16_t ids[IDS_AT_ONCE];
	size_t n_ids;
};

/* ---- sockets of c-ares ---- */

static void on_socket(evutil_socket_t fd, short what, void *arg)
{
	struct channel *ch = arg;
	struct dns_upstream *up = ch->up;

	up->hooks.wake(up->hooks.ctx);
	ares_process_fd(ch->ares, what & EV_READ ? fd : ARES_SOCKET_BAD, what & EV_WRITE ? fd : ARES_SOCKET_BAD);
	up->hooks.rest(up->hooks.ctx);
}

static struct watch *watch_find(struct channel *ch, int fd)
{
	for (size_t i = 0; i < WATCHES_MAX; i++)
		if (ch->watches[i].fd == fd)
			return &ch->watches[i];
	return NULL;
}

static void watch_drop(struct watch *w)
{
	if (w->event)
		event_free(w->event);
	w->event = NULL;
	w->fd = -1;
	w->events = 0;
}

/* c-ares tells what it waits for on FD; neither means that it is about to close it. */
static void on_state(void *arg, ares_socket_t fd, int readable, int writable)
{
	struct channel *ch = arg;
	struct watch *w = watch_find(ch, fd);
	short events = (short)(EV_PERSIST | (readable ? EV_READ : 0) | (writable ? EV_WRITE : 0));

	if (w && w->events == events)
		return;
	if (w)
		watch_drop(w);
	if (!readable && !writable)
		return;
	w = watch_find(ch, -1);
	if (!w)
		return; /* more sockets than servers can have: these questions time out */
	w->event = event_new(ch->up->base, fd, events, on_socket, ch);
	if (!w->event || event_add(w->event, NULL) < 0) {
		watch_drop(w);
		return;
	}
	w->fd = fd;
	w->events = events;
}

/* ---- time ---- */

static void tick_arm(struct dns_upstream *up)
{
	static const struct timeval interval = { .tv_usec = TICK_MS * 1000 };

	if (!evtimer_pending(up->tick, NULL))
		evtimer_add(up->tick, &interval);
}

static void on_tick(evutil_socket_t fd, short what, void *arg)
{
	struct dns_upstream *up = arg;
	size_t pending = 0;

	up->hooks.wake(up->hooks.ctx);
	for (size_t i = 0; i < CHANNELS; i++) {
		if (up->channels[i].pending > 0)
			ares_process_fd(up->channels[i].ares, ARES_SOCKET_BAD, ARES_SOCKET_BAD);
		pending += up->channels[i].pending;
	}
	if (pending > 0)
		tick_arm(up);
	up->hooks.rest(up->hooks.ctx);
}

/* ---- channels ---- */

/* Everything is said explicitly, so that c-ares has no reason to look into a file, now or later. */
static int channel_make(struct channel *ch, const struct dns_upstream_conf *conf, struct ak_err *err)
{
	struct in_addr nowhere = { .s_addr = htonl(INADDR_LOOPBACK) };
	char lookups[] = "b", no_file[] = "/dev/null";
	struct ares_options o = {
		.flags = ARES_FLAG_NOSEARCH | ARES_FLAG_NOALIASES | ARES_FLAG_EDNS,
		.timeout = (int)(conf->timeout_ms ? conf->timeout_ms : 1000),
		.tries = (int)(conf->tries ? conf->tries : 2),
		.ndots = 1,
		.ednspsz = DNS_WIRE_UDP_MAX,
		.servers = &nowhere,
		.nservers = 1,
		.lookups = lookups,
		.resolvconf_path = no_file,
		.sock_state_cb = on_state,
		.sock_state_cb_data = ch,
		.socket_receive_buffer_size = 1 << 20, /* a volley of answers must not overflow while we talk to the kernel */
	};
	int mask = ARES_OPT_FLAGS | ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES | ARES_OPT_NDOTS | ARES_OPT_EDNSPSZ | ARES_OPT_SERVERS |
		ARES_OPT_DOMAINS | ARES_OPT_SORTLIST | ARES_OPT_LOOKUPS | ARES_OPT_RESOLVCONF | ARES_OPT_SOCK_STATE_CB |
		ARES_OPT_SOCK_RCVBUF | ARES_OPT_NOROTATE;
	int rc;

#ifdef ARES_OPT_QUERY_CACHE
	o.qcache_max_ttl = 0; /* the cache is ours: an answer is judged each time */
	mask |= ARES_OPT_QUERY_CACHE;
#endif
#ifdef ARES_OPT_UDP_MAX_QUERIES
	o.udp_max_queries = 512; /* a new source port now and then, also under constant load */
	mask |= ARES_OPT_UDP_MAX_QUERIES;
#endif
	rc = ares_init_options(&ch->ares, &o, mask);
	if (rc != ARES_SUCCESS)
		return ak_fail(err, rc == ARES_ENOMEM ? ENOMEM : EIO, "cannot start the resolver library: %s", ares_strerror(rc));
	ch->made = true;
	return 0;
}

static int channel_set_servers(struct channel *ch, const char *csv, struct ak_err *err)
{
	int rc;

	if (!csv || !*csv)
		return ak_fail(err, EINVAL, "no upstream resolver");
	rc = ares_set_servers_ports_csv(ch->ares, csv);
	if (rc != ARES_SUCCESS)
		return ak_fail(err, EINVAL, "upstream resolvers '%s': %s", csv, ares_strerror(rc));
	return 0;
}

static void channel_done(struct channel *ch)
{
	if (ch->made)
		ares_destroy(ch->ares);
	ch->made = false;
	for (size_t i = 0; i < WATCHES_MAX; i++)
		watch_drop(&ch->watches[i]);
}

/* ---- questions ---- */

/* Sixteen bits from the kernel's generator, drawn in handfuls. */
static int next_id(struct dns_upstream *up, uint16_t *ret)
{
	if (up->n_ids == 0) {
		if (getrandom(up->ids, sizeof(up->ids), 0) != (ssize_t)sizeof(up->ids))
			return -EIO;
		up->n_ids = IDS_AT_ONCE;
	}
	*ret = up->ids[--up->n_ids];
	return 0;
}

static struct ticket *ticket_get(struct dns_upstream *up)
{
	struct ticket *t = up->idle;

	if (t)
		up->idle = t->next_idle;
	else
		t = malloc(sizeof(*t));
	return t;
}

static void on_answer(void *arg, int status, int timeouts, unsigned char *abuf, int alen)
{
	struct ticket *t = arg;
	struct dns_upstream *up = t->channel->up;
	uint64_t id = t->id;

	t->channel->pending--;
	t->next_idle = up->idle;
	up->idle = t;
	if (up->closing)
		return;
	if (status == ARES_SUCCESS && abuf && alen > 0)
		up->hooks.answered(up->hooks.ctx, id, 0, abuf, (size_t)alen);
	else
		up->hooks.answered(up->hooks.ctx, id, status == ARES_ETIMEOUT ? -ETIMEDOUT : -EIO, NULL, 0);
}

int dns_upstream_ask(struct dns_upstream *up, uint64_t id, const struct dns_name *name, uint16_t qtype, bool edns)
{
	struct channel *ch = &up->channels[up->active];
	uint8_t msg[DNS_WIRE_QUERY_MAX];
	struct ticket *t;
	uint16_t wire_id;
	size_t len;

	if (next_id(up, &wire_id) < 0)
		return -EIO;
	t = ticket_get(up);
	if (!t)
		return -ENOMEM;
	t->channel = ch;
	t->id = id;
	len = dns_query_build(msg, wire_id, name, qtype, edns);
	ch->pending++;
	tick_arm(up);
	ares_send(ch->ares, msg, (int)len, on_answer, t);
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

/* ---- life ---- */

static int start(struct dns_upstream *up, const struct dns_upstream_conf *conf, struct ak_err *err)
{
	int rc;

	up->tick = evtimer_new(up->base, on_tick, up);
	if (!up->tick)
		return ak_fail(err, ENOMEM, "out of memory");
	for (size_t i = 0; i < CHANNELS; i++) {
		rc = channel_make(&up->channels[i], conf, err);
		if (rc < 0)
			return rc;
	}
	return channel_set_servers(&up->channels[0], conf->servers_csv, err);
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
	for (size_t i = 0; i < CHANNELS; i++) {
		up->channels[i].up = up;
		for (size_t k = 0; k < WATCHES_MAX; k++)
			up->channels[i].watches[k].fd = -1;
	}
	if (ares_library_init(ARES_LIB_INIT_ALL) != ARES_SUCCESS) {
		free(up);
		return ak_fail(err, EIO, "cannot start the resolver library");
	}
	rc = start(up, conf, err);
	if (rc < 0) {
		dns_upstream_free(up);
		return rc;
	}
	*ret = up;
	return 0;
}

void dns_upstream_free(struct dns_upstream *up)
{
	struct ticket *t;

	if (!up)
		return;
	up->closing = true;
	for (size_t i = 0; i < CHANNELS; i++)
		channel_done(&up->channels[i]); /* calls on_answer for what is left */
	if (up->tick)
		event_free(up->tick);
	while ((t = up->idle) != NULL) {
		up->idle = t->next_idle;
		free(t);
	}
	ares_library_cleanup();
	free(up);
}

int dns_upstream_set(struct dns_upstream *up, const struct dns_upstream_conf *conf, struct ak_err *err)
{
	unsigned other = (up->active + 1) % CHANNELS;
	int rc;

	/* Still draining from the change before this one: those questions have waited long enough. */
	if (up->channels[other].pending > 0) {
		up->hooks.wake(up->hooks.ctx);
		ares_cancel(up->channels[other].ares);
		up->hooks.rest(up->hooks.ctx);
	}
	rc = channel_set_servers(&up->channels[other], conf->servers_csv, err);
	if (rc < 0)
		return rc;
	up->active = other;
	up->no_edns_until_ms = 0;
	return 0;
}
