/*
 * policy list, show, validate: list the policies, print the compiled form of one, check a policy file.
 * network check: the verdict of a policy for one destination, from the same matcher that enforces it.
 */
#include "gateway/cli/cmd.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/base/strbuf.h"
#include "gateway/base/table.h"
#include "gateway/service/service.h"
#include "gateway/store/policy_dirs.h"
#include "gateway/store/runs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Print all of the output, or nothing when out of memory. main checks that stdout accepted it. */
static int put_out(const struct strbuf *out, int code)
{
	if (out->failed) {
		ak_say("out of memory");
		return AK_EXIT_ERROR;
	}
	fwrite(out->data, 1, out->len, stdout);
	return code;
}

static int put_json(const struct strbuf *out, int code)
{
	int rc = cmd_print_json_text(out);

	return rc ? rc : code;
}

/* Load a policy by NAME: a mode or policy, a file, a persistent sandbox, or the policy of a kept or past run. */
static int load_any(const char *name, const struct ak_paths *paths, const struct policy_edit *edits, size_t n_edits,
	struct policy **ret, struct ak_err *err)
{
	int rc = ak_policy_load(paths, name, edits, n_edits, ret, err);
	char whole[AK_NAME_MAX];

	if (rc != -ENOENT || policy_is_file(name) || !ak_sandbox_name_ok(name))
		return rc;
	rc = runs_resolve(paths, &name, whole, err);
	if (rc < 0)
		return rc;
	rc = service_sandbox_policy(paths, name, edits, n_edits, ret, err);
	if (rc == -ENOENT)
		rc = service_run_policy(paths, name, edits, n_edits, ret, err);
	if (rc != -ENOENT)
		return rc;
	return ak_fail(err, ENOENT, "no policy, sandbox or run is named '%s'; see 'agentkernel policy list'", name);
}

/* ---- arguments ---- */

struct words {
	const char *operands[64];
	size_t n_operands;
	struct run_request o; /* only the rules and --json are used */
};

/* Returns 0 to continue, else the exit code + 1. */
static int read_words(const char *command, int argc, char **argv, size_t min, size_t max, struct words *ret)
{
	struct cmd_args a;
	int rc;

	*ret = (struct words){ 0 };
	rc = cmd_read_into(&a, command, argc, argv, &ret->o, ret->operands,
		max < ARRAY_SIZE(ret->operands) ? max : ARRAY_SIZE(ret->operands), &ret->n_operands);
	if (rc)
		return rc;
	if (ret->n_operands < min) {
		ak_say("%s: needs %s; see 'agentkernel %s --help'", command, a.cmd->args, command);
		return 1 + AK_EXIT_USAGE;
	}
	return 0;
}

/* The first step of every command here: parse the words and find the folders. Returns 0 to continue, else the exit code + 1; CODE when the folders fail. */
static int begin(
	const char *command, int argc, char **argv, size_t min, size_t max, int code, struct words *w, struct ak_paths *paths)
{
	struct ak_err err;
	int rc = read_words(command, argc, argv, min, max, w);

	if (rc || ak_paths_init(paths, &err) == 0)
		return rc;
	ak_say("%s: %s", command, err.text);
	return 1 + code;
}

static int fail(const char *command, int code, const struct ak_err *err)
{
	ak_say("%s: %s", command, err->text);
	return code;
}

/* ---- policy list ---- */

static void put_listed_json(
	struct strbuf *out, const struct service_policy_file *item, const struct policy *p, const struct ak_err *err)
{
	strbuf_puts(out, "{\"name\":");
	strbuf_json(out, item->name);
	strbuf_printf(out, ",\"source\":\"%s\",\"path\":", item->source);
	strbuf_json(out, item->path);
	strbuf_putc(out, ',');
	service_policy_put(out, item->name, p, err);
	strbuf_putc(out, '}');
}

static void put_listed(struct table *t, const struct service_policy_file *item, const struct policy *p)
{
	table_put(t, AK_PLAIN, item->name);
	table_put(t, AK_PLAIN, p ? service_policy_kind(item->name, p) : "-");
	table_put(t, AK_PLAIN, item->source);
	table_put(t, AK_PLAIN, !p ? "-" : policy_default_allow(p) ? "allow" : "deny");
	if (p)
		table_putf(t, AK_PLAIN, "%zu", policy_rule_count(p));
	else
		table_put(t, AK_PLAIN, "-");
	table_put(t, p ? AK_DIM : AK_BAD, p ? policy_description(p) : "(cannot be read)");
}

