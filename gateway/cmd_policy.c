/*
 * policy list, show and validate: the policies that exist, the compiled form, and what is wrong with a file.
 * network check: what a policy says of one destination, by the same matcher that enforces it.
 */
#include "gateway/cmd.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/base/strbuf.h"
#include "gateway/state.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EDITS_MAX 256

/* Where policies are looked for. */
struct places {
	struct ak_paths paths;
	char storage[3][PATH_MAX];
	struct policy_dirs dirs;
};

static int places_init(struct places *ret, struct ak_err *err)
{
	int rc = ak_paths_init(&ret->paths, err);

	if (rc < 0)
		return rc;
	ak_paths_policy_dirs(&ret->paths, ret->storage, &ret->dirs);
	return 0;
}

/* All of the output or none; main sees to it that stdout took it. */
static int put_out(const struct strbuf *out, int code)
{
	if (out->failed) {
		ak_say("out of memory");
		return AK_EXIT_ERROR;
	}
	fwrite(out->data, 1, out->len, stdout);
	return code;
}

static bool looks_like_file(const char *text)
{
	size_t len = strlen(text);

	return strchr(text, '/') || (len > 5 && !strcmp(text + len - 5, ".json"));
}

/* The policy that a persistent sandbox has now, with EDITS on top; -ENOENT when there is no such sandbox. */
static int load_persistent(const char *name, const struct places *at, const struct policy_edit *edits, size_t n_edits, struct policy **ret,
	struct ak_err *err)
{
	_cleanup_(state_done) struct state_sandbox s = { 0 };
	int rc = state_load(&at->paths, name, &s, err);

	for (size_t i = 0; i < n_edits && rc == 0; i++)
		rc = state_edit_add(&at->paths, &s, edits[i].op, edits[i].text, 0, err);
	if (rc == 0 && !state_network(&s))
		rc = ak_fail(err, EINVAL, "the sandbox '%s' has no network, so it has no policy", name);
	return rc < 0 ? rc : state_policy(&at->paths, &s, ak_wall_us(), ret, err);
}

/* A mode or policy, a file, a persistent sandbox, or the policy that a kept or past run was held to. */
static int load_any(const char *name, const struct places *at, const struct policy_edit *edits, size_t n_edits,
	struct policy **ret, struct ak_err *err)
{
	char dir[PATH_MAX], path[PATH_MAX];
	int rc = policy_load(name, &at->dirs, edits, n_edits, ret, err);

	if (rc != -ENOENT || looks_like_file(name) || !ak_sandbox_name_ok(name))
		return rc;
	rc = load_persistent(name, at, edits, n_edits, ret, err);
	if (rc != -ENOENT)
		return rc;
	if (ak_path_join(dir, at->paths.state, "runs", name) < 0 || ak_path_join(path, dir, "policy.json", NULL) < 0)
		return rc;
	if (access(dir, F_OK) < 0)
		return ak_fail(
			err, ENOENT, "there is neither a policy nor a sandbox nor a run named '%s'; see 'agentkernel policy list'", name);
	if (access(path, F_OK) < 0)
		return ak_fail(err, ENOENT, "the run '%s' had no network, so it has no policy", name);
	return policy_load(path, &at->dirs, edits, n_edits, ret, err);
}

/* ---- arguments ---- */

struct words {
	bool json;
	const char *operands[64];
	size_t n_operands;
	struct policy_edit edits[EDITS_MAX];
	size_t n_edits;
};

static bool edit_of_option(const char *name, enum policy_edit_op *ret)
{
	static const struct {
		const char *name;
		enum policy_edit_op op;
	} known[] = {
		{ "allow-host", POLICY_EDIT_ALLOW_HOST },
		{ "block-host", POLICY_EDIT_BLOCK_HOST },
		{ "allow-cidr", POLICY_EDIT_ALLOW_CIDR },
		{ "block-cidr", POLICY_EDIT_BLOCK_CIDR },
	};

	for (size_t i = 0; i < ARRAY_SIZE(known); i++) {
		if (!strcmp(name, known[i].name)) {
			*ret = known[i].op;
			return true;
		}
	}
	return false;
}

