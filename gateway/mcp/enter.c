/*
 * Which sandboxes the tools of a server may use, read or show. All tools use this one check. See mcp/run.h.
 *
 * Allowed are sandboxes that this server created (their state has its id); sandboxes that the user opened to servers of this project with `create --mcp`;
 * and sandboxes that an earlier server of this project kept with --keep, if this server could create the same. The first two are allowed as they were when
 * they were created or opened. If the user widens the policy of such a sandbox, it is refused until the user agrees with `network policy --mcp`, or until
 * its policy is again no wider than this server could give. Restrictions that the user set for this server always apply.
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
		"sandbox '%s' was not created by this server, and the user has not opened it to MCP servers of this project; "
		"create another with sandbox_create",
		name);
}

static int fail_wider(const struct state_sandbox *s, struct ak_err *err)
{
	return ak_fail(err, EPERM,
		"sandbox '%s' (mode %s, profile %s) is wider than this server's limits allow; "
		"create another with sandbox_create",
		s->name, state_mode(s), ak_profile_name(s->profile));
}

static bool same_project(const struct mcp_ceiling *c, const char *project)
{
	_cleanup_free_ char *own = realpath(c->dir ? c->dir : ".", NULL);

	return own && !strcmp(own, project);
}

/* ---- restrictions of this server ---- */

static bool has_edit(const struct state_sandbox *s, const struct policy_edit *edit, uint64_t now_us)
{
	for (size_t i = 0; i < s->n_edits; i++) {
		const struct state_edit *e = &s->edits[i];

		if (e->op == edit->op && !strcmp(e->text, edit->text) && (!e->until_us || e->until_us > now_us))
			return true;
	}
	return false;
}

static bool narrows(enum policy_edit_op op)
{
	return op == POLICY_EDIT_BLOCK_HOST || op == POLICY_EDIT_BLOCK_CIDR || op == POLICY_EDIT_ADD_POLICY;
}

/*
 * A server without a network refuses sandboxes with one. Hosts that this server blocks must be blocked in the sandbox too, and a
 * policy that the server adds may block hosts or everything else: the sandbox must have it.
 */
static int check_forbidden(const struct mcp_ceiling *c, const struct state_sandbox *s, struct ak_err *err)
{
	uint64_t now = ak_wall_us();

	if (!state_network(s))
		return 0;
	if (c->no_network || !ak_profile_network(c->profile))
		return fail_wider(s, err);
	for (size_t i = 0; i < c->n_edits; i++) {
		const struct policy_edit *e = &c->edits[i];
		char label[POLICY_WORD_MAX];

		if (!narrows(e->op) || has_edit(s, e, now))
			continue;
		return ak_fail(err, EPERM,
			"sandbox '%s' does not %s '%s', which this server must %s; create another with sandbox_create", s->name,
			e->op == POLICY_EDIT_ADD_POLICY ? "have the policy" : "block", policy_edit_label(e, label),
			e->op == POLICY_EDIT_ADD_POLICY ? "add" : "block");
	}
	return 0;
}

/* ---- could this server create the same sandbox? ---- */

static int check_policy(const struct mcp_request *r, const struct state_sandbox *s, struct ak_err *err)
{
	_cleanup_(policy_unrefp) struct policy *has = NULL, *could = NULL;
	int rc = state_network(s) ? state_policy(r->paths, s, ak_wall_us(), &has, err) : 0;

	if (rc == 0 && has)
		rc = mcp_ceiling_policy(r, s->mode, s->own, &could, err);
	if (rc < 0 || !has || policy_within(has, could))
		return rc;
	return ak_fail(err, EPERM,
		"sandbox '%s' has a wider network policy than this server may give; only the user can allow its use, with "
		"'agentkernel network policy %s --mcp'",
		s->name, s->name);
}

static int check_makeable(const struct mcp_request *r, const struct state_sandbox *s, bool granted, struct ak_err *err)
{
	const struct mcp_ceiling *c = r->ceiling;

	if (!mcp_ceiling_has(c, s->mode, s->own) || (!granted && s->profile < c->profile))
		return fail_wider(s, err);
	return check_policy(r, s, err);
}

/* ---- the check ---- */

int mcp_may_enter(const struct mcp_request *r, const struct state_sandbox *s, struct ak_err *err)
{
	bool users = s->mcp.project[0] && !s->mcp.server[0], own = s->mcp.server[0] && !strcmp(s->mcp.server, r->owner->id);
	int rc;

	if (!users && !own && !s->mcp.keep)
		return fail_foreign(s->name, err);
	if (!same_project(r->ceiling, s->mcp.project) || (s->dir[0] && strcmp(s->dir, s->mcp.project) != 0))
		return fail_foreign(s->name, err);
	rc = check_forbidden(r->ceiling, s, err);
	/* Variables, mounts, mode and profile of a sandbox never change, so they were granted with it. Only the policy may have changed since. */
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
