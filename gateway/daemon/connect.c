/* The client's side of the daemon: finding it, handing it a run. See daemon/daemon.h. */
#include "gateway/daemon/daemon.h"

#include "gateway/base/cleanup.h"
#include "gateway/ipc/ipc.h"
#include "gateway/store/state.h"
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
	if (rc < 0 && rc != -EADDRINUSE) /* another command was faster: that one is as good */
		return ak_err_prefix(err, rc, "starting the daemon");
	fd = ipc_connect(path, err);
	return fd < 0 ? ak_err_prefix(err, fd, "the daemon was started and is gone again") : fd;
}

/* ---- a run for it ---- */

static bool put_strings(cJSON *obj, const char *key, char *const *list)
{
	cJSON *array = cJSON_AddArrayToObject(obj, key);
	bool ok = array != NULL;

	for (size_t i = 0; ok && list[i]; i++) {
		cJSON *text = cJSON_CreateString(list[i]);

		ok = text && cJSON_AddItemToArray(array, text);
	}
	return ok;
}

static bool put_mounts(cJSON *obj, const struct run_plan *plan)
{
	cJSON *array = cJSON_AddArrayToObject(obj, "mounts");
	bool ok = array != NULL;

	for (size_t i = 0; ok && i < plan->n_mounts; i++) {
		const struct sandbox_mount *in = &plan->mounts[i];
		const struct project_id id = { .dev = in->dev, .ino = in->ino };
		char text[PROJECT_ID_TEXT];
		cJSON *m = cJSON_CreateObject();

		ok = m && cJSON_AddItemToArray(array, m) && cJSON_AddStringToObject(m, "source", in->source) &&
			cJSON_AddStringToObject(m, "target", in->target) && cJSON_AddBoolToObject(m, "readonly", in->readonly) &&
			cJSON_AddBoolToObject(m, "shielded", in->shielded) &&
			cJSON_AddStringToObject(m, "id", project_id_print(&id, text));
	}
	return ok;
}

static bool put_edits(cJSON *obj, const struct run_request *opts)
{
	cJSON *array = cJSON_AddArrayToObject(obj, "edits");
	bool ok = array != NULL;

	for (size_t i = 0; ok && i < opts->n_edits; i++) {
		cJSON *e = cJSON_CreateObject();

		ok = e && cJSON_AddItemToArray(array, e) &&
			cJSON_AddStringToObject(e, "op", policy_edit_name(opts->edits[i].op)) &&
			cJSON_AddStringToObject(e, "text", opts->edits[i].text);
	}
	return ok;
}

static cJSON *run_message(const struct run_request *opts, const struct run_plan *plan)
{
	_cleanup_json_ cJSON *obj = cJSON_CreateObject();
	bool ok = obj && cJSON_AddStringToObject(obj, "op", "run") && cJSON_AddStringToObject(obj, "name", plan->name) &&
		cJSON_AddStringToObject(obj, "mode", ak_mode_name(opts->mode)) &&
		cJSON_AddStringToObject(obj, "profile", ak_profile_name(opts->profile)) &&
		cJSON_AddNumberToObject(obj, "origin", opts->origin) &&
		cJSON_AddNumberToObject(obj, "isolation", plan->isolation) &&
		cJSON_AddBoolToObject(obj, "readonly_root", plan->readonly_root) &&
		cJSON_AddStringToObject(obj, "home", plan->home) && cJSON_AddStringToObject(obj, "project", plan->project) &&
		cJSON_AddStringToObject(obj, "workdir", plan->workdir) && cJSON_AddBoolToObject(obj, "tty", opts->tty) &&
		cJSON_AddNumberToObject(obj, "timeout_ms", (double)opts->timeout_ms);

	if (!ok || !put_strings(obj, "argv", opts->argv) || !put_strings(obj, "env", plan->env) || !put_mounts(obj, plan) ||
		!put_edits(obj, opts) || !state_limits_put(obj, &opts->limits))
		return NULL;
	return TAKE(obj);
}

int daemon_run_send(int sock, const struct run_request *opts, const struct run_plan *plan, const int stdio[3], struct ak_err *err)
{
	_cleanup_json_ cJSON *obj = NULL;
	int rc;

	if (!plan->network || opts->keep)
		return ak_fail(err, EAGAIN, "not for the pool");
	obj = run_message(opts, plan);
	if (!obj)
		return ak_fail(err, ENOMEM, "out of memory");
	rc = ipc_send(sock, obj, stdio, 3);
	if (rc < 0 && rc != -EPIPE)
		ak_fail_errno(err, -rc, "daemon");
	return rc;
}
