/* create, start, stop, remove: manage persistent sandboxes. */
#include "gateway/cli/cmd.h"

#include "gateway/base/cleanup.h"
#include "gateway/run/io.h"
#include "gateway/service/service.h"
#include "gateway/store/runs.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#define NAMES_MAX 256

/* Print the error. Invalid arguments exit with the usage code, all else with the failure code. */
static int fail(const char *command, int rc, const struct ak_err *err)
{
	ak_say("%s: %s", command, err->text);
	return rc == -EINVAL ? AK_EXIT_USAGE : AK_EXIT_ERROR;
}

/* ---- create ---- */

struct create {
	const char *name;
	bool start;
	struct run_request opts;
};

/* Returns 0 to continue, else the exit code + 1. */
static int parse_create(struct create *c, int argc, char **argv)
{
	struct cmd_args a;
	int rc = cmd_read_into(&a, "create", argc, argv, &c->opts, &c->name, 1, NULL);

	c->start = a.seen[FIELD_START];
	return rc;
}

/* Taking the name of a past run removes its log. The file may be of that very run, so only the user does that. */
static int check_unused(const struct ak_paths *paths, const char *name)
{
	char runs[PATH_MAX], path[PATH_MAX];

	if (ak_path_join(runs, paths->state, "runs", NULL) < 0 || ak_path_join(path, runs, name, NULL) < 0 ||
		access(path, F_OK) < 0)
		return 0;
	ak_say("create: the name '%.63s' in agentkernel.toml is that of a run, whose log would be removed; to take it nevertheless: agentkernel create '%.63s'",
		name, name);
	return AK_EXIT_ERROR;
}

/* Without a name on the command line, agentkernel.toml may have one. */
static int take_name(struct create *c, const struct config *settings, const struct ak_paths *paths)
{
	if (c->name)
		return 0;
	c->name = config_word(settings, "sandbox", "name");
	if (c->name)
		return check_unused(paths, c->name);
	ak_say("create: no name given; for example: agentkernel create work --compatibility-mode codex");
	return AK_EXIT_USAGE;
}

/* Tell the user what --mcp gives to MCP servers. */
static void tell_mcp(const struct create *c, const cJSON *info)
{
	const cJSON *mcp = cJSON_GetObjectItemCaseSensitive(info, "mcp");
	bool all = c->opts.profile == AK_PROFILE_PERMISSIVE;

	if (!mcp)
		return;
	ak_say("create: MCP servers of %s may use '%s' as it is: mode %s, profile %s%s, %zu variable%s given with -e",
		json_text(mcp, "project", ""), c->name, ak_mode_policy(c->opts.mode, c->opts.own),
		ak_profile_name(c->opts.profile), all ? " (with your environment and home)" : "", c->opts.n_env,
		c->opts.n_env == 1 ? "" : "s");
}

/* RET is replaced by the daemon's view of it. */
static int start_new(const struct ak_paths *paths, const char *name, cJSON **ret, struct ak_err *err)
{
	cJSON *info = NULL;
	int rc = service_start(paths, name, NULL, &info, err);

	if (rc < 0)
		return ak_err_prefix(err, rc, "'%s' was created, but does not start", name);
	if (info) {
		run_say_notes(json_text(info, "notes", ""));
		cJSON_DeleteItemFromObjectCaseSensitive(info, "notes");
		cJSON_Delete(*ret);
		*ret = info;
	}
	return 0;
}

int cmd_create(int argc, char **argv)
{
	struct create c = { .opts = { .mode = AK_MODE_NATIVE, .profile = AK_PROFILE_MODERATE } };
	_cleanup_(config_freep) struct config *settings = NULL;
	_cleanup_json_ cJSON *info = NULL;
	struct ak_paths paths;
	struct ak_err err;
	int rc = parse_create(&c, argc, argv);

	if (rc)
		return rc - 1;
	if (ak_paths_init(&paths, &err) < 0)
		return fail("create", -EIO, &err);
	rc = cmd_settings("create", &c.opts, &paths, &settings);
	if (rc == 0)
		rc = take_name(&c, settings, &paths);
	if (rc)
		return rc;
	rc = service_create(&paths, c.name, &c.opts, &info, &err);
	if (rc == 0 && c.start)
		rc = start_new(&paths, c.name, &info, &err);
	if (rc < 0)
		return fail("create", rc, &err);
	tell_mcp(&c, info);
	if (c.opts.json)
		return cmd_print_json(info);
	puts(c.name);
	return 0;
}

/* ---- start, stop, remove: one or more names ---- */

enum life { LIFE_START, LIFE_STOP, LIFE_REMOVE };

struct names {
	const char *list[NAMES_MAX];
	size_t n;
	bool all;
	struct service_how how; /* --force, --accept-dir, --disk */
	cJSON *sandboxes; /* owned; with --all, the names are borrowed from it */
};

static int parse_names(const char *command, struct names *ret, int argc, char **argv)
{
	struct cmd_args a;
	int rc = cmd_read(&a, command, argc, argv, ret->list, NAMES_MAX, &ret->n);

	if (rc)
		return rc;
	ret->all = a.seen[FIELD_ALL];
	ret->how.force = a.seen[FIELD_FORCE];
	ret->how.accept_dir = a.seen[FIELD_ACCEPT_DIR];
	ret->how.disk_bytes = a.given[FIELD_DISK].number;
	if (!ret->all == !ret->n) {
		ak_say(ret->n ? "%s: give names or --all, not both" : "%s: no sandbox given; see 'agentkernel list'", command);
		return 1 + AK_EXIT_USAGE;
	}
	return 0;
}

