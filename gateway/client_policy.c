/* The live policy of a sandbox: shown from its state, changed by the daemon. See client.h. */
#include "gateway/client.h"

#include "gateway/audit.h"
#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/state.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

/* ---- showing ---- */

static int put_policy(cJSON *obj, const struct policy *p, struct ak_err *err)
{
	_cleanup_strbuf_ struct strbuf text = { 0 };
	_cleanup_json_ cJSON *json = NULL;

	policy_print(p, &text);
	json = text.failed ? NULL : cJSON_Parse(text.data);
	if (!json || !cJSON_AddItemToObject(obj, "policy", json))
		return ak_fail(err, ENOMEM, "out of memory");
	(void)TAKE(json);
	return 0;
}

static bool put_change(cJSON *list, const struct state_edit *e)
{
	char when[AUDIT_TIME_MAX];
	cJSON *item = cJSON_CreateObject();

	if (!item || !cJSON_AddItemToArray(list, item)) {
		cJSON_Delete(item);
		return false;
	}
	return cJSON_AddStringToObject(item, "op", state_edit_name(e->op)) && cJSON_AddStringToObject(item, "text", e->text) &&
		(!e->until_us || cJSON_AddStringToObject(item, "until", audit_time_print(e->until_us, when)));
}

static int put_state(cJSON *obj, const struct state_sandbox *s, uint64_t now_us)
{
	cJSON *list;

	if (!cJSON_AddStringToObject(obj, "name", s->name) || !cJSON_AddNumberToObject(obj, "generation", (double)s->generation))
		return -ENOMEM;
	list = cJSON_AddArrayToObject(obj, "changes");
	for (size_t i = 0; list && i < s->n_edits; i++) {
		if (s->edits[i].until_us && s->edits[i].until_us <= now_us)
			continue;
		if (!put_change(list, &s->edits[i]))
			return -ENOMEM;
	}
	return list ? 0 : -ENOMEM;
}

int client_policy_show(const struct ak_paths *paths, const char *name, cJSON **ret, struct ak_err *err)
{
	_cleanup_(state_done) struct state_sandbox s = { 0 };
	_cleanup_(policy_unrefp) struct policy *p = NULL;
	_cleanup_json_ cJSON *obj = cJSON_CreateObject();
	uint64_t now = ak_wall_us();
	int rc = client_load(paths, name, &s, err);

	if (rc == 0)
		rc = state_policy(paths, &s, now, &p, err);
	if (rc < 0)
		return rc;
	if (!obj || put_state(obj, &s, now) < 0)
		return ak_fail(err, ENOMEM, "out of memory");
	rc = put_policy(obj, p, err);
	if (rc == 0)
		*ret = TAKE(obj);
	return rc;
}

/* ---- changing ---- */

static bool put_edit(cJSON *list, const struct policy_edit *e, uint64_t for_ms)
{
	cJSON *item = cJSON_CreateObject();

	if (!item || !cJSON_AddItemToArray(list, item)) {
		cJSON_Delete(item);
		return false;
	}
	return cJSON_AddStringToObject(item, "op", state_edit_name(e->op)) && cJSON_AddStringToObject(item, "text", e->text) &&
		(!for_ms || cJSON_AddNumberToObject(item, "for_ms", (double)for_ms));
}

int client_policy_change(
	const struct ak_paths *paths, const char *name, const struct client_change *change, cJSON **ret, struct ak_err *err)
{
	_cleanup_json_ cJSON *request = cJSON_CreateObject();
	struct state_sandbox s = { 0 };
	cJSON *list;
	int rc = client_load(paths, name, &s, err); /* no daemon is started for a name that no one has */

	if (rc < 0)
		return rc;
	state_done(&s);
	if (!request || !cJSON_AddStringToObject(request, "name", name) ||
		!cJSON_AddBoolToObject(request, "reset", change->reset))
		return ak_fail(err, ENOMEM, "out of memory");
	list = cJSON_AddArrayToObject(request, "edits");
	for (size_t i = 0; list && i < change->n_edits; i++) {
		if (!put_edit(list, &change->edits[i], change->for_ms))
			list = NULL;
	}
	if (!list)
		return ak_fail(err, ENOMEM, "out of memory");
	rc = client_call(paths, true, "policy", TAKE(request), NULL, err);
	return rc < 0 ? rc : client_policy_show(paths, name, ret, err);
}

