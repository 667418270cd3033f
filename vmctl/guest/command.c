/* Commands and connections in the guest. A command runs in a session and a control group of its own, its streams through pipes or a terminal. */
#include "agent.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

enum { IN, OUT, ERR, STREAMS };

struct command {
	bool used, tty, exited;
	bool socket, connecting; /* a connection, which has no process: in and out are one socket */
	pid_t pid;
	int status;
	char *request;
	size_t request_len;
	int fds[STREAMS]; /* our ends: in is written, out and err are read; with a terminal both are its master; -1: closed */
	uint8_t *in_data; /* what the command has not read yet */
	size_t in_len;
	bool in_eof;
	uint32_t credit[STREAMS]; /* for out and err: what we may send */
	int failure; /* reports why it could not be executed; -1: it runs, or did not */
	unsigned group; /* number of its control group among those of this id; stays when the command is forgotten */
};

static struct command commands[VM_COMMANDS_MAX];

static void try_end(struct command *c);

static void group_path(uint16_t id, const char *file, char *ret, size_t size)
{
	snprintf(ret, size, GUEST_GROUP "/ak%u.%u%s%s", id, commands[id].group, file[0] ? "/" : "", file);
}

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static void forget(struct command *c)
{
	if (c->tty) {
		close_fd(&c->fds[IN]);
		c->fds[OUT] = -1;
	}
	for (int i = 0; i < STREAMS; i++)
		close_fd(&c->fds[i]);
	close_fd(&c->failure);
	free(c->request);
	free(c->in_data);
	*c = (struct command){ .group = c->group };
}

static void send_exited(uint16_t id, uint32_t code, uint32_t sig)
{
	uint8_t data[8];

	vm_put32(data, code);
	vm_put32(data + 4, sig);
	port_send(VM_EXITED, id, data, sizeof(data), NULL, 0);
}

/* It never ran. The host uses its id again only after EXITED. */
static void refuse(struct command *c, const char *why)
{
	uint16_t id = (uint16_t)(c - commands);

	port_text(VM_FAILED, id, 125, why);
	forget(c);
	send_exited(id, 125, 0);
}

/* ---- start ---- */

void command_request(uint16_t id, const uint8_t *data, size_t len)
{
	struct command *c = &commands[id];
	char *more = c->pid || c->request_len + len > VM_REQUEST_MAX ? NULL : realloc(c->request, c->request_len + len);

	if (!more)
		return;
	if (!c->used) {
		c->used = true;
		c->failure = c->fds[IN] = c->fds[OUT] = c->fds[ERR] = -1;
		c->credit[OUT] = c->credit[ERR] = VM_WINDOW;
	}
	c->request = more;
	memcpy(more + c->request_len, data, len);
	c->request_len += len;
}

static _Noreturn void child_fail(int fd, int code, const char *text)
{
	char line[400];
	int n = snprintf(line, sizeof(line), "%c%s", (char)code, text);

	(void)!write(fd, line, n < (int)sizeof(line) ? (size_t)n : sizeof(line));
	_exit(125);
}

static int try_exec(const char *path, char **argv, char **envp)
{
	struct stat st;

	execve(path, argv, envp);
	return errno == EACCES && stat(path, &st) == 0 && S_ISDIR(st.st_mode) ? EISDIR : errno;
}

/* As vmctl/exec.c searches in a sandbox of the other kind: no shell, and EACCES only if nothing else fits. */
static int search_exec(char **argv, char **envp)
{
	const char *list = "/usr/local/bin:/usr/bin:/bin";
	int seen = ENOENT;

	if (strchr(argv[0], '/'))
		return try_exec(argv[0], argv, envp);
	for (char **e = envp; *e; e++) {
		if (!strncmp(*e, "PATH=", 5))
			list = *e + 5;
	}
	while (list) {
		const char *end = strchr(list, ':');
		char path[PATH_MAX];
		int len = end ? (int)(end - list) : (int)strlen(list), rc;

		snprintf(path, sizeof(path), "%.*s%s%s", len, list, len ? "/" : "", argv[0]);
		rc = try_exec(path, argv, envp);
		if (rc == EACCES || rc == EISDIR)
			seen = EACCES;
		else if (rc != ENOENT && rc != ENOTDIR)
			return rc;
		list = end ? end + 1 : NULL;
	}
	return seen;
}

