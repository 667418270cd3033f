/* The plan of a run: see store/plan.h. */
#include "gateway/store/plan.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/project/owndir.h"
#include "gateway/store/agent.h"
#include "gateway/store/plan_parts.h"
#include "gateway/store/mounts.h"
#include "gateway/store/plan_image.h"
#include "gateway/store/policy_dirs.h"
#include "gateway/store/shared.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define SANDBOX_VARIABLE "AGENTKERNEL_SANDBOX"

extern char **environ;

static const struct {
	const char *name;
	bool mount_project;
	enum sandbox_isolation isolation;
} modes[] = {
	[AK_MODE_NATIVE] = { "native", false, SANDBOX_MODERATE },
	[AK_MODE_CLAUDE] = { "claude", true, SANDBOX_MODERATE },
	[AK_MODE_CODEX] = { "codex", true, SANDBOX_STRICT },
	[AK_MODE_GEMINI] = { "gemini", true, SANDBOX_MODERATE },
	[AK_MODE_OPENCODE] = { "opencode", true, SANDBOX_MODERATE },
	[AK_MODE_OWN] = { "own", true, SANDBOX_MODERATE },
};
static_assert(ARRAY_SIZE(modes) == AK_MODE_NUM, "a row for each mode");

static const struct {
	const char *name;
	bool network, mount_cwd, mount_home, pass_env, readonly_root;
} profiles[] = {
	[AK_PROFILE_PERMISSIVE] = { "permissive", true, true, true, true, false },
	[AK_PROFILE_MODERATE] = { "moderate", true, false, false, false, false },
	[AK_PROFILE_RESTRICTIVE] = { "restrictive", false, false, false, false, true },
};
static_assert(ARRAY_SIZE(profiles) == AK_PROFILE_NUM, "a row for each profile");

/* Not secret, and terminal programs misbehave without them. */
static const char *const harmless_env[] = { "TERM", "COLORTERM", "NO_COLOR", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "TZ" };

const char *ak_mode_name(enum ak_mode mode)
{
	return modes[mode].name;
}

const char *ak_profile_name(enum ak_profile profile)
{
	return profiles[profile].name;
}

const char *run_origin_name(enum run_origin origin)
{
	static const char *const names[] = {
		[RUN_ORIGIN_CLI] = "cli",
		[RUN_ORIGIN_HTTP] = "http",
		[RUN_ORIGIN_MCP] = "mcp",
	};

	static_assert(ARRAY_SIZE(names) == RUN_ORIGIN_NUM, "a name for each origin");
	return names[origin];
}

bool ak_profile_network(enum ak_profile profile)
{
	return profiles[profile].network;
}

const char *ak_mode_policy(enum ak_mode mode, const char *own)
{
	return mode == AK_MODE_OWN ? own : modes[mode].name;
}

int ak_mode_parse(const char *text, enum ak_mode *ret, struct ak_err *err)
{
	for (int i = 0; i < AK_MODE_OWN; i++) {
		if (!strcmp(modes[i].name, text)) {
			*ret = (enum ak_mode)i;
			return 0;
		}
	}
	return ak_fail(err, EINVAL, "unknown compatibility mode '%s': one of claude, codex, gemini, native, opencode", text);
}

int ak_mode_choose(const char *text, enum ak_mode *ret, const char **ret_own, struct ak_err *err)
{
	bool builtin = ak_mode_parse(text, ret, err) == 0;

	if (!builtin && !ak_sandbox_name_ok(text))
		return -EINVAL;
	if (!builtin)
		*ret = AK_MODE_OWN;
	*ret_own = builtin ? NULL : text;
	return 0;
}

int ak_profile_parse(const char *text, enum ak_profile *ret, struct ak_err *err)
{
	for (int i = 0; i < AK_PROFILE_NUM; i++) {
		if (!strcmp(profiles[i].name, text)) {
			*ret = (enum ak_profile)i;
			return 0;
		}
	}
	return ak_fail(err, EINVAL, "unknown profile '%s': one of permissive, moderate, restrictive", text);
}

