/* Commands in a running sandbox, started by its supervisor: see service/service.h and super/super.h. */
#include "gateway/service/service.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/base/say.h"
#include "gateway/ipc/ipc.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Variables that describe the terminal: taken from the caller's environment, not from the one in which the sandbox was created. */
static const char *const terminal_env[] = { "TERM", "COLORTERM" };

static bool add_text(cJSON *list, const char *text)
{
	cJSON *item = cJSON_CreateString(text);

	if (item && cJSON_AddItemToArray(list, item))
		return true;
	cJSON_Delete(item);
	return false;
}

static int add_pair(cJSON *list, const char *key, const char *value)
{
	_cleanup_free_ char *pair = NULL;

	if (asprintf(&pair, "%s=%s", key, value) < 0) {
		pair = NULL;
		return -ENOMEM;
	}
	return add_text(list, pair) ? 0 : -ENOMEM;
}

static int put_env(cJSON *request, const struct service_exec_opts *opts, struct ak_err *err)
{
	cJSON *list = cJSON_AddArrayToObject(request, "env");
	int rc = list ? 0 : -ENOMEM;

	for (size_t i = 0; opts->tty && i < ARRAY_SIZE(terminal_env) && rc == 0; i++) {
		if (getenv(terminal_env[i]))
			rc = add_pair(list, terminal_env[i], getenv(terminal_env[i]));
	}
	for (size_t i = 0; i < opts->n_env && rc == 0; i++) {
		const char *e = opts->env[i];

		if (*e == '=' || *e == '\0')
			return ak_fail(err, EINVAL, "--env '%s': use KEY=VALUE, or KEY to pass your own value", e);
		if (strchr(e, '='))
			rc = add_text(list, e) ? 0 : -ENOMEM;
		else if (getenv(e))
			rc = add_pair(list, e, getenv(e));
		else
			return ak_fail(err, EINVAL, "--env %s: not set in your environment; use %s=VALUE", e, e);
	}
	return rc < 0 ? ak_fail(err, ENOMEM, "out of memory") : 0;
}

static int make_request(const struct service_exec_opts *opts, cJSON **ret, struct ak_err *err)
{
	_cleanup_json_ cJSON *request = cJSON_CreateObject();
	cJSON *argv;
	int rc;

	if (opts->workdir && opts->workdir[0] != '/')
		return ak_fail(err, EINVAL, "--workdir '%s': must be an absolute path inside the sandbox", opts->workdir);
	if (!request || !cJSON_AddStringToObject(request, "op", "exec") || !(argv = cJSON_AddArrayToObject(request, "argv")))
		return ak_fail(err, ENOMEM, "out of memory");
	for (size_t i = 0; opts->argv[i]; i++) {
		if (!add_text(argv, opts->argv[i]))
			return ak_fail(err, ENOMEM, "out of memory");
	}
	rc = put_env(request, opts, err);
	if (rc < 0)
		return rc;
	if ((opts->workdir && !cJSON_AddStringToObject(request, "workdir", opts->workdir)) ||
		!cJSON_AddBoolToObject(request, "tty", opts->tty) ||
		(opts->rows && opts->cols &&
			(!cJSON_AddNumberToObject(request, "rows", opts->rows) ||
				!cJSON_AddNumberToObject(request, "cols", opts->cols))) ||
		(opts->timeout_ms && !cJSON_AddNumberToObject(request, "timeout_ms", (double)opts->timeout_ms)))
		return ak_fail(err, ENOMEM, "out of memory");
	*ret = TAKE(request);
	return 0;
}

static int send_request(int sock, const cJSON *request, const struct service_exec_opts *opts)
{
	_cleanup_close_ int null = -1;
	int fds[3];

	if (opts->tty)
		return ipc_send(sock, request, NULL, 0);
	for (int i = 0; i < 3; i++) {
		if (opts->stdio[i] < 0 && null < 0)
			null = open("/dev/null", O_RDWR | O_CLOEXEC);
		fds[i] = opts->stdio[i] < 0 ? null : opts->stdio[i];
		if (fds[i] < 0)
			return -errno;
	}
	return ipc_send(sock, request, fds, 3);
}

int service_exec_start(const struct ak_paths *paths, const char *name, const struct service_exec_opts *opts,
	struct service_exec *ret, struct ak_err *err)
{
	_cleanup_json_ cJSON *request = NULL;
	_cleanup_close_ int sock = -1;
	int rc = make_request(opts, &request, err);

