/*
 * `run --detach`: see service/service.h.
 *
 * Theory of operation. The sandbox is created and started as a persistent one, so that exec, attach, stop, network policy and the others work on it. Then a
 * detached process, the keeper, waits for the command, stores its output and ends the sandbox. If the keeper is killed, the sandbox stays as it is, with its log,
 * until a user stops or removes it.
 */
#include "gateway/service/internal.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/base/title.h"
#include "gateway/ipc/spawn.h"
#include "gateway/run/vm.h"
#include "gateway/store/rundir.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct keeper {
	const struct run_request *opts; /* borrowed, like the next two */
	const struct ak_paths *paths;
	const struct run_plan *plan;
	char dir[PATH_MAX]; /* of the sandbox */
	struct service_exec exec;
	int pipe; /* owned; what the command prints */
	int file; /* owned; where it is stored */
	uint64_t stored, started_us, began_ms;
	bool ended;
	struct service_exit end;
};

static void tell_cut(const struct keeper *k, uint64_t max)
{
	dprintf(k->file, "\n(more output was dropped: it is longer than %llu KiB, see --output-limit)\n",
		(unsigned long long)(max >> 10));
}

/* Read once. False at the end of file. */
static bool take_output(struct keeper *k)
{
	char buf[65536];
	ssize_t n = read(k->pipe, buf, sizeof(buf));
	uint64_t max = k->opts->output_bytes ? k->opts->output_bytes : SERVICE_OUTPUT_MAX,
		 room = k->stored < max ? max - k->stored : 0;
	size_t len = n > 0 ? (size_t)n : 0;

	if (n < 0)
		return errno == EINTR || errno == EAGAIN;
	if (room) {
		(void)ak_write_all(k->file, buf, len < room ? len : room); /* a full disk costs output, not the run */
		if (len > room)
			tell_cut(k, max);
		k->stored += len;
	}
	return n > 0;
}

static void wait_end(struct keeper *k)
{
	while (!k->ended) {
		struct pollfd p[] = { { .fd = k->exec.sock, .events = POLLIN }, { .fd = k->pipe, .events = POLLIN } };
		struct ak_err err;
		int rc;

		if (poll(p, ARRAY_SIZE(p), -1) < 0 && errno != EINTR)
			return;
		if (p[1].revents && !take_output(k))
			k->pipe = ak_close(k->pipe);
		rc = p[0].revents ? service_exec_poll(&k->exec, false, &k->end, &err) : 0;
		if (rc < 0) /* the sandbox was stopped and did not say how the command ended */
			k->end = (struct service_exit){ .exit_code = 128 + SIGKILL };
		k->ended = rc != 0;
	}
}

/* What is in the pipe now: a process that was left behind may keep it open. */
static void drain(struct keeper *k)
{
	struct pollfd p = { .fd = k->pipe, .events = POLLIN };

	while (k->pipe >= 0 && poll(&p, 1, 0) > 0 && take_output(k))
		;
}

static void record_end(const struct keeper *k, const cJSON *info)
{
	struct run_outcome o = { 0 };

	service_exit_outcome(&k->end, &o);
	o.duration_ms = ak_now_ms() - k->began_ms;
	o.net.allowed = json_number(info, "allowed", 0);
	o.net.denied = json_number(info, "denied", 0);
	(void)rundir_write(k->dir, k->started_us, k->plan, k->opts, &o);
}

/* Our title takes the place of the arguments, where the command's words are. */
static void save_words(struct keeper *k)
{
	static struct run_request own;
	size_t n = 0;
	char **argv;

	while (k->opts->argv[n])
		n++;
	argv = calloc(n + 1, sizeof(*argv));
	for (size_t i = 0; argv && i < n; i++)
		argv[i] = strdup(k->opts->argv[i]); /* without memory, the record has a shorter command */
	own = *k->opts;
	own.argv = argv ? argv : own.argv + n;
	k->opts = &own;
}

static void keeper_main(void *ctx)
{
	struct keeper *k = ctx;
	_cleanup_json_ cJSON *info = NULL;
	const char *name = k->plan->name;
	struct ak_err err;

	save_words(k);
	ak_title_set("agentkernel run %s", name);
	wait_end(k);
	/* Stop first: what still runs in the sandbox may print, and its connections count. */
	if (service_stop(k->paths, name, NULL, &info, &err) < 0)
		(void)service_get(k->paths, name, &info, &err);
	drain(k);
	record_end(k, info);
	if (!k->opts->keep)
		(void)service_remove(
			k->paths, name, &(struct service_how){ .archive = true, .exit_code = k->end.exit_code }, NULL, &err);
	rundir_prune_sometimes(k->paths);
}

/* ---- start ---- */

/* An agent's memory is mounted for one command; a persistent sandbox does not have it. */
static int check_plan(const struct run_plan *plan, struct ak_err *err)
{
	if (plan->agent_state[0].source[0])
		return ak_fail(
			err, EINVAL, "--detach: an agent's memory is not available in the background; add --agent-state none");
	return 0;
}

