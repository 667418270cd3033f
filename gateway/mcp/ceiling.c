/*
 * The limits of a call, set by the user who started the server. See mcp/mcp.h.
 *
 * Modes have no order: each reaches hosts that the others do not. So a call may choose only among the modes that the user named.
 * Profiles are ordered. mcp/enter.c decides which existing sandboxes a call may use.
 */
#include "gateway/mcp/run.h"

#include "gateway/base/cleanup.h"
#include "gateway/service/service.h"
#include "gateway/store/policy_dirs.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MODES_MAX 256

void mcp_ceiling_finish(struct mcp_ceiling *c, size_t n_modes)
{
	if (n_modes > 0)
		return;
	c->any_mode = true;
	c->mode = AK_MODE_CLAUDE;
	for (int i = 0; i < AK_MODE_OWN; i++)
		c->modes[i] = i != AK_MODE_NATIVE;
}

/* Format the allowed modes: "claude, codex". */
static const char *modes_text(const struct mcp_ceiling *c, char *buf, size_t size)
{
	size_t used = 0;

	buf[0] = '\0';
	for (int i = 0; i < AK_MODE_OWN && used < size; i++) {
		if (c->modes[i])
			used += (size_t)snprintf(
				buf + used, size - used, "%s%s", used ? ", " : "", ak_mode_name((enum ak_mode)i));
	}
	for (size_t i = 0; i < c->n_own && used < size; i++)
		used += (size_t)snprintf(buf + used, size - used, "%s%s", used ? ", " : "", c->own[i]);
	return buf;
}

bool mcp_ceiling_has(const struct mcp_ceiling *c, enum ak_mode mode, const char *own)
{
	if (mode != AK_MODE_OWN)
		return c->modes[mode];
	for (size_t i = 0; i < c->n_own; i++) {
		if (!strcmp(c->own[i], own))
			return true;
	}
	return false;
}

static int fail_mode(const struct mcp_ceiling *c, const char *wanted, struct ak_err *err)
{
	char modes[MODES_MAX];

	return ak_fail(err, EPERM,
		"compatibility_mode '%s' is not among those this server was started with (%s); only the user can add it: "
		"'agentkernel mcp server --compatibility-mode %s'",
		wanted, modes_text(c, modes, sizeof(modes)), wanted);
}

static int check_network(const struct mcp_ceiling *c, const struct run_request *opts, struct ak_err *err)
{
	if (c->no_network)
		return ak_fail(err, EPERM, "network: this server was started with --no-network; only the user can change that");
	if (!ak_profile_network(opts->profile))
		return ak_fail(err, EPERM, "network: profile '%s' has no network", ak_profile_name(opts->profile));
	return 0;
}

/* Wider profiles have smaller numbers. */
int mcp_ceiling_apply(const struct mcp_request *r, struct run_request *opts, struct field_mem *mem, struct ak_err *err)
{
	const struct mcp_ceiling *c = r->ceiling;
	int rc;

	opts->mode = c->mode;
	opts->own = c->own_default;
	opts->profile = c->profile;
	rc = fields_decode(r->tool->verb, FIELD_MCP, r->args, opts, mem, err);
	if (rc == 0 && !mcp_ceiling_has(c, opts->mode, opts->own))
		rc = fail_mode(c, ak_mode_policy(opts->mode, opts->own), err);
	if (rc == 0 && opts->profile < c->profile)
		rc = ak_fail(err, EPERM,
			"profile '%s' is wider than '%s', which this server was started with; only the user can change that: "
			"'agentkernel mcp server --profile %s'",
			ak_profile_name(opts->profile), ak_profile_name(c->profile), ak_profile_name(opts->profile));
	if (rc == 0 && json_truth(r->args, "network"))
		rc = check_network(c, opts, err);
	opts->no_network = opts->no_network || c->no_network;
	opts->dir = c->dir;
	memcpy(opts->edits, c->edits, c->n_edits * sizeof(*c->edits));
	opts->n_edits = c->n_edits;
	return rc;
}

/* ---- limits of resources ---- */

static uint64_t processes(const struct sandbox_limits *l)
{
	return l->pids ? l->pids : SANDBOX_PIDS_DEFAULT;
}

static uint64_t milli_processors(const struct sandbox_limits *l)
{
	return l->cpus_milli;
}

static uint64_t memory(const struct sandbox_limits *l)
{
	return l->memory_bytes;
}

static uint64_t disk(const struct sandbox_limits *l)
{
	return l->disk_bytes;
}

