/* Self-test vectors that need code: floods, unusual system calls, visibility of the host. */
#include "gateway/selftest/selftest.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "nft/fw.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- DNS ---- */

/* 400 names below one wildcard, each carrying data. Most are answered, the last ones are not, and other names still work. */
void st_call_budget(const struct st_vector *v, struct st_outcome *ret)
{
	unsigned answered = 0, refused = 0;

	for (unsigned i = 0; i < 400; i++) {
		char name[64];

		snprintf(name, sizeof(name), "secret%03u%s", i, v->host + 1);
		st_dns_ask(NULL, false, name, 1, false, ret, NULL);
		answered += !strcmp(ret->word, "answer");
		refused += !strcmp(ret->word, "nxdomain");
	}
	st_dns_ask(NULL, false, "other.test", 1, false, ret, NULL);
	if (strcmp(ret->word, "answer") != 0)
		st_say(ret, "other names stopped working", "%s", "");
	else
		st_say(ret, refused && answered ? "limited" : "unlimited", "%u answered", answered);
}

void st_call_loaded_query(const struct st_vector *v, struct st_outcome *ret)
{
	st_dns_ask(NULL, false, v->host, 1, true, ret, NULL);
}

static size_t put_framed(uint8_t *out, uint16_t id, const char *name)
{
	size_t n = st_dns_query(out + 2, id, name, 1, false);

	out[0] = (uint8_t)(n >> 8);
	out[1] = (uint8_t)n;
	return n + 2;
}

/* Read N framed replies and store their rcodes by id, 16 for none. */
static void read_replies(int fd, unsigned n, uint8_t rcodes[static 4])
{
	uint8_t buf[8192];
	size_t len = 0;

	memset(rcodes, 16, 4);
	while (n) {
		struct pollfd p = { .fd = fd, .events = POLLIN };
		ssize_t got = poll(&p, 1, 1500) == 1 ? recv(fd, buf + len, sizeof(buf) - len, 0) : 0;
		size_t size;

		if (got <= 0)
			return;
		len += (size_t)got;
		while (len >= 14 && len >= 2 + (size = (size_t)buf[0] << 8 | buf[1])) {
			rcodes[buf[3] & 3] = buf[5] & 15;
			memmove(buf, buf + 2 + size, len - 2 - size);
			len -= 2 + size;
			n--;
		}
	}
}

/* Three queries in one segment: allowed, denied, allowed. */
void st_call_tcp_pipeline(const struct st_vector *v, struct st_outcome *ret)
{
	uint8_t out[1024], rcodes[4];
	_cleanup_close_ int fd = -1;
	size_t n;

	n = put_framed(out, 0, "ok.test");
	n += put_framed(out + n, 1, v->host);
	n += put_framed(out + n, 2, "other.test");
	if (st_connect(st_resolver(), 53, 1500, &fd) < 0 || send(fd, out, n, MSG_NOSIGNAL) != (ssize_t)n) {
		st_say(ret, "error", "%s", "");
		return;
	}
	read_replies(fd, 3, rcodes);
	st_say(ret, rcodes[0] == 0 && rcodes[1] == 3 && rcodes[2] == 0 ? "same verdicts" : "other verdicts", "%u %u %u",
		rcodes[0], rcodes[1], rcodes[2]);
}

void st_call_tcp_drip(const struct st_vector *v, struct st_outcome *ret)
{
	uint8_t out[1024], rcodes[4];
	_cleanup_close_ int fd = -1;
	size_t n = put_framed(out, 1, v->host);

	if (st_connect(st_resolver(), 53, 1500, &fd) < 0) {
		st_say(ret, "error", "%s", "");
		return;
	}
	for (size_t i = 0; i < n; i++)
		(void)!send(fd, out + i, 1, MSG_NOSIGNAL);
	read_replies(fd, 1, rcodes);
	st_say(ret, rcodes[1] == 3 ? "nxdomain" : "other verdicts", "%u", rcodes[1]);
}

/* A frame of maximum length: it must be refused or cut off, and the resolver must keep working. */
void st_call_tcp_huge(const struct st_vector *v, struct st_outcome *ret)
{
	static uint8_t frame[65537] = { 0xff, 0xff, 1, 0, 1, 0, 0, 1 };
	_cleanup_close_ int fd = -1;
	uint8_t rcodes[4];

	if (st_connect(st_resolver(), 53, 1500, &fd) < 0) {
		st_say(ret, "error", "%s", "");
		return;
	}
	ak_set_nonblock(fd, false);
	for (size_t at = 0; at < sizeof(frame);) {
		ssize_t n = send(fd, frame + at, sizeof(frame) - at, MSG_NOSIGNAL);

		if (n <= 0)
			break;
		at += (size_t)n;
	}
	read_replies(fd, 1, rcodes);
	st_dns_ask(NULL, true, "ok.test", 1, false, ret, NULL);
	st_say(ret, !strcmp(ret->word, "answer") && rcodes[0] != 0 ? "refused" : "other verdicts", "%u", rcodes[0]);
}

