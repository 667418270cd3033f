/*
 * Persistent sandboxes: create, start, stop, remove, list. See service/service.h.
 *
 * Creating and listing need no daemon: a process that changes the state folder locks it and writes files atomically. Only what
 * involves the gateway goes through the daemon, which is started if none is running.
 */
#include "gateway/service/internal.h"

#include "gateway/base/cleanup.h"
#include "gateway/run/vm.h"
#include "gateway/base/io.h"
#include "gateway/log/events.h"
#include "gateway/store/agent.h"
#include "gateway/store/info.h"
#include "gateway/store/mounts.h"
#include "gateway/store/policy_dirs.h"
#include "gateway/store/runs.h"
#include "gateway/store/state.h"
#include "gateway/super/super.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

/* Is its supervisor running? -EPERM: it runs in another namespace; requests to it fail with the reason. */
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

/* ---- create ---- */

/* The project is --dir or the current folder, even if the mode does not mount it: MCP servers of other projects must not use the sandbox. */
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

/* The name may stand for another image later; the sandbox keeps this one. */
static int fill_image(
	const struct ak_paths *paths, const char *name, const struct run_plan *ran, struct state_sandbox *s, struct ak_err *err)
{
	struct image img;
	int rc = ran ? image_open(paths, ran->image->id, &img, err) : image_find(paths, name, &img, err);

	if (rc < 0)
		return rc;
	snprintf(s->image, sizeof(s->image), "%s", name);
	memcpy(s->image_id, img.id, sizeof(s->image_id));
	image_done(&img);
	return 0;
}

/* The project and the mounts of a run that is kept are those that it had: it may have put links in the way of another look. */
static int fill_folders(const struct ak_paths *paths, const struct run_request *opts, const struct run_plan *ran,
	struct state_sandbox *s, struct ak_err *err)
{
	int rc;

	if (ran) {
		memcpy(s->dir, ran->project, strlen(ran->project) + 1);
		s->dir_id = ran->project_id;
		s->mounts = run_mounts_copy(ran->asked, ran->n_asked);
		s->n_mounts = s->mounts ? ran->n_asked : 0;
		return s->mounts ? 0 : ak_fail(err, ENOMEM, "out of memory");
	}
	rc = run_plan_project(opts, paths, s->dir, &s->dir_id, err);
	return rc < 0 ? rc : run_plan_bring(opts, paths, s->dir, &s->mounts, &s->n_mounts, err);
}

/* Whether the command of a run, which is kept or goes on in the background, is a program of the host outside the system folders. */
static bool brings_command(const struct run_request *opts, const struct run_plan *ran, const char *path)
{
	const char *name = opts->argv && opts->argv[0] ? opts->argv[0] : "";
	char found[PATH_MAX];

	if (!name[0] || ran)
		return name[0] && ran->tools.program && ran->tools.n;
	if (name[0] == '/')
		return access(name, X_OK) == 0 && !tools_in_system(name);
	return !strchr(name, '/') && tools_look_up(path, name, found) && !tools_in_system(found);
}

/* Which programs of the host it gets, and where they are looked up at every start: see plan_tools. */
static int fill_tools(const struct run_request *opts, const struct run_plan *ran, struct state_sandbox *s, struct ak_err *err)
{
	const char *path = getenv("PATH");
	bool command = path && brings_command(opts, ran, path);
	size_t n = 0;

	if (!path || (!command && !opts->n_tools && !agent_of_mode(opts->mode)))
		return 0;
	s->path = strdup(path);
	s->tools = calloc(RUN_TOOLS_MAX + 1, sizeof(*s->tools));
	if (!s->path || !s->tools)
		return ak_fail(err, ENOMEM, "out of memory");
	if (command)
		s->tools[n++] = strdup(opts->argv[0]);
	for (size_t i = 0; i < opts->n_tools && n < RUN_TOOLS_MAX; i++)
		s->tools[n++] = strdup(opts->tools[i]);
	for (size_t i = 0; i < n; i++) {
		if (!s->tools[i])
			return ak_fail(err, ENOMEM, "out of memory");
	}
	return 0;
}

int service_fill_state(const struct ak_paths *paths, const struct run_request *opts, const struct run_plan *ran,
	struct state_sandbox *s, struct ak_err *err)
{
	int rc = fill_folders(paths, opts, ran, s, err);

