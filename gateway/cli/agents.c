/* `agentkernel agents`: which agents are installed, what each still needs, and their memory. API keys themselves are never shown. */
#include "gateway/cli/cmd.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/base/strbuf.h"
#include "gateway/service/service.h"
#include "gateway/store/agent.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define VERSION_MS 5000 /* how long an agent may take to print its version */
#define CHECK_MS 20000 /* the same inside a sandbox, with all agents at once */

extern char **environ;

/* A process that is asked for a version. */
struct probe {
	pid_t pid; /* 0: not started, or ended */
	int fd; /* owned */
	char text[512]; /* its output */
	size_t len;
	char version[64]; /* "" if there is none in the output */
};

struct found {
	char path[PATH_MAX]; /* "" if it is not installed */
	struct probe outside, inside;
	const char *key; /* the API key variable that is set, or NULL */
	bool memory; /* it has been used in a sandbox, so it may be signed in there */
};

static const char *find_key(const struct agent *a)
{
	for (const char *const *k = a->keys; *k; k++) {
		const char *value = getenv(*k);

		if (value && *value)
			return *k;
	}
	return NULL;
}

/* ---- asking for a version ---- */

static void probe_start(struct probe *p, const char *program, char *const argv[], bool with_errors)
{
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attr;
	int fds[2];

	if (pipe2(fds, O_CLOEXEC) < 0)
		return;
	posix_spawn_file_actions_init(&actions);
	posix_spawnattr_init(&attr);
	posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETPGROUP);
	posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_adddup2(&actions, fds[1], 1);
	if (with_errors)
		posix_spawn_file_actions_adddup2(&actions, fds[1], 2);
	else
		posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
	if (posix_spawn(&p->pid, program, &actions, &attr, argv, environ) != 0)
		p->pid = 0;
	posix_spawn_file_actions_destroy(&actions);
	posix_spawnattr_destroy(&attr);
	ak_close(fds[1]);
	if (p->pid > 0)
		p->fd = fds[0];
	else
		ak_close(fds[0]);
}

static void probe_read(struct probe *p)
{
	char more[512];
	ssize_t n = read(p->fd, more, sizeof(more));
	size_t room = sizeof(p->text) - 1 - p->len;

	if (n <= 0) {
		p->fd = ak_close(p->fd);
		return;
	}
	if ((size_t)n < room)
		room = (size_t)n;
	memcpy(p->text + p->len, more, room);
	p->len += room;
}

static void probes_read(struct probe *list[static AGENTS_NUM], uint64_t until)
{
	struct pollfd p[AGENTS_NUM];
	bool any = true;

	for (uint64_t now; any && (now = ak_now_ms()) < until;) {
		any = false;
		for (size_t i = 0; i < AGENTS_NUM; i++) {
			p[i] = (struct pollfd){ .fd = list[i]->fd, .events = POLLIN };
			any |= list[i]->fd >= 0;
		}
		if (!any || poll(p, AGENTS_NUM, (int)(until - now)) <= 0)
			continue;
		for (size_t i = 0; i < AGENTS_NUM; i++) {
			if (p[i].revents)
				probe_read(list[i]);
		}
	}
}

