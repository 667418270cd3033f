/* What a command needs of the host besides its system folders: the program, its links, its interpreter and its package, and nothing else. */
#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/project/owndir.h"
#include "gateway/project/project.h"
#include "gateway/project/tools.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char home[256];
static char real_home[PATH_MAX];
static char project[PATH_MAX];

static bool never_written(void *ctx, const char *path)
{
	return false;
}

static bool always_written(void *ctx, const char *path)
{
	return true;
}

/* PATH below the home. */
static const char *at(const char *path)
{
	static char ring[8][1024];
	static unsigned n;
	char *buf = ring[n++ % 8];

	snprintf(buf, 1024, "%s/%s", home, path);
	return buf;
}

static void make_parents(const char *path)
{
	char dir[PATH_MAX];

	snprintf(dir, sizeof(dir), "%s", path);
	*strrchr(dir, '/') = '\0';
	assert_int_equal(ak_mkdir_p(dir, 0755), 0);
}

static void program(const char *path, const char *text)
{
	FILE *f;

	make_parents(at(path));
	f = fopen(at(path), "w");
	assert_non_null(f);
	fputs(text, f);
	fclose(f);
	assert_int_equal(chmod(at(path), 0755), 0);
}

static void link_to(const char *path, const char *target)
{
	make_parents(at(path));
	assert_int_equal(symlink(target, at(path)), 0);
}

static int setup(void **state)
{
	const char *tmp = getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp";
	char name[PATH_MAX];

	snprintf(name, sizeof(name), "%s/ak-tools-XXXXXX", tmp);
	if (!mkdtemp(name) || !realpath(name, real_home) || strlen(real_home) >= sizeof(home))
		return -1;
	strcpy(home, real_home);
	setenv("HOME", home, 1);
	snprintf(project, sizeof(project), "%s/src/app", home);
	return ak_mkdir_p(project, 0755);
}

static int teardown(void **state)
{
	char command[PATH_MAX + 16];

	snprintf(command, sizeof(command), "rm -rf '%s'", home);
	return system(command);
}

static void find(const char *command, const char *path, bool (*written)(void *ctx, const char *path), struct tools *ret)
{
	static struct ak_paths paths;
	_cleanup_(owndir_freep) struct owndir *own = NULL;
	struct tools_ask ask = {
		.command = command, .path = path, .home = home, .project = project, .shown = "", .written = written
	};
	struct ak_err err;

	snprintf(paths.state, PATH_MAX, "%s/.local/state/agentkernel", home);
	snprintf(paths.runtime, PATH_MAX, "%s/run/agentkernel", home);
	snprintf(paths.config, PATH_MAX, "%s/.config/agentkernel", home);
	snprintf(paths.data, PATH_MAX, "%s/data", home);
	assert_int_equal(owndir_new(&paths, &own, &err), 0);
	ask.own = own;
	assert_int_equal(tools_find(&ask, ret, &err), 0);
}

static const struct tool *entry(const struct tools *t, enum tool_kind kind, const char *path)
{
	for (size_t i = 0; i < t->n; i++) {
		if (t->list[i].kind == kind && !strcmp(t->list[i].path, path))
			return &t->list[i];
	}
	return NULL;
}

static void has(const struct tools *t, enum tool_kind kind, const char *path)
{
	if (entry(t, kind, path))
		return;
	for (size_t i = 0; i < t->n; i++)
		print_message("%d %s (%s)\n", t->list[i].kind, t->list[i].path, t->list[i].why);
	fail_msg("no %s", path);
}

static void path_is(const struct tools *t, const char *first)
{
	char want[4 * PATH_MAX];

	snprintf(want, sizeof(want), "%s%s/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", first,
		first[0] ? ":" : "");
	assert_string_equal(t->path, want);
}

static void a_system_program_brings_nothing(void **state)
{
	_cleanup_(tools_done) struct tools t = { 0 };

	find("sh", "/usr/bin:/bin", never_written, &t);
	assert_non_null(t.program);
	assert_int_equal(t.n, 0);
	assert_string_equal(t.path, "/usr/bin:/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/sbin");
}

static void an_npm_prefix_brings_the_link_and_the_package(void **state)
{
	_cleanup_(tools_done) struct tools t = { 0 };

	program(".npm-global/lib/node_modules/@openai/codex/bin/codex.js", "#!/bin/sh\n");
	program(".npm-global/lib/node_modules/@google/other/bin/other.js", "#!/bin/sh\n");
	link_to(".npm-global/bin/codex", "../lib/node_modules/@openai/codex/bin/codex.js");
	find("codex", at(".npm-global/bin"), never_written, &t);
	assert_int_equal(t.n, 2);
	has(&t, TOOL_FOLDER, at(".npm-global/lib/node_modules/@openai/codex"));
	has(&t, TOOL_LINK, at(".npm-global/bin/codex"));
	path_is(&t, at(".npm-global/bin"));
}

