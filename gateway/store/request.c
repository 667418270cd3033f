/* Converts a planned run to JSON and back: see store/request.h. */
#include "gateway/store/request.h"

#include "gateway/base/cleanup.h"
#include "gateway/store/mounts.h"
#include "gateway/store/publish.h"
#include "gateway/store/state.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The source of the JSON: a request and its plan. */
struct source {
	const struct run_request *opts;
	const struct run_plan *plan;
};

struct member {
	const char *key;
	bool (*put)(cJSON *obj, const struct member *m, const struct source *from);
	int (*get)(const cJSON *obj, const struct member *m, struct run_ask *to, struct ak_err *err);
	bool in_plan; /* AT is an offset in the plan, otherwise in the request */
	size_t at;
	uint64_t max;
};

static const void *field(const struct source *from, const struct member *m)
{
	return (m->in_plan ? (const char *)from->plan : (const char *)from->opts) + m->at;
}

static void *place(struct run_ask *to, const struct member *m)
{
	return (m->in_plan ? (char *)&to->plan : (char *)&to->opts) + m->at;
}

/* ---- single values: numbers, booleans, names, paths ---- */

static bool put_uint(cJSON *obj, const struct member *m, const struct source *from)
{
	return cJSON_AddNumberToObject(obj, m->key, (double)*(const uint64_t *)field(from, m));
}

static int get_uint(const cJSON *obj, const struct member *m, struct run_ask *to, struct ak_err *err)
{
	return json_get_uint(obj, m->key, m->max, place(to, m), err);
}

static bool put_enum(cJSON *obj, const struct member *m, const struct source *from)
{
	return cJSON_AddNumberToObject(obj, m->key, *(const unsigned *)field(from, m));
}

static int get_enum(const cJSON *obj, const struct member *m, struct run_ask *to, struct ak_err *err)
{
	uint64_t value = 0;
	int rc = json_get_uint(obj, m->key, m->max, &value, err);

	*(unsigned *)place(to, m) = (unsigned)value;
	return rc;
}

static bool put_bool(cJSON *obj, const struct member *m, const struct source *from)
{
	return cJSON_AddBoolToObject(obj, m->key, *(const bool *)field(from, m));
}

static int get_bool(const cJSON *obj, const struct member *m, struct run_ask *to, struct ak_err *err)
{
	int value = 0, rc = json_get_bool(obj, m->key, &value, err);

	*(bool *)place(to, m) = value != 0;
	return rc;
}

static bool put_text(cJSON *obj, const struct member *m, const struct source *from)
{
	return cJSON_AddStringToObject(obj, m->key, field(from, m));
}

static int get_name(const cJSON *obj, const struct member *m, struct run_ask *to, struct ak_err *err)
{
	const char *name = "";
	int rc = json_get_string(obj, m->key, &name, err);

	if (rc >= 0 && !ak_sandbox_name_ok(name))
		rc = ak_fail(err, EINVAL, "name: '%.100s' is not a valid sandbox name", name);
	if (rc >= 0)
		memcpy(place(to, m), name, strlen(name) + 1);
	return rc;
}

static int get_path(const cJSON *obj, const struct member *m, struct run_ask *to, struct ak_err *err)
{
	const char *text = "";
	int rc = json_get_string(obj, m->key, &text, err);

	if (rc < 0)
		return rc;
	if (strlen(text) >= PATH_MAX || (text[0] && text[0] != '/'))
		return ak_fail(err, EINVAL, "%s: must be an absolute path", m->key);
	memcpy(place(to, m), text, strlen(text) + 1);
	return 0;
}

/* ---- mode and profile, by their names ---- */

static bool put_mode(cJSON *obj, const struct member *m, const struct source *from)
{
	return cJSON_AddStringToObject(obj, m->key, ak_mode_policy(from->opts->mode, from->opts->own));
}

static int get_mode(const cJSON *obj, const struct member *m, struct run_ask *to, struct ak_err *err)
{
	const char *text = "native";
	int rc = json_get_string(obj, m->key, &text, err);

	if (rc >= 0)
		rc = ak_mode_choose(text, &to->opts.mode, &to->opts.own, err);
	if (rc >= 0)
		to->plan.policy = ak_mode_policy(to->opts.mode, to->opts.own);
	return rc;
}

static bool put_profile(cJSON *obj, const struct member *m, const struct source *from)
{
	return cJSON_AddStringToObject(obj, m->key, ak_profile_name(from->opts->profile));
}

static int get_profile(const cJSON *obj, const struct member *m, struct run_ask *to, struct ak_err *err)
{
	const char *text = "moderate";
	int rc = json_get_string(obj, m->key, &text, err);

	return rc < 0 ? rc : ak_profile_parse(text, &to->opts.profile, err);
}

/* ---- lists ---- */

