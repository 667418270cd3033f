/* `agentkernel mcp server`: what the user allows, from the command line; the rest is mcp_serve. */
#include "gateway/cli/cmd.h"
#include "gateway/mcp/mcp.h"

#include "gateway/base/cleanup.h"
#include "gateway/store/policy_dirs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int add_mode(struct mcp_ceiling *c, const char *value, size_t *n_modes, struct ak_err *err)
{
	enum ak_mode mode;
	int rc = ak_mode_parse(value, &mode, err);

	if (rc < 0)
		return rc;
	if ((*n_modes)++ == 0)
		c->mode = mode;
	c->modes[mode] = true;
	return 0;
}

static int add_rule(struct mcp_ceiling *c, const char *opt, const char *value, struct ak_err *err)
{
	struct policy_edit edit = { .text = value };

	if (!policy_edit_parse(opt, &edit.op))
		return -ENOENT;
	if (c->n_edits == PLAN_LIST_MAX)
		return ak_fail(err, E2BIG, "more than %d rules; put them in a policy file", PLAN_LIST_MAX);
	c->edits[c->n_edits++] = edit;
	return 0;
}

static int set_option(struct mcp_ceiling *c, const char *opt, const char *value, size_t *n_modes, struct ak_err *err)
{
	if (!strcmp(opt, "compatibility-mode"))
		return add_mode(c, value, n_modes, err);
	if (!strcmp(opt, "profile"))
		return ak_profile_parse(value, &c->profile, err);
	if (!strcmp(opt, "no-network"))
		c->no_network = true;
	else if (!strcmp(opt, "keep"))
		c->keep = true;
	else if (!strcmp(opt, "dir"))
		c->dir = value;
	else
		return add_rule(c, opt, value, err);
	return 0;
}

/* A rule or folder that is wrong is told now, not to a model at its first call. */
static int check(const struct mcp_ceiling *c, const struct ak_paths *paths, char dir[static PATH_MAX], struct ak_err *err)
{
	for (int i = 0; i < AK_MODE_NUM; i++) {
		_cleanup_(policy_unrefp) struct policy *p = NULL;
		int rc = c->modes[i] ? ak_policy_load(paths, ak_mode_name((enum ak_mode)i), c->edits, c->n_edits, &p, err) : 0;

		if (rc < 0)
			return rc;
	}
	if (c->dir && !realpath(c->dir, dir))
		return ak_fail_errno(err, errno, "--dir '%s'", c->dir);
	return 0;
}

/* 0, or the exit code to end with: -1 for "help was printed". */
static int parse(int argc, char **argv, struct mcp_ceiling *c)
{
	struct cmd_args args;
	struct ak_err err;
	const char *value;
	size_t n_modes = 0;
	int i;

	cmd_args_init(&args, cmd_row("mcp server"), argc, argv);
	while ((i = cmd_next(&args, &value)) >= 0) {
		if (set_option(c, args.cmd->opts[i].name, value, &n_modes, &err) < 0) {
			ak_say("mcp server: --%s: %s", args.cmd->opts[i].name, err.text);
			return AK_EXIT_USAGE;
		}
	}
	if (i == CMD_ARG)
		ak_say("mcp server: unexpected '%.100s'", value);
	if (i == CMD_HELP)
		return -1;
	mcp_ceiling_finish(c, n_modes);
	return i == CMD_END ? 0 : AK_EXIT_USAGE;
}

int cmd_mcp_server(int argc, char **argv)
{
	struct mcp_ceiling ceiling = { .profile = AK_PROFILE_MODERATE };
	struct ak_paths paths;
	char dir[PATH_MAX];
	struct ak_err err;
	int rc = parse(argc, argv, &ceiling);

	if (rc != 0)
		return rc < 0 ? 0 : rc;
	rc = ak_paths_init(&paths, &err);
	if (rc == 0)
		rc = check(&ceiling, &paths, dir, &err);
	if (rc < 0) {
		ak_say("mcp server: %s", err.text);
		return AK_EXIT_USAGE;
	}
	if (ceiling.dir)
		ceiling.dir = dir;
	rc = mcp_serve(&ceiling, &paths, STDIN_FILENO, STDOUT_FILENO, &err);
	if (rc < 0)
		ak_say("mcp server: %s", err.text);
	return rc < 0 ? AK_EXIT_ERROR : 0;
}
