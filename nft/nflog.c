/*
 * The NFLOG reader: receives one message for each denied packet.
 *
 * The logging rules are rate-limited, so messages are sent one by one (threshold 1) and a denial is visible immediately. If
 * the kernel cannot queue a message, the reader gets ENOBUFS; the counters still include the packet.
 */
#include "nft/nflog.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/base/netlink.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nfnetlink_log.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <libmnl/libmnl.h>

#define NFLOG_COPY_RANGE 96
#define NFLOG_BUFFER 65536
#define NFLOG_SOCKET_BUFFER (1 << 20)

struct fw_log {
	int fd; /* owned */
	struct fw_log_hooks hooks;
	char buf[NFLOG_BUFFER] __attribute__((aligned(8)));
};

/* ---- parsing: pure ---- */

bool fw_nflog_prefix_parse(const char *text, size_t len, uint32_t *ret_id, enum fw_reason *ret_reason)
{
	const char *p = text, *end = text + len;
	uint64_t id = 0;
	size_t digits = 0;

	if (len < 3 || memcmp(p, "ak:", 3) != 0)
		return false;
	for (p += 3; p < end && *p >= '0' && *p <= '9' && digits < 10; p++, digits++)
		id = id * 10 + (uint64_t)(*p - '0');
	if (digits == 0 || id > UINT32_MAX || p == end || *p++ != ':')
		return false;
	for (enum fw_reason reason = 0; reason < FW_REASON_NUM; reason++) {
		const char *name = fw_reason_name(reason);

		if (strlen(name) == (size_t)(end - p) && memcmp(name, p, (size_t)(end - p)) == 0) {
			*ret_id = (uint32_t)id;
			*ret_reason = reason;
			return true;
		}
	}
	return false;
}

static uint16_t be16(const uint8_t *p)
{
	return (uint16_t)(p[0] << 8 | p[1]);
}

static struct ak_addr addr_at(int family, const uint8_t *p)
{
	struct ak_addr a = { .family = (uint8_t)family };

	memcpy(a.bytes, p, family == AF_INET ? 4 : 16);
	return a;
}

static void take_ports(const uint8_t *data, size_t len, struct fw_denial *d)
{
	bool has_ports = d->l4proto == IPPROTO_TCP || d->l4proto == IPPROTO_UDP || d->l4proto == IPPROTO_SCTP ||
		d->l4proto == IPPROTO_UDPLITE || d->l4proto == IPPROTO_DCCP;

	if (!has_ports || len < 4)
		return;
	d->sport = be16(data);
	d->dport = be16(data + 2);
}

static bool parse_ipv4(const uint8_t *p, size_t len, struct fw_denial *d)
{
	size_t header;

	if (len < 20)
		return false;
	header = (size_t)(p[0] & 0x0f) * 4;
	if (header < 20)
		return false;
	d->l4proto = p[9];
	d->src = addr_at(AF_INET, p + 12);
	d->dst = addr_at(AF_INET, p + 16);
	if (len > header && (be16(p + 6) & 0x1fff) == 0)
		take_ports(p + header, len - header, d);
	return true;
}

/* Walk the complete extension headers. A fragment other than the first has no ports. */
static bool parse_ipv6(const uint8_t *p, size_t len, struct fw_denial *d)
{
	size_t at = 40;
	bool first = true;
	uint8_t next;

	if (len < 40)
		return false;
	next = p[6];
	d->src = addr_at(AF_INET6, p + 8);
	d->dst = addr_at(AF_INET6, p + 24);
	while ((next == IPPROTO_HOPOPTS || next == IPPROTO_ROUTING || next == IPPROTO_DSTOPTS || next == IPPROTO_FRAGMENT) &&
		at + 8 <= len) {
		bool fragment = next == IPPROTO_FRAGMENT;

		if (fragment && (be16(p + at + 2) & 0xfff8))
			first = false;
		next = p[at];
		at += fragment ? 8 : ((size_t)p[at + 1] + 1) * 8;
	}
	d->l4proto = next;
	if (first && at < len)
		take_ports(p + at, len - at, d);
	return true;
}

bool fw_nflog_packet_parse(const uint8_t *data, size_t len, struct fw_denial *ret)
{
	struct fw_denial d = *ret;
	bool ok = false;

	d.l4proto = 0;
	d.sport = d.dport = 0;
	if (len > 0 && data[0] >> 4 == 4)
		ok = parse_ipv4(data, len, &d);
	else if (len > 0 && data[0] >> 4 == 6)
		ok = parse_ipv6(data, len, &d);
	if (ok)
		*ret = d;
	return ok;
}

bool fw_nflog_parse(const struct nlmsghdr *nlh, struct fw_denial *ret)
{
	const size_t head = MNL_ALIGN(sizeof(struct nfgenmsg));
	const struct nlattr *attr, *prefix = NULL, *payload = NULL;
	struct fw_denial d = { 0 };
	size_t prefix_len;

	if (nlh->nlmsg_type != ((NFNL_SUBSYS_ULOG << 8) | NFULNL_MSG_PACKET) || mnl_nlmsg_get_payload_len(nlh) < head)
		return false;
	mnl_attr_for_each(attr, nlh, head)
	{
		if (mnl_attr_get_type(attr) == NFULA_PREFIX)
			prefix = attr;
		else if (mnl_attr_get_type(attr) == NFULA_PAYLOAD)
			payload = attr;
	}
	if (!prefix || !payload)
		return false;
	prefix_len = strnlen(mnl_attr_get_payload(prefix), mnl_attr_get_payload_len(prefix));
	if (!fw_nflog_prefix_parse(mnl_attr_get_payload(prefix), prefix_len, &d.id, &d.reason) ||
		!fw_nflog_packet_parse(mnl_attr_get_payload(payload), mnl_attr_get_payload_len(payload), &d))
		return false;
	*ret = d;
	return true;
}

