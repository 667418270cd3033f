/* The folders in which a policy's name is looked up. */
#ifndef AK_POLICY_DIRS_H
#define AK_POLICY_DIRS_H

#include "gateway/base/paths.h"
#include "policies/policy.h"

/* user config, system config, data: where NAME.json is looked up. Borrowed from P, which outlives it. */
void ak_paths_policy_dirs(const struct ak_paths *p, char storage[3][PATH_MAX], struct policy_dirs *ret);

#endif
