/*
 * Find all processes of one command by a mark that they cannot remove.
 *
 * Theory of operation. Programs can change their sessions, groups and parents. Resource limits are inherited by every child,
 * and RLIMIT_LOCKS has had no meaning to the kernel since 2.4: each command gets its own number there. A system-call filter
 * stops processes inside from changing it; init bypasses the filter with a secret in the halves of the arguments that the
 * kernel does not read. To end a command, kill every process with its number, and look again until none is left. If a program
 * forks faster than that, stop everything in the sandbox at once: kill(-1) misses no process, not even one that is being
 * forked.
 */
#include "vmctl/internal.h"

#include "gateway/base/cleanup.h"

#include <assert.h>
#include <dirent.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define ROUNDS_MAX 64 /* limit; a process that cannot die yet (it waits for a disk) is given up after that */
#define BUSY_MAX 8 /* rounds that found new processes, before everything is stopped */
#define PAUSE_MIN_NS 100000L
#define PAUSE_MAX_NS 10000000L
#define MARK_MAX INT32_MAX

/* ---- setting ---- */

static uint32_t secret[2]; /* init's memory cannot be read from inside */
static_assert(sizeof(long) == 8, "arguments of system calls need halves");

/* Offset of one half of an argument, for the filter. */
#define ARG(i) ((uint32_t)offsetof(struct seccomp_data, args[i]))
#define LOW(i) (ARG(i) + (__BYTE_ORDER == __BIG_ENDIAN ? 4u : 0u))
#define HIGH(i) (ARG(i) + (__BYTE_ORDER == __BIG_ENDIAN ? 0u : 4u))
#define LOAD(at) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, at)
#define IF(value, skip_if, skip_else) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, skip_if, skip_else)

int sb_mark_protect(void)
{
	enum { DENY = 15, ALLOW };
	const bool random = getrandom(secret, sizeof(secret), 0) == sizeof(secret);
	struct sock_filter insns[] = {
		LOAD((uint32_t)offsetof(struct seccomp_data, nr)),
		IF(SYS_setrlimit, 0, 2),
		LOAD(LOW(0)),
		IF(RLIMIT_LOCKS, DENY - 4, ALLOW - 4),
		IF(SYS_prlimit64, 0, ALLOW - 5),
		LOAD(LOW(1)),
		IF(RLIMIT_LOCKS, 0, ALLOW - 7),
		LOAD(LOW(2)), /* without a new value the call only reads */
		IF(0, 0, 2),
		LOAD(HIGH(2)),
		IF(0, ALLOW - 11, 0),
		LOAD(HIGH(0)),
		IF(secret[0], 0, DENY - 13),
		LOAD(HIGH(1)),
		IF(secret[1], ALLOW - 15, DENY - 15),
		[DENY] = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		[ALLOW] = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = { .len = ARRAY_SIZE(insns), .filter = insns };

	if (!random)
		return -EIO;
	return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &prog) < 0 ? -errno : 0;
}

uint32_t sb_mark_next(void)
{
	static uint32_t last;
	struct rlimit lim;

	/* Never 0, and never above the host's limit. */
	if (getrlimit(RLIMIT_LOCKS, &lim) < 0 || lim.rlim_max > MARK_MAX)
		lim.rlim_max = MARK_MAX;
	last = last < lim.rlim_max ? last + 1 : 1;
	return last;
}

int sb_mark_set(uint32_t mark)
{
	struct rlimit lim = { mark, mark };

	if (!mark)
		return 0;
	/* pid 0 is the calling process. The kernel reads only the low halves of the first two arguments. */
	return syscall(SYS_prlimit64, (uint64_t)secret[0] << 32, (uint64_t)secret[1] << 32 | RLIMIT_LOCKS, &lim, NULL) < 0
		? -errno
		: 0;
}

/* ---- reading ---- */

