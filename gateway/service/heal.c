/*
 * A command that finds no daemon while sandboxes run restarts it, unless a user stopped it or it keeps dying. See service/service.h and store/vitals.h.
 *
 * Supervisors also restart it by themselves (super/watch.c). A command does not wait for them, and it tells the user.
 */
#include "gateway/service/service.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/daemon/daemon.h"
#include "gateway/ipc/ipc.h"
#include "gateway/store/vitals.h"
#include "gateway/store/state.h"
#include "gateway/super/super.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#define CONNECT_WAIT_MS 2000 /* for the gateway to host the sandbox again; after that the command starts anyway */
#define CONNECT_LOOK_US 5000

/* Is NAME running with a network, so that it needs a daemon? */
static bool needs_daemon(const struct ak_paths *paths, const char *name)
{
	_cleanup_(state_done) struct state_sandbox s = { 0 };
	struct ak_err ignored;
	_cleanup_close_ int sock = -1;

	if (!ak_sandbox_name_ok(name) || state_load(paths, name, &s, &ignored) < 0 || !state_network(&s))
		return false;
	sock = super_connect(paths, name, &ignored);
	return sock >= 0;
}

static bool connected(const struct ak_paths *paths, const char *name)
{
	_cleanup_json_ cJSON *request = cJSON_CreateObject(), *answer = NULL;
	struct ak_err ignored;

	return request && cJSON_AddStringToObject(request, "name", name) &&
		service_call(paths, false, "get", TAKE(request), &answer, &ignored) == 0 &&
		cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(answer, "connected"));
}

/* The daemon serves before its gateway process is up. A command that started in between would have no network yet. */
static void wait_connected(const struct ak_paths *paths, const char *name)
{
	uint64_t until = ak_now_ms() + CONNECT_WAIT_MS;

	while (name && !connected(paths, name) && ak_now_ms() < until)
		usleep(CONNECT_LOOK_US);
}

/* After three deaths in a row do not interfere with the back-off: the command works without a daemon and reports why there is no network. */
static void restart_daemon(const struct ak_paths *paths, const char *name, struct ak_err *ret)
{
	struct ak_err err;
	struct vitals l;
	int sock;

	vitals_read(paths, &l);
	if (l.state == VITALS_STOPPED) {
		(void)ak_fail(ret, ENOTCONN,
			"the daemon is stopped, so running sandboxes have no network; 'agentkernel daemon start' starts it");
		return;
	}
	if (vitals_wait_ms(&l, ak_now_ms()) > VITALS_RETRY_FIRST_MS) {
		vitals_tell(&l, ak_now_ms(), &err);
		(void)ak_fail(ret, EAGAIN, "no daemon is running, so running sandboxes have no network: %s", err.text);
		return;
	}
	sock = daemon_connect(paths, true, &err);
	if (sock < 0) {
		(void)ak_fail(ret, -sock, "no daemon is running, so running sandboxes have no network: %s", err.text);
		return;
	}
	ak_close(sock);
	wait_connected(paths, name);
	(void)ak_fail(ret, EPIPE, "the daemon had ended and was restarted; open connections of running sandboxes were closed");
}

/* Was the daemon restarted a moment ago? Its gateway process may still be starting. */
static bool just_restarted(const struct vitals *l)
{
	uint64_t now = ak_now_ms();

	return l->failures > 0 && l->began_ms <= now && now - l->began_ms < CONNECT_WAIT_MS;
}

/*
 * Does the daemon run? Asked before every command, so the daemon is not woken for it. If it seems to have died, a connection decides: that also makes a
 * service manager start it that holds its socket.
 */
static bool daemon_runs(const struct ak_paths *paths, const struct vitals *l)
{
	char path[PATH_MAX];

	if (l->state == VITALS_SERVES && l->pid > 0 && kill(l->pid, 0) == 0 &&
		ak_path_join(path, paths->runtime, "daemon.sock", NULL) == 0 && ipc_is_bound(path))
		return true;
	return super_daemon_served(paths);
}

bool service_heal(const struct ak_paths *paths, const char *name, struct ak_err *ret)
{
	struct vitals l;
	bool served;

	vitals_read(paths, &l);
	served = daemon_runs(paths, &l);
	if ((served && !just_restarted(&l)) || (name && !needs_daemon(paths, name)))
		return false;
	if (served) {
		wait_connected(paths, name);
		return false;
	}
	restart_daemon(paths, name, ret);
	return true;
}