int agent_state_parse(const char *text, enum agent_state *ret, struct ak_err *err)
{
	static const char *const names[] = {
		[AGENT_STATE_AUTO] = "auto",
		[AGENT_STATE_SHARED] = "shared",
		[AGENT_STATE_PROJECT] = "project",
		[AGENT_STATE_NONE] = "none",
	};

	static_assert(ARRAY_SIZE(names) == AGENT_STATE_NUM, "a name for each");
	for (int i = AGENT_STATE_SHARED; i < AGENT_STATE_NUM; i++) {
		if (!strcmp(names[i], text)) {
			*ret = (enum agent_state)i;
			return 0;
		}
	}
	return ak_fail(err, EINVAL, "unknown agent state '%s': one of shared, project, none", text);
}

/* ---- environment ---- */

static bool same_key(const char *a, const char *b)
{
	size_t n = strcspn(a, "=");

	return n == strcspn(b, "=") && !memcmp(a, b, n);
}

int plan_env_set(struct run_plan *plan, const char *pair, enum plan_source from)
{
	char *copy = strdup(pair);

	if (!copy)
		return -ENOMEM;
	for (size_t i = 0; i < plan->n_env; i++) {
		if (same_key(plan->env[i], pair)) {
			free(plan->env[i]);
			plan->env[i] = copy;
			plan->env_from[i] = from;
			return 0;
		}
	}
	if (plan->n_env == PLAN_ENV_MAX) {
		free(copy);
		return -E2BIG;
	}
	plan->env_from[plan->n_env] = from;
	plan->env[plan->n_env++] = copy;
	plan->env[plan->n_env] = NULL;
	return 0;
}

int plan_env_setf(struct run_plan *plan, const char *key, const char *value, enum plan_source from)
{
	_cleanup_free_ char *pair = NULL;

	if (asprintf(&pair, "%s=%s", key, value) < 0)
		return -ENOMEM;
	return plan_env_set(plan, pair, from);
}

/* Pass the caller's value if it is set. */
static int env_pass(struct run_plan *plan, const char *key, enum plan_source from)
{
	const char *value = getenv(key);

	return value ? plan_env_setf(plan, key, value, from) : 0;
}

/* Whether the variable names a folder that only the host has. */
static bool is_place_outside(const char *pair)
{
	static const char *const names[] = { "TMPDIR=", "TMP=", "TEMP=", "XDG_RUNTIME_DIR=" };

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		if (same_key(pair, names[i]))
			return true;
	}
	return false;
}

static int env_pass_all(struct run_plan *plan)
{
	int rc = 0;

	for (char **e = environ; *e && rc == 0; e++) {
		if (strchr(*e, '=') && **e != '=' && !is_place_outside(*e))
			rc = plan_env_set(plan, *e, PLAN_FROM_PROFILE);
	}
	return rc;
}

static int env_keys(struct run_plan *plan, const struct run_request *opts, struct ak_err *err)
{
	const struct agent *a = agent_of_mode(opts->mode);
	const char *const *keys = a ? a->keys : NULL;
	bool any = false;
	int rc = 0;

	if (!keys)
		return ak_fail(err, EINVAL, "--pass-api-key: mode %s has no API key of its own; use -e NAME",
			ak_mode_policy(opts->mode, opts->own));
	for (; *keys && rc == 0; keys++) {
		any |= getenv(*keys) != NULL;
		rc = env_pass(plan, *keys, PLAN_FROM_API_KEY);
	}
	if (rc == 0 && !any)
		return ak_fail(err, EINVAL, "--pass-api-key: %s is not set", a->keys[0]);
	return rc;
}

