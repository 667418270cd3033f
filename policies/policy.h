/*
 * Policies: the rules that decide which hosts and addresses a sandbox may reach.
 *
 * A policy is loaded from JSON (with the groups it extends), edited by command-line flags and compiled once. After that it is
 * immutable and reference-counted. The DNS proxy, the ruleset builder, the relay and `network check` all use the same
 * matcher, so their decisions always agree.
 *
 * Names are lower-case dotted text without a trailing dot, labels of [a-z0-9_-], at most 253 octets;
 * callers check names from the network or from users with policy_name_ok first.
 */
#ifndef AK_POLICY_H
#define AK_POLICY_H

#include "gateway/base/addr.h"
#include "gateway/base/err.h"
#include "gateway/base/strbuf.h"
#include "gateway/base/reason.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define POLICY_NAME_MAX 254 /* host name including the terminating NUL */

/* The name of the host machine inside a sandbox. It resolves only if a rule allows it with a port. */
#define POLICY_HOST_NAME "host.agentkernel.internal"

#define POLICY_CONNECTIONS_DEFAULT 512
#define POLICY_DNS_QPS_DEFAULT 200

struct policy;

enum policy_proto { POLICY_TCP, POLICY_UDP, POLICY_PROTO_NUM };

enum policy_reason {
	POLICY_REASON_RULE, /* a rule of the policy decided, allow or deny */
	POLICY_REASON_DEFAULT, /* the policy's default; "not in allowlist" when it denies */
	POLICY_REASON_METADATA, /* "cloud metadata" */
	POLICY_REASON_LOOPBACK,
	POLICY_REASON_LINK_LOCAL,
	POLICY_REASON_PRIVATE, /* private range: opened only by allow_cidr */
	POLICY_REASON_MULTICAST,
	POLICY_REASON_RESERVED, /* not a public address */
	POLICY_REASON_INTERNAL, /* .internal, .local, single-label names and similar */
	POLICY_REASON_RESOLVER, /* public encrypted-DNS resolvers in allowlist modes; use-application-dns.net in every mode */
	POLICY_REASON_ADDRESS, /* raw address in an allowlist mode: "no allowed name has this address" */
	POLICY_REASON_PORT, /* "not allowed on this port": the name is allowed on others */
	POLICY_REASON_UNREAD, /* QUIC, whose server name is not read, on a port where a rule denies names */
	POLICY_REASON_NUM
};

/* Strings are borrowed from the policy that made the decision. */
struct policy_decision {
	bool allow;
	enum policy_reason reason;
	const char *policy; /* "codex", "package-registries", "flags", "builtin" or "default" */
	const char *rule; /* the pattern as written ("*.npmjs.org:443"), a built-in's name ("metadata"), or "" */
};

/* How an address is classified before any name is known. */
enum policy_addr_class {
	POLICY_ADDR_PLAIN, /* no CIDR rule covers it: names and the default decide */
	POLICY_ADDR_BLOCKED, /* a built-in block or deny_cidr */
	POLICY_ADDR_OPEN, /* allow_cidr: every TCP and UDP port, no name needed */
	POLICY_ADDR_CLASS_NUM
};

struct policy_limits {
	uint32_t connections; /* concurrent; 0 in a file means the default, a loaded policy never holds 0 */
	uint32_t dns_qps; /* queries per second; 0 as above */
	uint64_t egress_bytes; /* 0: unlimited */
};

enum policy_edit_op {
	POLICY_EDIT_ALLOW_HOST,
	POLICY_EDIT_BLOCK_HOST,
	POLICY_EDIT_ALLOW_CIDR,
	POLICY_EDIT_BLOCK_CIDR,
	POLICY_EDIT_DEFAULT, /* text is "allow" or "deny" */
	POLICY_EDIT_REMOVE, /* text is the rule to remove, as written */
	POLICY_EDIT_ADD_POLICY, /* text is a policy: a name, the path of a file, or a pinned file (policy_pin) */
	POLICY_EDIT_ALLOW_GROUP, /* text is the name of a policy that consists of allow rules */
	POLICY_EDIT_NUM
};

