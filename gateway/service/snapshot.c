/* Snapshots of persistent sandboxes: made by the daemon, which keeps them from starting meanwhile. See service/service.h. */
#include "gateway/service/internal.h"

#include "gateway/base/cleanup.h"
#include "gateway/log/audit.h"
#include "gateway/store/snapshot.h"

#include <errno.h>

/* The request OP for NAME; FRESH and TAG may be NULL. */
static int ask(const struct ak_paths *paths, const char *op, const char *name, const char *fresh, const char *tag, cJSON **ret,
	struct ak_err *err)
{
	_cleanup_json_ cJSON *request = cJSON_CreateObject();

	if (!request || !cJSON_AddStringToObject(request, "name", name) ||
		(fresh && !cJSON_AddStringToObject(request, "new", fresh)) ||
		(tag && !cJSON_AddStringToObject(request, "tag", tag)))
		return ak_fail(err, ENOMEM, "out of memory");
	return service_call_long(paths, op, TAKE(request), ret, err);
}

/* Start no daemon if there is no such sandbox. */
static int check_exists(const struct ak_paths *paths, const char *name, struct ak_err *err)
{
	_cleanup_(state_done) struct state_sandbox s = { 0 };

	return service_load(paths, name, &s, err);
}

/* Start it again after the copy, even if that failed; but report the first failure. */
static int start_again(const struct ak_paths *paths, const char *name, int rc, struct ak_err *err)
{
	struct ak_err why;
	int started = service_start(paths, name, NULL, NULL, &why);

	if (started == 0 || started == -EALREADY)
		return rc;
	return rc < 0 ? rc : ak_fail(err, -started, "it is done, but '%s' does not start again: %s", name, why.text);
}

static int copy(const struct ak_paths *paths, const char *op, const char *name, const char *fresh,
	const struct service_copy_how *how, cJSON **ret, struct ak_err *err)
{
	int rc = check_exists(paths, name, err);
	bool stopped = false;

	if (rc == 0 && how->stop) {
		rc = service_stop(paths, name, NULL, NULL, err);
		stopped = rc == 0;
		rc = rc == -ESRCH || rc == -EALREADY ? 0 : rc;
	}
	if (rc == 0)
		rc = ask(paths, op, name, fresh, how->tag, ret, err);
	return stopped ? start_again(paths, name, rc, err) : rc;
}

int service_snapshot(
	const struct ak_paths *paths, const char *name, const struct service_copy_how *how, cJSON **ret, struct ak_err *err)
{
	int rc = how->tag ? check_exists(paths, name, err) : 0;

	if (rc == 0 && how->tag)
		rc = snapshot_check_new(paths, name, how->tag, err); /* before it is stopped for nothing */
	return rc < 0 ? rc : copy(paths, "snapshot", name, NULL, how, ret, err);
}

int service_restore(
	const struct ak_paths *paths, const char *name, const struct service_copy_how *how, cJSON **ret, struct ak_err *err)
{
	struct snapshot s;
	int rc = check_exists(paths, name, err);

	if (rc == 0)
		rc = snapshot_find(paths, name, how->tag, &s, err);
	return rc < 0 ? rc : copy(paths, "restore", name, NULL, how, ret, err);
}

int service_fork(const struct ak_paths *paths, const char *name, const char *fresh, const struct service_copy_how *how,
	cJSON **ret, struct ak_err *err)
{
	struct snapshot s;
	int rc = service_check_name(fresh, err);

	if (rc == 0)
		rc = check_exists(paths, name, err);
	if (rc == 0 && how->tag)
		rc = snapshot_find(paths, name, how->tag, &s, err);
	if (rc == 0)
		rc = service_claim_name(paths, fresh, err);
	return rc < 0 ? rc : copy(paths, "fork", name, fresh, how, ret, err);
}

int service_snapshot_remove(const struct ak_paths *paths, const char *name, const char *tag, struct ak_err *err)
{
	struct snapshot s;
	int rc = check_exists(paths, name, err);

	if (rc == 0)
		rc = snapshot_find(paths, name, tag, &s, err);
	return rc < 0 ? rc : ask(paths, "snapshot_remove", name, NULL, tag, NULL, err);
}

static bool put_snapshot(cJSON *list, const struct snapshot *s)
{
	cJSON *obj = cJSON_CreateObject();
	char when[AUDIT_TIME_MAX];

	if (!obj || !cJSON_AddItemToArray(list, obj) || !cJSON_AddStringToObject(obj, "tag", s->tag))
		return false;
	if (s->damaged)
		return cJSON_AddTrueToObject(obj, "damaged");
	return cJSON_AddNumberToObject(obj, "bytes", (double)s->bytes) &&
		cJSON_AddNumberToObject(obj, "files", (double)s->files) &&
		cJSON_AddStringToObject(obj, "created_at", audit_time_print(s->created_us, when));
}

int service_snapshots(const struct ak_paths *paths, const char *name, cJSON **ret, struct ak_err *err)
{
	_cleanup_free_ struct snapshot *list = NULL;
	_cleanup_json_ cJSON *array = cJSON_CreateArray();
	size_t n = 0;
	int rc = service_check_name(name, err);

	if (rc == 0)
		rc = snapshot_list(paths, name, &list, &n, err);
	for (size_t i = 0; i < n && rc == 0; i++) {
		if (!array || !put_snapshot(array, &list[i]))
			rc = ak_fail(err, ENOMEM, "out of memory");
	}
	if (rc == 0)
		*ret = TAKE(array);
	return rc;
}
