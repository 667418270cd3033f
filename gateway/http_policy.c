/* Policies by way of the API: those that exist, and the live one of a sandbox. All of it runs in workers. See http.h. */
#include "gateway/http.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/client.h"
#include "gateway/state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- the policies that exist ---- */

void http_work_policies(struct http_call *c, struct http_work *w)
{
	_cleanup_strbuf_ struct strbuf out = { 0 };
	_cleanup_free_ struct client_policy_file *files = NULL;
	char storage[3][PATH_MAX];
	struct policy_dirs dirs;
	struct ak_err err;
	size_t n = 0;
	int rc = client_policies(w->paths, &files, &n, &err);

	(void)c;
	if (rc < 0) {
		http_work_fail(w, rc == -EINVAL ? -EIO : rc, &err);
		return;
	}
	ak_paths_policy_dirs(w->paths, storage, &dirs);
	strbuf_putc(&out, '[');
	for (size_t i = 0; i < n; i++) {
		_cleanup_(policy_unrefp) struct policy *p = NULL;

		(void)policy_load(files[i].path, &dirs, NULL, 0, &p, &err);
		strbuf_printf(&out, "%s{\"name\":\"%s\",", i ? "," : "", files[i].name);
		client_policy_put(&out, p, &err);
		strbuf_putc(&out, '}');
	}
	strbuf_putc(&out, ']');
	if (out.failed)
		http_work_data(w, 500, "out of memory", 13);
	else
		http_work_data(w, 200, out.data, out.len);
}

void http_work_policy_named(struct http_call *c, struct http_work *w)
{
	_cleanup_(policy_unrefp) struct policy *p = NULL;
	_cleanup_strbuf_ struct strbuf out = { 0 };
	char storage[3][PATH_MAX];
	struct policy_dirs dirs;
	struct ak_err err;
	int rc;

	ak_paths_policy_dirs(w->paths, storage, &dirs);
	rc = policy_load(c->params.name, &dirs, NULL, 0, &p, &err);
	if (rc < 0) {
		http_work_fail(w, rc == -ENOENT ? rc : -EIO, &err);
		return;
	}
	policy_print(p, &out);
	while (out.len && out.data[out.len - 1] == '\n')
		out.len--;
	if (!out.failed)
		http_work_data(w, 200, out.data, out.len);
}

/* ---- the live policy ---- */

static const struct {
	const char *key;
	enum policy_edit_op op;
} lists[] = {
	{ "allow", POLICY_EDIT_ALLOW_HOST },
	{ "deny", POLICY_EDIT_BLOCK_HOST },
	{ "allow_cidr", POLICY_EDIT_ALLOW_CIDR },
	{ "deny_cidr", POLICY_EDIT_BLOCK_CIDR },
	{ "remove", POLICY_EDIT_REMOVE },
};

struct edits {
	struct policy_edit *list; /* owned; the texts are borrowed */
	size_t n;
};

static int add_edit(struct edits *e, enum policy_edit_op op, const char *text)
{
	struct policy_edit *grown = reallocarray(e->list, e->n + 1, sizeof(*grown));

	if (!grown)
		return -ENOMEM;
	e->list = grown;
	e->list[e->n++] = (struct policy_edit){ op, text };
	return 0;
}

static int add_body(struct edits *e, const cJSON *body)
{
	const cJSON *word = cJSON_GetObjectItemCaseSensitive(body, "default"), *rule;
	int rc = cJSON_IsString(word) ? add_edit(e, POLICY_EDIT_DEFAULT, word->valuestring) : 0;

	for (size_t i = 0; i < ARRAY_SIZE(lists) && rc == 0; i++) {
		cJSON_ArrayForEach(rule, cJSON_GetObjectItemCaseSensitive(body, lists[i].key)) {
			rc = add_edit(e, lists[i].op, rule->valuestring);
			if (rc < 0)
				break;
		}
	}
	return rc;
}

/* Rules of the mode's own file that the body does not repeat go; those that both have are left as they are. */
static const char *rule_text(const cJSON *rule)
{
	const cJSON *text = cJSON_IsObject(rule) ? cJSON_GetObjectItemCaseSensitive(rule, "rule") : rule;

	return cJSON_IsString(text) ? text->valuestring : NULL;
}

static bool has_rule(const cJSON *list, const char *text)
{
	const cJSON *rule;

	cJSON_ArrayForEach(rule, list) {
		if (!strcmp(rule_text(rule) ? rule_text(rule) : "", text))
			return true;
	}
	return false;
}

