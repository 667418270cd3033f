/* sandbox.json: a persistent sandbox as JSON and back. See store/state.h. */
#include "gateway/store/state.h"

#include "gateway/base/cleanup.h"
#include "gateway/store/mounts.h"
#include "gateway/store/publish.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define EXACT_MAX ((1ull << 53) - 1) /* the largest integer that a JSON number holds exactly */

void state_done(struct state_sandbox *s)
{
	state_edits_clear(s);
	run_env_free(TAKE(s->env));
	json_strings_free(TAKE(s->tools));
	free(TAKE(s->path));
	run_mounts_free(TAKE(s->mounts), s->n_mounts);
	s->n_mounts = 0;
}

/* ---- writing ---- */

static bool put_edit(cJSON *list, const struct state_edit *e)
{
	cJSON *obj = cJSON_CreateObject();

	if (!obj)
		return false;
	cJSON_AddItemToArray(list, obj);
	return cJSON_AddStringToObject(obj, "op", policy_edit_name(e->op)) && cJSON_AddStringToObject(obj, "text", e->text) &&
		(!e->until_us || cJSON_AddNumberToObject(obj, "until_us", (double)e->until_us));
}

static bool put_tools(cJSON *obj, const struct state_sandbox *s)
{
	cJSON *list = s->tools ? cJSON_AddArrayToObject(obj, "tools") : NULL;
	bool ok = !s->tools || list;

	for (size_t i = 0; ok && s->tools && s->tools[i]; i++) {
		cJSON *text = cJSON_CreateString(s->tools[i]);

		ok = text && cJSON_AddItemToArray(list, text);
	}
	return ok && (!s->path || cJSON_AddStringToObject(obj, "path", s->path));
}

static bool put_lists(cJSON *obj, const struct state_sandbox *s)
{
	cJSON *env = cJSON_AddArrayToObject(obj, "env"), *edits = cJSON_AddArrayToObject(obj, "edits");
	bool ok = env && edits;

	for (size_t i = 0; ok && s->env && s->env[i]; i++) {
		cJSON *text = cJSON_CreateString(s->env[i]);

		ok = text && cJSON_AddItemToArray(env, text);
	}
	for (size_t i = 0; ok && i < s->n_edits; i++)
		ok = put_edit(edits, &s->edits[i]);
	return ok;
}

bool state_limits_put(cJSON *obj, const struct sandbox_limits *l)
{
	cJSON *out = cJSON_AddObjectToObject(obj, "limits");

	return out && cJSON_AddNumberToObject(out, "memory_bytes", (double)l->memory_bytes) &&
		cJSON_AddNumberToObject(out, "cpus_milli", l->cpus_milli) && cJSON_AddNumberToObject(out, "pids", l->pids) &&
		cJSON_AddNumberToObject(out, "nofile", l->nofile) &&
		cJSON_AddNumberToObject(out, "tmp_bytes", (double)l->tmp_bytes) &&
		(!l->disk_bytes || cJSON_AddNumberToObject(out, "disk_bytes", (double)l->disk_bytes));
}

static bool put_dir(cJSON *obj, const struct state_sandbox *s)
{
	char id[PROJECT_ID_TEXT];

	return cJSON_AddStringToObject(obj, "dir", s->dir) &&
		(!s->image[0] ||
			(cJSON_AddStringToObject(obj, "image", s->image) &&
				cJSON_AddStringToObject(obj, "image_id", s->image_id))) &&
		(!s->project_writable || cJSON_AddTrueToObject(obj, "project_writable")) &&
		(!s->dir_id.ino || cJSON_AddStringToObject(obj, "dir_id", project_id_print(&s->dir_id, id)));
}

