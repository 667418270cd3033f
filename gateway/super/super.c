/*
 * Start of a supervisor: see super/super.h. The daemon re-executes this program. The new process receives its task from the daemon, plans, starts the
 * sandbox, reports "ready" and waits for "go".
 */
#include "gateway/super/internal.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/base/say.h"
#include "vmctl/gwns.h"
#include "gateway/ipc/spawn.h"
#include "gateway/run/vm.h"
#include "gateway/store/mounts.h"
#include "gateway/store/rundir.h"
#include "gateway/store/shared.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define START_TIMEOUT_MS 30000

int super_path(const struct ak_paths *paths, const char *name, char ret[static PATH_MAX])
{
	char file[AK_NAME_MAX + 8];

	snprintf(file, sizeof(file), "%.63s.sock", name);
	return ak_path_join(ret, paths->runtime, "sb", file);
}

int super_connect(const struct ak_paths *paths, const char *name, struct ak_err *err)
{
	char path[PATH_MAX];
	int rc = super_path(paths, name, path);

	return rc < 0 ? ak_fail_errno(err, -rc, "%s", paths->runtime) : ipc_connect(path, err);
}

/* ---- before "ready" ---- */

static int open_listener(struct super *v, struct ak_err *err)
{
	char dir[PATH_MAX];
	int rc = ak_path_join(dir, v->paths->runtime, "sb", NULL);

	if (rc == 0)
		rc = super_path(v->paths, v->state->name, v->path);
	if (rc == 0)
		rc = ak_mkdir_p(dir, 0700);
	if (rc < 0)
		return ak_fail_errno(err, -rc, "%s", v->paths->runtime);
	v->listener = ipc_listen(v->path, err);
	return v->listener < 0 ? v->listener : 0;
}

static int plan(struct super *v, struct ak_err *err)
{
	char empty[PATH_MAX];
	int rc = rundir_empty(v->paths, empty, err);

	if (rc == 0 && state_path(v->paths, v->state->name, "upper", v->upper) < 0)
		rc = ak_fail(err, ENAMETOOLONG, "%s: path too long", v->paths->state);
	if (rc == 0)
		rc = disk_check_start(v->state->name, v->upper, v->state->limits.disk_bytes, err);
	return rc < 0 ? rc : state_plan(v->paths, v->state, empty, &v->plan, err);
}

static int start_sandbox(struct super *v, int net_sock, struct ak_err *err)
{
	char resolv[PLAN_RESOLV_MAX];
	struct sandbox_spec spec;
	uint32_t mb = 0;
	int rc = 0;

	gwns_link_plan(v->state->link_id, &v->net_link);
	run_plan_spec(&v->plan, v->plan.network ? &v->net_link : NULL, resolv, &spec);
	spec.upper_dir = v->upper;
	spec.limits = v->state->limits;
	spec.gw_user_ns = v->user_ns;
	spec.gw_net_ns = v->net_ns;
	for (int i = 0; i < 3; i++)
		spec.stdio[i] = i;
	if (v->state->vm) {
		rc = v->vm.memory >= 0 ? run_vm_limits(&spec.limits, &mb, err)
				       : run_vm_open(v->paths, &spec.limits, true, &v->vm, err);
		spec.vm = &v->vm;
	}
	if (rc == 0)
		rc = sandbox_start(&spec, net_sock, &v->sandbox, err);
	sandbox_vm_done(&v->vm);
	return rc;
}

static int take_rtnl(struct super *v, int net_sock, struct ak_err *err)
{
	int fds[GWNS_FD_NUM], rc = gwns_sockets_receive(net_sock, fds, err);

	if (rc < 0)
		return rc;
	v->peer_rtnl = TAKE_FD(fds[GWNS_PEER_RTNL]);
	for (int i = 0; i < GWNS_FD_NUM; i++)
		ak_close(fds[i]);
	return v->peer_rtnl < 0 ? ak_fail(err, EPROTO, "the sandbox's link has no control socket") : 0;
}

/* Collect notes about the project for the user, while the sandbox is being built. */
static void note_project(struct super *v)
{
	struct shared_lines shared;
	char line[512];

	plan_mounts_look(&v->plan);
	if (!v->plan.project[0] && !v->plan.n_asked)
		return;
	if (v->plan.project[0]) {
		project_sockets(v->plan.project, "the project", line, sizeof(line));
		run_plan_note(&v->plan, line);
	}
	shared_note_state(v->paths, v->state, guard_outside(v->plan.guard), &shared);
	run_plan_note(&v->plan, shared.project);
}