static bool is_populated(uint16_t id)
{
	char path[64], text[64];
	ssize_t n;
	int fd;

	group_path(id, "cgroup.events", path, sizeof(path));
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);
	close_fd(&fd);
	text[n > 0 ? n : 0] = '\0';
	return !strstr(text, "populated 0");
}

/* An empty group: the one that the last command with this id had, unless something of that was left behind. */
static int open_group(uint16_t id)
{
	char path[64];

	for (commands[id].group = 0;; commands[id].group++) {
		group_path(id, "", path, sizeof(path));
		if (mkdir(path, 0755) == 0)
			break;
		if (errno != EEXIST)
			return -1;
		if (!is_populated(id))
			break;
	}
	return open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* Of linux/sched.h, which musl's headers do not have. */
struct clone3_request {
	uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls, set_tid, set_tid_size, group;
};

/* A fork into the group: to move a process there later waits for an RCU grace period, 15 ms in an emulated guest. */
static pid_t fork_into(int group)
{
	struct clone3_request r = { .flags = UINT64_C(0x200000000), .exit_signal = SIGCHLD, .group = (uint64_t)group };

	return group < 0 ? -1 : (pid_t)syscall(SYS_clone3, &r, sizeof(r));
}

/*
 * The leader of a terminal's session, for the reason that vmctl/leader.c has one: the suspend key does not stop a process group without a parent in its own session. It forwards
 * signals, stops and ends as the command does.
 */
static _Noreturn void lead(pid_t command)
{
	sigset_t all;
	int sig, status;

	syscall(SYS_close_range, 3u, ~0u, 0u); /* pipes of other commands among them */
	setpgid(command, command); /* the command does the same: whoever is first */
	sigfillset(&all);
	for (;;) {
		if (sigwait(&all, &sig) != 0)
			continue;
		if (sig == SIGCONT && tcgetpgrp(0) == getpid())
			tcsetpgrp(0, command);
		if (sig != SIGCHLD) {
			kill(-command, sig);
			continue;
		}
		while (waitpid(command, &status, WNOHANG | WUNTRACED) > 0) {
			if (!WIFSTOPPED(status))
				_exit(WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status));
			tcsetpgrp(0, getpid());
			kill(getpid(),
				SIGSTOP); /* not raise: a C library does not know the id of a process that it has not forked */
		}
	}
}

/* All signals are blocked, so that to change the foreground from the background stops nobody. */
static int lead_session(void)
{
	sigset_t all;
	pid_t command;

	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, NULL);
	if (ioctl(0, TIOCSCTTY, 0) < 0)
		return -1;
	command = fork();
	if (command > 0)
		lead(command);
	if (command < 0 || setpgid(0, 0) < 0)
		return -1;
	return tcsetpgrp(0, getpid());
}

