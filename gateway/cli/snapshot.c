/* snapshot, restore, fork: copies of the files that a persistent sandbox has written. */
#include "gateway/cli/cmd.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/table.h"
#include "gateway/run/io.h"
#include "gateway/service/service.h"
#include "gateway/store/runs.h"

#include <errno.h>
#include <stdio.h>

/* What the command line says. */
struct words {
	const char *command;
	struct cmd_args args;
	const char *list[2]; /* NAME, and TAG or NEW */
	size_t n;
	char whole[AK_NAME_MAX]; /* the name that was abbreviated */
	struct ak_paths paths;
};

static int fail(const struct words *w, int rc, const struct ak_err *err)
{
	ak_say("%s: %s", w->command, err->text);
	return rc == -EINVAL ? AK_EXIT_USAGE : AK_EXIT_ERROR;
}

/* NEED operands at least; WANT names what is missing. Returns 0 to continue, else the exit code + 1. */
static int parse(struct words *w, const char *command, size_t need, const char *want, int argc, char **argv)
{
	struct ak_err err;
	int rc;

	w->command = command;
	rc = cmd_read(&w->args, command, argc, argv, w->list, 2, &w->n);
	if (rc)
		return rc;
	if (w->n < need) {
		ak_say("%s: %s; see 'agentkernel help %s'", command, w->n ? want : "no sandbox given", command);
		return 1 + AK_EXIT_USAGE;
	}
	rc = ak_paths_init(&w->paths, &err);
	if (rc == 0)
		rc = runs_resolve(&w->paths, &w->list[0], w->whole, &err);
	return rc < 0 ? 1 + fail(w, rc, &err) : 0;
}

/* ---- snapshot ---- */

static void put_size(struct table *t, double bytes)
{
	if (bytes < 1e6)
		table_putf(t, AK_PLAIN, "%.1f kB", bytes / 1e3);
	else
		table_putf(t, AK_PLAIN, "%.1f MB", bytes / 1e6);
}

static int print_list(const struct words *w, const cJSON *list)
{
	static const struct table_column columns[] = {
		{ "TAG", TABLE_CUT, 20, 0, 0 },
		{ "CREATED", 0, 0, 0, 0 },
		{ "FILES", TABLE_RIGHT, 0, 1, 0 },
		{ "SIZE", TABLE_RIGHT, 0, 0, 0 },
	};
	const cJSON *item;
	struct table t;

	table_init(&t, columns, ARRAY_SIZE(columns));
	cJSON_ArrayForEach(item, list) {
		bool damaged = json_truth(item, "damaged");

		table_put(&t, AK_PLAIN, json_text(item, "tag", "-"));
		table_put(&t, damaged ? AK_BAD : AK_PLAIN, damaged ? "damaged" : json_text(item, "created_at", "-"));
		table_putf(&t, AK_PLAIN, "%llu", (unsigned long long)json_number(item, "files", 0));
		put_size(&t, (double)json_number(item, "bytes", 0));
	}
	return cmd_print_table(&t, "no snapshots; 'agentkernel snapshot NAME' makes one");
}

static int list(const struct words *w)
{
	_cleanup_json_ cJSON *found = NULL;
	struct ak_err err;
	int rc = service_snapshots(&w->paths, w->list[0], &found, &err);

	if (rc < 0)
		return fail(w, rc, &err);
	return w->args.seen[FIELD_JSON] ? cmd_print_json(found) : print_list(w, found);
}

static int drop(const struct words *w)
{
	struct ak_err err;
	int rc = w->n < 2 ? ak_fail(&err, EINVAL, "no tag given; 'agentkernel snapshot --list %s' shows them", w->list[0])
			  : service_snapshot_remove(&w->paths, w->list[0], w->list[1], &err);

	if (rc < 0)
		return fail(w, rc, &err);
	puts(w->list[1]);
	return 0;
}

static int make(const struct words *w)
{
	const struct service_copy_how how = { .tag = w->n > 1 ? w->list[1] : NULL, .stop = w->args.seen[FIELD_STOP_FIRST] };
	_cleanup_json_ cJSON *made = NULL;
	struct ak_err err;
	int rc = service_snapshot(&w->paths, w->list[0], &how, &made, &err);

	if (rc == -ENOENT)
		cmd_explain_missing(&w->paths, w->list[0], &err);
	if (rc < 0)
		return fail(w, rc, &err);
	if (w->args.seen[FIELD_JSON])
		return cmd_print_json(made);
	puts(json_text(made, "tag", ""));
	return 0;
}

int cmd_snapshot(int argc, char **argv)
{
	struct words w = { .n = 0 };
	int rc = parse(&w, "snapshot", 1, "", argc, argv);
	bool lists = !rc && w.args.seen[FIELD_SNAPSHOT_LIST], drops = !rc && w.args.seen[FIELD_SNAPSHOT_REMOVE];

	if (rc)
		return rc - 1;
	if ((lists && drops) || (lists && w.n > 1)) {
		ak_say("snapshot: %s", drops ? "give --list or --remove, not both" : "--list takes only the sandbox");
		return AK_EXIT_USAGE;
	}
	return lists ? list(&w) : drops ? drop(&w) : make(&w);
}

/* ---- restore, fork ---- */

int cmd_restore(int argc, char **argv)
{
	struct words w = { .n = 0 };
	_cleanup_json_ cJSON *info = NULL;
	struct ak_err err;
	int rc = parse(&w, "restore", 2, "no tag given", argc, argv);

	if (rc)
		return rc - 1;
	rc = service_restore(&w.paths, w.list[0],
		&(struct service_copy_how){ .tag = w.list[1], .stop = w.args.seen[FIELD_STOP_FIRST] }, &info, &err);
	if (rc < 0)
		return fail(&w, rc, &err);
	puts(w.list[0]);
	return 0;
}

int cmd_fork(int argc, char **argv)
{
	struct words w = { .n = 0 };
	_cleanup_json_ cJSON *info = NULL;
	struct service_copy_how how;
	struct ak_err err;
	int rc = parse(&w, "fork", 2, "no name for the new sandbox given", argc, argv);

	if (rc)
		return rc - 1;
	how = (struct service_copy_how){ .tag = w.args.seen[FIELD_TAG_FROM] ? w.args.given[FIELD_TAG_FROM].text : NULL,
		.stop = w.args.seen[FIELD_STOP_FIRST] };
	rc = service_fork(&w.paths, w.list[0], w.list[1], &how, &info, &err);
	if (rc < 0)
		return fail(&w, rc, &err);
	puts(w.list[1]);
	return 0;
}
