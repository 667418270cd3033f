/* API for policies: the installed ones, and the live policy of a sandbox. All of it runs in workers. See http/http.h. */
#include "gateway/http/http.h"

#include "gateway/base/cleanup.h"
#include "gateway/service/service.h"
#include "gateway/store/policy_dirs.h"
#include "gateway/store/publish.h"

#include <errno.h>
#include <stdlib.h>
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

static int decode(
	const struct http_call *c, enum field_verb verb, struct run_request *o, struct field_mem *mem, struct ak_err *err)
{
	int rc = o ? fields_decode(verb, FIELD_HTTP, c->body, o, mem, err) : ak_fail(err, ENOMEM, "out of memory");

	if (rc == 0 && verb == VERB_POLICY_CHANGE && !o->reset && !o->n_edits)
		rc = ak_fail(err, EINVAL, "the body contains no change");
	return rc;
}

static void change(struct http_call *c, struct work *w, enum field_verb verb)
{
	_cleanup_(field_mem_done) struct field_mem mem = { 0 };
	_cleanup_free_ struct run_request *o = calloc(1, sizeof(*o));
	_cleanup_json_ cJSON *now = NULL;
	struct service_change ch = { .whole = verb == VERB_POLICY_PUT };
	struct ak_err err;
	int rc = decode(c, verb, o, &mem, &err);

	if (rc == 0) {
		ch.reset = o->reset;
		ch.for_ms = o->for_ms;
		ch.edits = o->edits;
		ch.n_edits = o->n_edits;
		rc = service_policy_change(c->s->paths, c->params.name, &ch, &now, &err);
	}
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
	change(c, w, VERB_POLICY_PUT);
}

void http_work_policy_patch(struct http_call *c, struct work *w)
{
	change(c, w, VERB_POLICY_CHANGE);
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