static _Noreturn void child(const struct vm_request *r, const char *data, const int streams[STREAMS], int failure)
{
	char **argv = calloc(r->argc + 1u, sizeof(*argv)), **envp = calloc(r->envc + 1u, sizeof(*envp)), text[300];
	const char *workdir;
	sigset_t none;
	int rc;

	if (!argv || !envp)
		child_fail(failure, 125, "out of memory");
	vm_request_strings(data, r, &workdir, argv, envp);
	setsid();
	for (int i = 0; i < STREAMS; i++)
		dup2(streams[i], i);
	if (r->tty && lead_session() < 0)
		child_fail(failure, 125, "the guest has no terminal for another command");
	/* Programs expect the dispositions of a fresh login, and bits that init set must not reach them. */
	for (int s = 1; s < 65; s++)
		signal(s, SIG_DFL);
	if (setgroups(0, NULL) < 0 || setresgid(guest_config.gid, guest_config.gid, guest_config.gid) < 0 ||
		setresuid(guest_config.uid, guest_config.uid, guest_config.uid) < 0)
		child_fail(failure, 125, "cannot become the user of the sandbox");
	if (r->tty)
		prctl(PR_SET_PDEATHSIG, SIGKILL); /* after the change of user, which clears it */
	if (chdir(workdir[0] ? workdir : guest_config.home) < 0) {
		snprintf(text, sizeof(text), "cannot enter '%.200s': %s", workdir, strerror(errno));
		child_fail(failure, 125, text);
	}
	umask(022);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	if (guest_filter() < 0)
		child_fail(failure, 125, "cannot install the system-call filter");
	rc = search_exec(argv, envp);
	snprintf(text, sizeof(text), rc == ENOENT && !strchr(argv[0], '/') ? "%.200s: command not found" : "%.200s: %s", argv[0],
		strerror(rc));
	child_fail(failure, rc == ENOENT || rc == ENOTDIR ? 127 : 126, text);
}

/* Terminal or pipes: STREAMS for the child, our ends in C. */
static int open_streams(struct command *c, const struct vm_request *r, int streams[STREAMS])
{
	int p[2], unlock = 0;

	c->tty = r->tty;
	if (r->tty) {
		struct winsize w = { .ws_row = r->rows, .ws_col = r->cols };
		int slave;

		c->fds[IN] = c->fds[OUT] = open("/dev/pts/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
		if (c->fds[IN] < 0 || ioctl(c->fds[IN], TIOCSPTLCK, &unlock) < 0)
			return -1;
		if (r->rows)
			ioctl(c->fds[IN], TIOCSWINSZ, &w);
		slave = ioctl(c->fds[IN], TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
		if (slave < 0)
			return -1;
		(void)!fchown(slave, guest_config.uid, guest_config.gid);
		streams[IN] = streams[OUT] = streams[ERR] = slave;
		return 0;
	}
	for (int i = 0; i < STREAMS; i++) {
		if (pipe2(p, O_CLOEXEC) < 0)
			return -1;
		c->fds[i] = p[i == IN];
		streams[i] = p[i != IN];
		fcntl(c->fds[i], F_SETFL, O_NONBLOCK);
	}
	return 0;
}

void command_run(uint16_t id)
{
	struct command *c = &commands[id];
	int streams[STREAMS] = { -1, -1, -1 }, failure[2], group;
	struct vm_request r;

	if (!c->used || c->pid)
		return;
	if (vm_request_check(c->request, c->request_len, &r) < 0 || pipe2(failure, O_CLOEXEC) < 0 ||
		open_streams(c, &r, streams) < 0) {
		refuse(c, "the guest has no terminal, pipe or memory for another command");
		return;
	}
	fcntl(failure[0], F_SETFL, O_NONBLOCK);
	group = open_group(id);
	c->pid = fork_into(group);
	if (c->pid == 0)
		child(&r, c->request, streams, failure[1]);
	close_fd(&group);
	close(failure[1]);
	c->failure = failure[0];
	for (int i = 0; i < (r.tty ? 1 : STREAMS); i++)
		close(streams[i]);
	free(c->request);
	c->request = NULL;
	c->request_len = 0;
	if (c->pid < 0)
		refuse(c, "the guest cannot start another process");
}

/* ---- connections ---- */

void command_connect(uint16_t id, uint32_t family, uint32_t to)
{
	struct command *c = &commands[id];
	struct sockaddr_in four = {
		.sin_family = AF_INET, .sin_port = htons((uint16_t)to), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)
	};
	struct sockaddr_in6 six = {
		.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)to), .sin6_addr = IN6ADDR_LOOPBACK_INIT
	};
	int sock, rc;

	if (c->used)
		return;
	sock = socket(family == 6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	rc = sock < 0	      ? -1
		: family == 6 ? connect(sock, (struct sockaddr *)&six, sizeof(six))
			      : connect(sock, (struct sockaddr *)&four, sizeof(four));
	if (rc < 0 && (sock < 0 || errno != EINPROGRESS)) {
		port_text(VM_FAILED, id, 125, strerror(errno));
		send_exited(id, 125, 0);
		close_fd(&sock);
		return;
	}
	*c = (struct command){ .used = true, .socket = true, .connecting = true, .failure = -1, .group = c->group };
	c->fds[IN] = sock;
	c->fds[OUT] = fcntl(sock, F_DUPFD_CLOEXEC, 3);
	c->fds[ERR] = -1;
	c->credit[OUT] = VM_WINDOW;
}

