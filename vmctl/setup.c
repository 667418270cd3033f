/*
 * The short-lived child between the caller and the sandbox's init. It creates the outer user namespace and the sandbox's
 * network namespace in it, and starts init there as the caller's child. While init builds the root, it creates the gateway's
 * network namespace, connects the two, sends the gateway's sockets to the caller and exits.
 */
#include "vmctl/internal.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "vmctl/vm.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef CLONE_INTO_CGROUP
#define CLONE_INTO_CGROUP 0x200000000ULL
#endif
#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x00000080
#endif

/* Die with the caller, which may already be dead. */
static int follow_caller(const struct sb_ctx *ctx)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	return getppid() == ctx->caller ? 0 : -ESRCH;
}

/* Move from the sandbox's network namespace to the gateway's, new or existing, and open the sockets that we have to send. */
static int enter_gateway(const struct sandbox_spec *spec, int ret_fds[static GWNS_FD_NUM], int *ret_rtnl, struct ak_err *err)
{
	int rc;

	if (!sb_joins(spec)) {
		if (unshare(CLONE_NEWNET) < 0)
			return ak_fail_errno(err, errno, "network namespace for the gateway");
		rc = gwns_open(ret_fds, err);
		if (rc < 0)
			return rc;
		*ret_rtnl = fcntl(ret_fds[GWNS_RTNL], F_DUPFD_CLOEXEC, 3);
		return *ret_rtnl < 0 ? ak_fail_errno(err, errno, "descriptor") : 0;
	}
	if (setns(spec->gw_net_ns, CLONE_NEWNET) < 0)
		return ak_fail_errno(err, errno, "joining the gateway's network namespace");
	*ret_rtnl = gwns_open_rtnl(err);
	return *ret_rtnl < 0 ? *ret_rtnl : 0;
}

/* A virtual machine's link is a tap; its sandbox's network namespace has only loopback. */
static int connect_tap(const struct sb_ctx *ctx, int rtnl, struct ak_err *err)
{
	_cleanup_close_ int tap = -1;
	int rc = ctx->spec->link ? gwns_connect_tap(rtnl, ctx->spec->link, &tap, err) : gwns_spare_tap(&tap, err);

	if (rc == 0)
		rc = ak_send_fds(ctx->tap_pair[0], "t", 1, &tap, 1);
	return rc < 0 && !err->text[0] ? ak_fail_errno(err, -rc, "passing on the tap") : rc;
}

static int connect_gateway(const struct sb_ctx *ctx, int fds[static GWNS_FD_NUM], struct ak_err *err)
{
	_cleanup_(gwns_peer_done) struct gwns_peer peer = { -1, -1 };
	_cleanup_close_ int rtnl = -1;
	int rc = gwns_peer_open(&peer, err);

	if (rc == 0)
		rc = enter_gateway(ctx->spec, fds, &rtnl, err);
	if (rc == 0)
		rc = ctx->spec->vm ? connect_tap(ctx, rtnl, err) : gwns_connect(rtnl, &peer, ctx->spec->link, err);
	if (rc < 0)
		return rc;
	fds[GWNS_PEER_RTNL] = TAKE_FD(peer.rtnl);
	return gwns_sockets_send(ctx->net_sock, fds, err);
}

static int build_network(const struct sb_ctx *ctx, struct ak_err *err)
{
	int fds[GWNS_FD_NUM], rc;

	for (unsigned i = 0; i < GWNS_FD_NUM; i++)
		fds[i] = -1;
	rc = ctx->spec->link ? connect_gateway(ctx, fds, err) : gwns_loopback_only(err);
	if (rc == 0 && ctx->spec->vm && !ctx->spec->link)
		rc = connect_tap(ctx, -1, err);
	for (unsigned i = 0; i < GWNS_FD_NUM; i++)
		ak_close(fds[i]);
	return rc;
}

/*
 * Call clone3 directly: the C library has no wrapper, and fork supports neither namespaces nor a cgroup. The kernel stores
 * init's pid in memory shared with the caller, so the caller always knows of init, however this process ends.
 */
static pid_t clone_init(const struct sb_ctx *ctx)
{
	struct clone_args args = {
		.flags = CLONE_PARENT | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS |
			CLONE_NEWCGROUP | CLONE_NEWTIME | CLONE_PARENT_SETTID,
		.parent_tid = (uintptr_t)ctx->init_slot,
	};
	long pid;

	if (ctx->cgroup.v2_fd >= 0) {
		args.flags |= CLONE_INTO_CGROUP;
		args.cgroup = (uint64_t)ctx->cgroup.v2_fd;
	}
	pid = syscall(SYS_clone3, &args, sizeof(args));
	if (pid < 0 && errno == EINVAL) { /* a kernel built without time namespaces */
		args.flags &= ~(uint64_t)CLONE_NEWTIME;
		pid = syscall(SYS_clone3, &args, sizeof(args));
	}
	return pid < 0 ? -errno : (pid_t)pid;
}

