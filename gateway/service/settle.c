/*
 * An agent's memory before its first use: see service/internal.h.
 *
 * OpenCode makes the tables of its database when it starts, and two first starts at once fail ("database is locked", "table exists"), on any machine.
 * So the first run of each version starts it once more before, alone, with words that only open the database; runs that start meanwhile wait.
 */
#include "gateway/service/internal.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/base/say.h"
#include "gateway/ipc/spawn.h"
#include "gateway/store/agent.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define MARKER "settled"
#define SETTLE_MS 120000 /* a cold start on a busy machine takes seconds */

static bool settling; /* this process runs the agent for that */

/* Which build of the program the memory was made ready for. */
static void describe(const char *program, char *ret, size_t size)
{
	struct stat st;

	if (stat(program, &st) < 0)
		st = (struct stat){ 0 };
	snprintf(ret, size, "%s %lld %lld %lld\n", program, (long long)st.st_ino, (long long)st.st_size, (long long)st.st_mtime);
}

static bool is_settled(int dir, const char *want)
{
	char have[PATH_MAX + 128];
	_cleanup_close_ int fd = openat(dir, MARKER, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, have, sizeof(have));

	return n == (ssize_t)strlen(want) && !memcmp(have, want, strlen(want));
}

/* In a child: the agent with its SETTLE words, in a sandbox without a network. */
static void run_once(void *ctx)
{
	const struct run_front *f = ctx;
	const struct agent *a = agent_of_command(f->opts->argv[0]);
	char *argv[] = { f->opts->argv[0], (char *)a->settle[0], (char *)a->settle[1], NULL };
	static struct run_request ask;
	static char project[PATH_MAX]; /* the plan is made anew */
	struct run_report report;
	struct ak_err ignored;
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	for (int i = 0; null >= 0 && i < 3; i++)
		dup2(null, i);
	settling = true;
	ask = *f->opts;
	ask.argv = argv;
	ask.name = ask.workdir = NULL;
	memcpy(project, f->plan.project, sizeof(project));
	ask.dir = project[0] ? project : NULL;
	ask.no_network = ask.quiet = true;
	ask.tty = ask.keep = ask.json = false;
	ask.n_publish = ask.n_edits = ask.n_file_edits = 0;
	ask.timeout_ms = SETTLE_MS;
	_exit(service_run(&ask, f->paths, &report, &ignored) < 0);
}

static void settle(struct run_front *f, const struct agent *a, int dir, const char *id)
{
	static const int none[1];
	struct ak_err err;
	_cleanup_close_ int fd = -1;
	pid_t pid;

	if (!f->opts->quiet)
		ak_say("preparing the memory of %s, once for each version of it", a->title);
	pid = spawn_child(run_once, f, none, 0, &err);
	while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	/* Best effort: if this failed, the run itself reports what is wrong. */
	fd = openat(dir, MARKER, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd >= 0)
		(void)ak_write_all(fd, id, strlen(id));
}

void service_settle(struct run_front *f)
{
	const struct agent *a = f->opts->argv && f->opts->argv[0] ? agent_of_command(f->opts->argv[0]) : NULL;
	const char *source = f->plan.agent_state[0].source, *program = f->plan.tools.program;
	char id[PATH_MAX + 128];
	_cleanup_free_ char *path = NULL;
	_cleanup_close_ int dir = -1;

	if (settling || !a || !a->settle[0] || !source[0] || !program || f->opts->vm || f->plan.image)
		return;
	path = strndup(source, strlen(source) - strlen(a->state[0]) - 1);
	dir = path ? open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
	describe(program, id, sizeof(id));
	if (dir < 0 || is_settled(dir, id) || flock(dir, LOCK_EX) < 0 || is_settled(dir, id))
		return;
	settle(f, a, dir, id);
}
