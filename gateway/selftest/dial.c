/* The probe's clients: DNS, TCP, UDP, TLS and HTTP, without honouring any configuration. Blocking, with timeouts. */
#include "gateway/selftest/selftest.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#define WAIT_MS 1100 /* longer than the time allowed, so that a timeout is recognised */

void st_say(struct st_outcome *o, const char *word, const char *fmt, ...)
{
	va_list ap;

	o->word = word;
	va_start(ap, fmt);
	vsnprintf(o->detail, sizeof(o->detail), fmt, ap);
	va_end(ap);
}

const char *st_errno_word(int error)
{
	switch (error) {
	case ECONNREFUSED:
	case ECONNRESET:
	case EPIPE:
	case EHOSTUNREACH:
	case ENETUNREACH:
	case EACCES:
	case EPERM:
		return "refused";
	case ETIMEDOUT:
		return "timeout";
	default:
		return "error";
	}
}

/* Wait for EVENTS; 0 or -ETIMEDOUT. */
static int await(int fd, short events, int timeout_ms)
{
	struct pollfd p = { .fd = fd, .events = events };
	int rc;

	do {
		rc = poll(&p, 1, timeout_ms);
	} while (rc < 0 && errno == EINTR);
	return rc == 1 ? 0 : -ETIMEDOUT;
}