int cmd_policy_list(int argc, char **argv)
{
	static const struct table_column columns[] = { { "NAME", TABLE_CUT, 20, 0, 0 }, { "KIND", 0, 0, 0, 0 },
		{ "SOURCE", 0, 0, 0, 0 }, { "DEFAULT", 0, 0, 0, 0 }, { "RULES", TABLE_RIGHT, 0, 0, 0 },
		{ "DESCRIPTION", 0, 0, 0, 0 } };
	_cleanup_strbuf_ struct strbuf out = { 0 };
	_cleanup_(table_done) struct table t = { 0 };
	_cleanup_free_ struct service_policy_file *files = NULL;
	size_t n = 0;
	struct ak_paths paths;
	struct words w;
	struct ak_err err;
	int rc, code = begin("policy list", argc, argv, 0, 0, AK_EXIT_ERROR, &w, &paths);

	if (code)
		return code - 1;
	if (service_policies(&paths, &files, &n, &err) < 0)
		return fail("policy list", AK_EXIT_ERROR, &err);
	table_init(&t, columns, ARRAY_SIZE(columns));
	strbuf_putc(&out, '[');
	for (size_t i = 0; i < n; i++) {
		_cleanup_(policy_unrefp) struct policy *p = NULL;

		if (ak_policy_load(&paths, files[i].path, NULL, 0, &p, &err) < 0) {
			ak_say("%s", err.text);
			code = AK_EXIT_ERROR;
		}
		strbuf_puts(&out, i ? "," : "");
		put_listed_json(&out, &files[i], p, &err);
		put_listed(&t, &files[i], p);
	}
	strbuf_putc(&out, ']');
	if (!w.o.json)
		rc = cmd_print_table(
			&t, "policy list: no policies are installed; set AGENTKERNEL_DATA_DIR or install the program again");
	else
		rc = put_json(&out, 0);
	return rc ? rc : code;
}

/* ---- policy show ---- */

int cmd_policy_show(int argc, char **argv)
{
	_cleanup_strbuf_ struct strbuf out = { 0 };
	_cleanup_(policy_unrefp) struct policy *p = NULL;
	struct ak_paths paths;
	struct words w;
	struct ak_err err;
	int code = begin("policy show", argc, argv, 1, 1, AK_EXIT_USAGE, &w, &paths);

	if (code)
		return code - 1;
	if (load_any(w.operands[0], &paths, NULL, 0, &p, &err) < 0)
		return fail("policy show", AK_EXIT_USAGE, &err);
	policy_print(p, &out);
	if (!policy_is_file(w.operands[0]) && !strcmp(service_policy_kind(w.operands[0], p), "group"))
		ak_say("%s is a group: --allow-group %s allows its hosts", w.operands[0], w.operands[0]);
	return put_out(&out, 0);
}

/* ---- policy validate ---- */

struct validation {
	const char *file;
	bool json;
	struct strbuf *out;
	size_t flaws;
};

static void put_flaw(void *ctx, const struct policy_flaw *f)
{
	struct validation *v = ctx;

	if (v->json) {
		strbuf_printf(
			v->out, "%s{\"line\":%u,\"column\":%u,\"error\":", v->flaws ? "," : ",\"errors\":[", f->line, f->column);
		strbuf_json(v->out, f->text);
		strbuf_putc(v->out, '}');
	} else if (f->line) {
		ak_say("%s: line %u, column %u: %s", v->file, f->line, f->column, f->text);
	} else {
		ak_say("%s: %s", v->file, f->text);
	}
	v->flaws++;
}

/* FILE is a path, even a plain word such as "mine", unless there is no such file: then the name of a policy. */
static int find_file(const char *file, const struct ak_paths *paths, char ret[static PATH_MAX], struct ak_err *err)
{
	_cleanup_free_ struct service_policy_file *files = NULL;
	size_t n = 0;
	int rc;

	snprintf(ret, PATH_MAX, "%s", file);
	if (policy_is_file(file) || access(file, F_OK) == 0)
		return 0;
	rc = service_policies(paths, &files, &n, err);
	for (size_t i = 0; i < n; i++) {
		if (!strcmp(files[i].name, file))
			memcpy(ret, files[i].path, PATH_MAX);
	}
	return rc;
}

