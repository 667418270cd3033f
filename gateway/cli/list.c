/* list: the sandboxes and runs as a table. inspect: all that is known about one. */
#include "gateway/cli/cmd.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/base/table.h"
#include "gateway/log/audit.h"
#include "gateway/service/service.h"
#include "gateway/store/runs.h"
#include "gateway/store/shared.h"

#include <errno.h>
#include <string.h>

static int fail(const char *command, int rc, const struct ak_err *err)
{
	ak_say("%s: %s", command, err->text);
	return rc == -EINVAL ? AK_EXIT_USAGE : AK_EXIT_ERROR;
}

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

static const struct table_column columns[] = {
	{ "NAME", TABLE_CUT, 20, 0, 0 },
	{ "STATUS", 0, 0, 0, 0 },
	{ "BACKEND", 0, 0, 1, 0 },
	{ "MODE", TABLE_CUT, 12, 0, 0 },
	{ "PROFILE", 0, 0, 2, 0 },
	{ "ADDRESS", 0, 0, 3, 0 },
	{ "ALLOWED", TABLE_RIGHT, 0, 4, 0 },
	{ "DENIED", TABLE_RIGHT, 0, 0, 0 },
	{ "AGE", TABLE_RIGHT, 0, 0, 0 },
	{ "PORTS", 0, 0, 5, 0 },
};

static void put_status(struct table *t, const cJSON *item)
{
	const char *status = json_text(item, "status", "-");
	bool ended = !strcmp(status, "exited");
	uint64_t code = json_number(item, "exit_code", 0);

	if (ended)
		table_putf(t, code ? AK_BAD : AK_DIM, "exit %llu", (unsigned long long)code);
	else
		table_put(t, !strcmp(status, "running") ? AK_GOOD : !strcmp(status, "damaged") ? AK_BAD : AK_DIM, status);
}

static void put_count(struct table *t, const cJSON *item, const char *key, enum ak_style style)
{
	const cJSON *n = cJSON_GetObjectItemCaseSensitive(item, key);

	if (cJSON_IsNumber(n))
		table_putf(t, n->valuedouble > 0 ? style : AK_PLAIN, "%.0f", n->valuedouble);
	else
		table_put(t, AK_PLAIN, "-");
}

/* "127.0.0.1:8080:80 …": the column is there if any sandbox publishes a port. */
static void put_ports(struct table *t, const cJSON *item)
{
	const cJSON *port;
	_cleanup_strbuf_ struct strbuf text = { 0 };

	cJSON_ArrayForEach(port, cJSON_GetObjectItemCaseSensitive(item, "publish"))
		strbuf_printf(&text, "%s%s", text.len ? " " : "", port->valuestring);
	table_put(t, AK_PLAIN, text.data ? text.data : "-");
}

static bool any_ports(const cJSON *list)
{
	const cJSON *item;

	cJSON_ArrayForEach(item, list) {
		if (cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(item, "publish")) > 0)
			return true;
	}
	return false;
}

