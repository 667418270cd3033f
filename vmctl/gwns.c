/*
 * The gateway's namespaces and a sandbox's link: see gwns.h.
 *
 * Both ends have permanent neighbour entries for each other, so ARP and neighbour discovery are never needed and the ruleset
 * can drop them. In the gateway namespace every destination is local ("local default dev lo"), so packets that the rules admit
 * are delivered to our sockets and none can be forwarded.
 */
#include "vmctl/gwns.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "vmctl/rtnl.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/if_link.h>
#include <linux/if_tun.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/veth.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define PEER_INDEX 2
#define LINK_INDEX_BASE 100 /* differs from PEER_INDEX: with equal indices the kernel delays link events */
#define LINK_HOST_BITS 2 /* each link has four addresses of each family */
#define LINK_TRIES 100
#define LINK_WAIT_MS 5
#define DNS_PORT 53
#define RELAY_TCP_PORT 15001
#define RELAY_UDP_PORT 15002

static uint32_t link_index(const struct gwns_link *link)
{
	return LINK_INDEX_BASE + link->id;
}

void gwns_link_plan(uint32_t id, struct gwns_link *ret)
{
	uint32_t base4 = 0x64400000u + 4 * id; /* 100.64.0.0/10, a /30 for each link */
	struct ak_addr base6 = { .family = AF_INET6, .bytes = { 0xfd, 0x61, 0x6b, 0x67 } };
	struct gwns_link l = { .id = id };

	snprintf(l.ifname, sizeof(l.ifname), "ak%u", id);
	l.gw4 = ak_addr_v4(base4 + 1);
	l.addr4 = ak_addr_v4(base4 + 2);
	for (int i = 0; i < 4; i++)
		base6.bytes[12 + i] = (uint8_t)((4 * id) >> (24 - 8 * i));
	l.gw6 = l.addr6 = base6;
	l.gw6.bytes[15] |= 1;
	l.addr6.bytes[15] |= 2;
	/* Locally administered; the id in the last three octets. */
	memcpy(l.gw_mac, (uint8_t[]){ 0x02, 0x61, 0x6b, (uint8_t)(id >> 16), (uint8_t)(id >> 8), (uint8_t)id }, 6);
	memcpy(l.peer_mac, (uint8_t[]){ 0x06, 0x61, 0x6b, (uint8_t)(id >> 16), (uint8_t)(id >> 8), (uint8_t)id }, 6);
	*ret = l;
}

/* ---- sockets ---- */

static int open_netlink(int protocol, const char *what, struct ak_err *err)
{
	struct sockaddr_nl self = { .nl_family = AF_NETLINK };
	_cleanup_close_ int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, protocol);

	if (fd < 0 || bind(fd, (struct sockaddr *)&self, sizeof(self)) < 0)
		return ak_fail_errno(err, errno, "%s socket", what);
	return TAKE_FD(fd);
}

static int set_flag(int fd, int level, int option)
{
	int on = 1;

	return setsockopt(fd, level, option, &on, sizeof(on)) < 0 ? -errno : 0;
}

static int set_transparent(int fd, int family)
{
	int rc;

	if (family == AF_INET)
		return set_flag(fd, SOL_IP, IP_TRANSPARENT);
	rc = set_flag(fd, SOL_IPV6, IPV6_V6ONLY);
	return rc < 0 ? rc : set_flag(fd, SOL_IPV6, IPV6_TRANSPARENT);
}

/* The receiver of a datagram must know its original destination and the link it came from. */
static int set_packet_info(int fd, int family)
{
	int rc;

	if (family == AF_INET) {
		rc = set_flag(fd, SOL_IP, IP_PKTINFO);
		return rc < 0 ? rc : set_flag(fd, SOL_IP, IP_RECVORIGDSTADDR);
	}
	rc = set_flag(fd, SOL_IPV6, IPV6_RECVPKTINFO);
	return rc < 0 ? rc : set_flag(fd, SOL_IPV6, IPV6_RECVORIGDSTADDR);
}