/* ---- configuring the group ---- */

static struct nlmsghdr *config_begin(char *buf, uint32_t seq)
{
	struct nlmsghdr *nlh = mnl_nlmsg_put_header(buf);
	struct nfgenmsg *nfg;

	nlh->nlmsg_type = (NFNL_SUBSYS_ULOG << 8) | NFULNL_MSG_CONFIG;
	nlh->nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK;
	nlh->nlmsg_seq = seq;
	nfg = mnl_nlmsg_put_extra_header(nlh, sizeof(*nfg));
	nfg->nfgen_family = AF_UNSPEC;
	nfg->version = NFNETLINK_V0;
	nfg->res_id = htons(FW_LOG_GROUP);
	return nlh;
}

/* Does not block: the reply to SEQ is queued when send returns, possibly after packets that were logged meanwhile. */
static int config_send(int fd, struct nlmsghdr *nlh)
{
	char buf[8192] __attribute__((aligned(8)));
	static const struct sockaddr_nl kernel = { .nl_family = AF_NETLINK };
	ssize_t n;

	do {
		n = sendto(fd, nlh, nlh->nlmsg_len, MSG_DONTWAIT, (const struct sockaddr *)&kernel, sizeof(kernel));
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	for (;;) {
		const struct nlmsghdr *reply;
		size_t at = 0;
		int code;

		n = recv(fd, buf, sizeof(buf), MSG_DONTWAIT);
		if (n < 0 && (errno == EINTR || errno == ENOBUFS))
			continue;
		if (n < 0)
			return errno == EAGAIN ? -EIO : -errno;
		while ((reply = ak_nlmsg_next(buf, (size_t)n, &at)))
			if (reply->nlmsg_seq == nlh->nlmsg_seq && ak_nlmsg_ack(reply, &code))
				return code;
	}
}

static int config_bind(int fd)
{
	struct nfulnl_msg_config_cmd cmd = { .command = NFULNL_CFG_CMD_BIND };
	char buf[256] __attribute__((aligned(8)));
	struct nlmsghdr *nlh = config_begin(buf, 1);

	mnl_attr_put(nlh, NFULA_CFG_CMD, sizeof(cmd), &cmd);
	return config_send(fd, nlh);
}

/* Copy the start of each packet; flush after every message, or after 10 ms at the latest. */
static int config_mode(int fd)
{
	struct nfulnl_msg_config_mode mode = { .copy_range = htonl(NFLOG_COPY_RANGE), .copy_mode = NFULNL_COPY_PACKET };
	char buf[256] __attribute__((aligned(8)));
	struct nlmsghdr *nlh = config_begin(buf, 2);

	mnl_attr_put(nlh, NFULA_CFG_MODE, sizeof(mode), &mode);
	mnl_attr_put_u32(nlh, NFULA_CFG_NLBUFSIZ, htonl(4096));
	mnl_attr_put_u32(nlh, NFULA_CFG_TIMEOUT, htonl(1));
	mnl_attr_put_u32(nlh, NFULA_CFG_QTHRESH, htonl(1));
	return config_send(fd, nlh);
}

int fw_log_new(int nflog_fd, const struct fw_log_hooks *hooks, struct fw_log **ret, struct ak_err *err)
{
	_cleanup_close_ int fd = nflog_fd;
	int size = NFLOG_SOCKET_BUFFER, rc;
	struct fw_log *log;

	rc = ak_set_nonblock(fd, true);
	if (rc < 0)
		return ak_fail_errno(err, -rc, "nflog socket");
	setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size));
	rc = config_bind(fd);
	if (rc < 0)
		return ak_fail_errno(err, -rc, "nflog group %u", FW_LOG_GROUP);
	rc = config_mode(fd);
	if (rc < 0)
		return ak_fail_errno(err, -rc, "nflog group %u: copy mode", FW_LOG_GROUP);
	log = malloc(sizeof(*log));
	if (!log)
		return ak_fail_errno(err, ENOMEM, "nflog");
	log->fd = TAKE_FD(fd);
	log->hooks = *hooks;
	*ret = log;
	return 0;
}

/* Closing the descriptor unbinds the group. */
void fw_log_free(struct fw_log *log)
{
	if (!log)
		return;
	ak_close(log->fd);
	free(log);
}

int fw_log_fd(const struct fw_log *log)
{
	return log->fd;
}

/* ---- reading ---- */

/* Parse all messages of one datagram; returns their number. */
static unsigned log_take(struct fw_log *log, size_t len)
{
	const struct nlmsghdr *nlh;
	size_t at = 0;
	unsigned n = 0;

	while ((nlh = ak_nlmsg_next(log->buf, len, &at))) {
		struct fw_denial d;

		if (nlh->nlmsg_type == NLMSG_DONE)
			continue;
		n++;
		if (fw_nflog_parse(nlh, &d))
			log->hooks.on_denial(log->hooks.ctx, &d);
	}
	return n;
}

int fw_log_read(struct fw_log *log, unsigned budget)
{
	unsigned n = 0;

	while (n < budget) {
		ssize_t len = recv(log->fd, log->buf, sizeof(log->buf), MSG_DONTWAIT);

		if (len >= 0) {
			unsigned got = log_take(log, (size_t)len);

			n += got ? got : 1; /* count a datagram without messages too, so that the loop ends */
		} else if (errno == ENOBUFS) {
			if (log->hooks.on_loss)
				log->hooks.on_loss(log->hooks.ctx);
			n++;
		} else if (errno == EAGAIN) {
			break;
		} else if (errno != EINTR) {
			return -errno;
		}
	}
	return (int)n;
}
