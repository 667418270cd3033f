/* API for policies: the installed ones, and the live policy of a sandbox. All of it runs in workers. See http/http.h. */
#include "gateway/http/http.h"

#include "gateway/base/cleanup.h"
#include "gateway/service/service.h"
#include "gateway/store/policy_dirs.h"
#include "gateway/store/publish.h"

#include <errno.h>
#include <string.h>

/* ---- installed policies ---- */

void http_work_policies(struct http_call *c, struct work *w)
{
	_cleanup_strbuf_ struct strbuf out = { 0 };
	_cleanup_free_ struct service_policy_file *files = NULL;
	struct ak_err err;
	size_t n = 0;
	int rc = service_policies(c->s->paths, &files, &n, &err);

	if (rc < 0) {
		work_fail(w, rc == -EINVAL ? -EIO : rc, &err);
		return;
	}
	strbuf_putc(&out, '[');
	for (size_t i = 0; i < n; i++) {
		_cleanup_(policy_unrefp) struct policy *p = NULL;

		(void)ak_policy_load(c->s->paths, files[i].path, NULL, 0, &p, &err);
		strbuf_printf(&out, "%s{\"name\":\"%s\",", i ? "," : "", files[i].name);
		service_policy_put(&out, files[i].name, p, &err);
		strbuf_putc(&out, '}');
	}
	strbuf_putc(&out, ']');
	work_end_buf(w, 0, &out, NULL);
}

void http_work_policy_named(struct http_call *c, struct work *w)
{
	_cleanup_(policy_unrefp) struct policy *p = NULL;
	_cleanup_strbuf_ struct strbuf out = { 0 };
	struct ak_err err;
	int rc = ak_policy_load(c->s->paths, c->params.name, NULL, 0, &p, &err);

	if (rc < 0) {
		work_fail(w, rc == -ENOENT ? rc : -EIO, &err);
		return;
	}
	policy_print(p, &out);
	while (out.len && out.data[out.len - 1] == '\n')
		out.len--;
	work_end_buf(w, 0, &out, NULL);
}

/* ---- the live policy ---- */

/* Takes EDITS over. */
static void change(struct http_call *c, struct work *w, struct policy_edit *edits, size_t n, bool reset, uint64_t for_ms)
{
	struct service_change ch = { .reset = reset, .edits = edits, .n_edits = n, .for_ms = for_ms };
	_cleanup_json_ cJSON *now = NULL;
	struct ak_err err;
	int rc = service_policy_change(c->s->paths, c->params.name, &ch, &now, &err);

	service_edits_free(edits, n);
	work_end_json(w, rc, now, &err);
}

void http_work_policy_get(struct http_call *c, struct work *w)
{
	_cleanup_json_ cJSON *now = NULL;
	struct ak_err err;
	int rc = service_policy_show(c->s->paths, c->params.name, &now, &err);

	work_end_json(w, rc, now, &err);
}

void http_work_policy_put(struct http_call *c, struct work *w)
{
	struct policy_edit *edits = NULL;
	struct ak_err err;
	size_t n = 0;
	int rc = service_edits_of_whole(c->s->paths, c->params.name, c->body, &edits, &n, &err);

	if (rc < 0)
		work_fail(w, rc, &err);
	else
		change(c, w, edits, n, true, 0);
}

void http_work_policy_patch(struct http_call *c, struct work *w)
{
	bool reset = json_truth(c->body, "reset");
	struct policy_edit *edits = NULL;
	struct ak_err err;
	uint64_t for_ms = 0;
	size_t n = 0;
	int rc = json_get_uint(c->body, "for_ms", UINT64_MAX >> 12, &for_ms, &err);

	if (rc >= 0)
		rc = service_edits_of_json(c->body, &edits, &n, &err);
	if (rc == 0 && !reset && !n)
		rc = ak_fail(&err, EINVAL, "the body contains no change");
	if (rc < 0)
		work_fail(w, rc, &err);
	else
		change(c, w, edits, n, reset, for_ms);
}

/* ---- check ---- */

void http_work_check(struct http_call *c, struct work *w)
{
	_cleanup_(policy_unrefp) struct policy *p = NULL;
	_cleanup_strbuf_ struct strbuf out = { 0 };
	struct service_verdict v;
	struct policy_target t;
	struct ak_err err;
	int rc = policy_target_parse(http_body_text(c, "target"), &t, &err);

	if (rc < 0)
		rc = ak_err_prefix(&err, -EINVAL, "target");
	if (rc == 0)
		rc = service_sandbox_policy(c->s->paths, c->params.name, NULL, 0, &p, &err);
	if (rc < 0) {
		work_fail(w, rc, &err);
		return;
	}
	service_check(p, &t, &v);
	strbuf_putc(&out, '{');
	service_verdict_put(&out, &v);
	strbuf_putc(&out, '}');
	work_end_buf(w, 0, &out, NULL);
}

/* ---- published ports ---- */

void http_work_publish(struct http_call *c, struct work *w)
{
	struct service_ports ports = { .n_add = 0 };
	_cleanup_json_ cJSON *now = NULL;
	struct ak_err err;
	int rc = publish_get(c->body, "publish", ports.add, &ports.n_add, &err);

	if (rc == 0)
		rc = publish_get(c->body, "remove", ports.drop, &ports.n_drop, &err);
	if (rc == 0)
		rc = service_publish(c->s->paths, c->params.name, &ports, &now, &err);
	if (rc == 0)
		cJSON_DeleteItemFromObjectCaseSensitive(now, "notes");
	work_end_json(w, rc, now, &err);
}