static bool put_strings(cJSON *obj, const char *key, char *const *list)
{
	cJSON *array = cJSON_AddArrayToObject(obj, key);
	bool ok = array != NULL;

	for (size_t i = 0; ok && list[i]; i++) {
		cJSON *text = cJSON_CreateString(list[i]);

		ok = text && cJSON_AddItemToArray(array, text);
	}
	return ok;
}

static bool put_argv(cJSON *obj, const struct member *m, const struct source *from)
{
	return put_strings(obj, m->key, from->opts->argv);
}

static int get_argv(const cJSON *obj, const struct member *m, struct run_ask *to, struct ak_err *err)
{
	int rc = json_get_strings(obj, m->key, &to->argv, err);

	if (rc >= 0 && (!to->argv || !to->argv[0]))
		rc = ak_fail(err, EINVAL, "argv: the command is missing");
	to->opts.argv = to->argv;
	return rc;
}

static bool put_env(cJSON *obj, const struct member *m, const struct source *from)
{
	return put_strings(obj, m->key, from->plan->env);
}

static int get_env(const cJSON *obj, const struct member *m, struct run_ask *to, struct ak_err *err)
{
	_cleanup_free_ char **env = NULL;
	int rc = json_get_strings(obj, m->key, &env, err);
	size_t i = 0;

	for (; rc > 0 && env[i] && to->plan.n_env < PLAN_ENV_MAX; i++)
		to->plan.env[to->plan.n_env++] = env[i];
	if (rc <= 0 || !env[i])
		return rc < 0 ? rc : 0;
	for (; env[i]; i++)
		free(env[i]);
	return ak_fail(err, E2BIG, "env: more than %d variables", PLAN_ENV_MAX);
}

static bool put_mounts(cJSON *obj, const struct member *m, const struct source *from)
{
	cJSON *array = cJSON_AddArrayToObject(obj, m->key);
	bool ok = array != NULL;

	for (size_t i = 0; ok && i < from->plan->n_mounts; i++) {
		const struct sandbox_mount *in = &from->plan->mounts[i];
		const struct project_id id = { .dev = in->dev, .ino = in->ino };
		char text[PROJECT_ID_TEXT];
		cJSON *item = cJSON_CreateObject();

		ok = item && cJSON_AddItemToArray(array, item) && cJSON_AddStringToObject(item, "source", in->source) &&
			cJSON_AddStringToObject(item, "target", in->target) &&
			cJSON_AddBoolToObject(item, "readonly", in->readonly) &&
			cJSON_AddBoolToObject(item, "shielded", in->shielded) &&
			cJSON_AddStringToObject(item, "id", project_id_print(&id, text));
	}
	return ok;
}

static int get_mount(const cJSON *item, struct sandbox_mount *ret, struct ak_err *err)
{
	struct project_id id = { .ino = 0 };
	const char *text = "";
	int readonly = 0, shielded = 0, rc = json_get_string(item, "source", &ret->source, err);

	if (rc >= 0)
		rc = json_get_string(item, "target", &ret->target, err);
	if (rc >= 0)
		rc = json_get_bool(item, "readonly", &readonly, err);
	if (rc >= 0)
		rc = json_get_bool(item, "shielded", &shielded, err);
	if (rc >= 0)
		rc = json_get_string(item, "id", &text, err);
	if (rc < 0)
		return rc;
	if (!ret->source || ret->source[0] != '/' || !ret->target || ret->target[0] != '/' || project_id_parse(text, &id) < 0)
		return ak_fail(err, EINVAL, "must have absolute paths and the identity of the source");
	ret->readonly = readonly != 0;
	ret->shielded = shielded != 0;
	ret->dev = id.dev;
	ret->ino = id.ino;
	return 0;
}

static int get_mounts(const cJSON *obj, const struct member *m, struct run_ask *to, struct ak_err *err)
{
	const cJSON *list = NULL, *item;
	int rc = json_get_array(obj, m->key, &list, err);

	if (rc < 0)
		return rc;
	cJSON_ArrayForEach(item, list) {
		if (to->plan.n_mounts == PLAN_MOUNTS_MAX)
			return ak_fail(err, E2BIG, "mounts: more than %d", PLAN_MOUNTS_MAX);
		rc = get_mount(item, &to->plan.mounts[to->plan.n_mounts], err);
		if (rc < 0)
			return ak_err_prefix(err, rc, "mounts[%zu]", to->plan.n_mounts);
		to->plan.n_mounts++;
	}
	return 0;
}

/* What the user asked for, for the record of the run: the mounts themselves are above. */
static bool put_asked(cJSON *obj, const struct member *m, const struct source *from)
{
	return run_mounts_put(obj, m->key, from->plan->asked, from->plan->n_asked);
}