/* 0 to go on; else the exit code + 1, so that --help's 0 is told apart. */
static int read_words(const char *command, int argc, char **argv, size_t min, size_t max, struct words *ret)
{
	struct cmd_args a;
	const char *value;
	int i;

	*ret = (struct words){ 0 };
	cmd_args_init(&a, cmd_row(command), argc, argv);
	while ((i = cmd_next(&a, &value)) != CMD_END) {
		struct policy_edit edit = { .text = value };

		if (i == CMD_BAD || i == CMD_HELP)
			return 1 + (i == CMD_BAD ? AK_EXIT_USAGE : 0);
		if (i == CMD_ARG) {
			if (ret->n_operands == max || ret->n_operands == ARRAY_SIZE(ret->operands)) {
				ak_say("%s: unexpected '%.100s'", command, value);
				return 1 + AK_EXIT_USAGE;
			}
			ret->operands[ret->n_operands++] = value;
		} else if (!strcmp(a.cmd->opts[i].name, "json")) {
			ret->json = true;
		} else if (edit_of_option(a.cmd->opts[i].name, &edit.op)) {
			if (ret->n_edits == EDITS_MAX) {
				ak_say("%s: more than %d rules: write them in a policy file", command, EDITS_MAX);
				return 1 + AK_EXIT_USAGE;
			}
			ret->edits[ret->n_edits++] = edit;
		}
	}
	if (ret->n_operands < min) {
		ak_say("%s: wants %s; see 'agentkernel %s --help'", command, a.cmd->args, command);
		return 1 + AK_EXIT_USAGE;
	}
	return 0;
}

/* ---- policy list ---- */

struct listed {
	char name[AK_NAME_MAX];
	const char *source; /* static */
	char path[PATH_MAX];
};

struct list {
	struct listed *items; /* owned */
	size_t n;
};

static void list_done(struct list *l)
{
	free(l->items);
}

static int cmp_listed(const void *a, const void *b)
{
	return strcmp(((const struct listed *)a)->name, ((const struct listed *)b)->name);
}

/* True when a folder before this one has it already: that one counts. */
static bool list_has(const struct list *l, const char *name)
{
	for (size_t i = 0; i < l->n; i++) {
		if (!strcmp(l->items[i].name, name))
			return true;
	}
	return false;
}

static const char *source_of(const struct places *at, const char *dir)
{
	if (!strncmp(dir, at->paths.data, strlen(at->paths.data)))
		return "shipped";
	return strncmp(dir, "/etc/", 5) ? "user" : "system";
}

static int list_add(struct list *l, const char *dir, const char *file, const char *source)
{
	size_t len = strlen(file);
	struct listed item = { .source = source }, *items;

	if (len <= 5 || strcmp(file + len - 5, ".json") != 0 || len - 5 >= sizeof(item.name))
		return 0;
	memcpy(item.name, file, len - 5);
	/* policy.schema.json and editors' leavings are no policies. */
	if (!ak_sandbox_name_ok(item.name) || list_has(l, item.name) || ak_path_join(item.path, dir, file, NULL) < 0)
		return 0;
	items = reallocarray(l->items, l->n + 1, sizeof(*items));
	if (!items)
		return -ENOMEM;
	l->items = items;
	l->items[l->n++] = item;
	return 0;
}

static int list_read(struct list *l, const struct places *at, struct ak_err *err)
{
	for (size_t i = 0; i < ARRAY_SIZE(at->dirs.dirs) && at->dirs.dirs[i]; i++) {
		DIR *dir = opendir(at->dirs.dirs[i]);
		int rc = 0;

		if (!dir && errno != ENOENT && errno != ENOTDIR)
			return ak_fail_errno(err, errno, "%s", at->dirs.dirs[i]);
		for (struct dirent *e; dir && rc >= 0 && (e = readdir(dir));)
			rc = list_add(l, at->dirs.dirs[i], e->d_name, source_of(at, at->dirs.dirs[i]));
		if (dir)
			closedir(dir);
		if (rc < 0)
			return ak_fail(err, ENOMEM, "out of memory");
	}
	if (l->n)
		qsort(l->items, l->n, sizeof(*l->items), cmp_listed);
	return 0;
}