static int print_table(const cJSON *list, bool all)
{
	uint64_t now = ak_wall_us();
	bool ports = any_ports(list);
	const cJSON *item;
	struct table t;

	table_init(&t, columns, ARRAY_SIZE(columns) - !ports);
	cJSON_ArrayForEach(item, list) {
		char age[32];

		table_put(&t, AK_PLAIN, json_text(item, "name", "-"));
		put_status(&t, item);
		table_put(&t, AK_PLAIN, json_text(item, "backend", "-"));
		table_put(&t, AK_PLAIN, json_text(item, "mode", "-"));
		table_put(&t, AK_PLAIN, json_text(item, "profile", "-"));
		table_put(&t, AK_DIM, json_text(item, "ip", "-"));
		put_count(&t, item, "allowed", AK_PLAIN);
		put_count(&t, item, "denied", AK_BAD);
		table_put(&t, AK_PLAIN, age_text(json_text(item, "created_at", "-"), now, age, sizeof(age)));
		if (ports)
			put_ports(&t, item);
	}
	return cmd_print_table(&t,
		all ? "no sandboxes and no runs yet; for example: agentkernel run -- echo hello"
		    : "no sandboxes; 'agentkernel create NAME' defines one, 'agentkernel list -a' shows past runs");
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

static void say_shared(const cJSON *list, const char *key, const char *what)
{
	const cJSON *item, *name;

	cJSON_ArrayForEach(item, list) {
		const cJSON *with = cJSON_GetObjectItemCaseSensitive(item, key);
		_cleanup_strbuf_ struct strbuf names = { 0 };

		cJSON_ArrayForEach(name, with)
			strbuf_printf(&names, "%s%s", names.len ? ", " : "", name->valuestring);
		if (names.data)
			ak_say("%s shares its %s: %s", json_text(item, "name", "-"), what, names.data);
	}
}

static void print_names(const cJSON *list)
{
	const cJSON *item;

	cJSON_ArrayForEach(item, list)
		puts(json_text(item, "name", "-"));
}

/* Without -a, a run shows only while it is running. */
static void hide_ended(cJSON *list)
{
	cJSON *item = list->child, *next;

	for (; item; item = next) {
		next = item->next;
		if ((json_truth(item, "kept") || cJSON_GetObjectItemCaseSensitive(item, "command")) &&
			strcmp(json_text(item, "status", ""), "running") != 0)
			cJSON_Delete(cJSON_DetachItemViaPointer(list, item));
	}
}

/* The sandboxes as the user asked for them. A daemon that had died is restarted first, because only it has the current counters. */
static int gather(const struct ak_paths *paths, bool all, bool quiet, cJSON **ret, struct ak_err *err)
{
	_cleanup_json_ cJSON *list = NULL;
	int rc = service_list(paths, quiet ? NULL : tell_bad, NULL, &list, err);

	if (rc == 0 && any_runs(list) && cmd_heal(paths, NULL, quiet)) {
		cJSON_Delete(TAKE(list));
		rc = service_list(paths, NULL, NULL, &list, err);
	}
	if (rc == 0 && (all || !quiet))
		rc = service_list_runs(paths, list, err);
	if (rc == 0 && !quiet)
		rc = shared_mark(paths, list, err);
	if (rc < 0)
		return rc;
	if (!all)
		hide_ended(list);
	*ret = TAKE(list);
	return 0;
}

int cmd_list(int argc, char **argv)
{
	_cleanup_json_ cJSON *list = NULL;
	struct ak_paths paths;
	struct cmd_args a;
	struct ak_err err;
	int rc = cmd_read(&a, "list", argc, argv, NULL, 0, NULL);
	bool quiet = a.seen[FIELD_NAMES_ONLY], all = a.seen[FIELD_LIST_ALL];

	if (rc)
		return rc - 1;
	rc = ak_paths_init(&paths, &err);
	if (rc == 0)
		rc = gather(&paths, all, quiet, &list, &err);
	if (rc < 0)
		return fail("list", rc, &err);
	if (quiet) {
		print_names(list);
		return 0;
	}
	if (a.seen[FIELD_JSON])
		return cmd_print_json(list);
	rc = print_table(list, all);
	fflush(stdout);
	say_shared(list, "shared_with", "project folder with sandboxes that have another policy");
	say_shared(list, "agent_state_shared_with", "agent's state with runs of another project or policy");
	return rc;
}

int cmd_inspect(int argc, char **argv)
{
	_cleanup_json_ cJSON *obj = NULL;
	char whole[AK_NAME_MAX];
	struct ak_paths paths;
	struct cmd_args a;
	struct ak_err err;
	const char *name = NULL;
	size_t n = 0;
	int rc = cmd_read(&a, "inspect", argc, argv, &name, 1, &n);

	if (rc)
		return rc - 1;
	if (n == 0) {
		ak_say("inspect: no sandbox given; see 'agentkernel list -a'");
		return AK_EXIT_USAGE;
	}
	rc = ak_paths_init(&paths, &err);
	if (rc == 0)
		rc = runs_resolve(&paths, &name, whole, &err);
	if (rc == 0)
		rc = service_inspect(&paths, name, &obj, &err);
	return rc < 0 ? fail("inspect", rc, &err) : cmd_print_json(obj);
}
