/* The caller's side of a sandbox: see sandbox.h. */
#include "vmctl/sandbox.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/base/strbuf.h"
#include "vmctl/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

/* How long sandbox_free waits for a process that was told to end. */
#define SETUP_PATIENCE_MS 2000
#define KILL_PATIENCE_MS 10000

struct sandbox {
	enum sandbox_state state;
	struct sandbox_result result;
	struct cgroup cgroup;
	struct strbuf notes;
	pid_t setup_pid, init_pid; /* 0 when there is none, or it was reaped */
	int setup_pidfd, init_pidfd; /* owned, like all below */
	int ctl;
	int epoll; /* what sandbox_fd gives out */
	int tty;
	bool killed; /* by sandbox_signal */
};

/* ---- messages, for both sides ---- */

int sb_send(int ctl, enum sb_msg_type type, int value, const char *text, int fd)
{
	struct sb_msg msg = { .type = type, .value = value };
	size_t len = offsetof(struct sb_msg, text);

	if (text) {
		snprintf(msg.text, sizeof(msg.text), "%s", text);
		len += strlen(msg.text) + 1;
	}
	return ak_send_fds(ctl, &msg, len, &fd, fd >= 0 ? 1 : 0);
}

int sb_recv(int ctl, struct sb_msg *ret, int *ret_fd)
{
	int fd = -1;
	size_t n_fds = ret_fd ? 1 : 0;
	ssize_t n = ak_recv_fds(ctl, ret, sizeof(*ret), &fd, &n_fds);

	if (n <= 0)
		return n == -ECONNRESET ? 0 : (int)n;
	if ((size_t)n < offsetof(struct sb_msg, text)) {
		ak_close(fd);
		return -EBADMSG;
	}
	if ((size_t)n == offsetof(struct sb_msg, text))
		ret->text[0] = '\0';
	ret->text[sizeof(ret->text) - 1] = '\0';
	if (ret_fd)
		*ret_fd = fd;
	return 1;
}

_Noreturn void sb_child_fail(int ctl, int exit_code, const struct ak_err *err)
{
	sb_send(ctl, SB_MSG_FAILED, exit_code, err->text, -1);
	_exit(exit_code);
}

int sb_keep_fds(const int *fds, size_t n)
{
	unsigned next = 0;

	for (;;) {
		int keep = -1;

		for (size_t i = 0; i < n; i++) {
			if (fds[i] >= (int)next && (keep < 0 || fds[i] < keep))
				keep = fds[i];
		}
		if (keep < 0)
			break;
		if ((unsigned)keep > next && syscall(SYS_close_range, next, (unsigned)keep - 1, 0) < 0)
			return -errno;
		next = (unsigned)keep + 1;
	}
	return syscall(SYS_close_range, next, ~0u, 0) < 0 ? -errno : 0;
}

/* ---- start ---- */

/* Since Linux 6.14 every pid namespace has its own pid_max. */
static bool pid_max_is_private(void)
{
	struct utsname un;
	unsigned major, minor;

	if (uname(&un) < 0 || sscanf(un.release, "%u.%u", &major, &minor) != 2)
		return false;
	return major > 6 || (major == 6 && minor >= 14);
}

/* A folder as a standard stream would be a way out of the root: everything below it can be reached from its descriptor. */
static int check_stream(int fd, int number, struct ak_err *err)
{
	static const char *const names[] = { "standard input", "standard output", "standard error" };
	int flags = fd < 0 ? -1 : fcntl(fd, F_GETFL);
	struct stat st;

	if (flags < 0)
		return 0;
	if ((flags & O_PATH) || (fstat(fd, &st) == 0 && S_ISDIR(st.st_mode)))
		return ak_fail(err, EISDIR, "%s is a folder", names[number]);
	return 0;
}

static int check_spec(const struct sandbox_spec *spec, int net_sock, struct ak_err *err)
{
	if (!spec->name || !spec->argv || !spec->argv[0] || !spec->envp)
		return ak_fail(err, EINVAL, "sandbox: name, command and environment are needed");
	if (strlen(spec->name) > 63)
		return ak_fail(err, EINVAL, "sandbox name '%s': longer than 63", spec->name);
	if (spec->isolation == SANDBOX_STRICT && spec->root_inside)
		return ak_fail(err, EINVAL, "strict isolation never runs as root inside");
	if (spec->home && spec->home[0] != '/')
		return ak_fail(err, EINVAL, "home '%s': must be an absolute path", spec->home);
	if (spec->link && net_sock < 0)
		return ak_fail(err, EINVAL, "sandbox with a network link: no socket for the gateway");
	for (int i = 0; i < 3 && !spec->tty; i++) {
		int rc = check_stream(spec->stdio[i], i, err);

		if (rc < 0)
			return rc;
	}
	return 0;
}

