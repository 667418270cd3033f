/*
 * Which sandboxes a server's tools may touch, read or tell of: one answer for all of them. See mcp/run.h.
 *
 * Those that the server made itself, by the id in their state; those that the user opened to servers of this project with `create --mcp`; and those that
 * an earlier server of this project kept on purpose, where this one could have made the same. The first two are taken as they were when they were made or
 * marked. Once the user has widened the policy of one, it is left alone until they say that servers may have it like that, or it is again no more than this
 * server could make. What the user forbade this server to do, no mark allows.
 */
#include "gateway/mcp/run.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/service/service.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int fail_foreign(const char *name, struct ak_err *err)
{
	return ak_fail(err, EPERM,
		"sandbox '%s' was not made by this server, and the user has not opened it to MCP servers of this project, so that its tools "
		"leave it alone; create another with sandbox_create",
		name);
}

static int fail_wider(const struct state_sandbox *s, struct ak_err *err)
{
	return ak_fail(err, EPERM,
		"sandbox '%s' (mode %s, profile %s) is wider than what this server was started with, so that its tools leave it alone; "
		"create another with sandbox_create",
		s->name, ak_mode_name(s->mode), ak_profile_name(s->profile));
}

static bool same_project(const struct mcp_ceiling *c, const char *project)
{
	_cleanup_free_ char *own = realpath(c->dir ? c->dir : ".", NULL);

	return own && !strcmp(own, project);
}

/* ---- what the user forbade ---- */

static bool has_edit(const struct state_sandbox *s, const struct policy_edit *edit, uint64_t now_us)
{
	for (size_t i = 0; i < s->n_edits; i++) {
		const struct state_edit *e = &s->edits[i];

		if (e->op == edit->op && !strcmp(e->text, edit->text) && (!e->until_us || e->until_us > now_us))
			return true;
	}
	return false;
}

/* No network, and hosts that are blocked for this server must be blocked there too. */
static int check_forbidden(const struct mcp_ceiling *c, const struct state_sandbox *s, struct ak_err *err)
{
	uint64_t now = ak_wall_us();

	if (!state_network(s))
		return 0;
	if (c->no_network || !ak_profile_network(c->profile))
		return fail_wider(s, err);
	for (size_t i = 0; i < c->n_edits; i++) {
		if (c->edits[i].op != POLICY_EDIT_BLOCK_HOST && c->edits[i].op != POLICY_EDIT_BLOCK_CIDR)
			continue;
		if (!has_edit(s, &c->edits[i], now))
			return ak_fail(err, EPERM,
				"sandbox '%s' may reach '%s', which this server was started to block; create another", s->name,
				c->edits[i].text);
	}
	return 0;
}

/* ---- what this server could make ---- */

static int check_policy(const struct mcp_request *r, const struct state_sandbox *s, struct ak_err *err)
{
	_cleanup_(policy_unrefp) struct policy *has = NULL, *could = NULL;
	int rc = state_network(s) ? state_policy(r->paths, s, ak_wall_us(), &has, err) : 0;

	if (rc == 0 && has)
		rc = mcp_ceiling_policy(r, s->mode, &could, err);
	if (rc < 0 || !has || policy_within(has, could))
		return rc;
	return ak_fail(err, EPERM,
		"sandbox '%s' was given a wider network than this server may give, so that its tools leave it alone; only the user can change "
		"that: 'agentkernel network policy %s --mcp' lets them use it as it is",
		s->name, s->name);
}

static int check_makeable(const struct mcp_request *r, const struct state_sandbox *s, bool granted, struct ak_err *err)
{
	const struct mcp_ceiling *c = r->ceiling;

	if (!c->modes[s->mode] || (!granted && s->profile < c->profile))
		return fail_wider(s, err);
	return check_policy(r, s, err);
}

/* ---- both ---- */

int mcp_may_enter(const struct mcp_request *r, const struct state_sandbox *s, struct ak_err *err)
{
	bool users = s->mcp.project[0] && !s->mcp.server[0], own = s->mcp.server[0] && !strcmp(s->mcp.server, r->owner->id);
	int rc;

	if (!users && !own && !s->mcp.keep)
		return fail_foreign(s->name, err);
	if (!same_project(r->ceiling, s->mcp.project) || (s->dir[0] && strcmp(s->dir, s->mcp.project) != 0))
		return fail_foreign(s->name, err);
	rc = check_forbidden(r->ceiling, s, err);
	/* Variables, mounts, mode and profile never change: whoever granted the sandbox granted them. */
	if (rc < 0 || ((users || own) && s->mcp.generation == s->generation))
		return rc;
	return check_makeable(r, s, users || own, err);
}

int mcp_enter(const struct mcp_request *r, const char *name, char ret_uuid[static 37], struct ak_err *err)
{
	_cleanup_(state_done) struct state_sandbox s = { 0 };
	int rc = service_load(r->paths, name, &s, err);

	if (rc == 0)
		rc = mcp_may_enter(r, &s, err);
	if (rc == 0)
		memcpy(ret_uuid, s.uuid, sizeof(s.uuid));
	return rc;
}
