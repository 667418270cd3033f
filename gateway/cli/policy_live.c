/* network policy, network proxy: show or change the policy of a sandbox while it runs. */
#include "gateway/cli/cmd.h"

#include "gateway/base/cleanup.h"
#include "gateway/log/follow.h"
#include "gateway/service/service.h"
#include "gateway/store/runs.h"
#include "gateway/store/shared.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#define WATCH_TICK_MS 1000

struct words {
	const char *command, *name, *watch;
	bool show;
	char whole[AK_NAME_MAX]; /* the name that was abbreviated */
	struct run_request o; /* only the rules, --mcp and --json are used */
	struct service_change change;
};

/* ---- words ---- */

static int check(const struct words *w, struct ak_err *err)
{
	if (!w->name)
		return ak_fail(err, EINVAL, "no sandbox given; see 'agentkernel list'");
	if (w->watch && (w->change.n_edits || w->change.reset || w->change.for_ms))
		return ak_fail(err, EINVAL,
			"--watch takes all rules from its file; leave out the other rule options, --reset and --for");
	if (w->change.for_ms && !w->change.n_edits)
		return ak_fail(err, EINVAL, "--for needs a rule to limit, for example --allow-host");
	for (size_t i = 0; w->change.for_ms && i < w->change.n_edits; i++) {
		if (w->o.edits[i].op == POLICY_EDIT_REMOVE)
			return ak_fail(err, EINVAL, "--for cannot limit --remove; use --block-host");
	}
	return 0;
}

/* Returns 0 to continue, else the exit code + 1. */
static int parse(struct words *w, int argc, char **argv)
{
	struct cmd_args a;
	struct ak_err err;
	int rc = cmd_read_into(&a, w->command, argc, argv, &w->o, &w->name, 1, NULL);

	if (rc)
		return rc;
	w->watch = a.given[FIELD_WATCH].text;
	w->show = a.seen[FIELD_SHOW];
	w->change.reset = w->o.reset;
	w->change.for_ms = w->o.for_ms;
	w->change.edits = w->o.edits;
	w->change.n_edits = w->o.n_edits;
	w->change.mcp = w->o.mcp;
	rc = check(w, &err);
	if (rc < 0) {
		ak_say("%s: %s", w->command, err.text);
		return 1 + AK_EXIT_USAGE;
	}
	return 0;
}

/* ---- showing ---- */

static void print_rules(const char *head, const cJSON *rules)
{
	const cJSON *rule;

	cJSON_ArrayForEach(rule, rules) {
		if (cJSON_IsString(rule))
			printf("%-11s %s\n", head, rule->valuestring);
		else
			printf("%-11s %-40s %s\n", head, json_text(rule, "rule", ""), json_text(rule, "from", ""));
	}
}

static void print_table(const cJSON *obj)
{
	static const char *const lists[] = { "allow", "deny", "allow_cidr", "deny_cidr" };
	const cJSON *policy = cJSON_GetObjectItemCaseSensitive(obj, "policy"), *change;
	const cJSON *generation = cJSON_GetObjectItemCaseSensitive(obj, "generation");

	printf("%-11s %s\n", "sandbox", json_text(obj, "name", ""));
	printf("%-11s %.0f\n", "generation", cJSON_IsNumber(generation) ? generation->valuedouble : 0);
	printf("%-11s %s\n", "default", json_text(policy, "default", ""));
	for (size_t i = 0; i < ARRAY_SIZE(lists); i++)
		print_rules(lists[i], cJSON_GetObjectItemCaseSensitive(policy, lists[i]));
	cJSON_ArrayForEach(change, cJSON_GetObjectItemCaseSensitive(obj, "changes")) {
		const char *until = json_text(change, "until", "");

		printf("%-11s %s %s%s%s\n", "changed", json_text(change, "op", ""), json_text(change, "text", ""),
			until[0] ? ", until " : "", until);
	}
}