static int watch(int epoll, int fd)
{
	struct epoll_event ev = { .events = EPOLLIN, .data.fd = fd };

	return epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &ev) < 0 ? -errno : 0;
}

static int open_pidfd(pid_t pid)
{
	return (int)syscall(SYS_pidfd_open, pid, 0);
}

/* The fork. The child never returns from here. */
static int start_setup(struct sandbox *sb, struct sb_ctx *ctx, struct ak_err *err)
{
	int pair[2], rc;
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return ak_fail_errno(err, errno, "control socket");
	sb->ctl = pair[0];
	ctx->ctl = pair[1];
	rc = ak_set_nonblock(sb->ctl, true);
	if (rc == 0)
		rc = watch(sb->epoll, sb->ctl);
	if (rc < 0) {
		ak_close(pair[1]);
		return ak_fail_errno(err, -rc, "control socket");
	}
	pid = fork();
	if (pid == 0)
		sb_setup_main(ctx);
	rc = pid < 0 ? ak_fail_errno(err, errno, "fork") : 0;
	ak_close(pair[1]);
	if (rc < 0)
		return rc;
	sb->setup_pid = pid;
	sb->setup_pidfd = open_pidfd(pid);
	return 0;
}

static void sandbox_freep(struct sandbox **sb)
{
	sandbox_free(*sb);
}

int sandbox_start(const struct sandbox_spec *spec, int net_sock, struct sandbox **ret, struct ak_err *err)
{
	_cleanup_(sandbox_freep) struct sandbox *sb = NULL;
	struct sb_ctx ctx = { .spec = spec, .net_sock = spec->link ? net_sock : -1, .caller = getpid() };
	int rc = check_spec(spec, net_sock, err);

	if (rc < 0)
		return rc;
	sb = calloc(1, sizeof(*sb));
	if (!sb)
		return ak_fail(err, ENOMEM, "out of memory");
	sb->setup_pidfd = sb->init_pidfd = sb->ctl = sb->epoll = sb->tty = -1;
	sb_ids_plan(spec, &ctx.ids);
	ctx.kernel_pid_max = pid_max_is_private();
	cgroup_init(&sb->cgroup, spec->name, &spec->limits, ctx.ids.uid == 0 && !ctx.kernel_pid_max, &sb->notes);
	ctx.cgroup = sb->cgroup; /* the fork's copy; stays ours */
	sb->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (sb->epoll < 0)
		return ak_fail_errno(err, errno, "epoll");
	rc = start_setup(sb, &ctx, err);
	if (rc < 0)
		return rc;
	*ret = TAKE(sb);
	return 0;
}

/* ---- while it lives ---- */

int sandbox_fd(const struct sandbox *sb)
{
	return sb->epoll;
}

static void end(struct sandbox *sb, int exit_code, const char *reason)
{
	if (sb->state == SANDBOX_ENDED)
		return;
	sb->state = SANDBOX_ENDED;
	sb->result.exit_code = exit_code;
	snprintf(sb->result.err.text, sizeof(sb->result.err.text), "%s", reason);
	sb->result.out_of_memory = cgroup_oom_killed(&sb->cgroup);
	sb->result.pids_hit = cgroup_pids_hit(&sb->cgroup);
}

/* All ends of the control socket are closed and nobody said how it ended. */
static void on_silence(struct sandbox *sb)
{
	if (sb->killed || sb->state == SANDBOX_RUNNING)
		end(sb, 128 + SIGKILL, "the sandbox was killed");
	else
		end(sb, 125, "the sandbox's first process was killed before it was ready");
}

static void on_message(struct sandbox *sb, const struct sb_msg *msg, int fd)
{
	switch (msg->type) {
	case SB_MSG_INIT_PID:
		sb->init_pid = msg->value;
		sb->init_pidfd = open_pidfd(sb->init_pid);
		break;
	case SB_MSG_NOTE:
		strbuf_printf(&sb->notes, "%s\n", msg->text);
		break;
	case SB_MSG_READY:
		if (sb->state == SANDBOX_STARTING)
			sb->state = SANDBOX_READY;
		sb->tty = TAKE_FD(fd);
		break;
	case SB_MSG_FAILED:
	case SB_MSG_EXITED:
		end(sb, msg->value, msg->text);
		break;
	}
	ak_close(fd);
}

