/*
 * The name table: sorted rules, one entry per host, and an open-addressing hash over the entries.
 * The built-in names are in the same table, so one lookup finds both.
 */
#include "gateway/base/cleanup.h"
#include "policies/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int cmp_host(const char *a, size_t a_len, const char *b, size_t b_len)
{
	int c = memcmp(a, b, a_len < b_len ? a_len : b_len);

	return c ? c : (a_len > b_len) - (a_len < b_len);
}

#define CMP(a, b) (((a) > (b)) - ((a) < (b)))

/* Order: host, exact before wildcard, port, protocol, deny before allow. Rules that compare equal are duplicates. */
static int cmp_rule_key(const struct host_rule *a, const struct host_rule *b)
{
	int c = cmp_host(a->host, a->host_len, b->host, b->host_len);

	if (c == 0)
		c = CMP(a->wild, b->wild);
	if (c == 0)
		c = CMP(a->port, b->port);
	if (c == 0)
		c = CMP(a->proto, b->proto);
	return c ? c : CMP(a->allow, b->allow);
}

static int cmp_rule(const void *va, const void *vb)
{
	const struct host_rule *a = va, *b = vb;
	int c = cmp_rule_key(a, b);

	return c ? c : CMP(a->seq, b->seq);
}

static int cmp_cidr_key(const struct cidr_rule *a, const struct cidr_rule *b)
{
	int c = ak_addr_cmp(&a->net, &b->net);

	if (c == 0)
		c = CMP(a->len, b->len);
	return c ? c : CMP(a->allow, b->allow);
}

static int cmp_cidr(const void *va, const void *vb)
{
	const struct cidr_rule *a = va, *b = vb;
	int c = cmp_cidr_key(a, b);

	return c ? c : CMP(a->seq, b->seq);
}

/* Sort the rules; of equal rules keep the one written first. */
static void sort_rules(struct policy *p)
{
	size_t n = 0;

	if (p->n_rules)
		qsort(p->rules, p->n_rules, sizeof(*p->rules), cmp_rule);
	for (size_t i = 0; i < p->n_rules; i++) {
		if (n == 0 || cmp_rule_key(&p->rules[n - 1], &p->rules[i]))
			p->rules[n++] = p->rules[i];
	}
	p->n_rules = n;
}

static void sort_cidrs(struct policy *p)
{
	size_t n = 0;

	if (p->n_cidrs)
		qsort(p->cidrs, p->n_cidrs, sizeof(*p->cidrs), cmp_cidr);
	for (size_t i = 0; i < p->n_cidrs; i++) {
		if (n == 0 || cmp_cidr_key(&p->cidrs[n - 1], &p->cidrs[i]))
			p->cidrs[n++] = p->cidrs[i];
	}
	p->n_cidrs = n;
}

/* ---- comparing two policies ---- */

/*
 * Comparing rules is enough because the most specific rule decides: an allow rule of P is also in LIMIT, and a more specific
 * deny rule of LIMIT would also be in P and decide there too.
 */
static bool hosts_within(const struct policy *p, const struct policy *limit)
{
	size_t i = 0, k = 0;

	while (i < p->n_rules || k < limit->n_rules) {
		int c = i == p->n_rules ? 1 : k == limit->n_rules ? -1 : cmp_rule_key(&p->rules[i], &limit->rules[k]);

		if ((c < 0 && p->rules[i].allow) || (c > 0 && !limit->rules[k].allow))
			return false;
		i += c <= 0;
		k += c >= 0;
	}
	return true;
}

static bool cidrs_within(const struct policy *p, const struct policy *limit)
{
	size_t i = 0, k = 0;

	while (i < p->n_cidrs || k < limit->n_cidrs) {
		int c = i == p->n_cidrs ? 1 : k == limit->n_cidrs ? -1 : cmp_cidr_key(&p->cidrs[i], &limit->cidrs[k]);

		if ((c < 0 && p->cidrs[i].allow) || (c > 0 && !limit->cidrs[k].allow))
			return false;
		i += c <= 0;
		k += c >= 0;
	}
	return true;
}

static bool limits_within(const struct policy_limits *p, const struct policy_limits *limit)
{
	return p->connections <= limit->connections && p->dns_qps <= limit->dns_qps &&
		(!limit->egress_bytes || (p->egress_bytes && p->egress_bytes <= limit->egress_bytes));
}

