/* API for persistent sandboxes: create, list, get, start, stop, remove, snapshots. All of it runs in workers. See http/http.h. */
#include "gateway/http/http.h"

#include "gateway/base/cleanup.h"
#include "gateway/http/task.h"
#include "gateway/service/service.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const struct service_how forced = { .force = true };

/* Reply with the SandboxInfo of NAME, or with the error when RC is negative. */
static void end_info(struct http_call *c, struct work *w, int rc, const char *name, struct ak_err *err)
{
	_cleanup_json_ cJSON *info = NULL;

	if (rc == 0)
		rc = service_get(c->s->paths, name, &info, err);
	work_end_json(w, rc, info, err);
}

void http_work_list(struct http_call *c, struct work *w)
{
	_cleanup_json_ cJSON *list = NULL;
	struct ak_err err;
	int rc = service_list(c->s->paths, NULL, NULL, &list, &err);

	work_end_json(w, rc, list, &err);
}

void http_work_get(struct http_call *c, struct work *w)
{
	struct ak_err err;

	end_info(c, w, 0, c->params.name, &err);
}

void http_work_get_uuid(struct http_call *c, struct work *w)
{
	const char *uuid = c->params.uuid;
	struct ak_err err;
	int rc = 0;

	if (strlen(uuid) != 36 || strspn(uuid, "0123456789abcdefABCDEF-") != 36)
		rc = ak_fail(&err, EINVAL, "'%.60s' is not a UUID", uuid);
	end_info(c, w, rc, uuid, &err);
}

/* ---- create ---- */

static int fill_opts(const struct http_call *c, struct run_request *o, struct field_mem *mem, struct ak_err *err)
{
	int rc;

	*o = (struct run_request){ .mode = AK_MODE_NATIVE, .profile = AK_PROFILE_MODERATE, .quiet = true };
	rc = fields_decode(VERB_CREATE, FIELD_HTTP, c->body, o, mem, err);
	if (rc == 0 && json_truth(c->body, "network") && !ak_profile_network(o->profile))
		rc = ak_fail(err, EINVAL, "network: the profile %s has no network", ak_profile_name(o->profile));
	return rc;
}

/* Clients run commands right after they create a sandbox, so start it now. Remove a sandbox that does not start. */
static int create(struct http_call *c, const char *name, const struct run_request *opts, struct ak_err *err)
{
	_cleanup_json_ cJSON *info = NULL;
	struct ak_err ignored;
	int rc = service_create(c->s->paths, name, opts, &info, err);

	if (rc == 0 && (rc = service_start(c->s->paths, name, NULL, NULL, err)) < 0) {
		(void)service_remove(c->s->paths, name, &forced, NULL, &ignored);
		ak_err_prefix(err, rc, "the new sandbox does not start");
	}
	return rc == -ENOENT || rc == -ENOTDIR ? -EINVAL : rc; /* a wrong project folder is a bad request */
}

void http_work_create(struct http_call *c, struct work *w)
{
	static struct run_request opts; /* static because it is large; this process creates only one sandbox */
	const char *name = http_body_text(c, "name");
	_cleanup_(field_mem_done) struct field_mem mem = { 0 };
	struct ak_err err;
	_cleanup_(config_freep) struct config *settings = NULL;
	int rc = fill_opts(c, &opts, &mem, &err);

	if (rc == 0)
		rc = http_settings(&opts, c->s->paths, &settings, &err);
	if (rc == 0)
		rc = create(c, name, &opts, &err);
	end_info(c, w, rc, name, &err);
}

/* ---- start, stop, remove ---- */

void http_work_start(struct http_call *c, struct work *w)
{
	struct ak_err err;
	int rc = service_start(c->s->paths, c->params.name, NULL, NULL, &err);

	end_info(c, w, rc, c->params.name, &err);
}

void http_work_stop(struct http_call *c, struct work *w)
{
	struct ak_err err;
	int rc = service_stop(c->s->paths, c->params.name, NULL, NULL, &err);

	end_info(c, w, rc, c->params.name, &err);
}

void http_work_remove(struct http_call *c, struct work *w)
{
	struct ak_err err;
	int rc = service_remove(c->s->paths, c->params.name, &forced, NULL, &err);

	work_end_text(w, rc, "removed", &err);
}

/* ---- snapshots ---- */

static struct service_copy_how copy_how(const struct http_call *c)
{
	return (struct service_copy_how){ .tag = json_text(c->body, "tag", NULL), .stop = json_truth(c->body, "stop") };
}

void http_work_snapshots(struct http_call *c, struct work *w)
{
	_cleanup_json_ cJSON *list = NULL;
	struct ak_err err;
	int rc = service_snapshots(c->s->paths, c->params.name, &list, &err);

	work_end_json(w, rc, list, &err);
}

void http_work_snapshot(struct http_call *c, struct work *w)
{
	const struct service_copy_how how = copy_how(c);
	_cleanup_json_ cJSON *made = NULL;
	struct ak_err err;
	int rc = service_snapshot(c->s->paths, c->params.name, &how, &made, &err);

	work_end_json(w, rc, made, &err);
}

void http_work_snapshot_remove(struct http_call *c, struct work *w)
{
	struct ak_err err;
	int rc = service_snapshot_remove(c->s->paths, c->params.name, c->params.tag, &err);

	work_end_text(w, rc, "removed", &err);
}

void http_work_restore(struct http_call *c, struct work *w)
{
	const struct service_copy_how how = copy_how(c);
	struct ak_err err;
	int rc = service_restore(c->s->paths, c->params.name, &how, NULL, &err);

	end_info(c, w, rc, c->params.name, &err);
}

void http_work_fork(struct http_call *c, struct work *w)
{
	const struct service_copy_how how = copy_how(c);
	const char *name = http_body_text(c, "name");
	struct ak_err err;
	int rc = service_fork(c->s->paths, c->params.name, name, &how, NULL, &err);

	end_info(c, w, rc, name, &err);
}