static int add_removals(struct edits *e, const cJSON *base, const cJSON *body)
{
	const cJSON *rule;

	for (size_t i = 0; i < ARRAY_SIZE(lists); i++) {
		cJSON_ArrayForEach(rule, cJSON_GetObjectItemCaseSensitive(base, lists[i].key)) {
			const char *text = rule_text(rule);

			if (text && !has_rule(cJSON_GetObjectItemCaseSensitive(body, lists[i].key), text) &&
				add_edit(e, POLICY_EDIT_REMOVE, text) < 0)
				return -ENOMEM;
		}
	}
	return 0;
}

/* The policy of the sandbox's mode as JSON, without any change. */
static int base_policy(const struct ak_paths *paths, const char *name, cJSON **ret, struct ak_err *err)
{
	_cleanup_(policy_unrefp) struct policy *p = NULL;
	_cleanup_strbuf_ struct strbuf text = { 0 };
	struct state_sandbox s = { 0 };
	int rc = state_load(paths, name, &s, err);

	if (rc < 0)
		return rc;
	state_edits_clear(&s);
	rc = state_policy(paths, &s, ak_wall_us(), &p, err);
	state_done(&s);
	if (rc < 0)
		return rc;
	policy_print(p, &text);
	*ret = text.failed ? NULL : cJSON_Parse(text.data);
	return *ret ? 0 : ak_fail(err, ENOMEM, "out of memory");
}

static void change(struct http_call *c, struct http_work *w, const struct edits *e, bool reset, uint64_t for_ms)
{
	struct client_change ch = { .reset = reset, .edits = e->list, .n_edits = e->n, .for_ms = for_ms };
	_cleanup_json_ cJSON *now = NULL;
	struct ak_err err;
	int rc = client_policy_change(w->paths, c->params.name, &ch, &now, &err);

	if (rc < 0)
		http_work_fail(w, rc, &err);
	else
		http_work_json(w, 200, now);
}

void http_work_policy_get(struct http_call *c, struct http_work *w)
{
	_cleanup_json_ cJSON *now = NULL;
	struct ak_err err;
	int rc = client_policy_show(w->paths, c->params.name, &now, &err);

	if (rc < 0)
		http_work_fail(w, rc, &err);
	else
		http_work_json(w, 200, now);
}

void http_work_policy_put(struct http_call *c, struct http_work *w)
{
	_cleanup_json_ cJSON *base = NULL;
	struct edits e = { 0 };
	struct ak_err err = { "out of memory" };
	int rc = base_policy(w->paths, c->params.name, &base, &err);

	/* A whole policy that is silent on its default denies. */
	if (rc == 0 && !http_body_text(c, "default"))
		rc = add_edit(&e, POLICY_EDIT_DEFAULT, "deny");
	if (rc == 0)
		rc = add_removals(&e, base, c->body);
	if (rc == 0)
		rc = add_body(&e, c->body);
	if (rc < 0)
		http_work_fail(w, rc, &err);
	else
		change(c, w, &e, true, 0);
	free(e.list);
}

void http_work_policy_patch(struct http_call *c, struct http_work *w)
{
	bool reset = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(c->body, "reset"));
	struct ak_err err = { "out of memory" };
	struct edits e = { 0 };
	uint64_t for_ms = 0;
	int rc = json_get_uint(c->body, "for_ms", UINT64_MAX >> 12, &for_ms, &err);

	if (rc >= 0)
		rc = add_body(&e, c->body);
	if (rc == 0 && !reset && !e.n)
		rc = ak_fail(&err, EINVAL, "the body: no change in it");
	if (rc < 0)
		http_work_fail(w, rc, &err);
	else
		change(c, w, &e, reset, for_ms);
	free(e.list);
}

/* ---- check ---- */

void http_work_check(struct http_call *c, struct http_work *w)
{
	_cleanup_(policy_unrefp) struct policy *p = NULL;
	_cleanup_strbuf_ struct strbuf out = { 0 };
	struct client_verdict v;
	struct policy_target t;
	struct ak_err err;
	int rc = policy_target_parse(http_body_text(c, "target"), &t, &err);

	if (rc < 0)
		rc = ak_err_prefix(&err, -EINVAL, "target");
	if (rc == 0)
		rc = client_sandbox_policy(w->paths, c->params.name, NULL, 0, &p, &err);
	if (rc < 0) {
		http_work_fail(w, rc, &err);
		return;
	}
	client_check(p, &t, &v);
	strbuf_putc(&out, '{');
	client_verdict_put(&out, &v);
	strbuf_putc(&out, '}');
	if (!out.failed)
		http_work_data(w, 200, out.data, out.len);
}