/* False if it could not be connected; it is then forgotten. */
static bool finish_connect(struct command *c)
{
	struct pollfd p = { .fd = c->fds[IN], .events = POLLOUT };
	int error = 0;
	socklen_t len = sizeof(error);

	if (!c->connecting || poll(&p, 1, 0) <= 0)
		return true;
	c->connecting = false;
	if (getsockopt(c->fds[IN], SOL_SOCKET, SO_ERROR, &error, &len) == 0 && error == 0) {
		port_send(VM_STARTED, (uint16_t)(c - commands), NULL, 0, NULL, 0);
		return true;
	}
	refuse(c, strerror(error));
	return false;
}

static bool is_live(const struct command *c)
{
	return c->used && (c->pid > 0 || c->socket);
}

/* ---- streams ---- */

static void give_credit(uint16_t id, uint8_t stream, uint32_t bytes)
{
	uint8_t data[5] = { stream };

	vm_put32(data + 1, bytes);
	port_send(VM_CREDIT, id, data, sizeof(data), NULL, 0);
}

static void write_in(struct command *c)
{
	uint16_t id = (uint16_t)(c - commands);

	while (c->in_len && c->fds[IN] >= 0) {
		ssize_t n = write(c->fds[IN], c->in_data, c->in_len);

		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		if (n < 0) { /* the command has closed its end: take and drop the rest */
			give_credit(id, IN, (uint32_t)c->in_len);
			c->in_len = 0;
			if (!c->tty)
				close_fd(&c->fds[IN]);
			return;
		}
		give_credit(id, IN, (uint32_t)n);
		memmove(c->in_data, c->in_data + n, c->in_len - (size_t)n);
		c->in_len -= (size_t)n;
	}
	if (!c->in_len && c->in_eof && c->fds[IN] >= 0) {
		if (c->socket)
			shutdown(c->fds[IN], SHUT_WR);
		if (!c->tty) {
			close_fd(&c->fds[IN]);
		} else {
			(void)!write(c->fds[IN], "\004", 1); /* end of file, as typed */
			c->in_eof = false;
		}
	}
}

void command_data(uint16_t id, const uint8_t *data, size_t len)
{
	struct command *c = &commands[id];
	uint8_t *more;

	if (!c->used || data[0] != IN)
		return;
	if (len == 1) {
		c->in_eof = true;
	} else if (c->fds[IN] < 0) {
		give_credit(id, IN, (uint32_t)(len - 1));
		return;
	} else if (c->in_len + len - 1 <= VM_WINDOW) {
		more = realloc(c->in_data, c->in_len + len - 1);
		if (!more)
			return;
		c->in_data = more;
		memcpy(more + c->in_len, data + 1, len - 1);
		c->in_len += len - 1;
	}
	if (!c->connecting)
		write_in(c);
	if (c->socket)
		try_end(c);
}

