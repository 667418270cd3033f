/* The host's resolvers: see host/resolv.h. */
#include "gateway/host/resolv.h"

#include "gateway/base/addr.h"
#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

#define SERVERS_MAX 4
#define FILE_MAX 65536

/* Parse one line; if it is a nameserver line, RET is the server. A scope ("fe80::1%eth0") is kept. */
static bool nameserver_of(const char *line, size_t len, char *ret, size_t size)
{
	static const char word[] = "nameserver";
	size_t at = strspn(line, " \t"), n;

	if (len < at + sizeof(word) || memcmp(line + at, word, sizeof(word) - 1) != 0)
		return false;
	at += sizeof(word) - 1;
	if (line[at] != ' ' && line[at] != '\t')
		return false;
	at += strspn(line + at, " \t");
	n = strcspn(line + at, " \t\r\n#;");
	if (n == 0 || at + n > len || n >= size)
		return false;
	memcpy(ret, line + at, n);
	ret[n] = '\0';
	return true;
}

/* An address, optionally with a scope. A comma or bracket in the scope would break the list. */
static bool server_ok(const char *text)
{
	static const char link[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-";
	size_t n = strcspn(text, "%"), scope = text[n] ? strlen(text + n + 1) : 0;
	char plain[AK_ADDR_TEXT];
	struct ak_addr a;

	if (n >= sizeof(plain))
		return false;
	memcpy(plain, text, n);
	plain[n] = '\0';
	if (ak_addr_parse(plain, &a) < 0)
		return false;
	return !text[n] || (a.family == AF_INET6 && scope && scope < 16 && strspn(text + n + 1, link) == scope);
}

int resolv_parse(const char *text, char *ret_csv, size_t size)
{
	unsigned n = 0;
	size_t len = 0;

	for (const char *line = text; *line && n < SERVERS_MAX;) {
		size_t line_len = strcspn(line, "\n");
		char server[80];

		if (nameserver_of(line, line_len, server, sizeof(server)) && server_ok(server)) {
			bool v6 = strchr(server, ':') != NULL;
			int w = snprintf(
				ret_csv + len, size - len, "%s%s%s%s:53", n ? "," : "", v6 ? "[" : "", server, v6 ? "]" : "");

			if (w < 0 || (size_t)w >= size - len)
				break;
			len += (size_t)w;
			n++;
		}
		line += line_len;
		line += *line == '\n';
	}
	if (n == 0)
		return -ENOENT;
	ret_csv[len] = '\0';
	return 0;
}

int resolv_servers(char *ret_csv, size_t size, struct ak_err *err)
{
	_cleanup_free_ char *text = NULL;
	int rc = ak_read_file(AT_FDCWD, RESOLV_PATH, FILE_MAX, &text, NULL);

	if (rc < 0)
		return ak_fail(err, -rc,
			"%s: %s: the gateway needs a resolver; add a line 'nameserver ADDRESS', or use --no-network", RESOLV_PATH,
			strerror(-rc));
	rc = resolv_parse(text, ret_csv, size);
	if (rc < 0)
		return ak_fail(
			err, ENOENT, "%s has no resolver; add a line 'nameserver ADDRESS', or use --no-network", RESOLV_PATH);
	return 0;
}

void resolv_look(struct resolv_stamp *ret)
{
	struct stat st;

	memset(ret, 0, sizeof(*ret));
	if (stat(RESOLV_PATH, &st) < 0)
		return;
	ret->ino = st.st_ino;
	ret->mtime_ns = (uint64_t)st.st_mtim.tv_sec * 1000000000 + (uint64_t)st.st_mtim.tv_nsec;
	ret->size = (uint64_t)st.st_size;
}

bool resolv_same(const struct resolv_stamp *a, const struct resolv_stamp *b)
{
	return a->ino == b->ino && a->mtime_ns == b->mtime_ns && a->size == b->size;
}

bool resolv_host_has_ipv6(void)
{
	struct sockaddr_in6 somewhere = {
		.sin6_family = AF_INET6, .sin6_port = 53, .sin6_addr.s6_addr = { 0x2a, 0x00, [15] = 1 }
	};
	_cleanup_close_ int fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	/* Connecting a datagram socket only looks up a route and sends nothing. */
	return fd >= 0 && connect(fd, (struct sockaddr *)&somewhere, sizeof(somewhere)) == 0;
}
