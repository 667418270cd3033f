/* Requests to the daemon: see service/service.h and daemon/daemon.h. */
#include "gateway/service/service.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/daemon/daemon.h"
#include "gateway/ipc/ipc.h"
#include "gateway/run/vm.h"
#include "gateway/store/vitals.h"

#include <errno.h>

#define PREWARM_VM_MS 180000
#define CALL_TIMEOUT_MS 60000 /* for a start on a busy machine; other requests are fast */

static int connect_daemon(const struct ak_paths *paths, bool start, struct ak_err *err)
{
	int sock = daemon_connect(paths, start, err);

	if (!start && (sock == -ENOENT || sock == -ECONNREFUSED || sock == -ENOTCONN))
		return ak_fail(err, ENOTCONN, "no daemon is running; 'agentkernel daemon start' starts one");
	return sock;
}

static int call(
	const struct ak_paths *paths, bool start, const char *op, cJSON *request, int timeout_ms, cJSON **ret, struct ak_err *err)
{
	_cleanup_json_ cJSON *taken = request ? request : cJSON_CreateObject(), *answer = NULL;
	_cleanup_close_ int sock = -1;
	size_t n_fds = 0;
	int rc;

	if (!taken || !cJSON_AddStringToObject(taken, "op", op))
		return ak_fail(err, ENOMEM, "out of memory");
	sock = connect_daemon(paths, start, err);
	if (sock < 0)
		return sock;
	rc = ipc_call(sock, taken, NULL, 0, timeout_ms, &answer, NULL, &n_fds, err);
	if (rc < 0)
		return rc;
	if (ret)
		*ret = TAKE(answer);
	return 0;
}

int service_call(const struct ak_paths *paths, bool start, const char *op, cJSON *request, cJSON **ret, struct ak_err *err)
{
	return call(paths, start, op, request, CALL_TIMEOUT_MS, ret, err);
}

int service_call_long(const struct ak_paths *paths, const char *op, cJSON *request, cJSON **ret, struct ak_err *err)
{
	return call(paths, true, op, request, 0, ret, err);
}

bool service_daemon_runs(const struct ak_paths *paths)
{
	struct ak_err ignored;
	_cleanup_close_ int sock = daemon_connect(paths, false, &ignored);

	return sock >= 0;
}

int service_daemon_status(const struct ak_paths *paths, cJSON **ret, struct ak_err *err)
{
	int rc = service_call(paths, false, "status", NULL, ret, err);
	struct ak_err why;
	struct vitals l;

	if (rc != -ENOTCONN)
		return rc;
	vitals_read(paths, &l);
	if (l.state != VITALS_ENDED)
		return rc;
	vitals_tell(&l, ak_now_ms(), &why);
	return ak_fail(err, ENOTCONN, "no daemon is running: %s", why.text);
}

int service_daemon_stop(const struct ak_paths *paths, struct ak_err *err)
{
	int rc = service_call(paths, false, "shutdown", NULL, NULL, err);
	struct vitals l;

	if (rc != -ENOTCONN)
		return rc;
	/*
	 * The daemon died; record that it must not be restarted. A restart binds the socket before it checks the record, so try again to stop
	 * a daemon that checked the record before we wrote it.
	 */
	vitals_read(paths, &l);
	if ((l.state != VITALS_SERVES && l.state != VITALS_ENDED) || !vitals_stop(paths))
		return rc;
	rc = service_call(paths, false, "shutdown", NULL, NULL, err);
	return rc == -ENOTCONN ? 0 : rc;
}

int service_prewarm(const struct ak_paths *paths, enum ak_mode mode, bool vm, unsigned count, cJSON **ret, struct ak_err *err)
{
	static const struct sandbox_limits none;
	_cleanup_json_ cJSON *request = cJSON_CreateObject();
	int rc = vm ? run_vm_prepare(paths, &none, false, err) : 0; /* here: the daemon boots none */

	if (rc < 0)
		return rc;
	if (!request || !cJSON_AddStringToObject(request, "mode", ak_mode_name(mode)) ||
		!cJSON_AddNumberToObject(request, "count", count) ||
		!cJSON_AddStringToObject(request, "backend", vm ? "vm" : "ns"))
		return ak_fail(err, ENOMEM, "out of memory");
	return call(paths, true, "prewarm", TAKE(request), vm ? PREWARM_VM_MS : CALL_TIMEOUT_MS, ret, err);
}
