/* Whose a connection is: what the kernel's answer may look like, and real connections of our own. */
#include "gateway/base/cleanup.h"
#include "gateway/http/peer.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/tcp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define UID 4242

struct answer {
	struct nlmsghdr nlh;
	struct inet_diag_msg m;
};

static struct http_ends ends(void)
{
	return (struct http_ends){ ak_addr_v4(0x7f000001), ak_addr_v4(0x7f000001), 50000, 18888 };
}

static struct answer good(void)
{
	struct answer a = {
		.nlh = { .nlmsg_len = sizeof(a), .nlmsg_type = SOCK_DIAG_BY_FAMILY },
		.m = { .idiag_family = AF_INET, .idiag_state = TCP_ESTABLISHED, .idiag_uid = UID, .idiag_inode = 77 },
	};

	a.m.id.idiag_sport = htons(50000);
	a.m.id.idiag_dport = htons(18888);
	a.m.id.idiag_src[0] = a.m.id.idiag_dst[0] = htonl(0x7f000001);
	return a;
}

static int parse(const struct answer *a, uid_t *ret)
{
	const struct http_ends e = ends();

	return http_peer_parse(a, sizeof(*a), &e, ret);
}

static void a_live_connection_has_an_owner(void **state)
{
	static const uint8_t alive[] = { TCP_ESTABLISHED, TCP_FIN_WAIT1, TCP_FIN_WAIT2 };
	struct answer a = good();
	uid_t uid;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(alive); i++) {
		uid = 0;
		a.m.idiag_state = alive[i];
		assert_int_equal(parse(&a, &uid), 0);
		assert_int_equal(uid, UID);
	}
}

static void a_socket_that_is_not_the_connection_has_none(void **state)
{
	static const uint8_t dead[] = { 0, TCP_SYN_SENT, TCP_SYN_RECV, TCP_TIME_WAIT, TCP_CLOSE, TCP_CLOSE_WAIT, TCP_LAST_ACK,
		TCP_LISTEN, TCP_CLOSING, 12, 33, 255 };
	struct answer a;
	uid_t uid = 7;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(dead); i++) {
		a = good();
		a.m.idiag_state = dead[i];
		assert_int_equal(parse(&a, &uid), -ENOENT);
	}
	a = good();
	a.m.idiag_inode = 0; /* no process holds it: its owner is root on many kernels */
	a.m.idiag_uid = 0;
	assert_int_equal(parse(&a, &uid), -ENOENT);
	a = good();
	a.m.id.idiag_sport = htons(50001);
	assert_int_equal(parse(&a, &uid), -ENOENT);
	a = good();
	a.m.id.idiag_dport = 0;
	assert_int_equal(parse(&a, &uid), -ENOENT);
	a = good();
	a.m.id.idiag_dst[0] = htonl(0x7f000002);
	assert_int_equal(parse(&a, &uid), -ENOENT);
	a = good();
	a.m.idiag_family = AF_INET6; /* 7f00:1:: is not 127.0.0.1 */
	assert_int_equal(parse(&a, &uid), -ENOENT);
	assert_int_equal(uid, 7);
}

static void a_user_of_another_namespace_is_nobody(void **state)
{
	struct answer a = good();
	uid_t uid = 7;

	(void)state;
	a.m.idiag_uid = 65534;
	assert_int_equal(parse(&a, &uid), -ENOENT);
	a.m.idiag_uid = HTTP_PEER_NONE;
	assert_int_equal(parse(&a, &uid), -ENOENT);
	assert_int_equal(uid, 7);
}

static void mapped_addresses_are_the_same(void **state)
{
	struct answer a = good();
	uid_t uid = 0;

	(void)state;
	a.m.idiag_family = AF_INET6;
	for (int i = 0; i < 2; i++) {
		__be32 *addr = i ? a.m.id.idiag_dst : a.m.id.idiag_src;

		addr[0] = addr[1] = 0;
		addr[2] = htonl(0xffff);
		addr[3] = htonl(0x7f000001);
	}
	assert_int_equal(parse(&a, &uid), 0);
	assert_int_equal(uid, UID);
	a.m.id.idiag_src[2] = 0; /* ::127.0.0.1 */
	assert_int_equal(parse(&a, &uid), -ENOENT);
}

