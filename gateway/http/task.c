/* What the body of a command means, and the worker that runs it. See http/task.h. */
#include "gateway/http/task.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/base/say.h"
#include "gateway/log/audit.h"
#include "gateway/service/service.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- argv and variables ---- */

static int take_argv(const cJSON *list, struct http_command *ret, struct ak_err *err)
{
	const cJSON *item;
	size_t n = 0;

	ret->argv = calloc((size_t)cJSON_GetArraySize(list) + 1, sizeof(*ret->argv));
	if (!ret->argv)
		return ak_fail(err, ENOMEM, "out of memory");
	cJSON_ArrayForEach(item, list)
		ret->argv[n++] = item->valuestring;
	return *ret->argv[0] ? 0 : ak_fail(err, EINVAL, "command[0]: is empty");
}

/* A name without a value would be taken from the server's own environment: that is nobody's business. */
static int check_variable(const cJSON *item, bool pair, struct ak_err *err)
{
	const char *key = pair ? item->valuestring : item->string, *eq = strchr(key, '=');

	if (pair ? !eq || eq == key : eq || !*key)
		return ak_fail(err, EINVAL, "env: '%.60s': wants %s", key, pair ? "KEY=VALUE" : "a name without '='");
	return 0;
}

int http_env_parse(const cJSON *list, struct http_command *ret, struct ak_err *err)
{
	bool pair = cJSON_IsArray(list);
	const cJSON *item;

	if (!list || cJSON_IsNull(list))
		return 0;
	ret->env = calloc((size_t)cJSON_GetArraySize(list) + 1, sizeof(*ret->env));
	if (!ret->env)
		return ak_fail(err, ENOMEM, "out of memory");
	cJSON_ArrayForEach(item, list) {
		char *text = NULL;
		int rc = check_variable(item, pair, err);

		if (rc < 0)
			return rc;
		if (asprintf(&text, "%s%s%s", pair ? "" : item->string, pair ? "" : "=", item->valuestring) < 0)
			return ak_fail(err, ENOMEM, "out of memory");
		ret->env[ret->n_env++] = text;
	}
	return 0;
}

int http_command_parse(const cJSON *obj, struct http_command *ret, struct ak_err *err)
{
	const cJSON *sudo = cJSON_GetObjectItemCaseSensitive(obj, "sudo");
	int rc = take_argv(cJSON_GetObjectItemCaseSensitive(obj, "command"), ret, err);

	if (rc == 0)
		rc = http_env_parse(cJSON_GetObjectItemCaseSensitive(obj, "env"), ret, err);
	if (rc == 0 && cJSON_IsTrue(sudo))
		rc = ak_fail(err, EINVAL, "sudo: not in this version");
	if (rc == 0)
		rc = json_get_uint(obj, "timeout_ms", UINT64_MAX >> 12, &ret->timeout_ms, err);
	ret->workdir = json_text(obj, "workdir", NULL);
	if (rc >= 0 && ret->workdir && *ret->workdir != '/')
		return ak_fail(err, EINVAL, "workdir: '%.60s': must be an absolute path inside the sandbox", ret->workdir);
	return rc < 0 ? rc : 0;
}

void http_command_done(struct http_command *cmd)
{
	for (size_t i = 0; i < cmd->n_env; i++)
		free(cmd->env[i]);
	free(cmd->env);
	free(cmd->argv);
	*cmd = (struct http_command){ 0 };
}

/* ---- /run ---- */

static bool is_false(const cJSON *obj, const char *key)
{
	return cJSON_IsFalse(cJSON_GetObjectItemCaseSensitive(obj, key));
}

/* The strings stay the body's and the command's. */
static int fill_opts(const struct http_task *t, struct run_request *o, struct ak_err *err)
{
	const char *mode = json_text(t->spec, "compatibility_mode", NULL), *profile = json_text(t->spec, "profile", NULL),
		   *cwd = json_text(t->spec, "cwd", NULL);
	int rc;

	*o = (struct run_request){ .mode = AK_MODE_NATIVE, .profile = AK_PROFILE_MODERATE, .name = t->name, .argv = t->cmd.argv };
	o->origin = RUN_ORIGIN_HTTP;
	rc = mode ? ak_mode_parse(mode, &o->mode, err) : 0;
	if (rc == 0 && profile)
		rc = ak_profile_parse(profile, &o->profile, err);
	if (rc < 0)
		return rc;
	o->no_network = is_false(t->spec, "network");
	o->timeout_ms = t->cmd.timeout_ms;
	o->quiet = true;
	/* Only what the mode mounts anyway is taken from the host: a place to start in must not become a mount. */
	if (o->mode != AK_MODE_NATIVE || o->profile == AK_PROFILE_PERMISSIVE)
		o->dir = cwd;
	else
		o->workdir = cwd;
	for (size_t i = 0; i < t->cmd.n_env && i < PLAN_LIST_MAX; i++)
		o->env[o->n_env++] = t->cmd.env[i];
	return 0;
}

int http_task_check(struct http_task *t, struct ak_err *err)
{
	struct run_request *o = malloc(sizeof(*o));
	const char *cwd = json_text(t->spec, "cwd", NULL);
	int rc = o ? fill_opts(t, o, err) : ak_fail(err, ENOMEM, "out of memory");

	if (rc == 0) {
		t->mode = o->mode;
		if (json_text(t->spec, "image", NULL))
			rc = ak_fail(err, EINVAL, "image: not in this version; leave it out to use the host's own programs");
		else if (cwd && *cwd != '/')
			rc = ak_fail(err, EINVAL, "cwd: '%.60s': must be an absolute path", cwd);
		else if (json_truth(t->spec, "network") && !ak_profile_network(o->profile))
			rc = ak_fail(err, EINVAL, "network: the profile %s has none", ak_profile_name(o->profile));
	}
	free(o);
	return rc;
}

