/* create, start, stop, remove, list: manage persistent sandboxes. */
#include "gateway/cli/cmd.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/base/strbuf.h"
#include "gateway/log/audit.h"
#include "gateway/run/io.h"
#include "gateway/service/service.h"
#include "gateway/store/shared.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

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
	struct run_request opts;
};

/* Returns 0 to continue, else the exit code + 1. */
static int parse_create(struct create *c, int argc, char **argv)
{
	struct cmd_args a;
	struct ak_err err;
	const char *value;
	int i;

	cmd_args_init(&a, cmd_row("create"), argc, argv);
	while ((i = cmd_next(&a, &value)) != CMD_END) {
		if (i == CMD_BAD || i == CMD_HELP)
			return 1 + (i == CMD_BAD ? AK_EXIT_USAGE : 0);
		if (i == CMD_ARG && c->name) {
			ak_say("create: unexpected '%.100s'; it takes one name", value);
			return 1 + AK_EXIT_USAGE;
		}
		if (i == CMD_ARG) {
			c->name = value;
		} else if (field_set(&c->opts, &field_table[i], FIELD_CLI, &a.given[i], &err) < 0) {
			ak_say("create: %s", err.text);
			return 1 + AK_EXIT_USAGE;
		}
	}
	if (!c->name) {
		ak_say("create: no name given; for example: agentkernel create work --compatibility-mode codex");
		return 1 + AK_EXIT_USAGE;
	}
	return 0;
}

/* Tell the user what --mcp gives to MCP servers. */
static void tell_mcp(const struct create *c, const cJSON *info)
{
	const cJSON *mcp = cJSON_GetObjectItemCaseSensitive(info, "mcp");
	bool all = c->opts.profile == AK_PROFILE_PERMISSIVE;

	if (!mcp)
		return;
	ak_say("create: MCP servers of %s may use '%s' as it is: mode %s, profile %s%s, %zu variable%s given with -e",
		json_text(mcp, "project", ""), c->name, ak_mode_name(c->opts.mode), ak_profile_name(c->opts.profile),
		all ? " (with your environment and home)" : "", c->opts.n_env, c->opts.n_env == 1 ? "" : "s");
}

int cmd_create(int argc, char **argv)
{
	struct create c = { .opts = { .mode = AK_MODE_NATIVE, .profile = AK_PROFILE_MODERATE } };
	_cleanup_json_ cJSON *info = NULL;
	struct ak_paths paths;
	struct ak_err err;
	int rc = parse_create(&c, argc, argv);

	if (rc)
		return rc - 1;
	rc = ak_paths_init(&paths, &err);
	if (rc == 0)
		rc = service_create(&paths, c.name, &c.opts, &info, &err);
	if (rc < 0)
		return fail("create", rc, &err);
	tell_mcp(&c, info);
	if (c.opts.json)
		return cmd_print_json(info);
	puts(c.name);
	return 0;
}

/* ---- start, stop, remove: one or more names ---- */

struct names {
	const char *list[NAMES_MAX];
	size_t n;
	bool force; /* --force, --accept-dir */
};

static int parse_names(const char *command, struct names *ret, int argc, char **argv)
{
	struct cmd_args a;
	int rc = cmd_read(&a, command, argc, argv, ret->list, NAMES_MAX, &ret->n);

	if (rc == 0 && ret->n == 0) {
		ak_say("%s: no sandbox given; see 'agentkernel list'", command);
		return 1 + AK_EXIT_USAGE;
	}
	ret->force = a.seen[FIELD_FORCE] || a.seen[FIELD_ACCEPT_DIR];
	return rc;
}

static int start_one(const struct ak_paths *paths, const char *name, bool accept_dir, struct ak_err *err)
{
	_cleanup_json_ cJSON *info = NULL;
	int rc = service_start(paths, name, &(struct service_how){ .accept_dir = accept_dir }, &info, err);

	if (rc == 0 && info)
		run_say_notes(json_text(info, "notes", ""));
	return rc;
}

static int stop_one(const struct ak_paths *paths, const char *name, bool force, struct ak_err *err)
{
	_cleanup_json_ cJSON *info = NULL;
	int rc = service_stop(paths, name, NULL, &info, err);

	if (rc == 0 && info && json_text(info, "changed", "")[0])
		ak_say("%s: %s", name, json_text(info, "changed", ""));
	return rc;
}

static int remove_one(const struct ak_paths *paths, const char *name, bool force, struct ak_err *err)
{
	return service_remove(paths, name, &(struct service_how){ .force = force }, NULL, err);
}

/* Handle each name independently: a failure does not stop the others. */
static int for_each_name(const char *command, int argc, char **argv,
	int (*fn)(const struct ak_paths *paths, const char *name, bool force, struct ak_err *err))
{
	struct names names = { .n = 0 };
	struct ak_paths paths;
	struct ak_err err;
	int code = parse_names(command, &names, argc, argv);

	if (code)
		return code - 1;
	if (ak_paths_init(&paths, &err) < 0)
		return fail(command, -EIO, &err);
	for (size_t i = 0; i < names.n; i++) {
		int rc = fn(&paths, names.list[i], names.force, &err);

		if (rc < 0)
			code = fail(command, rc, &err);
		else
			puts(names.list[i]);
	}
	return code;
}

