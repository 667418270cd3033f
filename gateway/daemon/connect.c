/* The client side of the daemon: connect to it, start it, send it a run. See daemon/daemon.h. */
#include "gateway/daemon/daemon.h"

#include "gateway/base/cleanup.h"
#include "gateway/ipc/ipc.h"
#include "gateway/store/request.h"
#include "gateway/super/super.h"

#include <errno.h>
#include <string.h>

int daemon_socket_path(const struct ak_paths *paths, char ret[static PATH_MAX])
{
	return ak_path_join(ret, paths->runtime, "daemon.sock", NULL);
}

int daemon_connect(const struct ak_paths *paths, bool start, struct ak_err *err)
{
	char path[PATH_MAX];
	int fd, rc = daemon_socket_path(paths, path);

	if (rc < 0)
		return ak_fail_errno(err, -rc, "%s", paths->runtime);
	fd = ipc_connect(path, err);
	if (fd >= 0 || (fd != -ENOENT && fd != -ECONNREFUSED))
		return fd;
	if (!start)
		return ak_fail(err, ENOENT, "no daemon is running");
	rc = daemon_spawn(paths, NULL, err);
	if (rc < 0 && rc != -EADDRINUSE) /* another command has just started one: use that */
		return ak_err_prefix(err, rc, "starting the daemon");
	fd = ipc_connect(path, err);
	return fd < 0 ? ak_err_prefix(err, fd, "the daemon started and ended at once") : fd;
}

int daemon_run_send(
	int sock, const struct run_request *opts, const struct run_plan *plan, const int *fds, size_t n_fds, struct ak_err *err)
{
	_cleanup_json_ cJSON *obj = NULL;
	int rc;

	if (!plan->network || opts->keep || opts->debug)
		return ak_fail(err, EAGAIN, "not for the pool");
	obj = run_ask_to_json(opts, plan);
	if (!obj || !cJSON_AddStringToObject(obj, "op", "run"))
		return ak_fail(err, ENOMEM, "out of memory");
	rc = ipc_send(sock, obj, fds, n_fds);
	if (rc < 0 && rc != -EPIPE)
		ak_fail_errno(err, -rc, "daemon");
	return rc;
}