	if (rc < 0)
		return rc;
	sock = service_super(paths, name, err);
	if (sock < 0)
		return sock;
	rc = opts->uuid ? service_same(paths, name, opts->uuid, err) : 0;
	if (rc < 0)
		return rc;
	rc = send_request(sock, request, opts);
	if (rc == -EMSGSIZE || rc == -E2BIG)
		return ak_fail(err, E2BIG, "the command and its environment are too long");
	if (rc < 0 && rc != -EPIPE) /* EPIPE: the supervisor sent its reason and closed; the first poll reads it */
		return ak_fail_errno(err, -rc, "sandbox '%s'", name);
	*ret = (struct service_exec){ .sock = TAKE_FD(sock), .tty_fd = -1 };
	return 0;
}

/* ---- events ---- */

/* 1 if MSG is the last message. */
static int take_message(
	struct service_exec *x, const cJSON *msg, int *fds, size_t n_fds, struct service_exit *ret, struct ak_err *err)
{
	const char *event = json_text(msg, "event", "");

	if (!strcmp(event, "started")) {
		x->id = (uint32_t)json_number(msg, "id", 0);
		if (n_fds && x->tty_fd < 0)
			x->tty_fd = TAKE_FD(fds[0]);
		return 0;
	}
	*ret = (struct service_exit){ .exit_code = (int)json_number(msg, "exit_code", AK_EXIT_FAILED) };
	if (!strcmp(event, "exit")) {
		ret->timed_out = json_truth(msg, "timed_out");
		if (ret->timed_out)
			ret->exit_code = AK_EXIT_TIMEOUT;
		ret->oom_limit = json_number(msg, "oom_limit", 0);
		ret->pids_limit = json_number(msg, "pids_limit", 0);
		ret->out_of_disk = json_truth(msg, "out_of_disk");
		ret->disk_limit = json_number(msg, "disk_limit", 0);
		snprintf(ret->why.text, sizeof(ret->why.text), "%s", json_text(msg, "error", ""));
		ret->n_left = (unsigned)json_number(msg, "n_left", 0);
		snprintf(ret->left, sizeof(ret->left), "%s", json_text(msg, "left", ""));
		return 1;
	}
	if (cJSON_GetObjectItemCaseSensitive(msg, "error")) {
		snprintf(ret->why.text, sizeof(ret->why.text), "%s", json_text(msg, "error", ""));
		return 1;
	}
	return ak_fail(err, EPROTO, "the sandbox's supervisor sent an unknown message");
}

int service_exec_poll(struct service_exec *x, bool wait, struct service_exit *ret, struct ak_err *err)
{
	for (;;) {
		_cleanup_json_ cJSON *msg = NULL;
		struct pollfd p = { .fd = x->sock, .events = POLLIN };
		int fds[IPC_FDS_MAX], rc = poll(&p, 1, wait ? -1 : 0);
		size_t n = ARRAY_SIZE(fds);

		if (rc < 0 && errno == EINTR)
			continue;
		if (rc <= 0)
			return rc < 0 ? ak_fail_errno(err, errno, "poll") : 0;
		rc = ipc_recv(x->sock, &msg, fds, &n);
		if (rc == 0 || rc == -ECONNRESET)
			return ak_fail(err, EPIPE, "the sandbox ended");
		if (rc < 0)
			return ak_fail_errno(err, -rc, "the sandbox's supervisor");
		rc = take_message(x, msg, fds, n, ret, err);
		for (size_t i = 0; i < n; i++)
			ak_close(fds[i]);
		if (rc != 0)
			return rc;
	}
}

int service_exec_signal(struct service_exec *x, int sig)
{
	_cleanup_json_ cJSON *msg = cJSON_CreateObject();

	if (!msg || !cJSON_AddStringToObject(msg, "op", "signal") || !cJSON_AddNumberToObject(msg, "sig", sig))
		return -ENOMEM;
	return ipc_send(x->sock, msg, NULL, 0);
}

void service_exec_done(struct service_exec *x)
{
	x->sock = ak_close(x->sock);
	x->tty_fd = ak_close(x->tty_fd);
}

/* ---- run to the end ---- */

enum { OUT, ERR, STREAMS };

/*
 * Read what is in the pipe now, and close the descriptor at end of file. Stop after one pipe capacity (the writer can enlarge it): a process that writes
 * faster than we read would block us for ever.
 */
static void drain(int *fd, int stream, const struct service_output *output)
{
	int left = *fd < 0 ? 0 : fcntl(*fd, F_GETPIPE_SZ);
	char buf[65536];
	ssize_t n = -1;

	while (left > 0 && (n = read(*fd, buf, sizeof(buf))) != 0) {
		if (n > 0)
			output->take(output->ctx, stream, buf, (size_t)n);
		else if (errno != EINTR)
			break;
		left -= n > 0 ? (int)n : 1;
	}
	if (*fd >= 0 && n == 0)
		*fd = ak_close(*fd);
}

static int wait_end(struct service_exec *x, int pipes[static STREAMS], const struct service_output *output,
	struct service_exit *ret, struct ak_err *err)
{
	int rc = 0;

