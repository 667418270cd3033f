/*
 * The far ends of the bench, and one client.
 *
 *   tool dnsd ADDR PORT                        answers every A question: 11.1.0.5 for echo.test, else an address of 11.64.0.0/10 by hash
 *   tool echod ADDR PORT [PORT …]              echoes what arrives, one connection after the other
 *   tool hangd ADDR PORT [PORT …]              hangs up on whoever connects, so that no port of theirs is kept for a minute
 *   tool firstbyte HOST PORT COUNT KIND [SNI]  COUNT times: connect, send, wait for the first byte back; KIND is plain, http or tls
 *   tool connect HOST PORT COUNT               for each line on stdin, COUNT times: connect; their nanoseconds on a line
 *   tool dnslat COUNT NAME                     the same with questions to the first server of resolv.conf
 *   tool crowd COUNT CMD [ARGS …]              COUNT processes at once; how many failed, and seconds until the last has ended
 *
 * dnsd must never be what limits a row, so it works in batches and without a heap.
 */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <signal.h>
#include <spawn.h>
#include <time.h>
#include <unistd.h>

#define BATCH 64
#define MSG_SIZE 512
#define TTL_S 3000
#define PORTS_MAX 8
#define COUNT_MAX 100000

static int fail(const char *what)
{
	fprintf(stderr, "tool: %s: %s\n", what, strerror(errno));
	return 1;
}

static struct sockaddr_in at(const char *addr, const char *port)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port)) };

	inet_pton(AF_INET, addr, &a.sin_addr);
	return a;
}

static int bound(const char *addr, const char *port, int type)
{
	struct sockaddr_in a = at(addr, port);
	int fd = socket(AF_INET, type | SOCK_CLOEXEC, 0), on = 1;

	if (fd < 0)
		return -1;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0 || (type == SOCK_STREAM && listen(fd, 128) < 0)) {
		close(fd);
		return -1;
	}
	return fd;
}

/* ---- dnsd ---- */

/* In whatever case it is asked. */
static uint32_t address_of(const uint8_t *name, size_t len)
{
	static const char echo[] = "\4echo\4test";
	uint32_t h = 2166136261u;

	if (len == sizeof(echo) && strncasecmp((const char *)name, echo, len) == 0)
		return 0x0b010005;
	for (size_t i = 0; i < len; i++)
		h = (h ^ (name[i] | 0x20)) * 16777619u;
	return 0x0b400000 | (h ^ h >> 22) % 0x3fffff;
}

/* Turn the question in MSG into its answer; the new length, 0 to stay silent. */
static size_t answer(uint8_t *msg, size_t len)
{
	size_t end = 12;
	uint32_t addr;

	if (len < 17 || msg[2] & 0x80 || msg[5] != 1)
		return 0;
	while (end < len && msg[end])
		end += msg[end] + 1u;
	if (end + 5 > len || end + 5 + 16 > MSG_SIZE)
		return 0;
	addr = address_of(msg + 12, end + 1 - 12);
	end += 5;
	msg[2] = 0x84 | (msg[2] & 1);
	msg[3] = 0x80;
	memset(msg + 6, 0, 6); /* an OPT of the asker is not returned, nor anything else */
	if (msg[end - 4] != 0 || msg[end - 3] != 1)
		return end;
	msg[7] = 1;
	memcpy(msg + end,
		(uint8_t[]){ 0xc0, 12, 0, 1, 0, 1, 0, 0, TTL_S >> 8, TTL_S & 0xff, 0, 4, (uint8_t)(addr >> 24),
			(uint8_t)(addr >> 16), (uint8_t)(addr >> 8), (uint8_t)addr },
		16);
	return end + 16;
}

static int dnsd(const char *addr, const char *port)
{
	static uint8_t buf[BATCH][MSG_SIZE];
	static struct sockaddr_in peer[BATCH];
	static struct iovec iov[BATCH];
	static struct mmsghdr in[BATCH], out[BATCH];
	int fd = bound(addr, port, SOCK_DGRAM), big = 4 << 20;

	if (fd < 0)
		return fail("dnsd");
	setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &big, sizeof(big));
	for (;;) {
		int n, m = 0;

		for (int i = 0; i < BATCH; i++) {
			iov[i] = (struct iovec){ buf[i], MSG_SIZE };
			in[i].msg_hdr = (struct msghdr){
				.msg_name = &peer[i], .msg_namelen = sizeof(peer[i]), .msg_iov = &iov[i], .msg_iovlen = 1
			};
		}
		n = recvmmsg(fd, in, BATCH, MSG_WAITFORONE, NULL);
		if (n < 0)
			return fail("recvmmsg");
		for (int i = 0; i < n; i++) {
			iov[i].iov_len = answer(buf[i], in[i].msg_len);
			if (iov[i].iov_len)
				out[m++].msg_hdr = in[i].msg_hdr;
		}
		for (int sent = 0, k; sent < m; sent += k) {
			k = sendmmsg(fd, out + sent, (unsigned)(m - sent), 0);
			if (k <= 0)
				break;
		}
	}
}

