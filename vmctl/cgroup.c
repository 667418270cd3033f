/* Control groups: see cgroup.h. */
#include "vmctl/cgroup.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "vmctl/internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define PREFIX "agentkernel-"
#define CPU_PERIOD_US 100000u

static const char *const kind_names[CGROUP_KIND_NUM] = {
	[CGROUP_MEMORY] = "memory", [CGROUP_PIDS] = "pids", [CGROUP_CPU] = "cpu"
};

/* ---- where we are: /proc/self/cgroup and the mount table ---- */

/* Whether the comma-separated LIST contains WORD. */
static bool list_has(const char *list, const char *word)
{
	size_t len = strlen(word);

	for (const char *p = list; p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL) {
		if (!strncmp(p, word, len) && (p[len] == ',' || p[len] == '\0'))
			return true;
	}
	return false;
}

/* Our own path in the hierarchy of CONTROLLER ("" is version 2), from "id:controllers:path" lines. */
static bool own_path(const char *controller, char ret[static PATH_MAX])
{
	_cleanup_free_ char *text = NULL;
	char *save = NULL;

	if (ak_read_file(AT_FDCWD, "/proc/self/cgroup", 1 << 16, &text, NULL) < 0)
		return false;
	for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		char *list = strchr(line, ':'), *path = list ? strchr(list + 1, ':') : NULL;

		if (!path)
			continue;
		*path++ = '\0';
		list++;
		if (controller[0] ? !list_has(list, controller) : list[0] != '\0')
			continue;
		return snprintf(ret, PATH_MAX, "%s", path) < PATH_MAX;
	}
	return false;
}

/* The folder of our own group: version 2 at the usual place, or version 1 by controller. */
static bool own_dir(const char *controller, char ret[static PATH_MAX])
{
	char path[PATH_MAX];

	if (!own_path(controller, path) || !strncmp(path, "/..", 3))
		return false;
	if (controller[0])
		return snprintf(ret, PATH_MAX, "/sys/fs/cgroup/%s%s", controller, path) < PATH_MAX;
	return snprintf(ret, PATH_MAX, "/sys/fs/cgroup%s", path) < PATH_MAX;
}

/* ---- groups of callers that no longer exist ---- */

static bool is_stale(const char *name)
{
	const char *dash = strrchr(name, '-');
	pid_t pid;

	if (strncmp(name, PREFIX, strlen(PREFIX)) || !dash || dash[1] < '1' || dash[1] > '9')
		return false;
	pid = (pid_t)atol(dash + 1);
	return pid > 0 && kill(pid, 0) < 0 && errno == ESRCH;
}

static void remove_stale(const char *parent)
{
	DIR *dir = opendir(parent);

	if (!dir)
		return;
	for (struct dirent *e; (e = readdir(dir));) {
		if (is_stale(e->d_name))
			unlinkat(dirfd(dir), e->d_name, AT_REMOVEDIR); /* fails while a process runs in it */
	}
	closedir(dir);
}

/* ---- creating a group ---- */

static int set_value(const char *dir, const char *file, const char *text)
{
	char path[PATH_MAX];

	if (snprintf(path, sizeof(path), "%s/%s", dir, file) >= (int)sizeof(path))
		return -ENAMETOOLONG;
	return ak_write_file(path, text);
}

static int set_number(const char *dir, const char *file, uint64_t value)
{
	char text[32];

	snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
	return set_value(dir, file, text);
}

static int make_dir(const char *parent, const char *name, char **ret)
{
	char path[PATH_MAX];

	remove_stale(parent);
	if (snprintf(path, sizeof(path), "%s/" PREFIX "%s-%d", parent, name, (int)getpid()) >= (int)sizeof(path))
		return -ENAMETOOLONG;
	if (mkdir(path, 0755) < 0 && errno != EEXIST)
		return -errno;
	*ret = strdup(path);
	return *ret ? 0 : -ENOMEM;
}

/* The file and the word under which a controller counts refusals; the version-1 names where they differ. */
static const struct {
	const char *file, *v1_file, *word;
} events[CGROUP_KIND_NUM] = {
	[CGROUP_MEMORY] = { "memory.events", "memory.oom_control", "oom_kill" },
	[CGROUP_PIDS] = { "pids.events", "pids.events", "max" },
};

static void open_events(struct cgroup *cg, enum cgroup_kind kind, const char *dir, bool v2)
{
	char path[PATH_MAX + 32];

	if (!events[kind].file)
		return;
	snprintf(path, sizeof(path), "%s/%s", dir, v2 ? events[kind].file : events[kind].v1_file);
	cg->events_fds[kind] = open(path, O_RDONLY | O_CLOEXEC);
}

