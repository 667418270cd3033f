/*
 * Policies: what a sandbox may reach.
 *
 * A policy is loaded from JSON (and the groups it extends), edited by flags, compiled once and then
 * immutable and reference-counted. One matcher serves the DNS proxy, the ruleset builder, the relay
 * and `network check`, so that they cannot disagree.
 *
 * Names are lower-case dotted text without a trailing dot, labels of [a-z0-9_-], at most 253 octets;
 * whoever reads a name from the wire or a user has checked that (policy_name_ok).
 */
#ifndef AK_POLICY_H
#define AK_POLICY_H

#include "gateway/base/addr.h"
#include "gateway/base/err.h"
#include "gateway/base/strbuf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define POLICY_NAME_MAX 254 /* a host name's text with its NUL */

/* The one name that stands for the machine outside; it answers only where a rule names it with a port. */
#define POLICY_HOST_NAME "host.agentkernel.internal"

#define POLICY_CONNECTIONS_DEFAULT 512
#define POLICY_DNS_QPS_DEFAULT 200

struct policy;

enum policy_proto { POLICY_TCP, POLICY_UDP, POLICY_PROTO_NUM };

enum policy_reason {
	POLICY_REASON_RULE, /* a rule of the policy said so, either way */
	POLICY_REASON_DEFAULT, /* the policy's default: "not in allowlist" when it denies */
	POLICY_REASON_METADATA, /* "cloud metadata" */
	POLICY_REASON_LOOPBACK,
	POLICY_REASON_LINK_LOCAL,
	POLICY_REASON_PRIVATE, /* private range: opened only by allow_cidr */
	POLICY_REASON_MULTICAST,
	POLICY_REASON_RESERVED, /* not a public address */
	POLICY_REASON_INTERNAL, /* .internal, .local, bare names and their like */
	POLICY_REASON_RESOLVER, /* public encrypted-DNS resolvers in allowlist modes, and use-application-dns.net in all */
	POLICY_REASON_ADDRESS, /* an allowlist mode refuses raw addresses: "address not learned from an allowed name" */
	POLICY_REASON_UNREAD, /* QUIC, whose name is not read, at a port where a rule denies names */
	POLICY_REASON_NUM
};

/* Strings are borrowed from the policy that judged. */
struct policy_decision {
	bool allow;
	enum policy_reason reason;
	const char *policy; /* "codex", "package-registries", "flags", "builtin" or "default" */
	const char *rule; /* the pattern as written ("*.npmjs.org:443"), a built-in's name ("metadata"), or "" */
};

/* What an address is before any name is known. */
enum policy_addr_class {
	POLICY_ADDR_PLAIN, /* no CIDR rule covers it: names and the default decide */
	POLICY_ADDR_BLOCKED, /* a built-in block or deny_cidr */
	POLICY_ADDR_OPEN, /* allow_cidr: any port of TCP and UDP, no name wanted */
	POLICY_ADDR_CLASS_NUM
};

struct policy_limits {
	uint32_t connections; /* at once; 0 in a file is the built-in default, never 0 in a loaded policy */
	uint32_t dns_qps; /* the same */
	uint64_t egress_bytes; /* 0 is unlimited */
};

enum policy_edit_op {
	POLICY_EDIT_ALLOW_HOST,
	POLICY_EDIT_BLOCK_HOST,
	POLICY_EDIT_ALLOW_CIDR,
	POLICY_EDIT_BLOCK_CIDR,
	POLICY_EDIT_DEFAULT, /* text is "allow" or "deny" */
	POLICY_EDIT_REMOVE, /* text is a rule as written */
	POLICY_EDIT_NUM
};

struct policy_edit {
	enum policy_edit_op op;
	const char *text; /* borrowed during the call */
};

/* "allow-host", "default" …: as options, files and messages spell them. False: not one of them. */
const char *policy_edit_name(enum policy_edit_op op);
bool policy_edit_parse(const char *name, enum policy_edit_op *ret);

/* Folders searched for NAME.json, first match wins; NULL-terminated. */
struct policy_dirs {
	const char *dirs[6];
};

/* ---- loading ---- */

/*
 * Load NAME (looked up in DIRS as NAME.json) or, when it holds a '/' or ends in ".json", that file; apply
 * EDITS in order as rules of the policy "flags"; compile. Errors name file and place.
 */
int policy_load(const char *name, const struct policy_dirs *dirs, const struct policy_edit *edits, size_t n_edits,
	struct policy **ret, struct ak_err *err);

/* The same from text in memory; LABEL stands for the file name in errors. */
int policy_parse(const char *text, size_t len, const char *label, const struct policy_dirs *dirs, const struct policy_edit *edits,
	size_t n_edits, struct policy **ret, struct ak_err *err);