bool state_mcp_put(cJSON *obj, const struct state_mcp *m)
{
	cJSON *out = m->project[0] ? cJSON_AddObjectToObject(obj, "mcp") : NULL;

	if (!m->project[0])
		return true;
	return out && cJSON_AddStringToObject(out, "project", m->project) && cJSON_AddStringToObject(out, "server", m->server) &&
		cJSON_AddBoolToObject(out, "keep", m->keep) && cJSON_AddNumberToObject(out, "generation", (double)m->generation);
}

cJSON *state_to_json(const struct state_sandbox *s)
{
	_cleanup_json_ cJSON *obj = cJSON_CreateObject();
	bool ok = obj && cJSON_AddNumberToObject(obj, "version", STATE_VERSION) &&
		cJSON_AddStringToObject(obj, "name", s->name) && cJSON_AddStringToObject(obj, "uuid", s->uuid) &&
		cJSON_AddStringToObject(obj, "mode", state_mode(s)) &&
		cJSON_AddStringToObject(obj, "profile", ak_profile_name(s->profile)) && put_dir(obj, s) &&
		cJSON_AddBoolToObject(obj, "no_network", s->no_network) && cJSON_AddBoolToObject(obj, "nested", s->nested) &&
		cJSON_AddBoolToObject(obj, "vm", s->vm) && cJSON_AddBoolToObject(obj, "podman", s->podman) &&
		cJSON_AddNumberToObject(obj, "created_us", (double)s->created_us) &&
		cJSON_AddNumberToObject(obj, "link_id", s->link_id) && cJSON_AddBoolToObject(obj, "running", s->running) &&
		cJSON_AddNumberToObject(obj, "generation", (double)s->generation) &&
		cJSON_AddNumberToObject(obj, "allowed", (double)s->allowed) &&
		cJSON_AddNumberToObject(obj, "denied", (double)s->denied);

	if (!ok || !state_limits_put(obj, &s->limits) || !run_mounts_put(obj, "mounts", s->mounts, s->n_mounts) ||
		!state_mcp_put(obj, &s->mcp) || !put_tools(obj, s) || !put_lists(obj, s) ||
		!publish_put(obj, "publish", s->publish, s->n_publish))
		return NULL;
	return TAKE(obj);
}

/* ---- reading ---- */

static int get_text(const cJSON *obj, const char *key, char *ret, size_t size, struct ak_err *err)
{
	const char *text = NULL;
	int rc = json_get_string(obj, key, &text, err);

	if (rc <= 0)
		return rc;
	if (strlen(text) >= size)
		return ak_fail(err, EINVAL, "%s: too long", key);
	memcpy(ret, text, strlen(text) + 1);
	return 1;
}

static int get_dir(const cJSON *obj, struct state_sandbox *s, struct ak_err *err)
{
	const char *id = NULL;
	int rc = get_text(obj, "dir", s->dir, sizeof(s->dir), err);

	if (rc >= 0)
		rc = json_get_string(obj, "dir_id", &id, err);
	if (rc >= 0 && s->dir[0] && s->dir[0] != '/')
		return ak_fail(err, EINVAL, "dir '%s': must be an absolute path", s->dir);
	if (rc > 0 && project_id_parse(id, &s->dir_id) < 0)
		return ak_fail(err, EINVAL, "dir_id '%.100s': must be three numbers", id);
	return rc;
}

static int get_words(const cJSON *obj, struct state_sandbox *s, struct ak_err *err)
{
	const char *mode = NULL, *profile = NULL;
	int rc = json_get_string(obj, "mode", &mode, err);

	if (rc >= 0 && mode)
		rc = state_set_mode(s, mode, err);
	if (rc >= 0)
		rc = json_get_string(obj, "profile", &profile, err);
	if (rc >= 0 && profile)
		rc = ak_profile_parse(profile, &s->profile, err);
	if (rc >= 0)
		rc = get_text(obj, "name", s->name, sizeof(s->name), err);
	if (rc >= 0)
		rc = get_text(obj, "uuid", s->uuid, sizeof(s->uuid), err);
	if (rc >= 0)
		rc = get_dir(obj, s, err);
	if (rc >= 0)
		rc = get_text(obj, "image", s->image, sizeof(s->image), err);
	if (rc >= 0)
		rc = get_text(obj, "image_id", s->image_id, sizeof(s->image_id), err);
	if (rc >= 0 && !ak_sandbox_name_ok(s->name))
		return ak_fail(err, EINVAL,
			"name '%s': must be 1 to 63 letters, digits, '-' or '_', with a letter or digit at both ends", s->name);
	return rc < 0 ? rc : 0;
}

