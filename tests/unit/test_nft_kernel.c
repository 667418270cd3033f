/* The ruleset against a real kernel: two namespaces, real sockets on both sides. */
#include "nft/batch.h"
#include "nft/fw.h"
#include "nft/object.h"
#include "nft/ruleset.h"
#include "nft_lab.h"

#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/netfilter.h>
#include <net/if.h>
#include <netinet/ip.h>
#include <netinet/tcp.h>
#include <setjmp.h>
#include <stddef.h>

#include <cmocka.h>

static struct lab lab;
static struct policy *deny_all, *allow_all;

static const char deny_json[] =
	"{\"version\":1,\"name\":\"t\",\"default\":\"deny\",\"allow\":[],\"allow_cidr\":[\"11.9.0.0/16\"]}";
static const char allow_json[] = "{\"version\":1,\"name\":\"t\",\"default\":\"allow\"}";

static struct fw_counts counts(void)
{
	struct fw_counts c = { 0 };
	struct ak_err err = { "" };

	if (fw_sandbox_counts(lab.fw, lab.link.id, &c, &err) < 0)
		fail_msg("%s", err.text);
	return c;
}

/* Accept on FD and check that the connection was meant for DST:PORT. */
static int accept_for(int fd, const char *dst, uint16_t port)
{
	struct sockaddr_storage ss;
	struct ak_addr want, got;
	socklen_t len = sizeof(ss);
	uint16_t got_port;
	int conn;

	assert_int_equal(lab_wait(fd, POLLIN, 1000), 1);
	conn = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	assert_true(conn >= 0);
	assert_int_equal(getsockname(conn, (struct sockaddr *)&ss, &len), 0);
	got = ak_addr_from_sockaddr(&ss, &got_port);
	ak_addr_parse(dst, &want);
	assert_true(ak_addr_eq(&want, &got));
	assert_int_equal(got_port, port);
	return conn;
}

static void assert_nothing_accepted(void)
{
	assert_int_equal(lab_wait(lab.tcp4, POLLIN, 0), 0);
	assert_int_equal(lab_wait(lab.tcp6, POLLIN, 0), 0);
	assert_int_equal(lab_wait(lab.udp4, POLLIN, 0), 0);
	assert_int_equal(lab_wait(lab.udp6, POLLIN, 0), 0);
}

/* The connection is admitted and reaches the relay's listener with its destination kept. */
static void assert_admitted(const char *dst, uint16_t port)
{
	int client = -1, conn;

	assert_int_equal(lab_connect(&lab, dst, port, &client), 0);
	conn = accept_for(strchr(dst, ':') ? lab.tcp6 : lab.tcp4, dst, port);
	close(conn);
	close(client);
}

/* Wait until DST:PORT is refused: the element's time has come. */
static void wait_expired(const char *dst, uint16_t port)
{
	for (int i = 0; i < 40; i++) {
		int client = -1;

		if (lab_connect(&lab, dst, port, &client) == ECONNREFUSED)
			return;
		close(accept_for(lab.tcp4, dst, port));
		close(client);
		poll(NULL, 0, 100);
	}
	fail_msg("%s did not expire", dst);
}

/* ---- what is refused ---- */

static void unlearned_tcp_is_refused_at_once_and_recorded(void **state)
{
	assert_int_equal(lab_connect(&lab, "11.0.0.9", 443, NULL), ECONNREFUSED);
	assert_int_equal(lab_connect(&lab, "2a00::9", 443, NULL), ECONNREFUSED);
	assert_int_equal(lab_denials(&lab, "11.0.0.9", FW_REASON_DEFAULT, true), 1);
	assert_int_equal(lab_denials(&lab, "2a00::9", FW_REASON_DEFAULT, true), 1);
	for (unsigned i = 0; i < lab.n_seen; i++)
		if (lab.seen[i].dst.family == AF_INET && lab.seen[i].dst.bytes[3] == 9) {
			assert_int_equal(lab.seen[i].id, 7);
			assert_int_equal(lab.seen[i].l4proto, IPPROTO_TCP);
			assert_int_equal(lab.seen[i].dport, 443);
			assert_true(ak_addr_eq(&lab.seen[i].src, &lab.link.addr4));
		}
	assert_nothing_accepted();
}