static int env_user(struct run_plan *plan, const struct run_request *opts, struct ak_err *err)
{
	for (size_t i = 0; i < opts->n_env; i++) {
		enum plan_source from = i + opts->n_file_env < opts->n_env ? PLAN_FROM_OPTION : PLAN_FROM_FILE;
		const char *e = opts->env[i];
		int rc;

		if (*e == '=' || *e == '\0')
			return ak_fail(err, EINVAL, "--env '%s': must be KEY=VALUE, or KEY to pass your own value", e);
		if (!strchr(e, '=') && !getenv(e))
			return ak_fail(err, EINVAL, "--env %s: not set in your environment; use %s=VALUE", e, e);
		rc = strchr(e, '=') ? plan_env_set(plan, e, from) : env_pass(plan, e, from);
		if (rc < 0)
			return ak_fail_errno(err, -rc, "--env");
	}
	return 0;
}

/* Variables passed from the caller's environment by default. */
static int env_caller(struct run_plan *plan, const struct run_request *opts)
{
	int rc = profiles[opts->profile].pass_env ? env_pass_all(plan) : 0;

	for (size_t i = 0; i < ARRAY_SIZE(harmless_env) && rc == 0; i++)
		rc = env_pass(plan, harmless_env[i], PLAN_FROM_TERMINAL);
	return rc < 0 || opts->image ? rc : plan_authorities(plan); /* an image has files of its own */
}

static int env_identity(struct run_plan *plan, const struct run_request *opts, const char *user)
{
	int rc = plan_env_setf(plan, "HOME", plan->home, PLAN_FROM_SANDBOX);

	if (rc == 0 && !plan->image)
		rc = plan_env_setf(plan, "USER", user, PLAN_FROM_SANDBOX);
	if (rc == 0 && !plan->image)
		rc = plan_env_setf(plan, "LOGNAME", user, PLAN_FROM_SANDBOX);
	if (rc == 0 && !plan->image)
		rc = plan_machine(plan);
	if (rc == 0)
		rc = plan_env_setf(plan, SANDBOX_VARIABLE, plan->name, PLAN_FROM_SANDBOX);
	if (rc == 0)
		rc = plan_env_setf(plan, "AGENTKERNEL_MODE", ak_mode_policy(opts->mode, opts->own), PLAN_FROM_SANDBOX);
	return rc;
}

/* Variables that the user requested. */
static int env_asked(struct run_plan *plan, const struct run_request *opts, struct ak_err *err)
{
	int rc = opts->pass_api_key ? env_keys(plan, opts, err) : 0;

	return rc < 0 ? rc : env_user(plan, opts, err);
}

/* An image's own variables beat those that the profile passes on: its PATH names its own folders. */
static int env_image(struct run_plan *plan)
{
	int rc = plan_env_setf(plan, "PATH", TOOLS_SYSTEM_PATH, PLAN_FROM_SYSTEM);

	for (char *const *e = plan->image->env; e && *e && rc == 0; e++)
		rc = plan_env_set(plan, *e, PLAN_FROM_IMAGE);
	return rc;
}

static int plan_env(struct run_plan *plan, const struct run_request *opts, const char *user, struct ak_err *err)
{
	const char *path = plan->tools.path ? plan->tools.path : TOOLS_SYSTEM_PATH;
	int rc = plan_env_setf(plan, "PATH", path, plan->tools.n ? PLAN_FROM_CALLER_PATH : PLAN_FROM_SYSTEM);

	if (rc == 0)
		rc = plan_env_set(plan, "TMPDIR=/tmp", PLAN_FROM_TMP);
	if (rc == 0 && !opts->fixed_env)
		rc = env_caller(plan, opts);
	if (rc == 0 && plan->image)
		rc = env_image(plan);
	if (rc == 0)
		rc = plan_git(plan, !opts->fixed_env);
	if (rc == 0)
		rc = plan_mise(plan);
	if (rc == 0)
		rc = env_identity(plan, opts, user);
	for (char *const *e = opts->fixed_env; e && *e && rc == 0; e++)
		rc = plan_env_set(plan, *e, PLAN_FROM_CREATE);
	if (rc < 0)
		return ak_fail_errno(err, -rc, "environment");
	return opts->fixed_env ? 0 : env_asked(plan, opts, err);
}