void st_call_tcp_idle(const struct st_vector *v, struct st_outcome *ret)
{
	int fds[200];
	size_t n = 0;

	while (n < ARRAY_SIZE(fds) && st_connect(st_resolver(), 53, 200, &fds[n]) == 0)
		n++;
	st_dns_ask(NULL, true, "ok.test", 1, false, ret, NULL);
	while (n)
		close(fds[--n]);
}

/* ---- learned addresses ---- */

/* Each name has its own address, which must be open as soon as the answer arrives. */
void st_call_at_once(const struct st_vector *v, struct st_outcome *ret)
{
	for (unsigned i = 1; i <= 100; i++) {
		char name[64], text[AK_ADDR_TEXT];
		struct st_vector dial = { .port = 443, .name = name, .host = text };
		struct ak_addr a;

		snprintf(name, sizeof(name), "n%03u%s", i, v->host + 1);
		st_dns_ask(NULL, false, name, 1, false, ret, &a);
		if (!a.family) {
			st_say(ret, "not resolved", "%s", name);
			return;
		}
		ak_addr_print(&a, text);
		st_dial_tls(&dial, ret);
		if (strcmp(ret->word, "works") != 0) {
			snprintf(ret->detail, sizeof(ret->detail), "%s", name);
			return;
		}
	}
}

/* ---- ways to send ---- */

/* Send without checking for permission; no reply is expected. */
void st_call_multicast(const struct st_vector *v, struct st_outcome *ret)
{
	struct sockaddr_storage ss;
	struct ak_addr a;
	socklen_t len;
	int on = 1;
	_cleanup_close_ int fd = -1;

	if (ak_addr_parse(v->host, &a) < 0)
		return;
	len = ak_addr_to_sockaddr(&a, v->port, &ss);
	fd = socket(a.family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	setsockopt(fd, SOL_SOCKET, SO_BROADCAST, &on, sizeof(on));
	for (int i = 0; i < 3; i++)
		(void)!sendto(fd, "who is there", 12, 0, (struct sockaddr *)&ss, len);
	st_say(ret, "sent", "%s", "");
}

void st_call_sendmmsg(const struct st_vector *v, struct st_outcome *ret)
{
	struct sockaddr_storage ss;
	struct iovec iov = { (char[]){ "probe" }, 5 };
	struct mmsghdr m[4] = { 0 };
	struct pollfd p;
	struct ak_addr a;
	_cleanup_close_ int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	int on = 1;

	if (ak_addr_parse(v->host, &a) < 0)
		return;
	setsockopt(fd, SOL_IP, IP_RECVERR, &on, sizeof(on));
	for (size_t i = 0; i < ARRAY_SIZE(m); i++) {
		m[i].msg_hdr.msg_namelen = ak_addr_to_sockaddr(&a, v->port, &ss);
		m[i].msg_hdr.msg_name = &ss;
		m[i].msg_hdr.msg_iov = &iov;
		m[i].msg_hdr.msg_iovlen = 1;
	}
	if (sendmmsg(fd, m, ARRAY_SIZE(m), 0) < 0) {
		st_say(ret, st_errno_word(errno), "%s", "");
		return;
	}
	p = (struct pollfd){ .fd = fd, .events = POLLIN };
	if (poll(&p, 1, 1500) != 1)
		st_say(ret, "timeout", "%s", "");
	else
		st_say(ret, recvmsg(fd, &(struct msghdr){ 0 }, MSG_ERRQUEUE | MSG_DONTWAIT) >= 0 ? "refused" : "works", "%s", "");
}

void st_call_io_uring(const struct st_vector *v, struct st_outcome *ret)
{
	uint64_t params[16] = { 0 }; /* struct io_uring_params: 120 octets */
	long fd = syscall(SYS_io_uring_setup, 4, params);

	st_say(ret, fd < 0 ? "refused" : "works", "%s", "");
	if (fd >= 0)
		close((int)fd);
}

/* ---- control over its own link ---- */

void st_call_mark(const struct st_vector *v, struct st_outcome *ret)
{
	const unsigned mark = FW_MARK;
	const int on = 1;
	_cleanup_close_ int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (setsockopt(fd, SOL_SOCKET, SO_MARK, &mark, sizeof(mark)) == 0)
		st_say(ret, "works", "SO_MARK");
	else if (setsockopt(fd, SOL_IP, IP_TRANSPARENT, &on, sizeof(on)) == 0)
		st_say(ret, "works", "IP_TRANSPARENT");
	else
		st_say(ret, "refused", "%s", "");
}

/* Take the link down through rtnetlink, the only netlink family open to a sandbox. Returns the errno of the reply. */
static int link_down(void)
{
	struct {
		struct nlmsghdr h;
		struct ifinfomsg i;
	} req = { { sizeof(req), RTM_NEWLINK, NLM_F_REQUEST | NLM_F_ACK, 1, 0 }, { .ifi_index = 2, .ifi_change = 1 } };
	struct {
		struct nlmsghdr h;
		struct nlmsgerr e;
		char rest[512];
	} rep;
	_cleanup_close_ int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);

	if (fd < 0)
		return errno;
	if (send(fd, &req, sizeof(req), 0) < 0 || recv(fd, &rep, sizeof(rep), 0) < (ssize_t)sizeof(rep.h))
		return errno;
	return rep.h.nlmsg_type == NLMSG_ERROR ? -rep.e.error : 0;
}