static int get_number(const cJSON *obj, const char *key, uint64_t max, uint64_t *ret, struct ak_err *err)
{
	int rc = json_get_uint(obj, key, max, ret, err);

	return rc < 0 ? rc : 0;
}

int state_limits_get(const cJSON *obj, struct sandbox_limits *l, struct ak_err *err)
{
	static const char *const known[] = { "memory_bytes", "cpus_milli", "pids", "nofile", "tmp_bytes", "disk_bytes", NULL };
	uint64_t cpus = 0, pids = 0, nofile = 0;
	const cJSON *in = NULL;
	int rc = json_get_object(obj, "limits", &in, err);

	if (rc <= 0)
		return rc;
	rc = json_check_keys(in, known, err);
	if (rc == 0)
		rc = get_number(in, "memory_bytes", EXACT_MAX, &l->memory_bytes, err);
	if (rc == 0)
		rc = get_number(in, "cpus_milli", UINT32_MAX, &cpus, err);
	if (rc == 0)
		rc = get_number(in, "pids", UINT32_MAX, &pids, err);
	if (rc == 0)
		rc = get_number(in, "nofile", UINT32_MAX, &nofile, err);
	if (rc == 0)
		rc = get_number(in, "tmp_bytes", EXACT_MAX, &l->tmp_bytes, err);
	if (rc == 0)
		rc = get_number(in, "disk_bytes", EXACT_MAX, &l->disk_bytes, err);
	if (rc < 0)
		return ak_err_prefix(err, rc, "limits");
	l->cpus_milli = (uint32_t)cpus;
	l->pids = (uint32_t)pids;
	l->nofile = (uint32_t)nofile;
	return 0;
}

int state_mcp_get(const cJSON *obj, struct state_mcp *m, struct ak_err *err)
{
	static const char *const known[] = { "project", "server", "keep", "generation", NULL };
	const cJSON *in = NULL;
	int keep = 0, rc = json_get_object(obj, "mcp", &in, err);

	if (rc <= 0)
		return rc;
	rc = json_check_keys(in, known, err);
	if (rc >= 0)
		rc = get_text(in, "project", m->project, sizeof(m->project), err);
	if (rc >= 0)
		rc = get_text(in, "server", m->server, sizeof(m->server), err);
	if (rc >= 0)
		rc = json_get_bool(in, "keep", &keep, err);
	if (rc >= 0)
		rc = get_number(in, "generation", EXACT_MAX, &m->generation, err);
	if (rc >= 0 && m->project[0] != '/')
		rc = ak_fail(err, EINVAL, "project: must be an absolute path");
	m->keep = keep != 0;
	return rc < 0 ? ak_err_prefix(err, rc, "mcp") : 0;
}

