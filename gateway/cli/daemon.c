/* daemon start, stop, status, prewarm. */
#include "gateway/cli/cmd.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/base/table.h"
#include "gateway/base/title.h"
#include "gateway/daemon/daemon.h"
#include "gateway/log/audit.h"
#include "gateway/service/service.h"

#include <errno.h>
#include <inttypes.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define LISTEN_FD 3 /* the first socket that a service manager passes, see sd_listen_fds(3) */
#define STOP_WAIT_MS 15000

static int fail(const char *command, const struct ak_err *err)
{
	ak_say("%s: %s", command, err->text);
	return AK_EXIT_ERROR;
}

/* ---- start ---- */

static int check_listener(int fd, struct ak_err *err)
{
	int type = 0, on = 0;
	socklen_t len = sizeof(type);

	if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) < 0 || getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &on, &len) < 0)
		return ak_fail_errno(err, errno, "the passed socket");
	if (type != SOCK_SEQPACKET || !on)
		return ak_fail(
			err, EINVAL, "the passed socket is of the wrong type; use ListenSequentialPacket= in the socket unit");
	if (fcntl(fd, F_SETFD, FD_CLOEXEC) < 0)
		return ak_fail_errno(err, errno, "the passed socket");
	return ak_set_nonblock(fd, true) < 0 ? ak_fail_errno(err, errno, "the passed socket") : 0;
}

/* Get the socket that a service manager passed (LISTEN_PID is our pid, LISTEN_FDS counts the sockets from descriptor 3 on), or -1. */
static int passed_listener(int *ret, struct ak_err *err)
{
	const char *pid = getenv("LISTEN_PID"), *n = getenv("LISTEN_FDS");
	bool ours = pid && n && strtol(pid, NULL, 10) == getpid();
	long count = ours ? strtol(n, NULL, 10) : 0;

	unsetenv("LISTEN_PID");
	unsetenv("LISTEN_FDS");
	unsetenv("LISTEN_FDNAMES");
	*ret = -1;
	if (count <= 0)
		return 0;
	if (count > 1)
		return ak_fail(err, EINVAL, "the service manager passed %ld sockets; expected one", count);
	*ret = LISTEN_FD;
	return check_listener(LISTEN_FD, err);
}

static int say_running(const struct ak_paths *paths)
{
	_cleanup_json_ cJSON *status = NULL;
	struct ak_err ignored;
	const cJSON *pid;

	if (service_call(paths, false, "ping", NULL, &status, &ignored) < 0)
		return 0;
	pid = cJSON_GetObjectItemCaseSensitive(status, "pid");
	ak_say("daemon start: a daemon is running already (pid %d)", cJSON_IsNumber(pid) ? (int)pid->valuedouble : 0);
	return AK_EXIT_ERROR;
}

static int start_foreground(const struct ak_paths *paths, const struct daemon_conf *conf)
{
	struct ak_err err;
	int listener, rc = passed_listener(&listener, &err);

	/* With a passed socket we would connect to ourselves. */
	if (rc == 0 && listener < 0 && say_running(paths))
		return AK_EXIT_ERROR;
	ak_title_set("agentkernel daemon");
	if (rc == 0)
		rc = daemon_serve(paths, conf, listener, -1, &err);
	return rc < 0 ? fail("daemon start", &err) : 0;
}

int cmd_daemon_start(int argc, char **argv)
{
	struct ak_paths paths;
	struct cmd_args a;
	struct ak_err err;
	struct daemon_conf conf = { .healing = false };
	int rc, code = cmd_read(&a, "daemon start", argc, argv, NULL, 0, NULL);

	if (code)
		return code - 1;
	if (ak_paths_init(&paths, &err) < 0)
		return fail("daemon start", &err);
	rc = service_pool_settings(".", &paths, &conf, &err);
	if (rc < 0) {
		ak_say("daemon start: %s", err.text);
		return rc == -EINVAL ? AK_EXIT_USAGE : AK_EXIT_ERROR;
	}
	if (a.seen[FIELD_FOREGROUND])
		return start_foreground(&paths, &conf);
	if (say_running(&paths))
		return AK_EXIT_ERROR;
	rc = daemon_spawn(&paths, &conf, &err);
	if (rc == -EADDRINUSE && service_daemon_runs(&paths)) /* another command has just started one */
		rc = 0;
	return rc < 0 ? fail("daemon start", &err) : 0;
}

/* ---- stop ---- */

int cmd_daemon_stop(int argc, char **argv)
{
	uint64_t until = ak_now_ms() + STOP_WAIT_MS;
	struct ak_paths paths;
	struct cmd_args a;
	struct ak_err err;
	int code = cmd_read(&a, "daemon stop", argc, argv, NULL, 0, NULL);

	if (code)
		return code - 1;
	if (ak_paths_init(&paths, &err) < 0 || service_daemon_stop(&paths, &err) < 0)
		return fail("daemon stop", &err);
	/* The daemon has accepted the request. Wait until it exits, so that the next command does not connect to a daemon that is exiting. */
	while (service_daemon_runs(&paths)) {
		if (ak_now_ms() > until) {
			ak_say("daemon stop: the daemon is still running after %d s", STOP_WAIT_MS / 1000);
			return AK_EXIT_ERROR;
		}
		usleep(2000);
	}
	return 0;
}