/* Is there anything to do for this one? A kept run is started only by its name: its command has ended. */
static bool concerned(enum life what, const cJSON *info)
{
	bool running = !strcmp(json_text(info, "status", ""), "running");

	return what == LIFE_STOP ? running : what == LIFE_START ? !running && !json_truth(info, "kept") : true;
}

static int find_all(const struct ak_paths *paths, enum life what, struct names *names, struct ak_err *err)
{
	const cJSON *item;
	int rc = service_list(paths, NULL, NULL, &names->sandboxes, err);

	if (rc < 0)
		return rc;
	cJSON_ArrayForEach(item, names->sandboxes) {
		if (names->n < NAMES_MAX && concerned(what, item))
			names->list[names->n++] = json_text(item, "name", "");
	}
	return 0;
}

static int start_one(const struct ak_paths *paths, const char *name, const struct service_how *how, struct ak_err *err)
{
	_cleanup_json_ cJSON *info = NULL;
	int rc = service_start(paths, name, how, &info, err);

	if (rc == 0 && info)
		run_say_notes(json_text(info, "notes", ""));
	return rc;
}

static void say_changed(const char *name, const cJSON *info)
{
	if (info && json_text(info, "changed", "")[0])
		ak_say("%s: %s", name, json_text(info, "changed", ""));
}

static int stop_one(const struct ak_paths *paths, const char *name, const struct service_how *how, struct ak_err *err)
{
	_cleanup_json_ cJSON *info = NULL;
	int rc = service_stop(paths, name, NULL, &info, err);

	say_changed(name, info);
	return rc;
}

static int remove_one(const struct ak_paths *paths, const char *name, const struct service_how *how, struct ak_err *err)
{
	_cleanup_json_ cJSON *info = NULL;
	int rc = service_remove(paths, name, how, &info, err);

	say_changed(name, info);
	return rc;
}

void cmd_explain_missing(const struct ak_paths *paths, const char *name, struct ak_err *err)
{
	char dir[PATH_MAX];
	struct ak_err ignored;

	if (runs_dir(paths, name, dir, &ignored) < 0)
		return;
	if (runs_alive(dir))
		(void)ak_fail(err, ENOENT,
			"'%s' is a run in the foreground: only 'network log' and 'network publish' can reach it, and Ctrl-C ends it where it was started",
			name);
	else
		(void)ak_fail(err, ENOENT, "'%s' is a past run: only its log is left ('run --keep' keeps the files)", name);
}

struct act {
	const char *command;
	enum life what;
	int (*fn)(const struct ak_paths *paths, const char *name, const struct service_how *how, struct ak_err *err);
	const char *none; /* what --all says when there is nothing to do */
};

/* Starting a running sandbox, or stopping a stopped one, is not an error: say so and continue. */
static int do_one(const struct act *act, const struct ak_paths *paths, const char *name, const struct service_how *how)
{
	char whole[AK_NAME_MAX];
	struct ak_err err;
	int rc = runs_resolve(paths, &name, whole, &err);

	if (rc == 0)
		rc = act->fn(paths, name, how, &err);
	if (rc == -ENOENT)
		cmd_explain_missing(paths, name, &err);
	if ((act->what == LIFE_START && rc == -EALREADY) || (act->what == LIFE_STOP && (rc == -ESRCH || rc == -EALREADY))) {
		ak_say("%s: %s", act->command, err.text);
		rc = 0;
	}
	if (rc < 0)
		return fail(act->command, rc, &err);
	puts(name);
	return 0;
}

/* Handle each name independently: a failure does not stop the others. */
static int for_each_name(const struct act *act, int argc, char **argv)
{
	struct names names = { .n = 0 };
	struct ak_paths paths;
	struct ak_err err;
	int code = parse_names(act->command, &names, argc, argv), rc;

	if (code)
		return code - 1;
	rc = ak_paths_init(&paths, &err);
	if (rc == 0 && names.all)
		rc = find_all(&paths, act->what, &names, &err);
	if (rc < 0)
		return fail(act->command, -EIO, &err);
	if (names.n == 0)
		ak_say("%s: %s", act->command, act->none);
	for (size_t i = 0; i < names.n; i++) {
		int one = do_one(act, &paths, names.list[i], &names.how);

		code = one ? one : code;
	}
	cJSON_Delete(names.sandboxes);
	return code;
}

int cmd_start(int argc, char **argv)
{
	return for_each_name(&(struct act){ "start", LIFE_START, start_one, "no sandbox is stopped" }, argc, argv);
}

int cmd_stop(int argc, char **argv)
{
	return for_each_name(&(struct act){ "stop", LIFE_STOP, stop_one, "no sandbox is running" }, argc, argv);
}

int cmd_remove(int argc, char **argv)
{
	return for_each_name(&(struct act){ "remove", LIFE_REMOVE, remove_one, "there are no sandboxes" }, argc, argv);
}
