/*
 * Private to the policy module: struct policy and the functions that build it.
 *
 * parse.c and edit.c append rules to a policy; compile.c sorts them, drops repeats and builds the name table;
 * ranges.c turns CIDR rules and built-in blocks into disjoint address segments. A compiled policy never changes.
 */
#ifndef AK_POLICY_INTERNAL_H
#define AK_POLICY_INTERNAL_H

#include "policies/policy.h"

#define POLICY_FILE_MAX ((size_t)16 << 20)
#define POLICY_RULES_MAX 500000 /* limit for host rules, and the same limit for CIDR rules */
#define POLICY_EXTENDS_DEPTH 8
#define POLICY_EXTENDS_MAX 64 /* groups in total, direct and nested */
#define POLICY_LABELS_MAX 128 /* more than a name of 253 octets can have */
#define POLICY_LABEL_MAX 63
#define POLICY_NAMES_MAX 256 /* the names of a policy and those added to it, including the terminating NUL */

/* ---- arena: strings that live as long as the policy ---- */

struct arena_chunk;
struct arena {
	struct arena_chunk *head; /* owned */
};

/* A NUL-terminated copy of LEN bytes, or NULL when out of memory. */
char *arena_copy(struct arena *a, const char *text, size_t len);
void arena_done(struct arena *a);

/* ---- rules ---- */

enum rule_proto { RULE_TCP = POLICY_TCP, RULE_UDP = POLICY_UDP, RULE_ANY };

/* One host pattern. HOST points into TEXT, after a leading "*."; it is empty for the pattern "*". */
struct host_rule {
	const char *text; /* as written, but lower case and without a trailing dot */
	const char *from; /* name of the policy that contains the rule */
	const char *host;
	uint32_t seq; /* insertion order: of two equal rules the first one is kept */
	uint16_t host_len;
	uint16_t port; /* 0: no port given */
	uint8_t proto; /* enum rule_proto */
	bool wild;
	bool allow;
};

struct cidr_rule {
	const char *text; /* "10.0.0.0/8" */
	const char *from;
	struct ak_addr net;
	uint32_t seq;
	uint8_t len;
	bool allow;
};

/* ---- built-in blocks ---- */

enum builtin_kind {
	BUILTIN_NEVER, /* no rule opens it */
	BUILTIN_SOFT, /* an allow_cidr with an equal or longer prefix opens it */
	BUILTIN_EMBEDDED, /* like NEVER; the reported reason is that of the embedded IPv4 address */
	BUILTIN_PUBLIC, /* an exception inside a larger block */
};

struct builtin_net {
	struct ak_addr net;
	uint8_t len;
	enum builtin_kind kind;
	enum policy_reason reason;
	const char *name;
};

const struct builtin_net *builtin_nets(size_t *ret_n);
extern const uint8_t builtin_nat64[16];

/* A denied name; its subdomains are denied too. */
struct builtin_name {
	const char *name;
	enum policy_reason reason;
	bool always; /* if false: denied only when the default is deny, and an exact allow rule opens it */
};
const struct builtin_name *builtin_names(size_t *ret_n);
const char *builtin_rule_name(enum policy_reason reason);

/* ---- the compiled form ---- */

/* All rules for one host: exact rules first, then wildcard rules, each group sorted by port. */
struct host_entry {
	const char *host; /* borrowed from a rule or a built-in */
	uint32_t first; /* index into rules */
	uint32_t n_exact, n_wild;
	uint16_t host_len;
	const struct builtin_name *builtin; /* or NULL */
};

struct host_slot {
	uint32_t hash;
	uint32_t entry; /* index + 1; 0 marks an empty slot */
};

enum seg_source { SEG_PLAIN, SEG_BUILTIN, SEG_CIDR };

/* A range of addresses that share one decision. */
struct segment {
	struct ak_addr lo, hi;
	uint32_t index; /* into the built-in networks or the CIDR rules */
	uint8_t source; /* enum seg_source */
	uint8_t class; /* enum policy_addr_class */
};

