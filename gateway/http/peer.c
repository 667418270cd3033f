/*
 * Find the owner of the other end of a connection. See http/peer.h.
 *
 * Both ends of a connection within this network namespace are sockets here; the far one has our addresses swapped. In three cases the
 * kernel would name the wrong user, and we refuse the result:
 * a socket that no process holds any more has no inode, and its owner is root on kernels before 6.17;
 * looking up a closed connection finds the socket that listens on its port;
 * a reused port belongs to another connection, which cannot be established while ours still is.
 */
#include "gateway/http/peer.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/netlink.h"

#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/sock_diag.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define OVERFLOW_UID 65534 /* means any user that our user namespace does not map */
#define ANSWERS_MAX 16
#define ALIVE (1u << TCP_ESTABLISHED | 1u << TCP_FIN_WAIT1 | 1u << TCP_FIN_WAIT2)

struct question {
	struct nlmsghdr nlh;
	struct inet_diag_req_v2 req;
};

/* ---- addresses ---- */

/* An IPv6 socket of an IPv4 connection has mapped addresses. The kernel finds it by either form, and reports the mapped one. */
static struct ak_addr unmap(struct ak_addr a)
{
	struct ak_addr v4;

	return a.family == AF_INET6 && a.bytes[10] == 0xff && ak_addr_embedded_v4(&a, &v4) ? v4 : a;
}

static struct ak_addr diag_addr(uint8_t family, const __be32 bytes[static 4])
{
	struct ak_addr a = { .family = family };

	memcpy(a.bytes, bytes, family == AF_INET ? 4 : 16);
	return unmap(a);
}

static int ends_of(int fd, struct http_ends *ret)
{
	struct sockaddr_storage here = { 0 }, there = { 0 };
	socklen_t here_len = sizeof(here), there_len = sizeof(there);

	if (getsockname(fd, (struct sockaddr *)&here, &here_len) < 0 ||
		getpeername(fd, (struct sockaddr *)&there, &there_len) < 0)
		return -errno;
	ret->local = unmap(ak_addr_from_sockaddr(&there, &ret->local_port));
	ret->remote = unmap(ak_addr_from_sockaddr(&here, &ret->remote_port));
	return ret->local.family && ret->local.family == ret->remote.family ? 0 : -EAFNOSUPPORT;
}

/* ---- query and reply ---- */

static bool is_it(const struct inet_diag_msg *m, const struct http_ends *ends)
{
	const struct ak_addr local = diag_addr(m->idiag_family, m->id.idiag_src),
			     remote = diag_addr(m->idiag_family, m->id.idiag_dst);

	return ak_addr_eq(&local, &ends->local) && ak_addr_eq(&remote, &ends->remote) &&
		ntohs(m->id.idiag_sport) == ends->local_port && ntohs(m->id.idiag_dport) == ends->remote_port;
}

int http_peer_parse(const void *data, size_t len, const struct http_ends *ends, uid_t *ret)
{
	size_t at = 0;
	const struct nlmsghdr *nlh = ak_nlmsg_next(data, len, &at);
	struct inet_diag_msg m;
	int code;

	if (!nlh)
		return -EBADMSG;
	if (ak_nlmsg_ack(nlh, &code))
		return code < 0 ? code : -EBADMSG;
	if (nlh->nlmsg_type != SOCK_DIAG_BY_FAMILY || nlh->nlmsg_len < NLMSG_HDRLEN + sizeof(m))
		return -EBADMSG;
	memcpy(&m, (const char *)nlh + NLMSG_HDRLEN, sizeof(m));
	if (m.idiag_family != AF_INET && m.idiag_family != AF_INET6)
		return -EBADMSG;
	if (m.idiag_state > TCP_CLOSING || !(ALIVE & 1u << m.idiag_state) || !m.idiag_inode || !is_it(&m, ends))
		return -ENOENT;
	if (m.idiag_uid == OVERFLOW_UID || m.idiag_uid == HTTP_PEER_NONE)
		return -ENOENT;
	*ret = m.idiag_uid;
	return 0;
}

int http_peer_open(void)
{
	int nl = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_SOCK_DIAG);

	return nl < 0 ? -errno : nl;
}

static int send_question(int nl, const struct http_ends *ends)
{
	const struct sockaddr_nl kernel = { .nl_family = AF_NETLINK };
	struct question q = {
		.nlh = { .nlmsg_len = sizeof(q), .nlmsg_type = SOCK_DIAG_BY_FAMILY, .nlmsg_flags = NLM_F_REQUEST },
		.req = { .sdiag_family = ends->local.family, .sdiag_protocol = IPPROTO_TCP, .idiag_states = ~0u },
	};

	q.req.id.idiag_sport = htons(ends->local_port);
	q.req.id.idiag_dport = htons(ends->remote_port);
	q.req.id.idiag_cookie[0] = q.req.id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
	memcpy(q.req.id.idiag_src, ends->local.bytes, sizeof(q.req.id.idiag_src));
	memcpy(q.req.id.idiag_dst, ends->remote.bytes, sizeof(q.req.id.idiag_dst));
	return sendto(nl, &q, sizeof(q), 0, (const struct sockaddr *)&kernel, sizeof(kernel)) < 0 ? -errno : 0;
}

/* The reply is ready when send returns. Read everything in the socket, so that no old message is taken for a later reply. */
static int ask(int nl, const struct http_ends *ends, uid_t *ret)
{
	_Alignas(struct nlmsghdr) char answer[4096];
	int rc = send_question(nl, ends), found = -ENOENT;

	for (int i = 0; rc == 0 && i < ANSWERS_MAX; i++) {
		struct sockaddr_nl from = { 0 };
		socklen_t len = sizeof(from);
		ssize_t n = recvfrom(nl, answer, sizeof(answer), 0, (struct sockaddr *)&from, &len);

		if (n < 0)
			break;
		if (found < 0 && from.nl_pid == 0)
			found = http_peer_parse(answer, (size_t)n, ends, ret);
	}
	return rc < 0 ? rc : found;
}

/* Check this after the lookup: while our end is connected, no other connection can have the same addresses and ports. */
static bool still_connected(int fd)
{
	struct tcp_info info = { 0 };
	socklen_t len = sizeof(info);

	return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) == 0 &&
		(info.tcpi_state == TCP_ESTABLISHED || info.tcpi_state == TCP_CLOSE_WAIT);
}

uid_t http_peer_uid(int nl, int fd)
{
	struct http_ends ends;
	uid_t uid;

	if (ends_of(fd, &ends) < 0 || ask(nl, &ends, &uid) < 0 || !still_connected(fd))
		return HTTP_PEER_NONE;
	return uid;
}