static void anything_else_is_no_answer(void **state)
{
	const struct http_ends e = ends();
	struct answer a = good();
	struct {
		struct nlmsghdr nlh;
		struct nlmsgerr err;
	} no = { { .nlmsg_len = sizeof(no), .nlmsg_type = NLMSG_ERROR }, { .error = -ENOENT } };
	uid_t uid = 7;

	(void)state;
	for (size_t len = 0; len < sizeof(a); len++)
		assert_int_equal(http_peer_parse(&a, len, &e, &uid), -EBADMSG);
	for (uint32_t len = 0; len < sizeof(a); len++) {
		a.nlh.nlmsg_len = len;
		assert_int_equal(http_peer_parse(&a, sizeof(a), &e, &uid), -EBADMSG);
	}
	a = good();
	a.nlh.nlmsg_type = NLMSG_DONE;
	assert_int_equal(parse(&a, &uid), -EBADMSG);
	a = good();
	a.m.idiag_family = AF_UNIX;
	assert_int_equal(parse(&a, &uid), -EBADMSG);
	assert_int_equal(http_peer_parse(&no, sizeof(no), &e, &uid), -ENOENT);
	no.err.error = 0;
	assert_int_equal(http_peer_parse(&no, sizeof(no), &e, &uid), -EBADMSG);
	assert_int_equal(uid, 7);
}

/* ---- real ones ---- */

struct pair {
	int nl, listener, far, near;
};

static bool pair_open(struct pair *p, const char *where, const char *to)
{
	struct sockaddr_storage ss;
	struct ak_addr addr;
	socklen_t len;
	uint16_t port;

	assert_int_equal(ak_addr_parse(where, &addr), 0);
	len = ak_addr_to_sockaddr(&addr, 0, &ss);
	p->nl = http_peer_open();
	p->listener = socket(addr.family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (p->nl < 0 || bind(p->listener, (struct sockaddr *)&ss, len) < 0 || listen(p->listener, 4) < 0)
		return false; /* no IPv6 here */
	assert_int_equal(getsockname(p->listener, (struct sockaddr *)&ss, &len), 0);
	ak_addr_from_sockaddr(&ss, &port);
	assert_int_equal(ak_addr_parse(to, &addr), 0);
	len = ak_addr_to_sockaddr(&addr, port, &ss);
	p->far = socket(addr.family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (connect(p->far, (struct sockaddr *)&ss, len) < 0)
		return false;
	p->near = accept4(p->listener, NULL, NULL, SOCK_CLOEXEC);
	return p->near >= 0;
}

static void pair_close(struct pair *p)
{
	int *fds[] = { &p->nl, &p->listener, &p->far, &p->near };

	for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
		if (*fds[i] >= 0)
			close(*fds[i]);
		*fds[i] = -1;
	}
}

static void our_own_connections_are_ours(void **state)
{
	static const char *const rows[][2] = { { "127.0.0.1", "127.0.0.1" }, { "::1", "::1" },
		{ "127.0.0.1", "::ffff:127.0.0.1" }, { "127.0.0.7", "127.0.0.7" } };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct pair p = { -1, -1, -1, -1 };

		if (pair_open(&p, rows[i][0], rows[i][1])) {
			for (int again = 0; again < 3; again++)
				assert_int_equal(http_peer_uid(p.nl, p.near), geteuid());
			assert_int_equal(shutdown(p.far, SHUT_WR), 0);
			assert_int_equal(http_peer_uid(p.nl, p.near), geteuid());
		}
		pair_close(&p);
	}
}

static void one_that_has_left_is_nobody(void **state)
{
	struct pair p = { -1, -1, -1, -1 };
	struct linger now = { 1, 0 };

	(void)state;
	for (int reset = 0; reset < 2; reset++) {
		assert_true(pair_open(&p, "127.0.0.1", "127.0.0.1"));
		if (reset)
			setsockopt(p.far, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
		close(p.far);
		p.far = -1;
		assert_int_equal(http_peer_uid(p.nl, p.near), HTTP_PEER_NONE);
		assert_int_equal(http_peer_uid(-1, p.near), HTTP_PEER_NONE);
		pair_close(&p);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_live_connection_has_an_owner),
		cmocka_unit_test(a_socket_that_is_not_the_connection_has_none),
		cmocka_unit_test(a_user_of_another_namespace_is_nobody),
		cmocka_unit_test(mapped_addresses_are_the_same),
		cmocka_unit_test(anything_else_is_no_answer),
		cmocka_unit_test(our_own_connections_are_ours),
		cmocka_unit_test(one_that_has_left_is_nobody),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
