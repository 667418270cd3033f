/* The folders in which policies are looked up: see store/policy_dirs.h. */
#include "gateway/store/policy_dirs.h"

void ak_paths_policy_dirs(const struct ak_paths *p, char storage[3][PATH_MAX], struct policy_dirs *ret)
{
	const char *const from[3] = { p->config, AK_SYSTEM_CONFIG, p->data };
	size_t n = 0;

	*ret = (struct policy_dirs){ 0 };
	for (size_t i = 0; i < 3; i++) {
		if (ak_path_join(storage[i], from[i], "policies", NULL) == 0)
			ret->dirs[n++] = storage[i];
	}
}

int ak_policy_load(const struct ak_paths *p, const char *name, const struct policy_edit *edits, size_t n_edits,
	struct policy **ret, struct ak_err *err)
{
	char storage[3][PATH_MAX];
	struct policy_dirs dirs;

	ak_paths_policy_dirs(p, storage, &dirs);
	return policy_load(name, &dirs, edits, n_edits, ret, err);
}
