/*
 * What a call may have: at most what the user started the server with. See mcp/mcp.h.
 *
 * Modes are not ordered: each of them reaches hosts that the others do not. So a call chooses among the modes that were named, and no other.
 * Profiles are ordered. Which sandboxes that are there already may be used is told by mcp/enter.c.
 */
#include "gateway/mcp/run.h"

#include "gateway/base/cleanup.h"
#include "gateway/store/policy_dirs.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void mcp_ceiling_finish(struct mcp_ceiling *c, size_t n_modes)
{
	if (n_modes > 0)
		return;
	c->mode = AK_MODE_CLAUDE;
	for (int i = 0; i < AK_MODE_NUM; i++)
		c->modes[i] = i != AK_MODE_NATIVE;
}

/* "claude, codex" */
static const char *modes_text(const struct mcp_ceiling *c, char *buf, size_t size)
{
	size_t used = 0;

	buf[0] = '\0';
	for (int i = 0; i < AK_MODE_NUM && used < size; i++) {
		if (c->modes[i])
			used += (size_t)snprintf(
				buf + used, size - used, "%s%s", used ? ", " : "", ak_mode_name((enum ak_mode)i));
	}
	return buf;
}

static int fail_mode(const struct mcp_ceiling *c, const char *wanted, struct ak_err *err)
{
	char modes[64];

	return ak_fail(err, EPERM,
		"compatibility_mode '%s' is not among those this server was started with (%s); only the user can add it: "
		"'agentkernel mcp server --compatibility-mode %s'",
		wanted, modes_text(c, modes, sizeof(modes)), wanted);
}

static int apply_mode(const struct mcp_ceiling *c, const char *wanted, struct run_request *opts, struct ak_err *err)
{
	int rc;

	opts->mode = c->mode;
	if (!wanted)
		return 0;
	rc = ak_mode_parse(wanted, &opts->mode, err);
	if (rc < 0)
		return rc;
	return c->modes[opts->mode] ? 0 : fail_mode(c, wanted, err);
}

/* The wider a profile, the smaller its number. */
static int apply_profile(const struct mcp_ceiling *c, const char *wanted, struct run_request *opts, struct ak_err *err)
{
	int rc;

	opts->profile = c->profile;
	if (!wanted)
		return 0;
	rc = ak_profile_parse(wanted, &opts->profile, err);
	if (rc < 0)
		return rc;
	if (opts->profile < c->profile)
		return ak_fail(err, EPERM,
			"profile '%s' is wider than '%s', which this server was started with; only the user can change that: "
			"'agentkernel mcp server --profile %s'",
			wanted, ak_profile_name(c->profile), wanted);
	return 0;
}

static int apply_network(const struct mcp_ceiling *c, const cJSON *args, struct run_request *opts, struct ak_err *err)
{
	bool wanted = mcp_arg_bool(args, "network", false);

	opts->no_network = c->no_network || !mcp_arg_bool(args, "network", true);
	if (wanted && c->no_network)
		return ak_fail(err, EPERM, "network: this server was started with --no-network; only the user can change that");
	if (wanted && !ak_profile_network(opts->profile))
		return ak_fail(err, EPERM, "network: profile '%s' has none", ak_profile_name(opts->profile));
	return 0;
}

int mcp_ceiling_apply(const struct mcp_ceiling *c, const cJSON *args, struct run_request *opts, struct ak_err *err)
{
	int rc = apply_mode(c, mcp_arg_text(args, "compatibility_mode", NULL), opts, err);

	if (rc == 0)
		rc = apply_profile(c, mcp_arg_text(args, "profile", NULL), opts, err);
	if (rc == 0)
		rc = apply_network(c, args, opts, err);
	if (rc == 0 && mcp_arg_text(args, "image", NULL))
		rc = ak_fail(err, ENOTSUP,
			"image: images are not available in this version; leave it out to use the host's own system");
	opts->dir = c->dir;
	memcpy(opts->edits, c->edits, c->n_edits * sizeof(*c->edits));
	opts->n_edits = c->n_edits;
	return rc;
}

int mcp_ceiling_policy(const struct mcp_request *r, enum ak_mode mode, struct policy **ret, struct ak_err *err)
{
	const struct mcp_ceiling *c = r->ceiling;

	if (!c->modes[mode])
		return fail_mode(c, ak_mode_name(mode), err);
	return ak_policy_load(r->paths, ak_mode_name(mode), c->edits, c->n_edits, ret, err);
}

void mcp_ceiling_print(const struct mcp_ceiling *c, struct strbuf *out)
{
	char modes[64];

	strbuf_puts(out, "Commands run in sandboxes whose whole network passes a policy; every program in them is held to it. ");
	if (c->no_network || !ak_profile_network(c->profile))
		strbuf_puts(out, "This server gives no sandbox a network. ");
	else
		strbuf_printf(out, "Compatibility modes that can be chosen: %s (default: %s). ",
			modes_text(c, modes, sizeof(modes)), ak_mode_name(c->mode));
	strbuf_printf(out, "Widest profile: %s. ", ak_profile_name(c->profile));
	strbuf_puts(out,
		"What is denied is told with its rule; no tool can change a policy, only the user can. Ask network_check before relying on a host. "
		"For one command use sandbox_run; for several that share files use sandbox_create, sandbox_exec and, at the end, sandbox_remove.");
}

/* ---- variables ---- */

int mcp_env_take(const cJSON *args, struct mcp_env *ret, struct ak_err *err)
{
	const cJSON *item;

	ret->n = 0;
	cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(args, "env")) {
		/* Always with its "=": a name alone would pass on the server's own variable. */
		if (asprintf(&ret->pairs[ret->n], "%s=%s", item->string, item->valuestring) < 0) {
			mcp_env_done(ret);
			return ak_fail(err, ENOMEM, "out of memory");
		}
		ret->n++;
	}
	return 0;
}

void mcp_env_done(struct mcp_env *e)
{
	for (size_t i = 0; i < e->n; i++)
		free(e->pairs[i]);
	e->n = 0;
}
