/* A minimal rtnetlink client: see rtnl.h. */
#include "vmctl/rtnl.h"

#include "gateway/base/netlink.h"

#include <assert.h>
#include <errno.h>
#include <linux/ethtool.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#define RTNL_ACK_TIMEOUT_MS 2000

static_assert(RTNL_MESSAGES_MAX < 32, "a bit for each message");

static void *put(struct rtnl_batch *b, const void *data, size_t len)
{
	char *at = b->buf + b->len;

	/* The buffer is sized for the largest batch that this folder builds. */
	assert(b->len + NLMSG_ALIGN(len) <= sizeof(b->buf));
	memset(at, 0, NLMSG_ALIGN(len));
	if (len > 0 && data)
		memcpy(at, data, len);
	b->len += NLMSG_ALIGN(len);
	((struct nlmsghdr *)(b->buf + b->last))->nlmsg_len = (uint32_t)(b->len - b->last);
	return at;
}

void rtnl_begin(struct rtnl_batch *b, const char *what, uint16_t type, uint16_t flags, const void *header, size_t len)
{
	struct nlmsghdr h = { .nlmsg_type = type, .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | flags };

	assert(b->n < RTNL_MESSAGES_MAX);
	h.nlmsg_seq = b->n;
	b->what[b->n++] = what;
	b->last = b->len;
	put(b, &h, sizeof(h));
	put(b, header, len);
}

void rtnl_attr(struct rtnl_batch *b, uint16_t type, const void *data, size_t len)
{
	struct rtattr a = { .rta_len = (uint16_t)RTA_LENGTH(len), .rta_type = type };

	put(b, &a, sizeof(a));
	put(b, data, len);
}

void rtnl_attr_u32(struct rtnl_batch *b, uint16_t type, uint32_t value)
{
	rtnl_attr(b, type, &value, sizeof(value));
}

void rtnl_attr_str(struct rtnl_batch *b, uint16_t type, const char *text)
{
	rtnl_attr(b, type, text, strlen(text) + 1);
}

void rtnl_attr_addr(struct rtnl_batch *b, uint16_t type, const struct ak_addr *a)
{
	rtnl_attr(b, type, a->bytes, ak_addr_bits(a) / 8);
}

size_t rtnl_nest(struct rtnl_batch *b, uint16_t type, const void *header, size_t len)
{
	size_t nest = b->len;

	rtnl_attr(b, type, header, len);
	return nest;
}

void rtnl_nest_end(struct rtnl_batch *b, size_t nest)
{
	((struct rtattr *)(b->buf + nest))->rta_len = (uint16_t)(b->len - nest);
}

/* ---- messages ---- */

void rtnl_up(struct rtnl_batch *b, const char *what, uint32_t index)
{
	struct ifinfomsg i = { .ifi_index = (int)index, .ifi_flags = IFF_UP, .ifi_change = IFF_UP };

	rtnl_begin(b, what, RTM_NEWLINK, 0, &i, sizeof(i));
}

void rtnl_address(struct rtnl_batch *b, const char *what, uint32_t index, const struct ak_addr *a, unsigned prefix_len)
{
	struct ifaddrmsg m = { .ifa_family = a->family, .ifa_index = index, .ifa_prefixlen = (uint8_t)prefix_len };

	m.ifa_flags = a->family == AF_INET6 ? IFA_F_NODAD : 0;
	/* Replace: an adopted link already has the address. */
	rtnl_begin(b, what, RTM_NEWADDR, NLM_F_CREATE | NLM_F_REPLACE, &m, sizeof(m));
	rtnl_attr_addr(b, IFA_LOCAL, a);
	rtnl_attr_addr(b, IFA_ADDRESS, a);
}

void rtnl_default_route(struct rtnl_batch *b, const char *what, uint32_t index, const struct ak_addr *via)
{
	struct rtmsg m = { .rtm_family = via->family,
		.rtm_table = RT_TABLE_MAIN,
		.rtm_protocol = RTPROT_STATIC,
		.rtm_scope = RT_SCOPE_UNIVERSE,
		.rtm_type = RTN_UNICAST };

	rtnl_begin(b, what, RTM_NEWROUTE, NLM_F_CREATE, &m, sizeof(m));
	rtnl_attr_addr(b, RTA_GATEWAY, via);
	rtnl_attr_u32(b, RTA_OIF, index);
}

void rtnl_local_default(struct rtnl_batch *b, const char *what, int family)
{
	struct rtmsg m = { .rtm_family = (uint8_t)family,
		.rtm_table = RT_TABLE_MAIN,
		.rtm_protocol = RTPROT_STATIC,
		.rtm_scope = RT_SCOPE_HOST,
		.rtm_type = RTN_LOCAL };

	rtnl_begin(b, what, RTM_NEWROUTE, NLM_F_CREATE | NLM_F_REPLACE, &m, sizeof(m));
	rtnl_attr_u32(b, RTA_OIF, RTNL_LO_INDEX);
}

/* ---- send ---- */

/* Process one datagram: remove each acknowledged message of the batch from MISSING, and keep the first failure. */
static int take_acks(const struct rtnl_batch *b, const void *data, size_t len, uint32_t *missing, int rc, struct ak_err *err)
{
	const struct nlmsghdr *nlh;
	size_t at = 0;
	int code;

	while ((nlh = ak_nlmsg_next(data, len, &at))) {
		if (!ak_nlmsg_ack(nlh, &code) || nlh->nlmsg_seq >= b->n)
			continue;
		*missing &= ~(1u << nlh->nlmsg_seq);
		if (code && rc == 0)
			rc = ak_fail_errno(err, -code, "%s", b->what[nlh->nlmsg_seq]);
	}
	return rc;
}

/* Read until every message is acknowledged; skip other messages (there should be none). */
static int read_acks(int fd, const struct rtnl_batch *b, struct ak_err *err)
{
	_Alignas(8) char buf[8192];
	uint32_t missing = (1u << b->n) - 1;
	int rc = 0;

	while (missing) {
		struct pollfd p = { .fd = fd, .events = POLLIN };
		ssize_t n = recv(fd, buf, sizeof(buf), MSG_DONTWAIT);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN) {
			if (poll(&p, 1, RTNL_ACK_TIMEOUT_MS) == 0)
				return ak_fail(err, ETIMEDOUT, "rtnetlink did not answer");
			continue;
		}
		if (n < 0)
			return ak_fail_errno(err, errno, "rtnetlink");
		rc = take_acks(b, buf, (size_t)n, &missing, rc, err);
	}
	return rc;
}

int rtnl_send(int fd, struct rtnl_batch *b, struct ak_err *err)
{
	struct sockaddr_nl kernel = { .nl_family = AF_NETLINK };

	if (sendto(fd, b->buf, b->len, 0, (struct sockaddr *)&kernel, sizeof(kernel)) < 0)
		return ak_fail_errno(err, errno, "rtnetlink");
	return read_acks(fd, b, err);
}

void rtnl_settle(int fd, const char *ifname)
{
	struct ethtool_value value = { .cmd = ETHTOOL_GLINK };
	struct ifreq ifr = { .ifr_data = (void *)&value };

	snprintf(ifr.ifr_name, sizeof(ifr.ifr_name), "%s", ifname);
	ioctl(fd, SIOCETHTOOL, &ifr);
}