void st_call_route(const struct st_vector *v, struct st_outcome *ret)
{
	_cleanup_close_ int nft = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_NETFILTER);

	if (link_down() == 0)
		st_say(ret, "works", "the link was taken down");
	else if (nft >= 0 && v->type)
		st_say(ret, "works", "the firewall's netlink family is open");
	else
		st_say(ret, "refused", "%s", "");
}

/* Root in its own user namespace must still have no control over the link. */
void st_call_nested(const struct st_vector *v, struct st_outcome *ret)
{
	pid_t pid = fork();
	int status = 0;

	if (pid == 0) {
		struct st_outcome o = { .word = "refused" };

		if (unshare(CLONE_NEWUSER) == 0) {
			st_call_mark(v, &o);
			if (!strcmp(o.word, "refused"))
				st_call_route(v, &o);
		}
		_exit(strcmp(o.word, "refused") != 0);
	}
	st_say(ret, pid > 0 && waitpid(pid, &status, 0) == pid && status == 0 ? "refused" : "works", "%s", "");
}

/* ---- visibility of the host ---- */

void st_call_unix(const struct st_vector *v, struct st_outcome *ret)
{
	struct sockaddr_un path = { .sun_family = AF_UNIX, .sun_path = ST_UNIX };
	struct sockaddr_un hidden = { .sun_family = AF_UNIX };
	_cleanup_close_ int a = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0),
			    b = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	memcpy(hidden.sun_path + 1, ST_ABSTRACT, sizeof(ST_ABSTRACT) - 1);
	if (connect(a, (struct sockaddr *)&path, sizeof(path)) == 0)
		st_say(ret, "works", "path");
	else if (connect(b, (struct sockaddr *)&hidden, offsetof(struct sockaddr_un, sun_path) + sizeof(ST_ABSTRACT)) == 0)
		st_say(ret, "works", "abstract");
	else
		st_say(ret, "refused", "%s", "");
}

void st_call_descriptors(const struct st_vector *v, struct st_outcome *ret)
{
	for (int fd = 3; fd < 256; fd++) {
		if (fcntl(fd, F_GETFD) >= 0) {
			st_say(ret, "inherited", "descriptor %d", fd);
			return;
		}
	}
	st_say(ret, "none", "%s", "");
}

static bool readable(const char *path)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
	char byte;

	return fd >= 0 && read(fd, &byte, 1) > 0;
}

static unsigned count_processes(void)
{
	DIR *dir = opendir("/proc");
	unsigned n = 0;

	if (!dir)
		return 0;
	for (struct dirent *e; (e = readdir(dir));)
		n += e->d_name[0] >= '1' && e->d_name[0] <= '9';
	closedir(dir);
	return n;
}

void st_call_processes(const struct st_vector *v, struct st_outcome *ret)
{
	static const char *const paths[] = { "/proc/1/environ", "/proc/1/mem", "/proc/1/root/etc/passwd", "/proc/kcore",
		"/proc/kmsg" };

	for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
		if (readable(paths[i])) {
			st_say(ret, "seen", "%s", paths[i]);
			return;
		}
	}
	if (count_processes() > 2)
		st_say(ret, "seen", "other processes");
	else if (ptrace(PTRACE_SEIZE, 1, NULL, NULL) == 0)
		st_say(ret, "seen", "init can be traced");
	else
		st_say(ret, "none", "%s", "");
}