void command_credit(uint16_t id, const uint8_t *data)
{
	struct command *c = &commands[id];
	uint32_t more = vm_get32(data + 1);

	if (c->used && (data[0] == OUT || data[0] == ERR) && more <= VM_WINDOW && c->credit[data[0]] <= VM_WINDOW - more)
		c->credit[data[0]] += more;
}

/* False at end of file. */
static bool read_out(struct command *c, int stream)
{
	static uint8_t buf[16384];
	uint8_t head = (uint8_t)stream;
	size_t max = c->credit[stream] < sizeof(buf) ? c->credit[stream] : sizeof(buf);
	ssize_t n = max ? read(c->fds[stream], buf, max) : -1;

	if (!max || (n < 0 && (errno == EAGAIN || errno == EINTR)))
		return true;
	if (n <= 0)
		return false;
	c->credit[stream] -= (uint32_t)n;
	port_send(VM_DATA, (uint16_t)(c - commands), &head, 1, buf, (size_t)n);
	return true;
}

static void end_stream(struct command *c, int stream)
{
	uint8_t head = (uint8_t)stream;

	port_send(VM_DATA, (uint16_t)(c - commands), &head, 1, NULL, 0);
	if (c->tty)
		c->fds[OUT] = -1; /* the master stays open as IN */
	else
		close_fd(&c->fds[stream]);
}

static void read_failure(struct command *c)
{
	char text[401];
	ssize_t n = read(c->failure, text, sizeof(text) - 1);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	close_fd(&c->failure);
	if (n <= 0) {
		port_send(VM_STARTED, (uint16_t)(c - commands), NULL, 0, NULL, 0);
		return;
	}
	text[n] = '\0';
	port_text(VM_FAILED, (uint16_t)(c - commands), (uint8_t)text[0], text + 1);
}

/* ---- end ---- */

/* All commands share the process limit. The console is how the host learns that it was reached: see vm_console.c. */
static void tell_limits(void)
{
	static const char words[] = "<3>" VM_PIDS_WORDS "\n";
	static unsigned long told;
	unsigned long refused;
	char text[64];
	int fd = open(GUEST_GROUP "/pids.events", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);

	close_fd(&fd);
	text[n > 0 ? n : 0] = '\0';
	refused = strncmp(text, "max ", 4) ? 0 : strtoul(text + 4, NULL, 10);
	if (refused <= told)
		return;
	told = refused;
	fd = open("/dev/kmsg", O_WRONLY | O_CLOEXEC);
	if (fd >= 0)
		(void)!write(fd, words, sizeof(words) - 1);
	close_fd(&fd);
}

/* The command has ended and its output is sent, or kept open by a process that it left behind. */
static void report_exit(struct command *c)
{
	/* What it wrote before it ended is in the pipes already. */
	for (int s = OUT; s < STREAMS; s++) {
		if (c->fds[s] < 0)
			continue;
		if (c->credit[s] < 16384)
			return; /* later: more credit comes with what the host has passed on */
	}
	tell_limits();
	send_exited((uint16_t)(c - commands),
		WIFEXITED(c->status) ? (uint32_t)WEXITSTATUS(c->status) : 128u + (uint32_t)WTERMSIG(c->status),
		WIFSIGNALED(c->status) ? (uint32_t)WTERMSIG(c->status) : 0);
	forget(c);
}

static bool drained(const struct command *c)
{
	struct pollfd p[2] = { { .fd = c->fds[OUT], .events = POLLIN }, { .fd = c->fds[ERR], .events = POLLIN } };

	poll(p, 2, 0);
	return !(p[0].revents & POLLIN) && !(p[1].revents & POLLIN);
}

static void try_end(struct command *c)
{
	if (c->socket) {
		if (c->fds[IN] < 0 && c->fds[OUT] < 0) {
			send_exited((uint16_t)(c - commands), 0, 0);
			forget(c);
		}
		return;
	}
	if (c->exited && c->failure < 0 && drained(c))
		report_exit(c);
}