bool policy_within(const struct policy *p, const struct policy *limit)
{
	return (!p->default_allow || limit->default_allow) && limits_within(&p->limits, &limit->limits) &&
		hosts_within(p, limit) && cidrs_within(p, limit);
}

/* ---- the hash ---- */

static uint32_t host_hash(const char *host, size_t len)
{
	uint32_t h = HOST_HASH_START;

	while (len)
		h = host_hash_step(h, host[--len]);
	return host_hash_end(h);
}

const struct host_entry *policy_entry_find(const struct policy *p, uint32_t hash, const char *host, size_t len)
{
	for (uint32_t i = hash & p->slot_mask;; i = (i + 1) & p->slot_mask) {
		const struct host_slot *slot = &p->slots[i];
		const struct host_entry *e;

		if (!slot->entry)
			return NULL;
		if (slot->hash != hash)
			continue;
		e = &p->entries[slot->entry - 1];
		if (e->host_len == len && !memcmp(e->host, host, len))
			return e;
	}
}

static unsigned count_labels(const char *host, size_t len)
{
	unsigned n = 1;

	for (size_t i = 0; i < len; i++)
		n += host[i] == '.';
	return n;
}

static struct host_entry *add_entry(struct policy *p, const char *host, size_t len)
{
	uint32_t hash = host_hash(host, len), i = hash & p->slot_mask;
	struct host_entry *e = &p->entries[p->n_entries++];
	unsigned labels = count_labels(host, len);

	*e = (struct host_entry){ .host = host, .host_len = (uint16_t)len };
	while (p->slots[i].entry)
		i = (i + 1) & p->slot_mask;
	p->slots[i] = (struct host_slot){ .hash = hash, .entry = (uint32_t)p->n_entries };
	if (labels > p->max_labels)
		p->max_labels = labels;
	return e;
}

static void add_rule_entries(struct policy *p)
{
	struct host_entry *e = NULL;

	for (size_t i = 0; i < p->n_rules; i++) {
		const struct host_rule *r = &p->rules[i];

		if (r->host_len == 0) { /* "*" sorts first */
			p->n_root++;
			continue;
		}
		if (!e || cmp_host(e->host, e->host_len, r->host, r->host_len)) {
			e = add_entry(p, r->host, r->host_len);
			e->first = (uint32_t)i;
		}
		if (r->wild)
			e->n_wild++;
		else
			e->n_exact++;
	}
}

static void add_builtin_entries(struct policy *p)
{
	size_t n;
	const struct builtin_name *names = builtin_names(&n);

	for (size_t i = 0; i < n; i++) {
		size_t len = strlen(names[i].name);
		const struct host_entry *found = policy_entry_find(p, host_hash(names[i].name, len), names[i].name, len);
		struct host_entry *e = found ? &p->entries[found - p->entries] : add_entry(p, names[i].name, len);

		e->builtin = &names[i];
	}
}

static int build_names(struct policy *p)
{
	size_t n_builtin, most, n_slots = 64;

	builtin_names(&n_builtin);
	most = p->n_rules + n_builtin;
	while (n_slots < 2 * most)
		n_slots *= 2;
	p->entries = calloc(most, sizeof(*p->entries));
	p->slots = calloc(n_slots, sizeof(*p->slots));
	if (!p->entries || !p->slots)
		return -ENOMEM;
	p->slot_mask = (uint32_t)n_slots - 1;
	add_rule_entries(p);
	add_builtin_entries(p);
	return 0;
}

static void note_denials(struct policy *p)
{
	static const uint16_t ports[2] = { 80, 443 };

	for (size_t i = 0; i < p->n_rules; i++) {
		const struct host_rule *r = &p->rules[i];

		for (int proto = 0; proto < POLICY_PROTO_NUM && !r->allow; proto++) {
			for (int k = 0; k < 2; k++) {
				if (!r->port || (r->port == ports[k] && (r->proto == RULE_ANY || r->proto == proto)))
					p->denies_names[proto][k] = true;
			}
		}
	}
}

int policy_compile(struct policy *p, struct ak_err *err)
{
	sort_rules(p);
	sort_cidrs(p);
	note_denials(p);
	if (build_names(p) < 0 || policy_build_segments(p) < 0)
		return ak_fail(err, ENOMEM, "out of memory");
	if (!p->limits.connections)
		p->limits.connections = POLICY_CONNECTIONS_DEFAULT;
	if (!p->limits.dns_qps)
		p->limits.dns_qps = POLICY_DNS_QPS_DEFAULT;
	return 0;
}
