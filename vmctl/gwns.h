/*
 * The gateway's namespaces and a sandbox's link, made by short-lived children.
 *
 * Two network namespaces, both owned by the gateway's user namespace, and a veth pair between them that is left down. In the gateway's one
 * every socket is opened that the gateway will ever need. The sandbox's own user namespace is made later and below,
 * so nothing in the sandbox ever has a capability over its network.
 */
#ifndef AK_GWNS_H
#define AK_GWNS_H

#include "gateway/base/addr.h"
#include "gateway/base/err.h"

#include <stdbool.h>
#include <stdint.h>

#define GWNS_ID_MAX 16383 /* link ids are 1 … this: the links lie in 100.64.0.0/16, which never opens */

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
	GWNS_DNS_UDP6, /* the IPv6 ones come last: absent when the kernel has no IPv6 */
	GWNS_DNS_TCP6,
	GWNS_RELAY_TCP6,
	GWNS_RELAY_UDP6,
	GWNS_RAW6,
	GWNS_FD_NUM
};

/* The plan of a link: all derived from its id. */
struct gwns_link {
	uint32_t id;
	char ifname[16]; /* our end, "ak<ID>"; the sandbox's end is eth0 */
	uint8_t gw_mac[6], peer_mac[6];
	struct ak_addr gw4, addr4; /* 100.64.0.0/10, four addresses a link */
	struct ak_addr gw6, addr6;
};
void gwns_link_plan(uint32_t id, struct gwns_link *ret);

/* For a process alone in the gateway's namespaces: every socket in RET (non-blocking, CLOEXEC, -1 where absent; no PEER_RTNL). */
int gwns_open(int ret_fds[static GWNS_FD_NUM], struct ak_err *err);

/*
 * A sandbox's end. First, in a new network namespace that becomes the sandbox's: its settings, and what is needed to reach it from elsewhere.
 */
struct gwns_peer {
	int ns, rtnl; /* owned; the namespace and its rtnetlink */
};
int gwns_peer_open(struct gwns_peer *ret, struct ak_err *err);
void gwns_peer_done(struct gwns_peer *peer);
/* Then, anywhere: the link, down. RTNL_FD is the gateway's. */
int gwns_connect(int rtnl_fd, const struct gwns_peer *peer, const struct gwns_link *link, struct ak_err *err);

/* A rtnetlink socket of the network namespace that the process is in. */
int gwns_open_rtnl(struct ak_err *err);

/* Join a gateway's namespaces; the caller's uid owns them. */
int gwns_join(int user_ns, int net_ns, struct ak_err *err);

/* The namespaces of a gateway that outlives its processes. */
struct gwns {
	int user_ns, net_ns; /* owned */
	int fds[GWNS_FD_NUM]; /* owned; fresh sockets */
};

/* In a short-lived child: make the namespaces, or join those given (both owned by the caller's uid), and open fresh sockets in them. */
int gwns_spawn(int user_ns, int net_ns, struct gwns *ret, struct ak_err *err);

/*
 * How the sockets travel, always the same way: gwns_msg.c. What sandbox_start's setup child sends on its NET_SOCK; received ones are owned by
 * the caller, -1 where absent.
 */
int gwns_sockets_send(int sock, const int fds[static GWNS_FD_NUM], struct ak_err *err);
int gwns_sockets_receive(int sock, int fds[static GWNS_FD_NUM], struct ak_err *err);

/* What gwns_spawn's child says: everything, or why there is nothing. */
int gwns_report_send(int sock, const struct gwns *ns);
int gwns_report_fail(int sock, int rc, const struct ak_err *err);
int gwns_report_receive(int sock, struct gwns *ret, struct ak_err *err);

/* Only loopback: for a sandbox without network. */
int gwns_loopback_only(struct ak_err *err);

/* Bring our end up, the last step before the command may run; returns when packets flow both ways. */
int gwns_link_up(int rtnl_fd, int peer_rtnl_fd, const struct gwns_link *link, bool ipv6, struct ak_err *err);

/* Take the link away: the first step of tearing down. */
int gwns_link_delete(int rtnl_fd, const struct gwns_link *link, struct ak_err *err);

#endif
