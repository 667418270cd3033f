/*
 * Run a program and kill one of its processes at one exact system call: stepper WHO CALL CMD…
 *
 * WHO says who made it: 0 is CMD itself, 0.2 the second process that CMD made, 0.2.1 the first that this one made. CALL counts that process's system calls. With CALL 0 nothing is
 * killed, CMD is ended after its first output, and the list of processes with the number of their calls is printed. Then, as one JSON line: whether the kill happened, and
 * how CMD ended.
 *
 * What outlives the kill is ended with SIGTERM to CMD after a short while, as a user would; what outlives that for seconds is "stuck".
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MAX 512
#define OPTIONS (PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACECLONE)

static struct proc {
	pid_t pid;
	char comm[32], who[32]; /* who is empty until its maker's stop has been seen, and so long it is not let go */
	long calls;
	int inside, gone, made, waits;
} procs[MAX];
static int n_procs, done, root_status = -1;
static const char *want_who;
static long want_call;

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static struct proc *find(pid_t pid)
{
	for (int i = n_procs - 1; i >= 0; i--)
		if (procs[i].pid == pid && !procs[i].gone)
			return &procs[i];
	if (n_procs == MAX)
		exit(3);
	procs[n_procs] = (struct proc){ .pid = pid };
	return &procs[n_procs++];
}

static void learn_comm(struct proc *p)
{
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/comm", (int)p->pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	ssize_t n = read(fd, p->comm, sizeof(p->comm) - 1);
	p->comm[n > 0 ? n - 1 : 0] = 0;
	close(fd);
}

static int wanted(const struct proc *p)
{
	return want_call && !strcmp(p->who, want_who);
}

static void go_on(struct proc *p, int pass)
{
	ptrace(done ? PTRACE_CONT : PTRACE_SYSCALL, p->pid, 0, pass);
}

/* P has made another process: now it has a name, and may run. */
static void on_made(struct proc *p)
{
	unsigned long pid = 0;
	struct proc *child;

	if (ptrace(PTRACE_GETEVENTMSG, p->pid, 0, &pid) || !pid)
		return;
	child = find((pid_t)pid);
	if (!child->who[0])
		snprintf(child->who, sizeof(child->who), "%.20s.%d", p->who, ++p->made);
	if (child->waits)
		go_on(child, 0);
	child->waits = 0;
}

static void on_stop(struct proc *p, int st)
{
	int sig = WSTOPSIG(st), event = st >> 16, pass = 0;

	if (event == PTRACE_EVENT_FORK || event == PTRACE_EVENT_VFORK || event == PTRACE_EVENT_CLONE)
		on_made(p);
	if (!p->who[0]) {
		p->waits = 1;
		return;
	}
	if (sig == (SIGTRAP | 0x80)) {
		p->inside = !p->inside;
		if (p->inside) {
			p->calls++;
			if (p->calls % 16 == 1 || p->calls < 4)
				learn_comm(p);
			if (!done && wanted(p) && p->calls == want_call) {
				learn_comm(p);
				kill(p->pid, SIGKILL);
				done = 1;
				return;
			}
		}
	} else if (event == PTRACE_EVENT_STOP && (sig == SIGSTOP || sig == SIGTSTP || sig == SIGTTIN || sig == SIGTTOU)) {
		ptrace(PTRACE_LISTEN, p->pid, 0, 0);
		return;
	} else if (!event) {
		pass = sig;
	}
	go_on(p, pass);
}

/* What each process that is left waits for, on stderr, so that a hang can be explained from the test's report alone. */
static void tell_why_stuck(void)
{
	static const char *const files[] = { "comm", "stat", "wchan", "syscall" };

	for (int i = 0; i < n_procs; i++) {
		if (procs[i].gone)
			continue;
		fprintf(stderr, "stuck: process %d, pid %d, %ld calls, inside %d:", i, (int)procs[i].pid, procs[i].calls,
			procs[i].inside);
		for (size_t f = 0; f < sizeof(files) / sizeof(*files); f++) {
			char path[64], text[128];
			snprintf(path, sizeof(path), "/proc/%d/%s", (int)procs[i].pid, files[f]);
			int fd = open(path, O_RDONLY | O_CLOEXEC);
			ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
			text[n > 0 ? n : 0] = 0;
			text[strcspn(text, "\n")] = 0;
			fprintf(stderr, " %s=%s;", files[f], text);
			if (fd >= 0)
				close(fd);
		}
		fprintf(stderr, "\n");
	}
}

static int reap(int flags)
{
	int st;
	pid_t pid = waitpid(-1, &st, __WALL | flags);

	if (pid <= 0)
		return pid < 0 ? -1 : 0;
	struct proc *p = find(pid);
	if (WIFSTOPPED(st)) {
		on_stop(p, st);
		return 1;
	}
	p->gone = 1;
	if (p == procs)
		root_status = st;
	if (!done && wanted(p))
		done = 2; /* it ended before it made that many */
	return 1;
}

int main(int argc, char **argv)
{
	int out[2], go[2], said = 0, told = 0, stuck = 0;
	double killed = 0, termed = 0;

	if (argc < 4 || pipe(out) || pipe(go))
		return 2;
	want_who = argv[1];
	want_call = atol(argv[2]);
	pid_t pid = fork();
	if (pid == 0) {
		char c;

		dup2(out[1], 1);
		close(out[0]), close(out[1]), close(go[1]);
		if (read(go[0], &c, 1) != 1)
			_exit(2);
		close(go[0]);
		execv(argv[3], argv + 3);
		_exit(127);
	}
	strcpy(find(pid)->who, "0");
	if (ptrace(PTRACE_SEIZE, pid, 0, OPTIONS)) {
		perror("ptrace");
		kill(pid, SIGKILL);
		return 77;
	}
	ptrace(PTRACE_INTERRUPT, pid, 0, 0);
	close(out[1]), close(go[0]);
	fcntl(out[0], F_SETFL, O_NONBLOCK);
	if (write(go[1], "x", 1) != 1)
		return 2;
	close(go[1]);
	while (root_status < 0) {
		char buf[256];

		for (int i = 0; i < 200 && reap(WNOHANG) > 0; i++)
			;
		if (read(out[0], buf, sizeof(buf)) > 0)
			said = 1;
		double t = now();
		if (!killed && (done || said))
			killed = t;
		if (killed && !told && (t - killed > (want_call && !done ? 0.3 : 0.12))) {
			kill(pid, SIGTERM);
			told = 1;
			termed = t;
		}
		if (termed && t - termed > 8) {
			stuck = 1;
			tell_why_stuck();
			break;
		}
		poll(&(struct pollfd){ out[0], 0, 0 }, 1, 0);
	}
	if (stuck)
		kill(pid, SIGKILL);
	for (double end = now() + 5; now() < end && reap(WNOHANG) >= 0;)
		;
	const char *victim = "";
	long calls = 0;
	for (int i = 0; i < n_procs; i++) {
		if (!strcmp(procs[i].who, want_who))
			victim = procs[i].comm, calls = procs[i].calls;
	}
	printf("{\"killed\":%s,\"said\":%d,\"stuck\":%d,\"code\":%d,\"victim\":\"%s\",\"calls\":%ld,\"procs\":[",
		done == 1 ? "true" : "false", said, stuck,
		WIFEXITED(root_status) ? WEXITSTATUS(root_status) : -WTERMSIG(root_status), victim, calls);
	for (int i = 0; i < n_procs; i++)
		printf("%s[\"%s\",\"%s\",%ld]", i ? "," : "", procs[i].who, procs[i].comm, procs[i].calls);
	printf("]}\n");
	return 0;
}
