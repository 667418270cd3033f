/*
 * `network selftest`: see selftest/selftest.h.
 *
 * Theory of operation. A child creates a private machine (labns) and forks its pid 1. That starts the far side in its own network
 * namespace and then runs `agentkernel run … selftest-probe` once for each enum st_run, as the calling user. During a run it reads
 * the probe's output, acts as root outside when the probe pauses, and counts connections to services of the machine. After a run it
 * reads the log and judges the vectors. The report is in memory shared with that process. Its files are in memory too, in its own
 * mount namespace: nothing remains, whichever process is killed.
 */
#include "gateway/selftest/selftest.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/log/audit.h"
#include "gateway/log/netlog.h"
#include "vmctl/labns.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define RUN_TIMEOUT_MS 20000
#define VECTORS_MAX 512
#define LOG_MAX 4096
#define LINE_MAX_ 512
#define SERVICES 4 /* at ST_HOST_PORT, IPv4 and IPv6, and the two unix sockets */

/* Shared between the caller and the private machine. */
struct shared {
	struct selftest_report report;
	struct st_events events;
	struct ak_err err;
	bool done;
};

struct machine {
	struct shared *shared; /* borrowed */
	bool mapped; /* in a user namespace: the caller is root here */
	uid_t uid; /* of the caller */
	gid_t gid;
	int far; /* control socket of the far side */
	int services[SERVICES], open_service;
	/* the current run */
	pid_t pid;
	int in, out, errs; /* its standard streams; -1 once closed */
	struct strbuf line, errors_text;
	struct st_outcome outcomes[VECTORS_MAX];
	unsigned took_ms[VECTORS_MAX];
	struct netlog_rec log[LOG_MAX];
	struct st_facts facts;
};

/* ---- files ---- */

static int write_new(const char *path, const char *text, struct ak_err *err)
{
	_cleanup_close_ int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	int rc = fd < 0 ? -errno : ak_write_all(fd, text, strlen(text));

	return rc < 0 ? ak_fail_errno(err, -rc, "%s", path) : 0;
}

/* Copy this program to a place that the sandbox can see. */
static int copy_program(int from, struct ak_err *err)
{
	_cleanup_close_ int to = open(ST_PROGRAM, O_WRONLY | O_CREAT | O_CLOEXEC, 0755);
	struct stat st;

	if (to < 0 || fstat(from, &st) < 0)
		return ak_fail_errno(err, errno, "%s", ST_PROGRAM);
	for (off_t left = st.st_size; left > 0;) {
		ssize_t n = sendfile(to, from, NULL, (size_t)left);

		if (n <= 0)
			return ak_fail_errno(err, n < 0 ? errno : EIO, "cannot copy this program");
		left -= n;
	}
	return 0;
}

static int make_files(int program, struct ak_err *err)
{
	static const char *const folders[] = { ST_PROJECT, ST_SCRATCH "/state", ST_SCRATCH "/config", ST_SCRATCH "/runtime",
		ST_SCRATCH "/home", ST_SCRATCH "/data", ST_SCRATCH "/data/policies" };
	int rc = 0;

	for (size_t i = 0; i < ARRAY_SIZE(folders); i++) {
		if (mkdir(folders[i], 0700) < 0)
			return ak_fail_errno(err, errno, "%s", folders[i]);
	}
	for (int i = 0; i < ST_RUN_NUM && rc == 0; i++) {
		char path[128];

		snprintf(path, sizeof(path), ST_SCRATCH "/data/policies/%s.json", st_policies[i].mode);
		rc = st_policies[i].text ? write_new(path, st_policies[i].text, err) : 0;
	}
	if (rc == 0)
		rc = write_new(ST_SECRET, "secret\n", err);
	if (rc == 0)
		rc = write_new(ST_MARK, "", err);
	return rc < 0 ? rc : copy_program(program, err);
}

/* ---- services of the machine ---- */

