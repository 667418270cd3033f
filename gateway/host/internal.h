/* Private to the gateway: the state of the event loop and of one hosted sandbox. */
#ifndef AK_GW_INTERNAL_H
#define AK_GW_INTERNAL_H

#include "dnsproxy/dnsproxy.h"
#include "gateway/host/gw.h"
#include "gateway/host/sums.h"
#include "gateway/log/audit.h"
#include "gateway/relay/relay.h"
#include "nft/fw.h"

struct event;
struct event_base;

/*
 * Cached DNS answers are logged as sums: the answer itself was recorded when it was learned, and a program that queries the same
 * name a thousand times a second must not fill the log.
 */
struct gw_repeat {
	char name[POLICY_NAME_MAX];
	uint16_t qtype;
	uint64_t count; /* 0: free slot */
	struct policy_decision decision; /* flushed before its policy is freed */
};
#define GW_REPEATS 32

/* How often a denied name was asked for, by type; see host/events.c. */
#define GW_LOOKUP_TYPES 3
#define GW_LOOKUPS 64
struct gw_lookup {
	uint64_t hash; /* of the name; 0: free */
	uint64_t asked[GW_LOOKUP_TYPES];
};

struct gw_sandbox {
	struct gw *gw; /* borrowed: outlives us */
	char name[GW_NAME_MAX];
	struct gwns_link link;
	struct policy *policy; /* owned reference */
	uint64_t generation;
	struct relay_sandbox relay;
	struct learned *learned; /* owned */
	struct dns_client *dns; /* owned by the proxy; freed by us */
	struct audit_writer log;
	struct audit_writer kept; /* copies of first denials; no descriptor until the log was rotated */
	struct audit_kinds kinds; /* kinds of denials seen so far */
	struct gw_sums *sums; /* owned; NULL until needed */
	uint64_t anchored; /* the last record that was reported to the supervisor */
	bool log_wanted; /* a new log descriptor was requested */
	uint64_t stuck_told_ms; /* when the supervisor was told that the log cannot be written; 0: never */
	uint64_t kept_ms; /* until when the kernel may hold elements for live flows that the table no longer has */
	bool noisy; /* there were denials since the kernel's counters were last read */
	uint64_t allowed, denied;
	struct net_counts counts;
	uint64_t evicted; /* learned addresses evicted early; not recorded yet */
	struct gw_repeat *repeats; /* owned; GW_REPEATS entries, allocated on first use */
	struct gw_lookup *lookups; /* owned; GW_LOOKUPS entries, allocated on first use */
	uint64_t seen[FW_REASON_NUM]; /* denials received by NFLOG or recorded as suppressed */
	uint64_t seen_link; /* the same for frames dropped at the link */
};

struct gw {
	struct event_base *base; /* owned */
	struct fw *fw; /* owned */
	struct fw_log *fw_log; /* owned */
	struct dns_proxy *dns; /* owned */
	struct relay *relay; /* owned */
	struct event *on_control, *on_log, *on_tick; /* owned */
	int rtnl; /* owned */
	int control; /* owned */
	bool ipv6_link;
	struct gw_sandbox **by_id; /* owned; [0, n_ids), mostly NULL if few are hosted */
	size_t n_ids;
	struct {
		struct policy *policy; /* owned reference; NULL: none yet */
		char *text; /* owned; what it was read from */
		size_t len;
	} last; /* the newest policy: sandboxes of one mode share it */
};

/* host/sandbox.c: the hosted sandboxes */
struct gw_sandbox *gw_sandbox_find(const struct gw *gw, uint32_t id);
struct gw_sandbox *gw_sandbox_by_addr(const struct gw *gw, const struct ak_addr *src);

/* Create the object and enter it into the table; takes ownership of LOG_FD. Adds no rules, client or link yet. */
int gw_sandbox_new(struct gw *gw, const char *name, const struct gwns_link *link, struct policy *p, uint64_t generation,
	int log_fd, const struct gw_log_state *log, struct gw_sandbox **ret, struct ak_err *err);

/* Switch to another log; takes ownership of FD. */
void gw_sandbox_set_log(struct gw_sandbox *sb, int fd, const struct gw_log_state *log);

/*
 * Rotation has started a new file, or was killed before its first record. KEPT_FD receives the copies (takes ownership; -1: none);
 * LOG says which records were removed.
 */
void gw_sandbox_rotated(struct gw_sandbox *sb, int kept_fd, const struct gw_log_state *log);

/* Start its DNS client and relay. Its rules are in the kernel already; its link is still down. */
int gw_sandbox_serve(struct gw_sandbox *sb, struct ak_err *err);

/* Install the rules, start serving, then set the link up (invariant 1). On failure everything is undone. */
int gw_sandbox_add(struct gw_sandbox *sb, int peer_rtnl, struct ak_err *err);

/* End the flows and write the last record, without changing kernel state. For a gateway whose namespace ends too. */
void gw_sandbox_finish(struct gw_sandbox *sb, struct gw_stats *ret);

/* After gw_sandbox_finish: remove the rules and free the sandbox. */
void gw_sandbox_drop(struct gw_sandbox *sb);

/* Change rules and learned elements in one atomic step, then judge live flows again. */
int gw_sandbox_set_policy(struct gw_sandbox *sb, struct policy *p, uint64_t generation, struct ak_err *err);

void gw_sandbox_stats(const struct gw_sandbox *sb, struct gw_stats *ret);

/* The hook for every DNS answer: updates the kernel first, then the table that the relay uses. */
int gw_sandbox_learn(struct gw_sandbox *sb, const struct dns_answer *answer);

void gw_fw_link(const struct gwns_link *l, bool ipv6, struct fw_link *ret);

/* host/control.c: messages of the supervisor */
void gw_control_readable(struct gw *gw);
void gw_send(struct gw *gw, const struct gw_msg *msg);

/* host/events.c: writes events as records */
void gw_record_dns(struct gw_sandbox *sb, const struct dns_event *event);
void gw_record_flow(struct gw_sandbox *sb, const struct relay_event *event);
void gw_record_denial(struct gw_sandbox *sb, const struct fw_denial *denial);
void gw_record_edge(struct gw_sandbox *sb, const char *event);

/* Is the log certain to record what the sandbox starts now (invariant 10)? If not, nothing new may start; informs the supervisor. */
bool gw_log_ready(struct gw_sandbox *sb);

/* Record the learned addresses that were evicted because the table was full. */
void gw_record_evicted(struct gw_sandbox *sb);

/* Write the sums of repeated answers: before a policy is freed, from time to time, and at the end. */
void gw_record_repeats(struct gw_sandbox *sb);

/* Record denials that the kernel counted but did not log individually. */
void gw_record_suppressed(struct gw_sandbox *sb, const struct fw_counts *counts);

/* The text of a query type: "A", "TYPE65". */
const char *gw_qtype_text(uint16_t qtype, char *buf, size_t size);

#endif