static void unlearned_udp_fails_at_once_each_time(void **state)
{
	for (int i = 0; i < 30; i++) {
		assert_int_equal(lab_datagram(&lab, "11.0.0.9", 443, 1000), EHOSTUNREACH);
		assert_int_equal(lab_datagram(&lab, "2a00::9", 443, 1000), EACCES);
	}
	assert_nothing_accepted();
}

static void blocked_ranges_and_our_own_end_are_refused(void **state)
{
	static const char *const dsts[] = { "169.254.169.254", "10.1.2.3", "127.0.0.1", "100.64.0.29", "100.64.0.33",
		"fd00:ec2::254", "fd61:6b::7:1" };

	for (size_t i = 0; i < sizeof(dsts) / sizeof(dsts[0]); i++) {
		if (strncmp(dsts[i], "127.", 4) == 0)
			continue; /* never leaves the sandbox */
		assert_int_equal(lab_connect(&lab, dsts[i], 80, NULL), ECONNREFUSED);
		assert_int_equal(lab_denials(&lab, dsts[i], FW_REASON_BLOCKED, true), 1);
	}
	assert_nothing_accepted();
}

static void blocked_beats_learned_but_for_our_own_end(void **state)
{
	assert_int_equal(lab_learn(&lab, "10.1.2.4", POLICY_TCP, 80, 60), 0);
	assert_int_equal(lab_connect(&lab, "10.1.2.4", 80, NULL), ECONNREFUSED);
	assert_int_equal(lab_learn(&lab, "100.64.0.29", POLICY_TCP, 8080, 60), 0);
	assert_admitted("100.64.0.29", 8080);
	assert_int_equal(lab_connect(&lab, "100.64.0.29", 8081, NULL), ECONNREFUSED);
	assert_int_equal(lab_learn(&lab, "fd61:6b::7:1", POLICY_TCP, 8080, 60), 0);
	assert_admitted("fd61:6b::7:1", 8080);
}

static void dns_over_tls_is_refused_even_when_learned(void **state)
{
	assert_int_equal(lab_learn(&lab, "11.0.0.10", POLICY_TCP, 853, 60), 0);
	assert_int_equal(lab_connect(&lab, "11.0.0.10", 853, NULL), ECONNREFUSED);
	assert_int_equal(lab_datagram(&lab, "11.0.0.10", 853, 1000), EHOSTUNREACH);
	assert_int_equal(lab_denials(&lab, "11.0.0.10", FW_REASON_DOT, true), 2);
}

static void dns_reaches_the_proxy_whatever_its_address(void **state)
{
	char buf[16];

	assert_int_equal(lab_datagram(&lab, "11.0.0.53", 53, 0), 0);
	assert_int_equal(lab_wait(lab.dns4, POLLIN, 1000), 1);
	assert_int_equal(recv(lab.dns4, buf, sizeof(buf), 0), 4);
}

static void relay_ports_are_not_reachable_directly(void **state)
{
	assert_int_equal(lab_connect(&lab, "11.0.0.9", FW_RELAY_TCP_PORT, NULL), ECONNREFUSED);
	assert_int_equal(lab_connect(&lab, "100.64.0.29", FW_RELAY_TCP_PORT, NULL), ECONNREFUSED);
	assert_int_equal(lab_datagram(&lab, "100.64.0.29", FW_RELAY_UDP_PORT, 1000), EHOSTUNREACH);
	assert_nothing_accepted();
}

/* ---- what is admitted ---- */

static void learned_tcp_reaches_the_listener_with_its_destination(void **state)
{
	int client = -1, conn;
	char buf[8];

	assert_int_equal(lab_learn(&lab, "11.0.0.1", POLICY_TCP, 443, 60), 0);
	assert_int_equal(lab_connect(&lab, "11.0.0.1", 443, &client), 0);
	conn = accept_for(lab.tcp4, "11.0.0.1", 443);
	assert_int_equal(send(client, "hello", 5, 0), 5);
	assert_int_equal(lab_wait(conn, POLLIN, 1000), 1);
	assert_int_equal(recv(conn, buf, sizeof(buf), 0), 5);
	assert_int_equal(send(conn, "there", 5, 0), 5);
	assert_int_equal(lab_wait(client, POLLIN, 1000), 1);
	assert_int_equal(recv(client, buf, sizeof(buf), 0), 5);
	close(conn);
	close(client);

	assert_int_equal(lab_learn(&lab, "2a00::1", POLICY_TCP, 443, 60), 0);
	assert_admitted("2a00::1", 443);
}

