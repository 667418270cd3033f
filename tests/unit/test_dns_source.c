/* Replies come from the very address that was asked, over IPv4 and IPv6. In a network namespace of its own, for it binds every address. */
#include "tests/unit/dns_rig.h"

#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>

static int any_socket(int family, int type, uint16_t port)
{
	struct sockaddr_storage ss;
	struct ak_addr any = { .family = (uint8_t)family };
	socklen_t len = ak_addr_to_sockaddr(&any, port, &ss);
	int fd = socket(family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), on = 1;

	assert_true(fd >= 0);
	if (family == AF_INET6) {
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
		setsockopt(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO, &on, sizeof(on));
	} else {
		setsockopt(fd, IPPROTO_IP, IP_PKTINFO, &on, sizeof(on));
	}
	assert_int_equal(bind(fd, (struct sockaddr *)&ss, len), 0);
	if (type == SOCK_STREAM)
		assert_int_equal(listen(fd, 8), 0);
	return fd;
}

static int private_network(void **state)
{
	struct ifreq ifr = { .ifr_name = "lo", .ifr_flags = IFF_UP };
	_cleanup_close_ int fd = -1;

	if (unshare(CLONE_NEWUSER | CLONE_NEWNET) < 0)
		return 0;
	fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd >= 0 && ioctl(fd, SIOCSIFFLAGS, &ifr) == 0)
		*state = &private_network;
	return 0;
}

/* A connected socket takes datagrams from its peer only: that is the assertion. */
static void asked_from(struct rig *r, const char *address, const char *name)
{
	static struct packet p;
	struct sockaddr_storage ss;
	struct ak_addr a;
	socklen_t len;

	assert_int_equal(ak_addr_parse(address, &a), 0);
	len = ak_addr_to_sockaddr(&a, r->udp_port, &ss);
	close(r->cli);
	r->cli = socket(a.family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	assert_int_equal(connect(r->cli, (struct sockaddr *)&ss, len), 0);
	assert_int_equal(rig_ask(r, name, 1, &p), 0); /* through the upstream */
	assert_int_equal(rig_ask(r, name, 1, &p), 0); /* from the cache */
	assert_int_equal(rig_ask(r, "evil.test", 1, &p), 3);
}

static void reply_comes_from_the_address_that_was_asked(void **state)
{
	static struct rig r;
	struct dns_hooks hooks = { .ctx = &r, .client_of = rig_client_of, .learn = rig_learn, .event = rig_event };
	struct dns_sockets socks;
	char csv[64];
	struct dns_upstream_conf conf = { .servers_csv = csv };
	struct ak_err err = { "" };

	if (*state != &private_network) {
		if (getenv("AK_MUST_WORK"))
			fail_msg("no private network namespace");
		skip();
	}
	rig_open(&r, POLICY_DENY, false);
	dns_proxy_free(r.proxy);
	r.udp_port = 53;
	socks = (struct dns_sockets){ any_socket(AF_INET, SOCK_DGRAM, 53), any_socket(AF_INET, SOCK_STREAM, 53),
		any_socket(AF_INET6, SOCK_DGRAM, 53), any_socket(AF_INET6, SOCK_STREAM, 53) };
	snprintf(csv, sizeof(csv), "127.0.0.1:%u", r.up_port);
	assert_int_equal(dns_proxy_new(r.base, &socks, &hooks, &conf, &r.proxy, &err), 0);
	assert_int_equal(dns_client_new(r.proxy, SANDBOX, r.policy, NULL, NULL, &r.client), 0);
	asked_from(&r, "127.0.0.1", "ok.test");
	asked_from(&r, "127.8.8.8", "www.ok.test");
	asked_from(&r, "127.1.1.1", "a.wild.test");
	asked_from(&r, "::1", "b.wild.test");
	rig_close(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(reply_comes_from_the_address_that_was_asked),
	};

	return cmocka_run_group_tests_name("dns source", tests, private_network, NULL);
}
