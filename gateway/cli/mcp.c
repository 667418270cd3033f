/* `agentkernel mcp server`: parse the limits that the user sets, then call mcp_serve. */
#include "gateway/cli/cmd.h"
#include "gateway/mcp/mcp.h"

#include "gateway/base/cleanup.h"
#include "gateway/store/policy_dirs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Copy the limits for calls from the parsed options. */
static void take_request(struct mcp_ceiling *c, const struct run_request *o)
{
	c->profile = o->profile;
	c->no_network = o->no_network;
	c->keep = o->keep;
	c->dir = o->dir;
	memcpy(c->edits, o->edits, o->n_edits * sizeof(*o->edits));
	c->n_edits = o->n_edits;
}

static int add_mode(struct mcp_ceiling *c, const char *value, size_t *n_modes, struct ak_err *err)
{
	enum ak_mode mode;
	const char *own;
	int rc = ak_mode_choose(value, &mode, &own, err);

	if (rc < 0)
		return rc;
	if (own && c->n_own == MCP_OWN_MAX)
		return ak_fail(err, EINVAL, "--compatibility-mode: more than %d policies of your own", MCP_OWN_MAX);
	if ((*n_modes)++ == 0) {
		c->mode = mode;
		c->own_default = own;
	}
	c->modes[mode] = !own;
	if (own)
		c->own[c->n_own++] = own;
	return 0;
}

/* Report a wrong rule or folder to the user now, not to a model at its first call. */
static int check(const struct mcp_ceiling *c, const struct ak_paths *paths, char dir[static PATH_MAX], struct ak_err *err)
{
	for (size_t i = 0; i < AK_MODE_OWN + c->n_own; i++) {
		_cleanup_(policy_unrefp) struct policy *p = NULL;
		const char *name = i >= AK_MODE_OWN ? c->own[i - AK_MODE_OWN] : ak_mode_name((enum ak_mode)i);
		int rc = i >= AK_MODE_OWN ? ak_policy_check_mode(paths, name, err) : 0;

		if (rc == 0 && (i >= AK_MODE_OWN || c->modes[i]))
			rc = ak_policy_load(paths, name, c->edits, c->n_edits, &p, err);
		if (rc < 0)
			return rc;
	}
	if (c->dir && !realpath(c->dir, dir))
		return ak_fail_errno(err, errno, "--dir '%s'", c->dir);
	return 0;
}

/* Read the files of --policy now: later a sandbox that mounts their folder could have changed them. */
static int pin(struct run_request *o, struct ak_err *err)
{
	const struct run_request *pinned = o;
	struct run_request *own = NULL;
	struct ak_paths paths;
	int rc = ak_paths_init(&paths, err);

	if (rc == 0)
		rc = run_request_pin(&paths, &pinned, &own, err);
	if (rc == 0 && own)
		*o = *own; /* its texts live as long as the server */
	free(own);
	return rc;
}

/* Returns 0 to continue, -1 after printing help, else the exit code. */
static int parse(int argc, char **argv, struct mcp_ceiling *c)
{
	struct run_request o = { .profile = AK_PROFILE_MODERATE };
	struct cmd_args args;
	struct ak_err err;
	const char *value;
	size_t n_modes = 0;
	int i, rc;

	cmd_args_init(&args, cmd_row("mcp server"), argc, argv);
	while ((i = cmd_next(&args, &value)) >= 0) {
		rc = i == FIELD_CEILING_MODE ? add_mode(c, value, &n_modes, &err)
					     : field_set(&o, &field_table[i], FIELD_CLI, &args.given[i], &err);
		if (rc < 0) {
			ak_say("mcp server: %s", err.text);
			return AK_EXIT_USAGE;
		}
	}
	if (i == CMD_ARG)
		ak_say("mcp server: unexpected '%.100s'", value);
	if (i == CMD_HELP)
		return -1;
	rc = i == CMD_END ? pin(&o, &err) : 0;
	if (rc < 0) {
		ak_say("mcp server: %s", err.text);
		return AK_EXIT_USAGE;
	}
	take_request(c, &o);
	mcp_ceiling_finish(c, n_modes);
	return i == CMD_END ? 0 : AK_EXIT_USAGE;
}

int cmd_mcp_server(int argc, char **argv)
{
	struct mcp_ceiling ceiling = { 0 };
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