/* " until 15:37", in local time, with the date unless it is today; "" for a permanent change. */
static const char *until_text(uint64_t for_ms, char *buf, size_t size)
{
	time_t now = time(NULL), end = now + (time_t)(for_ms / 1000);
	struct tm today, then;

	buf[0] = '\0';
	if (!for_ms || !localtime_r(&now, &today) || !localtime_r(&end, &then))
		return buf;
	strftime(buf, size,
		today.tm_year != then.tm_year || today.tm_yday != then.tm_yday ? " until %Y-%m-%d %H:%M" : " until %H:%M", &then);
	return buf;
}

/* "web: allow api.example.com:443 until 15:37 (generation 4)", a line for each change. */
static void print_changes(const struct words *w, const cJSON *obj)
{
	static const char *const verbs[POLICY_EDIT_NUM] = {
		[POLICY_EDIT_ALLOW_HOST] = "allow",
		[POLICY_EDIT_BLOCK_HOST] = "block",
		[POLICY_EDIT_ALLOW_CIDR] = "allow",
		[POLICY_EDIT_BLOCK_CIDR] = "block",
		[POLICY_EDIT_DEFAULT] = "default",
		[POLICY_EDIT_REMOVE] = "removed",
		[POLICY_EDIT_ADD_POLICY] = "add policy",
		[POLICY_EDIT_ALLOW_GROUP] = "allow group",
	};
	const char *name = json_text(obj, "name", "");
	double generation = (double)json_number(obj, "generation", 0);
	char until[64];

	if (w->change.reset)
		printf("%s: dropped all earlier changes (generation %.0f)\n", name, generation);
	for (size_t i = 0; i < w->change.n_edits; i++)
		printf("%s: %s %s%s (generation %.0f)\n", name, verbs[w->change.edits[i].op], w->change.edits[i].text,
			until_text(w->change.for_ms, until, sizeof(until)), generation);
	if (w->change.mcp)
		printf("%s: MCP servers may use it with this policy (generation %.0f)\n", name, generation);
}

static bool changes(const struct words *w)
{
	return w->change.n_edits || w->change.reset || w->change.mcp;
}

static int print(const struct words *w, const cJSON *obj)
{
	if (w->o.json)
		return cmd_print_json(obj);
	if (changes(w))
		print_changes(w, obj);
	if (w->show || !changes(w))
		print_table(obj);
	return 0;
}

/* Commands that an MCP client left running get the new policy at once. MCP tools may start new ones only after the user agrees with --mcp. */
static void tell_mcp(const cJSON *obj)
{
	const char *name = json_text(obj, "name", "");

	if (cJSON_IsFalse(cJSON_GetObjectItemCaseSensitive(obj, "mcp")))
		ak_say("%s: the policy is now wider than MCP servers were given; they refuse this sandbox, unless they could create one like it, "
		       "until you run 'agentkernel network policy %s --mcp'; commands they left running already have these rules",
			name, name);
}

/* ---- watching a file ---- */

/* Identifies a version of the file: differs after a write, and after an editor replaces the file. */
struct stamp {
	struct timespec mtime;
	ino_t ino;
	off_t size;
	bool there;
};

static struct stamp look(const char *file)
{
	struct stat st;

	if (stat(file, &st) < 0)
		return (struct stamp){ .there = false };
	return (struct stamp){ st.st_mtim, st.st_ino, st.st_size, true };
}

static bool same(const struct stamp *a, const struct stamp *b)
{
	return a->there == b->there && a->ino == b->ino && a->size == b->size && a->mtime.tv_sec == b->mtime.tv_sec &&
		a->mtime.tv_nsec == b->mtime.tv_nsec;
}

/*
 * The real path of the file, unless a sandbox could write it or lead to it: that sandbox would choose the policy, perhaps its own. Asked before each reading,
 * because a sandbox may have been started in that folder meanwhile.
 */
static int name_watched(const struct ak_paths *paths, const char *file, char ret[static PATH_MAX], struct ak_err *err)
{
	_cleanup_(shared_projects_done) struct shared_projects projects = { .paths = paths };
	struct project_id id;
	mode_t mode;
	int rc = shared_name(paths, file, "--watch", ret, &id, &mode, err);

	if (rc == 0 && shared_wrote(&projects, ret))
		return ak_fail(err, EPERM,
			"--watch: '%.200s' is in a folder that a sandbox could write, so that it could change its own policy; keep the file elsewhere",
			ret);
	return rc;
}