static void put_listed_json(struct strbuf *out, const struct listed *item, const struct policy *p, const struct ak_err *err)
{
	strbuf_puts(out, "{\"name\":");
	strbuf_json(out, item->name);
	strbuf_printf(out, ",\"source\":\"%s\",\"path\":", item->source);
	strbuf_json(out, item->path);
	if (p) {
		strbuf_printf(out,
			",\"default\":\"%s\",\"rules\":%zu,\"description\":", policy_default_allow(p) ? "allow" : "deny",
			policy_rule_count(p));
		policy_print_text(policy_description(p), out);
	} else {
		strbuf_puts(out, ",\"error\":");
		strbuf_json(out, err->text);
	}
	strbuf_putc(out, '}');
}

static void put_listed(struct strbuf *out, const struct listed *item, const struct policy *p)
{
	if (p)
		strbuf_printf(out, "%-20s %-8s %-8s %6zu  %s\n", item->name, item->source,
			policy_default_allow(p) ? "allow" : "deny", policy_rule_count(p), policy_description(p));
	else
		strbuf_printf(out, "%-20s %-8s %-8s %6s  %s\n", item->name, item->source, "-", "-", "(cannot be read)");
}

int cmd_policy_list(int argc, char **argv)
{
	_cleanup_strbuf_ struct strbuf out = { 0 };
	_cleanup_(list_done) struct list list = { 0 };
	struct places at;
	struct words w;
	struct ak_err err;
	int code = read_words("policy list", argc, argv, 0, 0, &w);

	if (code)
		return code - 1;
	if (places_init(&at, &err) < 0 || list_read(&list, &at, &err) < 0) {
		ak_say("policy list: %s", err.text);
		return AK_EXIT_ERROR;
	}
	if (w.json)
		strbuf_putc(&out, '[');
	else
		strbuf_printf(&out, "%-20s %-8s %-8s %6s  %s\n", "NAME", "SOURCE", "DEFAULT", "RULES", "DESCRIPTION");
	for (size_t i = 0; i < list.n; i++) {
		_cleanup_(policy_unrefp) struct policy *p = NULL;

		if (policy_load(list.items[i].path, &at.dirs, NULL, 0, &p, &err) < 0) {
			ak_say("%s", err.text);
			code = AK_EXIT_ERROR;
		}
		if (w.json && i)
			strbuf_puts(&out, ",\n ");
		if (w.json)
			put_listed_json(&out, &list.items[i], p, &err);
		else
			put_listed(&out, &list.items[i], p);
	}
	if (w.json)
		strbuf_puts(&out, "]\n");
	return put_out(&out, code);
}

/* ---- policy show ---- */

int cmd_policy_show(int argc, char **argv)
{
	_cleanup_strbuf_ struct strbuf out = { 0 };
	_cleanup_(policy_unrefp) struct policy *p = NULL;
	struct places at;
	struct words w;
	struct ak_err err;
	int code = read_words("policy show", argc, argv, 1, 1, &w);

	if (code)
		return code - 1;
	if (places_init(&at, &err) < 0 || load_any(w.operands[0], &at, NULL, 0, &p, &err) < 0) {
		ak_say("policy show: %s", err.text);
		return AK_EXIT_USAGE;
	}
	policy_print(p, &out);
	return put_out(&out, 0);
}

/* ---- policy validate ---- */

/* What is asked for is a file, even if it is called just "mine". */
static int load_file(const char *file, const struct places *at, struct policy **ret, struct ak_err *err)
{
	char path[PATH_MAX];

	if (looks_like_file(file) || access(file, F_OK) < 0)
		return policy_load(file, &at->dirs, NULL, 0, ret, err);
	snprintf(path, sizeof(path), "./%s", file);
	return policy_load(path, &at->dirs, NULL, 0, ret, err);
}

static bool validate_one(const char *file, const struct places *at, bool json, struct strbuf *out)
{
	_cleanup_(policy_unrefp) struct policy *p = NULL;
	struct ak_err err;
	bool ok = load_file(file, at, &p, &err) >= 0;

	if (json) {
		strbuf_puts(out, "{\"file\":");
		strbuf_json(out, file);
		strbuf_printf(out, ",\"ok\":%s", ok ? "true" : "false");
		if (ok) {
			strbuf_printf(out, ",\"rules\":%zu}", policy_rule_count(p));
		} else {
			strbuf_puts(out, ",\"error\":");
			strbuf_json(out, err.text);
			strbuf_putc(out, '}');
		}
	} else if (ok) {
		strbuf_printf(out, "%s: ok (%zu rules)\n", file, policy_rule_count(p));
	}
	if (!ok && !json)
		ak_say("%s", err.text);
	return ok;
}

