/* Adding and removing rules, from files and from flags. */
#include "gateway/base/cleanup.h"
#include "policies/internal.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Make room for one more element of SIZE bytes. */
static int grow(void **array, size_t n, size_t *cap, size_t size, struct ak_err *err)
{
	size_t want = *cap ? *cap * 2 : 16;
	void *bigger;

	if (n < *cap)
		return 0;
	if (n >= POLICY_RULES_MAX)
		return ak_fail(err, E2BIG, "more than %d rules", POLICY_RULES_MAX);
	bigger = reallocarray(*array, want, size);
	if (!bigger)
		return ak_fail(err, ENOMEM, "out of memory");
	*array = bigger;
	*cap = want;
	return 0;
}

int policy_add_host(struct policy *p, const char *text, bool allow, const char *from, struct ak_err *err)
{
	struct host_rule rule = { .from = from, .seq = (uint32_t)p->n_rules };
	int rc = grow((void **)&p->rules, p->n_rules, &p->cap_rules, sizeof(*p->rules), err);

	if (rc >= 0)
		rc = pattern_parse(text, allow, &p->arena, &rule, err);
	if (rc < 0)
		return rc;
	p->rules[p->n_rules++] = rule;
	return 0;
}

int policy_add_cidr(struct policy *p, const char *text, bool allow, const char *from, struct ak_err *err)
{
	struct cidr_rule rule = { .from = from, .seq = (uint32_t)p->n_cidrs, .allow = allow };
	char addr[AK_ADDR_TEXT], buf[AK_ADDR_TEXT + 8];
	int rc = grow((void **)&p->cidrs, p->n_cidrs, &p->cap_cidrs, sizeof(*p->cidrs), err);

	if (rc >= 0)
		rc = cidr_parse(text, &rule.net, &rule.len, err);
	if (rc < 0)
		return rc;
	snprintf(buf, sizeof(buf), "%s/%u", ak_addr_print(&rule.net, addr), rule.len);
	rule.text = arena_copy(&p->arena, buf, strlen(buf));
	if (!rule.text)
		return ak_fail(err, ENOMEM, "out of memory");
	p->cidrs[p->n_cidrs++] = rule;
	return 0;
}

/* The longest built-in block that contains all of the range decides. */
int policy_can_open(const struct cidr_rule *rule, struct ak_err *err)
{
	const struct builtin_net *nets, *found = NULL;
	size_t n;

	nets = builtin_nets(&n);
	for (size_t i = 0; i < n; i++) {
		if (nets[i].net.family == rule->net.family && nets[i].len <= rule->len &&
			ak_addr_in_prefix(&rule->net, &nets[i].net, nets[i].len) && (!found || nets[i].len > found->len))
			found = &nets[i];
	}
	if (!found || (found->kind != BUILTIN_NEVER && found->kind != BUILTIN_EMBEDDED))
		return 0;
	if (found->kind == BUILTIN_EMBEDDED)
		return ak_fail(
			err, EINVAL, "'%s' can never be opened: it embeds IPv4 addresses; give the IPv4 range", rule->text);
	return ak_fail(err, EINVAL, "'%s' can never be opened (%s, blocked in every sandbox)", rule->text,
		found->reason == POLICY_REASON_METADATA ? "cloud metadata" : found->name);
}

/* ---- removing ---- */

static bool same_host_rule(const struct host_rule *a, const struct host_rule *b)
{
	return a->allow == b->allow && a->wild == b->wild && a->port == b->port && a->proto == b->proto &&
		a->host_len == b->host_len && !memcmp(a->host, b->host, a->host_len);
}

/* Parse the text both as an allow and as a deny rule, so that "x:443" finds "x:443/tcp" in an allow list. */
static size_t remove_hosts(struct policy *p, const char *text)
{
	size_t before = p->n_rules;
	struct ak_err ignored;

	for (int allow = 0; allow < 2; allow++) {
		struct host_rule rule = { 0 };
		size_t n = 0;

		if (pattern_parse(text, allow, &p->arena, &rule, &ignored) < 0)
			continue;
		for (size_t i = 0; i < p->n_rules; i++) {
			if (!same_host_rule(&p->rules[i], &rule))
				p->rules[n++] = p->rules[i];
		}
		p->n_rules = n;
	}
	return before - p->n_rules;
}

static size_t remove_cidrs(struct policy *p, const char *text)
{
	size_t before = p->n_cidrs, n = 0;
	struct ak_err ignored;
	struct ak_addr net;
	uint8_t len;

	if (cidr_parse(text, &net, &len, &ignored) < 0)
		return 0;
	for (size_t i = 0; i < p->n_cidrs; i++) {
		if (p->cidrs[i].len != len || !ak_addr_eq(&p->cidrs[i].net, &net))
			p->cidrs[n++] = p->cidrs[i];
	}
	p->n_cidrs = n;
	return before - n;
}

static int remove_rule(struct policy *p, const char *text, struct ak_err *err)
{
	if (remove_hosts(p, text) + remove_cidrs(p, text) == 0)
		return ak_fail(err, ENOENT, "'%.100s': no such rule", text);
	return 0;
}

/* ---- blocking by a flag ---- */

