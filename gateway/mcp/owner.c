/*
 * Track the sandboxes that a server created, and remove them when it ends. See mcp/mcp.h.
 *
 * The state of each persistent sandbox records the server's id, and the server holds the lock of that id (store/state_server.h). Before creating the first
 * sandbox, the server forks a guard: a detached process in its own session that waits for the lock. It gets the lock when the server and all calls that create
 * sandboxes have ended, for whatever reason, and then removes their sandboxes. If the guard is killed too, the next server or daemon removes them.
 */
#include "gateway/mcp/run.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/title.h"
#include "gateway/base/io.h"
#include "gateway/ipc/spawn.h"
#include "gateway/service/service.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <unistd.h>

/* ---- runs ---- */

int mcp_owner_new_run(struct mcp_owner *o, struct ak_err *err)
{
	char *name = o->runs[o->n_runs % MCP_RUNS_MAX];
	uint32_t id;

	if (getrandom(&id, sizeof(id), 0) != sizeof(id))
		return ak_fail_errno(err, errno, "getrandom");
	snprintf(name, sizeof(o->runs[0]), "run-%08x", id);
	o->n_runs++;
	return 0;
}

const char *mcp_owner_last_run(const struct mcp_owner *o)
{
	return o->runs[(o->n_runs - 1) % MCP_RUNS_MAX];
}

bool mcp_owner_has_run(const struct mcp_owner *o, const char *name)
{
	for (size_t i = 0; i < o->n_runs && i < MCP_RUNS_MAX; i++) {
		if (!strcmp(o->runs[i], name))
			return true;
	}
	return false;
}

/* ---- removing ---- */

struct made {
	const char *id; /* borrowed */
	char name[AK_NAME_MAX], uuid[37]; /* the first sandbox found */
};

static int find_made(void *ctx, struct state_sandbox *s)
{
	struct made *m = ctx;

	if (m->name[0] || s->mcp.keep || strcmp(s->mcp.server, m->id) != 0)
		return 0;
	memcpy(m->name, s->name, sizeof(m->name));
	memcpy(m->uuid, s->uuid, sizeof(m->uuid));
	return 0;
}

/* Remove all sandboxes of the server ID; true when none is left. The next server or daemon retries what cannot be removed now. */
static bool remove_made(const struct ak_paths *paths, const char *id)
{
	struct ak_err ignored;

	for (int i = 0; i < 2 * STATE_MCP_MAX; i++) {
		struct made m = { .id = id };

		if (state_each(paths, find_made, NULL, &m, &ignored) < 0)
			return false;
		if (!m.name[0])
			return true;
		if (service_remove(paths, m.name, &(struct service_how){ .uuid = m.uuid, .force = true }, NULL, &ignored) < 0)
			return false;
	}
	return false;
}

static void clear_up(const struct ak_paths *paths, const char *id)
{
	_cleanup_close_ int lock = state_server_succeed(paths, id);

	if (lock >= 0 && remove_made(paths, id))
		state_server_forget(paths, id);
}

/* ---- the guard ---- */

struct guard {
	const struct ak_paths *paths; /* both members are borrowed from the parent process */
	const char *id;
};

static void guard(void *ctx)
{
	const struct guard *g = ctx;

	prctl(PR_SET_NAME, "ak-mcp-guard");
	ak_title_set("agentkernel mcp guard");
	clear_up(g->paths, g->id);
}

int mcp_owner_guard(struct mcp_owner *o, const struct ak_paths *paths, struct ak_err *err)
{
	struct guard g = { .paths = paths, .id = o->id };
	int fds[2], rc;

	if (o->lock_fd >= 0)
		return 0;
	if (pipe2(fds, O_CLOEXEC) < 0)
		return ak_fail_errno(err, errno, "pipe");
	rc = o->lock_fd = state_server_hold(paths, o->id, err);
	if (rc >= 0)
		rc = spawn_fork(guard, &g, &fds[1], 1, err);
	ak_close(fds[1]);
	if (rc < 0) {
		ak_close(fds[0]);
		o->lock_fd = ak_close(o->lock_fd);
		state_server_forget(paths, o->id);
		return rc;
	}
	o->guard_fd = fds[0];
	return 0;
}

static void clear_dead(void *ctx, const char *id)
{
	clear_up(ctx, id);
}

static void clear_all(void *ctx)
{
	prctl(PR_SET_NAME, "ak-mcp-guard");
	ak_title_set("agentkernel mcp guard");
	state_server_each_dead(ctx, clear_dead, ctx);
}

static void note_dead(void *ctx, const char *id)
{
	*(bool *)ctx = true;
}

/* ---- init and done ---- */

int mcp_owner_init(struct mcp_owner *o, const struct ak_paths *paths, struct ak_err *err)
{
	struct ak_paths copy = *paths;
	struct ak_err ignored;
	bool dead = false;

	o->lock_fd = o->guard_fd = -1;
	o->n_runs = 0;
	state_server_each_dead(paths, note_dead, &dead);
	if (dead) /* best effort */
		(void)spawn_fork(clear_all, &copy, NULL, 0, &ignored);
	return state_server_id(o->id, err);
}

void mcp_owner_done(struct mcp_owner *o, uint64_t until_ms)
{
	struct pollfd p = { .fd = o->guard_fd };
	uint64_t now = ak_now_ms();

	o->lock_fd = ak_close(o->lock_fd);
	/* The pipe reads end of file when the guard exits. */
	if (p.fd >= 0)
		(void)poll(&p, 1, until_ms > now ? (int)(until_ms - now) : 0);
	o->guard_fd = ak_close(o->guard_fd);
}