static void learned_address_opens_that_port_and_protocol_only(void **state)
{
	assert_int_equal(lab_learn(&lab, "11.0.0.2", POLICY_TCP, 443, 60), 0);
	assert_int_equal(lab_connect(&lab, "11.0.0.2", 80, NULL), ECONNREFUSED);
	assert_int_equal(lab_datagram(&lab, "11.0.0.2", 443, 1000), EHOSTUNREACH);
	assert_nothing_accepted();
}

static void assert_datagram_for(int fd, const char *dst, uint16_t port)
{
	char buf[16], control[256];
	struct iovec iov = { buf, sizeof(buf) };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control) };
	struct sockaddr_storage ss = { 0 };
	struct ak_addr want, got;
	uint16_t got_port;

	assert_int_equal(lab_wait(fd, POLLIN, 1000), 1);
	assert_int_equal(recvmsg(fd, &m, 0), 4);
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c))
		if ((c->cmsg_level == SOL_IP && c->cmsg_type == IP_ORIGDSTADDR) ||
			(c->cmsg_level == SOL_IPV6 && c->cmsg_type == IPV6_ORIGDSTADDR))
			memcpy(&ss, CMSG_DATA(c), c->cmsg_len - CMSG_LEN(0));
	got = ak_addr_from_sockaddr(&ss, &got_port);
	ak_addr_parse(dst, &want);
	assert_true(ak_addr_eq(&want, &got));
	assert_int_equal(got_port, port);
}

static void learned_udp_reaches_the_relay_socket(void **state)
{
	assert_int_equal(lab_learn(&lab, "11.0.0.3", POLICY_UDP, 443, 60), 0);
	assert_int_equal(lab_learn(&lab, "2a00::3", POLICY_UDP, 443, 60), 0);
	assert_int_equal(lab_datagram(&lab, "11.0.0.3", 443, 0), 0);
	assert_datagram_for(lab.udp4, "11.0.0.3", 443);
	assert_int_equal(lab_datagram(&lab, "2a00::3", 443, 0), 0);
	assert_datagram_for(lab.udp6, "2a00::3", 443);
}

static void open_range_is_admitted_without_a_name(void **state)
{
	assert_admitted("11.9.1.1", 22);
	assert_int_equal(lab_datagram(&lab, "11.9.1.1", 9999, 0), 0);
	assert_datagram_for(lab.udp4, "11.9.1.1", 9999);
}

/* ---- time ---- */

static void expired_element_is_refused_and_its_flow_lives_on(void **state)
{
	int client = -1, conn;
	char buf[8];

	assert_int_equal(lab_learn(&lab, "11.0.0.4", POLICY_TCP, 443, 1), 0);
	assert_int_equal(lab_connect(&lab, "11.0.0.4", 443, &client), 0);
	conn = accept_for(lab.tcp4, "11.0.0.4", 443);
	wait_expired("11.0.0.4", 443);
	assert_int_equal(send(client, "still", 5, 0), 5);
	assert_int_equal(lab_wait(conn, POLLIN, 1000), 1);
	assert_int_equal(recv(conn, buf, sizeof(buf), 0), 5);
	close(conn);
	close(client);
}

static void refresh_extends_an_element(void **state)
{
	assert_int_equal(lab_learn(&lab, "11.0.0.5", POLICY_TCP, 443, 1), 0);
	assert_int_equal(lab_learn(&lab, "11.0.0.5", POLICY_TCP, 443, 60), 0);
	assert_int_equal(lab_learn(&lab, "11.0.0.6", POLICY_TCP, 443, 1), 0);
	wait_expired("11.0.0.6", 443); /* as old as the first was */
	assert_admitted("11.0.0.5", 443);
}

static void forgotten_element_is_refused_and_forgetting_twice_is_fine(void **state)
{
	struct fw_elem e = { .proto = POLICY_TCP, .port = 443, .timeout_s = 60 };
	struct ak_err err = { "" };

	assert_int_equal(lab_learn(&lab, "11.0.0.7", POLICY_TCP, 443, 60), 0);
	assert_admitted("11.0.0.7", 443);
	ak_addr_parse("11.0.0.7", &e.addr);
	assert_int_equal(fw_forget(lab.fw, 7, &e, 1, &err), 0);
	assert_int_equal(lab_connect(&lab, "11.0.0.7", 443, NULL), ECONNREFUSED);
	assert_int_equal(fw_forget(lab.fw, 7, &e, 1, &err), 0);
}