/* ---- a file's rules as edits ---- */

void client_edits_free(struct policy_edit *edits, size_t n)
{
	for (size_t i = 0; edits && i < n; i++)
		free((char *)(uintptr_t)edits[i].text);
	free(edits);
}

/* A rule is its text, or an object that says where it came from. */
static const char *rule_text(const cJSON *rule)
{
	const cJSON *text = cJSON_IsObject(rule) ? cJSON_GetObjectItemCaseSensitive(rule, "rule") : rule;

	return cJSON_IsString(text) ? text->valuestring : NULL;
}

static int add_edit(struct policy_edit **edits, size_t *n, enum policy_edit_op op, const char *text)
{
	struct policy_edit *grown = reallocarray(*edits, *n + 1, sizeof(*grown));
	char *copy = text ? strdup(text) : NULL;

	if (grown)
		*edits = grown;
	if (!grown || !copy) {
		free(copy);
		return -ENOMEM;
	}
	grown[(*n)++] = (struct policy_edit){ op, copy };
	return 0;
}

static int add_rules(const cJSON *json, struct policy_edit **edits, size_t *n)
{
	static const struct {
		const char *key;
		enum policy_edit_op op;
	} lists[] = {
		{ "allow", POLICY_EDIT_ALLOW_HOST },
		{ "deny", POLICY_EDIT_BLOCK_HOST },
		{ "allow_cidr", POLICY_EDIT_ALLOW_CIDR },
		{ "deny_cidr", POLICY_EDIT_BLOCK_CIDR },
	};
	const cJSON *rule;

	for (size_t i = 0; i < ARRAY_SIZE(lists); i++) {
		cJSON_ArrayForEach(rule, cJSON_GetObjectItemCaseSensitive(json, lists[i].key)) {
			if (add_edit(edits, n, lists[i].op, rule_text(rule)) < 0)
				return -ENOMEM;
		}
	}
	return 0;
}

/* The file itself says whether it has a word on the default; the compiled form always has one. */
static int add_default(const char *file, struct policy_edit **edits, size_t *n, struct ak_err *err)
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
	return word && add_edit(edits, n, POLICY_EDIT_DEFAULT, word) < 0 ? ak_fail(err, ENOMEM, "out of memory") : 0;
}

int client_edits_of_file(
	const struct ak_paths *paths, const char *file, struct policy_edit **ret, size_t *ret_n, struct ak_err *err)
{
	_cleanup_(policy_unrefp) struct policy *p = NULL;
	_cleanup_strbuf_ struct strbuf text = { 0 };
	_cleanup_json_ cJSON *json = NULL;
	char storage[3][PATH_MAX], path[PATH_MAX];
	struct policy_edit *edits = NULL;
	struct policy_dirs dirs;
	size_t n = 0;
	int rc;

	/* It is a file, even when it is called just "mine". */
	if (snprintf(path, sizeof(path), "%s%s", strchr(file, '/') ? "" : "./", file) >= (int)sizeof(path))
		return ak_fail(err, ENAMETOOLONG, "'%.60s…': path too long", file);
	ak_paths_policy_dirs(paths, storage, &dirs);
	rc = policy_load(path, &dirs, NULL, 0, &p, err);
	if (rc < 0)
		return rc;
	policy_print(p, &text);
	json = text.failed ? NULL : cJSON_Parse(text.data);
	rc = add_default(path, &edits, &n, err);
	if (rc == 0 && (!json || add_rules(json, &edits, &n) < 0))
		rc = ak_fail(err, ENOMEM, "out of memory");
	if (rc < 0) {
		client_edits_free(edits, n);
		return rc;
	}
	*ret = edits;
	*ret_n = n;
	return 0;
}
