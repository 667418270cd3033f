/* List policies, load the policy of a sandbox or run, and get its verdict on a destination. See service/service.h. */
#include "gateway/service/service.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/store/policy_dirs.h"
#include "gateway/store/runs.h"
#include "gateway/store/state.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- list ---- */

struct files {
	struct service_policy_file *items; /* owned */
	size_t n;
};

static int cmp_files(const void *a, const void *b)
{
	return strcmp(((const struct service_policy_file *)a)->name, ((const struct service_policy_file *)b)->name);
}

/* True if an earlier folder has a policy of this name, which takes precedence. */
static bool has_file(const struct files *l, const char *name)
{
	for (size_t i = 0; i < l->n; i++) {
		if (!strcmp(l->items[i].name, name))
			return true;
	}
	return false;
}

static const char *source_of(const struct ak_paths *paths, const char *dir)
{
	if (!strncmp(dir, paths->data, strlen(paths->data)))
		return "shipped";
	return strncmp(dir, "/etc/", 5) ? "user" : "system";
}

static int add_file(struct files *l, const char *dir, const char *file, const char *source)
{
	size_t len = strlen(file);
	struct service_policy_file item = { .source = source }, *items;

	if (len <= 5 || strcmp(file + len - 5, ".json") != 0 || len - 5 >= sizeof(item.name))
		return 0;
	memcpy(item.name, file, len - 5);
	/* Skips policy.schema.json and backup files of editors. */
	if (!ak_sandbox_name_ok(item.name) || has_file(l, item.name) || ak_path_join(item.path, dir, file, NULL) < 0)
		return 0;
	items = reallocarray(l->items, l->n + 1, sizeof(*items));
	if (!items)
		return -ENOMEM;
	l->items = items;
	l->items[l->n++] = item;
	return 0;
}

static int read_files(struct files *l, const struct ak_paths *paths, const struct policy_dirs *dirs, struct ak_err *err)
{
	for (size_t i = 0; i < ARRAY_SIZE(dirs->dirs) && dirs->dirs[i]; i++) {
		DIR *dir = opendir(dirs->dirs[i]);
		int rc = 0;

		if (!dir && errno != ENOENT && errno != ENOTDIR)
			return ak_fail_errno(err, errno, "%s", dirs->dirs[i]);
		for (struct dirent *e; dir && rc >= 0 && (e = readdir(dir));)
			rc = add_file(l, dirs->dirs[i], e->d_name, source_of(paths, dirs->dirs[i]));
		if (dir)
			closedir(dir);
		if (rc < 0)
			return ak_fail(err, ENOMEM, "out of memory");
	}
	return 0;
}

int service_policies(const struct ak_paths *paths, struct service_policy_file **ret, size_t *ret_n, struct ak_err *err)
{
	char storage[3][PATH_MAX];
	struct files files = { 0 };
	struct policy_dirs dirs;
	int rc;

	ak_paths_policy_dirs(paths, storage, &dirs);
	rc = read_files(&files, paths, &dirs, err);
	if (rc < 0) {
		free(files.items);
		return rc;
	}
	if (files.n)
		qsort(files.items, files.n, sizeof(*files.items), cmp_files);
	*ret = files.items;
	*ret_n = files.n;
	return 0;
}

void service_policy_put(struct strbuf *out, const char *name, const struct policy *p, const struct ak_err *err)
{
	if (!p) {
		strbuf_puts(out, "\"error\":");
		strbuf_json(out, err->text);
		return;
	}
	strbuf_printf(out, "\"kind\":\"%s\",\"default\":\"%s\",\"rules\":%zu,\"description\":", service_policy_kind(name, p),
		policy_default_allow(p) ? "allow" : "deny", policy_rule_count(p));
	policy_print_text(policy_description(p), out);
}

/* ---- the policy of a sandbox or run ---- */

int service_sandbox_policy(const struct ak_paths *paths, const char *name, const struct policy_edit *edits, size_t n_edits,
	struct policy **ret, struct ak_err *err)
{
	_cleanup_(state_done) struct state_sandbox s = { 0 };
	int rc = service_load(paths, name, &s, err);

	for (size_t i = 0; i < n_edits && rc == 0; i++)
		rc = state_edit_add(paths, &s, edits[i].op, edits[i].text, 0, err);
	if (rc == 0 && !state_network(&s))
		rc = ak_fail(err, ESRCH, "the sandbox '%s' has no network, so it has no policy", name);
	return rc < 0 ? rc : state_policy(paths, &s, ak_wall_us(), ret, err);
}

int service_run_policy(const struct ak_paths *paths, const char *name, const struct policy_edit *edits, size_t n_edits,
	struct policy **ret, struct ak_err *err)
{
	char dir[PATH_MAX], path[PATH_MAX];
	int rc = runs_dir(paths, name, dir, err);

	if (rc < 0)
		return rc;
	if (ak_path_join(path, dir, "policy.json", NULL) < 0 || access(path, F_OK) < 0)
		return ak_fail(err, ESRCH, "the run '%s' had no network, so it has no policy", name);
	return ak_policy_load(paths, path, edits, n_edits, ret, err);
}

/* ---- verdict ---- */

static const char *reason_of(const struct policy_decision *d, bool by_name)
{
	if (!d->allow)
		return policy_reason_text(d->reason, false);
	if (!by_name)
		return d->reason == POLICY_REASON_RULE ? "opened by allow_cidr" : "allowed by default";
	return "unless its address is in a blocked range";
}

void service_check(const struct policy *p, const struct policy_target *t, struct service_verdict *ret)
{
	bool by_name = !t->addr.family, v6 = t->addr.family == AF_INET6;
	char addr[AK_ADDR_TEXT];

	ret->decision =
		by_name ? policy_judge_name(p, t->host, t->proto, t->port) : policy_judge_addr(p, &t->addr, t->proto, t->port);
	ret->verdict = ret->decision.allow ? "allow" : "deny";
	ret->policy = policy_name(p);
	ret->reason = reason_of(&ret->decision, by_name);
	if (!ret->decision.allow && ret->decision.reason == POLICY_REASON_PORT) {
		service_ports_text(p, t->host, t->proto, ret->why, sizeof(ret->why));
		ret->reason = ret->why;
	}
	snprintf(ret->target, sizeof(ret->target), "%s%s%s:%u/%s", v6 ? "[" : "",
		by_name ? t->host : ak_addr_print(&t->addr, addr), v6 ? "]" : "", t->port,
		t->proto == POLICY_UDP ? "udp" : "tcp");
	policy_rule_label(&ret->decision, ret->rule, sizeof(ret->rule));
}

void service_verdict_put(struct strbuf *out, const struct service_verdict *v)
{
	const struct {
		const char *key, *text;
	} members[] = {
		{ "\"verdict\":", v->verdict },
		{ ",\"target\":", v->target },
		{ ",\"policy\":", v->policy },
		{ ",\"rule\":", v->rule },
		{ ",\"reason\":", v->reason },
	};

	for (size_t i = 0; i < ARRAY_SIZE(members); i++) {
		strbuf_puts(out, members[i].key);
		strbuf_json(out, members[i].text);
	}
}
