/*
 * The gateway: runs the rules, DNS proxy, relay and audit log of its sandboxes on one event loop.
 *
 * It is a separate process that parses sandbox traffic and therefore has no privileges: see host/confine.h. Its supervisor (a
 * `run`, or the daemon) talks to it over a SEQPACKET socket with the messages below. A `run` passes its one sandbox at the
 * fork; the daemon adds and removes sandboxes while the others keep running.
 */
#ifndef AK_GW_H
#define AK_GW_H

#include "gateway/base/err.h"
#include "gateway/base/publish.h"
#include "gateway/base/sha256.h"
#include "gateway/log/stats.h"
#include "policies/policy.h"
#include "vmctl/gwns.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define GW_TEXT_MAX 1024
#define GW_NAME_MAX 64
#define GW_FDS_MAX 4 /* descriptors per message */

/* → is supervisor to gateway, ← is gateway to supervisor. A request about a sandbox gets one ← reply with the same id. */
enum gw_msg_type {
	GW_MSG_READY, /* ← rules acknowledged, DNS listening, confined, link up */
	GW_MSG_FAILED, /* ← text: why it cannot enforce the policy; the gateway exits */
	GW_MSG_UPSTREAM, /* → text: name servers with ports, ipv6; no reply */
	GW_MSG_STOP, /* → end everything and write pending records; the gateway replies STATS for each sandbox and exits */
	GW_MSG_STATS, /* ← final statistics of a sandbox */
	GW_MSG_LOG_FULL, /* ← requests LOG_FD for this sandbox */
	GW_MSG_LOG_FD, /* → log; fds: the new network log, its copies; no reply */
	/*
	 * → name, generation, log; fds: policy, network log, the sandbox's rtnetlink, the log's copies if any. ← DONE once its link is
	 * up, or REFUSED
	 */
	GW_MSG_ADD,
	/* → its processes are dead, and its link disappears with them. ← STATS: flows ended, log closed; the rules are removed next */
	GW_MSG_REMOVE,
	GW_MSG_POLICY, /* → generation; fd: policy. ← DONE when enforced, or REFUSED (nothing changed) */
	GW_MSG_ASSIGN, /* → assign a job to a warm sandbox: name, generation, log; fds: policy, network log. ← DONE or REFUSED */
	GW_MSG_LEARNED, /* → fd: JSON array of {name, addrs[], ttl} to restore after a restart. ← DONE or REFUSED */
	GW_MSG_COUNTS, /* → ← current STATS, for `list` */
	GW_MSG_DONE, /* ← */
	GW_MSG_REFUSED, /* ← text */
	GW_MSG_LOG_STUCK, /* ← the log cannot be written: no new flows of this sandbox are allowed for now */
	GW_MSG_PUBLISH, /* → publish; fds: the host's listening socket, a channel to the sandbox's init. ← DONE or REFUSED */
	GW_MSG_UNPUBLISH, /* → publish: its address and port of the host. ← DONE, also if it was not published */
	GW_MSG_ANCHOR, /* ← STATS: the current end of the log; about once a second while it grows */
	GW_MSG_NUM
};

/* The end of a network log; all zero for a new one. */
struct gw_log_at {
	uint64_t seq, size;
	char prev[SHA256_HEX];
	uint32_t keyed;
	uint64_t epoch;
	uint8_t key[SHA256_SIZE]; /* of this log only, not usable for earlier records: see log/audit_mac.h */
};
struct gw_log_state {
	struct gw_log_at own, kept; /* the log itself, and the copies of records that rotation removes */
	uint64_t gone_from, gone_to; /* range of records removed by rotation */
};

struct gw_msg {
	uint32_t type; /* enum gw_msg_type */
	uint32_t id; /* of the sandbox; 0 if not needed */
	uint32_t ipv6; /* UPSTREAM */
	uint64_t generation;
	char name[GW_NAME_MAX];
	union {
		char text[GW_TEXT_MAX];
		struct gw_stats stats;
		struct gw_log_state log;
		struct ak_publish publish;
	};
};

/*
 * Receive one message: 1; 0 if the peer closed the socket; -EAGAIN; -EPROTO (or another error) for a malformed message, after
 * which the caller must close the socket. The caller owns FDS; unused ones are -1.
 */
int gw_request_recv(int sock, struct gw_msg *ret, int fds[static GW_FDS_MAX]);
int gw_reply_recv(int sock, struct gw_msg *ret);

/* The sandbox that a `run` starts with. */
struct gw_first {
	const char *name;
	struct gwns_link link;
	struct policy *policy; /* borrowed: the process ends first */
	int net_sock; /* the setup child sends the sockets here */
	int log_fd; /* the network log, open for append, empty */
	struct gw_log_state log;
};

struct gw_conf {
	const char *servers; /* as in GW_MSG_UPSTREAM */
	bool ipv6; /* the host has IPv6 */
	int control; /* socket to the supervisor */
	const struct gw_first *first; /* of a `run`, or NULL */
	const int *fds; /* without FIRST: the GWNS_FD_NUM sockets */
};

/* Fork the gateway process. It closes every descriptor that is not in CONF and redirects 0 to 2 to /dev/null. */
int gw_spawn(const struct gw_conf *conf, pid_t *ret, struct ak_err *err);

#endif