static bool validate_one(const char *file, const struct ak_paths *paths, bool json, struct strbuf *out)
{
	struct validation v = { .file = file, .json = json, .out = out };
	char path[PATH_MAX], storage[3][PATH_MAX];
	struct policy_dirs dirs;
	struct ak_err err;
	size_t rules = 0;
	int rc = find_file(file, paths, path, &err);

	if (json) {
		strbuf_puts(out, "{\"file\":");
		strbuf_json(out, file);
	}
	ak_paths_policy_dirs(paths, storage, &dirs);
	if (rc == 0)
		rc = policy_validate(path, &dirs, put_flaw, &v, &rules, &err);
	if (rc < 0 && !v.flaws && !json)
		ak_say("%s", err.text);
	if (rc == 0 && !json)
		strbuf_printf(out, "%s: ok (%zu rules)\n", file, rules);
	if (!json)
		return rc == 0;
	strbuf_printf(out, "%s,\"ok\":%s", v.flaws ? "]" : "", rc == 0 ? "true" : "false");
	if (rc == 0)
		strbuf_printf(out, ",\"rules\":%zu}", rules);
	else {
		strbuf_puts(out, ",\"error\":");
		strbuf_json(out, err.text);
		strbuf_putc(out, '}');
	}
	return rc == 0;
}

int cmd_policy_validate(int argc, char **argv)
{
	_cleanup_strbuf_ struct strbuf out = { 0 };
	struct ak_paths paths;
	struct words w;
	int code = begin("policy validate", argc, argv, 1, SIZE_MAX, AK_EXIT_ERROR, &w, &paths);

	if (code)
		return code - 1;
	for (size_t i = 0; i < w.n_operands; i++) {
		if (w.o.json)
			strbuf_puts(&out, i ? "," : "[");
		if (!validate_one(w.operands[i], &paths, w.o.json, &out))
			code = AK_EXIT_USAGE;
	}
	if (w.o.json)
		strbuf_putc(&out, ']');
	return w.o.json ? put_json(&out, code) : put_out(&out, code);
}

/* ---- network check ---- */

/* Nothing in the policy is about this destination: a group may have it. */
static bool by_default(const struct service_verdict *v)
{
	return !v->decision.allow && (v->decision.reason == POLICY_REASON_DEFAULT || v->decision.reason == POLICY_REASON_PORT);
}

int cmd_network_check(int argc, char **argv)
{
	_cleanup_strbuf_ struct strbuf out = { 0 };
	_cleanup_(policy_unrefp) struct policy *p = NULL;
	_cleanup_(service_groups_freep) struct service_groups *groups = NULL;
	const char *group;
	struct service_verdict v;
	struct policy_target t;
	struct ak_paths paths;
	struct words w;
	struct ak_err err;
	int code = begin("network check", argc, argv, 2, 2, AK_EXIT_USAGE, &w, &paths);

	if (code)
		return code - 1;
	if (policy_target_parse(w.operands[1], &t, &err) < 0 ||
		load_any(w.operands[0], &paths, w.o.edits, w.o.n_edits, &p, &err) < 0)
		return fail("network check", AK_EXIT_USAGE, &err);
	cmd_heal(&paths, w.operands[0], false);
	service_check(p, &t, &v);
	if (by_default(&v) && t.host[0])
		groups = service_groups_load(&paths);
	group = service_group_of(groups, t.host, t.proto, t.port);
	if (w.o.json) {
		strbuf_putc(&out, '{');
		service_verdict_put(&out, &v);
		if (group) {
			strbuf_puts(&out, ",\"group\":");
			strbuf_json(&out, group);
		}
		strbuf_putc(&out, '}');
		return put_json(&out, v.decision.allow ? 0 : AK_EXIT_DENY);
	} else {
		strbuf_printf(&out, "%s %s by %s (%s)\n", v.verdict, v.target, v.rule, v.reason);
		if (group)
			strbuf_printf(&out, "%s is in %s: --allow-group %s\n", t.host, group, group);
	}
	return put_out(&out, v.decision.allow ? 0 : AK_EXIT_DENY);
}
