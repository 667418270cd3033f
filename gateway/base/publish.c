/* Published ports: see base/publish.h. */
#include "gateway/base/publish.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/number.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#define BACKLOG 64
#define FORM "[ADDR:]PORT[:PORT], such as 8080, 8080:80 or 0.0.0.0:8080:80"

/* ---- text ---- */

static int parse_port(const char *text, size_t len, unsigned min, uint16_t *ret, struct ak_err *err)
{
	char word[8];
	unsigned long long n;

	if (len == 0 || len >= sizeof(word) || strspn(text, "0123456789") < len)
		return ak_fail(err, EINVAL, "'%.*s' is not a port: write %s", (int)(len < 40 ? len : 40), text, FORM);
	memcpy(word, text, len);
	word[len] = '\0';
	if (ak_parse_count(word, 0, 65535, &n, err) < 0)
		return ak_fail(err, EINVAL, "port %s is out of range: use 1 to 65535", word);
	if (n < min)
		return ak_fail(err, EINVAL, "port 0 inside: name the port that the program listens on, such as 0:8080");
	*ret = (uint16_t)n;
	return 0;
}

/* Split off the address; returns the rest, or NULL with the reason. */
static const char *parse_addr(const char *text, struct ak_addr *ret, struct ak_err *err)
{
	bool bracket = text[0] == '[';
	size_t len = bracket ? strcspn(text, "]") : strcspn(text, ":");
	const char *start = text + bracket, *end = text + len;
	char word[AK_ADDR_TEXT];

	*ret = ak_addr_v4(INADDR_LOOPBACK);
	if (!bracket && strspn(text, "0123456789") == len)
		return text;
	if ((bracket && (end[0] != ']' || end[1] != ':')) || (!bracket && end[0] != ':')) {
		ak_fail(err, EINVAL, "'%.60s' is not a published port: write %s", text, FORM);
		return NULL;
	}
	len = (size_t)(end - start);
	if (len < sizeof(word)) {
		memcpy(word, start, len);
		word[len] = '\0';
	}
	if (len >= sizeof(word) || ak_addr_parse(word, ret) < 0 || (ret->family == AF_INET6) != bracket) {
		ak_fail(err, EINVAL,
			"'%.*s' is not an address of the host: write 127.0.0.1, 0.0.0.0 or an IPv6 address in brackets",
			(int)(len < 60 ? len : 60), start);
		return NULL;
	}
	return end + bracket + 1;
}

int ak_publish_parse(const char *text, struct ak_publish *ret, struct ak_err *err)
{
	struct ak_publish p = { .port = 0 };
	const char *ports = parse_addr(text, &p.addr, err), *inside;
	size_t len;
	int rc;

	if (!ports)
		return -EINVAL;
	len = strcspn(ports, ":");
	inside = ports[len] ? ports + len + 1 : ports;
	rc = parse_port(ports, len, 0, &p.host_port, err);
	if (rc == 0)
		rc = parse_port(inside, strlen(inside), 1, &p.port, err);
	if (rc == 0)
		*ret = p;
	return rc;
}

const char *ak_publish_host(const struct ak_publish *p, char buf[static AK_PUBLISH_TEXT])
{
	bool v6 = p->addr.family == AF_INET6;
	char addr[AK_ADDR_TEXT];

	snprintf(buf, AK_PUBLISH_TEXT, "%s%s%s:%u", v6 ? "[" : "", ak_addr_print(&p->addr, addr), v6 ? "]" : "", p->host_port);
	return buf;
}

const char *ak_publish_print(const struct ak_publish *p, char buf[static AK_PUBLISH_TEXT])
{
	size_t len;

	ak_publish_host(p, buf);
	len = strlen(buf);
	snprintf(buf + len, AK_PUBLISH_TEXT - len, ":%u", p->port);
	return buf;
}