/* ---- batches ---- */

static void failed_batch_changes_nothing_and_names_the_object(void **state)
{
	struct fw_elem e = { .proto = POLICY_TCP, .port = 443, .timeout_s = 60 };
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_NETFILTER);
	struct fw_batch b = { 0 };
	struct ak_err err = { "" };

	ak_addr_parse("11.0.0.8", &e.addr);
	fw_batch_begin(&b, 1000);
	fw_build_learn(&b, 7, &e, 1, false);
	fw_build_learn(&b, 99, &e, 1, false);
	assert_int_equal(fw_batch_send(&b, fd, &err), -ENOENT);
	assert_string_equal(err.text, "set sb99_tcp4: No such file or directory");
	assert_int_equal(lab_connect(&lab, "11.0.0.8", 443, NULL), ECONNREFUSED);
	fw_batch_done(&b);
	close(fd);

	assert_int_equal(fw_sandbox_add(lab.fw, &lab.link, deny_all, &err), -EEXIST);
	assert_non_null(strstr(err.text, "sb7_dropped: File exists"));
	assert_int_equal(lab_learn(&lab, "11.0.0.8", POLICY_TCP, 443, 60), 0);
	assert_admitted("11.0.0.8", 443);
}

static void repeated_elements_in_one_call_count_once(void **state)
{
	struct fw_elem e[3] = { { .proto = POLICY_TCP, .port = 443, .timeout_s = 1 },
		{ .proto = POLICY_TCP, .port = 443, .timeout_s = 60 }, { .proto = POLICY_TCP, .port = 443, .timeout_s = 60 } };
	struct ak_err err = { "" };

	for (int i = 0; i < 3; i++)
		ak_addr_parse("11.0.0.11", &e[i].addr);
	assert_int_equal(fw_learn(lab.fw, 7, e, 3, false, &err), 0);
	assert_admitted("11.0.0.11", 443);
}

static void learning_for_ever_is_refused(void **state)
{
	assert_int_equal(lab_learn(&lab, "11.0.0.12", POLICY_TCP, 443, 0), -EINVAL);
	assert_int_equal(lab_learn(&lab, "11.0.0.12", POLICY_TCP, 443, FW_TIMEOUT_MAX_S + 1), -EINVAL);
	assert_int_equal(lab_connect(&lab, "11.0.0.12", 443, NULL), ECONNREFUSED);
}

static void full_set_refuses_more_and_still_refreshes(void **state)
{
	static struct fw_elem e[256];
	struct ak_err err = { "" };
	int rc = 0;

	for (uint32_t i = 0; i < FW_LEARNED_MAX && rc == 0; i += 256) {
		for (uint32_t j = 0; j < 256; j++)
			e[j] = (struct fw_elem){
				.addr = ak_addr_v4(0x0b800000 + i + j), .proto = POLICY_UDP, .port = 9, .timeout_s = 600
			};
		rc = fw_learn(lab.fw, 7, e, 256, false, &err);
	}
	if (rc == 0) {
		e[0].addr = ak_addr_v4(0x0b700000);
		rc = fw_learn(lab.fw, 7, e, 1, false, &err);
	}
	assert_int_equal(rc, -ENFILE); /* a few were there before */
	assert_non_null(strstr(err.text, "set sb7_udp4: "));
	e[0].addr = ak_addr_v4(0x0b800000);
	assert_int_equal(fw_learn(lab.fw, 7, e, 1, false, &err), 0);
	e[1].addr = ak_addr_v4(0x0b700001); /* absent, in a full set */
	assert_int_equal(fw_forget(lab.fw, 7, e, 2, &err), 0);
}

/* ---- raw packets ---- */

static uint16_t checksum(const void *data, size_t len)
{
	const uint8_t *p = data;
	uint32_t sum = 0;

	for (size_t i = 0; i + 1 < len; i += 2)
		sum += (uint32_t)(p[i] << 8 | p[i + 1]);
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return htons((uint16_t)~sum);
}

