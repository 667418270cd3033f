/*
 * The gateway: rules, DNS proxy, relay and audit of the sandboxes it hosts, wired together on one event loop.
 *
 * It lives in a process of its own (gw_process) that parses what sandboxes send and therefore holds no power: see
 * confine.h. Its supervisor talks to it over a SEQPACKET socket with the messages below.
 */
#ifndef AK_GW_H
#define AK_GW_H

#include "dnsproxy/dnsproxy.h"
#include "gateway/base/err.h"
#include "gateway/base/sha256.h"
#include "policies/policy.h"
#include "vmctl/gwns.h"

#include <stdint.h>
#include <sys/types.h>

#define GW_TEXT_MAX 1024

/* Supervisor → gateway, and back. */
enum gw_msg_type {
	GW_MSG_UPSTREAM, /* → text: name servers as c-ares takes them */
	GW_MSG_LOG_FD, /* → with a descriptor: the fresh network log */
	GW_MSG_STOP, /* → end all flows, write what is left, answer GW_MSG_STATS and exit */
	GW_MSG_READY, /* ← rules acknowledged, DNS listening, confined, link up */
	GW_MSG_FAILED, /* ← text: why it cannot enforce; it exits */
	GW_MSG_LOG_FULL, /* ← wants GW_MSG_LOG_FD */
	GW_MSG_STATS, /* ← the last word */
	GW_MSG_NUM
};

struct gw_stats {
	uint64_t allowed, denied;
	uint64_t records, lost;
	char hash[SHA256_HEX]; /* of the last record */
};

struct gw_msg {
	uint32_t type; /* enum gw_msg_type */
	uint32_t ipv6; /* UPSTREAM */
	union {
		char text[GW_TEXT_MAX];
		struct gw_stats stats;
	};
};

struct gw_conf {
	const char *sandbox; /* its name in records */
	struct gwns_link link;
	struct policy *policy; /* borrowed: the process ends first */
	const char *servers; /* as in GW_MSG_UPSTREAM */
	bool ipv6; /* the host reaches IPv6 */
	int net_sock; /* the setup child's sockets come from here */
	int control; /* to the supervisor */
	int log_fd; /* the network log, open for append */
};

/* Fork the gateway process. It closes every descriptor that is not in CONF but 0–2, which it points at /dev/null. */
int gw_spawn(const struct gw_conf *conf, pid_t *ret, struct ak_err *err);

#endif
