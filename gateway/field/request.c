/* Store checked values in the typed request. See field/field.h. */
#include "gateway/field/internal.h"

#include "gateway/base/cleanup.h"
#include "gateway/store/mounts.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- setters for fields that do not map to one member as they are ---- */

/* The first member of a request: its offset is 0, which stands for "none". */
int field_set_name(struct run_request *o, const struct field *f, const struct field_value *v, struct ak_err *err)
{
	o->name = v->text;
	return 0;
}

int field_set_mode(struct run_request *o, const struct field *f, const struct field_value *v, struct ak_err *err)
{
	return ak_mode_choose(v->text, &o->mode, &o->own, err);
}

int field_set_agent_state(struct run_request *o, const struct field *f, const struct field_value *v, struct ak_err *err)
{
	return agent_state_parse(v->text, &o->agent_state, err);
}

/* Whether it is on this machine is decided later. */
int field_set_image(struct run_request *o, const struct field *f, const struct field_value *v, struct ak_err *err)
{
	struct image_ref ignored;

	o->image = v->text;
	return image_ref_parse(v->text, &ignored, err);
}

int field_set_profile(struct run_request *o, const struct field *f, const struct field_value *v, struct ak_err *err)
{
	return ak_profile_parse(v->text, &o->profile, err);
}

int field_set_backend(struct run_request *o, const struct field *f, const struct field_value *v, struct ak_err *err)
{
	return run_request_backend(o, v->text, err);
}

int field_set_network(struct run_request *o, const struct field *f, const struct field_value *v, struct ak_err *err)
{
	o->no_network = !v->flag;
	return 0;
}

int field_set_fast(struct run_request *o, const struct field *f, const struct field_value *v, struct ak_err *err)
{
	o->cold = !v->flag;
	return 0;
}

int field_set_vcpus(struct run_request *o, const struct field *f, const struct field_value *v, struct ak_err *err)
{
	o->limits.cpus_milli = (uint32_t)v->number * 1000;
	return 0;
}

int field_set_pids(struct run_request *o, const struct field *f, const struct field_value *v, struct ak_err *err)
{
	o->limits.pids = (uint32_t)v->number;
	return 0;
}

int field_add_variable(struct run_request *o, const struct field *f, const struct field_value *v, struct ak_err *err)
{
	if (o->n_env == PLAN_LIST_MAX)
		return ak_fail(err, EINVAL, "more than %d variables", PLAN_LIST_MAX);
	o->env[o->n_env++] = v->text;
	return 0;
}

static int add_mount(struct run_request *o, const struct run_mount *m, struct ak_err *err)
{
	if (o->n_mounts == RUN_MOUNTS_MAX)
		return ak_fail(err, EINVAL, "more than %d mounts", RUN_MOUNTS_MAX);
	o->mounts[o->n_mounts++] = *m;
	return 0;
}

/* On the command line: the parts are in a copy that is never freed. */
int field_add_mount(struct run_request *o, const struct field *f, const struct field_value *v, struct ak_err *err)
{
	char *copy = strdup(v->text);
	struct run_mount m;
	int rc = copy ? run_mount_parse(copy, &m, err) : ak_fail(err, ENOMEM, "out of memory");

	if (rc == 0)
		rc = add_mount(o, &m, err);
	if (rc < 0)
		free(copy);
	return rc;
}

int field_add_tool(struct run_request *o, const struct field *f, const struct field_value *v, struct ak_err *err)
{
	if (o->n_tools == RUN_TOOLS_MAX)
		return ak_fail(err, EINVAL, "more than %d programs", RUN_TOOLS_MAX);
	if (v->text[0] != '/' && strchr(v->text, '/'))
		return ak_fail(err, EINVAL, "'%.100s': must be the name of a program on the PATH, or an absolute path", v->text);
	o->tools[o->n_tools++] = v->text;
	return 0;
}

int field_add_rule(struct run_request *o, const struct field *f, const struct field_value *v, struct ak_err *err)
{
	enum policy_edit_op op = POLICY_EDIT_DEFAULT;
	int rc;

	if (f->kind != KIND_CHOICE) /* `network proxy` says --policy allow|deny */
		(void)policy_edit_parse(f->option, &op);
	rc = policy_edit_check(op, v->text, err);
	if (rc < 0)
		return rc;
	if (o->n_edits == PLAN_LIST_MAX)
		return ak_fail(err, EINVAL, "more than %d rules; put them in a policy file", PLAN_LIST_MAX);
	o->edits[o->n_edits++] = (struct policy_edit){ op, v->text };
	return 0;
}