/* One Ethernet frame out of the sandbox. */
static void send_frame(const void *frame, size_t len)
{
	struct sockaddr_ll to = { .sll_family = AF_PACKET, .sll_halen = 6 };
	int fd = lab_socket(&lab, AF_PACKET, SOCK_RAW, htons(ETH_P_ALL));

	lab_in_sandbox(&lab);
	to.sll_ifindex = (int)if_nametoindex("eth0");
	lab_in_gateway(&lab);
	assert_int_equal(sendto(fd, frame, len, 0, (struct sockaddr *)&to, sizeof(to)), (ssize_t)len);
	close(fd);
}

struct udp_frame {
	uint8_t bytes[128];
	size_t len;
};

static const uint8_t gateway_mac[6] = { 2, 0, 0, 0, 0, 1 }, sandbox_mac[6] = { 2, 0, 0, 0, 0, 2 };

/* A UDP packet to DST:PORT in a frame, with TAG bytes between the addresses and the type. */
static struct udp_frame udp_frame(const char *src, const char *dst, uint16_t port, const uint8_t *tag, size_t tag_len)
{
	struct udp_frame f = { .len = 12 + tag_len + 2 + 20 + 8 + 4 };
	uint8_t *ip = f.bytes + 12 + tag_len + 2;
	struct ak_addr s, d;
	uint16_t sum;

	ak_addr_parse(src, &s);
	ak_addr_parse(dst, &d);
	memcpy(f.bytes, gateway_mac, 6);
	memcpy(f.bytes + 6, sandbox_mac, 6);
	if (tag_len)
		memcpy(f.bytes + 12, tag, tag_len);
	ip[-2] = 0x08;
	memcpy(ip, (const uint8_t[]){ 0x45, 0, 0, 32, 0, 1, 0, 0, 64, IPPROTO_UDP }, 10);
	memcpy(ip + 12, s.bytes, 4);
	memcpy(ip + 16, d.bytes, 4);
	sum = checksum(ip, 20);
	memcpy(ip + 10, &sum, 2);
	memcpy(ip + 20, (const uint8_t[]){ 0x30, 0x39, (uint8_t)(port >> 8), (uint8_t)port, 0, 12, 0, 0, 'p', 'i', 'n', 'g' },
		12);
	return f;
}

static void control_frame_is_admitted(void)
{
	struct udp_frame f = udp_frame("100.64.0.30", "11.9.1.2", 7, NULL, 0);

	send_frame(f.bytes, f.len);
	assert_datagram_for(lab.udp4, "11.9.1.2", 7);
}

static void forged_source_is_dropped_and_recorded_as_spoof(void **state)
{
	struct udp_frame f = udp_frame("100.64.0.34", "11.9.1.3", 53, NULL, 0);

	control_frame_is_admitted();
	send_frame(f.bytes, f.len);
	assert_int_equal(lab_denials(&lab, "11.9.1.3", FW_REASON_SPOOF, true), 1);
	assert_int_equal(lab_wait(lab.dns4, POLLIN, 0), 0);
}

static void forged_mac_vlan_tags_and_arp_stop_at_the_link(void **state)
{
	static const uint8_t vlan0[] = { 0x81, 0, 0, 0 }, vlan5[] = { 0x81, 0, 0, 5 };
	struct udp_frame f = udp_frame("100.64.0.30", "11.9.1.4", 53, NULL, 0);
	struct fw_counts before = counts();

	f.bytes[11] = 9;
	send_frame(f.bytes, f.len);
	f = udp_frame("100.64.0.30", "11.9.1.4", 53, vlan0, sizeof(vlan0));
	send_frame(f.bytes, f.len);
	f = udp_frame("100.64.0.30", "11.9.1.4", 53, vlan5, sizeof(vlan5));
	send_frame(f.bytes, f.len);
	f = udp_frame("100.64.0.30", "11.9.1.4", 53, NULL, 0);
	f.bytes[12] = 0x08;
	f.bytes[13] = 0x06;
	send_frame(f.bytes, f.len);
	assert_true(counts().link >= before.link + 4);
	control_frame_is_admitted(); /* in order: the others would have come before it */
	assert_int_equal(lab_wait(lab.dns4, POLLIN, 0), 0);
}

