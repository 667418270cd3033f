/* The live policy of a sandbox: read from its state, changed by the daemon. See service/service.h. */
#include "gateway/service/service.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/store/info.h"
#include "gateway/store/policy_dirs.h"
#include "gateway/store/state.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

/* ---- show ---- */

int service_policy_show(const struct ak_paths *paths, const char *name, cJSON **ret, struct ak_err *err)
{
	_cleanup_(state_done) struct state_sandbox s = { 0 };
	_cleanup_(policy_unrefp) struct policy *p = NULL;
	uint64_t now = ak_wall_us();
	int rc = service_load(paths, name, &s, err);

	if (rc == 0)
		rc = state_policy(paths, &s, now, &p, err);
	if (rc < 0)
		return rc;
	*ret = sandbox_policy_json(&s, p, now);
	return *ret ? 0 : ak_fail(err, ENOMEM, "out of memory");
}

/* ---- rules as edits ---- */

struct edits {
	struct policy_edit *list; /* owned, and so are the texts */
	size_t n;
};

static const struct {
	const char *key;
	enum policy_edit_op op;
} lists[] = {
	{ "allow", POLICY_EDIT_ALLOW_HOST },
	{ "deny", POLICY_EDIT_BLOCK_HOST },
	{ "allow_cidr", POLICY_EDIT_ALLOW_CIDR },
	{ "deny_cidr", POLICY_EDIT_BLOCK_CIDR },
};

void service_edits_free(struct policy_edit *edits, size_t n)
{
	for (size_t i = 0; edits && i < n; i++)
		free((char *)(uintptr_t)edits[i].text);
	free(edits);
}

static void edits_done(struct edits *e)
{
	service_edits_free(e->list, e->n);
}

/* If RC is 0, move the list to the caller; else return RC, with a reason for -ENOMEM. */
static int edits_take(struct edits *e, int rc, struct policy_edit **ret, size_t *ret_n, struct ak_err *err)
{
	if (rc < 0)
		return rc == -ENOMEM ? ak_fail(err, ENOMEM, "out of memory") : rc;
	*ret = TAKE(e->list);
	*ret_n = e->n;
	return 0;
}

/* A rule is a string, or an object with the string and its origin. */
static const char *rule_text(const cJSON *rule)
{
	const cJSON *text = cJSON_IsObject(rule) ? cJSON_GetObjectItemCaseSensitive(rule, "rule") : rule;

	return cJSON_IsString(text) ? text->valuestring : NULL;
}

static int add_edit(struct edits *e, enum policy_edit_op op, const char *text)
{
	struct policy_edit *grown = reallocarray(e->list, e->n + 1, sizeof(*grown));
	char *copy = text ? strdup(text) : NULL;

	if (grown)
		e->list = grown;
	if (!grown || !copy) {
		free(copy);
		return -ENOMEM;
	}
	grown[e->n++] = (struct policy_edit){ op, copy };
	return 0;
}

static int add_rules(struct edits *e, const cJSON *json)
{
	const cJSON *rule;

	for (size_t i = 0; i < ARRAY_SIZE(lists); i++) {
		cJSON_ArrayForEach(rule, cJSON_GetObjectItemCaseSensitive(json, lists[i].key)) {
			if (add_edit(e, lists[i].op, rule_text(rule)) < 0)
				return -ENOMEM;
		}
	}
	return 0;
}

/* ---- a whole policy as edits ---- */

static bool has_rule(const struct service_change *change, enum policy_edit_op op, const char *text)
{
	for (size_t i = 0; i < change->n_edits; i++) {
		if (change->edits[i].op == op && !strcmp(change->edits[i].text, text))
			return true;
	}
	return false;
}

/* Remove the rules of the mode's policy that CHANGE does not have; leave the others unchanged. */
static int add_removals(struct edits *e, const cJSON *base, const struct service_change *change)
{
	const cJSON *rule;

	for (size_t i = 0; i < ARRAY_SIZE(lists); i++) {
		cJSON_ArrayForEach(rule, cJSON_GetObjectItemCaseSensitive(base, lists[i].key)) {
			const char *text = rule_text(rule);

			if (text && !has_rule(change, lists[i].op, text) && add_edit(e, POLICY_EDIT_REMOVE, text) < 0)
				return -ENOMEM;
		}
	}
	return 0;
}

/* The policy of the sandbox's mode as JSON, without edits. */
static int base_policy(const struct ak_paths *paths, const char *name, cJSON **ret, struct ak_err *err)
{
	_cleanup_(policy_unrefp) struct policy *p = NULL;
	_cleanup_strbuf_ struct strbuf text = { 0 };
	_cleanup_(state_done) struct state_sandbox s = { 0 };
	int rc = service_load(paths, name, &s, err);

	if (rc < 0)
		return rc;
	state_edits_clear(&s);
	rc = state_policy(paths, &s, ak_wall_us(), &p, err);
	if (rc < 0)
		return rc;
	policy_print(p, &text);
	*ret = text.failed ? NULL : cJSON_Parse(text.data);
	return *ret ? 0 : -ENOMEM;
}

