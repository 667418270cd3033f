/*
 * A gateway's namespaces for longer than one run: made, or joined again, by a child that opens the sockets, passes everything up and exits.
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

/* Then, in order: user namespace, network namespace, the sockets whose bits are set. */
struct report {
	uint32_t mask;
	int32_t code; /* 0, or -errno and the reason */
	char reason[AK_ERR_MAX];
};

int gwns_join(int user_ns, int net_ns, struct ak_err *err)
{
	/* The user namespace first: it grants the capability that the other one asks for. */
	if (setns(user_ns, CLONE_NEWUSER) < 0)
		return ak_fail_errno(err, errno, "joining the gateway's user namespace");
	if (setns(net_ns, CLONE_NEWNET) < 0)
		return ak_fail_errno(err, errno, "joining the gateway's network namespace");
	return 0;
}

/* With all the ids that we may map: what is not mapped here cannot be mapped in a sandbox below. */
static int make(struct ak_err *err)
{
	static const struct sandbox_spec plain = { .name = "gateway", .root_inside = true };
	struct sb_ctx ctx = { .spec = &plain, .ctl = -1 };

	sb_ids_plan(&plain, &ctx.ids);
	return sb_enter_outer(&ctx, err);
}

static void child(int sock, int user_ns, int net_ns)
{
	int fds[GWNS_FD_NUM], all[AK_FDS_MAX];
	struct report report = { 0 };
	struct ak_err err = { .text = "" };
	size_t n = 0;
	int rc = user_ns >= 0 ? gwns_join(user_ns, net_ns, &err) : make(&err);

	if (rc == 0)
		rc = gwns_open(fds, &err);
	if (rc < 0) {
		report.code = rc;
		memcpy(report.reason, err.text, sizeof(report.reason));
		ak_send_fds(sock, &report, sizeof(report), NULL, 0);
		return;
	}
	all[n++] = open("/proc/self/ns/user", O_RDONLY | O_CLOEXEC);
	all[n++] = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	for (int i = 0; i < GWNS_FD_NUM; i++) {
		if (fds[i] < 0)
			continue;
		report.mask |= 1u << i;
		all[n++] = fds[i];
	}
	ak_send_fds(sock, &report, sizeof(report), all, n);
}

static int receive(int sock, struct gwns *ret, struct ak_err *err)
{
	struct report report;
	int got[AK_FDS_MAX];
	size_t n = AK_FDS_MAX, at = 2;
	ssize_t len = ak_recv_fds(sock, &report, sizeof(report), got, &n);

	if (len != sizeof(report))
		return ak_fail(err, EPIPE, "the process that makes the gateway's namespaces was ended");
	report.reason[sizeof(report.reason) - 1] = '\0';
	if (report.code < 0)
		return ak_fail(err, -report.code, "%s", report.reason);
	ret->user_ns = got[0];
	ret->net_ns = got[1];
	for (int i = 0; i < GWNS_FD_NUM; i++)
		ret->fds[i] = report.mask & 1u << i && at < n ? got[at++] : -1;
	return 0;
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
	rc = pid < 0 ? ak_fail_errno(err, errno, "fork") : receive(pair[0], ret, err);
	ak_close(pair[0]);
	if (pid > 0)
		waitpid(pid, NULL, 0);
	return rc < 0 ? sb_explain_userns(err, rc) : 0;
}
