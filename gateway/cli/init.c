/*
 * `agentkernel init`: write a commented agentkernel.toml for the project in the current folder, and the files by which a client finds our MCP
 * server. Existing files are replaced only with --force and never merged; instead we print what to add. Symbolic links are not followed, so a
 * project cannot make us overwrite the user's own settings.
 */
#include "gateway/cli/cmd.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/base/strbuf.h"
#include "gateway/service/service.h"
#include "gateway/store/agent.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TEMPLATE_MAX (64u << 10)

struct file {
	const char *plugin; /* write the file for this --plugin; NULL: always */
	const char *source; /* in the folder of templates */
	const char *target; /* in the current folder */
};

static const struct file files[] = {
	{ NULL, "agentkernel.toml", "agentkernel.toml" },
	{ "mcp", "mcp.json", ".mcp.json" },
	{ "claude", "claude-mcp.json", ".mcp.json" },
	{ "claude", "claude-settings.json", ".claude/settings.json" },
	{ "claude", "SKILL.md", ".claude/skills/agentkernel/SKILL.md" },
	{ "codex", "codex-config.toml", ".codex/config.toml" },
	{ "gemini", "gemini-settings.json", ".gemini/settings.json" },
	{ "opencode", "opencode.json", "opencode.json" },
};

struct init {
	const char *plugin;
	bool dry_run, force;
	struct ak_paths paths;
	bool kept; /* an existing file was kept */
};

/* ---- templates ---- */

/* Read a template from the installed data folder or from the source tree. */
static int read_template(const struct init *in, const char *name, char **ret, struct ak_err *err)
{
	static const char *const dirs[] = { "plugins", "gateway/plugins" };
	char path[PATH_MAX];
	int rc = -ENOENT;

	for (size_t i = 0; i < ARRAY_SIZE(dirs) && rc == -ENOENT; i++) {
		if (ak_path_join(path, in->paths.data, dirs[i], name) < 0)
			return ak_fail(err, ENAMETOOLONG, "data folder: path too long");
		rc = ak_read_file(AT_FDCWD, path, TEMPLATE_MAX, ret, NULL);
	}
	return rc < 0 ? ak_fail_errno(err, -rc, "cannot read '%s' in '%s/plugins'", name, in->paths.data) : 0;
}

/* Derive a valid sandbox name from the name of the current folder. */
static void name_of_project(char ret[static AK_NAME_MAX])
{
	_cleanup_free_ char *cwd = realpath(".", NULL);
	const char *base = cwd ? strrchr(cwd, '/') : NULL;
	size_t n = 0;

	for (base = base ? base + 1 : ""; *base && n < AK_NAME_MAX - 1; base++) {
		bool letter = (*base >= 'a' && *base <= 'z') || (*base >= 'A' && *base <= 'Z') || (*base >= '0' && *base <= '9');

		if (letter || n > 0)
			ret[n++] = letter || *base == '_' ? *base : '-';
	}
	while (n > 0 && (ret[n - 1] == '-' || ret[n - 1] == '_'))
		n--;
	ret[n] = '\0';
	if (!n)
		strcpy(ret, "project");
}

/* The first agent on the caller's PATH; NULL if there is none. */
static const struct agent *installed_agent(void)
{
	char file[PATH_MAX];

	for (size_t i = 0; i < AGENTS_NUM; i++) {
		if (tools_look_up(getenv("PATH"), agents[i].name, file))
			return &agents[i];
	}
	return NULL;
}

struct mark {
	const char *mark;
	const char *text;
};

/* Replace every mark of MARKS, which ends with NULL. */
static void replace_marks(const char *text, const struct mark *marks, struct strbuf *out)
{
	while (*text) {
		const struct mark *m = marks;

		while (m->mark && strncmp(text, m->mark, strlen(m->mark)) != 0)
			m++;
		if (m->mark)
			strbuf_puts(out, m->text);
		else
			strbuf_putc(out, *text);
		text += m->mark ? strlen(m->mark) : 1;
	}
}

static int fill_template(const struct init *in, const char *source, struct strbuf *out, struct ak_err *err)
{
	const struct run_request nothing = { .mode = AK_MODE_NATIVE };
	const struct agent *agent = installed_agent();
	_cleanup_free_ char *text = NULL;
	struct detect_answer image;
	char name[AK_NAME_MAX];
	const struct mark marks[] = {
		{ "@NAME@", name },
		{ "@IMAGE@", "" },
		{ "@IMAGE_WHY@", image.why },
		{ "@AGENT@", agent ? agent->name : "claude" },
		{ "@AGENT_WHY@", agent ? "found on your PATH" : "none was found on your PATH" },
		{ NULL, NULL },
	};
	struct mark all[ARRAY_SIZE(marks)];
	int rc = read_template(in, source, &text, err);

	if (rc < 0)
		return rc;
	name_of_project(name);
	service_detect(&nothing, NULL, ".", &image);
	for (char *c = image.why; *c; c++) {
		if (*c < 0x20 || *c >= 0x7f) /* the name of a file, in a comment */
			*c = '?';
	}
	memcpy(all, marks, sizeof(marks));
	all[1].text = image.image;
	replace_marks(text, all, out);
	return out->failed ? ak_fail(err, ENOMEM, "out of memory") : 0;
}

/* ---- writing ---- */

