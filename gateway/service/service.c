/*
 * Persistent sandboxes: create, start, stop, remove, list. See service/service.h.
 *
 * Defining one and looking at one need no daemon: the state folder is locked and written as a whole by whoever changes it. Only what
 * touches the gateway goes through the daemon, which is started when there is none.
 */
#include "gateway/service/service.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/log/audit.h"
#include "gateway/log/events.h"
#include "gateway/store/state.h"
#include "gateway/super/super.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int service_check_name(const char *name, struct ak_err *err)
{
	if (ak_sandbox_name_ok(name))
		return 0;
	return ak_fail(err, EINVAL, "'%.64s%s' is not a name: 1 to 63 of A-Z a-z 0-9 _ -, a letter or digit at both ends", name,
		strlen(name) > 64 ? "…" : "");
}

int service_load(const struct ak_paths *paths, const char *name, struct state_sandbox *ret, struct ak_err *err)
{
	int rc = service_check_name(name, err);

	return rc < 0 ? rc : state_load(paths, name, ret, err);
}

/* Is its supervisor there? One of another namespace is, too: what is asked of it fails with the reason. */
static bool runs(const struct ak_paths *paths, const char *name)
{
	struct ak_err ignored;
	_cleanup_close_ int sock = super_connect(paths, name, &ignored);

	return sock >= 0 || sock == -EPERM;
}

int service_super(const struct ak_paths *paths, const char *name, struct ak_err *err)
{
	struct state_sandbox s = { 0 };
	int rc = service_check_name(name, err), sock;

	if (rc < 0)
		return rc;
	sock = super_connect(paths, name, err);
	if (sock >= 0)
		return sock;
	if (sock != -ENOENT && sock != -ECONNREFUSED)
		return ak_err_prefix(err, sock, "sandbox '%s'", name);
	rc = service_load(paths, name, &s, err);
	if (rc < 0)
		return rc;
	state_done(&s);
	return ak_fail(err, ESRCH, "sandbox '%s' is not running; 'agentkernel start %s' starts it", name, name);
}

/* ---- what a front end shows of one ---- */

static bool put_text(cJSON *obj, const char *key, const char *text)
{
	return cJSON_AddStringToObject(obj, key, text) != NULL;
}

static bool put_number(cJSON *obj, const char *key, double n)
{
	return cJSON_AddNumberToObject(obj, key, n) != NULL;
}

static bool put_network(cJSON *obj, const struct state_sandbox *s)
{
	struct gwns_link link;
	char addr[AK_ADDR_TEXT];

	if (!cJSON_AddBoolToObject(obj, "network", state_network(s)))
		return false;
	if (!state_network(s))
		return cJSON_AddNullToObject(obj, "ip") != NULL;
	gwns_link_plan(s->link_id, &link);
	return put_text(obj, "ip", ak_addr_print(&link.addr4, addr));
}

static bool put_limits(cJSON *obj, const struct sandbox_limits *l)
{
	bool ok = l->cpus_milli ? put_number(obj, "vcpus", l->cpus_milli / 1000.0) : cJSON_AddNullToObject(obj, "vcpus") != NULL;

	return ok &&
		(l->memory_bytes ? put_number(obj, "memory_mb", (double)(l->memory_bytes >> 20))
				 : cJSON_AddNullToObject(obj, "memory_mb") != NULL);
}

/* Who opened it to MCP servers, of which project; nothing when it is for none. */
static bool put_mcp(cJSON *obj, const struct state_mcp *m)
{
	cJSON *out;

	if (!m->project[0])
		return true;
	out = cJSON_AddObjectToObject(obj, "mcp");
	return out && put_text(out, "from", m->server[0] ? "server" : "user") && put_text(out, "project", m->project) &&
		(!m->keep || cJSON_AddTrueToObject(out, "keep"));
}

static cJSON *info_new(const struct state_sandbox *s, bool running)
{
	_cleanup_json_ cJSON *obj = cJSON_CreateObject();
	char when[AUDIT_TIME_MAX];

	if (!obj || !put_text(obj, "name", s->name) || !put_text(obj, "uuid", s->uuid) ||
		!put_text(obj, "status", running ? "running" : "stopped") || !put_text(obj, "backend", "ns") ||
		!put_text(obj, "mode", ak_mode_name(s->mode)) || !put_text(obj, "profile", ak_profile_name(s->profile)) ||
		!put_limits(obj, &s->limits) || !put_network(obj, s) || (s->dir[0] && !put_text(obj, "dir", s->dir)) ||
		!put_text(obj, "created_at", audit_time_print(s->created_us, when)) ||
		!put_number(obj, "generation", (double)s->generation) || !put_mcp(obj, &s->mcp))
		return NULL;
	return TAKE(obj);
}

