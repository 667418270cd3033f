/* Commands in the guest: each in a session and a control group of its own, its streams through pipes or a terminal. */
#include "agent.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

enum { IN, OUT, ERR, STREAMS };

struct command {
	bool used, tty, exited;
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
};

static struct command commands[VM_COMMANDS_MAX];

static void group_path(uint16_t id, const char *file, char *ret, size_t size)
{
	snprintf(ret, size, "/sys/fs/cgroup/ak%u%s%s", id, file[0] ? "/" : "", file);
}

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static void forget(struct command *c)
{
	char path[64];

	if (c->tty) {
		close_fd(&c->fds[IN]);
		c->fds[OUT] = -1;
	}
	for (int i = 0; i < STREAMS; i++)
		close_fd(&c->fds[i]);
	close_fd(&c->failure);
	free(c->request);
	free(c->in_data);
	group_path((uint16_t)(c - commands), "", path, sizeof(path));
	rmdir(path);
	memset(c, 0, sizeof(*c));
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

static void join_group(uint16_t id)
{
	char path[64];
	int fd;

	group_path(id, "", path, sizeof(path));
	mkdir(path, 0755);
	group_path(id, "cgroup.procs", path, sizeof(path));
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd >= 0)
		(void)!write(fd, "0", 1);
	close(fd);
}

static _Noreturn void child(uint16_t id, const struct vm_request *r, const char *data, const int streams[STREAMS], int failure)
{
	char **argv = calloc(r->argc + 1u, sizeof(*argv)), **envp = calloc(r->envc + 1u, sizeof(*envp)), text[300];
	const char *workdir;
	sigset_t none;
	int rc;

	if (!argv || !envp)
		child_fail(failure, 125, "out of memory");
	vm_request_strings(data, r, &workdir, argv, envp);
	join_group(id);
	setsid();
	for (int i = 0; i < STREAMS; i++)
		dup2(streams[i], i);
	if (r->tty)
		ioctl(0, TIOCSCTTY, 0);
	/* Programs expect the dispositions of a fresh login, and bits that init set must not reach them. */
	for (int s = 1; s < 65; s++)
		signal(s, SIG_DFL);
	if (setgroups(0, NULL) < 0 || setresgid(guest_config.gid, guest_config.gid, guest_config.gid) < 0 ||
		setresuid(guest_config.uid, guest_config.uid, guest_config.uid) < 0)
		child_fail(failure, 125, "cannot become the user of the sandbox");
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	if (chdir(workdir[0] ? workdir : guest_config.home) < 0) {
		snprintf(text, sizeof(text), "cannot enter '%.200s': %s", workdir, strerror(errno));
		child_fail(failure, 125, text);
	}
	umask(022);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
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
	int streams[STREAMS] = { -1, -1, -1 }, failure[2];
	struct vm_request r;

	if (!c->used || c->pid)
		return;
	if (vm_request_check(c->request, c->request_len, &r) < 0 || pipe2(failure, O_CLOEXEC) < 0 ||
		open_streams(c, &r, streams) < 0) {
		port_text(VM_FAILED, id, 125, "the guest has no terminal, pipe or memory for another command");
		forget(c);
		return;
	}
	fcntl(failure[0], F_SETFL, O_NONBLOCK);
	c->pid = fork();
	if (c->pid == 0)
		child(id, &r, c->request, streams, failure[1]);
	close(failure[1]);
	c->failure = failure[0];
	for (int i = 0; i < (r.tty ? 1 : STREAMS); i++)
		close(streams[i]);
	free(c->request);
	c->request = NULL;
	c->request_len = 0;
	if (c->pid < 0) {
		port_text(VM_FAILED, id, 125, "the guest cannot fork");
		forget(c);
	}
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
	write_in(c);
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

/* The command has ended and its output is sent, or kept open by a process that it left behind. */
static void report_exit(struct command *c)
{
	uint8_t data[8];

	/* What it wrote before it ended is in the pipes already. */
	for (int s = OUT; s < STREAMS; s++) {
		if (c->fds[s] < 0)
			continue;
		if (c->credit[s] < 16384)
			return; /* later: more credit comes with what the host has passed on */
	}
	vm_put32(data, WIFEXITED(c->status) ? (uint32_t)WEXITSTATUS(c->status) : 128u + (uint32_t)WTERMSIG(c->status));
	vm_put32(data + 4, WIFSIGNALED(c->status) ? (uint32_t)WTERMSIG(c->status) : 0);
	port_send(VM_EXITED, (uint16_t)(c - commands), data, sizeof(data), NULL, 0);
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
	if (c->exited && c->failure < 0 && drained(c))
		report_exit(c);
}

void commands_reap(void)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		for (size_t i = 0; i < VM_COMMANDS_MAX; i++) {
			struct command *c = &commands[i];

			if (c->used && c->pid == pid) {
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

void command_kill(uint16_t id)
{
	const struct command *c = &commands[id];
	char path[64];
	int fd;

	group_path(id, "cgroup.kill", path, sizeof(path));
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd >= 0)
		(void)!write(fd, "1", 1);
	close(fd);
	if (c->used && c->pid > 0 && !c->exited)
		kill(-c->pid, SIGKILL);
}

size_t commands_poll(struct pollfd *p, size_t max)
{
	size_t n = 0;

	for (size_t i = 0; i < VM_COMMANDS_MAX && n + 4 <= max; i++) {
		const struct command *c = &commands[i];

		if (!c->used || c->pid <= 0)
			continue;
		if (c->failure >= 0)
			p[n++] = (struct pollfd){ .fd = c->failure, .events = POLLIN };
		if (c->in_len && c->fds[IN] >= 0)
			p[n++] = (struct pollfd){ .fd = c->fds[IN], .events = POLLOUT };
		for (int s = OUT; s < STREAMS; s++) {
			if (c->fds[s] >= 0 && c->credit[s])
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

		if (!c->used || c->pid <= 0)
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
