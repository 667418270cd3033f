/* Options that say what a sandbox is: shared by `run` and `create`. */
#include "gateway/cli/opts.h"

#include "gateway/base/cleanup.h"

#include <errno.h>
#include <string.h>

/* ---- one function for each option that takes a value ---- */

static int set_mode(struct run_request *o, const char *v, struct ak_err *err)
{
	return ak_mode_parse(v, &o->mode, err);
}

static int set_profile(struct run_request *o, const char *v, struct ak_err *err)
{
	return ak_profile_parse(v, &o->profile, err);
}

static int set_dir(struct run_request *o, const char *v, struct ak_err *err)
{
	o->dir = v;
	return 0;
}

static int set_workdir(struct run_request *o, const char *v, struct ak_err *err)
{
	o->workdir = v;
	return 0;
}

static int add_env(struct run_request *o, const char *v, struct ak_err *err)
{
	if (o->n_env == PLAN_LIST_MAX)
		return ak_fail(err, E2BIG, "more than %d variables", PLAN_LIST_MAX);
	o->env[o->n_env++] = v;
	return 0;
}

static int set_timeout(struct run_request *o, const char *v, struct ak_err *err)
{
	unsigned long long ms;
	int rc = ak_parse_duration(v, &ms, err);

	if (rc == 0 && ms == 0)
		rc = ak_fail(err, EINVAL, "'%s': must be more than 0", v);
	if (rc == 0)
		o->timeout_ms = ms;
	return rc;
}

static int set_memory(struct run_request *o, const char *v, struct ak_err *err)
{
	unsigned long long bytes;
	int rc = ak_parse_size(v, &bytes, err);

	if (rc == 0 && bytes < 4u << 20)
		rc = ak_fail(err, EINVAL, "'%s': must be at least 4M", v);
	if (rc == 0)
		o->limits.memory_bytes = bytes;
	return rc;
}

static int set_count(const char *v, unsigned long long max, uint32_t scale, uint32_t *ret, struct ak_err *err)
{
	unsigned long long n;
	int rc = ak_parse_count(v, 1, max, &n, err);

	if (rc == 0)
		*ret = (uint32_t)n * scale;
	return rc;
}

static int set_vcpus(struct run_request *o, const char *v, struct ak_err *err)
{
	return set_count(v, 1024, 1000, &o->limits.cpus_milli, err);
}

static int set_pids(struct run_request *o, const char *v, struct ak_err *err)
{
	return set_count(v, 1u << 22, 1, &o->limits.pids, err);
}

static int set_backend(struct run_request *o, const char *v, struct ak_err *err)
{
	return strcmp(v, "ns") ? ak_fail(err, ENOTSUP, "'%s' is not there yet; ns is", v) : 0;
}

static int add_edit(struct run_request *o, enum policy_edit_op op, const char *v, struct ak_err *err)
{
	if (o->n_edits == PLAN_LIST_MAX)
		return ak_fail(err, E2BIG, "more than %d rules; put them in a policy file", PLAN_LIST_MAX);
	o->edits[o->n_edits++] = (struct policy_edit){ op, v };
	return 0;
}

static const struct {
	const char *name;
	int (*set)(struct run_request *o, const char *value, struct ak_err *err);
} values[] = {
	{ "compatibility-mode", set_mode },
	{ "profile", set_profile },
	{ "dir", set_dir },
	{ "workdir", set_workdir },
	{ "env", add_env },
	{ "timeout", set_timeout },
	{ "memory", set_memory },
	{ "vcpus", set_vcpus },
	{ "pids", set_pids },
	{ "backend", set_backend },
};

static int set_flag(struct run_request *o, const char *name)
{
	const struct {
		const char *name;
		bool *flag;
	} flags[] = {
		{ "no-network", &o->no_network },
		{ "nested-namespaces", &o->nested },
		{ "keep", &o->keep },
		{ "pass-api-key", &o->pass_api_key },
		{ "tty", &o->tty },
		{ "quiet", &o->quiet },
		{ "json", &o->json },
		{ "mcp", &o->mcp },
		{ "project-writable", &o->project_writable },
		{ "allow-broad-dir", &o->allow_broad_dir },
	};

	for (size_t i = 0; i < ARRAY_SIZE(flags); i++) {
		if (!strcmp(flags[i].name, name)) {
			*flags[i].flag = true;
			return 0;
		}
	}
	return 0; /* --interactive: standard input is passed through as it is */
}

int run_request_set(struct run_request *o, const struct cmd_opt *opt, const char *value, struct ak_err *err)
{
	enum policy_edit_op op;
	int rc = 1; /* nobody knows it */

	if (!opt->arg)
		return set_flag(o, opt->name);
	if (policy_edit_parse(opt->name, &op))
		rc = add_edit(o, op, value, err);
	for (size_t i = 0; i < ARRAY_SIZE(values); i++) {
		if (!strcmp(values[i].name, opt->name))
			rc = values[i].set(o, value, err);
	}
	if (rc > 0)
		return ak_fail(err, ENOTSUP, "--%s is not there yet", opt->name);
	return rc < 0 ? ak_err_prefix(err, rc, "--%s", opt->name) : 0;
}