static int get_asked(const cJSON *obj, const struct member *m, struct run_ask *to, struct ak_err *err)
{
	int rc = run_mounts_get(obj, m->key, to->opts.mounts, &to->opts.n_mounts, err);

	to->plan.asked = to->opts.mounts;
	to->plan.n_asked = to->opts.n_mounts;
	return rc;
}

/* The paths of the programs that were brought in, for the same record. */
static bool put_tools(cJSON *obj, const struct member *m, const struct source *from)
{
	char *list[TOOLS_MAX + 1] = { NULL };

	for (size_t i = 0; i < from->plan->tools.n; i++)
		list[i] = from->plan->tools.list[i].path;
	return put_strings(obj, m->key, list);
}

static int get_tools(const cJSON *obj, const struct member *m, struct run_ask *to, struct ak_err *err)
{
	_cleanup_free_ char **list = NULL;
	struct tools *t = &to->plan.tools;
	int rc = json_get_strings(obj, m->key, &list, err);
	bool fits = true;

	for (size_t i = 0; rc > 0 && list[i]; i++) {
		fits = fits && t->n < TOOLS_MAX;
		if (fits)
			t->list[t->n++].path = list[i];
		else
			free(list[i]);
	}
	return fits ? rc : ak_fail(err, E2BIG, "%s: more than %d", m->key, TOOLS_MAX);
}

static bool put_links(cJSON *obj, const struct member *m, const struct source *from)
{
	cJSON *array = cJSON_AddArrayToObject(obj, m->key);
	bool ok = array != NULL;

	for (size_t i = 0; ok && i < from->plan->n_links; i++) {
		const struct sandbox_link *in = &from->plan->links[i];
		cJSON *item = cJSON_CreateObject();

		ok = item && cJSON_AddItemToArray(array, item) && cJSON_AddStringToObject(item, "path", in->path) &&
			cJSON_AddStringToObject(item, "target", in->target);
	}
	return ok;
}

static int get_links(const cJSON *obj, const struct member *m, struct run_ask *to, struct ak_err *err)
{
	const cJSON *list = NULL, *item;
	int rc = json_get_array(obj, m->key, &list, err);

	if (rc < 0)
		return rc;
	cJSON_ArrayForEach(item, list) {
		struct sandbox_link *l = &to->plan.links[to->plan.n_links];

		if (to->plan.n_links == ARRAY_SIZE(to->plan.links))
			return ak_fail(err, E2BIG, "links: more than %zu", ARRAY_SIZE(to->plan.links));
		if (json_get_string(item, "path", &l->path, err) <= 0 || l->path[0] != '/' ||
			json_get_string(item, "target", &l->target, err) <= 0 || !l->target[0])
			return ak_fail(err, EINVAL, "links[%zu]: wants an absolute path and a target", to->plan.n_links);
		to->plan.n_links++;
	}
	return 0;
}

static bool put_files(cJSON *obj, const struct member *m, const struct source *from)
{
	cJSON *array = cJSON_AddArrayToObject(obj, m->key);
	bool ok = array != NULL;

	for (size_t i = 0; ok && i < SANDBOX_FILES_MAX; i++) {
		const struct sandbox_file *in = &from->plan->files[i];
		cJSON *item = in->path ? cJSON_CreateObject() : NULL;

		ok = !in->path ||
			(item && cJSON_AddItemToArray(array, item) && cJSON_AddStringToObject(item, "path", in->path) &&
				cJSON_AddStringToObject(item, "text", in->text));
	}
	return ok;
}

static int get_files(const cJSON *obj, const struct member *m, struct run_ask *to, struct ak_err *err)
{
	const cJSON *list = NULL, *item;
	int rc = json_get_array(obj, m->key, &list, err);
	size_t n = 0;

	if (rc < 0)
		return rc;
	cJSON_ArrayForEach(item, list) {
		struct sandbox_file *f = &to->plan.files[n];

		if (n++ == SANDBOX_FILES_MAX)
			return ak_fail(err, E2BIG, "files: more than %d", SANDBOX_FILES_MAX);
		if (json_get_string(item, "path", &f->path, err) <= 0 || f->path[0] != '/' ||
			json_get_string(item, "text", &f->text, err) <= 0)
			return ak_fail(err, EINVAL, "files[%zu]: wants an absolute path and a text", n - 1);
	}
	return 0;
}

static bool put_edits(cJSON *obj, const struct member *m, const struct source *from)
{
	cJSON *array = cJSON_AddArrayToObject(obj, m->key);
	bool ok = array != NULL;

	for (size_t i = 0; ok && i < from->opts->n_edits; i++) {
		const struct policy_edit *in = &from->opts->edits[i];
		cJSON *item = cJSON_CreateObject();

		ok = item && cJSON_AddItemToArray(array, item) && cJSON_AddStringToObject(item, "op", policy_edit_name(in->op)) &&
			cJSON_AddStringToObject(item, "text", in->text);
	}
	return ok;
}