/* ---- what the network saw ---- */

/* A second line: the log at PATH, summed up. */
static void put_tally(struct strbuf *out, const char *path)
{
	struct http_tally tally = { 0 };
	struct audit_reader r;
	struct ak_err err;
	char *line;
	bool whole;
	size_t len;

	if (audit_reader_open(&r, path, &err) < 0)
		return;
	while (audit_reader_next(&r, true, &line, &len, &whole) > 0) {
		if (whole)
			http_tally_line(&tally, line, len);
	}
	audit_reader_done(&r);
	strbuf_putc(out, '\n');
	http_tally_put(out, &tally);
}

void http_task_stats(struct http_stats *st, enum ak_mode mode, const char *json, size_t len)
{
	_cleanup_json_ cJSON *obj = cJSON_ParseWithLength(json, len);

	http_stats_add(st, mode, obj);
}

/* ---- in the worker ---- */

static void say_run(const struct run_report *r, struct http_work *w)
{
	_cleanup_strbuf_ struct strbuf out = { 0 };
	const struct run_outcome *o = &r->outcome;
	char dir[PATH_MAX], path[PATH_MAX];

	strbuf_printf(&out,
		"{\"exit_code\":%d,\"duration_ms\":%llu,\"timed_out\":%s,\"out_of_memory\":%s,\"sandbox\":", o->exit_code,
		(unsigned long long)o->duration_ms, o->timed_out ? "true" : "false", o->out_of_memory ? "true" : "false");
	strbuf_json(&out, r->name);
	strbuf_printf(&out, ",\"network\":{\"allowed\":%llu,\"denied\":%llu}}", (unsigned long long)o->net.allowed,
		(unsigned long long)o->net.denied);
	if (o->net.allowed + o->net.denied > 0 && ak_path_join(dir, w->paths->state, "runs", r->name) == 0 &&
		ak_path_join(path, dir, "network.jsonl", NULL) == 0)
		put_tally(&out, path);
	if (!out.failed)
		http_work_data(w, 200, out.data, out.len);
}

void http_task_run(void *ctx, struct http_work *w)
{
	const struct http_task *t = ctx;
	static struct run_request opts; /* large, and this process runs one command */
	struct run_report result = { 0 };
	struct ak_err err = { "" };
	int rc = fill_opts(t, &opts, &err);

	if (rc == 0)
		rc = is_false(t->spec, "fast") ? run_execute(&opts, w->paths, &result, &err)
					       : service_run(&opts, w->paths, &result, &err);
	if (rc < 0) {
		http_work_fail(w, rc == -ENOENT ? -EINVAL : rc, &err);
		return;
	}
	say_run(&result, w);
	rundir_prune_sometimes(w->paths);
}

/* ---- exec ---- */

static void read_counts(const struct ak_paths *paths, const char *name, uint64_t ret[static 2])
{
	static const char *const keys[] = { "allowed", "denied" };
	_cleanup_json_ cJSON *request = cJSON_CreateObject(), *answer = NULL;
	struct ak_err ignored;

	if (!request || !cJSON_AddStringToObject(request, "name", name) ||
		service_call(paths, false, "get", TAKE(request), &answer, &ignored) < 0)
		return;
	for (int i = 0; i < 2; i++) {
		const cJSON *n = cJSON_GetObjectItemCaseSensitive(answer, keys[i]);

		if (cJSON_IsNumber(n) && n->valuedouble > 0)
			ret[i] = (uint64_t)n->valuedouble;
	}
}

static void say_exec(
	const char *name, const struct service_exit *end, uint64_t began_ms, const uint64_t before[2], struct http_work *w)
{
	_cleanup_strbuf_ struct strbuf out = { 0 };
	uint64_t after[2] = { before[0], before[1] };

	read_counts(w->paths, name, after);
	strbuf_printf(&out,
		"{\"exit_code\":%d,\"duration_ms\":%llu,\"timed_out\":%s,\"sandbox\":\"%s\",\"network\":{\"allowed\":%llu,\"denied\":%llu}}",
		end->exit_code, (unsigned long long)(ak_now_ms() - began_ms), end->timed_out ? "true" : "false", name,
		(unsigned long long)(after[0] >= before[0] ? after[0] - before[0] : 0),
		(unsigned long long)(after[1] >= before[1] ? after[1] - before[1] : 0));
	if (!out.failed)
		http_work_data(w, 200, out.data, out.len);
}

void http_exec_work(const char *name, const struct http_command *cmd, struct http_work *w)
{
	struct service_exec_opts opts = {
		.argv = cmd->argv,
		.env = (const char *const *)cmd->env,
		.n_env = cmd->n_env,
		.workdir = cmd->workdir,
		.timeout_ms = cmd->timeout_ms,
		.stdio = { -1, 1, 2 },
	};
	uint64_t began = ak_now_ms(), before[2] = { 0 };
	struct service_exec x = { .sock = -1, .tty_fd = -1 };
	struct service_exit end = { 0 };
	struct ak_err err = { "" };
	int rc;

	read_counts(w->paths, name, before);
	rc = service_exec_start(w->paths, name, &opts, &x, &err);
	if (rc == 0)
		rc = service_exec_poll(&x, true, &end, &err);
	service_exec_done(&x);
	if (rc == 1 && end.exit_code == AK_EXIT_FAILED && end.why.text[0]) {
		err = end.why;
		rc = -EIO;
	}
	if (rc < 0) {
		http_work_fail(w, rc == -EPIPE ? -ESRCH : rc, &err);
		return;
	}
	if (end.why.text[0])
		ak_say("%s", end.why.text);
	say_exec(name, &end, began, before, w);
}
