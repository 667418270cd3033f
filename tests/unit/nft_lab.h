/*
 * Two network namespaces joined by a veth pair, as the gateway has them: for tests of the ruleset against a real kernel.
 * The process stands in the gateway's one (where the rules live); sandbox sockets are opened by stepping over for a moment.
 * Everything is private to a new user namespace and goes with the process.
 */
#ifndef AK_TEST_NFT_LAB_H
#define AK_TEST_NFT_LAB_H

#include "nft/fw.h"
#include "policies/policy.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define LAB_SEEN_MAX 4096

struct lab {
	int gateway_ns, sandbox_ns;
	pid_t holder; /* keeps the sandbox's namespace while the link is made */
	int tcp4, tcp6, udp4, udp6, dns4; /* in the gateway */
	struct fw_link link;
	struct fw *fw;
	struct fw_log *log;
	struct fw_denial seen[LAB_SEEN_MAX];
	unsigned n_seen;
};

__attribute__((format(printf, 2, 3))) static inline bool lab_write(const char *path, const char *fmt, ...)
{
	char text[128];
	va_list ap;
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	ssize_t n;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	n = fd < 0 ? -1 : write(fd, text, strlen(text));
	if (fd >= 0)
		close(fd);
	return n >= 0;
}

__attribute__((format(printf, 1, 2))) static inline bool lab_run(const char *fmt, ...)
{
	char command[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(command, sizeof(command), fmt, ap);
	va_end(ap);
	return system(command) == 0;
}

static inline void lab_in_sandbox(const struct lab *lab)
{
	if (setns(lab->sandbox_ns, CLONE_NEWNET) < 0)
		abort();
}

static inline void lab_in_gateway(const struct lab *lab)
{
	if (setns(lab->gateway_ns, CLONE_NEWNET) < 0)
		abort();
}

static inline struct sockaddr_storage lab_addr(const char *text, uint16_t port, socklen_t *ret_len)
{
	struct sockaddr_storage ss;
	struct ak_addr a;

	if (ak_addr_parse(text, &a) < 0)
		abort();
	*ret_len = ak_addr_to_sockaddr(&a, port, &ss);
	return ss;
}

/* ---- building ---- */

static inline bool lab_namespaces(struct lab *lab)
{
	unsigned uid = getuid(), gid = getgid();
	int ready[2];
	char c;

	if (unshare(CLONE_NEWUSER | CLONE_NEWNET) < 0)
		return false;
	lab_write("/proc/self/setgroups", "deny");
	if (!lab_write("/proc/self/uid_map", "0 %u 1", uid) || !lab_write("/proc/self/gid_map", "0 %u 1", gid) ||
		pipe2(ready, O_CLOEXEC) < 0)
		return false;
	lab->gateway_ns = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	lab->holder = fork();
	if (lab->holder == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (unshare(CLONE_NEWNET) < 0 || write(ready[1], "x", 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	close(ready[1]);
	if (read(ready[0], &c, 1) != 1)
		return false;
	close(ready[0]);
	char path[64];
	snprintf(path, sizeof(path), "/proc/%d/ns/net", lab->holder);
	lab->sandbox_ns = open(path, O_RDONLY | O_CLOEXEC);
	return lab->gateway_ns >= 0 && lab->sandbox_ns >= 0;
}

static inline bool lab_link(struct lab *lab)
{
	bool ok = lab_run(
		"ip link set lo up && "
		"ip link add ak7 address 02:00:00:00:00:01 type veth peer name eth0 address 02:00:00:00:00:02 netns %d && "
		"ip addr add 100.64.0.29/30 dev ak7 && ip addr add fd61:6b::7:1/64 dev ak7 nodad",
		lab->holder);

	ok = ok && lab_write("/proc/sys/net/ipv4/icmp_ratemask", "0") && lab_write("/proc/sys/net/ipv6/icmp/ratemask", "\n");
	lab_in_sandbox(lab);
	ok = ok &&
		lab_run("ip link set lo up && ip addr add 100.64.0.30/30 dev eth0 && ip addr add fd61:6b::7:2/64 dev eth0 nodad && "
			"ip link set eth0 up && ip neigh add 100.64.0.29 lladdr 02:00:00:00:00:01 dev eth0 nud permanent && "
			"ip neigh add fd61:6b::7:1 lladdr 02:00:00:00:00:01 dev eth0 nud permanent");
	lab_in_gateway(lab);
	return ok;
}

static inline bool lab_link_up(struct lab *lab)
{
	bool ok = lab_run("ip link set ak7 up && ip neigh add 100.64.0.30 lladdr 02:00:00:00:00:02 dev ak7 nud permanent && "
			  "ip neigh add fd61:6b::7:2 lladdr 02:00:00:00:00:02 dev ak7 nud permanent && "
			  "ip route add local 0.0.0.0/0 dev lo table main && ip route add local ::/0 dev lo table main");

	lab_in_sandbox(lab);
	ok = ok && lab_run("ip route add default via 100.64.0.29 && ip -6 route add default via fd61:6b::7:1");
	lab_in_gateway(lab);
	return ok;
}

static inline int lab_listener(int family, int type, uint16_t port)
{
	int fd = socket(family, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), one = 1;
	socklen_t len;
	struct sockaddr_storage ss = lab_addr(family == AF_INET ? "0.0.0.0" : "::", port, &len);

	if (fd < 0)
		return -1;
	if (family == AF_INET) {
		setsockopt(fd, SOL_IP, IP_TRANSPARENT, &one, sizeof(one));
		setsockopt(fd, SOL_IP, IP_RECVORIGDSTADDR, &one, sizeof(one));
	} else {
		setsockopt(fd, SOL_IPV6, IPV6_V6ONLY, &one, sizeof(one));
		setsockopt(fd, SOL_IPV6, IPV6_TRANSPARENT, &one, sizeof(one));
		setsockopt(fd, SOL_IPV6, IPV6_RECVORIGDSTADDR, &one, sizeof(one));
	}
	if (bind(fd, (struct sockaddr *)&ss, len) < 0 || (type == SOCK_STREAM && listen(fd, 128) < 0)) {
		close(fd);
		return -1;
	}
	return fd;
}

static inline void lab_plan(struct fw_link *link)
{
	*link = (struct fw_link){ .id = 7, .ifname = "ak7", .peer_mac = { 2, 0, 0, 0, 0, 2 } };
	ak_addr_parse("100.64.0.30", &link->addr4);
	ak_addr_parse("100.64.0.29", &link->gw4);
	ak_addr_parse("fd61:6b::7:2", &link->addr6);
	ak_addr_parse("fd61:6b::7:1", &link->gw6);
}

static inline void lab_on_denial(void *ctx, const struct fw_denial *d)
{
	struct lab *lab = ctx;

	if (lab->n_seen < LAB_SEEN_MAX)
		lab->seen[lab->n_seen++] = *d;
}

/* False when this host cannot have such namespaces. */
static inline bool lab_init(struct lab *lab)
{
	memset(lab, 0, sizeof(*lab));
	if (!lab_namespaces(lab) || !lab_link(lab))
		return false;
	lab_plan(&lab->link);
	lab->tcp4 = lab_listener(AF_INET, SOCK_STREAM, FW_RELAY_TCP_PORT);
	lab->tcp6 = lab_listener(AF_INET6, SOCK_STREAM, FW_RELAY_TCP_PORT);
	lab->udp4 = lab_listener(AF_INET, SOCK_DGRAM, FW_RELAY_UDP_PORT);
	lab->udp6 = lab_listener(AF_INET6, SOCK_DGRAM, FW_RELAY_UDP_PORT);
	lab->dns4 = lab_listener(AF_INET, SOCK_DGRAM, FW_DNS_PORT);
	return lab->tcp4 >= 0 && lab->tcp6 >= 0 && lab->udp4 >= 0 && lab->udp6 >= 0 && lab->dns4 >= 0;
}

static inline void lab_done(struct lab *lab)
{
	fw_free(lab->fw);
	fw_log_free(lab->log);
	if (lab->holder > 0) {
		kill(lab->holder, SIGKILL);
		waitpid(lab->holder, NULL, 0);
	}
}

/* ---- acting ---- */

static inline int lab_wait(int fd, short events, int timeout_ms)
{
	struct pollfd p = { .fd = fd, .events = events };

	return poll(&p, 1, timeout_ms);
}

/* A socket inside the sandbox; it stays there wherever the process is. */
static inline int lab_socket(struct lab *lab, int family, int type, int proto)
{
	int fd;

	lab_in_sandbox(lab);
	fd = socket(family, type | SOCK_NONBLOCK | SOCK_CLOEXEC, proto);
	lab_in_gateway(lab);
	return fd;
}

/* Connect TCP from the sandbox: 0, or the errno it failed with; ETIMEDOUT after a second. */
static inline int lab_connect(struct lab *lab, const char *dst, uint16_t port, int *ret_fd)
{
	socklen_t len;
	struct sockaddr_storage ss = lab_addr(dst, port, &len);
	int fd = lab_socket(lab, ss.ss_family, SOCK_STREAM, 0), code = 0;
	socklen_t code_len = sizeof(code);

	if (connect(fd, (struct sockaddr *)&ss, len) < 0 && errno != EINPROGRESS)
		code = errno;
	else if (lab_wait(fd, POLLOUT, 1000) == 0)
		code = ETIMEDOUT;
	else
		getsockopt(fd, SOL_SOCKET, SO_ERROR, &code, &code_len);
	if (code == 0 && ret_fd)
		*ret_fd = fd;
	else
		close(fd);
	return code;
}

/* Send one datagram from a connected socket of the sandbox; the errno that comes back within a second, or 0. */
static inline int lab_datagram(struct lab *lab, const char *dst, uint16_t port, int timeout_ms)
{
	socklen_t len;
	struct sockaddr_storage ss = lab_addr(dst, port, &len);
	int fd = lab_socket(lab, ss.ss_family, SOCK_DGRAM, 0), code = 0;
	socklen_t code_len = sizeof(code);

	if (connect(fd, (struct sockaddr *)&ss, len) < 0 || send(fd, "ping", 4, 0) < 0)
		code = errno;
	else if (lab_wait(fd, POLLIN, timeout_ms) > 0)
		getsockopt(fd, SOL_SOCKET, SO_ERROR, &code, &code_len);
	close(fd);
	return code;
}

static inline int lab_learn(struct lab *lab, const char *dst, enum policy_proto proto, uint16_t port, uint32_t timeout_s)
{
	struct fw_elem e = { .proto = proto, .port = port, .timeout_s = timeout_s };
	struct ak_err err = { "" };

	ak_addr_parse(dst, &e.addr);
	return fw_learn(lab->fw, lab->link.id, &e, 1, false, &err);
}

/* Denials to DST seen so far, after taking what is queued; waits up to a second for the first. */
static inline unsigned lab_denials(struct lab *lab, const char *dst, enum fw_reason reason, bool wait)
{
	struct ak_addr a;
	unsigned n = 0;

	ak_addr_parse(dst, &a);
	do {
		while (fw_log_read(lab->log, 64) > 0)
			;
		for (unsigned i = 0; i < lab->n_seen; i++)
			n += lab->seen[i].reason == reason && ak_addr_eq(&lab->seen[i].dst, &a);
	} while (n == 0 && wait && lab_wait(fw_log_fd(lab->log), POLLIN, 1000) > 0);
	return n;
}

#endif