static bool status_has(const char *line)
{
	_cleanup_free_ char *text = NULL;

	return ak_read_file(AT_FDCWD, "/proc/self/status", 65536, &text, NULL) == 0 && strstr(text, line);
}

void st_call_power(const struct st_vector *v, struct st_outcome *ret)
{
	if (!status_has("\nCapEff:\t0000000000000000\n") || !status_has("\nCapBnd:\t0000000000000000\n"))
		st_say(ret, "power", "capabilities are left");
	else if (!status_has("\nNoNewPrivs:\t1\n"))
		st_say(ret, "power", "set-user-id programs would work");
	else
		st_say(ret, "none", "%s", "");
}

void st_call_filter(const struct st_vector *v, struct st_outcome *ret)
{
	st_say(ret, status_has("\nSeccomp:\t2\n") ? "filtered" : "unfiltered", "%s", "");
}

/* ---- the kernel's attack surface ---- */

void st_call_syscalls(const struct st_vector *v, struct st_outcome *ret)
{
	static const struct {
		const char *name;
		long nr;
	} calls[] = {
		{ "mount", SYS_mount },
		{ "umount2", SYS_umount2 },
		{ "pivot_root", SYS_pivot_root },
		{ "bpf", SYS_bpf },
		{ "userfaultfd", SYS_userfaultfd },
		{ "perf_event_open", SYS_perf_event_open },
		{ "kexec_load", SYS_kexec_load },
		{ "init_module", SYS_init_module },
		{ "delete_module", SYS_delete_module },
		{ "add_key", SYS_add_key },
		{ "keyctl", SYS_keyctl },
		{ "open_by_handle_at", SYS_open_by_handle_at },
		{ "reboot", SYS_reboot },
		{ "swapon", SYS_swapon },
		{ "settimeofday", SYS_settimeofday },
	};

	for (size_t i = 0; i < ARRAY_SIZE(calls); i++) {
		long rc = syscall(calls[i].nr, 0, 0, 0, 0, 0);

		/* A call that checks its arguments was not blocked. */
		if (rc >= 0 || (errno != EPERM && errno != ENOSYS)) {
			st_say(ret, "let in", "%s", calls[i].name);
			return;
		}
	}
	st_say(ret, "refused", "%s", "");
}

void st_call_sockets(const struct st_vector *v, struct st_outcome *ret)
{
	static const struct {
		const char *name;
		int family, type, protocol;
	} kinds[] = {
		{ "raw", AF_INET, SOCK_RAW, IPPROTO_ICMP },
		{ "raw IPv6", AF_INET6, SOCK_RAW, 58 },
		{ "packet", AF_PACKET, SOCK_RAW, 0x300 },
		{ "vsock", AF_VSOCK, SOCK_STREAM, 0 },
		{ "alg", AF_ALG, SOCK_SEQPACKET, 0 },
		{ "sctp", AF_INET, SOCK_STREAM, 132 },
		{ "udp-lite", AF_INET, SOCK_DGRAM, 136 },
		{ "netfilter", AF_NETLINK, SOCK_RAW, NETLINK_NETFILTER },
		{ "ping", AF_INET, SOCK_DGRAM, IPPROTO_ICMP },
	};

	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		_cleanup_close_ int fd = -1;

		if (v->name && strcmp(v->name, kinds[i].name) != 0)
			continue;
		fd = socket(kinds[i].family, kinds[i].type | SOCK_CLOEXEC, kinds[i].protocol);
		if (fd >= 0) {
			st_say(ret, "made", "%s", kinds[i].name);
			return;
		}
	}
	st_say(ret, "refused", "%s", "");
}

/* Records, sockets and secrets of the host must not be visible at all. */
void st_call_records(const struct st_vector *v, struct st_outcome *ret)
{
	static const char *const paths[] = { ST_SECRET, ST_SCRATCH "/state", ST_SCRATCH "/config", ST_SCRATCH "/runtime",
		"/run/agentkernel", "/var/lib/agentkernel" };
	struct stat st;

	for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
		if (stat(paths[i], &st) == 0) {
			st_say(ret, "seen", "%s", paths[i]);
			return;
		}
	}
	st_say(ret, "none", "%s", "");
}