/* Does the block B cover everything that the allow rule A opens? */
static bool covers(const struct host_rule *b, const struct host_rule *a)
{
	if (b->port && (a->port != b->port || (b->proto != RULE_ANY && a->proto != b->proto)))
		return false;
	if (b->wild && b->host_len == 0)
		return true;
	if (!b->wild)
		return !a->wild && a->host_len == b->host_len && !memcmp(a->host, b->host, b->host_len);
	if (a->wild && a->host_len == b->host_len)
		return !memcmp(a->host, b->host, b->host_len);
	return a->host_len > b->host_len && a->host[a->host_len - b->host_len - 1] == '.' &&
		!memcmp(a->host + a->host_len - b->host_len, b->host, b->host_len);
}

/*
 * A block by flag must win even over a more specific allow rule of the policy file ("api.openai.com:443" against
 * "api.openai.com"), so remove the file rules that the block covers. Rules from other flags stay.
 */
static int block_host(struct policy *p, const char *text, struct ak_err *err)
{
	struct host_rule block;
	size_t n = 0;
	int rc = policy_add_host(p, text, false, "flags", err);

	if (rc < 0)
		return rc;
	block = p->rules[p->n_rules - 1];
	for (size_t i = 0; i < p->n_rules; i++) {
		const struct host_rule *r = &p->rules[i];

		if (!r->allow || !strcmp(r->from, "flags") || !covers(&block, r))
			p->rules[n++] = *r;
	}
	p->n_rules = n;
	return 0;
}

static int block_cidr(struct policy *p, const char *text, struct ak_err *err)
{
	struct cidr_rule block;
	size_t n = 0;
	int rc = policy_add_cidr(p, text, false, "flags", err);

	if (rc < 0)
		return rc;
	block = p->cidrs[p->n_cidrs - 1];
	for (size_t i = 0; i < p->n_cidrs; i++) {
		const struct cidr_rule *r = &p->cidrs[i];

		if (!r->allow || !strcmp(r->from, "flags") || r->len < block.len ||
			!ak_addr_in_prefix(&r->net, &block.net, block.len))
			p->cidrs[n++] = *r;
	}
	p->n_cidrs = n;
	return 0;
}

/* ---- edits ---- */

static int set_default(struct policy *p, const char *text, struct ak_err *err)
{
	if (strcmp(text, "allow") != 0 && strcmp(text, "deny") != 0)
		return ak_fail(err, EINVAL, "'%.100s' is neither allow nor deny", text);
	p->default_allow = !strcmp(text, "allow");
	return 0;
}

static int apply_edit(struct policy *p, const struct policy_edit *e, struct ak_err *err)
{
	switch (e->op) {
	case POLICY_EDIT_ALLOW_HOST:
		return policy_add_host(p, e->text, true, "flags", err);
	case POLICY_EDIT_BLOCK_HOST:
		return block_host(p, e->text, err);
	case POLICY_EDIT_ALLOW_CIDR:
		return policy_add_cidr(p, e->text, true, "flags", err);
	case POLICY_EDIT_BLOCK_CIDR:
		return block_cidr(p, e->text, err);
	case POLICY_EDIT_DEFAULT:
		return set_default(p, e->text, err);
	case POLICY_EDIT_REMOVE:
		return remove_rule(p, e->text, err);
	case POLICY_EDIT_ADD_POLICY:
	case POLICY_EDIT_ALLOW_GROUP:
		return 0; /* done by policy_add_policies */
	case POLICY_EDIT_NUM:
		break;
	}
	return ak_fail(err, EINVAL, "unknown edit");
}

static const char *const edit_names[] = {
	[POLICY_EDIT_ALLOW_HOST] = "allow-host",
	[POLICY_EDIT_BLOCK_HOST] = "block-host",
	[POLICY_EDIT_ALLOW_CIDR] = "allow-cidr",
	[POLICY_EDIT_BLOCK_CIDR] = "block-cidr",
	[POLICY_EDIT_DEFAULT] = "default",
	[POLICY_EDIT_REMOVE] = "remove",
	[POLICY_EDIT_ADD_POLICY] = "policy",
	[POLICY_EDIT_ALLOW_GROUP] = "allow-group",
};
static_assert(ARRAY_SIZE(edit_names) == POLICY_EDIT_NUM, "a name for each edit");

const char *policy_edit_name(enum policy_edit_op op)
{
	assert(op < POLICY_EDIT_NUM);
	return edit_names[op];
}

bool policy_edit_parse(const char *name, enum policy_edit_op *ret)
{
	for (int i = 0; i < POLICY_EDIT_NUM; i++) {
		if (!strcmp(edit_names[i], name)) {
			*ret = (enum policy_edit_op)i;
			return true;
		}
	}
	return false;
}

int policy_apply_edits(struct policy *p, const struct policy_edit *edits, size_t n, struct ak_err *err)
{
	for (size_t i = 0; i < n; i++) {
		int rc = apply_edit(p, &edits[i], err);

		if (rc < 0)
			return ak_err_prefix(err, rc, "--%s", policy_edit_name(edits[i].op));
	}
	return 0;
}

int policy_edit_check(enum policy_edit_op op, const char *text, struct ak_err *err)
{
	_cleanup_(policy_unrefp) struct policy *p = policy_new();
	const struct policy_edit e = { op, text };

	int rc;

	if (!p)
		return ak_fail(err, ENOMEM, "out of memory");
	rc = op == POLICY_EDIT_REMOVE ? 0 : apply_edit(p, &e, err);
	return rc == 0 && op == POLICY_EDIT_ALLOW_CIDR ? policy_can_open(&p->cidrs[0], err) : rc;
}