struct policy_edit {
	enum policy_edit_op op;
	const char *text; /* borrowed for the duration of the call */
};

/* Convert between an edit and its name ("allow-host", "default" …) in options, files and messages. False: unknown name. */
const char *policy_edit_name(enum policy_edit_op op);
bool policy_edit_parse(const char *name, enum policy_edit_op *ret);

/* Check the text of an edit as far as that needs no policy: the syntax of a rule, and whether a range can open at all. */
int policy_edit_check(enum policy_edit_op op, const char *text, struct ak_err *err);

/*
 * ADD_POLICY adds the rules of another policy to the one that is loaded. Its limits apply too, the lower of two counts, and the
 * default is allow only if both say so: an allowlist on top of `native` is an allowlist. ALLOW_GROUP adds rules and nothing else.
 */

/* Does TEXT name a file: does it contain a '/' or end in ".json"? */
bool policy_is_file(const char *text);

struct policy_dirs;
/*
 * Read the policy file PATH once, with the groups it extends, and store it as the text of an edit: "NAME={…}". Such an edit no
 * longer depends on the file, which a sandbox may be able to change. The caller frees *RET.
 */
#define POLICY_PIN_MAX (128u << 10)
int policy_pin(const char *path, const struct policy_dirs *dirs, char **ret, struct ak_err *err);

/* The text of an edit for people: the name of a pinned policy, otherwise the text. BUF holds the name. */
#define POLICY_WORD_MAX 64
const char *policy_edit_label(const struct policy_edit *e, char buf[static POLICY_WORD_MAX]);

/* Does P consist of allow rules, so that it can be given to ALLOW_GROUP? */
bool policy_is_group(const struct policy *p);

/* Folders searched for NAME.json in order; the first match wins. NULL-terminated. */
struct policy_dirs {
	const char *dirs[6];
};

/* ---- loading ---- */

/*
 * Load the policy NAME (NAME.json in one of DIRS), or the file NAME if it contains a '/' or ends in ".json". Apply EDITS in
 * order as rules of the policy "flags", then compile. Errors name the file and the position.
 */
int policy_load(const char *name, const struct policy_dirs *dirs, const struct policy_edit *edits, size_t n_edits,
	struct policy **ret, struct ak_err *err);

/* Like policy_load, but from text in memory; errors use LABEL as the file name. */
int policy_parse(const char *text, size_t len, const char *label, const struct policy_dirs *dirs, const struct policy_edit *edits,
	size_t n_edits, struct policy **ret, struct ak_err *err);

/* One error of a policy file. TEXT begins with its place ("allow[3]: …") if it has one. */
struct policy_flaw {
	unsigned line, column; /* 0: unknown */
	const char *text;
};

/* Load a policy file and pass everything that is wrong with it to FN. *RET_RULES is the number of rules; -EINVAL if there are errors. */
int policy_validate(const char *path, const struct policy_dirs *dirs, void (*fn)(void *ctx, const struct policy_flaw *f),
	void *ctx, size_t *ret_rules, struct ak_err *err);

struct policy *policy_ref(struct policy *p);
void policy_unref(struct policy *p); /* accepts NULL */
void policy_unrefp(struct policy **p);

/* ---- decisions: pure functions, no allocation, under a microsecond ---- */

/* May the sandbox resolve NAME? Allowed if at least one port of NAME is reachable. */
struct policy_decision policy_judge_dns(const struct policy *p, const char *name);

/* May the sandbox reach NAME at PROTO/PORT, whatever its address? */
struct policy_decision policy_judge_name(const struct policy *p, const char *name, enum policy_proto proto, uint16_t port);

/* May the sandbox reach this address if no name is known for it? */
struct policy_decision policy_judge_addr(const struct policy *p, const struct ak_addr *a, enum policy_proto proto, uint16_t port);

