/* The folders in which policies are looked up by name. */
#ifndef AK_POLICY_DIRS_H
#define AK_POLICY_DIRS_H

#include "gateway/base/paths.h"
#include "gateway/store/plan.h"
#include "policies/policy.h"

/* User configuration, system configuration, data, in this order. Borrowed from P, which must outlive RET. */
void ak_paths_policy_dirs(const struct ak_paths *p, char storage[3][PATH_MAX], struct policy_dirs *ret);

/* policy_load with these folders: NAME is the name of a policy or the path of its file. */
int ak_policy_load(const struct ak_paths *p, const char *name, const struct policy_edit *edits, size_t n_edits,
	struct policy **ret, struct ak_err *err);

/* Can NAME be an AK_MODE_OWN: is a policy of this name in one of the folders? -EINVAL if not. */
int ak_policy_check_mode(const struct ak_paths *p, const char *name, struct ak_err *err);

/*
 * Read the policy files that *O names (--policy FILE), once: everything after this works on what was read, also later starts of a
 * persistent sandbox, because a sandbox that mounts the folder of the file could change it. If there is any, *O becomes a copy
 * whose edits hold the content, and *RET_OWN owns it.
 */
int run_request_pin(const struct ak_paths *p, const struct run_request **o, struct run_request **ret_own, struct ak_err *err);
void run_request_freep(struct run_request **o);

#endif
