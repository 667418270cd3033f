/* The caller's side of one run: see run/front.h. */
#include "gateway/run/front.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/base/say.h"
#include "gateway/store/rundir.h"
#include "gateway/store/shared.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Open the host's ports before anything is started: a port that is taken leaves nothing behind. */
static int open_ports(struct run_front *f, struct ak_err *err)
{
	const struct run_request *asked = f->opts;

	if (!asked->n_publish)
		return 0;
	f->own = *asked;
	f->opts = &f->own;
	for (size_t i = 0; i < asked->n_publish; i++) {
		char note[AK_PUBLISH_NOTE];
		int fd = ak_publish_listen(&f->own.publish[i], err);

		if (fd < 0)
			return fd == -EINVAL ? -EIO : fd; /* the request was well-formed */
		f->listeners[f->n_listeners++] = fd;
		run_plan_note(&f->plan, ak_publish_note(&asked->publish[i], &f->own.publish[i], note));
	}
	return 0;
}

void run_front_close_ports(struct run_front *f)
{
	while (f->n_listeners)
		ak_close(f->listeners[--f->n_listeners]);
}

static uint64_t capture_max(const struct run_request *opts)
{
	return !opts->json ? 0 : opts->output_bytes ? opts->output_bytes : RUN_CAPTURE_MAX;
}

int run_front_init(struct run_front *f, const struct run_request *opts, const struct ak_paths *paths, struct ak_err *err)
{
	char empty[PATH_MAX];
	int rc;

	f->opts = opts;
	f->paths = paths;
	f->began_us = ak_now_us();
	f->looked = false;
	f->live = -1;
	f->n_listeners = 0;
	f->plan.n_env = 0;
	f->plan.guard = NULL;
	f->plan.brought = NULL;
	f->plan.tools = (struct tools){ 0 };
	memset(f->stdio, -1, sizeof(f->stdio));
	run_io_init(&f->io);
	f->io.want_tty = opts->tty;
	rc = rundir_empty(paths, empty, err);
	if (rc == 0)
		rc = run_plan_init(&f->plan, opts, paths, empty, err);
	if (rc == 0)
		rc = run_io_signals(&f->io, err);
	if (rc == 0)
		rc = run_io_open(&f->io, capture_max(opts), f->stdio, err);
	if (rc == 0)
		rc = open_ports(f, err);
	return rc;
}

void run_front_done(struct run_front *f)
{
	run_front_close_ports(f);
	f->live = ak_close(f->live);
	run_io_close_writers(f->stdio);
	run_io_done(&f->io);
	run_plan_done(&f->plan);
}

void run_front_look(struct run_front *f)
{
	if (!f->looked)
		f->live = shared_begin(f->paths, &f->plan, f->opts);
	if (!f->looked && !f->opts->quiet)
		run_plan_look(&f->plan, f->opts, f->paths);
	f->looked = true;
}

/* ---- end ---- */

/* The host has the command and the sandbox does not: the plan knows why. */
static void explain_missing(const struct run_plan *plan, struct run_outcome *o)
{
	size_t used = strlen(o->why.text);

	if (o->exit_code != 127 || used == 0)
		return;
	if (plan->tools.refused)
		snprintf(o->why.text + used, sizeof(o->why.text) - used, " in the sandbox: %s; --explain lists what is mounted",
			plan->tools.refused);
	else if (plan->tools.program && strncmp(plan->tools.program, plan->project, strlen(plan->project)) != 0)
		snprintf(o->why.text + used, sizeof(o->why.text) - used,
			" in the sandbox, although '%s' exists on the host; --explain lists what is mounted",
			plan->tools.program);
}

static void tell_cut(struct run_report *r, uint64_t max)
{
	run_report_note(r, "%s %s longer than %llu KiB; the rest was dropped (--output-limit)",
		r->out_cut && r->err_cut ? "stdout and stderr"
			: r->out_cut	 ? "stdout"
					 : "stderr",
		r->out_cut && r->err_cut ? "were" : "was", (unsigned long long)(max >> 10));
}

int run_front_report(struct run_front *f, struct run_report *r, struct ak_err *err)
{
	struct run_outcome *o = &r->outcome;
	bool failed = o->exit_code == AK_EXIT_FAILED && o->why.text[0];

	explain_missing(&f->plan, o);
	memcpy(r->name, f->plan.name, sizeof(r->name));
	free(r->changed);
	r->changed = run_plan_tell(&f->plan, f->paths, run_origin_name(f->opts->origin));
	if (f->opts->json)
		run_io_take(&f->io, r);
	if (f->opts->origin == RUN_ORIGIN_CLI && (r->out_cut || r->err_cut))
		tell_cut(r, capture_max(f->opts));
	if (!failed)
		run_say_ended(o, f->opts->timeout_ms);
	if (r->notes && !f->opts->quiet)
		run_say_notes(r->notes);
	return failed ? ak_fail(err, EIO, "%s", o->why.text) : 0;
}