/* Replace all earlier changes of the policy by the rules of the file. */
static int apply_file(const struct ak_paths *paths, const struct words *w, struct ak_err *err)
{
	_cleanup_json_ cJSON *now = NULL;
	struct policy_edit *edits = NULL;
	struct service_change change = { .reset = true, .mcp = w->change.mcp };
	const cJSON *generation;
	char file[PATH_MAX];
	size_t n = 0;
	int rc = name_watched(paths, w->watch, file, err);

	if (rc == 0)
		rc = service_edits_of_file(paths, file, &edits, &n, err);
	if (rc < 0)
		return rc;
	change.edits = edits;
	change.n_edits = n;
	rc = service_policy_change(paths, w->name, &change, &now, err);
	service_edits_free(edits, n);
	if (rc < 0)
		return rc;
	tell_mcp(now);
	generation = cJSON_GetObjectItemCaseSensitive(now, "generation");
	ak_say("%s: %s is in force, generation %.0f", w->name, w->watch,
		cJSON_IsNumber(generation) ? generation->valuedouble : 0);
	return 0;
}

static void folder_of(const char *file, char ret[static PATH_MAX])
{
	const char *slash = strrchr(file, '/');

	snprintf(ret, PATH_MAX, "%.*s", slash ? (int)(slash - file + (slash == file)) : 1, slash ? file : ".");
}

static bool removed(const struct ak_paths *paths, const char *name)
{
	_cleanup_json_ cJSON *obj = NULL;
	struct ak_err ignored;

	return service_policy_show(paths, name, &obj, &ignored) == -ENOENT;
}

/* Apply the file whenever it changes, until interrupted. When the file is invalid, print the error and keep the policy in force. */
static int watch(const struct ak_paths *paths, const struct words *w, struct ak_err *err)
{
	struct stamp seen = look(w->watch), now;
	struct ak_follow f = { -1 };
	char folder[PATH_MAX];
	int rc = apply_file(paths, w, err);

	if (rc < 0)
		return rc; /* at the start the file must be valid */
	folder_of(w->watch, folder);
	ak_follow_init(&f, folder);
	for (;;) {
		now = look(w->watch);
		if (same(&now, &seen)) {
			ak_follow_wait(&f, WATCH_TICK_MS);
			continue;
		}
		seen = now;
		rc = now.there ? apply_file(paths, w, err) : ak_fail(err, EAGAIN, "%s is gone", w->watch);
		if (rc < 0 && removed(paths, w->name))
			break;
		if (rc < 0)
			ak_say("%s: %s; the policy in force stays", w->command, err->text);
	}
	ak_follow_done(&f);
	return rc;
}

/* ---- network policy, network proxy ---- */

static int policy_command(const char *command, int argc, char **argv)
{
	static struct words w; /* large */
	_cleanup_json_ cJSON *obj = NULL;
	struct ak_paths paths;
	struct ak_err err;
	int rc;

	w.command = command;
	rc = parse(&w, argc, argv);
	if (rc)
		return rc - 1;
	rc = ak_paths_init(&paths, &err);
	if (rc == 0)
		rc = runs_resolve(&paths, &w.name, w.whole, &err);
	if (rc == 0 && w.watch)
		rc = watch(&paths, &w, &err);
	else if (rc == 0 && changes(&w))
		rc = service_policy_change(&paths, w.name, &w.change, &obj, &err);
	else if (rc == 0) {
		cmd_heal(&paths, w.name, false); /* a change starts the daemon anyway */
		rc = service_policy_show(&paths, w.name, &obj, &err);
	}
	if (rc < 0) {
		ak_say("%s: %s", command, err.text);
		return rc == -EINVAL ? AK_EXIT_USAGE : AK_EXIT_ERROR;
	}
	tell_mcp(obj);
	return print(&w, obj);
}

int cmd_network_policy(int argc, char **argv)
{
	return policy_command("network policy", argc, argv);
}

int cmd_network_proxy(int argc, char **argv)
{
	return policy_command("network proxy", argc, argv);
}
