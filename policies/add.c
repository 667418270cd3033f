/* Adding whole policies and groups to a policy, by flag or by edit: see policies/policy.h. */
#include "gateway/base/cleanup.h"
#include "policies/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- pinned files ---- */

/* The length of the name in "NAME={…}"; 0 if TEXT is not a pinned file. */
static size_t pinned_name(const char *text)
{
	size_t n = strcspn(text, "=");
	char name[POLICY_WORD_MAX];

	if (n >= sizeof(name) || text[n] != '=' || text[n + 1] != '{')
		return 0;
	memcpy(name, text, n);
	name[n] = '\0';
	return policy_word_ok(name) ? n : 0;
}

bool policy_is_file(const char *text)
{
	size_t len = strlen(text);

	return !pinned_name(text) && (strchr(text, '/') || (len > 5 && !strcmp(text + len - 5, ".json")));
}

const char *policy_edit_label(const struct policy_edit *e, char buf[static POLICY_WORD_MAX])
{
	size_t n = e->op == POLICY_EDIT_ADD_POLICY ? pinned_name(e->text) : 0;

	if (n == 0)
		return e->text;
	memcpy(buf, e->text, n);
	buf[n] = '\0';
	return buf;
}

int policy_pin(const char *path, const struct policy_dirs *dirs, char **ret, struct ak_err *err)
{
	_cleanup_(policy_unrefp) struct policy *p = NULL;
	_cleanup_strbuf_ struct strbuf text = { 0 };
	int rc = policy_load(path, dirs, NULL, 0, &p, err);

	if (rc < 0)
		return rc;
	if (!policy_word_ok(p->name))
		return ak_fail(
			err, EINVAL, "%s: add a \"name\" of letters, digits, '-' and '_'; the file's own name is not one", path);
	strbuf_printf(&text, "%s=", p->name);
	policy_print_all(p, false, &text);
	if (text.len > POLICY_PIN_MAX)
		return ak_fail(err, EFBIG,
			"%s: larger than %u KiB with what it extends; copy it to your policy folder and give its name", path,
			POLICY_PIN_MAX >> 10);
	*ret = strbuf_take(&text);
	return *ret ? 0 : ak_fail(err, ENOMEM, "out of memory");
}

/* ---- adding ---- */

bool policy_is_group(const struct policy *p)
{
	for (size_t i = 0; i < p->n_rules; i++) {
		if (!p->rules[i].allow)
			return false;
	}
	for (size_t i = 0; i < p->n_cidrs; i++) {
		if (!p->cidrs[i].allow)
			return false;
	}
	return !p->default_allow && p->n_rules + p->n_cidrs > 0;
}

static int add_rules(struct policy *p, const struct policy *added, struct ak_err *err)
{
	const char *from = "", *kept = NULL;
	int rc = 0;

	for (size_t i = 0; i < added->n_rules + added->n_cidrs && rc >= 0; i++) {
		const struct host_rule *h = i < added->n_rules ? &added->rules[i] : NULL;
		const struct cidr_rule *c = h ? NULL : &added->cidrs[i - added->n_rules];
		const char *source = h ? h->from : c->from;

		if (!kept || strcmp(from, source) != 0) {
			from = source;
			kept = arena_copy(&p->arena, from, strlen(from));
		}
		if (!kept)
			return ak_fail(err, ENOMEM, "out of memory");
		rc = h ? policy_add_host(p, h->text, h->allow, kept, err) : policy_add_cidr(p, c->text, c->allow, kept, err);
	}
	return rc;
}

static void lower_limit(uint32_t *limit, bool *has, uint32_t added)
{
	if (!*has || added < *limit)
		*limit = added;
	*has = true;
}

static void add_limits(struct policy *p, const struct policy *added)
{
	uint64_t egress = added->limits.egress_bytes;

	if (added->has_connections)
		lower_limit(&p->limits.connections, &p->has_connections, added->limits.connections);
	if (added->has_dns_qps)
		lower_limit(&p->limits.dns_qps, &p->has_dns_qps, added->limits.dns_qps);
	if (egress && (!p->limits.egress_bytes || egress < p->limits.egress_bytes))
		p->limits.egress_bytes = egress;
}

/* Records name the policy in force: "codex+mine"; only "mine" if it stands on a policy without rules, such as native. */
static int add_name(struct policy *p, const struct policy *added, bool bare, struct ak_err *err)
{
	char name[POLICY_NAMES_MAX];
	int n = snprintf(name, sizeof(name), "%s%s%s", bare ? "" : p->name, bare ? "" : "+", added->name);

	if (n >= (int)sizeof(name))
		return ak_fail(err, E2BIG, "too many policies to name; put their rules in one file that extends them");
	p->name = arena_copy(&p->arena, name, (size_t)n);
	if (bare)
		p->description = arena_copy(&p->arena, added->description, strlen(added->description));
	return p->name && p->description ? 0 : ak_fail(err, ENOMEM, "out of memory");
}

static int load(const struct policy_edit *e, const struct policy_dirs *dirs, struct policy **ret, struct ak_err *err)
{
	size_t n = e->op == POLICY_EDIT_ADD_POLICY ? pinned_name(e->text) : 0;

	if (n)
		return policy_parse(e->text + n + 1, strlen(e->text + n + 1), "pinned", dirs, NULL, 0, ret, err);
	if (e->op == POLICY_EDIT_ALLOW_GROUP && policy_is_file(e->text))
		return ak_fail(err, EINVAL, "'%.100s': give the name of a group, not a file; for a file use --policy", e->text);
	return policy_load(e->text, dirs, NULL, 0, ret, err);
}

static int add_one(struct policy *p, const struct policy_dirs *dirs, const struct policy_edit *e, struct ak_err *err)
{
	_cleanup_(policy_unrefp) struct policy *added = NULL;
	bool bare = p->n_rules + p->n_cidrs == 0;
	int rc = load(e, dirs, &added, err);

	if (rc >= 0 && e->op == POLICY_EDIT_ALLOW_GROUP && !policy_is_group(added))
		rc = ak_fail(err, EINVAL, "'%s' is not a group: a group consists of allow rules; add it with --policy %s",
			e->text, e->text);
	if (rc >= 0)
		rc = add_rules(p, added, err);
	if (rc < 0 || e->op == POLICY_EDIT_ALLOW_GROUP)
		return rc;
	add_limits(p, added);
	p->default_allow = p->default_allow && added->default_allow;
	return add_name(p, added, bare, err);
}

int policy_add_policies(
	struct policy *p, const struct policy_dirs *dirs, const struct policy_edit *edits, size_t n, struct ak_err *err)
{
	for (size_t i = 0; i < n; i++) {
		int rc = 0;

		if (edits[i].op == POLICY_EDIT_ADD_POLICY || edits[i].op == POLICY_EDIT_ALLOW_GROUP)
			rc = add_one(p, dirs, &edits[i], err);
		if (rc < 0)
			return ak_err_prefix(err, rc == -ENOENT ? -EINVAL : rc, "--%s", policy_edit_name(edits[i].op));
	}
	return 0;
}