int cmd_start(int argc, char **argv)
{
	return for_each_name("start", argc, argv, start_one);
}

int cmd_stop(int argc, char **argv)
{
	return for_each_name("stop", argc, argv, stop_one);
}

int cmd_remove(int argc, char **argv)
{
	return for_each_name("remove", argc, argv, remove_one);
}

/* ---- list ---- */

/* "42s", "7m", "3h", "12d": how long ago. */
static const char *age_text(const char *created, uint64_t now_us, char *buf, size_t size)
{
	uint64_t then = 0, s;

	if (audit_time_parse(created, &then) < 0)
		return "-";
	s = now_us > then ? (now_us - then) / 1000000 : 0;
	if (s < 60)
		snprintf(buf, size, "%llus", (unsigned long long)s);
	else if (s < 3600)
		snprintf(buf, size, "%llum", (unsigned long long)s / 60);
	else if (s < 86400)
		snprintf(buf, size, "%lluh", (unsigned long long)s / 3600);
	else
		snprintf(buf, size, "%llud", (unsigned long long)s / 86400);
	return buf;
}

static int name_width(const cJSON *list)
{
	const cJSON *item;
	int width = 4;

	cJSON_ArrayForEach(item, list) {
		int n = (int)strlen(json_text(item, "name", "-"));

		width = n > width ? n : width;
	}
	return width;
}

static void print_table(const cJSON *list)
{
	int width = name_width(list);
	uint64_t now = ak_wall_us();
	const cJSON *item;

	printf("%-*s  %-8s %-7s %-7s %-11s  %-15s %8s %8s  %s\n", width, "NAME", "STATUS", "BACKEND", "MODE", "PROFILE",
		"ADDRESS", "ALLOWED", "DENIED", "AGE");
	cJSON_ArrayForEach(item, list) {
		char age[32];

		printf("%-*s  %-8s %-7s %-7s %-11s  %-15s %8" PRIu64 " %8" PRIu64 "  %s\n", width, json_text(item, "name", "-"),
			json_text(item, "status", "-"), json_text(item, "backend", "-"), json_text(item, "mode", "-"),
			json_text(item, "profile", "-"), json_text(item, "ip", "-"), json_number(item, "allowed", 0),
			json_number(item, "denied", 0), age_text(json_text(item, "created_at", "-"), now, age, sizeof(age)));
	}
}

static void tell_bad(void *ctx, const char *name, const char *reason)
{
	ak_say("list: %s", reason);
}

static bool any_runs(const cJSON *list)
{
	const cJSON *item;

	cJSON_ArrayForEach(item, list) {
		if (!strcmp(json_text(item, "status", "-"), "running") && json_truth(item, "network"))
			return true;
	}
	return false;
}

static void say_shared(const cJSON *list)
{
	const cJSON *item, *name;

	cJSON_ArrayForEach(item, list) {
		const cJSON *with = cJSON_GetObjectItemCaseSensitive(item, "shared_with");
		_cleanup_strbuf_ struct strbuf names = { 0 };

		cJSON_ArrayForEach(name, with)
			strbuf_printf(&names, "%s%s", names.len ? ", " : "", name->valuestring);
		if (names.data)
			ak_say("%s shares its project folder with sandboxes that have another policy: %s",
				json_text(item, "name", "-"), names.data);
	}
}

static void print_names(const cJSON *list)
{
	const cJSON *item;

	cJSON_ArrayForEach(item, list)
		puts(json_text(item, "name", "-"));
}

int cmd_list(int argc, char **argv)
{
	_cleanup_json_ cJSON *list = NULL;
	struct ak_paths paths;
	struct cmd_args a;
	struct ak_err err;
	int rc = cmd_read(&a, "list", argc, argv, NULL, 0, NULL);
	bool quiet = a.seen[FIELD_NAMES_ONLY];

	if (rc)
		return rc - 1;
	rc = ak_paths_init(&paths, &err);
	if (rc == 0)
		rc = service_list(&paths, quiet ? NULL : tell_bad, NULL, &list, &err);
	if (rc == 0 && any_runs(list) && cmd_heal(&paths, NULL, quiet)) {
		cJSON_Delete(TAKE(list)); /* the first list lacks the daemon's counters */
		rc = service_list(&paths, NULL, NULL, &list, &err);
	}
	if (rc < 0)
		return fail("list", rc, &err);
	if (quiet) {
		print_names(list);
		return 0;
	}
	rc = shared_mark(&paths, list, &err);
	if (rc < 0)
		return fail("list", rc, &err);
	if (a.seen[FIELD_JSON])
		return cmd_print_json(list);
	print_table(list);
	fflush(stdout);
	say_shared(list);
	return 0;
}