/* After what it has written before. */
static void tell_stopped(struct command *c)
{
	if (!c->tty)
		return;
	while (c->fds[OUT] >= 0 && c->credit[OUT] && !drained(c) && read_out(c, OUT))
		;
	port_send(VM_STOPPED, (uint16_t)(c - commands), NULL, 0, NULL, 0);
}

void commands_reap(void)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG | WUNTRACED)) > 0) {
		for (size_t i = 0; i < VM_COMMANDS_MAX; i++) {
			struct command *c = &commands[i];

			if (c->used && c->pid == pid && WIFSTOPPED(status)) {
				tell_stopped(c);
			} else if (c->used && c->pid == pid) {
				c->exited = true;
				c->status = status;
				if (c->failure >= 0)
					read_failure(c);
				try_end(c);
			}
		}
	}
}

void command_signal(uint16_t id, int sig)
{
	const struct command *c = &commands[id];

	if (c->used && c->pid > 0 && !c->exited && sig > 0 && sig < 65)
		kill(-c->pid, sig);
}

void command_size(uint16_t id, uint16_t rows, uint16_t cols)
{
	const struct command *c = &commands[id];
	struct winsize w = { .ws_row = rows, .ws_col = cols };

	if (c->used && c->tty && c->fds[IN] >= 0)
		ioctl(c->fds[IN], TIOCSWINSZ, &w);
}

/* Nobody reads its output any more, or gives credit for it: it ends without. What was not started yet never will be. */
static void abandon(struct command *c)
{
	if (!c->pid) {
		send_exited((uint16_t)(c - commands), 128 + SIGKILL, SIGKILL);
		forget(c);
		return;
	}
	if (c->tty)
		c->fds[OUT] = -1; /* the master stays open as IN */
	close_fd(&c->fds[OUT]);
	close_fd(&c->fds[ERR]);
	try_end(c);
}

void command_kill(uint16_t id)
{
	struct command *c = &commands[id];
	char path[64];
	int fd;

	if (c->used && c->socket) {
		close_fd(&c->fds[IN]);
		close_fd(&c->fds[OUT]);
		try_end(c);
		return;
	}
	group_path(id, "cgroup.kill", path, sizeof(path));
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd >= 0)
		(void)!write(fd, "1", 1);
	close(fd);
	if (c->used && c->pid > 0 && !c->exited)
		kill(-c->pid, SIGKILL);
	if (c->used)
		abandon(c);
}

size_t commands_poll(struct pollfd *p, size_t max)
{
	size_t n = 0;

	for (size_t i = 0; i < VM_COMMANDS_MAX && n + 4 <= max; i++) {
		const struct command *c = &commands[i];

		if (!is_live(c))
			continue;
		if (c->failure >= 0)
			p[n++] = (struct pollfd){ .fd = c->failure, .events = POLLIN };
		if ((c->in_len || c->connecting) && c->fds[IN] >= 0)
			p[n++] = (struct pollfd){ .fd = c->fds[IN], .events = POLLOUT };
		for (int s = OUT; s < STREAMS; s++) {
			if (c->fds[s] >= 0 && c->credit[s] && !c->connecting)
				p[n++] = (struct pollfd){ .fd = c->fds[s], .events = POLLIN };
		}
	}
	return n;
}

/* What is ready is found by trying: everything here is non-blocking. */
void commands_serve(const struct pollfd *p, size_t n)
{
	(void)p;
	(void)n;
	for (size_t i = 0; i < VM_COMMANDS_MAX; i++) {
		struct command *c = &commands[i];

		if (!is_live(c) || !finish_connect(c) || c->connecting)
			continue;
		if (c->failure >= 0)
			read_failure(c);
		write_in(c);
		for (int s = OUT; s < STREAMS; s++) {
			if (c->fds[s] >= 0 && !read_out(c, s))
				end_stream(c, s);
		}
		try_end(c);
	}
}
