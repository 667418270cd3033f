/*
 * The answers for the completion scripts: `agentkernel __complete WORD…` prints what fits in the place of the last word, which may be empty.
 *
 * The first line says what the shell shall add: "words" nothing, "files" or "folders" of the host, "command N" what completes the user's own command,
 * which starts at word N. Each further line is a candidate, and after a tab what it means. The candidates come from the command table, the field table,
 * and what exists: sandboxes, policies, files in a sandbox. It starts no process and connects to none.
 */
#include "gateway/cli/cmd.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/strbuf.h"
#include "gateway/service/service.h"
#include "gateway/store/agent.h"
#include "gateway/store/runs.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct completion {
	const char *cur; /* the word at the cursor */
	const char *prefix; /* printed before each candidate: "--profile=" */
	int prefix_len;
	const char *kind; /* the first line */
	const char *sandbox; /* the first operand before the cursor, or NULL */
	struct strbuf out; /* the candidates */
	struct ak_paths paths;
};

static void add(struct completion *c, const char *word, size_t len, const char *meaning)
{
	size_t typed = strlen(c->cur);

	if (typed > len || strncmp(word, c->cur, typed) != 0)
		return;
	if (!ak_is_shown(word, len)) /* a newline would make two words of it, and a sandbox chooses its file names */
		return;
	strbuf_printf(
		&c->out, "%.*s%.*s%s%s\n", c->prefix_len, c->prefix, (int)len, word, meaning ? "\t" : "", meaning ? meaning : "");
}

static void add_word(struct completion *c, const char *word, const char *meaning)
{
	add(c, word, strlen(word), meaning);
}

/* ---- what exists ---- */

static void add_sandboxes(struct completion *c, const char *suffix)
{
	_cleanup_free_ struct run_entry *list = NULL;
	struct ak_err ignored;
	size_t n = 0;

	if (runs_persistent(&c->paths, &list, &n, &ignored) < 0)
		return;
	for (size_t i = 0; i < n; i++) {
		char word[AK_NAME_MAX + 2];

		snprintf(word, sizeof(word), "%s%s", list[i].name, suffix);
		add_word(c, word, "sandbox");
	}
}

#define RUNS_SHOWN 20

static void add_runs(struct completion *c)
{
	_cleanup_free_ struct run_entry *list = NULL;
	struct ak_err ignored;
	size_t n = 0;

	if (runs_list(&c->paths, &list, &n, &ignored) < 0)
		return;
	for (size_t i = 0; i < n && i < RUNS_SHOWN; i++)
		add_word(c, list[i].name, "run");
}

static void add_tags(struct completion *c)
{
	_cleanup_json_ cJSON *list = NULL;
	struct ak_err ignored;
	const cJSON *item;

	if (!c->sandbox || service_snapshots(&c->paths, c->sandbox, &list, &ignored) < 0)
		return;
	cJSON_ArrayForEach(item, list)
		add_word(c, json_text(item, "tag", ""), json_text(item, "created_at", "damaged"));
}

static void add_policies(struct completion *c)
{
	_cleanup_free_ struct service_policy_file *list = NULL;
	struct ak_err ignored;
	size_t n = 0;

	if (service_policies(&c->paths, &list, &n, &ignored) < 0)
		return;
	for (size_t i = 0; i < n; i++)
		add_word(c, list[i].name, "policy");
}

static void add_agents(struct completion *c)
{
	for (size_t i = 0; i < AGENTS_NUM; i++)
		add_word(c, agents[i].name, agents[i].title);
}

static void add_commands_of(struct completion *c, const char *folder)
{
	DIR *d = opendir(folder);

	for (const struct dirent *e; d && (e = readdir(d));) {
		if (e->d_name[0] != '.' && faccessat(dirfd(d), e->d_name, X_OK, 0) == 0)
			add_word(c, e->d_name, NULL);
	}
	if (d)
		closedir(d);
}

/* Programs on PATH. Asking the shell would also offer its functions. */
static void add_commands(struct completion *c)
{
	_cleanup_free_ char *path = getenv("PATH") ? strdup(getenv("PATH")) : NULL;
	char *rest = path, *folder;

	if (strchr(c->cur, '/')) {
		c->kind = "files";
		return;
	}
	while (rest && (folder = strsep(&rest, ":"))) {
		if (folder[0] == '/')
			add_commands_of(c, folder);
	}
}

/* ---- "NAME:/path" ---- */

struct inside {
	struct completion *c;
	const char *before; /* "web:/srv/" */
	int before_len;
};

static int add_inside(void *ctx, const struct service_entry *e)
{
	struct inside *in = ctx;
	char word[PATH_MAX];

	if (snprintf(word, sizeof(word), "%.*s%s%s", in->before_len, in->before, e->name, S_ISDIR(e->mode) ? "/" : "") <
		(int)sizeof(word))
		add_word(in->c, word, NULL);
	return 0;
}