static int get_numbers(const cJSON *obj, struct state_sandbox *s, struct ak_err *err)
{
	uint64_t link = 0;
	int no_network = 0, nested = 0, vm = 0, podman = 0, running = 0, writable = 0;
	int rc = get_number(obj, "created_us", EXACT_MAX, &s->created_us, err);

	if (rc == 0)
		rc = get_number(obj, "link_id", STATE_LINK_MAX, &link, err);
	if (rc == 0)
		rc = get_number(obj, "generation", EXACT_MAX, &s->generation, err);
	if (rc == 0)
		rc = get_number(obj, "allowed", EXACT_MAX, &s->allowed, err);
	if (rc == 0)
		rc = get_number(obj, "denied", EXACT_MAX, &s->denied, err);
	if (rc == 0)
		rc = json_get_bool(obj, "no_network", &no_network, err);
	if (rc >= 0)
		rc = json_get_bool(obj, "nested", &nested, err);
	if (rc >= 0)
		rc = json_get_bool(obj, "vm", &vm, err);
	if (rc >= 0)
		rc = json_get_bool(obj, "podman", &podman, err);
	if (rc >= 0)
		rc = json_get_bool(obj, "project_writable", &writable, err);
	if (rc >= 0)
		rc = json_get_bool(obj, "running", &running, err);
	s->link_id = (uint32_t)link;
	s->no_network = no_network != 0;
	s->nested = nested != 0;
	s->vm = vm != 0;
	s->podman = podman != 0;
	s->project_writable = writable != 0;
	s->running = running != 0;
	return rc < 0 ? rc : 0;
}

int state_edit_get(const cJSON *item, const char *time_key, uint64_t time_max, struct policy_edit *ret, uint64_t *ret_time,
	struct ak_err *err)
{
	const char *const known[] = { "op", "text", time_key, NULL };
	const char *op = NULL, *text = NULL;
	int rc = cJSON_IsObject(item) ? json_check_keys(item, known, err) : ak_fail(err, EINVAL, "must be an object");

	if (rc == 0)
		rc = json_get_string(item, "op", &op, err);
	if (rc >= 0)
		rc = json_get_string(item, "text", &text, err);
	if (rc >= 0 && time_key)
		rc = json_get_uint(item, time_key, time_max, ret_time, err);
	if (rc < 0)
		return rc;
	if (!op || !text)
		return ak_fail(err, EINVAL, "op or text is missing");
	if (!policy_edit_parse(op, &ret->op))
		return ak_fail(err, EINVAL, "unknown policy edit '%.100s'", op);
	/* The command that names a file reads it (run_request_pin); it may have changed since. */
	if (ret->op == POLICY_EDIT_ADD_POLICY && policy_is_file(text))
		return ak_fail(err, EINVAL, "policy '%.100s': a file", text);
	ret->text = text;
	return 0;
}

static int get_edit(const cJSON *item, struct state_edit *ret, struct ak_err *err)
{
	struct policy_edit edit;
	int rc = state_edit_get(item, "until_us", EXACT_MAX, &edit, &ret->until_us, err);

	if (rc < 0)
		return rc;
	ret->op = edit.op;
	ret->text = strdup(edit.text);
	return ret->text ? 0 : ak_fail(err, ENOMEM, "out of memory");
}

static int get_edits(const cJSON *obj, struct state_sandbox *s, struct ak_err *err)
{
	const cJSON *list = NULL, *item;
	int rc = json_get_array(obj, "edits", &list, err), n;

	if (rc <= 0)
		return rc;
	n = cJSON_GetArraySize(list);
	if (n > STATE_EDITS_MAX)
		return ak_fail(err, E2BIG, "edits: more than %d", STATE_EDITS_MAX);
	s->edits = calloc((size_t)n + 1, sizeof(*s->edits));
	if (!s->edits)
		return ak_fail(err, ENOMEM, "out of memory");
	cJSON_ArrayForEach(item, list) {
		rc = get_edit(item, &s->edits[s->n_edits], err);
		if (rc < 0)
			return ak_err_prefix(err, rc, "edits[%zu]", s->n_edits);
		s->n_edits++;
	}
	return 0;
}

static int get_env(const cJSON *obj, struct state_sandbox *s, struct ak_err *err)
{
	int rc = json_get_strings(obj, "env", &s->env, err);

	for (size_t i = 0; rc > 0 && s->env[i]; i++) {
		if (i >= PLAN_ENV_MAX)
			return ak_fail(err, E2BIG, "env: more than %d variables", PLAN_ENV_MAX);
		if (s->env[i][0] == '=' || !strchr(s->env[i], '='))
			return ak_fail(err, EINVAL, "env[%zu]: must be KEY=VALUE", i);
	}
	return rc < 0 ? rc : 0;
}

