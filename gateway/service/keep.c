/*
 * `run --keep`: the run's folder becomes the folder of a stopped sandbox, with its files, its network log and the settings that `create` would have
 * stored. `run --name`: who may have that name.
 */
#include "gateway/service/internal.h"

#include "gateway/base/cleanup.h"
#include "gateway/log/events.h"
#include "gateway/run/gw_log.h"
#include "gateway/store/rundir.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int service_claim_name(const struct ak_paths *paths, const char *name, struct ak_err *err)
{
	char path[PATH_MAX];

	if (state_path(paths, name, NULL, path) < 0)
		return ak_fail(err, ENAMETOOLONG, "%s: path too long", paths->state);
	if (access(path, F_OK) == 0)
		return ak_fail(err, EEXIST, "a sandbox named '%s' exists already; remove it or choose another name", name);
	/* The log of a past run would mix with that of its successor. */
	if (!rundir_forget(paths, name))
		return ak_fail(err, EEXIST, "a run named '%s' is going on; wait for its end or choose another name", name);
	return 0;
}

/* The events log says which run it was and how long its log was; `audit verify` checks the sandbox's log against that. */
static void record(const struct ak_paths *paths, const struct state_sandbox *s, const struct run_report *report)
{
	_cleanup_strbuf_ struct strbuf more = { 0 };

	if (report->outcome.has_net)
		gw_log_put_mark(&more, &report->outcome.net);
	event_put_text(&more, "origin", state_origin(s));
	event_write(paths, "run_keep", s->name, &more);
}

int service_keep(const struct ak_paths *paths, const struct run_request *opts, const struct run_plan *plan,
	const struct run_report *report, struct ak_err *err)
{
	_cleanup_(state_done) struct state_sandbox s = { 0 };
	char runs[PATH_MAX], dir[PATH_MAX];
	int rc = ak_path_join(runs, paths->state, "runs", NULL);

	if (rc == 0)
		rc = ak_path_join(dir, runs, report->name, NULL);
	if (rc < 0)
		return ak_fail_errno(err, -rc, "%s", paths->state);
	snprintf(s.name, sizeof(s.name), "%s", report->name);
	rc = service_fill_state(paths, opts, plan, &s, err);
	if (rc < 0)
		return rc;
	s.allowed = report->outcome.net.allowed;
	s.denied = report->outcome.net.denied;
	gw_log_anchor(paths, s.name, &report->outcome.net);
	record(paths, &s, report);
	return state_keep(paths, &s, dir, err);
}