/* ---- echod ---- */

static void echo_one(int fd)
{
	char buf[4096];
	ssize_t n;
	int on = 1;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	while ((n = read(fd, buf, sizeof(buf))) > 0 && write(fd, buf, (size_t)n) == n)
		continue;
}

static void hang_up(int fd)
{
	shutdown(fd, SHUT_WR);
}

/* One connection after the other. */
static int serve(const char *addr, char *const *ports, int n, void (*one)(int fd))
{
	struct pollfd p[PORTS_MAX];
	int fd;

	for (int i = 0; i < n; i++) {
		p[i] = (struct pollfd){ .fd = bound(addr, ports[i], SOCK_STREAM), .events = POLLIN };
		if (p[i].fd < 0)
			return fail("serve");
	}
	for (;;) {
		if (poll(p, (nfds_t)n, -1) < 0)
			return fail("poll");
		for (int i = 0; i < n; i++) {
			fd = p[i].revents ? accept4(p[i].fd, NULL, NULL, SOCK_CLOEXEC) : -1;
			if (fd < 0)
				continue;
			one(fd);
			close(fd);
		}
	}
}

/* ---- firstbyte ---- */

static size_t put16(uint8_t *to, size_t value)
{
	to[0] = (uint8_t)(value >> 8);
	to[1] = (uint8_t)value;
	return 2;
}

/* A TLS 1.2-shaped ClientHello that offers one cipher and names SNI (RFC 8446 section 4.1.2, RFC 6066 section 3). */
static size_t client_hello(uint8_t *b, const char *sni)
{
	size_t name = strlen(sni), ext = name + 9, body = 2 + 32 + 1 + 4 + 2 + 2 + ext, n = 0;

	b[n++] = 22;
	n += put16(b + n, 0x0301);
	n += put16(b + n, body + 4);
	b[n++] = 1;
	b[n++] = 0;
	n += put16(b + n, body);
	n += put16(b + n, 0x0303);
	memset(b + n, 0x5a, 32);
	n += 32;
	b[n++] = 0;
	n += put16(b + n, 2);
	n += put16(b + n, 0xc02b);
	b[n++] = 1;
	b[n++] = 0;
	n += put16(b + n, ext);
	n += put16(b + n, 0);
	n += put16(b + n, name + 5);
	n += put16(b + n, name + 3);
	b[n++] = 0;
	n += put16(b + n, name);
	memcpy(b + n, sni, name);
	return n + name;
}

static size_t greeting(uint8_t *b, size_t size, const char *kind, const char *sni)
{
	if (strcmp(kind, "tls") == 0)
		return client_hello(b, sni);
	if (strcmp(kind, "http") == 0)
		return (size_t)snprintf((char *)b, size, "GET / HTTP/1.1\r\nHost: %s\r\n\r\n", sni);
	b[0] = 'x';
	return 1;
}

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Nanoseconds from before the socket to the first byte back; 0 on failure. */
static uint64_t try_once(const struct addrinfo *ai, const uint8_t *msg, size_t len)
{
	uint64_t began = now_ns(), took = 0;
	int fd = socket(ai->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
	uint8_t buf[4096];

	if (fd < 0)
		return 0;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	if (connect(fd, ai->ai_addr, ai->ai_addrlen) == 0 && write(fd, msg, len) == (ssize_t)len &&
		read(fd, buf, sizeof(buf)) > 0)
		took = now_ns() - began;
	/* All of it must be over before the next one starts, on every hop. */
	shutdown(fd, SHUT_WR);
	while (read(fd, buf, sizeof(buf)) > 0)
		continue;
	close(fd);
	return took;
}

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static void print_times(uint64_t *took, size_t count)
{
	qsort(took, count, sizeof(took[0]), by_value);
	printf("%llu %llu\n", (unsigned long long)took[count / 2], (unsigned long long)took[count * 99 / 100]);
}

static int firstbyte(const char *host, const char *port, int count, const char *kind, const char *sni)
{
	struct addrinfo hints = { .ai_family = AF_INET, .ai_socktype = SOCK_STREAM }, *ai;
	static uint64_t took[COUNT_MAX];
	uint8_t msg[600];
	size_t len = greeting(msg, sizeof(msg), kind, sni);
	int rc = getaddrinfo(host, port, &hints, &ai);

	if (rc != 0) {
		fprintf(stderr, "tool: %s: %s\n", host, gai_strerror(rc));
		return 1;
	}
	for (int i = 0; i < count; i++) {
		took[i] = try_once(ai, msg, len);
		if (!took[i])
			return fail("connection");
	}
	freeaddrinfo(ai);
	print_times(took, (size_t)count);
	return 0;
}

/* ---- turns ---- */

/* ONCE, COUNT times for each line on stdin: nanoseconds, or 0 when it failed. */
static int turns(int count, uint64_t (*once)(void *arg), void *arg)
{
	char line[16];

	while (fgets(line, sizeof(line), stdin)) {
		for (int i = 0; i < count; i++) {
			uint64_t took = once(arg);

			if (!took)
				return fail("turn");
			printf("%llu ", (unsigned long long)took);
		}
		printf("\n");
		fflush(stdout);
	}
	return 0;
}

/* ---- connect ---- */

static uint64_t connect_once(void *arg)
{
	const struct addrinfo *ai = arg;
	uint64_t began = now_ns(), took;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	char byte;

	if (fd < 0 || connect(fd, ai->ai_addr, ai->ai_addrlen) < 0)
		return 0;
	took = now_ns() - began;
	while (read(fd, &byte, 1) > 0)
		continue;
	close(fd);
	return took;
}

static int connects(const char *host, const char *port, int count)
{
	struct addrinfo hints = { .ai_family = AF_INET, .ai_socktype = SOCK_STREAM }, *ai;
	int rc;

	if (getaddrinfo(host, port, &hints, &ai) != 0)
		return fail(host);
	rc = turns(count, connect_once, ai);
	freeaddrinfo(ai);
	return rc;
}

/* ---- dnslat ---- */

static int resolver(void)
{
	FILE *f = fopen("/etc/resolv.conf", "re");
	char line[256], addr[64];
	struct sockaddr_in a;
	int fd;

	while (f && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "nameserver %63s", addr) != 1 || strchr(addr, ':'))
			continue;
		fclose(f);
		a = at(addr, "53");
		fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
		return fd >= 0 && connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0 ? fd : -1;
	}
	if (f)
		fclose(f);
	errno = ENOENT;
	return -1;
}