static int get_mounts(const cJSON *obj, struct state_sandbox *s, struct ak_err *err)
{
	struct run_mount list[RUN_MOUNTS_MAX];
	size_t n = 0;
	int rc = run_mounts_get(obj, "mounts", list, &n, err);

	if (rc < 0 || n == 0)
		return rc;
	s->mounts = run_mounts_copy(list, n);
	s->n_mounts = s->mounts ? n : 0;
	return s->mounts ? 0 : ak_fail(err, ENOMEM, "out of memory");
}

static int get_tools(const cJSON *obj, struct state_sandbox *s, struct ak_err *err)
{
	const char *path = NULL;
	int rc = json_get_string(obj, "path", &path, err);

	if (rc > 0 && !(s->path = strdup(path)))
		return ak_fail(err, ENOMEM, "out of memory");
	if (rc >= 0)
		rc = json_get_strings(obj, "tools", &s->tools, err);
	for (size_t i = 0; rc > 0 && s->tools[i]; i++) {
		if (i >= RUN_TOOLS_MAX)
			return ak_fail(err, E2BIG, "tools: more than %d", RUN_TOOLS_MAX);
	}
	return rc < 0 ? rc : 0;
}

static int check_version(const cJSON *obj, struct ak_err *err)
{
	uint64_t version = 0;
	int rc = json_get_uint(obj, "version", EXACT_MAX, &version, err);

	if (rc < 0)
		return rc;
	if (rc == 0)
		return ak_fail(err, EINVAL, "version: missing");
	if (version > STATE_VERSION)
		return ak_fail(err, EPROTONOSUPPORT,
			"written by a newer agentkernel (format %llu, this version reads %d): update agentkernel; nothing was changed",
			(unsigned long long)version, STATE_VERSION);
	return 0;
}

int state_from_json(const cJSON *obj, struct state_sandbox *ret, struct ak_err *err)
{
	static const char *const known[] = { "version", "name", "uuid", "mode", "profile", "dir", "dir_id", "project_writable",
		"no_network", "nested", "vm", "podman", "limits", "env", "created_us", "link_id", "running", "generation",
		"allowed", "denied", "edits", "mcp", "mounts", "publish", "tools", "path", "image", "image_id", NULL };
	_cleanup_(
		state_done) struct state_sandbox s = { .mode = AK_MODE_NATIVE, .profile = AK_PROFILE_MODERATE, .generation = 1 };
	int rc = cJSON_IsObject(obj) ? check_version(obj, err) : ak_fail(err, EINVAL, "must be an object");

	if (rc == 0)
		rc = json_check_keys(obj, known, err);
	if (rc == 0)
		rc = get_words(obj, &s, err);
	if (rc == 0)
		rc = get_numbers(obj, &s, err);
	if (rc == 0)
		rc = state_limits_get(obj, &s.limits, err);
	if (rc == 0)
		rc = state_mcp_get(obj, &s.mcp, err);
	if (rc == 0)
		rc = publish_get(obj, "publish", s.publish, &s.n_publish, err);
	if (rc == 0)
		rc = get_env(obj, &s, err);
	if (rc == 0)
		rc = get_edits(obj, &s, err);
	if (rc == 0)
		rc = get_mounts(obj, &s, err);
	if (rc == 0)
		rc = get_tools(obj, &s, err);
	if (rc < 0)
		return rc;
	*ret = s;
	s.mounts = NULL;
	s.n_mounts = 0;
	s.tools = NULL;
	s.path = NULL;
	s.env = NULL;
	s.edits = NULL;
	s.n_edits = 0;
	return 0;
}