static void fragments_and_options_are_dropped_and_recorded(void **state)
{
	struct udp_frame f = udp_frame("100.64.0.30", "11.9.1.5", 53, NULL, 0);
	uint8_t *ip = f.bytes + 14;
	uint16_t sum;

	ip[6] = 0x20; /* more fragments */
	memset(ip + 10, 0, 2);
	sum = checksum(ip, 20);
	memcpy(ip + 10, &sum, 2);
	send_frame(f.bytes, f.len);
	assert_int_equal(lab_denials(&lab, "11.9.1.5", FW_REASON_PROTO, true), 1);

	f = udp_frame("100.64.0.30", "11.9.1.6", 53, NULL, 0);
	memmove(ip + 24, ip + 20, 12);
	memset(ip + 20, 1, 4); /* four no-operation options */
	ip[0] = 0x46;
	ip[3] = 36;
	memset(ip + 10, 0, 2);
	sum = checksum(ip, 24);
	memcpy(ip + 10, &sum, 2);
	send_frame(f.bytes, f.len + 4);
	assert_int_equal(lab_denials(&lab, "11.9.1.6", FW_REASON_PROTO, true), 1);
	assert_int_equal(lab_wait(lab.dns4, POLLIN, 0), 0);
}

static void send_raw(int family, int proto, const char *dst, const void *data, size_t len)
{
	socklen_t addr_len;
	struct sockaddr_storage ss = lab_addr(dst, 0, &addr_len);
	int fd = lab_socket(&lab, family, SOCK_RAW, proto);

	assert_int_equal(sendto(fd, data, len, 0, (struct sockaddr *)&ss, addr_len), (ssize_t)len);
	close(fd);
}

static void other_protocols_are_refused_and_recorded(void **state)
{
	uint8_t echo[16] = { 8 }, echo6[16] = { 128 }, sctp[16] = { 0x12, 0x34, 0x01, 0xbb };

	send_raw(AF_INET, IPPROTO_ICMP, "11.9.2.1", echo, sizeof(echo));
	assert_int_equal(lab_denials(&lab, "11.9.2.1", FW_REASON_PROTO, true), 1);
	send_raw(AF_INET, IPPROTO_SCTP, "11.9.2.2", sctp, sizeof(sctp));
	assert_int_equal(lab_denials(&lab, "11.9.2.2", FW_REASON_PROTO, true), 1);
	assert_int_equal(lab.seen[lab.n_seen - 1].dport, 443);
	send_raw(AF_INET6, IPPROTO_ICMPV6, "2a00::21", echo6, sizeof(echo6));
	assert_int_equal(lab_denials(&lab, "2a00::21", FW_REASON_PROTO, true), 1);
	send_raw(AF_INET6, IPPROTO_DSTOPTS, "2a00::22", (const uint8_t[]){ 59, 0, 1, 4, 0, 0, 0, 0 }, 8);
	assert_int_equal(lab_denials(&lab, "2a00::22", FW_REASON_PROTO, true), 1);
}

static void packets_of_no_flow_are_reset_without_a_record(void **state)
{
	struct tcphdr ack = { .th_sport = htons(4242), .th_dport = htons(443), .th_off = 5, .th_flags = TH_ACK };
	struct fw_counts before = counts(), after;
	unsigned seen = lab.n_seen;

	send_raw(AF_INET, IPPROTO_TCP, "11.0.0.13", &ack, sizeof(ack));
	after = counts();
	assert_int_equal(after.late, before.late + 1);
	assert_int_equal(lab_denials(&lab, "11.0.0.13", FW_REASON_DEFAULT, false), 0);
	assert_int_equal(lab.n_seen, seen);
}

/* ---- counting, change, end ---- */

static void every_denial_is_counted_while_records_are_limited(void **state)
{
	int fd = lab_socket(&lab, AF_INET, SOCK_DGRAM, 0);
	socklen_t len;
	struct sockaddr_storage ss = lab_addr("11.0.0.14", 443, &len);
	struct fw_counts before = counts();
	unsigned seen;

	for (int i = 0; i < 2000; i++)
		assert_int_equal(sendto(fd, "x", 1, 0, (struct sockaddr *)&ss, len), 1);
	close(fd);
	assert_int_equal(counts().denied[FW_REASON_DEFAULT], before.denied[FW_REASON_DEFAULT] + 2000);
	seen = lab_denials(&lab, "11.0.0.14", FW_REASON_DEFAULT, true);
	assert_true(seen > 0 && seen < 1000);
}