/* Open the parent folder of TARGET; with MAKE, create missing folders, else fail with -ENOENT. *RET_NAME is the last part of TARGET. */
static int open_parent(const char *target, bool make, const char **ret_name, struct ak_err *err)
{
	_cleanup_close_ int dir = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	const char *at = target, *slash;
	char part[NAME_MAX + 1];

	if (dir < 0)
		return ak_fail_errno(err, errno, "the current folder");
	for (; (slash = strchr(at, '/')); at = slash + 1) {
		int next;

		snprintf(part, sizeof(part), "%.*s", (int)(slash - at), at);
		if (make && mkdirat(dir, part, 0777) < 0 && errno != EEXIST)
			return ak_fail_errno(err, errno, "cannot create folder '%s' for '%s'", part, target);
		next = openat(dir, part, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (next < 0 && errno == ENOENT)
			return -ENOENT;
		if (next < 0)
			return ak_fail(err, ENOTDIR, "'%s' of '%s' is not a folder (links are not followed)", part, target);
		ak_close(dir);
		dir = next;
	}
	*ret_name = at;
	return TAKE_FD(dir);
}

/* Write a temporary file and rename it: a symbolic link called NAME is replaced, not followed. */
static int write_file(int dir, const char *name, const struct strbuf *text)
{
	char beside[NAME_MAX + 1];
	int rc, fd;

	if (snprintf(beside, sizeof(beside), ".%s.%d", name, (int)getpid()) >= (int)sizeof(beside))
		return -ENAMETOOLONG;
	fd = openat(dir, beside, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
	if (fd < 0)
		return -errno;
	rc = ak_write_all(fd, text->data, text->len);
	ak_close(fd);
	if (rc == 0 && renameat(dir, beside, dir, name) < 0)
		rc = -errno;
	if (rc < 0)
		unlinkat(dir, beside, 0);
	return rc;
}

enum there { ABSENT, SAME, DIFFERENT };

static enum there look(int dir, const char *name, const struct strbuf *want)
{
	_cleanup_free_ char *have = NULL;
	struct stat st;
	size_t len;

	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? ABSENT : DIFFERENT;
	if (!S_ISREG(st.st_mode) || ak_read_file(dir, name, TEMPLATE_MAX, &have, &len) < 0)
		return DIFFERENT;
	return len == want->len && !memcmp(have, want->data, len) ? SAME : DIFFERENT;
}

static void tell_kept(struct init *in, const struct file *f, const struct strbuf *text)
{
	if (!f->plugin && in->plugin) { /* the user may have edited it; with --plugin, --force only replaces the plugin's files */
		printf("kept     %s\n", f->target);
		return;
	}
	in->kept = true;
	printf("kept     %s: it already exists; --force replaces it\n", f->target);
	if (f->plugin)
		printf("         it should contain:\n%s", text->data);
}

/* A dry run checks the parent folder too, so that it fails with the same error as a real run. */
static int do_file(struct init *in, const struct file *f, struct ak_err *err)
{
	_cleanup_strbuf_ struct strbuf text = { 0 };
	_cleanup_close_ int dir = -1;
	enum there there = ABSENT;
	const char *name = NULL;
	int rc = fill_template(in, f->source, &text, err);

	if (rc < 0)
		return rc;
	dir = open_parent(f->target, !in->dry_run, &name, err);
	if (dir < 0 && dir != -ENOENT)
		return dir;
	if (dir >= 0)
		there = look(dir, name, &text);
	if (there == SAME) {
		printf("same     %s\n", f->target);
	} else if (there == DIFFERENT && (!in->force || (in->plugin && !f->plugin))) {
		tell_kept(in, f, &text);
	} else if (in->dry_run) {
		printf("would %s %s:\n%s\n", there == DIFFERENT ? "replace" : "write", f->target, text.data);
	} else {
		rc = write_file(dir, name, &text);
		if (rc < 0)
			return ak_fail_errno(err, -rc, "cannot write '%s'", f->target);
		printf("%s %s\n", there == DIFFERENT ? "replaced" : "wrote   ", f->target);
	}
	return 0;
}

/* ---- the command ---- */

static int parse(int argc, char **argv, struct init *in)
{
	struct cmd_args a;
	int rc = cmd_read(&a, "init", argc, argv, NULL, 0, NULL);

	in->plugin = a.given[FIELD_PLUGIN].text;
	in->dry_run = a.seen[FIELD_DRY_RUN];
	in->force = a.seen[FIELD_REPLACE];
	return rc;
}

static void tell_next(const struct init *in)
{
	static const struct {
		const char *plugin, *text;
	} next[] = {
		{ "claude",
			"Start claude here and approve the server; /mcp shows it. Permissions are in .claude/settings.json." },
		{ "codex",
			"Codex reads .codex/config.toml in projects that you trust. For all projects: codex mcp add agentkernel -- agentkernel mcp server" },
		{ "gemini", "Start gemini here; /mcp shows the server." },
		{ "opencode", "Start opencode here; its tools include those of the server agentkernel." },
		{ "mcp", "Clients that read .mcp.json find the server; configure others to run 'agentkernel mcp server'." },
	};

	for (size_t i = 0; i < ARRAY_SIZE(next) && in->plugin && !in->dry_run; i++) {
		if (!strcmp(next[i].plugin, in->plugin))
			puts(next[i].text);
	}
}

int cmd_init(int argc, char **argv)
{
	struct init in = { .plugin = NULL };
	struct ak_err err;
	int rc = parse(argc, argv, &in);

	if (rc)
		return rc - 1;
	rc = ak_paths_init(&in.paths, &err);
	for (size_t i = 0; i < ARRAY_SIZE(files) && rc == 0; i++) {
		if (!files[i].plugin || (in.plugin && !strcmp(files[i].plugin, in.plugin)))
			rc = do_file(&in, &files[i], &err);
	}
	if (rc < 0) {
		ak_say("init: %s", err.text);
		return AK_EXIT_ERROR;
	}
	tell_next(&in);
	return in.kept ? AK_EXIT_ERROR : 0;
}
