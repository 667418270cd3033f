/* The completion scripts, tried in the shells themselves; a shell that is not installed is left out. */
#include "gateway/cli/cmd.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/base/strbuf.h"
#include "tests/unit/tmp_dir.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

struct script {
	char dir[64]; /* also the shells' home: fish leaves files there */
	char path[96];
};

static int write_script(const char *shell, struct script *s)
{
	char *argv[] = { (char[]){ "completion" }, (char *)(uintptr_t)shell, NULL };
	int fd, saved = dup(1), rc;

	strcpy(s->dir, "/tmp/ak-completion-XXXXXX");
	assert_non_null(tmp_dir(s->dir));
	snprintf(s->path, sizeof(s->path), "%s/script", s->dir);
	fd = open(s->path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	fflush(stdout);
	dup2(fd, 1);
	rc = cmd_completion(2, argv);
	fflush(stdout);
	dup2(saved, 1);
	close(saved);
	close(fd);
	return rc;
}

static int setup(void **state)
{
	*state = calloc(1, sizeof(struct script));
	return *state ? 0 : -1;
}

/* Whether the test passed, failed or was skipped, which leave it by a jump. */
static int teardown(void **state)
{
	struct script *s = *state;

	if (s->dir[0])
		ak_remove_tree(AT_FDCWD, s->dir);
	free(s);
	return 0;
}

/* Run SHELL on CODE with the script as $SCRIPT; its exit code, and what it printed. 127: there is no such shell. */
static int run_shell(const char *shell, const char *flag, const char *code, const struct script *s, char *out, size_t size)
{
	int pipes[2], status;
	size_t used = 0;
	ssize_t n;
	pid_t pid;

	assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		dup2(pipes[1], 1);
		dup2(pipes[1], 2);
		setenv("SCRIPT", s->path, 1);
		setenv("HOME", s->dir, 1);
		unsetenv("XDG_DATA_HOME");
		unsetenv("XDG_CONFIG_HOME");
		execlp(shell, shell, flag, code, (char *)NULL);
		_exit(127);
	}
	close(pipes[1]);
	while (used + 1 < size && (n = read(pipes[0], out + used, size - used - 1)) > 0)
		used += (size_t)n;
	out[used] = '\0';
	close(pipes[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* The words that may follow GROUP ("" or "network") in the command table, each once. */
static const char *table_words(const char *group, char *buf, size_t size)
{
	size_t len = strlen(group), used = 0;
	char last[64] = "";

	buf[0] = '\0';
	for (const struct cmd *c = cmd_table; c->name; c++) {
		const char *rest = c->name + (len ? len + 1 : 0);
		char word[64];

		if (len && (strncmp(c->name, group, len) != 0 || c->name[len] != ' '))
			continue;
		snprintf(word, sizeof(word), "%.*s", (int)strcspn(rest, " "), rest);
		if (strcmp(word, last) != 0)
			used += (size_t)snprintf(buf + used, size - used, "%s%s", used ? " " : "", word);
		memcpy(last, word, sizeof(last));
	}
	return buf;
}

static const struct {
	const char *words; /* before the cursor; the last is the one to complete, "." for none yet */
	const char *found;
} vectors[] = {
	{ ".", NULL },
	{ "ne", "network" },
	{ "network .", NULL },
	{ "policy s", "show" },
	{ "run --profile .", "permissive moderate restrictive" },
	{ "run --profile = mo", "moderate" },
	{ "run --compatibility-mode c", "claude codex" },
	{ "run --backend .", "ns" },
	{ "run --no", "--no-network" },
	{ "run -e A=B --no", "--no-network" },
	{ "run --image", "" },
	{ "run ls --no", "" },
	{ "exec --wo", "--workdir" },
	{ "exec -e A=B box --wo", "--workdir" },
	{ "exec box ls --wo", "" },
	{ "start .", "alpha beta" },
	{ "stop al", "alpha" },
	{ "exec b", "beta" },
	{ "network log .", "alpha beta" },
	{ "audit --sandbox b", "beta" },
	{ "create .", "" },
	{ "sandbox re", "remove" },
	{ "sandbox remove b", "beta" },
	{ "network proxy x --policy .", "allow deny" },
	{ "run -- --no", "" },
	{ "completion .", "bash zsh fish" },
	{ "audit .", "verify" },
	{ "audit verify --j", "--json" },
	{ "network log --last --su", "--summary" },
	{ "--v", "--version" },
};

static void bash_completes_words_options_and_choices(void **state)
{
	static const char code[] =
		"source \"$SCRIPT\" || exit 1\n"
		"agentkernel() { [[ $* = 'list -q' ]] && printf 'alpha\\nbeta\\n'; }\n"
		"while read -r line; do\n"
		"  read -ra w <<< \"$line\"; [[ ${w[-1]} = . ]] && w[-1]=\n"
		"  COMP_WORDS=(agentkernel \"${w[@]}\"); COMP_CWORD=${#w[@]}; _agentkernel; echo \"${COMPREPLY[*]}\"\n"
		"done <<< \"$LINES_IN\"\n";
	struct script *s = *state;
	_cleanup_strbuf_ struct strbuf in = { 0 }, want = { 0 };
	char out[8192], words[1024];

	assert_int_equal(write_script("bash", s), 0);
	for (size_t i = 0; i < ARRAY_SIZE(vectors); i++) {
		strbuf_printf(&in, "%s%s", i ? "\n" : "", vectors[i].words);
		strbuf_printf(&want, "%s\n",
			vectors[i].found ? vectors[i].found
					 : table_words(vectors[i].words[0] == '.' ? "" : "network", words, sizeof(words)));
	}
	setenv("LINES_IN", in.data, 1);
	if (run_shell("bash", "-c", code, s, out, sizeof(out)) == 127)
		skip();
	assert_string_equal(out, want.data);
}

static void zsh_reads_the_script(void **state)
{
	static const char code[] =
		"compdef() { : }; source $SCRIPT || exit 1\n"
		"t() { local cmd want state; _agentkernel_scan \"${@[1,-2]}\"; echo $(_agentkernel_candidates \"$@[-1]\") }\n"
		"t ''; t network ''; t run --profile ''; t run ls --no; t completion ''\n";
	struct script *s = *state;
	char out[8192], want[4096], top[1024], network[1024];

	assert_int_equal(write_script("zsh", s), 0);
	if (run_shell("zsh", "-fc", code, s, out, sizeof(out)) == 127)
		skip();
	snprintf(want, sizeof(want), "%s\n%s\npermissive moderate restrictive\n<any>\nbash zsh fish\n",
		table_words("", top, sizeof(top)), table_words("network", network, sizeof(network)));
	assert_string_equal(out, want);
}

static void fish_completes_words_options_and_choices(void **state)
{
	static const char code[] =
		"source $SCRIPT; or exit 1\n"
		"for l in 'agentkernel network l' 'agentkernel run --profile ' 'agentkernel run --no-n' 'agentkernel completion '\n"
		"  echo (complete -C $l | string replace -r '\\t.*' '')\n"
		"end\n";
	struct script *s = *state;
	char out[8192];

	assert_int_equal(write_script("fish", s), 0);
	if (run_shell("fish", "-Nc", code, s, out, sizeof(out)) == 127)
		skip();
	assert_string_equal(out, "log\nmoderate permissive restrictive\n--no-network\nbash fish zsh\n");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(bash_completes_words_options_and_choices, setup, teardown),
		cmocka_unit_test_setup_teardown(zsh_reads_the_script, setup, teardown),
		cmocka_unit_test_setup_teardown(fish_completes_words_options_and_choices, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
