/* The tools sandbox_run and sandbox_exec. See mcp/run.h. */
#include "gateway/mcp/run.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/service/service.h"
#include "gateway/store/rundir.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { OUT, ERR, STREAMS };

/* The output of a command. */
struct output {
	struct mcp_capture stream[STREAMS];
};

static void output_done(struct output *o)
{
	for (int i = 0; i < STREAMS; i++)
		mcp_capture_done(&o->stream[i]);
}

static void take_output(void *ctx, int stream, const char *data, size_t len)
{
	struct output *o = ctx;

	mcp_capture_add(&o->stream[stream], data, len);
}

/* ---- results ---- */

/* Print each note on its own line, in brackets to distinguish it from the command's output. */
static void tell_notes(const struct run_report *r, struct strbuf *out)
{
	_cleanup_strbuf_ struct strbuf notes = { 0 };

	run_report_tell(&notes, r);
	for (const char *line = notes.data ? notes.data : ""; *line; line += strcspn(line, "\n"), line += *line == '\n')
		strbuf_printf(out, "[agentkernel: %.*s]\n", (int)strcspn(line, "\n"), line);
	out->failed = out->failed || notes.failed;
}

static void new_line(struct strbuf *out)
{
	if (out->len && out->data[out->len - 1] != '\n')
		strbuf_putc(out, '\n');
}

static bool tell_stream(const struct mcp_capture *c, const char *head, const char *key, struct mcp_result *ret)
{
	_cleanup_strbuf_ struct strbuf text = { 0 };
	bool cut = mcp_capture_print(c, &text);

	if (text.len && head) {
		new_line(&ret->text);
		strbuf_puts(&ret->text, head);
	}
	strbuf_add(&ret->text, text.data ? text.data : "", text.len);
	strbuf_printf(&ret->structured, "\"%s\":", key);
	strbuf_json_utf8(&ret->structured, text.data ? text.data : "", text.len);
	strbuf_putc(&ret->structured, ',');
	if (text.failed)
		ret->text.failed = true;
	return cut;
}

static void tell_report(const struct run_report *r, const struct output *o, struct mcp_result *ret)
{
	bool cut = tell_stream(&o->stream[OUT], NULL, "stdout", ret);

	cut |= tell_stream(&o->stream[ERR], "[stderr]\n", "stderr", ret);
	new_line(&ret->text);
	tell_notes(r, &ret->text);
	if (r->outcome.timed_out)
		strbuf_puts(&ret->text, "[timed out: the command was ended; use a larger timeout_ms if it needs longer]\n");
	strbuf_printf(&ret->text, "[exit code %d]\n", r->outcome.exit_code);
	run_report_put(&ret->structured, r);
	strbuf_printf(&ret->structured, ",\"truncated\":%s,", cut ? "true" : "false");
}

/* ---- sandbox_run ---- */

static void tell_run(const struct mcp_request *r, const struct run_report *res, size_t max, struct mcp_result *ret)
{
	_cleanup_(output_done) struct output o = { .stream = { [OUT].max = max, [ERR].max = max } };

	mcp_capture_add(&o.stream[OUT], res->out ? res->out : "", res->out ? res->out_len : 0);
	mcp_capture_add(&o.stream[ERR], res->err ? res->err : "", res->err ? res->err_len : 0);
	o.stream[OUT].more = res->out_cut;
	o.stream[ERR].more = res->err_cut;
	tell_report(res, &o, ret);
	mcp_tell_denied(r->paths, res->name, false, 0, ret);
}

void mcp_do_run(const struct mcp_request *r, struct mcp_result *ret)
{
	_cleanup_(field_mem_done) struct field_mem mem = { 0 };
	struct run_request opts = { .name = mcp_owner_last_run(r->owner),
		.json = true,
		.quiet = true,
		.origin = RUN_ORIGIN_MCP,
		.timeout_ms = MCP_TIMEOUT_MS };
	struct run_report res = { .out = NULL };
	struct ak_err err;
	_cleanup_(config_freep) struct config *settings = NULL;
	size_t shown;
	int rc = mcp_ceiling_apply(r, &opts, &mem, &err);

	shown = (size_t)opts.output_bytes;
	opts.output_bytes = 0; /* both ends are shown: capture all of it */
	opts.given[FIELD_OUTPUT] = true;
	if (rc == 0)
		rc = mcp_settings(r, &opts, &settings, &err);
	if (rc == 0)
		rc = service_run(&opts, r->paths, &res, &err);
	if (rc == 0 && !res.outcome.has_net && !opts.no_network && ak_profile_network(opts.profile))
		run_report_note(&res, "the gateway ended unexpectedly; the sandbox continued without a network");
	if (rc < 0)
		mcp_fail(ret, "%s", err.text);
	else
		tell_run(r, &res, shown, ret);
	run_report_done(&res);
	rundir_prune_sometimes(r->paths);
}

/* ---- sandbox_exec ---- */

void mcp_do_exec(const struct mcp_request *r, struct mcp_result *ret)
{
	const char *name = mcp_arg_text(r->args, "name", "");
	_cleanup_(field_mem_done) struct field_mem mem = { 0 };
	_cleanup_(run_report_done) struct run_report report = { 0 };
	_cleanup_(output_done) struct output o = { 0 };
	const struct service_output output = { take_output, &o };
	struct run_request q = { .timeout_ms = MCP_TIMEOUT_MS };
	uint64_t began_us = ak_wall_us();
	char uuid[37];
	struct ak_err err;
	int rc = fields_decode(VERB_EXEC, FIELD_MCP, r->args, &q, &mem, &err);

	o.stream[OUT].max = o.stream[ERR].max = (size_t)q.output_bytes;
	if (rc == 0)
		rc = mcp_enter(r, name, uuid, &err);
	if (rc == 0) {
		const struct service_exec_opts opts = { .argv = q.argv,
			.env = q.env,
			.n_env = q.n_env,
			.workdir = q.workdir,
			.timeout_ms = q.timeout_ms,
			.stdio = { -1, -1, -1 },
			.uuid = uuid };

		rc = service_exec_run(r->paths, name, &opts, &output, &report, &err);
	}
	if (rc < 0) {
		mcp_fail(ret, "%s%s", err.text, rc == -ESRCH ? " (use the tool sandbox_start)" : "");
		return;
	}
	tell_report(&report, &o, ret);
	mcp_tell_denied(r->paths, name, true, began_us, ret);
}