/* Files of the running sandbox in front of the colon. */
static void add_paths_inside(struct completion *c)
{
	const char *colon = strchr(c->cur, ':'), *last = strrchr(c->cur, '/');
	char name[AK_NAME_MAX], folder[PATH_MAX], root_word[AK_NAME_MAX + 2];
	struct inside in = { .c = c, .before = c->cur };
	struct ak_err ignored;

	snprintf(name, sizeof(name), "%.*s", (int)(colon - c->cur), c->cur);
	if (!last || last < colon) {
		snprintf(root_word, sizeof(root_word), "%s:/", name);
		add_word(c, root_word, NULL);
		return;
	}
	in.before_len = (int)(last + 1 - c->cur);
	snprintf(folder, sizeof(folder), "%.*s", (int)(last - colon), colon + 1);
	_cleanup_close_ int root = service_root(&c->paths, name, &ignored);

	if (root >= 0)
		service_file_list(root, folder, add_inside, &in, &ignored);
}

/* ---- the words of a command's name ---- */

static void add_next_words(struct completion *c, const char *before)
{
	size_t len = strlen(before);
	char last[64] = "";

	for (const struct cmd *row = cmd_table; row->name; row++) {
		const char *rest = row->name + (len ? len + 1 : 0);
		char word[64];

		if (len && (strncmp(row->name, before, len) != 0 || row->name[len] != ' '))
			continue;
		snprintf(word, sizeof(word), "%.*s", (int)strcspn(rest, " "), rest);
		if (strcmp(word, last) != 0) /* the rows of a group are adjacent */
			add_word(c, word, strchr(rest, ' ') ? NULL : row->help[0] ? row->help : NULL);
		memcpy(last, word, sizeof(last));
	}
}

/* ---- values and operands ---- */

static void add_choice(void *ctx, const char *word, size_t len)
{
	add(ctx, word, len, NULL);
}

/* Candidates by the placeholder that the help text shows: "NAME", "DIR", "a|b|c". */
static void add_by_placeholder(struct completion *c, const char *arg, const char *command)
{
	size_t len = strcspn(arg, " …[");

	if (!strncmp(arg, "DIR", 3)) {
		c->kind = "folders";
	} else if (!strncmp(arg, "FILE", 4) || !strncmp(arg, "SRC", 3)) {
		c->kind = "files";
	} else if (!strncmp(arg, "TAG", 3)) {
		add_tags(c);
	} else if (!strncmp(arg, "AGENT", 5)) {
		add_agents(c);
	} else if (!strncmp(arg, "COMMAND", 7)) {
		add_next_words(c, "");
	} else if (!strncmp(command, "policy ", 7) || !strncmp(arg, "POLICY", 6) || !strncmp(arg, "GROUP", 5)) {
		add_policies(c);
	} else if (memchr(arg, '|', len) && !strpbrk(arg, "ABCDEFGHIJKLMNOPQRSTUVWXYZ-")) {
		for (const char *at = arg; at < arg + len; at += strcspn(at, "| "), at += *at == '|')
			add(c, at, strcspn(at, "| "), NULL);
	} else if (!strncmp(arg, "MODE", 4)) {
		add_policies(c);
		add_sandboxes(c, "");
		c->kind = "files";
	} else if (!strncmp(arg, "NAME", 4)) {
		add_sandboxes(c, "");
		if (!strcmp(command, "network log"))
			add_runs(c);
	}
}

static void add_value(struct completion *c, const struct field *f)
{
	if (f->kind == KIND_MODE || f->kind == KIND_POLICIES) {
		add_policies(c);
		if (!strcmp(field_arg(f), "NAME|FILE"))
			c->kind = "files";
	} else if (f->choices) {
		field_choices(f, add_choice, c);
	} else if (f->kind == KIND_DIR) {
		c->kind = "folders";
	} else if (f->kind == KIND_NAME) {
		add_sandboxes(c, "");
	} else if (f->kind != KIND_VARIABLES && field_arg(f)) {
		add_by_placeholder(c, field_arg(f), "");
	}
}

static void add_options(struct completion *c, const struct cmd *cmd)
{
	field_each(u, cmd->verb, FIELD_CLI) {
		_cleanup_strbuf_ struct strbuf meaning = { 0 };
		const struct field *f = &field_table[u->id];
		char word[64];

		if (f->never)
			continue;
		field_words(&meaning, f, FIELD_CLI);
		snprintf(word, sizeof(word), "--%s", f->option);
		add_word(c, word, meaning.data);
	}
	add_word(c, "--help", "print help");
}