/* An A question for NAME, whose labels are short. */
static size_t question(uint8_t *b, const char *name)
{
	size_t n = 12;

	memcpy(b, (uint8_t[]){ 0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0 }, 12);
	while (*name) {
		size_t label = strcspn(name, ".");

		b[n++] = (uint8_t)label;
		memcpy(b + n, name, label);
		n += label;
		name += label + (name[label] == '.');
	}
	memcpy(b + n, (uint8_t[]){ 0, 0, 1, 0, 1 }, 5);
	return n + 5;
}

struct asking {
	int fd;
	uint16_t id;
	uint8_t ask[300];
	size_t len;
};

static uint64_t ask_once(void *arg)
{
	struct asking *a = arg;
	uint64_t began = now_ns();
	uint8_t got[MSG_SIZE];

	a->id++;
	memcpy(a->ask, &a->id, sizeof(a->id));
	if (send(a->fd, a->ask, a->len, 0) < 0 || recv(a->fd, got, sizeof(got), 0) < 12 || memcmp(a->ask, got, 2) != 0 ||
		(got[3] & 15))
		return 0;
	return now_ns() - began;
}

static int dnslat(int count, const char *name)
{
	struct asking a = { .fd = resolver() };

	if (a.fd < 0)
		return fail("resolver");
	a.len = question(a.ask, name);
	return turns(count, ask_once, &a);
}

/* ---- crowd ---- */

static int crowd(int count, char **argv)
{
	uint64_t began = now_ns();
	int failed = 0, status;

	for (int i = 0; i < count; i++) {
		pid_t pid;

		failed += posix_spawnp(&pid, argv[0], NULL, NULL, argv, environ) != 0;
	}
	while (wait(&status) > 0)
		failed += status != 0;
	printf("%d %f\n", failed, (double)(now_ns() - began) / 1e9);
	return 0;
}

int main(int argc, char **argv)
{
	int count = argc > 2 ? atoi(argv[2]) : 0;

	signal(SIGPIPE, SIG_IGN);
	if (argc == 4 && strcmp(argv[1], "dnsd") == 0)
		return dnsd(argv[2], argv[3]);
	if (argc >= 4 && argc - 3 <= PORTS_MAX && strcmp(argv[1], "echod") == 0)
		return serve(argv[2], argv + 3, argc - 3, echo_one);
	if (argc >= 4 && argc - 3 <= PORTS_MAX && strcmp(argv[1], "hangd") == 0)
		return serve(argv[2], argv + 3, argc - 3, hang_up);
	if (argc >= 6 && strcmp(argv[1], "firstbyte") == 0 && atoi(argv[4]) > 0 && atoi(argv[4]) <= COUNT_MAX &&
		strlen(argv[argc - 1]) < 256)
		return firstbyte(argv[2], argv[3], atoi(argv[4]), argv[5], argc > 6 ? argv[6] : argv[2]);
	if (argc == 5 && strcmp(argv[1], "connect") == 0 && atoi(argv[4]) > 0 && atoi(argv[4]) <= COUNT_MAX)
		return connects(argv[2], argv[3], atoi(argv[4]));
	if (argc == 4 && strcmp(argv[1], "dnslat") == 0 && count > 0 && count <= COUNT_MAX && strlen(argv[3]) < 256)
		return dnslat(count, argv[3]);
	if (argc >= 4 && strcmp(argv[1], "crowd") == 0 && count > 0)
		return crowd(count, argv + 3);
	fprintf(stderr, "usage: see the head of tool.c\n");
	return 2;
}
