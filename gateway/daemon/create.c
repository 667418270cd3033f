/* {"op":"create"}: checked whole before anything is written. */
#include "gateway/daemon/internal.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/log/events.h"
#include "gateway/store/rundir.h"

#include <errno.h>
#include <string.h>

/* What start would refuse is refused now. The project is what is there now. */
static int check(struct daemon *d, struct state_sandbox *s, struct policy **ret_policy, struct ak_err *err)
{
	static struct run_plan plan;
	char empty[PATH_MAX];
	int rc = rundir_empty(d->paths, empty, err);

	if (rc == 0)
		rc = state_plan(d->paths, s, empty, &plan, err);
	if (rc < 0)
		return rc;
	run_plan_done(&plan);
	s->dir_id = plan.project_id;
	return state_policy(d->paths, s, ak_deadline_now_us(), ret_policy, err);
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
	event_put_text(&more, "origin", state_origin(&sb->state));
	event_write(sb->d->paths, "sandbox_create", sb->state.name, &more);
}

void op_create(struct request *r)
{
	struct daemon *d = r->d;
	_cleanup_(policy_unrefp) struct policy *policy = NULL;
	_cleanup_(state_done) struct state_sandbox s = { 0 };
	struct dsb *sb = NULL;
	struct ak_err err, ignored;
	int rc = create_ask_parse(d->paths, r->obj, &s, &err);

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
