/* Published ports of a persistent sandbox: changed by the daemon. See service/service.h. */
#include "gateway/service/service.h"

#include "gateway/base/cleanup.h"
#include "gateway/store/publish.h"
#include "gateway/store/runs.h"
#include "gateway/store/state.h"

#include <errno.h>

/* Is NAME a run that goes on? Its ports are opened by its own process, before the command starts. */
static bool is_run(const struct ak_paths *paths, const char *name)
{
	struct ak_err ignored;
	char dir[PATH_MAX];

	return runs_dir(paths, name, dir, &ignored) == 0 && runs_alive(dir);
}

int service_publish(
	const struct ak_paths *paths, const char *name, const struct service_ports *ports, cJSON **ret, struct ak_err *err)
{
	_cleanup_json_ cJSON *request = cJSON_CreateObject();
	struct state_sandbox s = { 0 };
	int rc = service_load(paths, name, &s, err); /* start no daemon if there is no such sandbox */

	if (rc == -ENOENT && is_run(paths, name))
		return ak_fail(err, ENOTSUP,
			"'%s' is a run in the foreground, whose ports are published when it starts: agentkernel run --publish PORT; "
			"those of 'run --detach' and 'create' can be changed",
			name);
	if (rc < 0)
		return rc;
	state_done(&s);
	if (!request || !cJSON_AddStringToObject(request, "name", name) ||
		!publish_put(request, "publish", ports->add, ports->n_add) ||
		!publish_put(request, "remove", ports->drop, ports->n_drop))
		return ak_fail(err, ENOMEM, "out of memory");
	return service_call(paths, true, "publish", TAKE(request), ret, err);
}
