/* The installed groups: policies that consist of allow rules and are no compatibility mode. See service/service.h. */
#include "gateway/service/service.h"

#include "gateway/base/cleanup.h"
#include "gateway/store/policy_dirs.h"

#include <stdlib.h>
#include <string.h>

struct group {
	char name[AK_NAME_MAX];
	struct policy *policy; /* owned */
};

struct service_groups {
	struct group *list; /* owned */
	size_t n;
};

void service_groups_freep(struct service_groups **g)
{
	for (size_t i = 0; *g && i < (*g)->n; i++)
		policy_unref((*g)->list[i].policy);
	if (*g)
		free((*g)->list);
	free(*g);
}

const char *service_policy_kind(const char *name, const struct policy *p)
{
	struct ak_err ignored;
	enum ak_mode mode;

	if (ak_mode_parse(name, &mode, &ignored) == 0)
		return "mode";
	return policy_is_group(p) ? "group" : "policy";
}

struct service_groups *service_groups_load(const struct ak_paths *paths)
{
	_cleanup_free_ struct service_policy_file *files = NULL;
	struct service_groups *g = calloc(1, sizeof(*g));
	struct ak_err ignored;
	size_t n = 0;

	if (!g || service_policies(paths, &files, &n, &ignored) < 0)
		return g;
	g->list = calloc(n + 1, sizeof(*g->list));
	for (size_t i = 0; g->list && i < n; i++) {
		_cleanup_(policy_unrefp) struct policy *p = NULL;

		if (ak_policy_load(paths, files[i].name, NULL, 0, &p, &ignored) < 0 ||
			strcmp(service_policy_kind(files[i].name, p), "group") != 0)
			continue;
		memcpy(g->list[g->n].name, files[i].name, sizeof(files[i].name));
		g->list[g->n++].policy = TAKE(p);
	}
	return g;
}

static bool allows(const struct policy *p, const char *name, enum policy_proto proto, uint16_t port)
{
	return port ? policy_judge_name(p, name, proto, port).allow : policy_judge_dns(p, name).allow;
}

/* The smallest of several groups opens the least. */
const char *service_group_of(const struct service_groups *g, const char *name, enum policy_proto proto, uint16_t port)
{
	const struct group *best = NULL;

	for (size_t i = 0; g && i < g->n; i++) {
		const struct group *it = &g->list[i];

		if (allows(it->policy, name, proto, port) &&
			(!best || policy_rule_count(it->policy) < policy_rule_count(best->policy)))
			best = it;
	}
	return best ? best->name : NULL;
}
