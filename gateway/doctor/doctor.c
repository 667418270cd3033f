/* The list of checks, and what they share. See doctor/doctor.h. */
#include "gateway/doctor/internal.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static void (*const checks[])(struct doctor *d) = {
	doctor_kernel,
	doctor_namespaces,
	doctor_landlock,
	doctor_sandbox,
	doctor_resolver,
	doctor_reach,
	doctor_folders,
	doctor_leftovers,
	doctor_ids,
	doctor_programs,
	doctor_kvm,
	doctor_vm,
	doctor_agents,
};

void doctor_run(const struct ak_paths *paths, const struct doctor_how *how, struct doctor_report *ret)
{
	struct doctor d = { .paths = paths, .how = how, .report = ret };

	ret->n = 0;
	ret->works = true;
	for (size_t i = 0; i < ARRAY_SIZE(checks); i++)
		checks[i](&d);
}

void doctor_add(struct doctor *d, const char *id, enum doctor_level level, const char *fix, const char *fmt, ...)
{
	struct doctor_report *r = d->report;
	struct doctor_row *row;
	va_list ap;

	if (level == DOCTOR_FAIL)
		r->works = false;
	if (r->n == DOCTOR_ROWS_MAX)
		return;
	row = &r->rows[r->n++];
	row->id = id;
	row->level = level;
	snprintf(row->fix, sizeof(row->fix), "%s", fix ? fix : "");
	va_start(ap, fmt);
	vsnprintf(row->found, sizeof(row->found), fmt, ap);
	va_end(ap);
}

bool doctor_find(const char *program, char ret[static PATH_MAX])
{
	/* Programs of the system are not on every user's PATH. */
	const char *lists[] = { getenv("PATH"), "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" };

	for (size_t i = 0; i < ARRAY_SIZE(lists); i++) {
		for (const char *at = lists[i]; at && *at;) {
			int len = (int)strcspn(at, ":");

			if (len && snprintf(ret, PATH_MAX, "%.*s/%s", len, at, program) < PATH_MAX && access(ret, X_OK) == 0)
				return true;
			at += len + (at[len] == ':');
		}
	}
	return false;
}

/* ---- running a program ---- */

static int start(char *const argv[], const char *dir, char *const env[], int out, pid_t *ret)
{
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attr;
	int rc;

	posix_spawn_file_actions_init(&actions);
	posix_spawnattr_init(&attr);
	posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETPGROUP);
	posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_adddup2(&actions, out, 1);
	posix_spawn_file_actions_adddup2(&actions, out, 2);
	if (dir)
		posix_spawn_file_actions_addchdir_np(&actions, dir);
	rc = posix_spawn(ret, argv[0], &actions, &attr, argv, env ? env : environ);
	posix_spawn_file_actions_destroy(&actions);
	posix_spawnattr_destroy(&attr);
	return -rc;
}

/* Read until end of file or UNTIL; true at end of file. What does not fit is dropped. */
static bool read_output(int fd, uint64_t until, char *out, size_t size)
{
	size_t len = 0;

	out[0] = '\0';
	for (uint64_t now; (now = ak_now_ms()) < until;) {
		struct pollfd p = { .fd = fd, .events = POLLIN };
		char more[1024];
		ssize_t n;

		if (poll(&p, 1, (int)(until - now)) <= 0)
			continue;
		n = read(fd, more, sizeof(more));
		if (n <= 0)
			return true;
		if ((size_t)n > size - 1 - len)
			n = (ssize_t)(size - 1 - len);
		memcpy(out + len, more, (size_t)n);
		len += (size_t)n;
		out[len] = '\0';
	}
	return false;
}

int doctor_capture(char *const argv[], const char *dir, char *const env[], int timeout_ms, char *out, size_t size)
{
	uint64_t until = ak_now_ms() + (uint64_t)timeout_ms;
	int fds[2], status = 0, rc;
	pid_t pid;
	bool done;

	if (pipe2(fds, O_CLOEXEC) < 0)
		return -errno;
	rc = start(argv, dir, env, fds[1], &pid);
	ak_close(fds[1]);
	if (rc < 0) {
		ak_close(fds[0]);
		return rc;
	}
	done = read_output(fds[0], until, out, size);
	ak_close(fds[0]);
	if (!done)
		kill(-pid, SIGKILL);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (!done)
		return -ETIME;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