/* The segments of one address family. */
struct seg_table {
	struct segment *segs; /* owned */
	size_t n;
	struct policy_range *ranges; /* owned */
	size_t n_ranges;
};

struct policy {
	unsigned refs;
	struct arena arena; /* owns every string below */
	const char *name, *description;
	bool default_allow;
	bool denies_names[POLICY_PROTO_NUM][2]; /* at ports 80 and 443 */
	struct policy_limits limits;
	bool has_connections, has_dns_qps, has_egress;

	struct host_rule *rules; /* owned */
	size_t n_rules, cap_rules;
	struct cidr_rule *cidrs; /* owned */
	size_t n_cidrs, cap_cidrs;

	struct host_entry *entries; /* owned */
	size_t n_entries;
	struct host_slot *slots; /* owned; the size is a power of two */
	uint32_t slot_mask;
	unsigned max_labels; /* the largest label count of any entry; longer suffixes cannot match */
	uint32_t n_root; /* number of rules for "*"; they sort first */

	struct seg_table v4, v6;
};

struct policy *policy_new(void);
int policy_compile(struct policy *p, struct ak_err *err);
int policy_build_segments(struct policy *p);

/*
 * Add what the edits ADD_POLICY and ALLOW_GROUP name. It comes before all other edits, whatever their order, so that a block or a
 * removal by flag also covers these rules.
 */
int policy_add_policies(
	struct policy *p, const struct policy_dirs *dirs, const struct policy_edit *edits, size_t n, struct ak_err *err);
int policy_apply_edits(struct policy *p, const struct policy_edit *edits, size_t n, struct ak_err *err);

/* Parse TEXT and append it as a rule of the policy FROM. FROM must be static or in P's arena. */
int policy_add_host(struct policy *p, const char *text, bool allow, const char *from, struct ak_err *err);
int policy_add_cidr(struct policy *p, const char *text, bool allow, const char *from, struct ak_err *err);

/* Refuse an allow_cidr that lies in a range that no rule opens. Policy files may have one; it has no effect. */
int policy_can_open(const struct cidr_rule *rule, struct ak_err *err);

/*
 * policy_parse without edits that goes on after an error in the text itself and passes each to FN ("allow[3]: …"): -EBADMSG if there
 * were any. An error that ends the reading, such as wrong syntax, is in ERR as usual.
 */
typedef void (*policy_tell_fn)(void *ctx, const char *text);
int policy_tell_errors(const char *text, size_t len, const char *label, const struct policy_dirs *dirs, policy_tell_fn fn,
	void *ctx, struct policy **ret, struct ak_err *err);

/* ---- names and patterns ---- */

/* Parse a host pattern; strings are copied into ARENA. Does not set FROM and SEQ. */
int pattern_parse(const char *text, bool allow, struct arena *arena, struct host_rule *ret, struct ak_err *err);
int cidr_parse(const char *text, struct ak_addr *ret_net, uint8_t *ret_len, struct ak_err *err);

/* True for 1 to 63 characters of [A-Za-z0-9_-] that start and end with a letter or digit. */
bool policy_word_ok(const char *text);

/* Names are hashed from the last octet to the first, so that one pass yields the hash of every suffix. */
#define HOST_HASH_START 2166136261u
static inline uint32_t host_hash_step(uint32_t h, char c)
{
	return (h ^ (uint8_t)c) * 16777619u;
}
static inline uint32_t host_hash_end(uint32_t h)
{
	h ^= h >> 15;
	h *= 0x2c1b3c6du;
	return h ^ (h >> 12);
}

/* Return the entry of HOST, or NULL. HASH is the result of host_hash_end. */
const struct host_entry *policy_entry_find(const struct policy *p, uint32_t hash, const char *host, size_t len);

/* policy_print; without DEFAULTS only the limits that a file sets. */
void policy_print_all(const struct policy *p, bool defaults, struct strbuf *out);

/* ---- nat64.c ---- */

/* Extract the IPv4 address embedded in A by the network's NAT64 or by ISATAP. Returns false if there is none. */
bool hidden_v4(const struct policy *p, const struct ak_addr *a, struct ak_addr *ret);

#endif