static int listen_tcp(int family, uint16_t port)
{
	struct ak_addr any = { .family = (uint8_t)family };
	struct sockaddr_storage ss;
	socklen_t len = ak_addr_to_sockaddr(&any, port, &ss);
	_cleanup_close_ int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int on = 1;

	if (fd >= 0 && family == AF_INET6)
		setsockopt(fd, SOL_IPV6, IPV6_V6ONLY, &on, sizeof(on));
	if (fd < 0 || bind(fd, (struct sockaddr *)&ss, len) < 0 || listen(fd, 16) < 0)
		return -errno;
	return TAKE_FD(fd);
}

static int listen_unix(const char *path, bool hidden)
{
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	_cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	socklen_t len = sizeof(un);

	snprintf(un.sun_path + hidden, sizeof(un.sun_path) - hidden, "%s", path);
	if (hidden)
		len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(path));
	if (fd < 0 || bind(fd, (struct sockaddr *)&un, len) < 0 || listen(fd, 16) < 0)
		return -errno;
	return TAKE_FD(fd);
}

static int open_services(struct machine *m, struct ak_err *err)
{
	m->services[0] = listen_tcp(AF_INET, ST_HOST_PORT);
	m->services[1] = labns_has_ipv6() ? listen_tcp(AF_INET6, ST_HOST_PORT) : -1;
	m->services[2] = listen_unix(ST_UNIX, false);
	m->services[3] = listen_unix(ST_ABSTRACT, true);
	m->open_service = listen_tcp(AF_INET, ST_OPEN_PORT);
	if (m->services[0] < 0 || m->services[2] < 0 || m->services[3] < 0 || m->open_service < 0)
		return ak_fail(err, EIO, "cannot start the services of the private machine");
	return 0;
}