static void the_interpreter_comes_with_its_tool_chain(void **state)
{
	_cleanup_(tools_done) struct tools t = { 0 };
	char path[3 * PATH_MAX];

	program(".nvm/versions/node/v20.1.0/bin/node", "\177ELF");
	program(".npm/lib/node_modules/tool/cli.js", "#!/usr/bin/env -S node --no-warnings\n");
	link_to(".npm/bin/tool", "../lib/node_modules/tool/cli.js");
	snprintf(path, sizeof(path), "%s:%s:%s", at(".local/bin"), at(".npm/bin"), at(".nvm/versions/node/v20.1.0/bin"));
	find("tool", path, never_written, &t);
	assert_int_equal(t.n, 3);
	has(&t, TOOL_FOLDER, at(".npm/lib/node_modules/tool"));
	has(&t, TOOL_FOLDER, at(".nvm/versions/node/v20.1.0"));
	snprintf(path, sizeof(path), "%s:%s", at(".npm/bin"), at(".nvm/versions/node/v20.1.0/bin"));
	path_is(&t, path);
}

static void tool_managers_bring_one_version(void **state)
{
	static const struct {
		const char *program, *root;
	} rows[] = {
		{ ".local/share/fnm/node-versions/v22.0.0/installation/bin/node", ".local/share/fnm/node-versions/v22.0.0" },
		{ ".asdf/installs/nodejs/20.0.0/bin/node", ".asdf/installs/nodejs/20.0.0" },
		{ ".asdf/shims/node", ".asdf" },
		{ ".local/share/mise/installs/go/1.22/bin/go", ".local/share/mise/installs/go/1.22" },
		{ ".pyenv/versions/3.12.1/bin/python3", ".pyenv/versions/3.12.1" },
		{ ".volta/bin/volta-shim", ".volta" },
		{ ".local/share/pipx/venvs/black/bin/black", ".local/share/pipx/venvs/black" },
		{ ".local/share/uv/tools/ruff/bin/ruff", ".local/share/uv/tools/ruff" },
		{ ".rustup/toolchains/stable/bin/rustc", ".rustup/toolchains/stable" },
		{ ".sdkman/candidates/java/17/bin/java", ".sdkman/candidates/java/17" },
		{ ".linuxbrew/Cellar/jq/1.7/bin/jq", ".linuxbrew" },
		{ ".bun/install/global/node_modules/a/b.js", ".bun/install/global/node_modules" },
		{ "lib/node_modules/@a/b/c.js", "lib/node_modules/@a/b" },
		{ "lib/node_modules/b/c.js", "lib/node_modules/b" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		const char *what = NULL;
		size_t len = tools_root(at(rows[i].program), &what);

		assert_int_equal(len, strlen(at(rows[i].root)));
		assert_non_null(what);
	}
	assert_int_equal(tools_root("/nix/store/0abc-ripgrep-14/bin/rg", &(const char *){ NULL }), strlen("/nix/store"));
	assert_int_equal(tools_root("/home/linuxbrew/.linuxbrew/Cellar/jq/1.7/bin/jq", &(const char *){ NULL }),
		strlen("/home/linuxbrew/.linuxbrew"));
}

static void markers_tell_a_tool_chain(void **state)
{
	const char *what;

	program("sdk/go1.22/bin/go", "\177ELF");
	assert_int_equal(tools_root(at("sdk/go1.22/bin/go"), &what), 0);
	assert_int_equal(ak_mkdir_p(at("sdk/go1.22/pkg/tool"), 0755), 0);
	assert_int_equal(tools_root(at("sdk/go1.22/bin/go"), &what), strlen(at("sdk/go1.22")));
	assert_string_equal(what, "Go");
}

static void a_program_of_its_own_comes_alone(void **state)
{
	_cleanup_(tools_done) struct tools t = { 0 };

	program(".local/share/claude/versions/2.0.1", "\177ELF");
	program(".local/share/claude/versions/secret", "no");
	link_to(".local/bin/claude", at(".local/share/claude/versions/2.0.1"));
	find("claude", at(".local/bin"), never_written, &t);
	assert_int_equal(t.n, 2);
	has(&t, TOOL_FILE, at(".local/share/claude/versions/2.0.1"));
	has(&t, TOOL_LINK, at(".local/bin/claude"));
	assert_string_equal(entry(&t, TOOL_LINK, at(".local/bin/claude"))->target, at(".local/share/claude/versions/2.0.1"));
}

static void links_of_folders_exist_inside_too(void **state)
{
	_cleanup_(tools_done) struct tools t = { 0 };

	program(".local/share/fnm/node-versions/v20/installation/bin/node", "\177ELF");
	link_to("run/fnm_multishells/77", at(".local/share/fnm/node-versions/v20/installation"));
	find("node", at("run/fnm_multishells/77/bin"), never_written, &t);
	has(&t, TOOL_LINK, at("run/fnm_multishells/77"));
	has(&t, TOOL_FOLDER, at(".local/share/fnm/node-versions/v20"));
	path_is(&t, at("run/fnm_multishells/77/bin"));
}

static void keys_are_never_brought_in(void **state)
{
	_cleanup_(tools_done) struct tools direct = { 0 }, script = { 0 };

	program(".ssh/helper", "\177ELF");
	program("bin/x", "#!/usr/bin/env helper\n");
	link_to("bin/helper", "../.ssh/helper");
	find("helper", at("bin"), never_written, &direct);
	assert_int_equal(direct.n, 0);
	assert_non_null(strstr(direct.refused, ".ssh/helper"));
	find("x", at("bin"), never_written, &script);
	assert_null(entry(&script, TOOL_FILE, at(".ssh/helper")));
	assert_null(entry(&script, TOOL_LINK, at("bin/helper")));
	has(&script, TOOL_FILE, at("bin/x"));
}

static void what_a_sandbox_wrote_is_not_followed(void **state)
{
	_cleanup_(tools_done) struct tools link = { 0 }, script = { 0 }, known = { 0 }, claimed = { 0 };
	char path[2 * PATH_MAX];

	program("private/tool", "\177ELF");
	program("node/bin/node", "\177ELF");
	link_to("src/app/bin/agent", at("private/tool"));
	program("src/app/bin/run", "#!/usr/bin/env tool\n");
	program("src/app/bin/js", "#!/usr/bin/env node\n");
	snprintf(path, sizeof(path), "%s:%s:%s", at("src/app/bin"), at("private"), at("node/bin"));
	find("agent", path, never_written, &link);
	assert_int_equal(link.n, 0);
	find("run", path, never_written, &script);
	assert_int_equal(script.n, 0);
	find("js", path, never_written, &known);
	assert_int_equal(known.n, 1);
	has(&known, TOOL_FILE, at("node/bin/node"));
	find("tool", path, always_written, &claimed);
	assert_int_equal(claimed.n, 0);
}

static void the_home_is_never_a_root(void **state)
{
	_cleanup_(tools_done) struct tools t = { 0 };

	program("bin/thing", "\177ELF");
	assert_int_equal(ak_mkdir_p(at("pkg/tool"), 0755), 0); /* looks like Go's root */
	find("thing", at("bin"), never_written, &t);
	assert_int_equal(t.n, 1);
	has(&t, TOOL_FILE, at("bin/thing"));
}

static void circles_and_relative_entries_lead_nowhere(void **state)
{
	_cleanup_(tools_done) struct tools circle = { 0 }, relative = { 0 }, missing = { 0 };

	link_to("loop/a", "b");
	link_to("loop/b", "a");
	find("a", at("loop"), never_written, &circle);
	assert_int_equal(circle.n, 0);
	program("src/app/here", "\177ELF");
	assert_int_equal(chdir(project), 0);
	find("here", ".:", never_written, &relative);
	assert_null(relative.program);
	find("no-such-program", NULL, never_written, &missing);
	assert_null(missing.program);
	path_is(&missing, "");
	assert_int_equal(chdir("/"), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_system_program_brings_nothing, setup, teardown),
		cmocka_unit_test_setup_teardown(an_npm_prefix_brings_the_link_and_the_package, setup, teardown),
		cmocka_unit_test_setup_teardown(the_interpreter_comes_with_its_tool_chain, setup, teardown),
		cmocka_unit_test_setup_teardown(tool_managers_bring_one_version, setup, teardown),
		cmocka_unit_test_setup_teardown(markers_tell_a_tool_chain, setup, teardown),
		cmocka_unit_test_setup_teardown(a_program_of_its_own_comes_alone, setup, teardown),
		cmocka_unit_test_setup_teardown(links_of_folders_exist_inside_too, setup, teardown),
		cmocka_unit_test_setup_teardown(keys_are_never_brought_in, setup, teardown),
		cmocka_unit_test_setup_teardown(what_a_sandbox_wrote_is_not_followed, setup, teardown),
		cmocka_unit_test_setup_teardown(the_home_is_never_a_root, setup, teardown),
		cmocka_unit_test_setup_teardown(circles_and_relative_entries_lead_nowhere, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
