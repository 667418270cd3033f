/* What the gateway's own files share: the loop's state and one hosted sandbox. */
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
 * Answers from the cache, told in sums: the answer itself is on record since it was learned, and a program that asks for the same name a
 * thousand times a second must not fill the log with it.
 */
struct gw_repeat {
	char name[POLICY_NAME_MAX];
	uint16_t qtype;
	uint64_t count; /* 0: the slot is free */
	struct policy_decision decision; /* flushed before its policy goes */
};
#define GW_REPEATS 32

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
	struct audit_kinds kinds; /* that it was denied */
	struct gw_sums *sums; /* owned; NULL until needed */
	uint64_t anchored; /* the record that the supervisor was told of last */
	bool log_wanted; /* a fresh descriptor has been asked for */
	uint64_t stuck_told_ms; /* when the supervisor was told that the log cannot be written; 0: never */
	uint64_t kept_ms; /* until when the kernel may hold elements for live flows that the table has forgotten */
	bool noisy; /* refusals since the last look at the kernel's counters */
	uint64_t allowed, denied;
	uint64_t evicted; /* learned addresses that went before their time; not on record yet */
	struct gw_repeat *repeats; /* owned; GW_REPEATS of them, made when first needed */
	uint64_t seen[FW_REASON_NUM]; /* refusals that came by NFLOG or were written as suppressed */
	uint64_t seen_link; /* the same for frames that the link did not take */
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
	struct gw_sandbox **by_id; /* owned; [0, n_ids), most of it NULL when few are hosted */
	size_t n_ids;
};

/* host/sandbox.c: the hosted ones */
struct gw_sandbox *gw_sandbox_find(const struct gw *gw, uint32_t id);
struct gw_sandbox *gw_sandbox_by_addr(const struct gw *gw, const struct ak_addr *src);

/* Make the object and its place in the table; takes LOG_FD over. No rule, no client, no link yet. */
int gw_sandbox_new(struct gw *gw, const char *name, const struct gwns_link *link, struct policy *p, uint64_t generation,
	int log_fd, const struct gw_log_state *log, struct gw_sandbox **ret, struct ak_err *err);

/* Another log from here on; takes FD over. */
void gw_sandbox_set_log(struct gw_sandbox *sb, int fd, const struct gw_log_state *log);

/* Rotation has begun a file, or was killed before its first record: where copies go (taken over; -1: nowhere), and what is gone. */
void gw_sandbox_rotated(struct gw_sandbox *sb, int kept_fd, const struct gw_log_state *log);

/* Serve it: DNS client and relay. Its rules are in the kernel already, its link is still down. */
int gw_sandbox_serve(struct gw_sandbox *sb, struct ak_err *err);

/* Rules, then serve, then link up (invariant 1). On failure nothing of it is left. */
int gw_sandbox_add(struct gw_sandbox *sb, int peer_rtnl, struct ak_err *err);

/* Without touching the kernel: flows ended, last record written. For a gateway whose namespace goes anyway. */
void gw_sandbox_finish(struct gw_sandbox *sb, struct gw_stats *ret);

/* After that: its rules gone. Frees it. */
void gw_sandbox_drop(struct gw_sandbox *sb);

/* One atomic change of rules and learned elements; then live flows are judged again. */
int gw_sandbox_set_policy(struct gw_sandbox *sb, struct policy *p, uint64_t generation, struct ak_err *err);

void gw_sandbox_stats(const struct gw_sandbox *sb, struct gw_stats *ret);

/* The hook behind every DNS answer: kernel first, then the table that the relay asks. */
int gw_sandbox_learn(struct gw_sandbox *sb, const struct dns_answer *answer);

void gw_fw_link(const struct gwns_link *l, bool ipv6, struct fw_link *ret);

/* host/control.c: the supervisor's messages */
void gw_control_readable(struct gw *gw);
void gw_send(struct gw *gw, const struct gw_msg *msg);

/* host/events.c: what happened, as records */
void gw_record_dns(struct gw_sandbox *sb, const struct dns_event *event);
void gw_record_flow(struct gw_sandbox *sb, const struct relay_event *event);
void gw_record_denial(struct gw_sandbox *sb, const struct fw_denial *denial);
void gw_record_edge(struct gw_sandbox *sb, const char *event);

/* Whether what the sandbox begins now is sure to be recorded (invariant 10). If not, nothing new may begin; the supervisor is told. */
bool gw_log_ready(struct gw_sandbox *sb);

/* Addresses that went because there were too many. */
void gw_record_evicted(struct gw_sandbox *sb);

/* Write what is told in sums: before a policy goes, now and then, and at the end. */
void gw_record_repeats(struct gw_sandbox *sb);

/* Refusals that the kernel counted and did not report one by one. */
void gw_record_suppressed(struct gw_sandbox *sb, const struct fw_counts *counts);

/* The text of a query type: "A", "TYPE65". */
const char *gw_qtype_text(uint16_t qtype, char *buf, size_t size);

#endif