	if (rc == 0)
		rc = run_plan_publish(opts, err);
	if (rc == 0)
		rc = fill_tools(opts, ran, s, err);
	if (rc == 0)
		rc = fill_mcp(opts, s, err);
	if (rc == 0)
		rc = run_plan_capture(opts, &s->env, err);
	if (rc < 0)
		return rc;
	s->mode = opts->mode;
	snprintf(s->own, sizeof(s->own), "%s", opts->own ? opts->own : "");
	s->profile = opts->profile;
	s->no_network = opts->no_network;
	s->nested = opts->nested;
	s->vm = run_vm_wanted(paths, opts);
	s->podman = opts->podman;
	s->project_writable = opts->project_writable;
	s->limits = opts->limits;
	memcpy(s->publish, opts->publish, sizeof(s->publish));
	s->n_publish = opts->n_publish;
	rc = opts->image ? fill_image(paths, opts->image, ran, s, err) : 0;
	for (size_t i = 0; i < opts->n_edits && rc == 0; i++)
		rc = state_edit_add(paths, s, opts->edits[i].op, opts->edits[i].text, 0, err);
	return rc;
}

/* Refuse now what start would refuse. */
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
	if (plan.tools.missing)
		rc = ak_fail(err, EINVAL, "--tool: '%.200s' is not on your PATH", plan.tools.missing);
	run_plan_done(&plan);
	if (rc < 0)
		return rc;
	return state_policy(paths, s, ak_wall_us(), ret_policy, err);
}

static void note_create(const struct ak_paths *paths, const struct state_sandbox *s)
{
	_cleanup_strbuf_ struct strbuf more = { 0 };

	event_put_text(&more, "uuid", s->uuid);
	event_put_text(&more, "mode", state_mode(s));
	event_put_text(&more, "profile", ak_profile_name(s->profile));
	strbuf_printf(&more, ",\"network\":%s", state_network(s) ? "true" : "false");
	if (s->dir[0])
		event_put_text(&more, "project", s->dir);
	run_mounts_event(&more, NULL, 0, s->mounts, s->n_mounts);
	if (s->tools && s->tools[0])
		event_put_list(&more, "tools", s->tools);
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
	_cleanup_(run_request_freep) struct run_request *own = NULL;
	char taken[PATH_MAX];
	struct ak_err ignored;
	int rc = service_check_name(name, err);

	if (rc == 0)
		rc = run_request_pin(paths, &opts, &own, err);
	if (rc < 0)
		return rc;
	memcpy(s.name, name, strlen(name) + 1);
	/* Claiming a name forgets the past run that had it, which may be a run of the user. */
	if (opts->mcp_server && runs_dir(paths, name, taken, &ignored) == 0)
		return ak_fail(err, EEXIST, "the name '%s' is taken already; choose another", name);
	rc = service_claim_name(paths, name, err);
	if (rc == 0)
		rc = service_image_from_podman(paths, opts, err);
	if (rc == 0)
		rc = service_fill_state(paths, opts, NULL, &s, err);
	if (rc == 0)
		rc = check_state(paths, &s, &policy, err);
	if (rc == 0)
		rc = state_create(paths, &s, err);
	if (rc < 0)
		return rc;
	(void)state_write_policy(paths, name, policy, &ignored);
	note_create(paths, &s);
	*ret = sandbox_info_json(&(struct sandbox_info){ .state = &s, .status = "stopped" });
	return *ret ? 0 : ak_fail(err, ENOMEM, "out of memory");
}

/* ---- start, stop, remove ---- */

static int call_by_name(const struct ak_paths *paths, const char *op, const char *name, const struct service_how *how,
	cJSON **ret, struct ak_err *err)
{
	static const struct service_how plain;
	_cleanup_json_ cJSON *request = cJSON_CreateObject();

	how = how ? how : &plain;
	if (!request || !cJSON_AddStringToObject(request, "name", name) ||
		(how->uuid && !cJSON_AddStringToObject(request, "uuid", how->uuid)) ||
		(how->force && !cJSON_AddTrueToObject(request, "force")) ||
		(how->archive &&
			(!cJSON_AddTrueToObject(request, "archive") ||
				!cJSON_AddNumberToObject(request, "exit_code", how->exit_code))) ||
		(how->accept_dir && !cJSON_AddTrueToObject(request, "accept_dir")) ||
		(how->disk_bytes && !cJSON_AddNumberToObject(request, "disk_bytes", (double)how->disk_bytes)))
		return ak_fail(err, ENOMEM, "out of memory");
	return service_call(paths, true, op, TAKE(request), ret, err);
}

/* Check that the sandbox exists, and whether it is running. */
static int check_exists(const struct ak_paths *paths, const char *name, bool *ret_runs, struct ak_err *err)
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
		rc = ak_fail(err, ENOENT, "sandbox '%s' was removed; another sandbox has this name now", name);
	return rc;
}