/* The placeholder of operand number N: the words of ARGS are separated by spaces, and one that ends in "…" repeats. */
static const char *placeholder(const char *args, unsigned n)
{
	const char *at = args;

	while (n--) {
		size_t len = strcspn(at, " ");

		if (len >= strlen("…") && !memcmp(at + len - strlen("…"), "…", strlen("…")))
			return at;
		if (!at[len])
			return "";
		at += len + 1;
	}
	return *at == '[' ? at + 1 : at;
}

static void add_operand(struct completion *c, const struct cmd *cmd, unsigned n)
{
	if (!strcmp(cmd->name, "create") && n == 0)
		return; /* a new name */
	if (!strcmp(cmd->name, "cp")) {
		if (strchr(c->cur, ':')) {
			add_paths_inside(c);
			return;
		}
		add_sandboxes(c, ":");
		c->kind = "files";
		return;
	}
	add_by_placeholder(c, placeholder(cmd->args, n), cmd->name);
}

/* ---- the words before the cursor ---- */

/* The field whose value WORD leaves to the next word, or NULL: "--profile", "-e", "-itw". */
static const struct field *awaits(const struct cmd *cmd, const char *word)
{
	field_each(u, cmd->verb, FIELD_CLI) {
		const struct field *f = &field_table[u->id];
		size_t last = strlen(word) - 1;

		if (!field_arg(f))
			continue;
		if (word[0] == '-' && word[1] == '-' ? !strcmp(word + 2, f->option) || (f->alias && !strcmp(word + 2, f->alias))
						     : f->letter && word[0] == '-' && word[last] == f->letter)
			return f;
	}
	return NULL;
}

/* "--profile=mo": complete the value, and print it with the option in front. */
static bool complete_assignment(struct completion *c, const struct cmd *cmd)
{
	const char *equals = strchr(c->cur, '=');
	const struct field_use *u;

	if (strncmp(c->cur, "--", 2) != 0 || !equals)
		return false;
	u = field_find(cmd->verb, FIELD_CLI, c->cur + 2, (size_t)(equals - c->cur - 2));
	if (u && field_arg(&field_table[u->id])) {
		c->prefix = c->cur;
		c->prefix_len = (int)(equals + 1 - c->cur);
		c->cur = equals + 1;
		add_value(c, &field_table[u->id]);
	}
	return true;
}

/* WORDS are those after the command's name and before the cursor; FIRST is the number of words before them. */
static void complete_arguments(struct completion *c, const struct cmd *cmd, char **words, int n, int first)
{
	static char own[32];
	unsigned operands = 0, before = !strncmp(cmd->args, "NAME", 4);
	const struct field *want = NULL;
	bool only_operands = false;

	for (int i = 0; i < n; i++) {
		if (want) {
			want = NULL;
		} else if (!only_operands && !strcmp(words[i], "--")) {
			only_operands = true;
		} else if (!only_operands && words[i][0] == '-' && words[i][1]) {
			want = awaits(cmd, words[i]);
		} else if (++operands > before && cmd->command_follows) {
			snprintf(own, sizeof(own), "command %d", first + i);
			c->kind = own;
			return;
		} else if (operands == 1) {
			c->sandbox = words[i];
		}
	}
	if (want) {
		add_value(c, want);
	} else if (!only_operands && c->cur[0] == '-') {
		if (!complete_assignment(c, cmd))
			add_options(c, cmd);
	} else if (cmd->command_follows && operands == before) {
		add_commands(c);
	} else {
		add_operand(c, cmd, operands);
	}
}

static void complete(struct completion *c, int argc, char **argv)
{
	int words = 0;
	const struct cmd *cmd = cmd_match(argc - 1, argv, &words);

	c->cur = argv[argc - 1];
	if (argc == 1) {
		add_next_words(c, "");
		if (c->cur[0] == '-') {
			add_word(c, "--help", "print help");
			add_word(c, "--version", "print the version");
		}
		return;
	}
	if (argc == 2 && cmd_is_group(argv[0]))
		add_next_words(c, argv[0]);
	if (cmd && cmd->verb == VERB_NONE && cmd->command_follows) /* an agent: everything after its name is its own */
		c->kind = "files";
	else if (cmd)
		complete_arguments(c, cmd, argv + words, argc - 1 - words, words);
}

int cmd_complete(int argc, char **argv)
{
	struct completion c = { .prefix = "", .kind = "words" };
	struct ak_err ignored;

	if (argc < 1 || ak_paths_init(&c.paths, &ignored) < 0)
		return AK_EXIT_USAGE;
	complete(&c, argc, argv);
	printf("%s\n%s", c.kind, c.out.data ? c.out.data : "");
	strbuf_done(&c.out);
	return 0;
}