	while (rc == 0) {
		struct pollfd p[1 + STREAMS] = { { .fd = x->sock, .events = POLLIN }, { .fd = pipes[OUT], .events = POLLIN },
			{ .fd = pipes[ERR], .events = POLLIN } };

		if (poll(p, ARRAY_SIZE(p), -1) < 0 && errno != EINTR)
			return ak_fail_errno(err, errno, "poll");
		rc = p[0].revents ? service_exec_poll(x, false, ret, err) : 0;
		for (int i = 0; i < STREAMS; i++)
			drain(&pipes[i], i, output);
	}
	return rc < 0 ? rc : 0;
}

static int open_pipes(int pipes[static STREAMS], int stdio[static 3], struct ak_err *err)
{
	for (int i = 0; i < STREAMS; i++) {
		int fds[2];

		if (pipe2(fds, O_CLOEXEC) < 0)
			return ak_fail_errno(err, errno, "pipe");
		pipes[i] = fds[0];
		stdio[1 + i] = fds[1];
		ak_set_nonblock(fds[0], true);
	}
	return 0;
}

static int run(const struct ak_paths *paths, const char *name, struct service_exec_opts *opts,
	const struct service_output *output, struct run_report *ret, struct service_exit *end, struct ak_err *err)
{
	struct service_exec x = { .sock = -1, .tty_fd = -1 };
	int pipes[STREAMS] = { -1, -1 }, ends[3] = { -1, -1, -1 };
	uint64_t began = ak_now_us(), started;
	int rc = output ? open_pipes(pipes, ends, err) : 0;

	for (int i = OUT; i <= ERR && output; i++)
		opts->stdio[1 + i] = ends[1 + i];
	if (rc == 0)
		rc = service_exec_start(paths, name, opts, &x, err);
	for (int i = 0; i < 3; i++)
		ak_close(ends[i]);
	started = ak_now_us();
	if (rc == 0)
		rc = wait_end(&x, pipes, output, end, err);
	for (int i = 0; i < STREAMS; i++)
		ak_close(pipes[i]);
	service_exec_done(&x);
	ret->outcome.start_us = started - began;
	ret->outcome.duration_ms = (ak_now_us() - started) / 1000;
	return rc;
}

/* The counters of allowed and denied connections of NAME; zeroes if no daemon is running. */
static struct gw_stats read_counts(const struct ak_paths *paths, const char *name)
{
	_cleanup_json_ cJSON *request = cJSON_CreateObject(), *answer = NULL;
	struct gw_stats ret = { 0 };
	struct ak_err ignored;

	if (request && cJSON_AddStringToObject(request, "name", name) &&
		service_call(paths, false, "get", TAKE(request), &answer, &ignored) == 0) {
		ret.allowed = json_number(answer, "allowed", 0);
		ret.denied = json_number(answer, "denied", 0);
	}
	return ret;
}

void service_exit_outcome(const struct service_exit *end, struct run_outcome *ret)
{
	ret->exit_code = end->exit_code;
	ret->timed_out = end->timed_out;
	ret->out_of_memory = end->oom_limit > 0;
	ret->memory_bytes = end->oom_limit;
	ret->pids_hit = end->pids_limit > 0;
	ret->pids = end->pids_limit;
	ret->out_of_disk = end->out_of_disk;
	ret->disk_bytes = end->disk_limit;
}

static int finish(const struct service_exit *end, struct run_report *ret, struct ak_err *err)
{
	if (end->exit_code == AK_EXIT_FAILED && end->why.text[0])
		return ak_fail(err, EIO, "%s", end->why.text);
	service_exit_outcome(end, &ret->outcome);
	ret->outcome.why = end->why;
	if (end->n_left)
		run_report_note(ret, "%u process%s on in the background: %s", end->n_left, end->n_left == 1 ? " goes" : "es go",
			end->left);
	return 0;
}

int service_exec_run(const struct ak_paths *paths, const char *name, const struct service_exec_opts *opts,
	const struct service_output *output, struct run_report *ret, struct ak_err *err)
{
	struct service_exec_opts own = *opts;
	struct gw_stats before = { 0 }, after;
	struct service_exit end = { 0 };
	int rc;

	*ret = (struct run_report){ 0 };
	snprintf(ret->name, sizeof(ret->name), "%s", name);
	if (opts->count)
		before = read_counts(paths, name);
	rc = run(paths, name, &own, output, ret, &end, err);
	if (rc == 0)
		rc = finish(&end, ret, err);
	if (rc < 0 || !opts->count)
		return rc;
	after = read_counts(paths, name);
	ret->outcome.net.allowed = after.allowed > before.allowed ? after.allowed - before.allowed : 0;
	ret->outcome.net.denied = after.denied > before.denied ? after.denied - before.denied : 0;
	return 0;
}