/* The daemon knows how it stands now, the state how it stood at the last stop. */
static int add_counts(cJSON *info, const cJSON *live, const struct state_sandbox *s)
{
	const struct {
		const char *key;
		uint64_t stored;
	} counts[] = { { "allowed", s->allowed }, { "denied", s->denied } };

	for (size_t i = 0; i < ARRAY_SIZE(counts); i++) {
		const cJSON *n = cJSON_GetObjectItemCaseSensitive(live, counts[i].key);

		if (!put_number(info, counts[i].key, cJSON_IsNumber(n) ? n->valuedouble : (double)counts[i].stored))
			return -ENOMEM;
	}
	return 0;
}

/* ---- create ---- */

/* The project is the one of --dir or of the current folder, also where the mode does not mount it: servers of others have no business there. */
static int fill_mcp(const struct run_request *opts, struct state_sandbox *s, struct ak_err *err)
{
	if (!opts->mcp)
		return 0;
	if (!realpath(opts->dir ? opts->dir : ".", s->mcp.project))
		return ak_fail_errno(err, errno, "--mcp: the project folder");
	snprintf(s->mcp.server, sizeof(s->mcp.server), "%s", opts->mcp_server ? opts->mcp_server : "");
	s->mcp.keep = opts->mcp_server && opts->keep;
	return 0;
}

/* What is wrong with the folder, the variables or a rule is found before anything is written. */
static int fill_state(const struct ak_paths *paths, const struct run_request *opts, struct state_sandbox *s, struct ak_err *err)
{
	int rc = run_plan_project(opts, paths, s->dir, &s->dir_id, err);

	if (rc == 0)
		rc = fill_mcp(opts, s, err);
	if (rc == 0)
		rc = run_plan_capture(opts, &s->env, err);
	if (rc < 0)
		return rc;
	s->mode = opts->mode;
	s->profile = opts->profile;
	s->no_network = opts->no_network;
	s->nested = opts->nested;
	s->project_writable = opts->project_writable;
	s->limits = opts->limits;
	for (size_t i = 0; i < opts->n_edits && rc == 0; i++)
		rc = state_edit_add(paths, s, opts->edits[i].op, opts->edits[i].text, 0, err);
	return rc;
}

/* What start would refuse is refused now. */
static int check_state(
	const struct ak_paths *paths, const struct state_sandbox *s, struct policy **ret_policy, struct ak_err *err)
{
	static struct run_plan plan; /* large */
	char empty[PATH_MAX];
	int rc = rundir_empty(paths, empty, err);

	if (rc == 0)
		rc = state_plan(paths, s, empty, &plan, err);
	if (rc < 0)
		return rc;
	run_plan_done(&plan);
	return state_policy(paths, s, ak_wall_us(), ret_policy, err);
}

static void note_create(const struct ak_paths *paths, const struct state_sandbox *s)
{
	_cleanup_strbuf_ struct strbuf more = { 0 };

	event_put_text(&more, "uuid", s->uuid);
	event_put_text(&more, "mode", ak_mode_name(s->mode));
	event_put_text(&more, "profile", ak_profile_name(s->profile));
	strbuf_printf(&more, ",\"network\":%s", state_network(s) ? "true" : "false");
	if (s->dir[0])
		event_put_text(&more, "project", s->dir);
	if (s->mcp.project[0])
		event_put_text(&more, "mcp", s->mcp.server[0] ? "server" : "user");
	event_put_text(&more, "origin", state_origin(s));
	event_write(paths, "sandbox_create", s->name, &more);
}

int service_create(
	const struct ak_paths *paths, const char *name, const struct run_request *opts, cJSON **ret, struct ak_err *err)
{
	_cleanup_(policy_unrefp) struct policy *policy = NULL;
	_cleanup_(state_done) struct state_sandbox s = { 0 };
	_cleanup_json_ cJSON *info = NULL;
	struct ak_err ignored;
	int rc = service_check_name(name, err);

	if (rc < 0)
		return rc;
	memcpy(s.name, name, strlen(name) + 1);
	rc = fill_state(paths, opts, &s, err);
	if (rc == 0)
		rc = check_state(paths, &s, &policy, err);
	if (rc == 0)
		rc = state_create(paths, &s, err);
	if (rc < 0)
		return rc;
	(void)state_write_policy(paths, name, policy, &ignored);
	note_create(paths, &s);
	info = info_new(&s, false);
	if (!info || add_counts(info, NULL, &s) < 0)
		return ak_fail(err, ENOMEM, "out of memory");
	*ret = TAKE(info);
	return 0;
}