static void serve(struct machine *m)
{
	int fd;

	for (int i = 0; i < SERVICES; i++) {
		while (m->services[i] >= 0 && (fd = accept4(m->services[i], NULL, NULL, SOCK_CLOEXEC)) >= 0) {
			m->facts.host_accepts++;
			ak_close(fd);
		}
	}
	while ((fd = accept4(m->open_service, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
		(void)!send(fd, "hello", 5, MSG_NOSIGNAL);
		ak_close(fd);
	}
}

/* ---- the far side ---- */

static int far_answer(struct machine *m, struct ak_err *err)
{
	struct pollfd p = { .fd = m->far, .events = POLLIN };
	char byte;

	if (poll(&p, 1, 5000) != 1 || recv(m->far, &byte, 1, 0) != 1)
		return ak_fail(err, EPIPE, "the private Internet does not reply%s%s", m->shared->err.text[0] ? ": " : "",
			m->shared->err.text);
	return 0;
}

/* Return once everything that has arrived is counted. */
static int far_sync(struct machine *m, struct ak_err *err)
{
	if (send(m->far, "s", 1, MSG_NOSIGNAL) != 1)
		return ak_fail(err, EPIPE, "the private Internet has ended");
	return far_answer(m, err);
}

static _Noreturn void be_internet(struct shared *shared, int sock)
{
	char byte;
	int rc;

	prctl(PR_SET_NAME, "ak-internet");
	rc = labns_internet_enter(&shared->err);
	if (rc == 0 && send(sock, "e", 1, MSG_NOSIGNAL) == 1 && recv(sock, &byte, 1, 0) == 1)
		rc = st_internet(&shared->events, sock, &shared->err);
	_exit(rc < 0);
}

static int start_internet(struct machine *m, struct ak_err *err)
{
	int pair[2], rc;
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		return ak_fail_errno(err, errno, "socketpair");
	pid = fork();
	if (pid == 0) {
		ak_close(pair[0]);
		be_internet(m->shared, pair[1]);
	}
	ak_close(pair[1]);
	m->far = pair[0];
	rc = pid < 0 ? ak_fail_errno(err, errno, "fork") : far_answer(m, err);
	if (rc == 0)
		rc = labns_host_link(pid, err);
	if (rc == 0)
		rc = far_sync(m, err);
	return rc < 0 ? rc : labns_host_route(err);
}

/* ---- processes of a run ---- */

static bool file_has(const char *dir, const char *file, const char *text, size_t text_len)
{
	char path[320];
	_cleanup_free_ char *data = NULL;
	size_t len = 0;

	snprintf(path, sizeof(path), "/proc/%s/%s", dir, file);
	return ak_read_file(AT_FDCWD, path, 65536, &data, &len) == 0 && memmem(data, len, text, text_len);
}

/* The first process whose /proc FILE contains TEXT. */
static pid_t find_process(const char *file, const char *text, size_t text_len)
{
	DIR *dir = opendir("/proc");
	pid_t found = 0;

	if (!dir)
		return 0;
	for (struct dirent *e; !found && (e = readdir(dir));) {
		if (e->d_name[0] >= '1' && e->d_name[0] <= '9' && file_has(e->d_name, file, text, text_len))
			found = (pid_t)atoi(e->d_name);
	}
	closedir(dir);
	return found;
}

/* Find the probe. The supervisor's command line contains the same words, but not at its start. */
static pid_t find_probe(void)
{
	DIR *dir = opendir("/proc");
	static const char start[] = ST_PROGRAM "\0" SELFTEST_PROBE;
	pid_t found = 0;

	if (!dir)
		return 0;
	for (struct dirent *e; !found && (e = readdir(dir));) {
		char path[320];
		_cleanup_free_ char *data = NULL;
		size_t len = 0;

		snprintf(path, sizeof(path), "/proc/%s/cmdline", e->d_name);
		if (e->d_name[0] >= '1' && e->d_name[0] <= '9' && ak_read_file(AT_FDCWD, path, 65536, &data, &len) == 0 &&
			len >= sizeof(start) && !memcmp(data, start, sizeof(start)))
			found = (pid_t)atoi(e->d_name);
	}
	closedir(dir);
	return found;
}

static void inspect_gateway(const struct st_vector *v, struct st_outcome *ret)
{
	static const struct {
		const char *line, *lacks;
	} wanted[] = { { "\nCapEff:\t0000000000000000\n", "capabilities" }, { "\nNoNewPrivs:\t1\n", "no_new_privs" },
		{ "\nSeccomp:\t2\n", "a system-call filter" } };
	pid_t pid = find_process("comm", "ak-gateway\n", 11);
	char dir[16];

	if (pid <= 0) {
		st_say(ret, "no gateway process", "%s", "");
		return;
	}
	if (v->type == 1) {
		st_say(ret, kill(pid, SIGKILL) == 0 ? "killed" : "not killed", "%s", "");
		return;
	}
	snprintf(dir, sizeof(dir), "%d", (int)pid);
	st_say(ret, "confined", "%s", "");
	for (size_t i = 0; i < ARRAY_SIZE(wanted); i++) {
		if (!file_has(dir, "status", wanted[i].line, strlen(wanted[i].line)))
			st_say(ret, "unconfined", "%s", wanted[i].lacks);
	}
}

/* The probe waits for an action from outside. */
static void on_pause(struct machine *m, size_t i)
{
	const struct st_vector *v = &st_vectors[i];
	struct ak_err err;

	if (v->kind == ST_GATEWAY)
		inspect_gateway(v, &m->outcomes[i]);
	else if (st_frames_send(find_probe(), v, &err) < 0)
		st_say(&m->outcomes[i], "not sent", "%s", err.text);
	else
		st_say(&m->outcomes[i], "sent", "%s", "");
	(void)!write(m->in, "\n", 1);
}

/* ---- output of the probe ---- */

/* Keep a copy of the word until the report is complete. */
static const char *keep_word(const char *word)
{
	static char pool[VECTORS_MAX * ST_RUN_NUM][32];
	static size_t n;

	for (size_t i = 0; i < n; i++) {
		if (!strcmp(pool[i], word))
			return pool[i];
	}
	if (n == ARRAY_SIZE(pool))
		return "?";
	snprintf(pool[n], sizeof(pool[n]), "%s", word);
	return pool[n++];
}

/* May the probe pause at this vector? */
static bool waits(unsigned number)
{
	for (size_t i = 0; st_vectors[i].row; i++) {
		if (i == number)
			return st_vectors[i].kind == ST_FRAMES || st_vectors[i].kind == ST_GATEWAY;
	}
	return false;
}

static void on_line(struct machine *m, char *line)
{
	unsigned number, took_ms;
	int at = 0;
	char *tab;

	if (!strcmp(line, "end")) {
		m->facts.ran = true;
		return;
	}
	if (sscanf(line, "pause %u", &number) == 1 && waits(number)) {
		on_pause(m, number);
		return;
	}
	if (sscanf(line, "%u %u %n", &number, &took_ms, &at) != 2 || number >= VECTORS_MAX || m->outcomes[number].word)
		return;
	tab = strchr(line + at, '\t');
	if (tab)
		*tab++ = '\0';
	m->took_ms[number] = took_ms;
	st_say(&m->outcomes[number], keep_word(line + at), "%s", tab ? tab : "");
}

static void read_out(struct machine *m)
{
	char buf[4096], *end;
	ssize_t n = read(m->out, buf, sizeof(buf));

	if (n <= 0) {
		m->out = ak_close(m->out);
		return;
	}
	strbuf_add(&m->line, buf, (size_t)n);
	while (m->line.len && (end = memchr(m->line.data, '\n', m->line.len))) {
		size_t used = (size_t)(end - m->line.data) + 1;

		*end = '\0';
		on_line(m, m->line.data);
		memmove(m->line.data, m->line.data + used, m->line.len - used);
		m->line.len -= used;
	}
}

static void read_errs(struct machine *m)
{
	char buf[1024];
	ssize_t n = read(m->errs, buf, sizeof(buf));

	if (n <= 0)
		m->errs = ak_close(m->errs);
	else if (m->errors_text.len < LINE_MAX_)
		strbuf_add(&m->errors_text, buf, (size_t)n);
}

/* Read until both streams have ended. */
static void follow(struct machine *m)
{
	uint64_t until = ak_now_ms() + RUN_TIMEOUT_MS, now;

	while ((m->out >= 0 || m->errs >= 0) && (now = ak_now_ms()) < until) {
		struct pollfd p[3 + SERVICES] = {
			{ .fd = m->out, .events = POLLIN },
			{ .fd = m->errs, .events = POLLIN },
			{ .fd = m->open_service, .events = POLLIN },
		};

		for (int i = 0; i < SERVICES; i++)
			p[3 + i] = (struct pollfd){ .fd = m->services[i], .events = POLLIN };
		if (poll(p, ARRAY_SIZE(p), (int)(until - now)) < 0 && errno != EINTR)
			return;
		if (p[0].revents)
			read_out(m);
		if (p[1].revents)
			read_errs(m);
		serve(m);
	}
}

/* ---- a run ---- */

static _Noreturn void be_run(const struct machine *m, enum st_run run, int in, int out, int errs)
{
	char number[sizeof("-2147483648")], mode[32], state[64];
	const char *ok = getenv("AK_SABOTAGE_OK");
	char allowed[32];
	char *argv[] = { (char[]){ ST_PROGRAM }, (char[]){ "run" }, (char[]){ "--compatibility-mode" }, mode, (char[]){ "--dir" },
		(char[]){ ST_PROJECT }, (char[]){ "--quiet" }, (char[]){ "--" }, (char[]){ ST_PROGRAM },
		(char[]){ SELFTEST_PROBE }, number, NULL };
	char *envp[] = { (char[]){ "HOME=" ST_SCRATCH "/home" }, state, (char[]){ "XDG_CONFIG_HOME=" ST_SCRATCH "/config" },
		(char[]){ "XDG_RUNTIME_DIR=" ST_SCRATCH "/runtime" }, (char[]){ "AGENTKERNEL_DATA_DIR=" ST_SCRATCH "/data" },
		(char[]){ "PATH=/usr/local/bin:/usr/bin:/bin" }, ok ? allowed : NULL, NULL };
	struct ak_err err;

	snprintf(number, sizeof(number), "%d", (int)run);
	snprintf(mode, sizeof(mode), "%s", st_policies[run].mode);
	snprintf(state, sizeof(state), "XDG_STATE_HOME=" ST_SCRATCH "/state/%d", (int)run);
	snprintf(allowed, sizeof(allowed), "AK_SABOTAGE_OK=%.8s", ok ? ok : "");
	if (dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(errs, 2) < 0)
		_exit(125);
	/* Like a careless caller, leave a secret open: the sandbox must not find it. */
	(void)!open(ST_SECRET, O_RDONLY);
	if (m->mapped && m->uid != 0 && labns_become(m->uid, m->gid, &err) < 0) {
		dprintf(2, "%s\n", err.text);
		_exit(125);
	}
	execve(ST_PROGRAM, argv, envp);
	_exit(127);
}

static int start_run(struct machine *m, enum st_run run, struct ak_err *err)
{
	int in[2], out[2], errs[2];

	if (pipe2(in, O_CLOEXEC) < 0 || pipe2(out, O_CLOEXEC) < 0 || pipe2(errs, O_CLOEXEC) < 0)
		return ak_fail_errno(err, errno, "pipe");
	m->pid = fork();
	if (m->pid == 0)
		be_run(m, run, in[0], out[1], errs[1]);
	ak_close(in[0]);
	ak_close(out[1]);
	ak_close(errs[1]);
	m->in = in[1];
	m->out = out[0];
	m->errs = errs[0];
	return m->pid < 0 ? ak_fail_errno(err, errno, "fork") : 0;
}

/* STATE/agentkernel/runs/NAME, of which there is one. */
static bool log_path(enum st_run run, char ret[static PATH_MAX])
{
	char runs[128];
	DIR *dir;
	bool found = false;

	snprintf(runs, sizeof(runs), ST_SCRATCH "/state/%d/agentkernel/runs", (int)run);
	dir = opendir(runs);
	if (!dir)
		return false;
	for (struct dirent *e; !found && (e = readdir(dir));) {
		if (e->d_name[0] != '.')
			found = snprintf(ret, PATH_MAX, "%s/%s/network.jsonl", runs, e->d_name) < PATH_MAX;
	}
	closedir(dir);
	return found;
}

static void read_log(struct machine *m, enum st_run run)
{
	struct audit_reader r;
	char path[PATH_MAX], *line;
	struct ak_err err;
	size_t len;
	bool whole;

	m->facts.log = m->log;
	if (!log_path(run, path) || audit_reader_open(&r, path, &err) < 0)
		return;
	m->facts.log_clean = true;
	while (m->facts.n_log < LOG_MAX && audit_reader_next(&r, true, &line, &len, &whole) == 1) {
		if (!whole || netlog_rec_parse(line, len, &m->log[m->facts.n_log]) < 0)
			m->facts.log_clean = false;
		else
			m->facts.n_log++;
	}
	audit_reader_done(&r);
}

/* Skip IPv6 vectors on a kernel without IPv6. */
static void skip_missing(struct machine *m)
{
	bool ipv6 = labns_has_ipv6();

	for (size_t i = 0; st_vectors[i].row; i++) {
		if (st_vectors[i].ipv6 && !ipv6)
			m->outcomes[i].word = "skipped";
	}
}

static void end_run(struct machine *m, enum st_run run)
{
	int status = 0;

	m->in = ak_close(m->in);
	if (m->out >= 0)
		kill(m->pid, SIGKILL);
	m->out = ak_close(m->out);
	m->errs = ak_close(m->errs);
	waitpid(m->pid, &status, 0);
	if (!m->facts.ran) {
		size_t n = m->errors_text.len ? strcspn(m->errors_text.data, "\n") : 0;

		snprintf(m->facts.why_not, sizeof(m->facts.why_not), "%.*s", (int)n, n ? m->errors_text.data : "");
		if (!n)
			snprintf(m->facts.why_not, sizeof(m->facts.why_not), "the run ended early (status %d)", status);
	}
	read_log(m, run);
}

static int one_run(struct machine *m, enum st_run run, struct ak_err *err)
{
	int rc;

	memset(m->outcomes, 0, sizeof(m->outcomes));
	memset(m->took_ms, 0, sizeof(m->took_ms));
	strbuf_reset(&m->line);
	strbuf_reset(&m->errors_text);
	m->facts = (struct st_facts){ .run = run, .outcomes = m->outcomes, .took_ms = m->took_ms, .events = &m->shared->events };
	rc = far_sync(m, err);
	m->shared->events.n = 0;
	if (rc == 0)
		rc = start_run(m, run, err);
	if (rc < 0)
		return rc;
	skip_missing(m);
	follow(m);
	end_run(m, run);
	rc = far_sync(m, err);
	if (rc == 0)
		st_judge(&m->facts, &m->shared->report);
	for (size_t i = 0; i < m->facts.n_log; i++)
		netlog_rec_done(&m->log[i]);
	return rc;
}

/* ---- the private machine ---- */

static int machine(struct machine *m, int program, struct ak_err *err)
{
	int rc = labns_mounts(ST_SCRATCH, "nameserver " ST_RESOLVER "\n", err);

	if (rc == 0)
		rc = make_files(program, err);
	if (rc == 0)
		rc = start_internet(m, err);
	if (rc == 0)
		rc = open_services(m, err);
	for (int run = 0; run < ST_RUN_NUM && rc == 0; run++)
		rc = one_run(m, (enum st_run)run, err);
	return rc;
}

static _Noreturn void be_machine(struct shared *shared, bool mapped, uid_t uid, gid_t gid, int program)
{
	static struct machine m;
	struct ak_err err;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	signal(SIGPIPE, SIG_IGN);
	m = (struct machine){
		.shared = shared, .mapped = mapped, .uid = uid, .gid = gid, .far = -1, .in = -1, .out = -1, .errs = -1
	};
	if (machine(&m, program, &err) < 0)
		shared->err = err;
	else
		shared->done = true;
	_exit(0); /* the kernel then removes the machine */
}

/* The process between us and the machine: it only becomes the parent of the machine's pid 1. */
static _Noreturn void be_maker(struct shared *shared, pid_t caller)
{
	_cleanup_close_ int program = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	uid_t uid = geteuid();
	gid_t gid = getegid();
	bool mapped;
	pid_t pid;

	if (labns_enter(&mapped, &shared->err) < 0)
		_exit(1);
	prctl(PR_SET_PDEATHSIG, SIGKILL); /* only now, because a change of credentials resets it */
	if (getppid() != caller)
		_exit(1);
	pid = fork();
	if (pid == 0)
		be_machine(shared, mapped, uid, gid, program);
	if (pid < 0)
		ak_fail_errno(&shared->err, errno, "fork");
	else
		waitpid(pid, NULL, 0);
	_exit(0);
}

static void init_report(struct selftest_report *r)
{
	while (r->n_rows < SELFTEST_ROWS_MAX && st_rows[r->n_rows].id) {
		struct selftest_row *row = &r->rows[r->n_rows];

		*row = (struct selftest_row){ .id = st_rows[r->n_rows].id, .what = st_rows[r->n_rows].what };
		snprintf(row->reason, sizeof(row->reason), "not available on this kernel");
		r->n_rows++;
	}
}

static void sum_up(struct selftest_report *r)
{
	for (size_t i = 0; i < r->n_rows; i++) {
		r->passed += r->rows[i].result == SELFTEST_PASSED;
		r->failed += r->rows[i].result == SELFTEST_FAILED;
		r->skipped += r->rows[i].result == SELFTEST_SKIPPED;
		if (r->rows[i].result == SELFTEST_PASSED)
			r->rows[i].reason[0] = '\0';
	}
}

int selftest_run(struct selftest_report *ret, struct ak_err *err)
{
	struct shared *shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	uint64_t began = ak_now_ms();
	pid_t caller = getpid(), pid;
	int rc = 0;

	if (shared == MAP_FAILED)
		return ak_fail_errno(err, errno, "cannot allocate shared memory");
	init_report(&shared->report);
	pid = fork();
	if (pid == 0)
		be_maker(shared, caller);
	if (pid < 0)
		rc = ak_fail_errno(err, errno, "fork");
	else
		waitpid(pid, NULL, 0);
	if (rc == 0 && !shared->done)
		rc = ak_fail(err, EIO, "%s", shared->err.text[0] ? shared->err.text : "the private machine ended early");
	if (rc == 0) {
		*ret = shared->report;
		sum_up(ret);
		ret->duration_ms = ak_now_ms() - began;
	}
	munmap(shared, sizeof(*shared));
	return rc;
}
