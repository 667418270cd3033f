/* The folders in which policies are looked up by name. */
#ifndef AK_POLICY_DIRS_H
#define AK_POLICY_DIRS_H

#include "gateway/base/paths.h"
#include "policies/policy.h"

/* User configuration, system configuration, data, in this order. Borrowed from P, which must outlive RET. */
void ak_paths_policy_dirs(const struct ak_paths *p, char storage[3][PATH_MAX], struct policy_dirs *ret);

/* policy_load with these folders: NAME is the name of a policy or the path of its file. */
int ak_policy_load(const struct ak_paths *p, const char *name, const struct policy_edit *edits, size_t n_edits,
	struct policy **ret, struct ak_err *err);

#endif