/* What a call may ask for, but not more than [resources] of the project's file says, if it does. Processes have a default, which is then the most. */
static const struct {
	const char *name;
	enum field_id id;
	uint64_t (*get)(const struct sandbox_limits *l);
	uint64_t unit;
} bounded[] = {
	{ "pids", FIELD_PIDS, processes, 1 },
	{ "vcpus", FIELD_VCPUS, milli_processors, 1000 },
	{ "memory_mb", FIELD_MEMORY, memory, 1u << 20 },
	{ "disk_mb", FIELD_DISK, disk, 1u << 20 },
};

/* ASKED is what the call has set among GIVEN; MOST what it would have without. */
static int check_limits(
	const bool *given, const struct sandbox_limits *asked, const struct sandbox_limits *most, struct ak_err *err)
{
	for (size_t i = 0; i < ARRAY_SIZE(bounded); i++) {
		uint64_t want = bounded[i].get(asked), have = bounded[i].get(most);

		if (given[bounded[i].id] && have && want > have)
			return ak_fail(err, EPERM,
				"%s: %llu is more than %llu, the most for calls here; only the user can change that: [resources] %s in the project's agentkernel.toml",
				bounded[i].name, (unsigned long long)(want / bounded[i].unit),
				(unsigned long long)(have / bounded[i].unit), bounded[i].name);
	}
	return 0;
}

/* Find out what the call would have if it asked for nothing. */
static int limits_without(
	const struct mcp_request *r, const struct run_request *opts, struct sandbox_limits *ret, struct ak_err *err)
{
	_cleanup_(config_freep) struct config *settings = NULL;
	struct run_request *plain = malloc(sizeof(*plain));
	int rc;

	if (!plain)
		return ak_fail(err, ENOMEM, "out of memory");
	*plain = *opts;
	plain->limits = (struct sandbox_limits){ 0 };
	for (size_t i = 0; i < ARRAY_SIZE(bounded); i++)
		plain->given[bounded[i].id] = false;
	rc = service_config(plain, r->ceiling->dir ? r->ceiling->dir : ".", r->paths, &settings, err);
	*ret = plain->limits;
	free(plain);
	return rc;
}

static bool asks(const struct run_request *opts)
{
	for (size_t i = 0; i < ARRAY_SIZE(bounded); i++) {
		if (opts->given[bounded[i].id])
			return true;
	}
	return false;
}

/* The file of the project counts as for any run, but never beyond what the server was started with. */
int mcp_settings(const struct mcp_request *r, struct run_request *opts, struct config **ret, struct ak_err *err)
{
	const struct mcp_ceiling *c = r->ceiling;
	enum ak_mode mode = opts->mode;
	const char *own = opts->own;
	struct sandbox_limits most;
	int rc;

	opts->given[FIELD_MODE] = opts->given[FIELD_MODE] || !c->any_mode;
	opts->given[FIELD_BACKEND] = opts->vm; /* a call may ask for a virtual machine, but not for less than the file does */
	rc = asks(opts) ? limits_without(r, opts, &most, err) : 0;
	if (rc == 0 && asks(opts))
		rc = check_limits(opts->given, &opts->limits, &most, err);
	if (rc == 0)
		rc = service_config(opts, c->dir ? c->dir : ".", r->paths, ret, err);
	if (!mcp_ceiling_has(c, opts->mode, opts->own)) {
		opts->mode = mode;
		opts->own = own;
	}
	if (opts->profile < c->profile)
		opts->profile = c->profile;
	return rc;
}

int mcp_ceiling_policy(const struct mcp_request *r, enum ak_mode mode, const char *own, struct policy **ret, struct ak_err *err)
{
	const struct mcp_ceiling *c = r->ceiling;

	if (!mcp_ceiling_has(c, mode, own))
		return fail_mode(c, ak_mode_policy(mode, own), err);
	return ak_policy_load(r->paths, ak_mode_policy(mode, own), c->edits, c->n_edits, ret, err);
}

void mcp_ceiling_print(const struct mcp_ceiling *c, struct strbuf *out)
{
	char modes[MODES_MAX];

	strbuf_puts(
		out, "Commands run in sandboxes. A policy controls the whole network of a sandbox, for every program in it. ");
	if (c->no_network || !ak_profile_network(c->profile))
		strbuf_puts(out, "Sandboxes of this server have no network. ");
	else
		strbuf_printf(out, "Compatibility modes that can be chosen: %s (default: %s). ",
			modes_text(c, modes, sizeof(modes)), ak_mode_policy(c->mode, c->own_default));
	strbuf_printf(out, "Widest profile: %s. ", ak_profile_name(c->profile));
	strbuf_puts(out,
		"Results list denied requests with the rule that denied them. No tool can change a policy, only the user can. Use network_check before relying on a host. "
		"For one command use sandbox_run; for several that share files use sandbox_create, sandbox_exec and, at the end, sandbox_remove.");
}
