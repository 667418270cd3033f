/* The tools network_log and network_check, and the list of denials in results. See mcp/run.h. */
#include "gateway/mcp/run.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/log/audit.h"
#include "gateway/log/view.h"
#include "gateway/service/service.h"
#include "gateway/store/policy_dirs.h"
#include "gateway/store/runs.h"
#include "gateway/store/state.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define DENIED_MAX 20 /* denials listed in one result */
#define POLICY_FILE_MAX (1u << 20)

/* ---- reading ---- */

static int add_record(void *ctx, const char *line, size_t len, const struct netlog_rec *rec)
{
	return netlog_add(ctx, rec);
}

int mcp_rows_read(const struct ak_paths *paths, const char *name, enum netlog_only only, uint64_t since_us, struct mcp_rows *ret,
	struct ak_err *err)
{
	struct log_view v = { .since_us = since_us,
		.record = add_record }; /* damaged lines are skipped; `audit verify` reports them */
	char dir[PATH_MAX];
	int rc = runs_dir(paths, name, dir, err);

	*ret = (struct mcp_rows){ 0 };
	if (rc < 0)
		return rc;
	if (netlog_new(&ret->log) < 0)
		return ak_fail(err, ENOMEM, "out of memory");
	v.ctx = ret->log;
	rc = log_view_run(&v, dir, err);
	if (rc == 0 && netlog_rows(ret->log, only, ak_wall_us(), 0, &ret->rows, &ret->n) < 0)
		rc = ak_fail(err, ENOMEM, "out of memory");
	if (rc < 0)
		mcp_rows_done(ret);
	return rc;
}

void mcp_rows_done(struct mcp_rows *r)
{
	free(r->rows);
	netlog_free(r->log);
	*r = (struct mcp_rows){ 0 };
}

/* ---- denials in results ---- */

/* Append "\"key\":\"text\"" and escape all but printable ASCII, because names come from inside the sandbox. */
static void put_safe(struct strbuf *out, const char *key, const char *text)
{
	_cleanup_strbuf_ struct strbuf safe = { 0 };

	netlog_safe(&safe, text);
	strbuf_printf(out, "\"%s\":", key);
	strbuf_json(out, safe.failed ? "" : safe.data ? safe.data : "");
}

static void put_denied(struct strbuf *out, const struct netlog_row *row)
{
	strbuf_putc(out, '{');
	put_safe(out, "destination", row->dest);
	strbuf_putc(out, ',');
	put_safe(out, "proto", row->proto);
	strbuf_putc(out, ',');
	put_safe(out, "rule", row->rule);
	strbuf_putc(out, ',');
	put_safe(out, "reason", row->reason);
	strbuf_printf(out, ",\"count\":%llu}", (unsigned long long)row->count);
}

static void tell_row(struct strbuf *out, const struct netlog_row *row)
{
	netlog_safe(out, row->dest);
	strbuf_puts(out, " (");
	netlog_safe(out, row->proto);
	strbuf_puts(out, "): ");
	netlog_safe(out, row->reason);
	strbuf_puts(out, " [rule: ");
	netlog_safe(out, row->rule);
	strbuf_puts(out, "]");
	if (row->count > 1)
		strbuf_printf(out, ", %llu times", (unsigned long long)row->count);
	strbuf_putc(out, '\n');
}

/* Extract the host for an allow rule from "pastebin.com A", "api.test:443" or "11.0.0.1:443 sni=evil.test"; "" when there is none. */
static const char *host_of(const struct netlog_row *row, char buf[static POLICY_NAME_MAX])
{
	const char *at = strstr(row->dest, "sni=");
	size_t n;

	at = at ? at + 4 : row->dest;
	n = strcspn(at, " :");
	if (n >= POLICY_NAME_MAX)
		n = 0;
	memcpy(buf, at, n);
	buf[n] = '\0';
	if (!policy_name_ok(buf) || !strncmp(row->rule, "builtin", 7))
		buf[0] = '\0';
	return buf;
}

/* Explain how the user can allow the destination. The model never can. */
static void tell_remedy(struct strbuf *out, const char *host, const char *sandbox)
{
	strbuf_puts(out,
		"You cannot change this, and trying again will not help: the policy applies to every program and protocol. ");
	if (!host[0]) {
		strbuf_puts(out, "Destinations that a built-in rule blocks stay blocked.\n");
		return;
	}
	strbuf_puts(out, "If you need it, ask the user; only the user can allow it: ");
	if (sandbox)
		strbuf_printf(out, "`agentkernel network policy %s --allow-host %s --mcp`, or ", sandbox, host);
	strbuf_printf(out, "the option `--allow-host %s` of `agentkernel mcp server`, or \"allow\" in the policy file.\n", host);
}