static ssize_t read_at(int proc, const char *pid, const char *file, char *buf, size_t size)
{
	char path[48];
	_cleanup_close_ int fd = -1;
	ssize_t n;

	snprintf(path, sizeof(path), "%.16s/%s", pid, file);
	fd = openat(proc, path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? -1 : read(fd, buf, size - 1);
	if (n >= 0)
		buf[n] = '\0';
	return n;
}

/* -1: the process has ended. */
static int64_t mark_of(int proc, const char *pid)
{
	static const char row[] = "Max file locks";
	char text[4096], *at;

	if (read_at(proc, pid, "limits", text, sizeof(text)) <= 0)
		return -1;
	at = strstr(text, row);
	return at ? (int64_t)strtoull(at + strlen(row), NULL, 10) : 0; /* "unlimited" is 0 */
}

/* The state of a process, 'X' if it has ended; its name in RET_NAME unless that is NULL. */
static char state_of(int proc, const char *pid, char ret_name[16])
{
	char text[512], *from, *to, state;

	if (read_at(proc, pid, "stat", text, sizeof(text)) <= 0)
		return 'X';
	from = strchr(text, '(');
	to = strrchr(text, ')'); /* the name between the parentheses may contain anything */
	if (!from || !to || sscanf(to + 1, " %c", &state) != 1)
		return 'X';
	*to = '\0';
	if (ret_name)
		snprintf(ret_name, 16, "%.15s", from + 1);
	return state;
}

static bool is_alive(char state)
{
	return state != 'Z' && state != 'X';
}

/* The last pid that was assigned in this namespace; -1 if /proc does not say. */
static long newest_pid(int proc)
{
	char text[128], *last;

	if (read_at(proc, ".", "loadavg", text, sizeof(text)) <= 0)
		return -1;
	last = strrchr(text, ' ');
	return last ? atol(last + 1) : -1;
}

static const char *next_process(DIR *dir)
{
	struct dirent *e;

	while ((e = readdir(dir))) {
		if (e->d_name[0] >= '0' && e->d_name[0] <= '9' && strcmp(e->d_name, "1") != 0)
			return e->d_name;
	}
	return NULL;
}

/* ---- pids ---- */

struct pids {
	pid_t *list; /* owned; in the order of /proc */
	size_t n, cap;
};

static void pids_done(struct pids *p)
{
	free(p->list);
}

/* Best effort: a pid that is not remembered counts as new. */
static void pids_add(struct pids *p, pid_t pid)
{
	if (p->n == p->cap) {
		size_t cap = p->cap ? 2 * p->cap : 64;
		pid_t *list = realloc(p->list, cap * sizeof(*list));

		if (!list)
			return;
		p->list = list;
		p->cap = cap;
	}
	p->list[p->n++] = pid;
}

static int by_number(const void *a, const void *b)
{
	pid_t x = *(const pid_t *)a, y = *(const pid_t *)b;

	return (x > y) - (x < y);
}

static bool pids_have(const struct pids *p, pid_t pid)
{
	return p->n && bsearch(&pid, p->list, p->n, sizeof(*p->list), by_number);
}

/* ---- ending ---- */

struct hunt {
	DIR *proc; /* owned */
	uint32_t mark;
	struct pids killed, known; /* in this round, and in the previous one */
	size_t alive, fresh; /* of this round */
	bool torn; /* processes came or went during the listing, so one may be missing */
};

static void kill_marked(struct hunt *h)
{
	int proc = dirfd(h->proc);
	struct pids old = h->known;
	long newest = newest_pid(proc);

	h->known = h->killed;
	h->killed = old;
	h->killed.n = h->alive = h->fresh = 0;
	h->torn = newest < 0;
	rewinddir(h->proc);
	for (const char *name; (name = next_process(h->proc));) {
		int64_t mark = mark_of(proc, name);
		pid_t pid = (pid_t)atol(name);

		h->torn |= mark < 0;
		if (mark != h->mark || !is_alive(state_of(proc, name, NULL)))
			continue;
		kill(pid, SIGKILL);
		h->alive++;
		h->fresh += !pids_have(&h->known, pid);
		pids_add(&h->killed, pid);
	}
	h->torn |= newest_pid(proc) != newest;
}

/* Children before parents, so that a shell does not see its job as stopped. */
static void resume(struct hunt *h, const struct pids *stopped)
{
	_cleanup_(pids_done) struct pids all = { 0 };

	rewinddir(h->proc);
	for (const char *name; (name = next_process(h->proc));)
		pids_add(&all, (pid_t)atol(name));
	for (size_t i = all.n; i-- > 0;) {
		if (!pids_have(stopped, all.list[i]))
			kill(all.list[i], SIGCONT);
	}
}

/* While nothing runs, no process can be missed. Processes that were stopped before stay stopped. */
static void kill_stopped(struct hunt *h)
{
	_cleanup_(pids_done) struct pids stopped = { 0 };

	rewinddir(h->proc);
	for (const char *name; (name = next_process(h->proc));) {
		if (state_of(dirfd(h->proc), name, NULL) == 'T')
			pids_add(&stopped, (pid_t)atol(name));
	}
	kill(-1, SIGSTOP);
	kill_marked(h);
	resume(h, &stopped);
}

static void wait_a_little(long *ns)
{
	struct timespec ts = { .tv_nsec = *ns };

	nanosleep(&ts, NULL);
	*ns = 2 * *ns < PAUSE_MAX_NS ? 2 * *ns : PAUSE_MAX_NS;
}

void sb_mark_end(uint32_t mark)
{
	struct hunt h = { .proc = opendir("/proc"), .mark = mark };
	long wait_ns = PAUSE_MIN_NS;
	unsigned busy = 0;

	for (unsigned i = 0; h.proc && i < ROUNDS_MAX; i++) {
		if (busy < BUSY_MAX)
			kill_marked(&h);
		else
			kill_stopped(&h);
		if (!h.alive && !h.torn)
			break;
		if (h.fresh || h.torn)
			busy++;
		else
			wait_a_little(&wait_ns); /* killed, but not dead yet */
	}
	if (h.proc)
		closedir(h.proc);
	pids_done(&h.killed);
	pids_done(&h.known);
}

/* ---- processes that a command leaves behind ---- */

/* If a command left processes behind, init is the parent of some of them. Those are few, and the kernel lists them. */
static bool left_any(int proc, uint32_t mark)
{
	char text[4096], *at = text, *pid;
	ssize_t n = read_at(proc, "1", "task/1/children", text, sizeof(text));

	if (n < 0 || n == sizeof(text) - 1) /* a kernel without that list, or a list that is too long: check all processes */
		return true;
	while ((pid = strsep(&at, " "))) {
		if (*pid && mark_of(proc, pid) == mark && is_alive(state_of(proc, pid, NULL)))
			return true;
	}
	return false;
}

static void add_name(char *text, size_t size, const char *pid, const char *name)
{
	size_t len = strlen(text);

	snprintf(text + len, size - len, "%s%.16s %s", len ? ", " : "", pid, name);
	for (char *c = text + len; *c; c++) {
		if (*c < 0x20 || *c == 0x7f) /* programs choose their own names */
			*c = '?';
	}
}

unsigned sb_mark_left(uint32_t mark, char *ret_text, size_t size)
{
	DIR *dir = NULL;
	const char *pid;
	unsigned n = 0;

	ret_text[0] = '\0';
	if (kill(-1, 0) < 0 || !(dir = opendir("/proc"))) /* no other process */
		return 0;
	pid = left_any(dirfd(dir), mark) ? next_process(dir) : NULL;
	for (; pid; pid = next_process(dir)) {
		char name[16];

		if (mark_of(dirfd(dir), pid) != mark || !is_alive(state_of(dirfd(dir), pid, name)))
			continue;
		add_name(ret_text, size, pid, name);
		n++;
	}
	closedir(dir);
	return n;
}