/* With ranges, init waits on a pipe until its parent has written its id map, because only the parent namespace may. */
static int start_init(struct sb_ctx *ctx, struct ak_err *err)
{
	const struct sb_ids ids = sb_init_ids(ctx);
	int go[2] = { -1, -1 }, rc;
	pid_t pid;

	if (sb_maps_range(&ids) && pipe2(go, O_CLOEXEC) < 0)
		return ak_fail_errno(err, errno, "pipe");
	pid = clone_init(ctx);
	if (pid == 0) {
		ak_close(go[1]);
		sb_init_main(ctx, go[0]);
	}
	if (pid < 0) {
		rc = ak_fail_errno(err, -pid, "cannot create the sandbox's namespaces");
		return sb_explain_userns(err, rc);
	}
	if (!sb_maps_range(&ids))
		return 0;
	rc = sb_map_inner(&ids, pid, err);
	if (rc == 0)
		rc = ak_write_all(go[1], "m", 1);
	ak_close(go[0]);
	ak_close(go[1]);
	return rc;
}

/* Close the caller's other descriptors: init gets only those on this list. */
static int keep_needed(const struct sb_ctx *ctx)
{
	static const int none[3] = { -1, -1, -1 };
	const int *join = ctx->cgroup.join_fds, *stdio = ctx->spec->argv && !ctx->spec->parked ? ctx->spec->stdio : none;
	const struct sandbox_vm *vm = ctx->spec->vm;
	const bool joins = sb_joins(ctx->spec);
	int fds[] = { ctx->ctl, ctx->net_sock, stdio[0], stdio[1], stdio[2], ctx->cgroup.v2_fd, join[0], join[1], join[2],
		joins ? ctx->spec->gw_user_ns : -1, joins ? ctx->spec->gw_net_ns : -1, vm ? vm->memory : -1, vm ? vm->state : -1,
		vm ? vm->kernel : -1, vm ? vm->initrd : -1, vm && ctx->spec->debug > 0 ? ctx->spec->debug : -1 };

	return sb_keep_fds(fds, ARRAY_SIZE(fds));
}

/* Open what the sandbox's id cannot reach: folders, the control group, and the caller's pipes through /proc. */
static int open_as_root(struct sb_ctx *ctx, struct ak_err *err)
{
	_cleanup_close_ int procs = cgroup_open_procs(&ctx->cgroup);
	int rc = sb_ids_check(&ctx->ids, err);

	if (rc < 0)
		return rc;
	if (procs >= 0 && write(procs, "0", 1) < 0)
		return ak_fail_errno(err, errno, "joining the control group");
	ctx->cgroup.v2_fd = -1; /* already joined */
	if (ctx->spec->parked)
		return 0;
	if (ctx->spec->argv && !ctx->spec->tty)
		sb_ids_give_pipes(&ctx->ids, ctx->spec->stdio);
	return sb_trees_open(&ctx->trees, ctx->spec, err);
}

/*
 * Make the sandbox the first victim when memory runs out; not possible everywhere. Done here, because processes that inherit a
 * score set by the host's root cannot lower it. The same for core dumps: only the host's root can raise a limit of 0
 * (confine.c).
 */
static void offer_ourselves(void)
{
	const struct rlimit core = { 1, 1 };

	ak_write_file("/proc/self/oom_score_adj", "500");
	setrlimit(RLIMIT_CORE, &core);
}

static int setup(struct sb_ctx *ctx, struct ak_err *err)
{
	int rc = keep_needed(ctx);

	if (rc < 0)
		return ak_fail_errno(err, -rc, "closing inherited descriptors");
	if (ctx->spec->vm && socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ctx->tap_pair) < 0)
		return ak_fail_errno(err, errno, "socketpair");
	offer_ourselves();
	rc = cgroup_join(&ctx->cgroup);
	if (rc < 0)
		return ak_fail_errno(err, -rc, "joining the control group");
	if (ctx->ids.lent && (rc = open_as_root(ctx, err)) < 0)
		return rc;
	rc = sb_joins(ctx->spec) ? sb_join_outer(ctx, err) : sb_enter_outer(ctx, err);
	if (rc < 0)
		return rc;
	if (follow_caller(ctx) < 0) /* here, because the change of credentials clears it */
		_exit(1);
	rc = start_init(ctx, err);
	if (rc < 0)
		return rc;
	rc = build_network(ctx, err);
	if (rc < 0)
		return sb_explain_userns(err, rc);
	rc = sb_send(ctx->ctl, SB_MSG_NETWORK, 0, NULL, -1);
	return rc < 0 ? ak_fail_errno(err, -rc, "control socket") : 0;
}

_Noreturn void sb_setup_main(struct sb_ctx *ctx)
{
	struct ak_err err;
	sigset_t all;

	/*
	 * The caller's handlers must not run here. If the caller ignores SIGCHLD, init must not inherit that: it waits for
	 * children.
	 */
	signal(SIGCHLD, SIG_DFL);
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, NULL);
	/* A process that is not dumpable cannot write its own id map. init makes itself undumpable again. */
	prctl(PR_SET_DUMPABLE, 1);
	if (setup(ctx, &err) < 0)
		sb_child_fail(ctx->ctl, 125, &err);
	_exit(0);
}
