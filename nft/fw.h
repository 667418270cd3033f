/*
 * The kernel's half of a policy: nftables objects in the gateway's own network namespace.
 *
 * Builders are pure: they turn a link and a policy into a list of netlink messages that can be
 * printed (golden tests) or sent as one batch. Nothing here opens sockets: the nfnetlink descriptors
 * were opened inside the gateway's namespace by a short-lived child and are handed in.
 *
 * Netlink is synchronous in the kernel: when send returns, the acknowledgements are queued. So these
 * functions send, read every acknowledgement without waiting for anyone, and return.
 */
#ifndef AK_FW_H
#define AK_FW_H

#include "gateway/base/addr.h"
#include "gateway/base/err.h"
#include "gateway/base/strbuf.h"
#include "policies/policy.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FW_IFNAME_MAX 16
#define FW_MARK 0x616b0001u /* what chain `pre` has judged; chain `in` takes nothing else */
#define FW_MARK_FIRST 0x616b0100u /* what came in through a link of the first table, and waits to be judged */
#define FW_MARK_FURTHER 0x616b0200u /* + n: through a link of further table n */
#define FW_MARK_KIND 0xffffff00u /* the bits that tell the two from each other */
#define FW_DNS_PORT 53
#define FW_RELAY_TCP_PORT 15001 /* transparent listeners, both families */
#define FW_RELAY_UDP_PORT 15002
#define FW_LOG_GROUP 7

/* One sandbox's link as the gateway's namespace sees it. */
struct fw_link {
	uint32_t id; /* names the objects: sb<ID>, ak<ID> */
	char ifname[FW_IFNAME_MAX]; /* "ak<ID>" */
	uint8_t peer_mac[6]; /* the only source MAC that is believed */
	struct ak_addr addr4, addr6; /* the sandbox's own; addr6.family 0 when IPv6 is off */
	struct ak_addr gw4, gw6; /* our end */
};

/* Why the kernel refused; carried in the NFLOG prefix ("ak:<ID>:<reason>"). */
enum fw_reason {
	FW_REASON_DEFAULT, /* nothing allowed it */
	FW_REASON_BLOCKED, /* built-in block or deny_cidr: the policy says which */
	FW_REASON_SPOOF,
	FW_REASON_DOT, /* port 853 */
	FW_REASON_PROTO, /* neither TCP nor UDP */
	FW_REASON_RATE, /* far more questions than the policy's dns_qps */
	FW_REASON_NUM
};
const char *fw_reason_name(enum fw_reason reason);

struct fw;

/* Takes the descriptor over. */
int fw_new(int nfnl_fd, struct fw **ret, struct ak_err *err);
void fw_free(struct fw *fw); /* the kernel's objects stay: the namespace owns them */

/* Table `inet agentkernel` with the link map and base chains, replacing whatever is there, in one batch. */
int fw_base_install(struct fw *fw, struct ak_err *err);

/* The base table and one sandbox in a single batch, into a namespace that has neither: what `run` sends. */
int fw_install_one(struct fw *fw, const struct fw_link *link, const struct policy *p, struct ak_err *err);

/*
 * One sandbox's chain, sets, counters, netdev table and its entry in the link map. The link must exist, still down. Sandboxes of higher ids
 * are in further tables, agentkernel_1 and so on, each made with its first sandbox and removed with its last.
 */
int fw_sandbox_add(struct fw *fw, const struct fw_link *link, const struct policy *p, struct ak_err *err);
int fw_sandbox_remove(struct fw *fw, const struct fw_link *link, struct ak_err *err);

/* One learned (address, protocol, port). */
struct fw_elem {
	struct ak_addr addr;
	enum policy_proto proto;
	uint16_t port;
	uint32_t timeout_s; /* 1 … FW_TIMEOUT_MAX_S; 0 would mean for ever and is refused */
};
#define FW_TIMEOUT_MAX_S 86400
#define FW_LEARNED_MAX 65536 /* elements a set holds; past it fw_learn fails with -ENFILE and changes nothing */

/*
 * Add or refresh elements (all or none); 0 only when the kernel acknowledged them all. FRESH says that none of them is there: they are only added, a
 * third of the work. Where it is wrong, an element keeps the life it had.
 */
int fw_learn(struct fw *fw, uint32_t id, const struct fw_elem *elems, size_t n, bool fresh, struct ak_err *err);

/* Take elements away; those that expired meanwhile are no error. */
int fw_forget(struct fw *fw, uint32_t id, const struct fw_elem *elems, size_t n, struct ak_err *err);

/*
 * A changed policy in one atomic batch: new rules and interval sets, the elements GONE that it no longer allows, those ADDED that it now
 * does. Other learned elements stay as they are.
 */
int fw_sandbox_change(struct fw *fw, const struct fw_link *link, const struct policy *p, const struct fw_elem *gone,
	size_t n_gone, const struct fw_elem *added, size_t n_added, struct ak_err *err);

/*
 * Packets the kernel has refused and admitted for this sandbox since its rules were made. Every denied one is counted;
 * records are limited in rate, so the difference is what was suppressed.
 */
struct fw_counts {
	uint64_t denied[FW_REASON_NUM];
	uint64_t admitted; /* TCP: connections begun; UDP: packets */
	uint64_t late; /* of flows that are gone: refused, by design without a record */
	uint64_t link; /* frames dropped at the link, told in sums only: wrong MAC, ARP, VLAN, other ethertypes */
};
int fw_sandbox_counts(struct fw *fw, uint32_t id, struct fw_counts *ret, struct ak_err *err);

/* The rules as text, one object a line, for goldens and for reading. No kernel is asked. */
int fw_print_base(struct strbuf *out, struct ak_err *err);
int fw_print_sandbox(const struct fw_link *link, const struct policy *p, struct strbuf *out, struct ak_err *err);

/* ---- NFLOG: what the kernel refused ---- */

struct fw_denial {
	uint32_t id; /* sandbox */
	enum fw_reason reason;
	uint8_t l4proto; /* IPPROTO_… */
	struct ak_addr src, dst;
	uint16_t sport, dport; /* 0 where the protocol has none */
};

struct fw_log;
struct fw_log_hooks {
	void *ctx; /* borrowed: outlives us */
	void (*on_denial)(void *ctx, const struct fw_denial *d);
	void (*on_loss)(void *ctx); /* ENOBUFS: the kernel dropped messages; the counters still have them */
};

/* Bind group FW_LOG_GROUP on the descriptor (taken over). Malformed messages are skipped, never believed. */
int fw_log_new(int nflog_fd, const struct fw_log_hooks *hooks, struct fw_log **ret, struct ak_err *err);
void fw_log_free(struct fw_log *log);
int fw_log_fd(const struct fw_log *log);

/* Read at most BUDGET messages without blocking; the number read, or -errno. */
int fw_log_read(struct fw_log *log, unsigned budget);

#endif
