/*
 * Namespaces of a gateway that serves more than one run. A child creates or joins them, opens the sockets, sends everything to
 * its parent and exits.
 */
#include "vmctl/gwns.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "vmctl/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

int gwns_join(int user_ns, int net_ns, struct ak_err *err)
{
	/* The user namespace first: it grants the capability needed for the network namespace. */
	if (setns(user_ns, CLONE_NEWUSER) < 0)
		return ak_fail_errno(err, errno, "joining the gateway's user namespace");
	if (setns(net_ns, CLONE_NEWNET) < 0)
		return ak_fail_errno(err, errno, "joining the gateway's network namespace");
	return 0;
}

/* Map all ids that we may map: an id that is not mapped here cannot be mapped in a sandbox below. */
static int make(struct ak_err *err)
{
	static const struct sandbox_spec plain = { .name = "gateway", .root_inside = true };
	struct sb_ctx ctx = { .spec = &plain, .ctl = -1 };

	sb_trees_init(&ctx.trees);
	sb_ids_plan(&plain, &ctx.ids);
	return sb_enter_outer(&ctx, err);
}

static void child(int sock, int user_ns, int net_ns)
{
	struct gwns ns;
	struct ak_err err = { .text = "" };
	int rc = user_ns >= 0 ? gwns_join(user_ns, net_ns, &err) : make(&err);

	if (rc == 0)
		rc = gwns_open(ns.fds, &err);
	if (rc == 0) {
		ns.user_ns = open("/proc/self/ns/user", O_RDONLY | O_CLOEXEC);
		ns.net_ns = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
		if (ns.user_ns < 0 || ns.net_ns < 0)
			rc = ak_fail_errno(&err, errno, "/proc/self/ns");
	}
	(void)(rc < 0 ? gwns_report_fail(sock, rc, &err) : gwns_report_send(sock, &ns));
}

int gwns_spawn(int user_ns, int net_ns, struct gwns *ret, struct ak_err *err)
{
	int pair[2], rc;
	pid_t parent = getpid(), pid;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return ak_fail_errno(err, errno, "socketpair");
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() == parent)
			child(pair[1], user_ns, net_ns);
		_exit(0);
	}
	ak_close(pair[1]);
	rc = pid < 0 ? ak_fail_errno(err, errno, "fork") : gwns_report_receive(pair[0], ret, err);
	ak_close(pair[0]);
	if (pid > 0)
		waitpid(pid, NULL, 0);
	return rc < 0 ? sb_explain_userns(err, rc) : 0;
}