/* Each sandbox has its own values of these; the profile's defaults do not replace them. */
static bool is_identity(const char *pair)
{
	static const char *const own[] = { "HOME=", "USER=", "LOGNAME=", (SANDBOX_VARIABLE "="), "AGENTKERNEL_MODE=" };

	for (size_t i = 0; i < ARRAY_SIZE(own); i++) {
		if (same_key(pair, own[i]))
			return true;
	}
	return false;
}

static void env_drop_identity(struct run_plan *plan)
{
	size_t n = 0;

	for (size_t i = 0; i < plan->n_env; i++) {
		if (is_identity(plan->env[i]))
			free(plan->env[i]);
		else
			plan->env[n++] = plan->env[i];
	}
	plan->n_env = n;
	plan->env[n] = NULL;
}

int run_plan_capture(const struct run_request *opts, char ***ret, struct ak_err *err)
{
	static struct run_plan plan; /* too large for the stack; only its environment is used */
	char **list = NULL;
	int rc = env_caller(&plan, opts);

	if (rc < 0)
		ak_fail_errno(err, -rc, "environment");
	env_drop_identity(&plan);
	if (rc == 0)
		rc = env_asked(&plan, opts, err);
	if (rc == 0) {
		list = calloc(plan.n_env + 1, sizeof(*list));
		rc = list ? 0 : ak_fail(err, ENOMEM, "out of memory");
	}
	if (rc == 0) {
		memcpy(list, plan.env, plan.n_env * sizeof(*list));
		plan.n_env = 0;
		*ret = list;
	}
	run_plan_done(&plan);
	return rc;
}

void run_env_free(char **env)
{
	for (size_t i = 0; env && env[i]; i++)
		free(env[i]);
	free(env);
}

/* ---- folders ---- */

/*
 * The user name inside is the caller's; root becomes `agent`. It is taken from the environment, because querying the user database
 * could load a directory service.
 */