static int build(struct run_life *l, struct ak_err *err)
{
	struct super *v = l->ctx;
	int pair[2] = { -1, -1 }, rc;

	if (v->plan.network && socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return ak_fail_errno(err, errno, "socketpair");
	rc = start_sandbox(v, pair[0], err);
	ak_close(pair[0]);
	v->net_sock = pair[1];
	l->sandbox = v->sandbox;
	if (rc == 0) {
		v->live = shared_begin_state(v->paths, &v->plan);
		note_project(v);
	}
	return rc;
}

static int report_ready(struct super *v, struct ak_err *err)
{
	_cleanup_json_ cJSON *obj = cJSON_CreateObject();
	_cleanup_strbuf_ struct strbuf notes = { 0 };
	int rc = -ENOMEM;

	strbuf_puts(&notes, sandbox_notes(v->sandbox));
	strbuf_puts(&notes, v->plan.notes);
	if (obj && !notes.failed && cJSON_AddStringToObject(obj, "event", "ready") &&
		cJSON_AddNumberToObject(obj, "pid", getpid()) &&
		cJSON_AddNumberToObject(obj, "init_pid", sandbox_init_pid(v->sandbox)) &&
		cJSON_AddStringToObject(obj, "notes", notes.data ? notes.data : ""))
		rc = ipc_send(v->control, obj, &v->peer_rtnl, v->peer_rtnl >= 0 ? 1 : 0);
	return rc < 0 ? ak_fail_errno(err, -rc, "reporting to the daemon") : 0;
}

/* Report "ready": the daemon adds the sandbox to its gateway, then sends "go". */
static int host(struct run_life *l, struct ak_err *err)
{
	struct super *v = l->ctx;
	int rc = v->plan.network ? take_rtnl(v, v->net_sock, err) : 0;

	v->net_sock = ak_close(v->net_sock);
	return rc < 0 ? rc : report_ready(v, err);
}

/* Between "ready" and "running" the daemon sends nothing but "go". If it disconnects, we end. */
static void on_control(struct super *v)
{
	_cleanup_json_ cJSON *obj = NULL;

	if (v->life.hosting && ipc_recv(v->control, &obj, NULL, NULL) > 0)
		life_hosted(&v->life);
	else
		life_refused(&v->life, "the daemon ended");
}

static void wait_event(struct super *v)
{
	struct pollfd p[] = { { .fd = sandbox_fd(v->sandbox), .events = POLLIN },
		{ .fd = v->control, .events = v->life.hosting ? POLLIN : POLLRDHUP } };
	uint64_t now = ak_now_ms(), due = life_due_ms(&v->life);

	if (poll(p, 2, due > now ? (int)(due - now) : 0) > 0) {
		if (p[0].revents)
			life_poll(&v->life);
		if (p[1].revents)
			on_control(v);
	}
	life_tick(&v->life);
}

/* The steps of every run (run/life.h), but without a command: build, ready, go. The daemon writes the records. */
static int start(struct super *v, struct ak_err *err)
{
	static const struct life_ops ops = { .build = build, .host = host };

	life_init(&v->life, &ops, v);
	v->life.plan = &v->plan;
	v->life.needs_host = v->life.host_when_ready = true;
	v->life.start_max_ms = START_TIMEOUT_MS;
	life_begin(&v->life);
	while (v->life.state == LIFE_BUILDING)
		wait_event(v);
	*err = v->life.failure;
	return v->life.rc;
}

static int begin(struct super *v, struct ak_err *err)
{
	int rc = open_listener(v, err);

	if (rc == 0)
		rc = plan(v, err);
	return rc < 0 ? rc : start(v, err);
}

static void run_supervisor(struct super *v)
{
	struct ak_err err = { .text = "" };
	int rc = begin(v, &err);

	if (rc == 0)
		rc = super_serve(v, &err);
	/* Unlink the socket before reporting the failure: the daemon may start the sandbox again at once. */
	if (v->path[0] && (v->listener >= 0 || v->server))
		unlink(v->path);
	if (rc < 0)
		(void)ipc_send_error(v->control, -rc, err.text);
	sandbox_free(v->sandbox);
}

/* ---- receiving the task ---- */

/*
 * The daemon first sends the state and, for a sandbox with a network, the gateway's namespaces; then, with "machine", a saved guest.
 */
#define NET_FDS 2
#define VM_FDS 4

static int receive_task(struct super *v, struct state_sandbox *state, struct ak_err *err)
{
	_cleanup_json_ cJSON *obj = NULL, *machine = NULL;
	int fds[NET_FDS + VM_FDS] = { -1, -1, -1, -1, -1, -1 }, rc;
	size_t n = ARRAY_SIZE(fds);
	uint64_t mb = 0;
	int kvm = 0;

	rc = ipc_recv(v->control, &obj, fds, &n);
	if (rc <= 0)
		return ak_fail(err, EPIPE, "the daemon ended");
	machine = cJSON_DetachItemFromObject(obj, "machine");
	if (machine) {
		const int *vm = fds + n - VM_FDS;

		if (n < VM_FDS || json_get_uint(machine, "memory_mb", UINT32_MAX, &mb, err) < 0 ||
			json_get_bool(machine, "kvm", &kvm, err) < 0)
			return ak_fail(err, EPROTO, "malformed task");
		v->vm = (struct sandbox_vm){ vm[0], vm[1], vm[2], vm[3], .memory_mb = (uint32_t)mb, .kvm = kvm != 0 };
		n -= VM_FDS;
	}
	v->user_ns = n == NET_FDS ? fds[0] : -1;
	v->net_ns = n == NET_FDS ? fds[1] : -1;
	return state_from_json(obj, state, err);
}

static bool started_by_daemon(void)
{
	int type = 0;
	socklen_t len = sizeof(type);

	return getsockopt(SPAWN_FD, SOL_SOCKET, SO_TYPE, &type, &len) == 0 && type == SOCK_SEQPACKET;
}

int super_main(void)
{
	static struct super v = { .vm = SANDBOX_VM_INIT,
		.user_ns = -1,
		.net_ns = -1,
		.peer_rtnl = -1,
		.net_sock = -1,
		.live = -1,
		.control = SPAWN_FD,
		.listener = -1,
		.daemon_pidfd = -1,
		.healer = -1 };
	static struct ak_paths paths;
	static struct state_sandbox state; /* all three too large for a stack */
	struct ak_err err;
	int rc;

	if (!started_by_daemon()) {
		ak_say("%s is an internal command that only the daemon can start", SUPER_WORD);
		return AK_EXIT_USAGE;
	}
	spawn_settle();
	prctl(PR_SET_NAME, "ak-super");
	v.paths = &paths;
	v.state = &state;
	rc = receive_task(&v, &state, &err);
	if (rc == 0)
		rc = ak_paths_init(&paths, &err);
	if (rc < 0)
		(void)ipc_send_error(v.control, -rc, err.text);
	else
		run_supervisor(&v);
	return 0;
}

static int send_task(int control, const struct state_sandbox *s, int user_ns, int net_ns, const struct sandbox_vm *vm)
{
	_cleanup_json_ cJSON *obj = state_to_json(s);
	cJSON *machine = obj && vm->memory >= 0 ? cJSON_AddObjectToObject(obj, "machine") : NULL;
	int fds[NET_FDS + VM_FDS];
	size_t n = 0;

	if (!obj ||
		(vm->memory >= 0 &&
			(!machine || !cJSON_AddNumberToObject(machine, "memory_mb", vm->memory_mb) ||
				!cJSON_AddBoolToObject(machine, "kvm", vm->kvm))))
		return -ENOMEM;
	for (const int *fd = (const int[]){ user_ns, net_ns, vm->memory, vm->state, vm->kernel, vm->initrd, -2 }; *fd != -2;
		fd++) {
		if (*fd >= 0)
			fds[n++] = *fd;
	}
	return ipc_send(control, obj, fds, n);
}

int super_spawn(
	const struct state_sandbox *s, int user_ns, int net_ns, const struct sandbox_vm *vm, int *ret_control, struct ak_err *err)
{
	static char name[] = "agentkernel", word[] = SUPER_WORD;
	char sandbox[AK_NAME_MAX], *const argv[] = { name, word, sandbox, NULL };
	_cleanup_close_ int ours = -1, theirs = -1;
	int pair[2], rc;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return ak_fail_errno(err, errno, "socketpair");
	ours = pair[0];
	theirs = pair[1];
	snprintf(sandbox, sizeof(sandbox), "%s", s->name); /* shown in the process list */
	rc = spawn_detached(argv, theirs, err);
	if (rc < 0)
		return rc;
	rc = send_task(ours, s, user_ns, net_ns, vm);
	if (rc < 0)
		return ak_fail_errno(err, -rc, "supervisor");
	*ret_control = TAKE_FD(ours);
	return 0;
}