/* Create the sandbox with the programs of the host that the command needs. */
static int create(const struct keeper *k, struct ak_err *err)
{
	static struct run_request own; /* large */
	_cleanup_json_ cJSON *info = NULL;

	own = *k->opts;
	if (k->plan->tools.n && own.n_tools < RUN_TOOLS_MAX)
		own.tools[own.n_tools++] = k->opts->argv[0];
	return service_create(k->paths, k->plan->name, &own, &info, err);
}

static int open_output(struct keeper *k, int *ret_writer, struct ak_err *err)
{
	_cleanup_close_ int dir = open(k->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int fds[2];

	k->file =
		dir < 0 ? -1 : openat(dir, RUNDIR_OUTPUT, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (k->file < 0 || pipe2(fds, O_CLOEXEC) < 0)
		return ak_fail_errno(err, errno, "%s", k->dir);
	k->pipe = fds[0];
	*ret_writer = fds[1];
	return 0;
}

/* Start the command and wait until it runs or has failed to. */
static int start_command(struct keeper *k, struct ak_err *err)
{
	struct service_exec_opts x = { .argv = k->plan->argv ? k->plan->argv : k->opts->argv,
		.workdir = k->opts->workdir,
		.timeout_ms = k->opts->timeout_ms };
	_cleanup_close_ int writer = -1;
	int rc = open_output(k, &writer, err);

	if (rc < 0)
		return rc;
	x.stdio[0] = -1;
	x.stdio[1] = x.stdio[2] = writer;
	rc = service_exec_start(k->paths, k->plan->name, &x, &k->exec, err);
	while (rc == 0 && !k->exec.id && !k->ended) {
		struct pollfd p = { .fd = k->exec.sock, .events = POLLIN };

		if (poll(&p, 1, -1) > 0)
			rc = service_exec_poll(&k->exec, false, &k->end, err);
		k->ended = rc > 0;
		rc = rc > 0 ? 0 : rc;
	}
	if (rc == 0 && k->ended && k->end.why.text[0])
		return ak_fail(err, EIO, "%s", k->end.why.text);
	return rc;
}

static int begin(struct keeper *k, struct ak_err *err)
{
	_cleanup_json_ cJSON *started = NULL;
	const char *name = k->plan->name;
	int rc = create(k, err), keep[3];

	if (rc < 0)
		return rc;
	rc = state_path(k->paths, name, NULL, k->dir);
	if (rc == 0)
		rc = rundir_write(k->dir, k->started_us, k->plan, k->opts, NULL);
	rc = rc < 0 ? ak_fail_errno(err, -rc, "%s", k->paths->state) : service_start(k->paths, name, NULL, &started, err);
	if (rc == 0)
		rc = start_command(k, err);
	if (rc < 0)
		return rc;
	if (!k->opts->quiet)
		run_say_notes(json_text(started, "notes", "")); /* such as the port that was picked for --publish 0:PORT */
	keep[0] = k->exec.sock;
	keep[1] = k->pipe;
	keep[2] = k->file;
	return spawn_fork(keeper_main, k, keep, ARRAY_SIZE(keep), err);
}

/* The command is not on the host: add the image that fits. */
static void add_hint(const struct keeper *k, struct ak_err *err)
{
	char hint[AK_ERR_MAX];
	const char *image = service_missing(k->opts, k->plan, k->paths, hint);
	struct ak_err was = *err;

	if (image)
		ak_fail(err, ENOENT, "%.200s; --image %s should have it", was.text, image);
	else if (hint[0])
		ak_fail(err, ENOENT, "%.200s; %.300s", was.text, hint);
}

int service_run_detached(const struct run_request *opts, const struct ak_paths *paths, char ret[static AK_NAME_MAX],
	int *ret_code, struct ak_err *err)
{
	static struct run_plan plan; /* large */
	struct keeper k = { .opts = opts, .paths = paths, .plan = &plan, .exec = { -1, -1, 0 }, .pipe = -1, .file = -1 };
	struct ak_err ignored;
	char empty[PATH_MAX];
	int rc = rundir_empty(paths, empty, err);

	k.started_us = ak_wall_us();
	k.began_ms = ak_now_ms();
	if (rc == 0)
		rc = service_image_from_podman(paths, opts, err);
	if (rc == 0)
		rc = run_plan_init(&plan, opts, paths, empty, err);
	*ret_code = 0;
	if (rc < 0)
		return rc;
	plan.vm = run_vm_wanted(paths, opts);
	rc = check_plan(&plan, err);
	if (rc == 0) {
		rc = begin(&k, err);
		if (rc < 0 && rc != -EEXIST)
			(void)service_remove(paths, plan.name, &(struct service_how){ .force = true }, NULL, &ignored);
	}
	snprintf(ret, AK_NAME_MAX, "%s", plan.name);
	*ret_code = rc < 0 && k.ended ? k.end.exit_code : 0;
	if (*ret_code == 127)
		add_hint(&k, err);
	service_exec_done(&k.exec);
	ak_close(k.pipe);
	ak_close(k.file);
	run_plan_done(&plan);
	return rc;
}