int field_add_publish(struct run_request *o, const struct field *f, const struct field_value *v, struct ak_err *err)
{
	struct ak_publish p;
	int rc = ak_publish_parse(v->text, &p, err);

	return rc < 0 || ak_publish_add(o->publish, &o->n_publish, &p, err) < 0 ? -EINVAL : 0;
}

/* ---- one value ---- */

static void set_member(void *member, const struct field *f, const struct field_value *v)
{
	if (f->kind == KIND_BOOL)
		*(bool *)member = v->flag;
	else if (f->kind == KIND_COUNT || f->kind == KIND_SIZE || f->kind == KIND_DURATION)
		*(uint64_t *)member = v->number;
	else
		*(const char **)member = v->text;
}

int field_put(struct run_request *o, const struct field *f, const struct field_value *v, struct ak_err *err)
{
	if (f->set)
		return f->set(o, f, v, err);
	if (f->at)
		set_member((char *)o + f->at, f, v);
	return 0;
}

int field_set(
	struct run_request *o, const struct field *f, enum field_front front, const struct field_value *v, struct ak_err *err)
{
	int rc = field_put(o, f, v, err);

	o->given[f - field_table] = true;
	return rc < 0 ? field_place(f, front, rc, err) : 0;
}

/* ---- whole requests ---- */

void field_mem_done(struct field_mem *m)
{
	for (size_t i = 0; i < m->n; i++)
		free(m->list[i]);
	free(m->list);
	*m = (struct field_mem){ 0 };
}

/* Make M the owner of P. Returns P, or NULL when P is NULL or the list cannot grow (P is freed then). */
static void *keep(struct field_mem *m, void *p)
{
	void **grown = p ? reallocarray(m->list, m->n + 1, sizeof(*m->list)) : NULL;

	if (!grown) {
		free(p);
		return NULL;
	}
	m->list = grown;
	return m->list[m->n++] = p;
}

int field_put_pair(const struct field_sink *sink, const struct field *f, const char *key, const char *value, struct ak_err *err)
{
	struct field_value v = { 0 };
	char *text = NULL;

	/* Always include the "=": a name alone would copy the server's own variable. */
	if (asprintf(&text, "%s=%s", key, value) < 0)
		text = NULL;
	v.text = keep(sink->mem, text);
	if (!v.text)
		return ak_fail(err, ENOMEM, "out of memory");
	return field_set(sink->o, f, FIELD_HTTP, &v, err);
}

int field_put_mount(const struct field_sink *sink, const cJSON *item, struct ak_err *err)
{
	static const char *const known[] = { "source", "target", "mode", NULL };
	struct run_mount m = { .source = NULL };
	const char *mode = "ro";
	int rc = cJSON_IsObject(item) ? json_check_keys(item, known, err) : ak_fail(err, EINVAL, "must be an object");

	if (rc == 0)
		rc = json_get_string(item, "source", &m.source, err);
	if (rc >= 0)
		rc = json_get_string(item, "target", &m.target, err);
	if (rc >= 0)
		rc = json_get_string(item, "mode", &mode, err);
	if (rc >= 0)
		rc = run_mount_mode(mode, &m.writable, err);
	if (rc < 0)
		return rc;
	if (!m.source || m.source[0] != '/' || strlen(m.source) >= PATH_MAX)
		return ak_fail(err, EINVAL, "source: must be an absolute path of the host");
	if (m.target && (m.target[0] != '/' || strlen(m.target) >= PATH_MAX))
		return ak_fail(err, EINVAL, "target: must be an absolute path inside the sandbox");
	return sink ? add_mount(sink->o, &m, err) : 0;
}

int field_put_argv(const struct field_sink *sink, const cJSON *list, struct ak_err *err)
{
	char **argv = keep(sink->mem, calloc((size_t)cJSON_GetArraySize(list) + 1, sizeof(*argv)));
	const cJSON *item;
	size_t n = 0;

	if (!argv)
		return ak_fail(err, ENOMEM, "out of memory");
	cJSON_ArrayForEach(item, list)
		argv[n++] = item->valuestring;
	sink->o->argv = argv;
	return 0;
}

int fields_decode(enum field_verb verb, enum field_front front, const cJSON *obj, struct run_request *o, struct field_mem *mem,
	struct ak_err *err)
{
	const struct field_sink sink = { o, mem };

	return fields_walk(verb, front, obj, &sink, err);
}