static int get_edits(const cJSON *obj, const struct member *m, struct run_ask *to, struct ak_err *err)
{
	const cJSON *list = NULL, *item;
	int rc = json_get_array(obj, m->key, &list, err);

	if (rc <= 0)
		return rc;
	cJSON_ArrayForEach(item, list) {
		if (to->opts.n_edits == PLAN_LIST_MAX)
			return ak_fail(err, E2BIG, "edits: more than %d", PLAN_LIST_MAX);
		rc = state_edit_get(item, NULL, 0, &to->opts.edits[to->opts.n_edits], NULL, err);
		if (rc < 0)
			return ak_err_prefix(err, rc, "edits[%zu]", to->opts.n_edits);
		to->opts.n_edits++;
	}
	return 0;
}

static bool put_publish(cJSON *obj, const struct member *m, const struct source *from)
{
	return publish_put(obj, m->key, from->opts->publish, from->opts->n_publish);
}

static int get_publish(const cJSON *obj, const struct member *m, struct run_ask *to, struct ak_err *err)
{
	return publish_get(obj, m->key, to->opts.publish, &to->opts.n_publish, err);
}

static bool put_limits(cJSON *obj, const struct member *m, const struct source *from)
{
	return state_limits_put(obj, &from->opts->limits);
}

static int get_limits(const cJSON *obj, const struct member *m, struct run_ask *to, struct ak_err *err)
{
	return state_limits_get(obj, &to->opts.limits, err);
}

/* ---- the table ---- */

#define REQUEST(member) false, offsetof(struct run_request, member)
#define PLAN(member) true, offsetof(struct run_plan, member)

static const struct member members[] = {
	{ "argv", put_argv, get_argv, REQUEST(argv), 0 },
	{ "name", put_text, get_name, PLAN(name), 0 },
	{ "mode", put_mode, get_mode, REQUEST(mode), 0 },
	{ "profile", put_profile, get_profile, REQUEST(profile), 0 },
	{ "origin", put_enum, get_enum, REQUEST(origin), RUN_ORIGIN_NUM - 1 },
	{ "isolation", put_enum, get_enum, PLAN(isolation), SANDBOX_ISOLATION_NUM - 1 },
	{ "readonly_root", put_bool, get_bool, PLAN(readonly_root), 0 },
	{ "home", put_text, get_path, PLAN(home), 0 },
	{ "project", put_text, get_path, PLAN(project), 0 },
	{ "workdir", put_text, get_path, PLAN(workdir), 0 },
	{ "env", put_env, get_env, PLAN(env), 0 },
	{ "mounts", put_mounts, get_mounts, PLAN(mounts), 0 },
	{ "links", put_links, get_links, PLAN(links), 0 },
	{ "asked", put_asked, get_asked, PLAN(asked), 0 },
	{ "tools", put_tools, get_tools, PLAN(tools), 0 },
	{ "files", put_files, get_files, PLAN(files), 0 },
	{ "edits", put_edits, get_edits, REQUEST(edits), 0 },
	{ "publish", put_publish, get_publish, REQUEST(publish), 0 },
	{ "limits", put_limits, get_limits, REQUEST(limits), 0 },
	{ "vm", put_bool, get_bool, REQUEST(vm), 0 },
	{ "tty", put_bool, get_bool, REQUEST(tty), 0 },
	{ "timeout_ms", put_uint, get_uint, REQUEST(timeout_ms), RUN_TIMEOUT_MAX_MS },
};

static_assert(sizeof(enum run_origin) == sizeof(unsigned) && sizeof(enum sandbox_isolation) == sizeof(unsigned),
	"put_enum and get_enum take an enum for an unsigned");

cJSON *run_ask_to_json(const struct run_request *opts, const struct run_plan *plan)
{
	const struct source from = { opts, plan };
	_cleanup_json_ cJSON *obj = cJSON_CreateObject();
	bool ok = obj != NULL;

	for (size_t i = 0; ok && i < ARRAY_SIZE(members); i++)
		ok = members[i].put(obj, &members[i], &from);
	return ok ? TAKE(obj) : NULL;
}

int run_ask_from_json(struct run_ask *a, struct ak_err *err)
{
	int rc = 0;

	a->plan.network = true; /* clients execute runs without a network themselves */
	for (size_t i = 0; rc >= 0 && i < ARRAY_SIZE(members); i++)
		rc = members[i].get(a->obj, &members[i], a, err);
	a->plan.vm = a->opts.vm;
	return rc < 0 ? rc : 0;
}

void run_ask_done(struct run_ask *a)
{
	run_plan_done(&a->plan);
	json_strings_free(a->argv);
	cJSON_Delete(a->obj);
}
