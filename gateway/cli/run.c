/* `agentkernel run`: parse the options, run the command, print the result and return its exit code. */
#include "gateway/cli/cmd.h"
#include "gateway/run/run.h"
#include "gateway/run/tty.h"
#include "gateway/service/service.h"
#include "gateway/store/agent.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* No command was given: run the agent of the mode, or the one that agentkernel.toml prefers. */
static int take_agent(struct run_request *o, const struct config *c)
{
	const char *preferred = config_word(c, "agent", "preferred");
	const struct agent *a = agent_of_mode(o->mode);
	static char *argv[2];

	if (o->argv)
		return 0;
	if (!a && o->image) { /* the image's own */
		o->argv = argv;
		return 0;
	}
	if (!a && preferred && !o->given[FIELD_MODE]) {
		a = agent_named(preferred);
		o->mode = a->mode;
	}
	if (!a) {
		ak_say("run: no command given; for example: agentkernel run --compatibility-mode codex -- npm test");
		return AK_EXIT_USAGE;
	}
	argv[0] = (char *)a->name;
	o->argv = argv;
	return 0;
}

static int check_detach(const struct run_request *o)
{
	if (o->debug) {
		ak_say("run: --debug shows the guest's console on stderr, which --detach does not have");
		return AK_EXIT_USAGE;
	}
	if (!o->tty && !o->json)
		return 0;
	ak_say("run: --detach has neither a terminal nor a result; 'agentkernel attach' opens a shell, 'agentkernel logs' shows the output");
	return AK_EXIT_USAGE;
}

/* Returns 0 to continue, -1 after printing help, else the exit code. */
static int parse(int argc, char **argv, struct run_request *o)
{
	struct cmd_args args;
	const char *command = NULL;
	int rc = cmd_read_into(&args, "run", argc, argv, o, &command, 1, NULL);

	if (rc)
		return rc == 1 ? -1 : rc - 1;
	if (command)
		o->argv = argv + args.at - 1;
	if (o->detach)
		return check_detach(o);
	rc = cmd_choose_tty("run", o, &o->tty);
	return rc > 0 ? rc - 1 : 0;
}

static void print_json(const struct run_report *r)
{
	_cleanup_strbuf_ struct strbuf out = { 0 };

	strbuf_putc(&out, '{');
	run_report_put(&out, r);
	strbuf_puts(&out, ",\"stdout\":");
	strbuf_json_utf8(&out, r->out ? r->out : "", r->out ? r->out_len : 0);
	strbuf_puts(&out, ",\"stderr\":");
	strbuf_json_utf8(&out, r->err ? r->err : "", r->err ? r->err_len : 0);
	if (r->out_cut || r->err_cut)
		strbuf_puts(&out, ",\"truncated\":true");
	strbuf_putc(&out, ',');
	run_report_put_network(&out, r);
	strbuf_putc(&out, '}');
	(void)cmd_print_json_text(&out);
}

#define DENIALS_TOLD 3

/* The log is read only now that something was denied. */
static void tell_denied(const struct run_report *r, const struct ak_paths *paths, unsigned long long denied)
{
	_cleanup_strbuf_ struct strbuf text = { 0 };
	struct service_denial list[DENIALS_TOLD];
	struct ak_err ignored;
	size_t n = 0;

	if (service_denials(paths, r->name, list, DENIALS_TOLD, &n, &ignored) == 0 && n > 0)
		service_denials_put(&text, list, n);
	if (text.len && !text.failed)
		ak_say("%llu network request%s denied: %sagentkernel network log %s", denied, denied == 1 ? " was" : "s were",
			text.data, r->name);
	else
		ak_say("%llu network request%s denied; see: agentkernel network log %s", denied, denied == 1 ? " was" : "s were",
			r->name);
}

static void print_closing_lines(const struct run_request *o, const struct run_report *r, const struct ak_paths *paths)
{
	unsigned long long denied = r->outcome.net.denied;

	if (r->kept)
		ak_say("kept as %s; see: agentkernel start %s", r->name, r->name);
	if (r->keep_error.text[0])
		ak_say("%s could not be kept as a sandbox: %s", r->name, r->keep_error.text);
	if (r->changed && !o->quiet)
		ak_say("%s", r->changed);
	if (r->outcome.net.lost > 0)
		ak_say("%llu network records were lost: the log could not be written", (unsigned long long)r->outcome.net.lost);
	if (denied > 0 && !o->quiet)
		tell_denied(r, paths, denied);
}

/* Errors that the user can correct begin with the name of the command, as those of options do; failures of a run do not. */
static void say_error(int rc, const struct ak_err *err)
{
	ak_say("%s%s", rc == -EINVAL ? "run: " : "", err->text);
}

static int explain(const struct run_request *opts, const struct config *c, const struct ak_paths *paths)
{
	_cleanup_strbuf_ struct strbuf out = { 0 };
	struct ak_err err;
	int rc = service_explain(opts, c, paths, &out, &err);

	if (rc < 0) {
		say_error(rc, &err);
		return rc == -EINVAL ? AK_EXIT_USAGE : AK_EXIT_FAILED;
	}
	cmd_print_lines(out.data);
	return 0;
}

static int detach(const struct run_request *opts, const struct ak_paths *paths)
{
	char name[AK_NAME_MAX];
	struct ak_err err;
	int code, rc = service_run_detached(opts, paths, name, &code, &err);

	if (rc < 0) {
		say_error(rc, &err);
		return rc == -EINVAL ? AK_EXIT_USAGE : code ? code : AK_EXIT_FAILED;
	}
	puts(name);
	return 0;
}

static int execute(struct run_request *opts)
{
	_cleanup_(config_freep) struct config *c = NULL;
	struct run_report result;
	struct ak_paths paths;
	struct ak_err err;
	int rc;

	ak_fill_standard_streams();
	if (ak_paths_init(&paths, &err) < 0) {
		ak_say("%s", err.text);
		return AK_EXIT_FAILED;
	}
	rc = cmd_settings("run", opts, &paths, &c);
	if (rc == 0)
		rc = take_agent(opts, c);
	if (rc)
		return rc;
	if (opts->explain)
		return explain(opts, c, &paths);
	if (opts->detach)
		return detach(opts, &paths);
	rc = service_run(opts, &paths, &result, &err);
	if (rc < 0) {
		say_error(rc, &err);
		rc = rc == -EINVAL ? AK_EXIT_USAGE : result.outcome.exit_code ? result.outcome.exit_code : AK_EXIT_FAILED;
	} else {
		if (opts->json)
			print_json(&result);
		print_closing_lines(opts, &result, &paths);
		rc = result.outcome.exit_code;
		rundir_prune_sometimes(&paths);
	}
	run_report_done(&result);
	return rc;
}

int cmd_run(int argc, char **argv)
{
	struct run_request opts = { .mode = AK_MODE_NATIVE, .profile = AK_PROFILE_MODERATE };
	int rc = parse(argc, argv, &opts);

	if (rc != 0)
		return rc < 0 ? 0 : rc;
	return execute(&opts);
}

/* `agentkernel codex ARGS…`: pass everything after the name to the agent, including --help. */
int cmd_agent(int argc, char **argv)
{
	const struct agent *a = agent_named(argv[0]);
	struct run_request opts = { .mode = a->mode, .profile = AK_PROFILE_MODERATE, .argv = argv, .given[FIELD_MODE] = true };

	opts.tty = tty_in_front();
	return execute(&opts);
}
