/*
 * The gateway: rules, DNS proxy, relay and audit of the sandboxes it hosts, wired together on one event loop.
 *
 * It lives in a process of its own that parses what sandboxes send and therefore holds no power: see host/confine.h. Its
 * supervisor (a `run`, or the daemon) talks to it over a SEQPACKET socket with the messages below. A `run` hands its one sandbox over
 * in the fork; the daemon adds and removes sandboxes while the others go on.
 */
#ifndef AK_GW_H
#define AK_GW_H

#include "gateway/base/err.h"
#include "gateway/base/sha256.h"
#include "gateway/log/stats.h"
#include "policies/policy.h"
#include "vmctl/gwns.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define GW_TEXT_MAX 1024
#define GW_NAME_MAX 64
#define GW_FDS_MAX 4 /* descriptors of one message */

/* Supervisor → gateway (→), and back (←). Requests about a sandbox are answered by one ← message with the same id. */
enum gw_msg_type {
	GW_MSG_READY, /* ← rules acknowledged, DNS listening, confined, link up */
	GW_MSG_FAILED, /* ← text: why it cannot enforce; it exits */
	GW_MSG_UPSTREAM, /* → text: name servers with their ports, ipv6; not answered */
	GW_MSG_STOP, /* → end everything, write what is left; answered by STATS for each sandbox, then it exits */
	GW_MSG_STATS, /* ← the last word on a sandbox */
	GW_MSG_LOG_FULL, /* ← wants LOG_FD for this sandbox */
	GW_MSG_LOG_FD, /* → log; fds: the fresh network log, its copies; not answered */
	GW_MSG_ADD, /* → name, generation, log; fds: policy, network log, the sandbox's rtnetlink, the log's copies if it has any. ← DONE once its link is up, or REFUSED */
	GW_MSG_REMOVE, /* → its processes are dead, so its link goes by itself. ← STATS: flows ended, log closed; rules go next */
	GW_MSG_POLICY, /* → generation; fd: policy. ← DONE when enforced, REFUSED (nothing changed) */
	GW_MSG_ASSIGN, /* → a warm sandbox becomes a job: name, generation, log; fds: policy, network log. ← DONE or REFUSED */
	GW_MSG_LEARNED, /* → fd: JSON array of {name, addrs[], ttl} to restore after a restart. ← DONE or REFUSED */
	GW_MSG_COUNTS, /* → ← STATS so far, for `list` */
	GW_MSG_DONE, /* ← */
	GW_MSG_REFUSED, /* ← text */
	GW_MSG_LOG_STUCK, /* ← the log cannot be written: no new flow of this sandbox is allowed for now */
	GW_MSG_ANCHOR, /* ← STATS: how far the log has come; about once a second while it grows */
	GW_MSG_NUM
};

/* Where a network log stands: a new one starts with zeroes. */
struct gw_log_at {
	uint64_t seq, size;
	char prev[SHA256_HEX];
	uint32_t keyed;
	uint64_t epoch;
	uint8_t key[SHA256_SIZE]; /* of this log alone, and of no record before: see log/audit_mac.h */
};
struct gw_log_state {
	struct gw_log_at own, kept; /* itself, and the copies of what rotation takes away */
	uint64_t gone_from, gone_to; /* what it has taken */
};

struct gw_msg {
	uint32_t type; /* enum gw_msg_type */
	uint32_t id; /* sandbox; 0 where it does not matter */
	uint32_t ipv6; /* UPSTREAM */
	uint64_t generation;
	char name[GW_NAME_MAX];
	union {
		char text[GW_TEXT_MAX];
		struct gw_stats stats;
		struct gw_log_state log;
	};
};

/*
 * Take one message from the other side: 1; 0 when that has ended; -EAGAIN; -EPROTO (or another error) for what no one in his right mind sends, after
 * which there is no use in going on. FDS are owned by the caller, -1 where absent.
 */
int gw_request_recv(int sock, struct gw_msg *ret, int fds[static GW_FDS_MAX]);
int gw_reply_recv(int sock, struct gw_msg *ret);

/* The sandbox that a `run` starts with. */
struct gw_first {
	const char *name;
	struct gwns_link link;
	struct policy *policy; /* borrowed: the process ends first */
	int net_sock; /* the setup child's sockets come from here */
	int log_fd; /* the network log, open for append, empty */
	struct gw_log_state log;
};

struct gw_conf {
	const char *servers; /* as in GW_MSG_UPSTREAM */
	bool ipv6; /* the host reaches IPv6 */
	int control; /* to the supervisor */
	const struct gw_first *first; /* a run's, or NULL */
	const int *fds; /* without FIRST: the sockets, GWNS_FD_NUM of them */
};

/* Fork the gateway process. It closes every descriptor that is not in CONF but 0–2, which it points at /dev/null. */
int gw_spawn(const struct gw_conf *conf, pid_t *ret, struct ak_err *err);

#endif