struct policy *policy_ref(struct policy *p);
void policy_unref(struct policy *p); /* NULL is fine */
void policy_unrefp(struct policy **p);

/* ---- judging: all pure, no allocation, under a microsecond ---- */

/* May NAME be asked of DNS at all? Allowed when at least one port of it is reachable. */
struct policy_decision policy_judge_dns(const struct policy *p, const char *name);

/* May NAME be reached at PROTO/PORT, whatever its address? */
struct policy_decision policy_judge_name(const struct policy *p, const char *name, enum policy_proto proto, uint16_t port);

/* May the raw address be reached with no name known for it? */
struct policy_decision policy_judge_addr(const struct policy *p, const struct ak_addr *a, enum policy_proto proto, uint16_t port);

/* The class of an address; RET may be NULL. Embedded IPv4 forms are decoded and judged as what they hide. */
enum policy_addr_class policy_addr_class(const struct policy *p, const struct ak_addr *a, struct policy_decision *ret);

/*
 * The NAT64 prefixes of the network that the host is in (RFC 7050), for all policies of this process: addresses below one are
 * judged as the IPv4 address inside. While they are not known, an address with a private one at any place that RFC 6052 has
 * for it is blocked. At first there are none.
 */
#define POLICY_NAT64_MAX 4
struct policy_prefix {
	struct ak_addr net;
	uint8_t len;
};
void policy_nat64_set(const struct policy_prefix *prefixes, size_t n);
void policy_nat64_unknown(void);
/* The prefix by which an address of ipv4only.arpa was made; false when it was not. */
bool policy_nat64_prefix(const struct ak_addr *synthesized, struct policy_prefix *ret);

struct policy_port {
	enum policy_proto proto;
	uint16_t port;
};

/*
 * The ports that NAME's addresses open in the kernel, at most CAP of them; the count. In a default-allow policy
 * there are none: the kernel passes what is not blocked and the relay judges the name. POLICY_HOST_NAME is the exception:
 * its address is always blocked, so its ports are told in every policy.
 */
size_t policy_name_ports(const struct policy *p, const char *name, struct policy_port *ret, size_t cap);

/* Host and CIDR rules after extends and flags, repeats counted once. */
size_t policy_rule_count(const struct policy *p);

/*
 * Does P reach nothing that LIMIT does not? True only where the rules show it by themselves: every rule of P that allows stands in LIMIT too, every
 * rule of LIMIT that denies stands in P too, and neither the default nor a limit of P is wider. Never true for a wider policy.
 */
bool policy_within(const struct policy *p, const struct policy *limit);

bool policy_default_allow(const struct policy *p);

/* Does a rule deny some name at PROTO/PORT? Told of ports 80 and 443 only, where flows name themselves. */
bool policy_denies_names(const struct policy *p, enum policy_proto proto, uint16_t port);
const char *policy_name(const struct policy *p);
const char *policy_description(const struct policy *p);
const struct policy_limits *policy_limits(const struct policy *p);

/* Disjoint sorted ranges of FAMILY that are BLOCKED or OPEN (nothing for PLAIN), for the kernel's interval sets.
 * Owned by the policy. */
struct policy_range {
	struct ak_addr lo, hi; /* both inclusive */
	enum policy_addr_class class;
};
const struct policy_range *policy_ranges(const struct policy *p, int family, size_t *ret_n);

/* ---- telling ---- */

/* For a person; "" when it was allowed. */
const char *policy_reason_text(enum policy_reason reason, bool allow);

/* "codex: api.openai.com:443", "default", "builtin: metadata". */
const char *policy_rule_label(const struct policy_decision *d, char *buf, size_t size);

/* Canonical JSON of the compiled policy: extends flattened, sorted, each rule with the policy it came from. policy_parse reads it
 * back as the same policy. */
void policy_print(const struct policy *p, struct strbuf *out);

/* A description as a JSON string: it was checked to be one line of UTF-8 when it was read, and stays that. */
void policy_print_text(const char *text, struct strbuf *out);

/* ---- words ---- */

/* Is TEXT a host name in the form this module wants (lower case, label rules, length, no IP literal)? */
bool policy_name_ok(const char *text);

/* "host[:port][/proto]" or "[v6]:port", as `network check` takes it. HOST is lower-cased, trailing dot removed. */
struct policy_target {
	char host[POLICY_NAME_MAX]; /* "" when it was an address */
	struct ak_addr addr; /* family 0 when it was a name */
	enum policy_proto proto; /* default TCP */
	uint16_t port; /* default 443 */
};
int policy_target_parse(const char *text, struct policy_target *ret, struct ak_err *err);

#endif
