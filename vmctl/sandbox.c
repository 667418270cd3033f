/* The caller's side of a sandbox: see sandbox.h. */
#include "vmctl/sandbox.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "vmctl/caller.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

/* How long sandbox_free waits for a killed process. */
#define KILL_PATIENCE_MS 10000
#define NOTES_MAX 16384 /* further notes are dropped */

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

/* A folder as a standard stream would be a way out of the root: its descriptor gives access to everything below. */
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

int sandbox_check_streams(const int stdio[3], struct ak_err *err)
{
	int rc = 0;

	for (int i = 0; i < 3 && rc == 0; i++)
		rc = check_stream(stdio[i], i, err);
	return rc;
}

int sandbox_check_job(const struct sandbox_spec *spec, struct ak_err *err)
{
	if (!spec->name || (spec->argv && (!spec->argv[0] || !spec->envp)))
		return ak_fail(err, EINVAL, "sandbox: name, command and environment are needed");
	if (!spec->argv && spec->tty)
		return ak_fail(err, EINVAL, "sandbox without a command: nothing to give a terminal to");
	if (strlen(spec->name) > 63)
		return ak_fail(err, EINVAL, "sandbox name '%s': longer than 63 characters", spec->name);
	if (spec->home && spec->home[0] != '/')
		return ak_fail(err, EINVAL, "home '%s': must be an absolute path", spec->home);
	return spec->tty || !spec->argv ? 0 : sandbox_check_streams(spec->stdio, err);
}

