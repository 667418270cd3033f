/*
 * A process for each call: see mcp/worker.h.
 *
 * The process is a copy of ours that never executes another program: it calls the tool and writes the result object into a pipe. It dies with us.
 * How it is ended: SIGTERM, which a run hands to its command; then SIGINT twice, which is how a user ends a run that does not listen, and which
 * leaves its records whole; at last SIGKILL, with which the kernel takes the sandbox down too.
 */
#include "gateway/mcp/worker.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define RESULT_MAX (64u << 20) /* more than any tool says */
#define READS_MAX 16 /* in a row: more than a pipe holds, and others have their turn */

static const struct {
	int sig;
	unsigned wait_ms; /* until the next step */
} steps[] = { { SIGTERM, 250 }, { SIGINT, 50 }, { SIGINT, 700 }, { SIGKILL, 1000 } };

/* ---- inside ---- */

static void default_signals(void)
{
	sigset_t none;

	for (int sig = 1; sig < NSIG; sig++)
		signal(sig, SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

/* Nothing of ours is left open but the pipe and LOCK (may be -1); what is said on standard error is kept for the result. */
static int own_streams(int out, int lock)
{
	const int keep[] = { out, lock };
	_cleanup_close_ int notes = -1;

	ak_close_others(keep, ARRAY_SIZE(keep));
	notes = memfd_create("notes", MFD_CLOEXEC);
	return notes < 0 || dup2(notes, STDERR_FILENO) < 0 ? -errno : 0;
}

static int work(const struct mcp_request *request, bool structured, int out, pid_t parent)
{
	_cleanup_strbuf_ struct strbuf text = { 0 };
	struct mcp_result result = { 0 };

	default_signals();
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	/* Whoever makes a sandbox keeps our lock meanwhile, so that no guard looks for it too early. */
	if (getppid() != parent || own_streams(out, request->tool->makes ? request->owner->lock_fd : -1) < 0)
		return 1;
	request->tool->run(request, &result);
	mcp_result_print(&result, structured, &text);
	mcp_result_done(&result);
	return text.failed || ak_write_all(out, text.data, text.len) < 0;
}

/* ---- outside ---- */

int mcp_worker_spawn(struct mcp_worker *w, const struct mcp_request *request, struct ak_err *err)
{
	pid_t parent = getpid(), pid;
	int fds[2];

	if (pipe2(fds, O_CLOEXEC) < 0)
		return ak_fail_errno(err, errno, "pipe");
	pid = fork();
	if (pid == 0)
		_exit(work(request, w->call->structured, fds[1], parent));
	ak_close(fds[1]);
	if (pid < 0) {
		int code = errno;

		ak_close(fds[0]);
		return ak_fail_errno(err, code, "fork");
	}
	ak_set_nonblock(fds[0], true);
	w->pid = pid;
	w->fd = fds[0];
	w->began_ms = w->told_ms = ak_now_ms();
	w->deadline_ms = w->began_ms + mcp_tool_limit_ms(request->tool, request->args);
	return 0;
}

void mcp_worker_end(struct mcp_worker *w, uint64_t now_ms)
{
	if (w->pid <= 0 || (w->step > 0 && now_ms < w->step_ms) || w->step >= ARRAY_SIZE(steps))
		return;
	kill(w->pid, steps[w->step].sig);
	w->step_ms = now_ms + steps[w->step].wait_ms;
	w->step++;
}

void mcp_worker_read(struct mcp_worker *w)
{
	char buf[65536];
	ssize_t n;

	for (int i = 0; w->fd >= 0 && i < READS_MAX; i++) {
		n = read(w->fd, buf, sizeof(buf));
		if (n == 0)
			w->fd = ak_close(w->fd);
		else if (n < 0 && errno != EINTR)
			return;
		else if (n > 0 && w->said.len + (size_t)n > RESULT_MAX)
			w->said.failed = true;
		else if (n > 0)
			strbuf_add(&w->said, buf, (size_t)n);
	}
}

bool mcp_worker_ended(struct mcp_worker *w)
{
	int status;

	if (w->pid <= 0 || waitpid(w->pid, &status, WNOHANG) != w->pid)
		return false;
	w->pid = 0;
	mcp_worker_read(w);
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
		w->said.failed = true;
	return true;
}

void mcp_worker_free(struct mcp_worker *w)
{
	if (w->pid > 0) {
		kill(w->pid, SIGKILL);
		while (waitpid(w->pid, NULL, 0) < 0 && errno == EINTR)
			;
	}
	ak_close(w->fd);
	strbuf_done(&w->said);
	free(w);
}
