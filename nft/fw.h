/*
 * The kernel part of a policy: nftables objects in the gateway's own network namespace.
 *
 * Builders are pure: they turn a link and a policy into a list of netlink messages that can be
 * printed (golden tests) or sent as one batch. Nothing here opens sockets: a short-lived child opens
 * the nfnetlink descriptors inside the gateway's namespace and the caller passes them in.
 *
 * Netlink is synchronous in the kernel: when send returns, the acknowledgements are queued. These
 * functions send, read every acknowledgement without blocking, and return.
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
#define FW_MARK 0x616b0001u /* set on packets that chain `pre` admitted; chain `in` accepts nothing else */
#define FW_MARK_FIRST 0x616b0100u /* arrived on a link of the first table, not judged yet */
#define FW_MARK_FURTHER 0x616b0200u /* + n: arrived on a link of further table n, not judged yet */
#define FW_MARK_KIND 0xffffff00u /* mask that distinguishes the two */
#define FW_DNS_PORT 53
#define FW_RELAY_TCP_PORT 15001 /* transparent listeners, both families */
#define FW_RELAY_UDP_PORT 15002
#define FW_LOG_GROUP 7

/* The gateway's end of the link to one sandbox. */
struct fw_link {
	uint32_t id; /* part of the object names: sb<ID>, ak<ID> */
	char ifname[FW_IFNAME_MAX]; /* "ak<ID>" */
	uint8_t peer_mac[6]; /* the only accepted source MAC */
	struct ak_addr addr4, addr6; /* the sandbox's addresses; addr6.family is 0 if IPv6 is off */
	struct ak_addr gw4, gw6; /* the gateway's addresses */
};

/* Why the kernel denied a packet; part of the NFLOG prefix ("ak:<ID>:<reason>"). */
enum fw_reason {
	FW_REASON_DEFAULT, /* no rule allows it */
	FW_REASON_BLOCKED, /* built-in block or deny_cidr; ask the policy which one */
	FW_REASON_SPOOF,
	FW_REASON_DOT, /* port 853 */
	FW_REASON_PROTO, /* neither TCP nor UDP */
	FW_REASON_RATE, /* DNS queries far above the policy's dns_qps */
	FW_REASON_NUM
};
const char *fw_reason_name(enum fw_reason reason);

struct fw;

/* Takes ownership of the descriptor. */
int fw_new(int nfnl_fd, struct fw **ret, struct ak_err *err);
void fw_free(struct fw *fw); /* the kernel objects stay; they belong to the namespace */

/* Install table `inet agentkernel` with the link map and the base chains in one batch, replacing an existing table. */
int fw_base_install(struct fw *fw, struct ak_err *err);

/* Install the base table and one sandbox in a single batch, into a namespace that has neither. Used by `run`. */
int fw_install_one(struct fw *fw, const struct fw_link *link, const struct policy *p, struct ak_err *err);

/*
 * Add or remove one sandbox: its chain, sets, counters, netdev table and its entry in the link map. On add, the link must
 * exist and still be down. Sandboxes with higher ids are in further tables, agentkernel_1 and so on; each is created
 * with its first sandbox and removed with its last.
 */
int fw_sandbox_add(struct fw *fw, const struct fw_link *link, const struct policy *p, struct ak_err *err);
int fw_sandbox_remove(struct fw *fw, const struct fw_link *link, struct ak_err *err);

/* A learned address, protocol and port. */
struct fw_elem {
	struct ak_addr addr;
	enum policy_proto proto;
	uint16_t port;
	uint32_t timeout_s; /* 1 … FW_TIMEOUT_MAX_S; 0, which would mean no timeout, is an error */
};
#define FW_TIMEOUT_MAX_S 86400
#define FW_LEARNED_MAX 65536 /* capacity of a set; in a full set fw_learn fails with -ENFILE and changes nothing */

/*
 * Add or refresh elements, all or none. Returns 0 only if the kernel acknowledged all of them. FRESH promises that none of
 * them is in the set yet, which saves two thirds of the work; if that is wrong, an existing element keeps its timeout.
 */
int fw_learn(struct fw *fw, uint32_t id, const struct fw_elem *elems, size_t n, bool fresh, struct ak_err *err);

/* Remove elements; those that have expired meanwhile are not an error. */
int fw_forget(struct fw *fw, uint32_t id, const struct fw_elem *elems, size_t n, struct ak_err *err);

/*
 * Apply a changed policy in one atomic batch: new rules and interval sets, without the elements GONE that it no longer
 * allows, with the elements ADDED that it now allows. Other learned elements stay unchanged.
 */
int fw_sandbox_change(struct fw *fw, const struct fw_link *link, const struct policy *p, const struct fw_elem *gone,
	size_t n_gone, const struct fw_elem *added, size_t n_added, struct ak_err *err);

/*
 * Packets that the kernel denied and admitted for this sandbox since its rules were installed. Every denied packet is
 * counted; log records are rate-limited, so the difference is the number of suppressed records.
 */
struct fw_counts {
	uint64_t denied[FW_REASON_NUM];
	uint64_t admitted; /* TCP: new connections; UDP: packets */
	uint64_t late; /* packets of closed flows: refused, deliberately without a record */
	uint64_t link; /* frames dropped at the link, only counted: wrong MAC, ARP, VLAN, other ethertypes */
};
int fw_sandbox_counts(struct fw *fw, uint32_t id, struct fw_counts *ret, struct ak_err *err);

/* Print the rules as text, one object per line, without using the kernel. */
int fw_print_base(struct strbuf *out, struct ak_err *err);
int fw_print_sandbox(const struct fw_link *link, const struct policy *p, struct strbuf *out, struct ak_err *err);

/* ---- NFLOG: packets that the kernel denied ---- */

struct fw_denial {
	uint32_t id; /* of the sandbox */
	enum fw_reason reason;
	uint8_t l4proto; /* IPPROTO_… */
	struct ak_addr src, dst;
	uint16_t sport, dport; /* 0 if the protocol has no ports */
};

struct fw_log;
struct fw_log_hooks {
	void *ctx; /* borrowed: outlives us */
	void (*on_denial)(void *ctx, const struct fw_denial *d);
	void (*on_loss)(void *ctx); /* ENOBUFS: the kernel dropped log messages; the counters still include them */
};

/* Bind group FW_LOG_GROUP on the descriptor and take ownership of it. Malformed messages are skipped. */
int fw_log_new(int nflog_fd, const struct fw_log_hooks *hooks, struct fw_log **ret, struct ak_err *err);
void fw_log_free(struct fw_log *log);
int fw_log_fd(const struct fw_log *log);

/* Read at most BUDGET messages without blocking. Returns the number read, or -errno. */
int fw_log_read(struct fw_log *log, unsigned budget);

#endif