static int check_spec(const struct sandbox_spec *spec, int net_sock, struct ak_err *err)
{
	if (spec->isolation == SANDBOX_STRICT && spec->root_inside)
		return ak_fail(err, EINVAL, "strict isolation never runs as root inside");
	if (spec->link && net_sock < 0)
		return ak_fail(err, EINVAL, "sandbox with a network link: no socket for the gateway");
	if (spec->parked && (spec->upper_dir || spec->image_root))
		return ak_fail(err, EINVAL, "a parked sandbox cannot have a kept root or an image");
	if (spec->has_ids && spec->root_inside != (spec->uid == 0))
		return ak_fail(err, EINVAL, "user %u of the image does not match root inside", (unsigned)spec->uid);
	return spec->parked ? 0 : sandbox_check_job(spec, err);
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

static pid_t *open_slot(void)
{
	void *p = mmap(NULL, sizeof(pid_t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

static void close_slot(struct sandbox *sb)
{
	if (sb->init_slot)
		munmap(sb->init_slot, sizeof(pid_t));
	sb->init_slot = NULL;
}

/* Fork the setup child. The child never returns from here. */
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
	if (sb->setup_pidfd < 0 || (rc = watch(sb->epoll, sb->setup_pidfd)) < 0)
		return ak_fail_errno(err, rc < 0 ? -rc : errno, "watching the setup process");
	return 0;
}

static void sandbox_freep(struct sandbox **sb)
{
	sandbox_free(*sb);
}

static void prepare(struct sandbox *sb, const struct sandbox_spec *spec)
{
	sb->setup_pidfd = sb->init_pidfd = sb->ctl = sb->epoll = sb->tty = sb->root = sb->children = -1;
	sb->serves = !spec->argv;
	sb->isolation = spec->isolation;
	sb->readonly_root = spec->readonly_root;
	sb->root_inside = spec->root_inside;
	sb->vm = spec->vm != NULL;
	sb->parked = spec->parked;
	sb->mounts = spec->parked ? sandbox_watch_mounts() : -1;
	TAILQ_INIT(&sb->running);
	TAILQ_INIT(&sb->told);
}

/* The threads of QEMU, and podman with its runtime, are not the command's: there RLIMIT_NPROC alone limits processes, inside. */
void sandbox_group(struct sandbox *sb, const struct sandbox_spec *spec)
{
	struct sandbox_limits limits = spec->limits;

	if (spec->vm || spec->podman)
		limits.pids = 0;
	if (limits.pids && sb_removes_set_ids(spec))
		limits.pids++; /* for the helper */
	cgroup_init(&sb->cgroup, spec->name, &limits, &sb->notes);
}

int sandbox_start(const struct sandbox_spec *spec, int net_sock, struct sandbox **ret, struct ak_err *err)
{
	static const struct sandbox_limits no_limits;
	_cleanup_(sandbox_freep) struct sandbox *sb = NULL;
	struct sb_ctx ctx = { .spec = spec, .net_sock = spec->link ? net_sock : -1, .caller = getpid() };
	int rc = check_spec(spec, net_sock, err);

	if (rc < 0)
		return rc;
	sb = calloc(1, sizeof(*sb));
	if (!sb)
		return ak_fail(err, ENOMEM, "out of memory");
	prepare(sb, spec);
	sb_trees_init(&ctx.trees);
	sb_ids_plan(spec, &ctx.ids);
	sb->ids = ctx.ids;
	ctx.kernel_pid_max = pid_max_is_private();
	if (spec->parked)
		cgroup_init(&sb->cgroup, "parked", &no_limits, &sb->notes); /* the job brings the limits */
	else
		sandbox_group(sb, spec);
	ctx.cgroup = sb->cgroup; /* the child's copy; ours stays valid */
	sb->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (sb->epoll < 0)
		return ak_fail_errno(err, errno, "epoll");
	ctx.init_slot = sb->init_slot = open_slot();
	if (!sb->init_slot)
		return ak_fail_errno(err, errno, "shared memory");
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
	sb->result.out_of_memory = cgroup_oom_kills(&sb->cgroup) > 0;
	sb->result.pids_hit = cgroup_pids_refused(&sb->cgroup) > 0;
	sb->root = ak_close(sb->root); /* it would keep the sandbox's files alive */
	sandbox_end_execs(sb);
}

uint64_t sandbox_oom_kills(const struct sandbox *sb)
{
	return cgroup_oom_kills(&sb->cgroup);
}

uint64_t sandbox_pids_refused(const struct sandbox *sb)
{
	return cgroup_pids_refused(&sb->cgroup);
}

/* All ends of the control socket are closed, and nobody reported a result. */
static void on_silence(struct sandbox *sb)
{
	if (sb->killed || sb->state == SANDBOX_RUNNING)
		end(sb, 128 + SIGKILL, "the sandbox was killed");
	else
		end(sb, 125, "the sandbox's first process was killed before it was ready");
}

/* A parked sandbox reports READY twice, the first time without descriptors. */
static void on_ready(struct sandbox *sb, const struct sb_msg *msg, int *fds)
{
	const int what = msg->value;

	sb->init_done = true;
	ak_close(sb->root);
	ak_close(sb->tty);
	ak_close(sb->children);
	sb->root = TAKE_FD(fds[0]);
	sb->tty = what & SB_READY_TTY ? TAKE_FD(fds[1]) : -1;
	sb->children = what & SB_READY_CHILDREN ? TAKE_FD(fds[what & SB_READY_TTY ? 2 : 1]) : -1;
	sb->helper = msg->id;
}

/* Use the pidfd if there is one, so that a reused pid is never hit. */
static void kill_process(pid_t pid, int pidfd)
{
	if (pidfd >= 0)
		syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0);
	else if (pid > 0)
		kill(pid, SIGKILL);
}

/* Wait until the process has ended; false if it is still there after TIMEOUT_MS. */
static bool reap(const struct sandbox *sb, pid_t *pid, int *pidfd, int timeout_ms)
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
	/* Remove it explicitly: a process forked since may hold a copy, which would keep it in the epoll set. */
	epoll_ctl(sb->epoll, EPOLL_CTL_DEL, *pidfd, NULL);
	*pidfd = ak_close(*pidfd);
	return true;
}

/* init is our child, so its pid is not reused until we reap it. */
static void learn_init(struct sandbox *sb)
{
	pid_t pid = sb->init_slot ? __atomic_load_n(sb->init_slot, __ATOMIC_ACQUIRE) : 0;

	if (pid <= 0)
		return;
	sb->init_pid = pid;
	sb->init_pidfd = open_pidfd(pid);
	close_slot(sb);
}

/* Descriptors that are not taken over stay in FDS. */
static void on_message(struct sandbox *sb, const struct sb_msg *msg, int *fds)
{
	switch (msg->type) {
	case SB_MSG_NETWORK:
		sb->network_done = true;
		break;
	case SB_MSG_NOTE:
		if (sb->notes.len < NOTES_MAX)
			strbuf_printf(&sb->notes, "%s\n", msg->text);
		break;
	case SB_MSG_READY:
		on_ready(sb, msg, fds);
		break;
	case SB_MSG_FAILED:
	case SB_MSG_EXITED:
		end(sb, msg->value, msg->text);
		break;
	case SB_MSG_EXEC_STARTED:
	case SB_MSG_EXEC_LEFT:
	case SB_MSG_EXEC_ENDED:
		sandbox_on_exec(sb, msg, TAKE_FD(fds[0]));
		break;
	}
	if (sb->state == SANDBOX_STARTING && sb->network_done && sb->init_done)
		sb->state = SANDBOX_READY;
}

/* Handle one message; false when there is none. */
static bool take_message(struct sandbox *sb)
{
	int fds[SB_FDS_MAX], rc;
	struct sb_msg msg;
	size_t n;

	rc = sb_recv(sb->ctl, &msg, fds, &n);
	if (rc == -EAGAIN)
		return false;
	for (size_t i = n; rc > 0 && i < SB_FDS_MAX; i++)
		fds[i] = -1;
	if (rc > 0 || rc == -EMSGSIZE) { /* -EMSGSIZE: we had no room for its descriptors */
		if (rc < 0)
			memset(fds, -1, sizeof(fds));
		on_message(sb, &msg, fds);
		for (size_t i = 0; i < SB_FDS_MAX; i++)
			ak_close(fds[i]);
		return true;
	}
	sb->ctl = ak_close(sb->ctl);
	on_silence(sb);
	return false;
}

static void take_messages(struct sandbox *sb)
{
	while (sb->ctl >= 0 && take_message(sb))
		;
}

/* If the setup process was killed, nobody else completes its work. */
static void check_setup(struct sandbox *sb)
{
	if (sb->setup_pid <= 0 || !reap(sb, &sb->setup_pid, &sb->setup_pidfd, 0))
		return;
	learn_init(sb);
	close_slot(sb);
	take_messages(sb); /* messages that it sent before it ended */
	if (sb->state != SANDBOX_STARTING || sb->network_done)
		return;
	kill_process(sb->init_pid, sb->init_pidfd);
	on_silence(sb);
}

enum sandbox_state sandbox_poll(struct sandbox *sb)
{
	learn_init(sb);
	take_messages(sb);
	check_setup(sb);
	return sb->state;
}

int sandbox_go(struct sandbox *sb, struct ak_err *err)
{
	int rc;

	if (sb->state != SANDBOX_READY || sb->parked)
		return ak_fail(err, EBUSY, "the sandbox is not ready");
	rc = sb_send(sb->ctl, SB_MSG_GO, 0, NULL, -1);
	if (rc < 0)
		return ak_fail_errno(err, -rc, "control socket");
	sb->state = SANDBOX_RUNNING;
	sb->notes_at_go = sb->notes.len;
	return 0;
}

/* Afterwards there is no setup process, and init is known if it was started. */
static void end_setup(struct sandbox *sb)
{
	kill_process(sb->setup_pid, sb->setup_pidfd);
	reap(sb, &sb->setup_pid, &sb->setup_pidfd, KILL_PATIENCE_MS);
	learn_init(sb);
}

int sandbox_signal(struct sandbox *sb, int sig)
{
	sandbox_poll(sb);
	if (sb->state == SANDBOX_ENDED)
		return -ESRCH;
	if (sig != SIGKILL)
		return sb_send(sb->ctl, SB_MSG_SIGNAL, sig, NULL, -1);
	sb->killed = true;
	end_setup(sb);
	kill_process(sb->init_pid, sb->init_pidfd);
	return 0;
}

int sandbox_tty_fd(const struct sandbox *sb)
{
	return sb->tty;
}

int sandbox_root_fd(const struct sandbox *sb)
{
	int fd = sb->root < 0 ? -1 : fcntl(sb->root, F_DUPFD_CLOEXEC, 3);

	return sb->root < 0 ? -ENOENT : fd < 0 ? -errno : fd;
}

bool sandbox_idle(const struct sandbox *sb)
{
	char text[32], *end;
	ssize_t n = sb->children < 0 ? -1 : pread(sb->children, text, sizeof(text) - 1, 0);

	if (n <= 0)
		return n == 0;
	text[n] = '\0';
	return sb->helper && strtoul(text, &end, 10) == sb->helper && strspn(end, " ") == strlen(end);
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

static void end_processes(struct sandbox *sb)
{
	end_setup(sb);
	kill_process(sb->init_pid, sb->init_pidfd);
	sb->ctl = ak_close(sb->ctl);
	reap(sb, &sb->init_pid, &sb->init_pidfd, KILL_PATIENCE_MS);
}

static bool has_ended(pid_t pid, int pidfd)
{
	struct pollfd p = { .fd = pidfd, .events = POLLIN };

	return pid <= 0 || pidfd < 0 || poll(&p, 1, 0) > 0;
}

bool sandbox_gone(const struct sandbox *sb)
{
	return !sb || (has_ended(sb->setup_pid, sb->setup_pidfd) && has_ended(sb->init_pid, sb->init_pidfd));
}

void sandbox_free(struct sandbox *sb)
{
	if (!sb)
		return;
	end_processes(sb);
	close_slot(sb);
	ak_close(sb->setup_pidfd);
	ak_close(sb->init_pidfd);
	ak_close(sb->epoll);
	ak_close(sb->tty);
	ak_close(sb->root);
	ak_close(sb->children);
	ak_close(sb->mounts);
	sandbox_free_execs(sb);
	cgroup_done(&sb->cgroup);
	strbuf_done(&sb->notes);
	free(sb);
}