static void policy_change_keeps_what_was_learned(void **state)
{
	struct ak_err err = { "" };

	assert_int_equal(lab_learn(&lab, "11.0.0.15", POLICY_TCP, 443, 60), 0);
	assert_int_equal(fw_sandbox_change(lab.fw, &lab.link, allow_all, NULL, 0, NULL, 0, &err), 0);
	assert_admitted("11.0.0.16", 443);
	assert_admitted("2a00::16", 443);
	assert_int_equal(lab_connect(&lab, "169.254.169.254", 80, NULL), ECONNREFUSED);
	assert_int_equal(lab_connect(&lab, "100.64.0.29", 22, NULL), ECONNREFUSED);
	assert_int_equal(fw_sandbox_change(lab.fw, &lab.link, deny_all, NULL, 0, NULL, 0, &err), 0);
	assert_int_equal(lab_connect(&lab, "11.0.0.16", 443, NULL), ECONNREFUSED);
	assert_admitted("11.0.0.15", 443);
}

static void removed_sandbox_inherits_nothing(void **state)
{
	struct ak_err err = { "" };
	struct fw_counts c;

	if (fw_sandbox_remove(lab.fw, &lab.link, &err) < 0)
		fail_msg("%s", err.text);
	assert_int_equal(lab_connect(&lab, "11.0.0.15", 443, NULL), ETIMEDOUT);
	assert_int_equal(fw_sandbox_counts(lab.fw, 7, &c, &err), -ENOENT);
	if (fw_sandbox_add(lab.fw, &lab.link, deny_all, &err) < 0)
		fail_msg("%s", err.text);
	assert_int_equal(counts().denied[FW_REASON_DEFAULT], 0);
	assert_int_equal(lab_connect(&lab, "11.0.0.15", 443, NULL), ECONNREFUSED);
	assert_int_equal(lab_learn(&lab, "11.0.0.15", POLICY_TCP, 443, 60), 0);
	assert_admitted("11.0.0.15", 443);
}

/* Kernels before 6.16 take a link's chain along when the link goes. */
static void sandbox_whose_link_took_its_chain_along_is_removed(void **state)
{
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_NETFILTER);
	struct fw_batch b = { .table = FW_TABLE };
	struct ak_err err = { "" };

	fw_batch_begin(&b, 2000);
	fw_chain_remove(&b, NFPROTO_NETDEV, "sb7");
	assert_int_equal(fw_batch_send(&b, fd, &err), 0);
	fw_batch_done(&b);
	close(fd);
	if (fw_sandbox_remove(lab.fw, &lab.link, &err) < 0 || fw_sandbox_add(lab.fw, &lab.link, deny_all, &err) < 0)
		fail_msg("%s", err.text);
	assert_int_equal(lab_connect(&lab, "11.0.0.15", 443, NULL), ECONNREFUSED);
}

/* The same link under an id of a further table: same verdicts, and the table comes and goes with its sandboxes. */
static void sandbox_of_a_further_table_is_judged_alike(void **state)
{
	struct fw_link first = lab.link;
	struct ak_err err = { "" };
	struct fw_counts c;

	if (fw_sandbox_remove(lab.fw, &lab.link, &err) < 0)
		fail_msg("%s", err.text);
	lab.link.id = 3 * FW_SHARD_SIZE + 7;
	for (int i = 0; i < 2; i++) {
		if (fw_sandbox_add(lab.fw, &lab.link, deny_all, &err) < 0)
			fail_msg("%s", err.text);
		assert_int_equal(lab_connect(&lab, "11.0.0.15", 443, NULL), ECONNREFUSED);
		assert_int_equal(counts().denied[FW_REASON_DEFAULT], 1);
		assert_int_equal(lab_learn(&lab, "11.0.0.15", POLICY_TCP, 443, 60), 0);
		assert_admitted("11.0.0.15", 443);
		if (fw_sandbox_change(lab.fw, &lab.link, allow_all, NULL, 0, NULL, 0, &err) < 0)
			fail_msg("%s", err.text);
		assert_admitted("11.0.0.16", 443);
		if (fw_sandbox_remove(lab.fw, &lab.link, &err) < 0)
			fail_msg("%s", err.text);
		assert_int_equal(lab_connect(&lab, "11.0.0.15", 443, NULL), ETIMEDOUT);
		assert_int_equal(fw_sandbox_counts(lab.fw, lab.link.id, &c, &err), -ENOENT);
		assert_true(lab_run("! nft list table inet agentkernel_3 2>/dev/null"));
	}
	lab.link = first;
	if (fw_sandbox_add(lab.fw, &lab.link, deny_all, &err) < 0)
		fail_msg("%s", err.text);
}