/* ---- status ---- */

static int print_pool(const cJSON *pool)
{
	static const char *const counts[] = { "min", "max", "warm", "building", "in_use", "hits", "misses", "failed" };
	static const struct table_column columns[] = { { "MODE", TABLE_CUT, 12, 0, 0 }, { "MIN", TABLE_RIGHT, 0, 1, 0 },
		{ "MAX", TABLE_RIGHT, 0, 2, 0 }, { "WARM", TABLE_RIGHT, 0, 0, 0 }, { "BUILDING", TABLE_RIGHT, 0, 0, 0 },
		{ "IN USE", TABLE_RIGHT, 0, 0, 0 }, { "HITS", TABLE_RIGHT, 0, 0, 0 }, { "MISSES", TABLE_RIGHT, 0, 0, 0 },
		{ "FAILED", TABLE_RIGHT, 0, 0, 0 }, { "REASON", 0, 0, 0, 0 } };
	const cJSON *row;
	struct table t;

	putchar('\n');
	table_init(&t, columns, ARRAY_SIZE(columns));
	cJSON_ArrayForEach(row, pool) {
		table_put(&t, AK_PLAIN, json_text(row, "mode", ""));
		for (size_t i = 0; i < ARRAY_SIZE(counts); i++)
			table_putf(&t, AK_PLAIN, "%" PRIu64, json_number(row, counts[i], 0));
		table_put(&t, AK_BAD, json_text(row, "reason", ""));
	}
	return cmd_print_table(&t, "daemon status: the pool is empty");
}

static int print_status(const cJSON *s)
{
	const cJSON *gateway = cJSON_GetObjectItemCaseSensitive(s, "gateway"),
		    *boxes = cJSON_GetObjectItemCaseSensitive(s, "sandboxes");
	const char *reason = json_text(gateway, "reason", "");
	uint64_t now = ak_wall_us(), began = now;

	(void)audit_time_parse(json_text(s, "started_at", ""), &began);
	printf("daemon      running, pid %" PRIu64 ", version %s, for %" PRIu64 " s\n", json_number(s, "pid", 0),
		json_text(s, "version", ""), now > began ? (now - began) / 1000000 : 0);
	printf("gateway     %s, pid %" PRIu64 ", %" PRIu64 " restart%s%s%s\n", json_text(gateway, "state", ""),
		json_number(gateway, "pid", 0), json_number(gateway, "restarts", 0),
		json_number(gateway, "restarts", 0) == 1 ? "" : "s", reason[0] ? ": " : "", reason);
	printf("sandboxes   %" PRIu64 ", %" PRIu64 " running\n", json_number(boxes, "total", 0),
		json_number(boxes, "running", 0));
	return print_pool(cJSON_GetObjectItemCaseSensitive(s, "pool"));
}

int cmd_daemon_status(int argc, char **argv)
{
	_cleanup_json_ cJSON *status = NULL;
	struct ak_paths paths;
	struct cmd_args a;
	struct ak_err err;
	int rc, code = cmd_read(&a, "daemon status", argc, argv, NULL, 0, NULL);
	bool json = a.seen[FIELD_JSON];

	if (code)
		return code - 1;
	if (ak_paths_init(&paths, &err) < 0)
		return fail("daemon status", &err);
	rc = service_daemon_status(&paths, &status, &err);
	if (rc == -ENOTCONN && json)
		puts("{\"running\":false}");
	if (rc < 0)
		return fail("daemon status", &err);
	if (!cJSON_HasObjectItem(status, "running"))
		cJSON_AddTrueToObject(status, "running");
	if (json)
		return cmd_print_json(status);
	return print_status(status);
}

/* ---- prewarm ---- */

int cmd_daemon_prewarm(int argc, char **argv)
{
	_cleanup_json_ cJSON *answer = NULL;
	enum ak_mode mode = AK_MODE_NUM;
	struct ak_paths paths;
	struct cmd_args a;
	struct ak_err err;
	unsigned count;
	bool vm;
	int rc = cmd_read(&a, "daemon prewarm", argc, argv, NULL, 0, NULL);

	if (rc)
		return rc - 1;
	vm = a.seen[FIELD_POOL_BACKEND] && !strcmp(a.given[FIELD_POOL_BACKEND].text, "vm");
	count = a.seen[FIELD_POOL_COUNT] ? (unsigned)a.given[FIELD_POOL_COUNT].number : 1;
	if (a.seen[FIELD_POOL_MODE])
		rc = ak_mode_parse(a.given[FIELD_POOL_MODE].text, &mode, &err);
	if (rc == 0 && mode == AK_MODE_NUM)
		rc = ak_fail(&err, EINVAL, "no mode given; add --mode claude, codex, gemini or native");
	if (rc < 0) {
		ak_say("daemon prewarm: %s", err.text);
		return AK_EXIT_USAGE;
	}
	if (ak_paths_init(&paths, &err) < 0 || service_prewarm(&paths, mode, vm, count, &answer, &err) < 0)
		return fail("daemon prewarm", &err);
	return 0;
}