/* The default comes first, so that one in CHANGE replaces it. */
static int whole_policy(const struct ak_paths *paths, const char *name, const struct service_change *change, struct edits *ret,
	struct ak_err *err)
{
	_cleanup_json_ cJSON *base = NULL;
	int rc = base_policy(paths, name, &base, err);

	if (rc == 0)
		rc = add_edit(ret, POLICY_EDIT_DEFAULT, "deny");
	if (rc == 0)
		rc = add_removals(ret, base, change);
	for (size_t i = 0; i < change->n_edits && rc == 0; i++)
		rc = add_edit(ret, change->edits[i].op, change->edits[i].text);
	return rc == -ENOMEM ? ak_fail(err, ENOMEM, "out of memory") : rc;
}

/* ---- change ---- */

static bool put_edit(cJSON *list, const struct policy_edit *e, uint64_t for_ms)
{
	cJSON *item = cJSON_CreateObject();

	if (!item || !cJSON_AddItemToArray(list, item)) {
		cJSON_Delete(item);
		return false;
	}
	return cJSON_AddStringToObject(item, "op", policy_edit_name(e->op)) && cJSON_AddStringToObject(item, "text", e->text) &&
		(!for_ms || cJSON_AddNumberToObject(item, "for_ms", (double)for_ms));
}

static int send_change(
	const struct ak_paths *paths, const char *name, const struct service_change *change, cJSON **ret, struct ak_err *err)
{
	_cleanup_json_ cJSON *request = cJSON_CreateObject();
	struct state_sandbox s = { 0 };
	cJSON *list;
	int rc = service_load(paths, name, &s, err); /* start no daemon if there is no such sandbox */

	if (rc < 0)
		return rc;
	state_done(&s);
	if (!request || !cJSON_AddStringToObject(request, "name", name) ||
		!cJSON_AddBoolToObject(request, "reset", change->reset) || !cJSON_AddBoolToObject(request, "mcp", change->mcp))
		return ak_fail(err, ENOMEM, "out of memory");
	list = cJSON_AddArrayToObject(request, "edits");
	for (size_t i = 0; list && i < change->n_edits; i++) {
		if (!put_edit(list, &change->edits[i], change->for_ms))
			list = NULL;
	}
	if (!list)
		return ak_fail(err, ENOMEM, "out of memory");
	return service_call(paths, true, "policy", TAKE(request), ret, err);
}

int service_policy_change(
	const struct ak_paths *paths, const char *name, const struct service_change *change, cJSON **ret, struct ak_err *err)
{
	_cleanup_(edits_done) struct edits all = { 0 };
	struct service_change own = *change;
	int rc = change->whole ? whole_policy(paths, name, change, &all, err) : 0;

	if (change->whole) {
		own.reset = true;
		own.edits = all.list;
		own.n_edits = all.n;
	}
	return rc < 0 ? rc : send_change(paths, name, &own, ret, err);
}

/* ---- a file's rules as edits ---- */

/* Read "default" from the file itself: the compiled policy always has one, even if the file has none. */
static int add_default(struct edits *e, const char *file, struct ak_err *err)
{
	_cleanup_free_ char *text = NULL;
	_cleanup_json_ cJSON *json = NULL;
	const char *word = NULL;
	size_t len;
	int rc = ak_read_file(AT_FDCWD, file, 1u << 20, &text, &len);

	if (rc < 0)
		return ak_fail_errno(err, -rc, "%s", file);
	rc = json_parse(text, len, &json, err);
	if (rc == 0)
		rc = json_get_string(json, "default", &word, err);
	if (rc < 0)
		return ak_err_prefix(err, rc, "%s", file);
	return word ? add_edit(e, POLICY_EDIT_DEFAULT, word) : 0;
}

int service_edits_of_file(
	const struct ak_paths *paths, const char *file, struct policy_edit **ret, size_t *ret_n, struct ak_err *err)
{
	_cleanup_(policy_unrefp) struct policy *p = NULL;
	_cleanup_strbuf_ struct strbuf text = { 0 };
	_cleanup_json_ cJSON *json = NULL;
	char path[PATH_MAX];
	_cleanup_(edits_done) struct edits e = { 0 };
	int rc;

	/* FILE is always a path: prefix "./" so that a plain name is not taken for the name of a policy. */
	if (snprintf(path, sizeof(path), "%s%s", strchr(file, '/') ? "" : "./", file) >= (int)sizeof(path))
		return ak_fail(err, ENAMETOOLONG, "'%.60s…': path too long", file);
	rc = ak_policy_load(paths, path, NULL, 0, &p, err);
	if (rc < 0)
		return rc;
	policy_print(p, &text);
	json = text.failed ? NULL : cJSON_Parse(text.data);
	rc = add_default(&e, path, err);
	if (rc == 0)
		rc = json ? add_rules(&e, json) : -ENOMEM;
	return edits_take(&e, rc, ret, ret_n, err);
}
