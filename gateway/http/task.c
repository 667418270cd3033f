/* Decode the body of a command, and run it in the worker. See http/task.h. */
#include "gateway/http/task.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/base/say.h"
#include "gateway/service/service.h"
#include "gateway/store/policy_dirs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- /run ---- */

/* The strings in O are borrowed from the body and from MEM. */
static int fill_opts(const struct http_task *t, struct run_request *o, struct field_mem *mem, struct ak_err *err)
{
	int rc;

	*o = (struct run_request){
		.mode = AK_MODE_NATIVE, .profile = AK_PROFILE_MODERATE, .name = t->name, .origin = RUN_ORIGIN_HTTP, .quiet = true
	};
	rc = fields_decode(VERB_RUN, FIELD_HTTP, t->spec, o, mem, err);
	if (rc < 0)
		return rc;
	if (json_truth(t->spec, "network") && !ak_profile_network(o->profile))
		return ak_fail(err, EINVAL, "network: the profile %s has no network", ak_profile_name(o->profile));
	for (size_t i = 0; i < o->n_publish; i++) {
		if (!o->publish[i].host_port)
			return ak_fail(err, EINVAL,
				"publish[%zu]: name the port of the host, because the answer comes after the run", i);
	}
	/* Use cwd as project folder only where the mode or profile mounts it anyway: cwd alone must not add a mount. */
	if (o->mode != AK_MODE_NATIVE || o->profile == AK_PROFILE_PERMISSIVE)
		o->dir = TAKE(o->workdir);
	return 0;
}

int http_task_check(struct http_task *t, struct ak_err *err)
{
	_cleanup_(field_mem_done) struct field_mem mem = { 0 };
	struct run_request *o = malloc(sizeof(*o));
	int rc = o ? fill_opts(t, o, &mem, err) : ak_fail(err, ENOMEM, "out of memory");

	if (rc == 0 && o->mode == AK_MODE_OWN) /* before a stream has begun */
		rc = ak_policy_check_mode(t->s->paths, o->own, err);
	if (rc == 0)
		t->mode = o->mode;
	free(o);
	return rc;
}

/* A request without a folder has no project, unless its mode mounts the server's own folder. */
int http_settings(struct run_request *o, const struct ak_paths *paths, struct config **ret, struct ak_err *err)
{
	bool mounts = o->mode != AK_MODE_NATIVE || o->profile == AK_PROFILE_PERMISSIVE;
	int rc = service_config(o, o->dir ? o->dir : mounts ? "." : NULL, paths, ret, err);

	return rc == -EKEYREJECTED ? -EINVAL : rc; /* only the user can trust the file: for a client it is a bad request */
}

/* ---- in the worker ---- */

static void end_report(struct work *w, int rc, struct run_report *r, const struct ak_err *err)
{
	_cleanup_json_ cJSON *json = rc < 0 ? NULL : run_report_to_json(r);

	work_end_json(w, rc, json, err);
	run_report_done(r);
}

void http_task_run(void *ctx, struct work *w)
{
	const struct http_task *t = ctx;
	static struct run_request opts; /* static because it is large; this process runs only one command */
	_cleanup_(field_mem_done) struct field_mem mem = { 0 };
	const struct ak_paths *paths = t->s->paths;
	struct run_report report = { 0 };
	struct ak_err err = { "" };
	_cleanup_(config_freep) struct config *settings = NULL;
	int rc = fill_opts(t, &opts, &mem, &err);

	if (rc == 0)
		rc = http_settings(&opts, paths, &settings, &err);
	if (rc == 0)
		rc = service_run(&opts, paths, &report, &err);
	end_report(w, rc == -ENOENT ? -EINVAL : rc, &report,
		&err); /* ENOENT would become 404, but a part of the request is wrong, not the path */
	rundir_prune_sometimes(paths);
}

void http_exec_work(const struct ak_paths *paths, const char *name, const cJSON *spec, struct work *w)
{
	static struct run_request o; /* static because it is large; this process runs only one command */
	_cleanup_(field_mem_done) struct field_mem mem = { 0 };
	struct run_report report = { 0 };
	struct ak_err err = { "" };
	int rc = fields_decode(VERB_EXEC, FIELD_HTTP, spec, &o, &mem, &err);
	const struct service_exec_opts opts = {
		.argv = o.argv,
		.env = o.env,
		.n_env = o.n_env,
		.workdir = o.workdir,
		.timeout_ms = o.timeout_ms,
		.stdio = { -1, 1, 2 },
		.count = true,
	};

	if (rc == 0)
		rc = service_exec_run(paths, name, &opts, NULL, &report, &err);
	if (rc == 0 && report.outcome.why.text[0])
		ak_say("%s", report.outcome.why.text);
	end_report(w, rc == -EPIPE ? -ESRCH : rc, &report, &err);
}

/* ---- in the server ---- */

int http_report_take(int rc, const char *payload, size_t len, struct run_report *ret, struct ak_err *err)
{
	_cleanup_json_ cJSON *json = rc < 0 ? NULL : cJSON_ParseWithLength(payload, len);

	if (rc < 0)
		return ak_fail(err, -rc, "%.*s", (int)len, payload);
	if (!json)
		return ak_fail(err, ENOMEM, "out of memory");
	rc = run_report_from_json(json, ret, err);
	return rc < 0 ? ak_err_prefix(err, -EIO, "the worker's report") : 0;
}