static int apply(enum cgroup_kind kind, const char *dir, const struct sandbox_limits *limits, bool v2)
{
	uint64_t quota = (uint64_t)limits->cpus_milli * CPU_PERIOD_US / 1000;
	char text[64];

	switch (kind) {
	case CGROUP_MEMORY:
		if (v2) {
			set_value(dir, "memory.swap.max", "0");
			set_value(dir, "memory.oom.group", "0");
		}
		return set_number(dir, v2 ? "memory.max" : "memory.limit_in_bytes", limits->memory_bytes);
	case CGROUP_PIDS:
		return set_number(dir, "pids.max", limits->pids ? limits->pids : SANDBOX_PIDS_DEFAULT);
	case CGROUP_CPU:
		if (!v2)
			return set_number(dir, "cpu.cfs_quota_us", quota);
		snprintf(text, sizeof(text), "%llu %u", (unsigned long long)quota, CPU_PERIOD_US);
		return set_value(dir, "cpu.max", text);
	case CGROUP_KIND_NUM:
		break;
	}
	return -EINVAL;
}

static bool wanted(enum cgroup_kind kind, const struct sandbox_limits *limits)
{
	switch (kind) {
	case CGROUP_MEMORY:
		return limits->memory_bytes != 0;
	case CGROUP_PIDS:
		return limits->pids != 0; /* RLIMIT_NPROC works without a group, but only a group tells that the limit was hit */
	case CGROUP_CPU:
		return limits->cpus_milli != 0;
	case CGROUP_KIND_NUM:
		break;
	}
	return false;
}

/*
 * A group of version 2 that contains processes cannot have groups below it with controllers. Move ourselves out of PARENT, into a group
 * below it; if other processes are in PARENT, this does not help, and we move back.
 */
#define CALLER PREFIX "caller-"

static int make_room(const char *parent, const char *control, const char *text)
{
	char leaf[PATH_MAX + 64];
	int rc;

	snprintf(leaf, sizeof(leaf), "%s/" CALLER "%d", parent, (int)getpid());
	if (mkdir(leaf, 0755) < 0 && errno != EEXIST)
		return -errno;
	rc = set_value(leaf, "cgroup.procs", "0");
	if (rc == 0)
		rc = ak_write_file(control, text);
	if (rc < 0) {
		(void)set_value(parent, "cgroup.procs", "0");
		rmdir(leaf);
	}
	return rc;
}

/* Let groups below PARENT have the controller NAME. */
static int enable(const char *parent, const char *name)
{
	char path[PATH_MAX + 32], text[16];
	_cleanup_free_ char *have = NULL;
	int rc;

	snprintf(path, sizeof(path), "%s/cgroup.subtree_control", parent);
	snprintf(text, sizeof(text), "+%s", name);
	rc = ak_read_file(AT_FDCWD, path, 4096, &have, NULL);
	if (rc < 0 || strstr(have, name))
		return rc < 0 ? rc : 0;
	rc = ak_write_file(path, text);
	return rc == -EBUSY ? make_room(parent, path, text) : rc;
}

/* The group below which ours go: our own, or the one that make_room moved us out of. */
static bool v2_parent(char ret[static PATH_MAX])
{
	char *last;

	if (!own_dir("", ret))
		return false;
	last = strrchr(ret, '/');
	if (!strncmp(last + 1, CALLER, strlen(CALLER)))
		*last = '\0';
	return true;
}

/* Version 2: one folder for all controllers, if our own group delegates this one. */
static int make_v2(struct cgroup *cg, enum cgroup_kind kind, const char *name, const struct sandbox_limits *limits)
{
	char parent[PATH_MAX];
	_cleanup_free_ char *dir = NULL;
	int rc;

	if (!v2_parent(parent))
		return -ENOENT;
	rc = enable(parent, kind_names[kind]);
	if (rc < 0)
		return rc;
	rc = make_dir(parent, name, &dir);
	if (rc < 0)
		return rc;
	rc = apply(kind, dir, limits, true);
	if (rc == 0 && cg->v2_fd < 0) {
		cg->v2_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		rc = cg->v2_fd < 0 ? -errno : 0;
	}
	if (rc < 0 && cg->v2_fd < 0)
		rmdir(dir);
	if (rc < 0)
		return rc;
	open_events(cg, kind, dir, true);
	cg->dirs[kind] = TAKE(dir);
	return 0;
}

static int make_v1(struct cgroup *cg, enum cgroup_kind kind, const char *name, const struct sandbox_limits *limits)
{
	char parent[PATH_MAX], path[PATH_MAX + 32];
	_cleanup_free_ char *dir = NULL;
	int rc;

	if (!own_dir(kind_names[kind], parent))
		return -ENOENT;
	rc = make_dir(parent, name, &dir);
	if (rc < 0)
		return rc;
	rc = apply(kind, dir, limits, false);
	if (rc == 0) {
		snprintf(path, sizeof(path), "%s/cgroup.procs", dir);
		cg->join_fds[kind] = open(path, O_WRONLY | O_CLOEXEC);
		rc = cg->join_fds[kind] < 0 ? -errno : 0;
	}
	if (rc < 0) {
		rmdir(dir);
		return rc;
	}
	open_events(cg, kind, dir, false);
	cg->dirs[kind] = TAKE(dir);
	return 0;
}