static int open_to(const char *host, uint16_t port, int type, struct sockaddr_storage *ret_ss, socklen_t *ret_len)
{
	struct ak_addr a;
	int fd;

	if (ak_addr_parse(host, &a) < 0)
		return -EINVAL;
	*ret_len = ak_addr_to_sockaddr(&a, port, ret_ss);
	fd = socket(a.family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	return fd < 0 ? -errno : fd;
}

int st_connect(const char *host, uint16_t port, int timeout_ms, int *ret_fd)
{
	struct sockaddr_storage ss;
	socklen_t len, size = sizeof(int);
	_cleanup_close_ int fd = open_to(host, port, SOCK_STREAM, &ss, &len);
	int error = 0, on = 1;

	if (fd < 0)
		return fd;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	if (connect(fd, (struct sockaddr *)&ss, len) < 0) {
		if (errno != EINPROGRESS)
			return -errno;
		if (await(fd, POLLOUT, timeout_ms) < 0)
			return -ETIMEDOUT;
		getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
		if (error)
			return -error;
	}
	*ret_fd = TAKE_FD(fd);
	return 0;
}

void st_await(int fd, int timeout_ms, struct st_outcome *ret)
{
	char buf[512];
	ssize_t n;

	if (await(fd, POLLIN, timeout_ms) < 0) {
		st_say(ret, "timeout", "%s", "");
		return;
	}
	n = recv(fd, buf, sizeof(buf), 0);
	st_say(ret, n > 0 ? "works" : n == 0 ? "closed" : st_errno_word(errno), "%s", "");
}

/* Send everything, or return the errno; the far side may reset meanwhile. */
static int send_all(int fd, const void *data, size_t len)
{
	const char *at = data;

	while (len) {
		ssize_t n = send(fd, at, len, MSG_NOSIGNAL);

		if (n < 0 && errno == EAGAIN) {
			if (await(fd, POLLOUT, WAIT_MS) < 0)
				return -ETIMEDOUT;
			continue;
		}
		if (n < 0)
			return -errno;
		at += n;
		len -= (size_t)n;
	}
	return 0;
}

static int dial(const struct st_vector *v, int *ret_fd, struct st_outcome *ret)
{
	int rc = st_connect(v->host, v->port, WAIT_MS, ret_fd);

	/* A refused SYN gives ECONNREFUSED; a reset at this point closes a connection that was already accepted. */
	if (rc < 0)
		st_say(ret, rc == -ECONNRESET ? "cut" : st_errno_word(-rc), "%s", "");
	return rc;
}

/* ---- TCP and UDP ---- */

void st_dial_tcp(const struct st_vector *v, struct st_outcome *ret)
{
	_cleanup_close_ int fd = -1;

	if (dial(v, &fd, ret) < 0)
		return;
	(void)send_all(fd, "probe", 5);
	st_await(fd, WAIT_MS, ret);
	/* The kernel's rules refuse the connection itself; only the relay can accept a connection and cut it later. */
	if (!strcmp(ret->word, "refused"))
		ret->word = "cut";
}

void st_dial_udp(const struct st_vector *v, struct st_outcome *ret)
{
	struct sockaddr_storage ss;
	socklen_t len;
	_cleanup_close_ int fd = open_to(v->host, v->port, SOCK_DGRAM, &ss, &len);

	if (fd < 0 || connect(fd, (struct sockaddr *)&ss, len) < 0 || send(fd, "probe", 5, MSG_NOSIGNAL) < 0) {
		st_say(ret, st_errno_word(fd < 0 ? -fd : errno), "%s", "");
		return;
	}
	st_await(fd, WAIT_MS, ret);
}

/* ---- TLS ---- */

struct hello {
	uint8_t data[8192];
	size_t len;
};

static void put(struct hello *h, const void *data, size_t n)
{
	memcpy(h->data + h->len, data, n);
	h->len += n;
}

static void put_number(struct hello *h, size_t v, unsigned bytes)
{
	while (bytes--)
		h->data[h->len++] = (uint8_t)(v >> 8 * bytes);
}

static void put_extension(struct hello *h, unsigned type, size_t filler)
{
	put_number(h, type, 2);
	put_number(h, filler, 2);
	memset(h->data + h->len, 0x5a, filler);
	h->len += filler;
}

static void put_sni(struct hello *h, const char *name)
{
	size_t n = strlen(name);

	put_number(h, 0, 2);
	put_number(h, n + 5, 2);
	put_number(h, n + 3, 2);
	put_number(h, 0, 1);
	put_number(h, n, 2);
	put(h, name, n);
}

/* Build the handshake message, without records. */
static void build_message(struct hello *h, const struct st_vector *v)
{
	size_t extensions;

	h->len = 0;
	put_number(h, 1, 1);
	put_number(h, 0, 3); /* length, set below */
	put_number(h, 0x0303, 2);
	memset(h->data + h->len, 7, 32);
	h->len += 32;
	put_number(h, 0, 1); /* no session */
	put(h, "\0\4\x13\1\xc0\x2f", 6);
	put_number(h, 0x0100, 2); /* no compression */
	extensions = h->len;
	put_number(h, 0, 2);
	if (v->type == ST_HELLO_GREASE)
		put_extension(h, 0x1a1a, 1);
	if (v->type == ST_HELLO_BIG)
		put_extension(h, 51, 3000); /* key shares as large as those of post-quantum groups */
	if (v->name && v->type != ST_HELLO_NONE)
		put_sni(h, v->name);
	if (v->type == ST_HELLO_ECH)
		put_extension(h, 0xfe0d, 200);
	put_extension(h, 43, 3);
	h->data[extensions] = (uint8_t)((h->len - extensions - 2) >> 8);
	h->data[extensions + 1] = (uint8_t)(h->len - extensions - 2);
	h->data[2] = (uint8_t)((h->len - 4) >> 8);
	h->data[3] = (uint8_t)(h->len - 4);
}

static void build_hello(struct hello *h, const struct st_vector *v)
{
	static const char ssl2[] = "\x80\x2e\1\0\2\0\x15\0\0\0\x10\1\0\x80\2\0\x80\3\0\x80\4\0\x80\5\0\x80\6\0\x40\7\0\xc0"
				   "0123456789abcdef";
	struct hello msg;
	size_t step;

	h->len = 0;
	if (v->type == ST_HELLO_SSL2) {
		put(h, ssl2, sizeof(ssl2) - 1);
		return;
	}
	if (v->type == ST_HELLO_GARBAGE) {
		put(h, "SSH-2.0-tunnel\r\n", 16);
		return;
	}
	build_message(&msg, v);
	step = v->type == ST_HELLO_RECORDS ? 20 : msg.len;
	for (size_t at = 0; at < msg.len; at += step) {
		size_t n = msg.len - at < step ? msg.len - at : step;

		put_number(h, 22, 1);
		put_number(h, 0x0301, 2);
		put_number(h, n, 2);
		put(h, msg.data + at, n);
	}
}

void st_dial_tls(const struct st_vector *v, struct st_outcome *ret)
{
	_cleanup_close_ int fd = -1;
	struct hello h;

	if (dial(v, &fd, ret) < 0)
		return;
	build_hello(&h, v);
	for (size_t at = 0, n = v->type == ST_HELLO_DRIPPED ? 1 : h.len; at < h.len; at += n) {
		if (send_all(fd, h.data + at, n) < 0)
			break;
	}
	st_await(fd, WAIT_MS, ret);
}

/* ---- HTTP ---- */

static void request(int fd, const char *host, struct st_outcome *ret)
{
	char text[400];
	int n = snprintf(text, sizeof(text), "GET / HTTP/1.1\r\nHost: %s\r\n\r\n", host);

	(void)send_all(fd, text, (size_t)n);
	st_await(fd, WAIT_MS, ret);
}

void st_dial_http(const struct st_vector *v, struct st_outcome *ret)
{
	_cleanup_close_ int fd = -1;

	if (dial(v, &fd, ret) < 0)
		return;
	request(fd, v->name, ret);
	if (!v->detail)
		return;
	/* The first request is allowed; the second one is tested. */
	if (strcmp(ret->word, "works") != 0) {
		st_say(ret, "first request failed", "%s", v->detail);
		return;
	}
	request(fd, v->detail, ret);
	snprintf(ret->detail, sizeof(ret->detail), "%s", v->detail);
}

/* ---- DNS ---- */

const char *st_resolver(void)
{
	static char text[AK_ADDR_TEXT];
	_cleanup_free_ char *conf = NULL;
	const char *at;

	if (text[0] || ak_read_file(AT_FDCWD, "/etc/resolv.conf", 4096, &conf, NULL) < 0)
		return text;
	at = strstr(conf, "nameserver ");
	if (at)
		snprintf(text, sizeof(text), "%.*s", (int)strcspn(at + 11, " \n"), at + 11);
	return text;
}

static size_t read_framed(int fd, uint8_t *reply, int timeout_ms)
{
	uint8_t buf[ST_DNS_MAX + 2];
	size_t len = 0;

	for (;;) {
		ssize_t n = await(fd, POLLIN, timeout_ms) < 0 ? 0 : recv(fd, buf + len, sizeof(buf) - len, 0);

		if (n <= 0)
			return 0;
		len += (size_t)n;
		if (len >= 2 && len >= 2u + ((size_t)buf[0] << 8 | buf[1])) {
			len = (size_t)buf[0] << 8 | buf[1];
			memcpy(reply, buf + 2, len);
			return len;
		}
	}
}

static size_t exchange_tcp(const char *server, const uint8_t *query, size_t len, uint8_t *reply, int timeout_ms)
{
	const uint8_t head[2] = { (uint8_t)(len >> 8), (uint8_t)len };
	_cleanup_close_ int fd = -1;

	if (st_connect(server, 53, timeout_ms, &fd) < 0 || send_all(fd, head, 2) < 0 || send_all(fd, query, len) < 0)
		return 0;
	return read_framed(fd, reply, timeout_ms);
}

size_t st_dns_exchange(const char *server, bool tcp, const uint8_t *query, size_t len, uint8_t *reply, int timeout_ms)
{
	struct sockaddr_storage ss;
	socklen_t size;
	_cleanup_close_ int fd = -1;

	if (tcp)
		return exchange_tcp(server, query, len, reply, timeout_ms);
	fd = open_to(server, 53, SOCK_DGRAM, &ss, &size);
	if (fd < 0 || connect(fd, (struct sockaddr *)&ss, size) < 0 || send(fd, query, len, 0) < 0)
		return 0;
	for (;;) {
		ssize_t n = await(fd, POLLIN, timeout_ms) < 0 ? -1 : recv(fd, reply, ST_DNS_MAX, 0);

		if (n < 0)
			return 0;
		if (n >= 12 && reply[0] == query[0] && reply[1] == query[1])
			return (size_t)n;
	}
}

void st_dns_ask(const char *server, bool tcp, const char *name, uint16_t qtype, bool loaded, struct st_outcome *ret,
	struct ak_addr *ret_addr)
{
	static uint16_t id = 100;
	uint8_t query[ST_DNS_MAX], reply[ST_DNS_MAX];
	size_t len = st_dns_query(query, ++id, name, qtype, loaded);
	char first[AK_ADDR_TEXT];

	st_dns_read(reply, st_dns_exchange(server ? server : st_resolver(), tcp, query, len, reply, WAIT_MS), query, len, ret);
	if (!ret_addr)
		return;
	snprintf(first, sizeof(first), "%.*s", (int)strcspn(ret->detail, ","), ret->detail);
	if (ak_addr_parse(first, ret_addr) < 0)
		ret_addr->family = 0;
}

/* ---- malformed queries ---- */

static size_t put_raw_name(uint8_t *out, unsigned kind)
{
	uint8_t *p = out;

	switch (kind) {
	case ST_RAW_POINTER: /* into the header */
		memcpy(p, "\2a7\xc0\0", 5);
		return 5;
	case ST_RAW_LOOP: /* at itself */
		memcpy(p, "\xc0\x0c", 2);
		return 2;
	case ST_RAW_LONG_LABEL:
		*p = 70;
		memset(p + 1, 'a', 70);
		memcpy(p + 71, "\4test", 6);
		return 77;
	case ST_RAW_LONG_NAME:
		for (int i = 0; i < 5; i++, p += 61) {
			*p = 60;
			memset(p + 1, 'a', 60);
		}
		*p++ = 0;
		return (size_t)(p - out);
	default:
		return st_name_wire(kind < ST_RAW_NO_QUESTION ? "a7.wild.test" : "a8.wild.test", out);
	}
}

static size_t build_raw(uint8_t *m, unsigned kind)
{
	static const uint8_t head[12] = { 0x77, 0x77, 1, 0, 0, 1 };
	size_t n = 12, name;

	memcpy(m, head, sizeof(head));
	name = put_raw_name(m + n, kind);
	memcpy(m + n + name, "\0\1\0\1", 4);
	n += name + 4;
	switch (kind) {
	case ST_RAW_CUT:
		return n - 5;
	case ST_RAW_NO_QUESTION:
		m[5] = 0;
		break;
	case ST_RAW_TWO:
		m[5] = 2;
		memcpy(m + n, m + 12, n - 12);
		n += n - 12;
		break;
	case ST_RAW_OPCODE:
		m[2] = 1 | 4 << 3; /* NOTIFY */
		break;
	case ST_RAW_CLASS:
		m[n - 1] = 3; /* CHAOS */
		break;
	case ST_RAW_RESPONSE:
		m[2] = 0x81;
		break;
	case ST_RAW_RECORDS: /* an answer record in the query */
		m[7] = 1;
		memcpy(m + n, "\xc0\x0c\0\1\0\1\0\0\0\x3c\0\4\x0b\x42\7\1", 16);
		n += 16;
		break;
	default:
		break;
	}
	return n;
}

/* Send a valid query after the bad one: once it is answered, any reply to the bad one has arrived. */
void st_dial_raw(const struct st_vector *v, struct st_outcome *ret)
{
	uint8_t bad[ST_DNS_MAX], good[ST_DNS_MAX], reply[ST_DNS_MAX];
	size_t bad_len = build_raw(bad, v->type), good_len = st_dns_query(good, 0x4242, "ok.test", 1, false);
	struct sockaddr_storage ss;
	socklen_t size;
	_cleanup_close_ int fd = open_to(st_resolver(), 53, SOCK_DGRAM, &ss, &size);

	st_say(ret, "silence", "%s", "");
	if (fd < 0 || connect(fd, (struct sockaddr *)&ss, size) < 0 || send(fd, bad, bad_len, 0) < 0 ||
		send(fd, good, good_len, 0) < 0) {
		st_say(ret, "error", "%s", "");
		return;
	}
	for (;;) {
		ssize_t n = await(fd, POLLIN, WAIT_MS) < 0 ? -1 : recv(fd, reply, sizeof(reply), 0);

		if (n < 12) {
			st_say(ret, "the resolver stopped answering", "%s", "");
			return;
		}
		if (reply[0] == 0x42)
			return;
		st_dns_read(reply, (size_t)n, bad, bad_len, ret);
	}
}
