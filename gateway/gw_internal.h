/* What the gateway's own files share: the loop's state and one hosted sandbox. */
#ifndef AK_GW_INTERNAL_H
#define AK_GW_INTERNAL_H

#include "gateway/audit.h"
#include "gateway/gw.h"
#include "gateway/relay.h"
#include "nft/fw.h"

struct event;
struct event_base;

struct gw_sandbox {
	struct gw *gw; /* borrowed: outlives us */
	const char *name; /* borrowed */
	struct gwns_link link;
	struct policy *policy; /* owned reference */
	uint64_t generation;
	struct relay_sandbox relay;
	struct learned *learned; /* owned */
	struct dns_client *dns; /* owned by the proxy */
	struct audit_writer log;
	bool log_wanted; /* a fresh descriptor has been asked for */
	uint64_t allowed, denied;
	uint64_t seen[FW_REASON_NUM]; /* refusals that came by NFLOG or were written as suppressed */
};

struct gw {
	struct event_base *base; /* owned */
	struct fw *fw; /* owned */
	struct fw_log *fw_log; /* owned */
	struct dns_proxy *dns; /* owned */
	struct relay *relay; /* owned */
	struct event *on_control, *on_log, *on_tick; /* owned */
	int rtnl, peer_rtnl;
	int control;
	bool ipv6_link;
	struct gw_sandbox *sandbox; /* owned */
};

/* gw_events.c: what happened, as records */
void gw_record_dns(struct gw_sandbox *sb, const struct dns_event *event);
void gw_record_flow(struct gw_sandbox *sb, const struct relay_event *event);
void gw_record_denial(struct gw_sandbox *sb, const struct fw_denial *denial);
void gw_record_edge(struct gw_sandbox *sb, const char *event);

/* Refusals that the kernel counted and did not report one by one. */
void gw_record_suppressed(struct gw_sandbox *sb, const struct fw_counts *counts);

/* The text of a query type: "A", "TYPE65". */
const char *gw_qtype_text(uint16_t qtype, char *buf, size_t size);

#endif
