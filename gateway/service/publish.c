/* Published ports of a sandbox that exists: changed by the process that owns it. See service/service.h. */
#include "gateway/service/service.h"

#include "gateway/base/cleanup.h"
#include "gateway/ipc/ipc.h"
#include "gateway/run/ports.h"
#include "gateway/store/publish.h"
#include "gateway/store/runs.h"
#include "gateway/store/state.h"

#include <errno.h>
#include <string.h>

#define RUN_ANSWER_MS 10000

/* Is NAME a run that goes on? Its ports belong to the process that owns its sandbox. */
static bool is_run(const struct ak_paths *paths, const char *name, char dir[static PATH_MAX])
{
	struct ak_err ignored;

	return runs_dir(paths, name, dir, &ignored) == 0 && runs_alive(dir);
}

/* A run in the foreground: ask it; if it does not listen, its sandbox is one of the daemon's. */
static int ask_run(const struct ak_paths *paths, const char *dir, const char *name, cJSON *request, struct ak_err *err)
{
	_cleanup_json_ cJSON *own = request, *answer = NULL;
	_cleanup_close_ int sock = run_desk_connect(dir, err);
	int rc;

	if (sock >= 0)
		return ipc_call(sock, own, NULL, 0, RUN_ANSWER_MS, &answer, NULL, NULL, err);
	if (sock != -ECONNREFUSED)
		return sock;
	rc = service_daemon_runs(paths) ? service_call(paths, false, "publish", TAKE(own), &answer, err) : -ENOENT;
	if (rc == -ENOENT)
		return ak_fail(
			err, ENOTSUP, "run '%s' takes no further ports: it has no network, or is starting or ending", name);
	return rc;
}

int service_publish(
	const struct ak_paths *paths, const char *name, const struct service_ports *ports, cJSON **ret, struct ak_err *err)
{
	_cleanup_json_ cJSON *request = cJSON_CreateObject();
	struct state_sandbox s = { 0 };
	char dir[PATH_MAX];
	int rc = service_load(paths, name, &s, err); /* start no daemon if there is no such sandbox */
	bool is_foreground = rc == -ENOENT && is_run(paths, name, dir);

	if (rc < 0 && !is_foreground)
		return rc;
	state_done(&s);
	if (!request || !cJSON_AddStringToObject(request, "name", name) ||
		!publish_put(request, "publish", ports->add, ports->n_add) ||
		!publish_put(request, "remove", ports->drop, ports->n_drop))
		return ak_fail(err, ENOMEM, "out of memory");
	if (!is_foreground)
		return service_call(paths, true, "publish", TAKE(request), ret, err);
	rc = ask_run(paths, dir, name, TAKE(request), err);
	return rc < 0 ? rc : service_inspect(paths, name, ret, err);
}