void mcp_tell_denied(const struct ak_paths *paths, const char *name, bool persistent, uint64_t since_us, struct mcp_result *ret)
{
	char host[POLICY_NAME_MAX] = "";
	struct ak_err err = { "" };
	struct mcp_rows rows = { 0 };
	int rc = mcp_rows_read(paths, name, NETLOG_DENIED, since_us, &rows, &err);
	size_t n = rows.n < DENIED_MAX ? rows.n : DENIED_MAX;

	strbuf_puts(&ret->structured, "\"network\":{\"denied\":[");
	if (n > 0)
		strbuf_printf(&ret->text, "\n[network: the policy denied %zu destination%s]\n", rows.n, rows.n == 1 ? "" : "s");
	for (size_t i = 0; i < n; i++) {
		if (i)
			strbuf_putc(&ret->structured, ',');
		put_denied(&ret->structured, rows.rows[i]);
		strbuf_puts(&ret->text, "- ");
		tell_row(&ret->text, rows.rows[i]);
		if (!host[0])
			host_of(rows.rows[i], host);
	}
	strbuf_puts(&ret->structured, "]}");
	if (rows.n > n)
		strbuf_printf(&ret->text, "- and %zu more: network_log {\"name\":\"%s\",\"denied\":true}\n", rows.n - n, name);
	if (n > 0)
		tell_remedy(&ret->text, host, persistent ? name : NULL);
	if (rc < 0)
		strbuf_printf(&ret->text, "\n[network: cannot read the denied requests: %s]\n", err.text);
	mcp_rows_done(&rows);
}

/* ---- network_log ---- */

static int fail_unknown(const char *name, struct ak_err *err)
{
	return ak_fail(err, ENOENT, "no sandbox or run '%s' that this server's tools may use", name);
}

static void put_addresses(struct strbuf *out, const struct netlog_row *row)
{
	strbuf_puts(out, ",\"addresses\":[");
	for (unsigned i = 0; i < row->n_addrs; i++) {
		if (i)
			strbuf_putc(out, ',');
		strbuf_json(out, row->addrs[i]);
	}
	strbuf_putc(out, ']');
}

static void put_row(struct strbuf *out, const struct netlog_row *row)
{
	char when[AUDIT_TIME_MAX];
	const struct {
		const char *key, *text;
	} texts[] = { { "verdict", row->verdict }, { "proto", row->proto }, { "destination", row->dest }, { "rule", row->rule },
		{ "reason", row->reason } };

	strbuf_printf(out, "{\"time\":\"%s\"", audit_time_print(row->time_us, when));
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		strbuf_putc(out, ',');
		put_safe(out, texts[i].key, texts[i].text);
	}
	put_addresses(out, row);
	if (row->has_bytes)
		strbuf_printf(out, ",\"bytes_out\":%llu,\"bytes_in\":%llu", (unsigned long long)row->bytes_out,
			(unsigned long long)row->bytes_in);
	strbuf_printf(out, ",\"count\":%llu}", (unsigned long long)row->count);
}

static void put_rows(struct mcp_result *ret, const char *name, const struct mcp_rows *rows, size_t skip)
{
	strbuf_printf(&ret->structured, "\"name\":\"%s\",\"total\":%zu,\"rows\":[", name, rows->n);
	if (rows->n == 0)
		strbuf_puts(&ret->text, "No network records.\n");
	if (skip > 0)
		strbuf_printf(&ret->text, "The newest %zu of %zu rows:\n", rows->n - skip, rows->n);
	for (size_t i = skip; i < rows->n; i++) {
		const struct netlog_row *row = rows->rows[i];

		if (i > skip)
			strbuf_putc(&ret->structured, ',');
		put_row(&ret->structured, row);
		strbuf_printf(&ret->text, "%s ", row->verdict[0] ? row->verdict : "note");
		tell_row(&ret->text, row);
	}
	strbuf_putc(&ret->structured, ']');
}

void mcp_do_log(const struct mcp_request *r, struct mcp_result *ret)
{
	const char *name = mcp_arg_text(r->args, "name", ""), *since = mcp_arg_text(r->args, "since", NULL);
	size_t limit = (size_t)mcp_arg_uint(r->args, "limit", 100);
	enum netlog_only only = mcp_arg_bool(r->args, "denied", false) ? NETLOG_DENIED : NETLOG_ALL;
	struct mcp_rows rows = { 0 };
	uint64_t since_us = 0;
	char uuid[37];
	struct ak_err err;
	int rc = since ? audit_parse_since(since, ak_wall_us(), &since_us, &err) : 0;

	if (rc < 0)
		ak_err_prefix(&err, rc, "since");
	if (rc == 0 && !mcp_owner_has_run(r->owner, name))
		rc = mcp_enter(r, name, uuid, &err);
	if (rc == -ENOENT)
		fail_unknown(name, &err);
	if (rc == 0)
		rc = mcp_rows_read(r->paths, name, only, since_us, &rows, &err);
	if (rc < 0)
		mcp_fail(ret, "%s", err.text);
	else
		put_rows(ret, name, &rows, rows.n > limit ? rows.n - limit : 0);
	mcp_rows_done(&rows);
}

