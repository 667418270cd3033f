/* Requests to the daemon: see service/service.h and daemon/daemon.h. */
#include "gateway/service/service.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/daemon/daemon.h"
#include "gateway/ipc/ipc.h"
#include "gateway/store/vitals.h"

#include <errno.h>

#define CALL_TIMEOUT_MS 60000 /* for a start on a busy machine; other requests are fast */

static int connect_daemon(const struct ak_paths *paths, bool start, struct ak_err *err)
{
	int sock = daemon_connect(paths, start, err);

	if (!start && (sock == -ENOENT || sock == -ECONNREFUSED || sock == -ENOTCONN))
		return ak_fail(err, ENOTCONN, "no daemon is running; 'agentkernel daemon start' starts one");
	return sock;
}

int service_call(const struct ak_paths *paths, bool start, const char *op, cJSON *request, cJSON **ret, struct ak_err *err)
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
	rc = ipc_call(sock, taken, NULL, 0, CALL_TIMEOUT_MS, &answer, NULL, &n_fds, err);
	if (rc < 0)
		return rc;
	if (ret)
		*ret = TAKE(answer);
	return 0;
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

int service_prewarm(const struct ak_paths *paths, enum ak_mode mode, unsigned count, cJSON **ret, struct ak_err *err)
{
	_cleanup_json_ cJSON *request = cJSON_CreateObject();

	if (!request || !cJSON_AddStringToObject(request, "mode", ak_mode_name(mode)) ||
		!cJSON_AddNumberToObject(request, "count", count))
		return ak_fail(err, ENOMEM, "out of memory");
	return service_call(paths, true, "prewarm", TAKE(request), ret, err);
}