const char *ak_publish_note(const struct ak_publish *asked, const struct ak_publish *p, char buf[static AK_PUBLISH_NOTE])
{
	bool local = ak_publish_is_local(p);
	char host[AK_PUBLISH_TEXT];

	buf[0] = '\0';
	if (!asked->host_port || !local)
		snprintf(buf, AK_PUBLISH_NOTE, "%s leads to port %u of the sandbox%s", ak_publish_host(p, host), p->port,
			local ? "" : "; other machines that reach this address can connect");
	return buf;
}

/* ---- lists ---- */

bool ak_publish_is_local(const struct ak_publish *p)
{
	static const struct ak_addr one = { .family = AF_INET6, .bytes = { [15] = 1 } };
	struct ak_addr net = ak_addr_v4(INADDR_LOOPBACK);

	return p->addr.family == AF_INET ? ak_addr_in_prefix(&p->addr, &net, 8) : ak_addr_eq(&p->addr, &one);
}

bool ak_publish_clash(const struct ak_publish *a, const struct ak_publish *b)
{
	return a->host_port && a->host_port == b->host_port && ak_addr_eq(&a->addr, &b->addr);
}

int ak_publish_add(struct ak_publish *list, size_t *n, const struct ak_publish *p, struct ak_err *err)
{
	char text[AK_PUBLISH_TEXT];

	for (size_t i = 0; i < *n; i++) {
		if (ak_publish_clash(&list[i], p))
			return ak_fail(err, EEXIST, "%s is published already", ak_publish_host(p, text));
	}
	if (*n == AK_PUBLISH_MAX)
		return ak_fail(err, E2BIG, "a sandbox can publish at most %d ports", AK_PUBLISH_MAX);
	list[(*n)++] = *p;
	return 0;
}

/* ---- the host's socket ---- */

static int explain(const struct ak_publish *p, int code, struct ak_err *err)
{
	char text[AK_PUBLISH_TEXT];

	ak_publish_host(p, text);
	switch (code) {
	case EADDRINUSE:
		return ak_fail(err, code, "port %s of the host is in use: publish another one, such as 0:%u for any free port",
			text, p->port);
	case EACCES:
	case EPERM:
		return ak_fail(err, code, "port %s of the host needs privileges: publish one from 1024 up, such as %u:%u", text,
			p->host_port < 1024 ? p->host_port + 8000u : p->host_port, p->port);
	case EADDRNOTAVAIL:
		return ak_fail(err, code, "%s: this host does not have that address", text);
	case EAFNOSUPPORT:
		return ak_fail(err, code, "%s: this host has no IPv6; publish it on 127.0.0.1", text);
	default:
		return ak_fail_errno(err, code, "publishing %s", text);
	}
}

static int take_port(struct ak_publish *p, int listener)
{
	struct sockaddr_storage ss = { 0 };
	socklen_t len = sizeof(ss);

	if (getsockname(listener, (struct sockaddr *)&ss, &len) < 0)
		return -errno;
	(void)ak_addr_from_sockaddr(&ss, &p->host_port);
	return 0;
}

int ak_publish_listen(struct ak_publish *p, struct ak_err *err)
{
	_cleanup_close_ int fd = socket(p->addr.family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	struct sockaddr_storage ss;
	socklen_t len = ak_addr_to_sockaddr(&p->addr, p->host_port, &ss);
	int one = 1, rc;

	if (fd < 0)
		return explain(p, errno, err);
	/* Connections of an earlier sandbox may be in TIME_WAIT; this never shares the port with another listener. */
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (p->addr.family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof(one));
	if (bind(fd, (struct sockaddr *)&ss, len) < 0 || listen(fd, BACKLOG) < 0)
		return explain(p, errno, err);
	rc = take_port(p, fd);
	return rc < 0 ? explain(p, -rc, err) : TAKE_FD(fd);
}

int ak_channel_open(int *ret_gateway, int *ret_init, struct ak_err *err)
{
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
		return ak_fail_errno(err, errno, "channel of a published port");
	*ret_gateway = pair[0];
	*ret_init = pair[1];
	return 0;
}
