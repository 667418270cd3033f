/* `agentkernel agents`: which agents are installed, and whether their API key is set. Keys themselves are never shown. */
#include "gateway/cli/cmd.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/base/strbuf.h"
#include "gateway/store/agent.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define VERSION_MS 5000 /* how long an agent may take to say its version */

extern char **environ;

/* What was found out about one. */
struct found {
	char path[PATH_MAX]; /* "" when it is not installed */
	pid_t pid; /* while it is asked for its version */
	int fd; /* owned */
	char said[256];
	size_t n_said;
	char version[64];
	const char *key; /* the variable that is set, or NULL */
};

/* On PATH, but for the current folder: a project must not decide what is run. */
static void find(const char *command, char ret[static PATH_MAX])
{
	const char *at = getenv("PATH");

	for (ret[0] = '\0'; at && *at && !ret[0];) {
		size_t n = strcspn(at, ":");
		char dir[PATH_MAX];
		struct stat st;

		if (at[0] == '/' && n < sizeof(dir)) {
			memcpy(dir, at, n);
			dir[n] = '\0';
			if (ak_path_join(ret, dir, command, NULL) < 0 || stat(ret, &st) < 0 || !S_ISREG(st.st_mode) ||
				access(ret, X_OK) < 0)
				ret[0] = '\0';
		}
		at += n + (at[n] == ':');
	}
}

static const char *find_key(const struct agent *a)
{
	for (const char *const *k = a->keys; *k; k++) {
		const char *value = getenv(*k);

		if (value && *value)
			return *k;
	}
	return NULL;
}

/* ---- versions ---- */

static void ask_version(struct found *f)
{
	char opt[] = "--version", *argv[] = { f->path, opt, NULL };
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
	posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
	if (posix_spawn(&f->pid, f->path, &actions, &attr, argv, environ) != 0)
		f->pid = 0;
	posix_spawn_file_actions_destroy(&actions);
	posix_spawnattr_destroy(&attr);
	ak_close(fds[1]);
	if (f->pid > 0)
		f->fd = fds[0];
	else
		ak_close(fds[0]);
}

static void hear(struct found *f)
{
	char more[256];
	ssize_t n = read(f->fd, more, sizeof(more));
	size_t room = sizeof(f->said) - 1 - f->n_said;

	if (n <= 0) {
		f->fd = ak_close(f->fd);
		return;
	}
	if ((size_t)n < room)
		room = (size_t)n;
	memcpy(f->said + f->n_said, more, room);
	f->n_said += room;
}

static void hear_all(struct found *f, size_t n, uint64_t until)
{
	struct pollfd p[AGENTS_NUM];
	bool any = true;

	for (uint64_t now; any && (now = ak_now_ms()) < until;) {
		any = false;
		for (size_t i = 0; i < n; i++) {
			p[i] = (struct pollfd){ .fd = f[i].fd, .events = POLLIN };
			any |= f[i].fd >= 0;
		}
		if (!any || poll(p, n, (int)(until - now)) <= 0)
			continue;
		for (size_t i = 0; i < n; i++) {
			if (p[i].revents)
				hear(&f[i]);
		}
	}
}

/* The first word of what it said that starts with a digit (or "v" and a digit): "2.1.3 (Claude Code)", "codex-cli 0.42.0". */
static void take_version(struct found *f)
{
	char *word = f->said;

	f->said[f->n_said] = '\0';
	while (*word) {
		size_t n = strcspn(word, " \t\r\n");
		const char *at = word + (word[0] == 'v');

		if (at[0] >= '0' && at[0] <= '9' && n < sizeof(f->version) &&
			strspn(at, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.+-_") >=
				n - (size_t)(at - word)) {
			memcpy(f->version, at, n - (size_t)(at - word));
			return;
		}
		word += n + strspn(word + n, " \t\r\n");
	}
}

static void end_one(struct found *f)
{
	int status;

	f->fd = ak_close(f->fd);
	if (f->pid <= 0)
		return;
	/* Its own group: what it started goes too. One that has answered may take its time no more. */
	kill(-f->pid, SIGKILL);
	while (waitpid(f->pid, &status, 0) < 0 && errno == EINTR)
		;
}

/* ---- output ---- */

static void put_json(struct strbuf *out, const struct agent *a, const struct found *f)
{
	strbuf_printf(out, "{\"agent\":\"%s\",\"command\":\"%s\",\"installed\":%s,\"path\":", a->title, a->name,
		f->path[0] ? "true" : "false");
	if (f->path[0])
		strbuf_json_utf8(out, f->path, strlen(f->path));
	else
		strbuf_puts(out, "null");
	strbuf_puts(out, ",\"version\":");
	strbuf_json(out, f->version[0] ? f->version : NULL);
	strbuf_printf(
		out, ",\"api_key\":{\"variable\":\"%s\",\"set\":%s}}", f->key ? f->key : a->keys[0], f->key ? "true" : "false");
}

static void put_row(struct strbuf *out, const struct agent *a, const struct found *f)
{
	char status[96];

	if (f->path[0])
		snprintf(status, sizeof(status), "installed%s%s", f->version[0] ? " " : "", f->version);
	else
		snprintf(status, sizeof(status), "not found");
	strbuf_printf(
		out, "%-14s %-24s %s%s\n", a->title, status, f->key ? f->key : a->keys[0], f->key ? " is set" : " is not set");
}

static void look(struct found f[static AGENTS_NUM])
{
	for (size_t i = 0; i < AGENTS_NUM; i++) {
		f[i].fd = -1;
		find(agents[i].name, f[i].path);
		f[i].key = find_key(&agents[i]);
		if (f[i].path[0])
			ask_version(&f[i]);
	}
	hear_all(f, AGENTS_NUM, ak_now_ms() + VERSION_MS);
	for (size_t i = 0; i < AGENTS_NUM; i++) {
		end_one(&f[i]);
		take_version(&f[i]);
	}
}

int cmd_agents(int argc, char **argv)
{
	_cleanup_strbuf_ struct strbuf out = { 0 };
	struct found found[AGENTS_NUM] = { { .pid = 0 } };
	struct cmd_args args;
	int rc = cmd_read(&args, "agents", argc, argv, NULL, 0, NULL);
	bool json = args.seen[FIELD_JSON];

	if (rc)
		return rc - 1;
	look(found);
	if (!json)
		strbuf_printf(&out, "%-14s %-24s %s\n", "AGENT", "STATUS", "API KEY");
	for (size_t k = 0; k < AGENTS_NUM; k++) {
		if (json)
			strbuf_puts(&out, k ? ",\n " : "[");
		(json ? put_json : put_row)(&out, &agents[k], &found[k]);
	}
	if (json)
		strbuf_puts(&out, "]\n");
	if (out.failed) {
		ak_say("out of memory");
		return AK_EXIT_ERROR;
	}
	fwrite(out.data, 1, out.len, stdout);
	return 0;
}
