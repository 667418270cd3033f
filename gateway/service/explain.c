/* `run --explain`: see service/service.h. */
#include "gateway/service/internal.h"

#include "gateway/base/cleanup.h"
#include "gateway/store/explain.h"
#include "gateway/store/policy_dirs.h"
#include "gateway/store/rundir.h"

#include <errno.h>

static int load_policy(const struct run_plan *plan, const struct run_request *opts, const struct ak_paths *paths,
	struct policy **ret, struct ak_err *err)
{
	if (!plan->network)
		return 0;
	return ak_policy_load(paths, plan->policy, opts->edits, opts->n_edits, ret, err);
}

int service_explain(const struct run_request *opts, const struct config *c, const struct ak_paths *paths, struct strbuf *out,
	struct ak_err *err)
{
	_cleanup_(policy_unrefp) struct policy *policy = NULL;
	static struct run_plan plan; /* large */
	_cleanup_(run_request_freep) struct run_request *own = NULL;
	char empty[PATH_MAX];
	int rc = run_request_pin(paths, &opts, &own, err);

	if (rc == 0)
		rc = rundir_empty(paths, empty, err);
	if (rc == 0)
		rc = run_plan_init(&plan, opts, paths, empty, err);
	if (rc < 0)
		return rc;
	rc = load_policy(&plan, opts, paths, &policy, err);
	if (rc == 0) {
		run_plan_look(&plan, opts, paths);
		run_plan_explain(&plan, opts, policy, out);
		config_explain(c, opts, out);
		service_explain_image(opts, c, &plan, paths, out);
		rc = out->failed ? ak_fail(err, ENOMEM, "out of memory") : 0;
	}
	run_plan_done(&plan);
	return rc;
}
