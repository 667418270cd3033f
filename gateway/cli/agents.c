/* `agentkernel agents`: which agents are installed, what each still needs, and their memory. API keys themselves are never shown. */
#include "gateway/cli/cmd.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/base/json.h"
#include "gateway/base/spawn.h"
#include "gateway/base/strbuf.h"
#include "gateway/service/service.h"
#include "gateway/store/agent.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK_MS 20000 /* how long all agents may take to print their versions inside a sandbox */
#define PACKAGE_MAX (256u << 10) /* bytes of a package.json */
#define PARENTS_MAX 4 /* folders between a program and its package.json */

#define VERSION_MAX 64

/* A process that is asked for a version. */
struct probe {
	pid_t pid; /* 0: not started, or ended */
	int fd; /* owned */
	char text[512]; /* its output */
	size_t len;
	char version[VERSION_MAX]; /* "" if there is none in the output */
};

struct found {
	char path[PATH_MAX]; /* "" if it is not installed */
	char version[VERSION_MAX]; /* "" if its files do not tell */
	struct probe inside;
	const char *key; /* the API key variable that is set, or NULL */
	bool signed_in; /* in sandboxes */
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

/* ---- asking for a version inside ---- */

static void probe_start(struct probe *p, const char *program, char *const argv[], enum spawn_read what)
{
	p->fd = spawn_piped(program, argv, NULL, NULL, what, &p->pid);
	if (p->fd < 0)
		p->pid = 0;
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

/* The first word of TEXT that starts with a digit (or "v" and a digit): "2.1.3 (Claude Code)", "codex-cli 0.42.0". */
static void take_version(const char *word, char ret[static VERSION_MAX])
{
	while (*word) {
		size_t n = strcspn(word, " \t\r\n");
		const char *at = word + (word[0] == 'v');
		size_t len = n - (size_t)(at - word);

		if (at[0] >= '0' && at[0] <= '9' && n < VERSION_MAX &&
			strspn(at, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.+-_") >= len) {
			memcpy(ret, at, len);
			ret[len] = '\0';
			return;
		}
		word += n + strspn(word + n, " \t\r\n");
	}
}

/* SIGTERM lets a run that is late take down its sandbox. */
static void probe_end(struct probe *p)
{
	int status = 0;

	if (p->pid > 0) {
		if (p->fd >= 0) /* no end of file yet */
			kill(-p->pid, SIGTERM);
		while (waitpid(p->pid, &status, 0) < 0 && errno == EINTR)
			;
		p->pid = 0;
	}
	p->fd = ak_close(p->fd);
	p->text[p->len] = '\0';
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		take_version(p->text, p->version);
}

/* ---- the version of what is installed ---- */

/* "version" of the package.json in FOLDER; false if there is none. */
static bool read_package(const char *folder, char ret[static VERSION_MAX])
{
	_cleanup_free_ char *text = NULL;
	_cleanup_json_ cJSON *json = NULL;
	_cleanup_close_ int fd = -1;
	char path[PATH_MAX];
	struct stat st;
	ssize_t n;

	if (ak_path_join(path, folder, "package.json", NULL) == 0)
		fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size > PACKAGE_MAX)
		return false;
	text = malloc((size_t)st.st_size + 1);
	n = text ? ak_pread_all(fd, text, (size_t)st.st_size, 0) : -1;
	json = n > 0 ? cJSON_ParseWithLength(text, (size_t)n) : NULL;
	take_version(json_text(json, "version", ""), ret);
	return ret[0];
}

/*
 * The version of PROGRAM, from its npm package or from its own name (versions/2.1.3). We do not run it: PATH may lead to a program of a project, which a sandbox
 * may have written.
 */
static void read_version(const char *program, char ret[static VERSION_MAX])
{
	char real[PATH_MAX], name[NAME_MAX + 1];

	ret[0] = '\0';
	if (!realpath(program, real))
		return;
	snprintf(name, sizeof(name), "%s", strrchr(real, '/') + 1);
	for (int i = 0; i < PARENTS_MAX && strrchr(real, '/') > real; i++) {
		*strrchr(real, '/') = '\0';
		if (read_package(real, ret))
			return;
	}
	take_version(name, ret);
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
			probe_start(list[i], "/proc/self/exe", argv, SPAWN_OUTPUT_AND_ERRORS);
	}
	probes_read(list, ak_now_ms() + CHECK_MS);
	for (size_t i = 0; i < AGENTS_NUM; i++)
		probe_end(list[i]);
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

static bool is_signed_in(const struct ak_paths *paths, const struct agent *a)
{
	char dir[PATH_MAX], path[PATH_MAX];

	if (agent_state_dir(paths, a, NULL, dir) < 0)
		return false;
	for (const char *const *file = a->signed_in; *file; file++) {
		if (ak_path_join(path, dir, *file, NULL) == 0 && faccessat(AT_FDCWD, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
			return true;
	}
	return false;
}

static void look(struct found f[static AGENTS_NUM], const struct ak_paths *paths)
{
	for (size_t i = 0; i < AGENTS_NUM; i++) {
		f[i].inside.fd = -1;
		if (!tools_look_up(getenv("PATH"), agents[i].name, f[i].path))
			f[i].path[0] = '\0';
		f[i].key = find_key(&agents[i]);
		f[i].signed_in = is_signed_in(paths, &agents[i]);
		if (f[i].path[0])
			read_version(f[i].path, f[i].version);
	}
}

/* ---- output ---- */

/* The first line that an agent wrote inside, for one that did not print its version. */
static void put_failure(struct strbuf *out, const struct probe *p)
{
	const char *text = p->text[0] ? p->text : "no answer";
	size_t len = strcspn(text, "\n");

	strbuf_puts(out, "fails: ");
	strbuf_shown(out, text, len < 100 ? len : 100);
}

static void put_missing(struct strbuf *out, const struct agent *a, const struct found *f)
{
	if (!f->path[0])
		strbuf_printf(out, "install: %s", a->install);
	else if (!f->key && !f->signed_in)
		strbuf_printf(out, "sign in: agentkernel %s", a->name);
}

/* A key of the environment stays outside unless the user says otherwise. */
static void put_key(struct strbuf *out, const struct agent *a, const struct found *f)
{
	if (!f->path[0] || !f->key || f->signed_in)
		return;
	if (a->key_login)
		strbuf_printf(out, "  use the key: printenv %s | agentkernel %s %s\n", f->key, a->name, a->key_login);
	else
		strbuf_printf(out, "  use the key: agentkernel run -m %s --pass-api-key\n", ak_mode_name(a->mode));
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
	strbuf_json(out, f->version[0] ? f->version : NULL);
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
		snprintf(status, sizeof(status), "installed%s%s", f->version[0] ? " " : "", f->version);
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
	put_key(out, a, f);
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
