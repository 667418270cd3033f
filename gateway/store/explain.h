/* `run --explain`: everything that a plan decides, each with its reason. */
#ifndef AK_EXPLAIN_H
#define AK_EXPLAIN_H

#include "gateway/base/strbuf.h"
#include "gateway/store/plan.h"

/* POLICY is NULL without a network. Values of variables that may be secrets are not shown. */
void run_plan_explain(
	const struct run_plan *plan, const struct run_request *request, const struct policy *policy, struct strbuf *out);

#endif
