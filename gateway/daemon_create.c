/* {"op":"create"}: checked whole before anything is written. */
#include "gateway/daemon_internal.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/events.h"
#include "gateway/rundir.h"

#include <errno.h>
#include <string.h>

/* The request is the state's own form, but for the edits, which come as they do later. */
static int read_request(struct request *r, struct state_sandbox *ret, struct ak_err *err)
{
	static const char *const known[] = { "op", "name", "mode", "profile", "dir", "no_network", "limits", "env", "edits",
		NULL };
	_cleanup_json_ cJSON *edits = NULL;
	int rc = json_check_keys(r->obj, known, err);

	if (rc < 0)
		return rc;
	cJSON_DeleteItemFromObjectCaseSensitive(r->obj, "op");
	edits = cJSON_CreateObject();
	if (!edits || !cJSON_AddNumberToObject(r->obj, "version", STATE_VERSION))
		return ak_fail(err, ENOMEM, "out of memory");
	if (cJSON_HasObjectItem(r->obj, "edits"))
		cJSON_AddItemToObject(edits, "edits", cJSON_DetachItemFromObjectCaseSensitive(r->obj, "edits"));
	rc = state_from_json(r->obj, ret, err);
	if (rc < 0)
		return rc;
	rc = policy_edits_read(r->d, edits, ret, err);
	if (rc < 0)
		state_done(ret);
	return rc;
}

/* What start would refuse is refused now. */
static int check(struct daemon *d, const struct state_sandbox *s, struct policy **ret_policy, struct ak_err *err)
{
	static struct run_plan plan;
	char empty[PATH_MAX];
	int rc = rundir_empty(d->paths, empty, err);

	if (rc == 0)
		rc = state_plan(d->paths, s, empty, &plan, err);
	if (rc < 0)
		return rc;
	run_plan_done(&plan);
	return state_policy(d->paths, s, ak_wall_us(), ret_policy, err);
}

static void record(const struct dsb *sb)
{
	_cleanup_strbuf_ struct strbuf more = { 0 };

	event_put_text(&more, "uuid", sb->state.uuid);
	event_put_text(&more, "mode", ak_mode_name(sb->state.mode));
	event_put_text(&more, "profile", ak_profile_name(sb->state.profile));
	strbuf_printf(&more, ",\"network\":%s", state_network(&sb->state) ? "true" : "false");
	if (sb->state.dir[0])
		event_put_text(&more, "project", sb->state.dir);
	event_write(sb->d->paths, "sandbox_create", sb->state.name, &more);
}

void op_create(struct request *r)
{
	struct daemon *d = r->d;
	_cleanup_(policy_unrefp) struct policy *policy = NULL;
	_cleanup_(state_done) struct state_sandbox s = { 0 };
	struct dsb *sb = NULL;
	struct ak_err err, ignored;
	int rc = read_request(r, &s, &err);

	if (rc == 0)
		rc = check(d, &s, &policy, &err);
	if (rc == 0)
		rc = state_create(d->paths, &s, &err);
	if (rc == 0) {
		(void)state_write_policy(d->paths, s.name, policy, &ignored);
		rc = dsb_new(d, &s, &sb);
		if (rc < 0)
			ak_fail(&err, ENOMEM, "out of memory");
	}
	if (rc < 0) {
		request_fail(r, -rc, err.text);
		return;
	}
	record(sb);
	request_answer(r, dsb_info(sb));
}