static const char *plan_user(struct run_plan *plan)
{
	const char *home = getenv("HOME"), *user = getenv("USER");
	bool self = getuid() != 0;

	if (!self || !user || !*user || user[strspn(user, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-")])
		user = "agent";
	if (self && home && home[0] == '/' && home[1])
		snprintf(plan->home, sizeof(plan->home), "%s", home);
	else
		snprintf(plan->home, sizeof(plan->home), "/home/%s", user);
	return user;
}

void plan_add_mount(struct run_plan *plan, const char *source, const char *target, bool readonly, const struct project_id *id,
	const char *why)
{
	assert(plan->n_mounts < PLAN_MOUNTS_MAX);
	plan->mounts_why[plan->n_mounts] = why;
	plan->mounts[plan->n_mounts++] = (struct sandbox_mount){
		.source = source, .target = target, .readonly = readonly, .dev = id->dev, .ino = id->ino
	};
}

static enum project_word word_of(const struct run_request *opts)
{
	if (opts->fixed_env) /* checked when the sandbox was created, if by a version that checks */
		return opts->dir_id.ino ? PROJECT_CONFIRMED : PROJECT_NAMED;
	return !opts->dir ? PROJECT_STOOD_IN : opts->allow_broad_dir ? PROJECT_CONFIRMED : PROJECT_NAMED;
}

static int name_project(const struct run_request *opts, const struct ak_paths *paths, struct owndir *own,
	char ret[static PATH_MAX], struct project_id *ret_id, struct ak_err *err)
{
	bool wanted = opts->dir || (!opts->fixed_env && (modes[opts->mode].mount_project || profiles[opts->profile].mount_cwd));
	int rc;

	ret[0] = '\0';
	if (!wanted)
		return 0;
	if (opts->fixed_env) { /* resolved when the sandbox was created; newer links are not followed */
		snprintf(ret, PATH_MAX, "%s", opts->dir);
		rc = project_again(ret, &opts->dir_id, ret_id, err);
	} else {
		rc = shared_name_folder(paths, opts->dir ? opts->dir : ".", ret, ret_id, err);
	}
	return rc < 0 ? rc : project_check(ret, word_of(opts), own, err);
}

int run_plan_project(const struct run_request *opts, const struct ak_paths *paths, char ret[static PATH_MAX],
	struct project_id *ret_id, struct ak_err *err)
{
	_cleanup_(owndir_freep) struct owndir *own = NULL;
	int rc = owndir_new(paths, &own, err);

	return rc < 0 ? rc : name_project(opts, paths, own, ret, ret_id, err);
}

int run_plan_bring(const struct run_request *opts, const struct ak_paths *paths, const char *project, struct run_mount **ret,
	size_t *ret_n, struct ak_err *err)
{
	static struct run_plan plan; /* too large for the stack; only its mounts are used */
	_cleanup_(owndir_freep) struct owndir *own = NULL;
	int rc = opts->n_mounts ? owndir_new(paths, &own, err) : 1;

	if (rc != 0)
		return rc < 0 ? rc : 0;
	snprintf(plan.project, sizeof(plan.project), "%s", project);
	(void)plan_user(&plan);
	rc = plan_mounts_name(&plan, opts, paths, own, err);
	*ret = rc < 0 ? NULL : run_mounts_copy(plan.asked, plan.n_asked);
	*ret_n = plan.n_asked;
	run_plan_done(&plan);
	return rc < 0 || *ret ? rc : ak_fail(err, ENOMEM, "out of memory");
}

/* Mount the host's home folder read-only. Strict isolation never shows it. */
static int plan_host_home(struct run_plan *plan, const struct run_request *opts, struct ak_err *err)
{
	const char *home = getenv("HOME");
	struct project_id id;
	int rc;

	if (!profiles[opts->profile].mount_home || plan->isolation == SANDBOX_STRICT || !home || !strcmp(home, "/"))
		return 0;
	rc = project_name(home, "home folder", plan->host_home, &id, err);
	if (rc < 0)
		return rc;
	if (!plan->image)
		snprintf(plan->home, sizeof(plan->home), "%s", plan->host_home);
	plan_add_mount(plan, plan->host_home, plan->host_home, true, &id, "your home (permissive profile)");
	plan->mounts[plan->n_mounts - 1].shielded = true;
	return 0;
}

void run_plan_note(struct run_plan *plan, const char *line)
{
	size_t n = strlen(plan->notes);

	if (line[0])
		snprintf(plan->notes + n, sizeof(plan->notes) - n, "%s\n", line);
}

/* What has written a program, if a sandbox may have: the writable mounts of this run, and persistent sandboxes. */
struct writers {
	const struct run_plan *plan; /* borrowed */
	struct shared_projects projects;
};

static bool has_written(void *ctx, const char *path)
{
	struct writers *w = ctx;

	return plan_mounts_writes(w->plan, path) || shared_wrote(&w->projects, path);
}

/* What the command needs of the host besides its system folders, each at its own path. */
static int plan_tools(struct run_plan *plan, const struct run_request *opts, const struct ak_paths *paths, struct owndir *own,
	struct ak_err *err)
{
	char note[320];
	struct writers writers = { .plan = plan, .projects = { .paths = paths } };
	const struct agent *agent = opts->fixed_env ? agent_of_mode(opts->mode) : NULL;
	struct tools_ask ask = {
		.command = opts->argv ? opts->argv[0]
			: agent	      ? agent->name
				      : "",
		.more = opts->tools,
		.path = opts->fixed_env ? opts->path : getenv("PATH"),
		.home = getenv("HOME"),
		.project = plan->project,
		.shown = plan->host_home,
		.own = own,
		.by_name = opts->origin == RUN_ORIGIN_MCP, /* a model chose the command */
		.written = has_written,
		.written_ctx = &writers,
	};
	bool wanted = !plan->image && (ask.command[0] || opts->n_tools) && (!opts->fixed_env || opts->path);
	int rc = wanted ? tools_find(&ask, &plan->tools, err) : 0;

	shared_projects_done(&writers.projects);
	if (rc == 0 && plan->tools.missing && !opts->fixed_env)
		return ak_fail(err, EINVAL, "--tool: '%.200s' is not on your PATH", plan->tools.missing);
	if (rc == 0 && plan->tools.missing) {
		snprintf(note, sizeof(note), "the program '%.200s' is no longer on the PATH that the sandbox was created with",
			plan->tools.missing);
		run_plan_note(plan, note);
	}
	if (rc == 0 && (plan->tools.partly || (plan->tools.refused && opts->n_tools)))
		run_plan_note(plan, plan->tools.partly ? plan->tools.partly : plan->tools.refused);
	for (size_t i = 0; rc == 0 && i < plan->tools.n; i++) {
		const struct tool *t = &plan->tools.list[i];

		if (t->kind == TOOL_LINK && plan_mounts_covers(plan, t->path))
			continue; /* it would be created in a folder of the host */
		if (t->kind == TOOL_LINK) {
			plan->links[plan->n_links++] = (struct sandbox_link){ .path = t->path, .target = t->target };
			continue;
		}
		plan_add_mount(plan, t->path, t->path, true, &(struct project_id){ .dev = t->dev, .ino = t->ino }, t->why);
		plan->mounts[plan->n_mounts - 1].shielded = t->kind == TOOL_FOLDER;
	}
	return rc;
}

/* Our own records, sockets and settings, wherever they are seen in what every sandbox sees of the host, and in the home. */
static int plan_covers(struct run_plan *plan, struct owndir *own, const char *empty_dir, struct ak_err *err)
{
	const char *shown[3 + TOOLS_MAX] = { "/usr", "/opt" };
	struct project_id empty;
	size_t n_shown = plan->image ? 0 : 2;
	int n, rc;

	if (plan->host_home[0])
		shown[n_shown++] = plan->host_home;
	for (size_t i = 0; i < plan->tools.n; i++) {
		if (plan->tools.list[i].kind == TOOL_FOLDER)
			shown[n_shown++] = plan->tools.list[i].path;
	}
	n = empty_dir[0] ? owndir_covers(own, shown, n_shown, plan->covers, err) : 0;
	if (n <= 0)
		return n;
	rc = project_name(empty_dir, "empty folder", plan->empty, &empty, err);
	if (rc < 0)
		return rc;
	for (int i = 0; i < n; i++)
		plan_add_mount(plan, plan->empty, plan->covers[i], true, &empty, "an empty folder over our own");
	return 0;
}

/* Mount the project, and its protected files on top. */
static int plan_project(struct run_plan *plan, const struct run_request *opts, const struct ak_paths *paths, struct ak_err *err)
{
	int rc;

	if (!plan->project[0])
		return 0;
	plan_add_mount(plan, plan->project, plan->project, false, &plan->project_id, "the project");
	rc = guard_new(plan->project, &plan->project_id, paths, shared_claims, !opts->project_writable, &plan->guard, err);
	if (rc < 0)
		return rc;
	assert(plan->n_mounts + GUARD_MOUNTS_MAX <= PLAN_MOUNTS_MAX);
	for (size_t i = guard_mounts(plan->guard, plan->mounts + plan->n_mounts); i > 0; i--)
		plan->mounts_why[plan->n_mounts++] = "a project file that your own tools run, or a folder that pins it";
	run_plan_note(plan, guard_note(plan->guard));
	return 0;
}

void run_plan_look(struct run_plan *plan, const struct run_request *opts, const struct ak_paths *paths)
{
	struct shared_lines shared;
	char line[512];

	plan_mounts_look(plan);
	if (plan->project[0]) {
		project_sockets(plan->project, "the project", line, sizeof(line));
		run_plan_note(plan, line);
	}
	shared_note(paths, plan, opts, &shared);
	run_plan_note(plan, shared.project);
	run_plan_note(plan, shared.agent);
}

static void plan_name(struct run_plan *plan, const struct run_request *opts)
{
	uint32_t id = 0;

	if (opts->name) {
		snprintf(plan->name, sizeof(plan->name), "%s", opts->name);
		return;
	}
	if (getrandom(&id, sizeof(id), 0) != sizeof(id))
		id = (uint32_t)getpid() * 2654435761u;
	snprintf(plan->name, sizeof(plan->name), "run-%08x", id);
}

int run_plan_rename(struct run_plan *plan, const struct run_request *opts)
{
	char old[sizeof(SANDBOX_VARIABLE "=") + sizeof(plan->name)];

	snprintf(old, sizeof(old), SANDBOX_VARIABLE "=%s", plan->name);
	plan_name(plan, opts);
	for (size_t i = 0; i < plan->n_env; i++) {
		if (!strcmp(plan->env[i], old)) /* unless the user has set it */
			return plan_env_setf(plan, SANDBOX_VARIABLE, plan->name, PLAN_FROM_SANDBOX);
	}
	return 0;
}

static int plan_workdir(struct run_plan *plan, const struct run_request *opts, struct ak_err *err)
{
	if (opts->workdir && opts->workdir[0] != '/')
		return ak_fail(err, EINVAL, "--workdir '%s': must be an absolute path inside the sandbox", opts->workdir);
	snprintf(plan->workdir, sizeof(plan->workdir), "%s",
		opts->workdir		   ? opts->workdir
			: plan->project[0] ? plan->project
			: plan->image	   ? plan_image_workdir(plan)
					   : plan->home);
	return 0;
}

/* Inside its own user namespace a program has every capability, which exposes kernel code that is otherwise out of reach. */
static int plan_isolation(struct run_plan *plan, const struct run_request *opts, struct ak_err *err)
{
	plan->isolation = modes[opts->mode].isolation;
	plan->readonly_root = profiles[opts->profile].readonly_root || plan->isolation == SANDBOX_STRICT;
	if (!opts->nested)
		return 0;
	if (plan->isolation == SANDBOX_STRICT)
		return ak_fail(err, EINVAL, "--nested-namespaces: not available in %s mode, which is strict; use another mode",
			plan->policy);
	if (sandbox_is_host_root())
		return ak_fail(err, EINVAL, "--nested-namespaces: not available to root; run agentkernel as an ordinary user");
	plan->isolation = SANDBOX_NESTED;
	return 0;
}

int run_plan_publish(const struct run_request *opts, struct ak_err *err)
{
	if (!opts->n_publish || (profiles[opts->profile].network && !opts->no_network))
		return 0;
	return ak_fail(err, EINVAL,
		"%s cannot be combined with --publish: published ports are connected by the network gateway, which this sandbox would not have; "
		"an allowlist mode such as codex limits what the sandbox can reach",
		opts->no_network ? "--no-network" : "--profile restrictive, which has no network,");
}

/* A page that is cleared costs as much as a system call. */
static void clear(struct run_plan *plan)
{
	memset(plan, 0, offsetof(struct run_plan, notes));
	memset(plan->files, 0, sizeof(plan->files)); /* passed on as a whole */
	plan->notes[0] = plan->gitconfig[0] = plan->mise[0] = plan->home[0] = plan->project[0] = plan->workdir[0] =
		plan->host_home[0] = plan->empty[0] = '\0';
	for (size_t i = 0; i < AGENT_STATE_MAX; i++)
		plan->agent_state[i].source[0] = '\0';
	plan->env[0] = NULL;
}

int run_plan_init(struct run_plan *plan, const struct run_request *opts, const struct ak_paths *paths, const char *empty_dir,
	struct ak_err *err)
{
	_cleanup_(owndir_freep) struct owndir *own = NULL;
	const char *user;
	int rc;

	clear(plan);
	plan_name(plan, opts);
	plan->network = profiles[opts->profile].network && !opts->no_network;
	plan->policy = ak_mode_policy(opts->mode, opts->own);
	rc = opts->mode == AK_MODE_OWN ? ak_policy_check_mode(paths, opts->own, err) : 0;
	if (rc == 0)
		rc = plan_isolation(plan, opts, err);
	if (rc == 0)
		rc = run_plan_publish(opts, err);
	if (rc == 0)
		rc = plan_backend(plan, opts, err);
	if (rc == 0 && opts->image)
		rc = plan_image(plan, opts, paths, err);
	if (rc < 0) {
		free(TAKE(plan->podman));
		return rc;
	}
	user = plan->image ? NULL : plan_user(plan);
	rc = owndir_new(paths, &own, err);
	if (rc == 0)
		rc = name_project(opts, paths, own, plan->project, &plan->project_id, err);
	if (rc == 0)
		rc = plan_mounts_name(plan, opts, paths, own, err);
	if (rc == 0)
		rc = plan_host_home(plan, opts, err);
	if (rc == 0)
		rc = plan_tools(plan, opts, paths, own, err);
	if (rc == 0)
		rc = plan_covers(plan, own, empty_dir, err);
	if (rc == 0)
		rc = plan_workdir(plan, opts, err);
	if (rc == 0)
		rc = plan_env(plan, opts, user, err);
	if (rc == 0)
		rc = plan_agent(plan, opts, paths, err);
	if (rc == 0)
		rc = plan_mounts_add(plan, opts, paths, own, empty_dir, PLAN_MOUNTS_BELOW_PROJECT, err);
	if (rc == 0)
		rc = plan_project(plan, opts, paths, err);
	if (rc == 0)
		rc = plan_mounts_add(plan, opts, paths, own, empty_dir, PLAN_MOUNTS_OTHER, err);
	if (rc == 0 && !opts->explain)
		rc = written_add_plan(paths, plan, err);
	for (size_t i = 0; rc == 0 && i < opts->n_own_mounts && i < PLAN_OWN_MOUNTS_MAX; i++) {
		plan->mounts_why[plan->n_mounts] = "a folder of agentkernel's own";
		plan->mounts[plan->n_mounts++] = opts->own_mounts[i];
	}
	if (rc < 0)
		run_plan_done(plan);
	return rc;
}

void run_plan_done(struct run_plan *plan)
{
	for (size_t i = 0; i < plan->n_env; i++)
		free(plan->env[i]);
	plan->n_env = 0;
	guard_free(TAKE(plan->guard));
	plan_mounts_free(TAKE(plan->brought));
	tools_done(&plan->tools);
	plan_image_done(plan);
	free(TAKE(plan->podman));
}

void run_plan_spec(
	const struct run_plan *plan, const struct gwns_link *link, char resolv[static PLAN_RESOLV_MAX], struct sandbox_spec *ret)
{
	char gw[AK_ADDR_TEXT];

	resolv[0] = '\0';
	if (link)
		snprintf(resolv, PLAN_RESOLV_MAX, "nameserver %s\noptions edns0\n", ak_addr_print(&link->gw4, gw));
	*ret = (struct sandbox_spec){
		.name = plan->name,
		.envp = plan->env,
		.workdir = plan->workdir,
		.isolation = plan->isolation,
		.readonly_root = plan->readonly_root,
		.home = plan->home,
		.mounts = plan->mounts,
		.n_mounts = plan->n_mounts,
		.links = plan->links,
		.n_links = plan->n_links,
		.link = link,
		.gw_user_ns = -1,
		.gw_net_ns = -1,
		.resolv_conf = resolv,
		.podman = plan->podman,
	};
	memcpy(ret->files, plan->files, sizeof(ret->files));
	if (plan->image)
		plan_image_spec(plan, ret);
}
