/* `run --explain`: see service/service.h. */
#include "gateway/service/service.h"

#include "gateway/base/cleanup.h"
#include "gateway/store/explain.h"
#include "gateway/store/policy_dirs.h"
#include "gateway/store/rundir.h"

#include <errno.h>

static int load_policy(const struct run_plan *plan, const struct run_request *opts, const struct ak_paths *paths,
	struct policy **ret, struct ak_err *err)
{
	char storage[3][PATH_MAX];
	struct policy_dirs dirs;

	if (!plan->network)
		return 0;
	ak_paths_policy_dirs(paths, storage, &dirs);
	return policy_load(plan->policy, &dirs, opts->edits, opts->n_edits, ret, err);
}

int service_explain(const struct run_request *opts, const struct ak_paths *paths, struct strbuf *out, struct ak_err *err)
{
	_cleanup_(policy_unrefp) struct policy *policy = NULL;
	static struct run_plan plan; /* large */
	char empty[PATH_MAX];
	int rc = rundir_empty(paths, empty, err);

	if (rc == 0)
		rc = run_plan_init(&plan, opts, paths, empty, err);
	if (rc < 0)
		return rc;
	rc = load_policy(&plan, opts, paths, &policy, err);
	if (rc == 0) {
		run_plan_look(&plan, opts, paths);
		run_plan_explain(&plan, opts, policy, out);
		rc = out->failed ? ak_fail(err, ENOMEM, "out of memory") : 0;
	}
	run_plan_done(&plan);
	return rc;
}
