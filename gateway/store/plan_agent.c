/* The part of a plan that an agent needs: its memory, its variables and its settings file. See store/plan_parts.h and store/agent.h. */
#include "gateway/store/plan_parts.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/store/agent.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One folder of an agent's memory, made on first use. */
static int plan_agent_folder(
	struct run_plan *plan, const struct ak_paths *paths, const struct agent *a, size_t i, const char *dir, struct ak_err *err)
{
	_cleanup_close_ int fd = agent_state_open(paths, a, dir, a->state[i], err);
	struct project_id id;
	mode_t mode = 0;
	int rc;

	if (fd < 0)
		return fd;
	rc = ak_path_join(plan->agent_state[i].target, plan->home, a->state[i], NULL);
	if (rc < 0)
		return ak_fail_errno(err, -rc, "the agent's folder '%s'", a->state[i]);
	rc = project_name_open(fd, "the agent's folder", plan->agent_state[i].source, &id, &mode, err);
	if (rc == 0)
		plan_add_mount(plan, plan->agent_state[i].source, plan->agent_state[i].target, false, &id,
			"sign-in, settings and sessions of the agent, kept for the next run");
	return rc;
}

/* Whether the user has set the variable of PAIR for this sandbox. */
static bool asked_for(const struct run_plan *plan, const char *pair)
{
	size_t key = strcspn(pair, "=") + 1;

	for (size_t i = 0; i < plan->n_env; i++) {
		if (!strncmp(plan->env[i], pair, key))
			return plan->env_from[i] == PLAN_FROM_OPTION || plan->env_from[i] == PLAN_FROM_FILE ||
				plan->env_from[i] == PLAN_FROM_CREATE;
	}
	return false;
}

static int plan_agent_env(struct run_plan *plan, const struct agent *a)
{
	int rc = 0;

	for (size_t i = 0; i < ARRAY_SIZE(a->env) && a->env[i].pair && rc == 0; i++) {
		const char *pair = a->env[i].pair, *value = strchr(pair, '=') + 1;
		_cleanup_free_ char *copy = NULL;

		if (asprintf(&copy, "%.*s%s%s", (int)(value - pair), pair, value[0] == '~' ? plan->home : "",
			    value + (value[0] == '~')) < 0)
			return -ENOMEM;
		rc = asked_for(plan, copy) ? 0 : plan_env_set(plan, copy, PLAN_FROM_AGENT);
	}
	return rc;
}

/* The agent that will run: the command, or the mode's own if a command comes later or its memory is asked for. */
static const struct agent *agent_that_runs(const struct run_request *opts)
{
	const struct agent *a = opts->argv && opts->argv[0] ? agent_of_command(opts->argv[0]) : NULL;
	bool asked = opts->agent_state == AGENT_STATE_SHARED || opts->agent_state == AGENT_STATE_PROJECT;

	return a || (opts->argv && !asked) ? a : agent_of_mode(opts->mode);
}

/*
 * Whether the run has a memory of the agent. Without being asked, only if the user has started the agent itself: a script of that name, which a sandbox may
 * have left in the project, would have the user's sign-in, and so would whatever an image has under that name, or as its entry point. A model that calls a
 * tool never has it, and an HTTP client must ask.
 */
static bool has_memory(struct run_plan *plan, const struct run_request *opts)
{
	const char *program = plan->tools.program ? plan->tools.program : opts->argv ? opts->argv[0] : "";
	char note[512];

	if (opts->fixed_env || !opts->argv || opts->agent_state == AGENT_STATE_NONE || opts->origin == RUN_ORIGIN_MCP)
		return false;
	if (opts->agent_state != AGENT_STATE_AUTO)
		return true;
	if (opts->origin != RUN_ORIGIN_CLI)
		return false;
	if (!plan->image && plan->tools.own)
		return true;
	snprintf(note, sizeof(note), "'%.300s' runs without your sign-in: %s; --agent-state shared gives it the sign-in", program,
		plan->image ? "it is a program of the image"
			    : "it was not found by its name on your PATH, or a sandbox may have written it");
	if (plan->image || plan->tools.program || strchr(program, '/'))
		run_plan_note(plan, note);
	return false;
}

static int plan_agent_memory(struct run_plan *plan, const struct run_request *opts, const struct agent *a,
	const struct ak_paths *paths, struct ak_err *err)
{
	bool own = opts->agent_state == AGENT_STATE_PROJECT;
	char dir[PATH_MAX];
	int rc;

	if (own && !plan->project[0])
		return ak_fail(err, EINVAL, "--agent-state project: no project is mounted");
	rc = agent_state_dir(paths, a, own ? plan->project : NULL, dir);
	if (rc < 0)
		return ak_fail_errno(err, -rc, "%s", paths->state);
	for (size_t i = 0; a->state[i] && rc == 0; i++)
		rc = plan_agent_folder(plan, paths, a, i, dir, err);
	return rc;
}

int plan_agent(struct run_plan *plan, const struct run_request *opts, const struct ak_paths *paths, struct ak_err *err)
{
	const struct agent *a = agent_that_runs(opts);
	int rc;

	if (!a)
		return opts->agent_state == AGENT_STATE_SHARED || opts->agent_state == AGENT_STATE_PROJECT
			? ak_fail(err, EINVAL, "--agent-state: mode %s has no agent; name one as the command, or another mode",
				  ak_mode_policy(opts->mode, opts->own))
			: 0;
	if (a->file)
		plan_add_file(plan, a->file, a->file_text, a->file_why);
	rc = plan_agent_env(plan, a);
	if (rc < 0)
		return ak_fail_errno(err, -rc, "environment");
	return has_memory(plan, opts) ? plan_agent_memory(plan, opts, a, paths, err) : 0;
}
