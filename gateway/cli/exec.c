/* exec: run a command in a running sandbox. attach: open a shell in it, or reattach to a detached command. */
#include "gateway/cli/cmd.h"

#include "gateway/base/cleanup.h"
#include "gateway/service/service.h"
#include "gateway/service/session.h"
#include "gateway/store/report.h"
#include "gateway/store/runs.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* ---- words ---- */

struct words {
	const char *name;
	char whole[AK_NAME_MAX]; /* the name that was abbreviated */
	struct run_request o; /* only the fields of `exec` are used */
	struct service_exec_opts opts;
	bool fresh; /* attach --new */
};

/*
 * Options may come before the name, and between the name and the command. Options after the command belong to it and are not parsed.
 * Returns 0 to continue, else the exit code + 1.
 */
static int parse(const char *command, int argc, char **argv, bool wants_command, struct words *w)
{
	const char *words[2] = { NULL };
	struct cmd_args a;
	size_t n;
	int rc = cmd_read_into(&a, command, argc, argv, &w->o, words, wants_command ? 2 : 1, &n);

	if (rc)
		return rc;
	w->name = words[0];
	if (n == 2)
		w->opts.argv = argv + a.at - 1;
	w->fresh = a.seen[FIELD_NEW_SHELL];
	if (!w->name || (wants_command && !w->opts.argv)) {
		ak_say("%s: no %s given; for example: agentkernel %s work%s", command, w->name ? "command" : "sandbox", command,
			wants_command ? " npm test" : "");
		return 1 + AK_EXIT_USAGE;
	}
	w->opts.env = w->o.env;
	w->opts.n_env = w->o.n_env;
	w->opts.workdir = w->o.workdir;
	w->opts.timeout_ms = w->o.timeout_ms;
	w->opts.tty |= w->o.tty;
	return wants_command ? cmd_choose_tty(command, &w->o, &w->opts.tty) : 0;
}

/* ---- ends ---- */

static int fail(const char *command, int rc, const struct ak_err *err)
{
	ak_say("%s: %s", command, err->text);
	return rc == -EINVAL ? AK_EXIT_USAGE : AK_EXIT_FAILED;
}

static void say_left(const struct service_exit *end)
{
	if (end->n_left)
		ak_say("%u process%s on in the background: %s", end->n_left, end->n_left == 1 ? " goes" : "es go", end->left);
}

static void say_limits(const struct service_exit *end)
{
	_cleanup_strbuf_ struct strbuf text = { 0 };
	struct run_outcome o = { 0 };

	service_exit_outcome(end, &o);
	run_outcome_tell(&text, &o);
	if (text.len && !text.failed)
		run_say_notes(text.data);
}

static int finish(const struct session *s, const struct words *w)
{
	const struct service_exec_opts *opts = &w->opts;

	if (s->detached) {
		ak_say("detached; the command keeps running, 'agentkernel attach %s' returns to it", s->name);
		return 0;
	}
	if (s->end.timed_out)
		ak_say("timed out after %llu.%03llus", (unsigned long long)opts->timeout_ms / 1000,
			(unsigned long long)opts->timeout_ms % 1000);
	else if (s->end.why.text[0])
		ak_say("%s", s->end.why.text);
	say_limits(&s->end);
	if (!w->o.quiet)
		say_left(&s->end);
	return s->end.exit_code;
}

/* ---- exec ---- */

static int run_in(const char *command, const struct ak_paths *paths, struct words *w, struct session *s)
{
	struct winsize size;
	struct ak_err err;
	int rc;

	if (w->opts.tty && (ioctl(0, TIOCGWINSZ, &size) == 0 || ioctl(1, TIOCGWINSZ, &size) == 0)) {
		w->opts.rows = size.ws_row;
		w->opts.cols = size.ws_col;
	}
	rc = service_exec_start(paths, w->name, &w->opts, &s->exec, &err);
	if (rc == -ENOENT)
		cmd_explain_missing(paths, w->name, &err);
	if (rc < 0)
		return fail(command, rc, &err);
	rc = session_run(s, &err);
	return rc < 0 ? fail(command, -EIO, &err) : -1;
}

int cmd_exec(int argc, char **argv)
{
	struct words w = { .opts.stdio = { 0, 1, 2 } };
	struct session s;
	struct ak_paths paths;
	struct ak_err err;
	int code = parse("exec", argc, argv, true, &w);

	if (code)
		return code - 1;
	if (ak_paths_init(&paths, &err) < 0 || runs_resolve(&paths, &w.name, w.whole, &err) < 0 ||
		session_init(&s, &paths, w.name, w.opts.tty, &err) < 0)
		return fail("exec", -EIO, &err);
	/* Start a missing daemon before the command: without it the sandbox has no network. */
	cmd_heal(&paths, w.name, w.o.quiet);
	code = run_in("exec", &paths, &w, &s);
	session_done(&s);
	return code >= 0 ? code : finish(&s, &w);
}

/* ---- attach ---- */

static int take_left(const struct words *w, struct session *s, bool *ret_taken)
{
	struct ak_err err;
	int rc;

	*ret_taken = !w->fresh && ak_sandbox_name_ok(w->name) && session_take(s, &err) == 0;
	if (!*ret_taken)
		return 0;
	rc = session_run(s, &err);
	return rc < 0 ? fail("attach", -EIO, &err) : finish(s, w);
}

static int attach(const struct ak_paths *paths, struct words *w, struct session *s)
{
	static char bash[] = "bash", sh[] = "sh";
	static char *const shells[][2] = { { bash, NULL }, { sh, NULL } };
	bool taken;
	int code = take_left(w, s, &taken);

	if (taken)
		return code;
	for (size_t i = 0; i < ARRAY_SIZE(shells); i++) {
		w->opts.argv = shells[i];
		code = run_in("attach", paths, w, s);
		/* Try the next shell only when this one was not found. WHY is empty when the shell itself exited with 127. */
		if (code >= 0 || s->end.exit_code != 127 || !s->end.why.text[0])
			break;
	}
	return code >= 0 ? code : finish(s, w);
}

/* Standard input is not a terminal. First report a sandbox that is not running. */
static int refuse_attach(const struct ak_paths *paths, const char *name)
{
	struct ak_err err;
	_cleanup_close_ int sock = service_super(paths, name, &err);

	if (sock < 0)
		return fail("attach", -EIO, &err);
	ak_say("attach: standard input is not a terminal; without one, use: agentkernel exec %s sh", name);
	return AK_EXIT_USAGE;
}

int cmd_attach(int argc, char **argv)
{
	struct words w = { .opts = { .tty = true, .stdio = { -1, -1, -1 } } };
	struct session s;
	struct ak_paths paths;
	struct ak_err err;
	int code = parse("attach", argc, argv, false, &w);

	if (code)
		return code - 1;
	if (ak_paths_init(&paths, &err) < 0 || runs_resolve(&paths, &w.name, w.whole, &err) < 0 ||
		session_init(&s, &paths, w.name, true, &err) < 0)
		return fail("attach", -EIO, &err);
	if (!isatty(STDIN_FILENO))
		return refuse_attach(&paths, w.name);
	cmd_heal(&paths, w.name, w.o.quiet);
	code = attach(&paths, &w, &s);
	session_done(&s);
	return code;
}
