/* The list of checks, and what they share. See doctor/doctor.h. */
#include "gateway/doctor/internal.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/base/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

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
	doctor_containers,
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

/* ---- running a program ---- */

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
	int status = 0, fd;
	pid_t pid;
	bool done;

	fd = spawn_piped(argv[0], argv, dir, env, SPAWN_OUTPUT_AND_ERRORS, &pid);
	if (fd < 0)
		return fd;
	done = read_output(fd, until, out, size);
	ak_close(fd);
	if (!done)
		kill(-pid, SIGKILL);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (!done)
		return -ETIME;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