/* ---- start, stop, remove ---- */

/* UUID, unless NULL, is the one that is meant; FLAG, unless NULL, is set in the request; RET may be NULL. */
static int call_by_name(const struct ak_paths *paths, const char *op, const char *name, const char *uuid, const char *flag,
	cJSON **ret, struct ak_err *err)
{
	_cleanup_json_ cJSON *request = cJSON_CreateObject();

	if (!request || !put_text(request, "name", name) || (uuid && !put_text(request, "uuid", uuid)) ||
		(flag && !cJSON_AddTrueToObject(request, flag)))
		return ak_fail(err, ENOMEM, "out of memory");
	return service_call(paths, true, op, TAKE(request), ret, err);
}

/* There is one of that name; whether it runs. */
static int look(const struct ak_paths *paths, const char *name, bool *ret_runs, struct ak_err *err)
{
	struct state_sandbox s = { 0 };
	int rc = service_load(paths, name, &s, err);

	if (rc < 0)
		return rc;
	state_done(&s);
	*ret_runs = runs(paths, name);
	return 0;
}

int service_same(const struct ak_paths *paths, const char *name, const char *uuid, struct ak_err *err)
{
	_cleanup_(state_done) struct state_sandbox s = { 0 };
	int rc = service_load(paths, name, &s, err);

	if (rc == 0 && strcmp(s.uuid, uuid) != 0)
		rc = ak_fail(err, ENOENT, "sandbox '%s' was removed, and there is another one of that name now", name);
	return rc;
}

static int start(
	const struct ak_paths *paths, const char *name, const char *uuid, const char *flag, cJSON **ret, struct ak_err *err)
{
	bool running;
	int rc = look(paths, name, &running, err);

	if (rc < 0)
		return rc;
	if (running && service_daemon_runs(paths))
		return ak_fail(err, EALREADY, "sandbox '%s' is running already", name);
	rc = call_by_name(paths, "start", name, uuid, flag, ret, err);
	/* It ran without a gateway: the daemon that was just started has adopted it, which is what was wanted. */
	return running && rc == -EALREADY ? 0 : rc;
}

int service_start(const struct ak_paths *paths, const char *name, struct ak_err *err)
{
	return start(paths, name, NULL, NULL, NULL, err);
}

int service_start_telling(const struct ak_paths *paths, const char *name, bool accept_dir, cJSON **ret, struct ak_err *err)
{
	return start(paths, name, NULL, accept_dir ? "accept_dir" : NULL, ret, err);
}

int service_start_uuid(const struct ak_paths *paths, const char *name, const char *uuid, struct ak_err *err)
{
	return start(paths, name, uuid, NULL, NULL, err);
}

static int stop(const struct ak_paths *paths, const char *name, const char *uuid, cJSON **ret, struct ak_err *err)
{
	bool running;
	int rc = look(paths, name, &running, err);

	if (rc < 0)
		return rc;
	if (!running)
		return ak_fail(err, ESRCH, "sandbox '%s' is not running", name);
	return call_by_name(paths, "stop", name, uuid, NULL, ret, err);
}

int service_stop_telling(const struct ak_paths *paths, const char *name, cJSON **ret, struct ak_err *err)
{
	return stop(paths, name, NULL, ret, err);
}

int service_stop_uuid(const struct ak_paths *paths, const char *name, const char *uuid, struct ak_err *err)
{
	return stop(paths, name, uuid, NULL, err);
}

int service_stop(const struct ak_paths *paths, const char *name, struct ak_err *err)
{
	return service_stop_uuid(paths, name, NULL, err);
}

int service_remove_uuid(const struct ak_paths *paths, const char *name, const char *uuid, bool force, struct ak_err *err)
{
	bool running = false;
	int rc = look(paths, name, &running, err);

	if (state_damaged(rc) && !force)
		return ak_err_prefix(err, rc,
			"what is known of sandbox '%s' cannot be read ('agentkernel remove --force %s' discards it with all its files)",
			name, name);
	if (rc < 0 && !state_damaged(rc))
		return rc;
	if (running && !force)
		return ak_fail(err, EBUSY, "sandbox '%s' is running; stop it first, or give --force", name);
	return call_by_name(paths, "remove", name, uuid, force ? "force" : NULL, NULL, err);
}