/* Boot a guest for a virtual machine if none is saved: here, where the user sees that it takes a while, and the daemon waits for nothing. */
static int prepare_machine(const struct ak_paths *paths, const char *name, struct ak_err *err)
{
	_cleanup_(state_done) struct state_sandbox s = { 0 };
	int rc = state_load(paths, name, &s, err);

	return rc < 0 ? rc : s.vm ? run_vm_prepare(paths, &s.limits, false, err) : 0;
}

int service_start(const struct ak_paths *paths, const char *name, const struct service_how *how, cJSON **ret, struct ak_err *err)
{
	bool running;
	int rc = check_exists(paths, name, &running, err);

	if (rc < 0)
		return rc;
	if (running && service_daemon_runs(paths))
		return ak_fail(err, EALREADY, "sandbox '%s' is running already", name);
	rc = prepare_machine(paths, name, err);
	if (rc == 0)
		rc = call_by_name(paths, "start", name, how, ret, err);
	/* It was running without a daemon; the daemon that we have just started adopted it, so the start succeeded. */
	return running && rc == -EALREADY ? 0 : rc;
}

int service_stop(const struct ak_paths *paths, const char *name, const struct service_how *how, cJSON **ret, struct ak_err *err)
{
	bool running;
	int rc = check_exists(paths, name, &running, err);

	if (rc < 0)
		return rc;
	if (!running)
		return ak_fail(err, ESRCH, "sandbox '%s' is not running", name);
	return call_by_name(paths, "stop", name, how, ret, err);
}

int service_remove(const struct ak_paths *paths, const char *name, const struct service_how *how, cJSON **ret, struct ak_err *err)
{
	bool running = false, force = how && how->force;
	int rc = check_exists(paths, name, &running, err);

	if (state_damaged(rc) && !force)
		return ak_err_prefix(err, rc,
			"the record of sandbox '%s' cannot be read ('agentkernel remove --force %s' removes it with all its files)",
			name, name);
	if (rc < 0 && !state_damaged(rc))
		return rc;
	if (running && !force)
		return ak_fail(err, EBUSY, "sandbox '%s' is running; stop it first, or use --force", name);
	return call_by_name(paths, "remove", name, how, ret, err);
}

/* ---- list ---- */

struct listing {
	const struct ak_paths *paths; /* borrowed */
	const cJSON *live; /* borrowed; the daemon's list, or NULL */
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

/* A kept run also tells how the run ended. One in the background that has not ended is a sandbox like any other. */
static bool put_kept(const struct ak_paths *paths, const char *name, cJSON *info)
{
	_cleanup_json_ cJSON *record = NULL;
	char dir[PATH_MAX];

	if (state_path(paths, name, NULL, dir) < 0 || runs_record(dir, &record) < 0 || !cJSON_HasObjectItem(record, "ended"))
		return true;
	return cJSON_AddTrueToObject(info, "kept") &&
		cJSON_AddNumberToObject(info, "exit_code", (double)json_number(record, "exit_code", 0));
}

/* The daemon knows which ports of the host are in use where any free one was asked for. */
static bool put_ports(cJSON *info, const cJSON *live)
{
	const cJSON *ports = cJSON_GetObjectItemCaseSensitive(live, "publish");
	cJSON *copy = ports ? cJSON_Duplicate(ports, true) : NULL;

	cJSON_DeleteItemFromObjectCaseSensitive(info, "publish");
	return !ports || (copy && cJSON_AddItemToObject(info, "publish", copy));
}

/* The daemon has the current counters, the state those of the last stop. */
static int add_info(void *ctx, struct state_sandbox *s)
{
	struct listing *l = ctx;
	struct sandbox_info about = { .state = s };
	const cJSON *live;
	cJSON *info;

	if (l->wanted && strcmp(l->wanted, s->name) != 0 && strcmp(l->wanted, s->uuid) != 0)
		return 0;
	live = live_of(l, s->name);
	about.status = runs(l->paths, s->name) ? "running" : "stopped";
	about.allowed = json_number(live, "allowed", s->allowed);
	about.denied = json_number(live, "denied", s->denied);
	info = sandbox_info_json(&about);
	if (info && live && !put_ports(info, live)) {
		cJSON_Delete(info);
		return -ENOMEM;
	}
	if (info && put_kept(l->paths, s->name, info) && cJSON_AddItemToArray(l->found, info))
		return 0;
	cJSON_Delete(info);
	return -ENOMEM;
}

static void add_damaged(void *ctx, const char *name, const char *reason)
{
	struct listing *l = ctx;
	cJSON *info = l->wanted ? NULL : sandbox_info_damaged(name, reason);

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

	/* Load by name first, so that the error says what is wrong with the record. */
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