/* ---- the janitor ---- */

/* A group is busy until its last process is reaped: wait for that, but not forever. */
static void remove_dir(const char *dir)
{
	for (int i = 0; i < 5000 && rmdir(dir) < 0 && errno == EBUSY; i++)
		poll(NULL, 0, i < 20 ? 1 : 2);
}

static void remove_dirs(const struct cgroup *cg)
{
	for (enum cgroup_kind kind = 0; kind < CGROUP_KIND_NUM; kind++) {
		if (cg->dirs[kind])
			remove_dir(cg->dirs[kind]);
	}
}

static _Noreturn void janitor_main(const struct cgroup *cg, int fd)
{
	sigset_t all;
	char byte;

	/* Ctrl-C and the like are meant for the caller; the janitor ends when the caller does. */
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, NULL);
	sb_keep_fds(&fd, 1);
	while (read(fd, &byte, 1) < 0 && errno == EINTR)
		;
	remove_dirs(cg);
	_exit(0);
}

static bool in_use(const struct cgroup *cg)
{
	for (enum cgroup_kind kind = 0; kind < CGROUP_KIND_NUM; kind++) {
		if (cg->dirs[kind])
			return true;
	}
	return false;
}

static void start_janitor(struct cgroup *cg)
{
	int fds[2];
	pid_t pid;

	if (!in_use(cg) || pipe2(fds, O_CLOEXEC) < 0)
		return;
	pid = fork();
	if (pid == 0)
		janitor_main(cg, fds[0]);
	ak_close(fds[0]);
	if (pid < 0) {
		ak_close(fds[1]);
		return;
	}
	cg->janitor = pid;
	cg->janitor_fd = fds[1];
}

void cgroup_init(struct cgroup *cg, const char *name, const struct sandbox_limits *limits, struct strbuf *notes)
{
	*cg = (struct cgroup){ .join_fds = { -1, -1, -1 }, .events_fds = { -1, -1, -1 }, .v2_fd = -1, .janitor_fd = -1 };
	for (enum cgroup_kind kind = 0; kind < CGROUP_KIND_NUM; kind++) {
		if (!wanted(kind, limits))
			continue;
		if (make_v1(cg, kind, name, limits) == 0 || make_v2(cg, kind, name, limits) == 0)
			continue;
		/* RLIMIT_NPROC holds. To ask the service manager for a scope takes longer than the message is worth. */
		if (kind == CGROUP_PIDS)
			continue;
		if (!scope_enter() || make_v2(cg, kind, name, limits) < 0)
			strbuf_printf(notes, "no writable cgroup: %s limit off\n", kind_names[kind]);
	}
	start_janitor(cg);
}

int cgroup_join(const struct cgroup *cg)
{
	for (enum cgroup_kind kind = 0; kind < CGROUP_KIND_NUM; kind++) {
		if (cg->join_fds[kind] >= 0 && write(cg->join_fds[kind], "0", 1) < 0)
			return -errno;
	}
	return 0;
}

int cgroup_open_procs(const struct cgroup *cg)
{
	return cg->v2_fd < 0 ? -1 : openat(cg->v2_fd, "cgroup.procs", O_WRONLY | O_CLOEXEC);
}

/* ---- what happened inside ---- */

/* The controller's event count. */
static uint64_t count_events(const struct cgroup *cg, enum cgroup_kind kind)
{
	size_t len = events[kind].word ? strlen(events[kind].word) : 0;
	char text[1024], *save = NULL;
	ssize_t n;

	if (cg->events_fds[kind] < 0)
		return 0;
	n = pread(cg->events_fds[kind], text, sizeof(text) - 1, 0);
	if (n <= 0)
		return 0;
	text[n] = '\0';
	for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		if (!strncmp(line, events[kind].word, len) && line[len] == ' ')
			return strtoul(line + len, NULL, 10);
	}
	return 0;
}

uint64_t cgroup_oom_kills(const struct cgroup *cg)
{
	return count_events(cg, CGROUP_MEMORY);
}

uint64_t cgroup_pids_refused(const struct cgroup *cg)
{
	return count_events(cg, CGROUP_PIDS);
}

void cgroup_done(struct cgroup *cg)
{
	for (enum cgroup_kind kind = 0; kind < CGROUP_KIND_NUM; kind++) {
		cg->join_fds[kind] = ak_close(cg->join_fds[kind]);
		cg->events_fds[kind] = ak_close(cg->events_fds[kind]);
	}
	cg->v2_fd = ak_close(cg->v2_fd);
	cg->janitor_fd = ak_close(cg->janitor_fd);
	if (cg->janitor > 0) {
		while (waitpid(cg->janitor, NULL, 0) < 0 && errno == EINTR)
			;
		cg->janitor = 0;
	} else {
		remove_dirs(cg);
	}
	for (enum cgroup_kind kind = 0; kind < CGROUP_KIND_NUM; kind++) {
		free(cg->dirs[kind]);
		cg->dirs[kind] = NULL;
	}
}