int cmd_policy_validate(int argc, char **argv)
{
	_cleanup_strbuf_ struct strbuf out = { 0 };
	struct places at;
	struct words w;
	struct ak_err err;
	int code = read_words("policy validate", argc, argv, 1, SIZE_MAX, &w);

	if (code)
		return code - 1;
	if (places_init(&at, &err) < 0) {
		ak_say("policy validate: %s", err.text);
		return AK_EXIT_ERROR;
	}
	for (size_t i = 0; i < w.n_operands; i++) {
		if (w.json)
			strbuf_puts(&out, i ? ",\n " : "[");
		if (!validate_one(w.operands[i], &at, w.json, &out))
			code = AK_EXIT_USAGE;
	}
	if (w.json)
		strbuf_puts(&out, "]\n");
	return put_out(&out, code);
}

/* ---- network check ---- */

static const char *why(const struct policy_decision *d, bool by_name)
{
	if (!d->allow)
		return policy_reason_text(d->reason, false);
	if (!by_name)
		return d->reason == POLICY_REASON_RULE ? "opened by allow_cidr" : "allowed by default";
	return "as long as its address is not in a blocked range";
}

static const char *target_text(const struct policy_target *t, char *buf, size_t size)
{
	const char *proto = t->proto == POLICY_UDP ? "udp" : "tcp";
	char addr[AK_ADDR_TEXT];

	if (!t->addr.family)
		snprintf(buf, size, "%s:%u/%s", t->host, t->port, proto);
	else if (t->addr.family == AF_INET6)
		snprintf(buf, size, "[%s]:%u/%s", ak_addr_print(&t->addr, addr), t->port, proto);
	else
		snprintf(buf, size, "%s:%u/%s", ak_addr_print(&t->addr, addr), t->port, proto);
	return buf;
}

static void put_check(
	struct strbuf *out, const struct policy *p, const struct policy_target *t, const struct policy_decision *d, bool json)
{
	char target[POLICY_NAME_MAX + 32], rule[2 * POLICY_NAME_MAX];
	const char *verdict = d->allow ? "allow" : "deny";

	target_text(t, target, sizeof(target));
	policy_rule_label(d, rule, sizeof(rule));
	if (!json) {
		strbuf_printf(out, "%s %s by %s (%s)\n", verdict, target, rule, why(d, !t->addr.family));
		return;
	}
	strbuf_printf(out, "{\"verdict\":\"%s\",\"target\":", verdict);
	strbuf_json(out, target);
	strbuf_puts(out, ",\"policy\":");
	strbuf_json(out, policy_name(p));
	strbuf_puts(out, ",\"rule\":");
	strbuf_json(out, rule);
	strbuf_puts(out, ",\"reason\":");
	strbuf_json(out, why(d, !t->addr.family));
	strbuf_puts(out, "}\n");
}

int cmd_network_check(int argc, char **argv)
{
	_cleanup_strbuf_ struct strbuf out = { 0 };
	_cleanup_(policy_unrefp) struct policy *p = NULL;
	struct policy_decision d;
	struct policy_target t;
	struct places at;
	struct words w;
	struct ak_err err;
	int code = read_words("network check", argc, argv, 2, 2, &w);

	if (code)
		return code - 1;
	if (places_init(&at, &err) < 0 || policy_target_parse(w.operands[1], &t, &err) < 0 ||
		load_any(w.operands[0], &at, w.edits, w.n_edits, &p, &err) < 0) {
		ak_say("network check: %s", err.text);
		return AK_EXIT_USAGE;
	}
	d = t.addr.family ? policy_judge_addr(p, &t.addr, t.proto, t.port) : policy_judge_name(p, t.host, t.proto, t.port);
	put_check(&out, p, &t, &d, w.json);
	return put_out(&out, d.allow ? 0 : AK_EXIT_DENY);
}
