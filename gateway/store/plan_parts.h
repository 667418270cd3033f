/* Parts of store/plan.c in files of their own. Private to the folder. */
#ifndef AK_PLAN_PARTS_H
#define AK_PLAN_PARTS_H

#include "gateway/store/plan.h"

/* plan.c: set "K=V"; replaces an earlier value. */
int plan_env_set(struct run_plan *plan, const char *pair, enum plan_source from);
int plan_env_setf(struct run_plan *plan, const char *key, const char *value, enum plan_source from);

/* plan_backend.c: refuse what the backend cannot do, and find what it needs. */
int plan_backend(struct run_plan *plan, const struct run_request *opts, struct ak_err *err);

/* plan_agent.c: what the agent that runs needs. Call it when the variables of the user are set. */
int plan_agent(struct run_plan *plan, const struct run_request *opts, const struct ak_paths *paths, struct ak_err *err);

/* plan_machine.c: pass on the caller's variables that name certificate authorities, where the sandbox sees these. */
int plan_authorities(struct run_plan *plan);

/* Give a shell that agents can use, and a UTF-8 locale if the caller has chosen none. An image has its own. */
int plan_machine(struct run_plan *plan);

void plan_add_file(struct run_plan *plan, const char *path, const char *text, const char *why); /* all borrowed */

/*
 * plan_machine.c: with a project, give git the caller's name and address, and let it work in folders of any owner. Both are
 * in the system's configuration inside, so that those of the repository win, as on the host. WITH_ENV: the caller's variables
 * of that kind, too.
 */
int plan_git(struct run_plan *plan, bool with_env);

/* plan_mise.c: if a shim of mise is brought in, the versions that it chooses from. */
int plan_mise(struct run_plan *plan);

#endif