enum sandbox_state sandbox_poll(struct sandbox *sb)
{
	while (sb->ctl >= 0) {
		struct sb_msg msg;
		int fd = -1, rc = sb_recv(sb->ctl, &msg, &fd);

		if (rc == -EAGAIN)
			break;
		if (rc > 0) {
			on_message(sb, &msg, fd);
			continue;
		}
		sb->ctl = ak_close(sb->ctl);
		on_silence(sb);
	}
	return sb->state;
}

int sandbox_go(struct sandbox *sb, struct ak_err *err)
{
	int rc;

	if (sb->state != SANDBOX_READY)
		return ak_fail(err, EBUSY, "the sandbox is not ready");
	rc = sb_send(sb->ctl, SB_MSG_GO, 0, NULL, -1);
	if (rc < 0)
		return ak_fail_errno(err, -rc, "control socket");
	sb->state = SANDBOX_RUNNING;
	return 0;
}

/* By descriptor where there is one, so that a recycled pid is never hit. */
static void kill_process(pid_t pid, int pidfd)
{
	if (pidfd >= 0)
		syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0);
	else if (pid > 0)
		kill(pid, SIGKILL);
}

int sandbox_signal(struct sandbox *sb, int sig)
{
	sandbox_poll(sb);
	if (sb->state == SANDBOX_ENDED)
		return -ESRCH;
	if (sig != SIGKILL)
		return sb_send(sb->ctl, SB_MSG_SIGNAL, sig, NULL, -1);
	sb->killed = true;
	kill_process(sb->setup_pid, sb->setup_pidfd);
	kill_process(sb->init_pid, sb->init_pidfd);
	return 0;
}

int sandbox_tty_fd(const struct sandbox *sb)
{
	return sb->tty;
}

pid_t sandbox_init_pid(const struct sandbox *sb)
{
	return sb->init_pid;
}

const struct sandbox_result *sandbox_result(const struct sandbox *sb)
{
	return sb->state == SANDBOX_ENDED ? &sb->result : NULL;
}

const char *sandbox_notes(const struct sandbox *sb)
{
	return sb->notes.data ? sb->notes.data : "";
}

/* ---- end ---- */

/* Wait until the process is gone; false when it is still there after TIMEOUT_MS. */
static bool reap(pid_t *pid, int *pidfd, int timeout_ms)
{
	struct pollfd p = { .fd = *pidfd, .events = POLLIN };
	pid_t rc;

	if (*pid <= 0)
		return true;
	if (*pidfd >= 0) {
		while (poll(&p, 1, timeout_ms) < 0 && errno == EINTR)
			;
	}
	do {
		rc = waitpid(*pid, NULL, __WALL | (*pidfd >= 0 ? WNOHANG : 0));
	} while (rc < 0 && errno == EINTR);
	if (rc == 0)
		return false;
	*pid = 0;
	*pidfd = ak_close(*pidfd);
	return true;
}

/*
 * The setup process is left to finish: it is about to tell us init's pid, and killed in between it would
 * leave us a child that we do not know of.
 */
static void end_processes(struct sandbox *sb)
{
	if (!reap(&sb->setup_pid, &sb->setup_pidfd, SETUP_PATIENCE_MS)) {
		kill_process(sb->setup_pid, sb->setup_pidfd);
		reap(&sb->setup_pid, &sb->setup_pidfd, KILL_PATIENCE_MS);
	}
	sandbox_poll(sb);
	if (sb->state != SANDBOX_ENDED)
		kill_process(sb->init_pid, sb->init_pidfd);
	sb->ctl = ak_close(sb->ctl);
	if (!reap(&sb->init_pid, &sb->init_pidfd, sb->state == SANDBOX_ENDED ? 100 : KILL_PATIENCE_MS)) {
		kill_process(sb->init_pid, sb->init_pidfd);
		reap(&sb->init_pid, &sb->init_pidfd, KILL_PATIENCE_MS);
	}
}

void sandbox_free(struct sandbox *sb)
{
	if (!sb)
		return;
	end_processes(sb);
	ak_close(sb->setup_pidfd);
	ak_close(sb->init_pidfd);
	ak_close(sb->epoll);
	ak_close(sb->tty);
	cgroup_done(&sb->cgroup);
	strbuf_done(&sb->notes);
	free(sb);
}
