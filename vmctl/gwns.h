/*
 * The gateway's namespaces and a sandbox's link, created by short-lived children.
 *
 * There are two network namespaces, both owned by the gateway's user namespace, joined by a veth pair that starts
 * down. Every socket that the gateway will ever need is opened in the gateway's namespace. The sandbox's user
 * namespace is created later, as a descendant, so nothing in the sandbox ever has a capability over its network.
 */
#ifndef AK_GWNS_H
#define AK_GWNS_H

#include "gateway/base/addr.h"
#include "gateway/base/err.h"

#include <stdbool.h>
#include <stdint.h>

#define GWNS_ID_MAX 16383 /* link ids are 1 to this: all links lie in 100.64.0.0/16, which no policy can open */

enum gwns_fd {
	GWNS_NFNL, /* nfnetlink: rules and sets */
	GWNS_NFLOG,
	GWNS_RTNL, /* rtnetlink of the gateway namespace */
	GWNS_PEER_RTNL, /* rtnetlink of the sandbox's network namespace */
	GWNS_DNS_UDP4,
	GWNS_DNS_TCP4,
	GWNS_RELAY_TCP4,
	GWNS_RELAY_UDP4,
	GWNS_RAW4,
	GWNS_DNS_UDP6, /* the IPv6 sockets come last: absent when the kernel has no IPv6 */
	GWNS_DNS_TCP6,
	GWNS_RELAY_TCP6,
	GWNS_RELAY_UDP6,
	GWNS_RAW6,
	GWNS_FD_NUM
};

/* The addresses and names of a link; all derive from its id. */
struct gwns_link {
	uint32_t id;
	char ifname[16]; /* our end, "ak<ID>"; the sandbox's end is eth0 */
	uint8_t gw_mac[6], peer_mac[6];
	struct ak_addr gw4, addr4; /* 100.64.0.0/10, a /30 for each link */
	struct ak_addr gw6, addr6;
};
void gwns_link_plan(uint32_t id, struct gwns_link *ret);

/*
 * Open every socket except PEER_RTNL, for a process that is alone in the gateway's namespaces. Sockets are
 * non-blocking and CLOEXEC, -1 where absent.
 */
int gwns_open(int ret_fds[static GWNS_FD_NUM], struct ak_err *err);

/*
 * The sandbox's end of the link. gwns_peer_open moves the calling process into a new network namespace, the
 * sandbox's, configures it and opens the descriptors by which other processes reach it.
 */
struct gwns_peer {
	int ns, rtnl; /* owned; the namespace and its rtnetlink */
};
int gwns_peer_open(struct gwns_peer *ret, struct ak_err *err);
void gwns_peer_done(struct gwns_peer *peer);
/*
 * Create the link between the gateway's and the sandbox's namespace, down. Works from any namespace; RTNL_FD is the
 * gateway's.
 */
int gwns_connect(int rtnl_fd, const struct gwns_peer *peer, const struct gwns_link *link, struct ak_err *err);

/* The same for a virtual machine: a tap in the current network namespace, which must be the gateway's. It lives as long as *RET_TAP is open. */
int gwns_connect_tap(int rtnl_fd, const struct gwns_link *link, int *ret_tap, struct ak_err *err);
/* A tap that leads nowhere, in the current network namespace: a guest without a network has the same device as all others, or it could not be restored. */
int gwns_spare_tap(int *ret_tap, struct ak_err *err);

/* Open a rtnetlink socket in the current network namespace. */
int gwns_open_rtnl(struct ak_err *err);

/* Join a gateway's namespaces. The caller's uid must own them. */
int gwns_join(int user_ns, int net_ns, struct ak_err *err);

/* The namespaces of a gateway, kept open across restarts of its processes. */
struct gwns {
	int user_ns, net_ns; /* owned */
	int fds[GWNS_FD_NUM]; /* owned; newly opened */
};

/*
 * Create the namespaces, or join those given (which the caller's uid must own), and open new sockets in them; all in
 * a short-lived child.
 */
int gwns_spawn(int user_ns, int net_ns, struct gwns *ret, struct ak_err *err);

/*
 * gwns_msg.c: send and receive the gateway's sockets. sandbox_start's setup child sends them on its NET_SOCK. The
 * receiver owns them; -1 where absent.
 */
int gwns_sockets_send(int sock, const int fds[static GWNS_FD_NUM], struct ak_err *err);
int gwns_sockets_receive(int sock, int fds[static GWNS_FD_NUM], struct ak_err *err);

/* Send and receive the result of gwns_spawn's child: all descriptors, or the reason of the failure. */
int gwns_report_send(int sock, const struct gwns *ns);
int gwns_report_fail(int sock, int rc, const struct ak_err *err);
int gwns_report_receive(int sock, struct gwns *ret, struct ak_err *err);

/* Bring up loopback and nothing else, for a sandbox without a network. */
int gwns_loopback_only(struct ak_err *err);

/* Bring our end up, as the last step before the command may run. Returns when packets flow both ways. */
int gwns_link_up(int rtnl_fd, int peer_rtnl_fd, const struct gwns_link *link, bool ipv6, struct ak_err *err);

/* Delete the link, as the first step of tearing down. */
int gwns_link_delete(int rtnl_fd, const struct gwns_link *link, struct ak_err *err);

#endif