/* Open a transparent socket that listens on all addresses of FAMILY. */
static int open_transparent(int family, int type, uint16_t port, const char *what, struct ak_err *err)
{
	struct ak_addr any = { .family = (uint8_t)family };
	struct sockaddr_storage ss;
	socklen_t len = ak_addr_to_sockaddr(&any, port, &ss);
	_cleanup_close_ int fd = socket(family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int rc;

	if (fd < 0)
		return ak_fail_errno(err, errno, "%s socket", what);
	rc = set_transparent(fd, family);
	if (rc < 0)
		return ak_fail_errno(err, -rc, "%s: transparent socket", what);
	if (type == SOCK_DGRAM) {
		rc = set_packet_info(fd, family);
		if (rc < 0)
			return ak_fail_errno(err, -rc, "%s: packet information", what);
	}
	set_flag(fd, SOL_SOCKET, SO_REUSEADDR);
	if (bind(fd, (struct sockaddr *)&ss, len) < 0)
		return ak_fail_errno(err, errno, "%s: bind to port %u", what, port);
	if (type == SOCK_STREAM && listen(fd, 4096) < 0)
		return ak_fail_errno(err, errno, "%s: listen", what);
	return TAKE_FD(fd);
}

static int open_raw(int family, struct ak_err *err)
{
	int fd = socket(family, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_RAW);

	return fd < 0 ? ak_fail_errno(err, errno, "raw socket") : fd;
}

static const struct {
	enum gwns_fd slot;
	int family, type;
	uint16_t port;
	const char *what;
} transparent_sockets[] = {
	{ GWNS_DNS_UDP4, AF_INET, SOCK_DGRAM, DNS_PORT, "DNS over UDP" },
	{ GWNS_DNS_TCP4, AF_INET, SOCK_STREAM, DNS_PORT, "DNS over TCP" },
	{ GWNS_RELAY_TCP4, AF_INET, SOCK_STREAM, RELAY_TCP_PORT, "TCP relay" },
	{ GWNS_RELAY_UDP4, AF_INET, SOCK_DGRAM, RELAY_UDP_PORT, "UDP relay" },
	{ GWNS_DNS_UDP6, AF_INET6, SOCK_DGRAM, DNS_PORT, "DNS over UDP (IPv6)" },
	{ GWNS_DNS_TCP6, AF_INET6, SOCK_STREAM, DNS_PORT, "DNS over TCP (IPv6)" },
	{ GWNS_RELAY_TCP6, AF_INET6, SOCK_STREAM, RELAY_TCP_PORT, "TCP relay (IPv6)" },
	{ GWNS_RELAY_UDP6, AF_INET6, SOCK_DGRAM, RELAY_UDP_PORT, "UDP relay (IPv6)" },
};

static bool have_ipv6(void)
{
	_cleanup_close_ int fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	return fd >= 0;
}

static int open_sockets(bool ipv6, int fds[static GWNS_FD_NUM], struct ak_err *err)
{
	int rc;

	if ((rc = fds[GWNS_NFNL] = open_netlink(NETLINK_NETFILTER, "nfnetlink", err)) < 0)
		return rc;
	if ((rc = fds[GWNS_NFLOG] = open_netlink(NETLINK_NETFILTER, "nflog", err)) < 0)
		return rc;
	if ((rc = fds[GWNS_RTNL] = open_netlink(NETLINK_ROUTE, "rtnetlink", err)) < 0)
		return rc;
	for (size_t i = 0; i < ARRAY_SIZE(transparent_sockets); i++) {
		__typeof__(&transparent_sockets[0]) t = &transparent_sockets[i];

		if (t->family == AF_INET6 && !ipv6)
			continue;
		rc = fds[t->slot] = open_transparent(t->family, t->type, t->port, t->what, err);
		if (rc < 0)
			return rc;
	}
	if ((rc = fds[GWNS_RAW4] = open_raw(AF_INET, err)) < 0)
		return rc;
	if (ipv6 && (rc = fds[GWNS_RAW6] = open_raw(AF_INET6, err)) < 0)
		return rc;
	return 0;
}

/* ---- settings of a namespace ---- */

struct setting {
	const char *path, *value;
	bool must; /* enforcement depends on it */
};

/*
 * Write only if the value differs: some writes take the kernel's global lock of network settings, and while it is held by
 * others the call spins instead of sleeping.
 */
static int apply(const char *path, const char *value)
{
	_cleanup_close_ int fd = open(path, O_RDWR | O_CLOEXEC);
	size_t len = strlen(value);
	char now[16];
	ssize_t n;

	if (fd < 0)
		return -errno;
	n = pread(fd, now, sizeof(now), 0);
	if (n == (ssize_t)len + 1 && !memcmp(now, value, len) && now[len] == '\n')
		return 0;
	return pwrite(fd, value, len, 0) == (ssize_t)len ? 0 : -errno;
}

static int apply_settings(const struct setting *s, size_t n, struct ak_err *err)
{
	for (size_t i = 0; i < n; i++) {
		int rc = apply(s[i].path, s[i].value);

		if (rc < 0 && s[i].must)
			return ak_fail_errno(err, -rc, "setting %s to %s", s[i].path, s[i].value);
	}
	return 0;
}

/* The host may have disabled IPv6, also for new namespaces. Enable it here: sockets and addresses must agree. */
static void switch_ipv6_on(void)
{
	char now[4] = "";
	_cleanup_close_ int fd = open("/proc/sys/net/ipv6/conf/default/disable_ipv6", O_RDONLY | O_CLOEXEC);

	/* The default for new links; a change of "all" sets this one too. */
	if (fd >= 0 && read(fd, now, sizeof(now)) == 2 && now[0] == '0')
		return;
	(void)ak_write_file("/proc/sys/net/ipv6/conf/all/disable_ipv6", "0");
}

static int gateway_settings(bool ipv6, struct ak_err *err)
{
	static const struct setting v4[] = {
		/* A new namespace inherits the host's forwarding setting, which Docker turns on. */
		{ "/proc/sys/net/ipv4/ip_forward", "0", true },
		/*
		 * Answer every refused packet, not six and then one a second. Set by type, because the limit on all of them
		 * ignores the rate.
		 */
		{ "/proc/sys/net/ipv4/icmp_ratemask", "0", false },
		/* With a SYN cookie there is no socket yet when the handshake ends, and the rules look for one. */
		{ "/proc/sys/net/ipv4/tcp_syncookies", "0", false },
	};
	static const struct setting v6[] = {
		{ "/proc/sys/net/ipv6/conf/all/forwarding", "0", true },
		{ "/proc/sys/net/ipv6/icmp/ratemask", "\n", false },
		{ "/proc/sys/net/ipv6/conf/default/accept_ra", "0", false },
	};
	int rc = apply_settings(v4, ARRAY_SIZE(v4), err);

	if (rc < 0 || !ipv6)
		return rc;
	switch_ipv6_on();
	return apply_settings(v6, ARRAY_SIZE(v6), err);
}

/* Keep these few: a lookup below /proc/sys passes the entries of that name of all namespaces. */
static void sandbox_settings(bool ipv6)
{
	/* Nothing inside has a capability here, and a server on port 80 is harmless. */
	(void)ak_write_file("/proc/sys/net/ipv4/ip_unprivileged_port_start", "0");
	if (ipv6)
		switch_ipv6_on();
}

/* ---- links, addresses, routes, neighbours ---- */

/* No addresses except ours: without a link-local address the kernel does not solicit routers either. */
static void add_no_own_address(struct rtnl_batch *b, const char *what, uint32_t index)
{
	struct ifinfomsg i = { .ifi_index = (int)index };
	const uint8_t mode = IN6_ADDR_GEN_MODE_NONE;
	size_t spec, family;

	rtnl_begin(b, what, RTM_NEWLINK, 0, &i, sizeof(i));
	spec = rtnl_nest(b, IFLA_AF_SPEC, NULL, 0);
	family = rtnl_nest(b, AF_INET6, NULL, 0);
	rtnl_attr(b, IFLA_INET6_ADDR_GEN_MODE, &mode, sizeof(mode));
	rtnl_nest_end(b, family);
	rtnl_nest_end(b, spec);
}

static void add_neighbour(struct rtnl_batch *b, const char *what, uint32_t index, const struct ak_addr *a, const uint8_t mac[6])
{
	struct ndmsg m = { .ndm_family = a->family, .ndm_ifindex = (int)index, .ndm_state = NUD_PERMANENT };

	rtnl_begin(b, what, RTM_NEWNEIGH, NLM_F_CREATE | NLM_F_REPLACE, &m, sizeof(m));
	rtnl_attr_addr(b, NDA_DST, a);
	rtnl_attr(b, NDA_LLADDR, mac, 6);
}

/*
 * ip -6 route add local ADDRESS dev …: the kernel adds this route itself, but from a worker, some time after it acknowledged the
 * address. Until then it drops every reply to a first packet, and a client waits a second before it tries again.
 */
static void add_local_route(struct rtnl_batch *b, const char *what, uint32_t index, const struct ak_addr *own)
{
	struct rtmsg m = { .rtm_family = own->family,
		.rtm_dst_len = (uint8_t)ak_addr_bits(own),
		.rtm_table = RT_TABLE_LOCAL,
		.rtm_protocol = RTPROT_STATIC,
		.rtm_scope = RT_SCOPE_HOST,
		.rtm_type = RTN_LOCAL };

	rtnl_begin(b, what, RTM_NEWROUTE, NLM_F_CREATE | NLM_F_REPLACE, &m, sizeof(m));
	rtnl_attr_addr(b, RTA_DST, own);
	rtnl_attr_u32(b, RTA_OIF, index);
}

/* ip link add ak<ID> address … type veth peer name eth0 address … netns <the sandbox's> */
static void add_veth(struct rtnl_batch *b, const struct gwns_link *link, int peer_ns)
{
	/* No multicast on our end: groups and their routes would cost memory for each link, and all multicast is dropped. */
	struct ifinfomsg ours = { .ifi_index = (int)link_index(link), .ifi_change = IFF_MULTICAST };
	struct ifinfomsg theirs = { .ifi_index = PEER_INDEX };
	size_t info, data, peer;

	rtnl_begin(b, "veth pair", RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, &ours, sizeof(ours));
	rtnl_attr_str(b, IFLA_IFNAME, link->ifname);
	rtnl_attr(b, IFLA_ADDRESS, link->gw_mac, 6);
	/* Create one queue: reducing many to one waits for an RCU grace period. */
	rtnl_attr_u32(b, IFLA_NUM_TX_QUEUES, 1);
	rtnl_attr_u32(b, IFLA_NUM_RX_QUEUES, 1);
	info = rtnl_nest(b, IFLA_LINKINFO, NULL, 0);
	rtnl_attr_str(b, IFLA_INFO_KIND, "veth");
	data = rtnl_nest(b, IFLA_INFO_DATA, NULL, 0);
	peer = rtnl_nest(b, VETH_INFO_PEER, &theirs, sizeof(theirs));
	rtnl_attr_str(b, IFLA_IFNAME, "eth0");
	rtnl_attr(b, IFLA_ADDRESS, link->peer_mac, 6);
	rtnl_attr_u32(b, IFLA_NUM_TX_QUEUES, 1);
	rtnl_attr_u32(b, IFLA_NUM_RX_QUEUES, 1);
	rtnl_attr_u32(b, IFLA_NET_NS_FD, (uint32_t)peer_ns);
	rtnl_nest_end(b, peer);
	rtnl_nest_end(b, data);
	rtnl_nest_end(b, info);
}

static int build_gateway_side(int rtnl, bool ipv6, struct ak_err *err)
{
	struct rtnl_batch b = { .len = 0 };

	rtnl_up(&b, "loopback up", RTNL_LO_INDEX);
	rtnl_local_default(&b, "local route", AF_INET);
	if (ipv6)
		rtnl_local_default(&b, "local route (IPv6)", AF_INET6);
	return rtnl_send(rtnl, &b, err);
}

/*
 * An existing link with this id belongs to a sandbox that has just ended. The kernel removes it with the dead namespace, but
 * that can take seconds when many end at once. So delete it here.
 */
static int build_pair(int rtnl, const struct gwns_link *link, int peer_ns, struct ak_err *err)
{
	struct ak_err ignored;
	int rc;

	for (int tries = 0;; tries++) {
		struct rtnl_batch b = { .len = 0 };

		add_veth(&b, link, peer_ns);
		rc = rtnl_send(rtnl, &b, err);
		if ((rc != -EEXIST && rc != -EBUSY) || tries == LINK_TRIES)
			return rc;
		if (gwns_link_delete(rtnl, link, &ignored) < 0)
			poll(NULL, 0, LINK_WAIT_MS);
	}
}

static void add_sandbox_end(struct rtnl_batch *b, const struct ak_addr *own, const struct ak_addr *gw, const uint8_t gw_mac[6])
{
	const bool v4 = own->family == AF_INET;

	rtnl_address(b, v4 ? "address of eth0" : "IPv6 address of eth0", PEER_INDEX, own, ak_addr_bits(own) - LINK_HOST_BITS);
	if (!v4)
		add_local_route(b, "IPv6 local route", PEER_INDEX, own);
	add_neighbour(b, v4 ? "neighbour of eth0" : "IPv6 neighbour of eth0", PEER_INDEX, gw, gw_mac);
	rtnl_default_route(b, v4 ? "default route" : "IPv6 default route", PEER_INDEX, gw);
}

static int build_sandbox_side(int rtnl, const struct gwns_link *link, bool ipv6, struct ak_err *err)
{
	struct rtnl_batch b = { .len = 0 };

	if (ipv6)
		add_no_own_address(&b, "addresses of eth0", PEER_INDEX);
	rtnl_up(&b, "sandbox loopback up", RTNL_LO_INDEX);
	rtnl_up(&b, "eth0 up", PEER_INDEX);
	add_sandbox_end(&b, &link->addr4, &link->gw4, link->gw_mac);
	if (ipv6)
		add_sandbox_end(&b, &link->addr6, &link->gw6, link->gw_mac);
	return rtnl_send(rtnl, &b, err);
}

static void close_all(int fds[static GWNS_FD_NUM])
{
	for (int i = 0; i < GWNS_FD_NUM; i++)
		fds[i] = ak_close(fds[i]);
}

int gwns_open(int ret_fds[static GWNS_FD_NUM], struct ak_err *err)
{
	bool ipv6 = have_ipv6();
	int rc;

	for (int i = 0; i < GWNS_FD_NUM; i++)
		ret_fds[i] = -1;
	rc = open_sockets(ipv6, ret_fds, err);
	if (rc == 0)
		rc = gateway_settings(ipv6, err);
	if (rc == 0)
		rc = build_gateway_side(ret_fds[GWNS_RTNL], ipv6, err);
	if (rc < 0) {
		close_all(ret_fds);
		return ak_err_prefix(err, rc, "gateway namespace");
	}
	return 0;
}

int gwns_open_rtnl(struct ak_err *err)
{
	return open_netlink(NETLINK_ROUTE, "rtnetlink", err);
}

void gwns_peer_done(struct gwns_peer *peer)
{
	peer->ns = ak_close(peer->ns);
	peer->rtnl = ak_close(peer->rtnl);
}

int gwns_peer_open(struct gwns_peer *ret, struct ak_err *err)
{
	_cleanup_(gwns_peer_done) struct gwns_peer p = { -1, -1 };

	sandbox_settings(have_ipv6());
	p.ns = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	if (p.ns < 0)
		return ak_fail_errno(err, errno, "/proc/self/ns/net");
	p.rtnl = gwns_open_rtnl(err);
	if (p.rtnl < 0)
		return p.rtnl;
	*ret = (struct gwns_peer){ TAKE_FD(p.ns), TAKE_FD(p.rtnl) };
	return 0;
}

int gwns_connect(int rtnl_fd, const struct gwns_peer *peer, const struct gwns_link *link, struct ak_err *err)
{
	int rc = build_pair(rtnl_fd, link, peer->ns, err);

	if (rc == 0)
		rc = build_sandbox_side(peer->rtnl, link, have_ipv6(), err);
	return rc < 0 ? ak_err_prefix(err, rc, "link %s", link->ifname) : 0;
}

int gwns_connect_tap(int rtnl_fd, const struct gwns_link *link, int *ret_tap, struct ak_err *err)
{
	_cleanup_close_ int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
	struct ifreq r = { .ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR };
	struct ifinfomsg ours = { .ifi_index = (int)link_index(link), .ifi_change = IFF_MULTICAST };
	struct rtnl_batch b = { .len = 0 };
	unsigned index = link_index(link);
	struct ak_err ignored;
	int rc;

	if (fd < 0)
		return ak_fail_errno(err, errno, "/dev/net/tun (load the kernel module tun)");
	snprintf(r.ifr_name, sizeof(r.ifr_name), "%s", link->ifname);
	for (int tries = 0; ioctl(fd, TUNSETIFINDEX, &index) < 0 || ioctl(fd, TUNSETIFF, &r) < 0; tries++) {
		/* A link of a sandbox that has just ended: see build_pair. */
		if ((errno != EEXIST && errno != EBUSY) || tries == LINK_TRIES)
			return ak_fail_errno(err, errno, "tap %s", link->ifname);
		if (gwns_link_delete(rtnl_fd, link, &ignored) < 0)
			poll(NULL, 0, LINK_WAIT_MS);
	}
	rtnl_begin(&b, "tap", RTM_NEWLINK, 0, &ours, sizeof(ours));
	rtnl_attr(&b, IFLA_ADDRESS, link->gw_mac, 6);
	rc = rtnl_send(rtnl_fd, &b, err);
	if (rc < 0)
		return ak_err_prefix(err, rc, "link %s", link->ifname);
	*ret_tap = TAKE_FD(fd);
	return 0;
}

int gwns_spare_tap(int *ret_tap, struct ak_err *err)
{
	_cleanup_close_ int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
	struct ifreq r = { .ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR };

	if (fd < 0 || ioctl(fd, TUNSETIFF, &r) < 0)
		return ak_fail_errno(err, errno, "/dev/net/tun (load the kernel module tun)");
	*ret_tap = TAKE_FD(fd);
	return 0;
}

int gwns_loopback_only(struct ak_err *err)
{
	struct rtnl_batch b = { .len = 0 };
	_cleanup_close_ int fd = open_netlink(NETLINK_ROUTE, "rtnetlink", err);

	if (fd < 0)
		return fd;
	sandbox_settings(false);
	rtnl_up(&b, "loopback up", RTNL_LO_INDEX);
	return rtnl_send(fd, &b, err);
}

int gwns_link_up(int rtnl_fd, int peer_rtnl_fd, const struct gwns_link *link, bool ipv6, struct ak_err *err)
{
	struct rtnl_batch b = { .len = 0 };
	uint32_t index = link_index(link);
	int rc;

	if (ipv6)
		add_no_own_address(&b, "addresses of the link", index);
	rtnl_address(&b, "gateway address", index, &link->gw4, ak_addr_bits(&link->gw4) - LINK_HOST_BITS);
	if (ipv6)
		rtnl_address(&b, "gateway IPv6 address", index, &link->gw6, ak_addr_bits(&link->gw6) - LINK_HOST_BITS);
	rtnl_up(&b, "link up", index);
	add_neighbour(&b, "sandbox neighbour", index, &link->addr4, link->peer_mac);
	if (ipv6)
		add_neighbour(&b, "sandbox IPv6 neighbour", index, &link->addr6, link->peer_mac);
	rc = rtnl_send(rtnl_fd, &b, err);
	if (rc < 0)
		return ak_err_prefix(err, rc, "link %s", link->ifname);
	rtnl_settle(peer_rtnl_fd, "eth0");
	rtnl_settle(rtnl_fd, link->ifname);
	return 0;
}

int gwns_link_delete(int rtnl_fd, const struct gwns_link *link, struct ak_err *err)
{
	struct rtnl_batch b = { .len = 0 };
	struct ifinfomsg i = { .ifi_index = (int)link_index(link) };

	rtnl_begin(&b, "link delete", RTM_DELLINK, 0, &i, sizeof(i));
	return rtnl_send(rtnl_fd, &b, err);
}
