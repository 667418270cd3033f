/* Public functions: create and free the proxy and its parts. */
#include "dnsproxy/internal.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"

#include <sys/random.h>

static void on_upstream_answer(void *ctx, uint64_t id, int status, const uint8_t *msg, size_t len)
{
	if (id == DNS_NAT64_ID)
		dns_nat64_answered(ctx, status, msg, len);
	else
		dns_flight_answered(ctx, id, status, msg, len);
}

static void on_upstream_forged(void *ctx, uint64_t id, unsigned count)
{
	dns_flight_forged(ctx, id, count);
}

void dns_proxy_wake(struct dns_proxy *proxy)
{
	proxy->now_us = ak_now_us();
	proxy->now_ms = proxy->now_us / 1000;
}

static void on_upstream_wake(void *ctx)
{
	dns_proxy_wake(ctx);
}

static void on_upstream_rest(void *ctx)
{
	struct dns_proxy *proxy = ctx;

	dns_udp_flush(proxy->udp);
}

/* Each socket belongs to its part as soon as the part exists. */
static int start(struct dns_proxy *proxy, struct dns_sockets *socks, const struct dns_upstream_conf *conf, struct ak_err *err)
{
	struct dns_upstream_hooks hooks = {
		.ctx = proxy,
		.answered = on_upstream_answer,
		.forged = on_upstream_forged,
		.wake = on_upstream_wake,
		.rest = on_upstream_rest,
	};
	int rc;

	if (getrandom(proxy->key, sizeof(proxy->key), 0) != (ssize_t)sizeof(proxy->key))
		return ak_fail_errno(err, errno, "cannot read random numbers");
	dns_nat64_reset(proxy);
	rc = dns_upstream_new(proxy->base, conf, &hooks, &proxy->upstream, err);
	if (rc < 0)
		return rc;
	rc = dns_udp_new(proxy, TAKE_FD(socks->udp4), TAKE_FD(socks->udp6), &proxy->udp, err);
	if (rc < 0)
		return rc;
	return dns_tcp_new(proxy, TAKE_FD(socks->tcp4), TAKE_FD(socks->tcp6), &proxy->tcp, err);
}

static void close_sockets(struct dns_sockets *socks)
{
	ak_close(socks->udp4);
	ak_close(socks->tcp4);
	ak_close(socks->udp6);
	ak_close(socks->tcp6);
}

int dns_proxy_new(struct event_base *base, const struct dns_sockets *socks, const struct dns_hooks *hooks,
	const struct dns_upstream_conf *conf, struct dns_proxy **ret, struct ak_err *err)
{
	struct dns_sockets left = *socks; /* owned from here on, even on failure */
	struct dns_proxy *proxy = calloc(1, sizeof(*proxy));
	int rc = -ENOMEM;

	if (proxy) {
		proxy->base = base;
		proxy->hooks = *hooks;
		proxy->ipv6 = conf->ipv6;
		dns_proxy_wake(proxy);
		LIST_INIT(&proxy->clients);
		rc = start(proxy, &left, conf, err);
	} else {
		ak_fail(err, ENOMEM, "out of memory");
	}
	if (rc < 0) {
		close_sockets(&left);
		dns_proxy_free(proxy);
		return rc;
	}
	*ret = proxy;
	return 0;
}

void dns_proxy_free(struct dns_proxy *proxy)
{
	struct dns_client *c;

	if (!proxy)
		return;
	while ((c = LIST_FIRST(&proxy->clients)) != NULL)
		dns_client_free(c);
	dns_upstream_free(proxy->upstream);
	dns_tcp_free(proxy->tcp);
	dns_udp_free(proxy->udp);
	free(proxy);
}

static bool is_failure(void *ctx, const struct dns_cache_entry *e)
{
	return e->kind == DNS_CACHE_FAILED;
}

int dns_proxy_set_upstream(struct dns_proxy *proxy, const struct dns_upstream_conf *conf, struct ak_err *err)
{
	int rc = dns_upstream_set(proxy->upstream, conf, err);

	struct dns_client *c;

	if (rc < 0)
		return rc;
	proxy->ipv6 = conf->ipv6;
	dns_nat64_reset(proxy);
	LIST_FOREACH(c, &proxy->clients, all)
		dns_cache_sweep(&c->cache, is_failure, NULL); /* the new servers may have an answer */
	return 0;
}

void dns_proxy_stats(const struct dns_proxy *proxy, struct dns_stats *ret)
{
	*ret = proxy->stats;
}
