/* Persistent sandboxes by way of the API: create, list, get, start, stop, remove. All of it runs in workers. See http/http.h. */
#include "gateway/http/http.h"

#include "gateway/base/cleanup.h"
#include "gateway/service/service.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void say_info(struct http_work *w, unsigned status, const char *name)
{
	_cleanup_json_ cJSON *info = NULL;
	struct ak_err err;
	int rc = service_get(w->paths, name, &info, &err);

	if (rc < 0)
		http_work_fail(w, rc, &err);
	else
		http_work_json(w, status, info);
}

void http_work_list(struct http_call *c, struct http_work *w)
{
	_cleanup_json_ cJSON *list = NULL;
	struct ak_err err;
	int rc = service_list(w->paths, NULL, NULL, &list, &err);

	if (rc < 0)
		http_work_fail(w, rc, &err);
	else
		http_work_json(w, 200, list);
}

void http_work_get(struct http_call *c, struct http_work *w)
{
	say_info(w, 200, c->params.name);
}

void http_work_get_uuid(struct http_call *c, struct http_work *w)
{
	const char *uuid = c->params.uuid;
	struct ak_err err;

	if (strlen(uuid) != 36 || strspn(uuid, "0123456789abcdefABCDEF-") != 36) {
		http_work_fail(w, ak_fail(&err, EINVAL, "'%.60s' is not a UUID", uuid), &err);
		return;
	}
	say_info(w, 200, uuid);
}

/* ---- create ---- */

static int fill_opts(const struct http_call *c, const struct http_command *cmd, struct run_request *o, struct ak_err *err)
{
	const char *mode = http_body_text(c, "compatibility_mode"), *profile = http_body_text(c, "profile");
	uint64_t vcpus = 0, memory_mb = 0;
	int rc;

	*o = (struct run_request){
		.mode = AK_MODE_NATIVE, .profile = AK_PROFILE_MODERATE, .dir = http_body_text(c, "dir"), .quiet = true
	};
	rc = mode ? ak_mode_parse(mode, &o->mode, err) : 0;
	if (rc == 0 && profile)
		rc = ak_profile_parse(profile, &o->profile, err);
	if (rc == 0)
		rc = json_get_uint(c->body, "vcpus", 1024, &vcpus, err);
	if (rc >= 0)
		rc = json_get_uint(c->body, "memory_mb", 1u << 24, &memory_mb, err);
	if (rc < 0)
		return rc;
	o->limits.cpus_milli = (uint32_t)vcpus * 1000;
	o->limits.memory_bytes = memory_mb << 20;
	o->no_network = cJSON_IsFalse(cJSON_GetObjectItemCaseSensitive(c->body, "network"));
	if (json_truth(c->body, "network") && !ak_profile_network(o->profile))
		return ak_fail(err, EINVAL, "network: the profile %s has none", ak_profile_name(o->profile));
	if (o->dir && *o->dir != '/')
		return ak_fail(err, EINVAL, "dir: '%.60s': must be an absolute path", o->dir);
	if (http_body_text(c, "image"))
		return ak_fail(err, EINVAL, "image: not in this version; leave it out to use the host's own programs");
	for (size_t i = 0; i < cmd->n_env && i < PLAN_LIST_MAX; i++)
		o->env[o->n_env++] = cmd->env[i];
	return 0;
}

/* Clients of this API run commands right after they created a sandbox: one that cannot start is not left behind half-made. */
static int create(struct http_call *c, const char *name, const struct run_request *opts, struct http_work *w, struct ak_err *err)
{
	_cleanup_json_ cJSON *info = NULL;
	struct ak_err ignored;
	int rc = service_create(w->paths, name, opts, &info, err);

	if (rc < 0)
		return rc == -ENOENT || rc == -ENOTDIR ? -EINVAL : rc; /* the project folder */
	rc = service_start(w->paths, name, err);
	if (rc < 0) {
		(void)service_remove(w->paths, name, true, &ignored);
		return ak_err_prefix(err, rc, "created, but it does not start");
	}
	return 0;
}

void http_work_create(struct http_call *c, struct http_work *w)
{
	static struct run_request opts; /* large, and this process makes one sandbox */
	const char *name = http_body_text(c, "name");
	struct http_command cmd = { 0 };
	struct ak_err err;
	int rc = service_check_name(name, &err);

	if (rc == 0)
		rc = http_env_parse(cJSON_GetObjectItemCaseSensitive(c->body, "env"), &cmd, &err);
	if (rc == 0)
		rc = fill_opts(c, &cmd, &opts, &err);
	if (rc == 0)
		rc = create(c, name, &opts, w, &err);
	if (rc < 0)
		http_work_fail(w, rc, &err);
	else
		say_info(w, 201, name);
	http_command_done(&cmd);
}

/* ---- start, stop, remove ---- */

void http_work_start(struct http_call *c, struct http_work *w)
{
	struct ak_err err;
	int rc = service_start(w->paths, c->params.name, &err);

	if (rc < 0)
		http_work_fail(w, rc, &err);
	else
		say_info(w, 200, c->params.name);
}

void http_work_stop(struct http_call *c, struct http_work *w)
{
	struct ak_err err;
	int rc = service_stop(w->paths, c->params.name, &err);

	if (rc < 0)
		http_work_fail(w, rc, &err);
	else
		say_info(w, 200, c->params.name);
}

void http_work_remove(struct http_call *c, struct http_work *w)
{
	struct ak_err err;
	int rc = service_remove(w->paths, c->params.name, true, &err);

	if (rc < 0)
		http_work_fail(w, rc, &err);
	else
		http_work_text(w, 200, "removed");
}