/* The class of an address; RET may be NULL. Embedded IPv4 addresses are decoded and judged as IPv4. */
enum policy_addr_class policy_addr_class(const struct policy *p, const struct ak_addr *a, struct policy_decision *ret);

/*
 * Set the NAT64 prefixes of the host's network (RFC 7050), for all policies of this process. Addresses under such a prefix are
 * judged as the embedded IPv4 address. After policy_nat64_unknown, an address is blocked if any position defined by RFC 6052
 * holds a private IPv4 address. Initially no prefixes are set.
 */
#define POLICY_NAT64_MAX 4
struct policy_prefix {
	struct ak_addr net;
	uint8_t len;
};
void policy_nat64_set(const struct policy_prefix *prefixes, size_t n);
void policy_nat64_unknown(void);
/* Derive the NAT64 prefix from a synthesized address of ipv4only.arpa; false if the address is not synthesized. */
bool policy_nat64_prefix(const struct ak_addr *synthesized, struct policy_prefix *ret);

struct policy_port {
	enum policy_proto proto;
	uint16_t port;
};

/*
 * Store the ports to open in the kernel for NAME's addresses, at most CAP; returns their number. A default-allow policy
 * returns none: the kernel passes everything that is not blocked and the relay judges the name. POLICY_HOST_NAME is the
 * exception: its address is always blocked, so its ports are returned for every policy.
 */
size_t policy_name_ports(const struct policy *p, const char *name, struct policy_port *ret, size_t cap);

/* Number of host and CIDR rules after extends and flags; duplicates count once. */
size_t policy_rule_count(const struct policy *p);

/*
 * True if P allows nothing that LIMIT denies. Conservative: every allow rule of P must be in LIMIT, every deny rule of LIMIT
 * must be in P, and neither the default nor a limit of P may be wider. Never true for a wider policy.
 */
bool policy_within(const struct policy *p, const struct policy *limit);

bool policy_default_allow(const struct policy *p);

/* Does a rule deny any name at PROTO/PORT? Only for ports 80 and 443, where clients send the name. */
bool policy_denies_names(const struct policy *p, enum policy_proto proto, uint16_t port);
const char *policy_name(const struct policy *p);
const char *policy_description(const struct policy *p);
const struct policy_limits *policy_limits(const struct policy *p);

/*
 * Disjoint sorted ranges of FAMILY that are BLOCKED or OPEN (PLAIN ones are omitted), for the kernel's interval sets.
 * Owned by the policy.
 */
struct policy_range {
	struct ak_addr lo, hi; /* both inclusive */
	enum policy_addr_class class;
};
const struct policy_range *policy_ranges(const struct policy *p, int family, size_t *ret_n);

/* ---- printing ---- */

/* The reason as it is recorded, and its words; none and "" if the decision is allow. */
enum net_reason policy_reason_recorded(enum policy_reason reason, bool allow);
const char *policy_reason_text(enum policy_reason reason, bool allow);

/* "codex: api.openai.com:443", "default", "builtin: metadata". */
const char *policy_rule_label(const struct policy_decision *d, char *buf, size_t size);

/*
 * Print the compiled policy as canonical JSON: extends flattened, sorted, each rule with its source policy.
 * policy_parse reads it back as the same policy.
 */
void policy_print(const struct policy *p, struct strbuf *out);

/* Print a description as a JSON string. The parser has checked that it is one line of UTF-8. */
void policy_print_text(const char *text, struct strbuf *out);

/* ---- names and targets ---- */

/* Is TEXT a host name in the form this module expects (lower case, valid labels and length, no IP literal)? */
bool policy_name_ok(const char *text);

/* The argument of `network check`: "host[:port][/proto]" or "[v6]:port". HOST is lower case, without a trailing dot. */
struct policy_target {
	char host[POLICY_NAME_MAX]; /* "" for an address */
	struct ak_addr addr; /* family 0 for a name */
	enum policy_proto proto; /* default TCP */
	uint16_t port; /* default 443 */
};
int policy_target_parse(const char *text, struct policy_target *ret, struct ak_err *err);

#endif