/* The first word of the output that starts with a digit (or "v" and a digit): "2.1.3 (Claude Code)", "codex-cli 0.42.0". */
static void take_version(struct probe *p)
{
	char *word = p->text;

	p->text[p->len] = '\0';
	while (*word) {
		size_t n = strcspn(word, " \t\r\n");
		const char *at = word + (word[0] == 'v');

		if (at[0] >= '0' && at[0] <= '9' && n < sizeof(p->version) &&
			strspn(at, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.+-_") >=
				n - (size_t)(at - word)) {
			memcpy(p->version, at, n - (size_t)(at - word));
			return;
		}
		word += n + strspn(word + n, " \t\r\n");
	}
}

/* SIG is SIGKILL for a process of any kind; SIGTERM lets a run take down its sandbox first. */
static void probe_end(struct probe *p, int sig)
{
	int status = 0;

	if (p->pid > 0) {
		bool late = p->fd >= 0; /* no end of file yet */

		if (late || sig == SIGKILL)
			kill(-p->pid, sig);
		while (waitpid(p->pid, &status, 0) < 0 && errno == EINTR)
			;
		p->pid = 0;
	}
	p->fd = ak_close(p->fd);
	p->text[p->len] = '\0';
	if (sig == SIGKILL || (WIFEXITED(status) && WEXITSTATUS(status) == 0))
		take_version(p);
}

/* Run this program once for each agent that is installed, all at once: `run --compatibility-mode M -- AGENT --version`. */
static void check_inside(struct found f[static AGENTS_NUM], const char *dir)
{
	static char name[] = "agentkernel", run[] = "run", quiet[] = "--quiet", mode[] = "--compatibility-mode", at[] = "--dir",
		    state[] = "--agent-state", none[] = "none", end[] = "--", version[] = "--version";
	struct probe *list[AGENTS_NUM];

	for (size_t i = 0; i < AGENTS_NUM; i++) {
		char *argv[] = { name, run, quiet, mode, (char *)ak_mode_name(agents[i].mode), at, (char *)dir, state, none, end,
			(char *)agents[i].name, version, NULL };

		list[i] = &f[i].inside;
		if (f[i].path[0])
			probe_start(list[i], "/proc/self/exe", argv, true);
	}
	probes_read(list, ak_now_ms() + CHECK_MS);
	for (size_t i = 0; i < AGENTS_NUM; i++)
		probe_end(list[i], SIGTERM);
}

static int check(struct found f[static AGENTS_NUM])
{
	const char *tmp = getenv("TMPDIR");
	char dir[PATH_MAX];

	if (snprintf(dir, sizeof(dir), "%s/agentkernel-check-XXXXXX", tmp && tmp[0] == '/' ? tmp : "/tmp") >= (int)sizeof(dir) ||
		!mkdtemp(dir)) {
		ak_say("agents: cannot make a folder for the check in '%s': %s", tmp ? tmp : "/tmp", strerror(errno));
		return AK_EXIT_FAILED;
	}
	check_inside(f, dir);
	(void)ak_remove_tree(AT_FDCWD, dir);
	for (size_t i = 0; i < AGENTS_NUM; i++) {
		if (f[i].path[0] && !f[i].inside.version[0])
			return AK_EXIT_ERROR;
	}
	return 0;
}

static void look(struct found f[static AGENTS_NUM], const struct ak_paths *paths)
{
	struct probe *list[AGENTS_NUM];

	for (size_t i = 0; i < AGENTS_NUM; i++) {
		char opt[] = "--version", *argv[] = { f[i].path, opt, NULL }, dir[PATH_MAX];

		f[i].outside.fd = f[i].inside.fd = -1;
		list[i] = &f[i].outside;
		if (!tools_look_up(getenv("PATH"), agents[i].name, f[i].path))
			f[i].path[0] = '\0';
		f[i].key = find_key(&agents[i]);
		f[i].memory = agent_state_dir(paths, &agents[i], NULL, dir) == 0 && access(dir, F_OK) == 0;
		if (f[i].path[0])
			probe_start(list[i], f[i].path, argv, false);
	}
	probes_read(list, ak_now_ms() + VERSION_MS);
	/* Each is in a process group of its own: its children are killed as well. */
	for (size_t i = 0; i < AGENTS_NUM; i++)
		probe_end(list[i], SIGKILL);
}

/* ---- output ---- */

/* The first line that an agent wrote inside, for one that did not print its version. */
static void put_failure(struct strbuf *out, const struct probe *p)
{
	int len = (int)strcspn(p->text, "\n");

	strbuf_printf(out, "fails: %.*s", len < 100 ? len : 100, p->text[0] ? p->text : "no answer");
}

static void put_missing(struct strbuf *out, const struct agent *a, const struct found *f)
{
	if (!f->path[0])
		strbuf_printf(out, "install: %s", a->install);
	else if (!f->key && !f->memory)
		strbuf_printf(out, "sign in: agentkernel %s", a->name);
}

static void put_json(struct strbuf *out, const struct agent *a, const struct found *f, bool checked)
{
	_cleanup_strbuf_ struct strbuf missing = { 0 }, failure = { 0 };

	strbuf_printf(out, "{\"agent\":\"%s\",\"command\":\"%s\",\"installed\":%s,\"path\":", a->title, a->name,
		f->path[0] ? "true" : "false");
	if (f->path[0])
		strbuf_json_utf8(out, f->path, strlen(f->path));
	else
		strbuf_puts(out, "null");
	strbuf_puts(out, ",\"version\":");
	strbuf_json(out, f->outside.version[0] ? f->outside.version : NULL);
	if (checked && f->path[0]) {
		put_failure(&failure, &f->inside);
		strbuf_puts(out, ",\"inside\":");
		strbuf_json(out, f->inside.version[0] ? f->inside.version : failure.data);
	}
	put_missing(&missing, a, f);
	strbuf_puts(out, ",\"missing\":");
	strbuf_json(out, missing.len ? missing.data : NULL);
	strbuf_printf(
		out, ",\"api_key\":{\"variable\":\"%s\",\"set\":%s}}", f->key ? f->key : a->keys[0], f->key ? "true" : "false");
}

static void put_row(struct strbuf *out, const struct agent *a, const struct found *f, bool checked)
{
	_cleanup_strbuf_ struct strbuf missing = { 0 };
	char status[96];

	if (f->path[0])
		snprintf(status, sizeof(status), "installed%s%s", f->outside.version[0] ? " " : "", f->outside.version);
	else
		snprintf(status, sizeof(status), "not found");
	strbuf_printf(
		out, "%-14s %-24s %s%s\n", a->title, status, f->key ? f->key : a->keys[0], f->key ? " is set" : " is not set");
	if (checked && f->path[0]) {
		strbuf_printf(out, "  in %s mode: ", ak_mode_name(a->mode));
		if (f->inside.version[0])
			strbuf_puts(out, f->inside.version);
		else
			put_failure(out, &f->inside);
		strbuf_putc(out, '\n');
	}
	put_missing(&missing, a, f);
	if (missing.len)
		strbuf_printf(out, "  %s\n", missing.data);
}

int cmd_agents(int argc, char **argv)
{
	_cleanup_strbuf_ struct strbuf out = { 0 };
	static struct found found[AGENTS_NUM]; /* large */
	struct ak_paths paths;
	struct cmd_args args;
	struct ak_err err;
	int rc = cmd_read(&args, "agents", argc, argv, NULL, 0, NULL);
	bool json = args.seen[FIELD_JSON], checked = args.seen[FIELD_CHECK];

	if (rc)
		return rc - 1;
	if (ak_paths_init(&paths, &err) < 0) {
		ak_say("%s", err.text);
		return AK_EXIT_FAILED;
	}
	look(found, &paths);
	rc = checked ? check(found) : 0;
	if (!json)
		strbuf_printf(&out, "%-14s %-24s %s\n", "AGENT", "STATUS", "API KEY");
	for (size_t k = 0; k < AGENTS_NUM; k++) {
		if (json)
			strbuf_puts(&out, k ? "," : "[");
		(json ? put_json : put_row)(&out, &agents[k], &found[k], checked);
	}
	if (json) {
		int failed;

		strbuf_putc(&out, ']');
		failed = cmd_print_json_text(&out);
		return failed ? failed : rc;
	}
	if (out.failed) {
		ak_say("out of memory");
		return AK_EXIT_ERROR;
	}
	fwrite(out.data, 1, out.len, stdout);
	return rc;
}

/* ---- memory ---- */

/* The agent that a command line names; NULL after an error, or --help, with the exit code in *RET. */
static const struct agent *named(const char *command, int argc, char **argv, int *ret)
{
	const struct agent *a;
	struct cmd_args args;
	const char *name = NULL;
	size_t n = 0;
	int rc = cmd_read(&args, command, argc, argv, &name, 1, &n);

	*ret = rc ? rc - 1 : AK_EXIT_USAGE;
	if (rc)
		return NULL;
	a = n ? agent_named(name) : NULL;
	if (!a)
		ak_say("%s: %s%.64s%s: one of claude, codex, gemini, opencode", command, n ? "unknown agent '" : "which agent",
			n ? name : "", n ? "'" : "?");
	return a;
}

static void say_path(const char *path)
{
	ak_say("copying %s", path);
}

int cmd_agents_import(int argc, char **argv)
{
	struct ak_paths paths;
	struct ak_err err;
	uint64_t files = 0;
	int rc;
	const struct agent *a = named("agents import", argc, argv, &rc);

	if (!a)
		return rc;
	rc = ak_paths_init(&paths, &err);
	if (rc == 0)
		rc = service_agent_import(&paths, a, say_path, &files, &err);
	if (rc < 0) {
		ak_say("agents import: %s", err.text);
		return AK_EXIT_ERROR;
	}
	ak_say("%s: %llu file%s copied; your own stay as they are", a->title, (unsigned long long)files, files == 1 ? "" : "s");
	return 0;
}

int cmd_agents_reset(int argc, char **argv)
{
	struct ak_paths paths;
	struct ak_err err;
	int rc;
	const struct agent *a = named("agents reset", argc, argv, &rc);

	if (!a)
		return rc;
	rc = ak_paths_init(&paths, &err);
	if (rc == 0)
		rc = service_agent_reset(&paths, a, &err);
	if (rc < 0) {
		ak_say("agents reset: %s", err.text);
		return AK_EXIT_ERROR;
	}
	return 0;
}