/* ---- network_check ---- */

/*
 * Load a policy file of the project that calls can see, and no other file: our error messages must not show the model the content of other files of the host.
 * The file may extend only shipped policies, so that verdicts do not reveal the user's own policies.
 */
static int load_file(const struct mcp_request *r, const char *file, struct policy **ret, struct ak_err *err)
{
	const struct run_request opts = {
		.mode = r->ceiling->mode, .own = r->ceiling->own_default, .profile = r->ceiling->profile, .dir = r->ceiling->dir
	};
	char project[PATH_MAX], path[PATH_MAX], storage[3][PATH_MAX];
	struct policy_dirs all, shipped = { { NULL } };
	_cleanup_free_ char *text = NULL;
	_cleanup_close_ int root = -1;
	size_t len;
	struct project_id id;
	int rc = run_plan_project(&opts, r->paths, project, &id, err);

	if (rc == 0 && !project[0])
		rc = ak_fail(err, EPERM,
			"policy: this server's sandboxes have no project folder, so there is no policy file to check");
	if (rc == 0 && (file[0] == '/' || snprintf(path, sizeof(path), "/%s", file) >= (int)sizeof(path)))
		rc = ak_fail(err, EINVAL, "policy: give the path of the file relative to the project folder");
	if (rc < 0)
		return rc;
	ak_paths_policy_dirs(r->paths, storage, &all);
	shipped.dirs[0] = storage[2];
	root = open(project, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (root < 0)
		return ak_fail_errno(err, errno, "the project folder");
	rc = service_file_read(root, path, POLICY_FILE_MAX, &text, &len, err);
	return rc < 0 ? rc : policy_parse(text, len, file, &shipped, NULL, 0, ret, err);
}

/* Load the policy as it would be enforced: for a mode, with the rules that this server adds. */
static int load_any(const struct mcp_request *r, const char *name, struct policy **ret, struct ak_err *err)
{
	enum ak_mode mode;
	char uuid[37];
	int rc;

	if (policy_is_file(name))
		return load_file(r, name, ret, err);
	rc = service_check_name(name, err);
	if (rc < 0)
		return rc;
	if (ak_mode_parse(name, &mode, err) == 0)
		return mcp_ceiling_policy(r, mode, NULL, ret, err);
	if (mcp_ceiling_has(r->ceiling, AK_MODE_OWN, name))
		return mcp_ceiling_policy(r, AK_MODE_OWN, name, ret, err);
	if (mcp_owner_has_run(r->owner, name))
		return service_run_policy(r->paths, name, NULL, 0, ret, err);
	rc = mcp_enter(r, name, uuid, err);
	if (rc == 0)
		rc = service_sandbox_policy(r->paths, name, NULL, 0, ret, err);
	return rc == -ENOENT ? fail_unknown(name, err) : rc;
}

static void put_check(struct mcp_result *ret, const struct service_verdict *v, const struct policy_target *t, const char *sandbox)
{
	enum policy_reason why = v->decision.reason;

	strbuf_printf(&ret->text, "%s %s by rule '%s' (%s)\n", v->verdict, v->target, v->rule, v->reason);
	if (!v->decision.allow)
		tell_remedy(&ret->text, why == POLICY_REASON_RULE || why == POLICY_REASON_DEFAULT ? t->host : "", sandbox);
	service_verdict_put(&ret->structured, v);
}

void mcp_do_check(const struct mcp_request *r, struct mcp_result *ret)
{
	_cleanup_(policy_unrefp) struct policy *p = NULL;
	const char *name = mcp_arg_text(r->args, "policy", "");
	_cleanup_json_ cJSON *info = NULL;
	struct service_verdict v;
	struct policy_target t;
	struct ak_err err, ignored;
	int rc = policy_target_parse(mcp_arg_text(r->args, "target", ""), &t, &err);

	if (rc < 0)
		ak_err_prefix(&err, rc, "target");
	if (rc == 0)
		rc = load_any(r, name, &p, &err);
	if (rc < 0) {
		mcp_fail(ret, "%s", err.text);
		return;
	}
	service_check(p, &t, &v);
	put_check(ret, &v, &t, !policy_is_file(name) && service_get(r->paths, name, &info, &ignored) == 0 ? name : NULL);
}