/* What a gateway does that finds the namespaces of one that died. */
static void reinstalling_replaces_everything(void **state)
{
	struct ak_err err = { "" };

	if (fw_base_install(lab.fw, &err) < 0 || fw_sandbox_add(lab.fw, &lab.link, deny_all, &err) < 0)
		fail_msg("%s", err.text);
	assert_int_equal(lab_connect(&lab, "11.0.0.15", 443, NULL), ECONNREFUSED);
}

/* ---- the group ---- */

static int setup(void **state)
{
	static const struct policy_dirs nowhere;
	struct fw_log_hooks hooks = { .ctx = &lab, .on_denial = lab_on_denial };
	struct ak_err err = { "" };

	if (policy_parse(deny_json, strlen(deny_json), "t", &nowhere, NULL, 0, &deny_all, &err) < 0 ||
		policy_parse(allow_json, strlen(allow_json), "t", &nowhere, NULL, 0, &allow_all, &err) < 0 ||
		fw_new(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_NETFILTER), &lab.fw, &err) < 0 ||
		fw_log_new(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_NETFILTER), &hooks, &lab.log,
			&err) < 0 ||
		fw_install_one(lab.fw, &lab.link, deny_all, &err) < 0) {
		print_error("%s\n", err.text);
		return -1;
	}
	return lab_link_up(&lab) ? 0 : -1;
}

static int teardown(void **state)
{
	lab_done(&lab);
	policy_unref(deny_all);
	policy_unref(allow_all);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(unlearned_tcp_is_refused_at_once_and_recorded),
		cmocka_unit_test(unlearned_udp_fails_at_once_each_time),
		cmocka_unit_test(blocked_ranges_and_our_own_end_are_refused),
		cmocka_unit_test(blocked_beats_learned_but_for_our_own_end),
		cmocka_unit_test(dns_over_tls_is_refused_even_when_learned),
		cmocka_unit_test(dns_reaches_the_proxy_whatever_its_address),
		cmocka_unit_test(relay_ports_are_not_reachable_directly),
		cmocka_unit_test(learned_tcp_reaches_the_listener_with_its_destination),
		cmocka_unit_test(learned_address_opens_that_port_and_protocol_only),
		cmocka_unit_test(learned_udp_reaches_the_relay_socket),
		cmocka_unit_test(open_range_is_admitted_without_a_name),
		cmocka_unit_test(expired_element_is_refused_and_its_flow_lives_on),
		cmocka_unit_test(refresh_extends_an_element),
		cmocka_unit_test(forgotten_element_is_refused_and_forgetting_twice_is_fine),
		cmocka_unit_test(failed_batch_changes_nothing_and_names_the_object),
		cmocka_unit_test(repeated_elements_in_one_call_count_once),
		cmocka_unit_test(learning_for_ever_is_refused),
		cmocka_unit_test(forged_source_is_dropped_and_recorded_as_spoof),
		cmocka_unit_test(forged_mac_vlan_tags_and_arp_stop_at_the_link),
		cmocka_unit_test(fragments_and_options_are_dropped_and_recorded),
		cmocka_unit_test(other_protocols_are_refused_and_recorded),
		cmocka_unit_test(packets_of_no_flow_are_reset_without_a_record),
		cmocka_unit_test(every_denial_is_counted_while_records_are_limited),
		cmocka_unit_test(policy_change_keeps_what_was_learned),
		cmocka_unit_test(full_set_refuses_more_and_still_refreshes),
		cmocka_unit_test(removed_sandbox_inherits_nothing),
		cmocka_unit_test(sandbox_whose_link_took_its_chain_along_is_removed),
		cmocka_unit_test(sandbox_of_a_further_table_is_judged_alike),
		cmocka_unit_test(reinstalling_replaces_everything),
	};

	if (!lab_init(&lab)) {
		fprintf(stderr, "user and network namespaces are not to be had here: %s\n", strerror(errno));
		return getenv("AK_MUST_WORK") ? 1 : 0;
	}
	return cmocka_run_group_tests(tests, setup, teardown);
}