int service_remove(const struct ak_paths *paths, const char *name, bool force, struct ak_err *err)
{
	return service_remove_uuid(paths, name, NULL, force, err);
}

/* ---- list ---- */

struct listing {
	const struct ak_paths *paths; /* borrowed */
	const cJSON *live; /* borrowed; the daemon's array or NULL */
	const char *wanted; /* a name or uuid, or NULL for all */
	cJSON *found; /* owned; an array */
	bool failed; /* out of memory */
	void (*bad)(void *ctx, const char *name, const char *reason);
	void *ctx;
};

static const cJSON *live_of(const struct listing *l, const char *name)
{
	const cJSON *item;

	cJSON_ArrayForEach(item, l->live) {
		const cJSON *n = cJSON_GetObjectItemCaseSensitive(item, "name");

		if (cJSON_IsString(n) && !strcmp(n->valuestring, name))
			return item;
	}
	return NULL;
}

static int add_info(void *ctx, struct state_sandbox *s)
{
	struct listing *l = ctx;
	_cleanup_json_ cJSON *info = NULL;

	if (l->wanted && strcmp(l->wanted, s->name) != 0 && strcmp(l->wanted, s->uuid) != 0)
		return 0;
	info = info_new(s, runs(l->paths, s->name));
	if (!info || add_counts(info, live_of(l, s->name), s) < 0 || !cJSON_AddItemToArray(l->found, info))
		return -ENOMEM;
	(void)TAKE(info);
	return 0;
}

/* All that is known of a damaged one is its name, and what is wrong with it. */
static cJSON *info_damaged(const char *name, const char *reason)
{
	static const char *const unknown[] = { "uuid", "mode", "profile", "vcpus", "memory_mb", "ip", "created_at" };
	_cleanup_json_ cJSON *obj = cJSON_CreateObject();
	bool ok = obj && put_text(obj, "name", name) && put_text(obj, "status", "damaged") && put_text(obj, "backend", "ns") &&
		put_text(obj, "error", reason);

	for (size_t i = 0; ok && i < ARRAY_SIZE(unknown); i++)
		ok = cJSON_AddNullToObject(obj, unknown[i]) != NULL;
	return ok ? TAKE(obj) : NULL;
}

static void add_damaged(void *ctx, const char *name, const char *reason)
{
	struct listing *l = ctx;
	cJSON *info = l->wanted ? NULL : info_damaged(name, reason);

	if (info)
		cJSON_AddItemToArray(l->found, info);
	else if (!l->wanted)
		l->failed = true;
	if (l->bad)
		l->bad(l->ctx, name, reason);
}

static int gather(const struct ak_paths *paths, struct listing *l, struct ak_err *err)
{
	_cleanup_json_ cJSON *answer = NULL;
	struct ak_err ignored;
	int rc;

	l->paths = paths;
	l->found = cJSON_CreateArray();
	if (!l->found)
		return ak_fail(err, ENOMEM, "out of memory");
	if (service_call(paths, false, "list", NULL, &answer, &ignored) == 0)
		l->live = cJSON_GetObjectItemCaseSensitive(answer, "sandboxes");
	rc = state_each(paths, add_info, add_damaged, l, err);
	l->live = NULL;
	return rc == -ENOMEM || l->failed ? ak_fail(err, ENOMEM, "out of memory") : rc;
}

int service_list(const struct ak_paths *paths, void (*bad)(void *ctx, const char *name, const char *reason), void *ctx,
	cJSON **ret, struct ak_err *err)
{
	struct listing l = { .bad = bad, .ctx = ctx };
	int rc = gather(paths, &l, err);

	if (rc < 0)
		cJSON_Delete(l.found);
	else
		*ret = l.found;
	return rc < 0 ? rc : 0;
}

int service_get(const struct ak_paths *paths, const char *name, cJSON **ret, struct ak_err *err)
{
	struct listing l = { .wanted = name };
	struct state_sandbox s = { 0 };
	int rc = service_check_name(name, err);

	/* A name is looked up as such first, so that what is wrong with it is told. */
	if (rc == 0 && strlen(name) != sizeof(s.uuid) - 1) {
		rc = service_load(paths, name, &s, err);
		if (rc == 0)
			state_done(&s);
	}
	if (rc == 0)
		rc = gather(paths, &l, err);
	if (rc == 0 && cJSON_GetArraySize(l.found) == 0)
		rc = ak_fail(err, ENOENT, "no sandbox named '%s'", name);
	if (rc == 0)
		*ret = cJSON_DetachItemFromArray(l.found, 0);
	cJSON_Delete(l.found);
	return rc;
}
