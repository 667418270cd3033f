/* agentkernel.toml: which keys it has, where errors point, what beats what, what widens a run, and that schema and template say the same. */
#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/config/config.h"
#include "gateway/config/detect.h"
#include "gateway/config/trust.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

static struct config *read_text(const char *text)
{
	struct config *c = NULL;
	struct ak_err err = { "" };

	if (config_parse(text, strlen(text), "f", &c, &err) < 0)
		fail_msg("refused: %s\n%s", err.text, text);
	return c;
}

static void refused(const char *text, const char *why)
{
	struct config *c = NULL;
	struct ak_err err = { "" };

	assert_int_equal(config_parse(text, strlen(text), "f", &c, &err), -EINVAL);
	if (!strstr(err.text, why))
		fail_msg("%s\nis refused with  %s\nnot with         %s", text, err.text, why);
}

static struct run_request plain(void)
{
	static char *argv[] = { (char *)"true", NULL };

	return (struct run_request){ .mode = AK_MODE_NATIVE, .profile = AK_PROFILE_MODERATE, .argv = argv };
}

/* How many items of TEXT widen the request. */
static int wide(const char *text, const struct run_request *o)
{
	_cleanup_(config_freep) struct config *c = read_text(text);
	int n = 0;

	for (size_t i = 0; i < c->n_items; i++)
		n += config_item_widens(c, &c->items[i], o);
	return n;
}

static void every_key_reaches_its_member(void **state)
{
	_cleanup_(config_freep) struct config *c = read_text(
		"[sandbox]\nname='n'\nbase_image='alpine:3.20'\nbackend='podman'\n[agent]\npreferred='codex'\ncompatibility_mode='claude'\n"
		"[resources]\nvcpus=2\nmemory_mb=64\npids=7\ntmp_mb=9\ndisk_mb=11\noutput_mb=3\ntimeout='2m'\n"
		"[security]\nprofile='restrictive'\nnetwork=false\n"
		"[security.domains]\nallow=['a.test']\nblock=['b.test']\nallowlist_only=true\n"
		"[network]\nallow=['c.test:443']\ndeny=['d.test']\nallow_cidr=['10.1.0.0/16']\ndeny_cidr=['10.2.0.0/16']\npolicies=['mine']\ngroups=['source-hosting']\n"
		"[env]\nA='b'\nPATH=true\n[daemon]\nmin_warm=1\nmax_warm=2\n"
		"[daemon.agents.codex]\nmin_warm=1\nbackend='vm'\nruntime='python'\n"
		"[publish]\nports=[3000, '0.0.0.0:8080:80']\n[[mounts]]\nsource='/a'\n[[mounts]]\nsource='~/b'\ntarget='/c'\nmode='rw'\n");
	static const struct policy_edit want[] = { { POLICY_EDIT_ALLOW_HOST, "a.test" }, { POLICY_EDIT_BLOCK_HOST, "b.test" },
		{ POLICY_EDIT_DEFAULT, "deny" }, { POLICY_EDIT_ALLOW_HOST, "c.test:443" }, { POLICY_EDIT_BLOCK_HOST, "d.test" },
		{ POLICY_EDIT_ALLOW_CIDR, "10.1.0.0/16" }, { POLICY_EDIT_BLOCK_CIDR, "10.2.0.0/16" },
		{ POLICY_EDIT_ADD_POLICY, "mine" }, { POLICY_EDIT_ALLOW_GROUP, "source-hosting" } };
	struct run_request o = plain();
	struct ak_err err;

	if (config_apply(c, &o, &err) < 0)
		fail_msg("%s", err.text);
	assert_int_equal(o.mode, AK_MODE_CLAUDE);
	assert_int_equal(o.profile, AK_PROFILE_RESTRICTIVE);
	assert_true(o.no_network);
	assert_int_equal(o.limits.cpus_milli, 2000);
	assert_int_equal(o.limits.memory_bytes, 64 << 20);
	assert_int_equal(o.limits.pids, 7);
	assert_int_equal(o.limits.tmp_bytes, 9 << 20);
	assert_int_equal(o.limits.disk_bytes, 11 << 20);
	assert_int_equal(o.output_bytes, 3 << 20);
	assert_int_equal(o.timeout_ms, 120000);
	assert_int_equal(o.n_env, 2);
	assert_string_equal(o.env[0], "A=b");
	assert_string_equal(o.env[1], "PATH");
	assert_int_equal(o.n_edits, ARRAY_SIZE(want));
	for (size_t i = 0; i < ARRAY_SIZE(want); i++) {
		assert_int_equal(o.edits[i].op, want[i].op);
		assert_string_equal(o.edits[i].text, want[i].text);
	}
	assert_true(o.n_file_edits == o.n_edits && o.n_file_env == 2);
	assert_int_equal(o.n_publish, 2);
	assert_true(o.publish[0].host_port == 3000 && o.publish[0].port == 3000 && o.publish[1].host_port == 8080 &&
		o.publish[1].port == 80);
	assert_int_equal(o.n_mounts, 2);
	assert_string_equal(o.mounts[0].source, "/a");
	assert_string_equal(o.mounts[0].target, "/a");
	assert_false(o.mounts[0].writable);
	assert_string_equal(o.mounts[1].source, "/home/me/b");
	assert_string_equal(o.mounts[1].target, "/c");
	assert_true(o.mounts[1].writable);
	assert_string_equal(config_word(c, "sandbox", "name"), "n");
	assert_string_equal(config_word(c, "agent", "preferred"), "codex");
	assert_string_equal(config_word(c, "sandbox", "base_image"), "alpine:3.20");
	assert_string_equal(o.image, "alpine:3.20");
	assert_true(o.podman);
	for (const struct config_key *k = config_keys; k->table; k++) {
		size_t n = 0;

		for (size_t i = 0; i < c->n_items; i++)
			n += c->items[i].key == k;
		if (!n)
			fail_msg("this test does not have %s.%s", k->table, k->key);
	}
}

static void an_option_beats_the_file(void **state)
{
	_cleanup_(config_freep) struct config *c =
		read_text("[agent]\ncompatibility_mode='claude'\n[resources]\nmemory_mb=64\ntimeout=5\n[security]\n"
			  "profile='permissive'\nnetwork=false\n[network]\nallow=['a.test']\n[env]\nA='file'\nB='file'\n");
	struct run_request o = plain();
	struct ak_err err;
	static const struct {
		enum field_id id;
		const char *word;
	} options[] = { { FIELD_MODE, "codex" }, { FIELD_MEMORY, "32M" }, { FIELD_PROFILE, "moderate" },
		{ FIELD_ENV, "A=option" }, { FIELD_ALLOW_HOST, "o.test" }, { FIELD_TIMEOUT, "1s" } };

	for (size_t i = 0; i < ARRAY_SIZE(options); i++) {
		const struct field *f = &field_table[options[i].id];
		struct field_value v = { 0 };

		assert_int_equal(field_parse(f, FIELD_CLI, options[i].word, &v, &err), 0);
		assert_int_equal(field_set(&o, f, FIELD_CLI, &v, &err), 0);
	}
	o.given[FIELD_NETWORK] = true;
	assert_int_equal(config_apply(c, &o, &err), 0);
	assert_int_equal(o.mode, AK_MODE_CODEX);
	assert_int_equal(o.profile, AK_PROFILE_MODERATE);
	assert_int_equal(o.limits.memory_bytes, 32 << 20);
	assert_int_equal(o.timeout_ms, 1000);
	assert_false(o.no_network);
	assert_int_equal(o.n_env, 2); /* A of the option, B of the file */
	assert_string_equal(o.env[0], "A=option");
	assert_string_equal(o.env[1], "B=file");
	assert_int_equal(o.n_edits, 2); /* rules add up */
	assert_int_equal(o.n_file_edits, 1);
}

static void wrong_keys_and_values_are_refused_with_their_place(void **state)
{
	refused("x = 1", "f:1:1: unknown table or key 'x'; known: sandbox, agent, resources");
	refused("[security]\nprofil = 'moderate'", "f:2:1: unknown key 'profil' in [security]; known: profile, network, domains");
	refused("['security.domains']\nallow = []", "f:1:2: unknown table or key 'security.domains'");
	refused("[security]\n\n  profile = 'wide'", "f:3:13: security.profile: 'wide' is not one of: permissive");
	refused("[security]\nnetwork = 'no'", "f:2:11: security.network must be true or false, not a string");
	refused("[resources]\nmemory_mb = 1.5", "must be a whole number, not a decimal number");
	refused("[resources]\nmemory_mb = 1", "must be from 4M");
	refused("[resources]\nvcpus = 0", "from 1 to 1024");
	refused("[resources]\nvcpus = -1", "f:2:9");
	refused("[resources]\ntmp_mb = 0", "from 1M to");
	refused("[resources]\ntimeout = 'soon'", "resources.timeout: ");
	refused("[resources]\ntimeout = true", "must be a string such as \"30s\"");
	refused("[network]\nallow = ['ok.test', 'x y']", "f:2:21: network.allow: ");
	refused("[network]\nallow = ['*']", "f:2:10: network.allow: '*'");
	refused("[network]\nallow_cidr = ['10.0.0.1/8']", "f:2:15: network.allow_cidr: ");
	refused("[network]\nallow = 'x'", "must be an array of strings, not a string");
	refused("[network]\nallow = [1]", "not a whole number");
	refused("network = 1", "f:1:11: network must be a table, not a whole number");
	refused("[network]\nallow = [\"a\\u0000b\"]", "contains a NUL character");
	refused("[env]\n'A B' = 'x'", "f:2:1: 'A B' is not the name of a variable");
	refused("[env]\nA = 1", "must be a string, or true");
	refused("[env]\nA = false", "must be a string, or true");
	refused("[env]\nTHIS_IS_NOT_SET_ANYWHERE = true", "is not set in your environment");
	refused("[agent]\npreferred = 'cursor'", "agent.preferred: 'cursor' is not one of");
	refused("[sandbox]\nname = 'a b'", "f:2:8: sandbox.name: ");
	refused("[daemon.agents.cursor]\nmin_warm = 1", "unknown key 'cursor'");
	refused("[daemon]\nmin_warm = 1000", "from 0 to 128");
	refused("[publish]\nports = ['x']", "f:2:10: publish.ports: ");
	refused("[publish]\nports = [70000]", "f:2:10: publish.ports: ");
	refused("[network]\npolicies = ['./mine.json']", "not the name of an installed policy");
	refused("[network]\ngroups = ['/tmp/x.json']", "not the name of an installed policy");
	refused("[[mounts]]\ntarget = '/a'", "f:1:1: [[mounts]] needs a source");
	refused("[[mounts]]\nsource = 'a'", "f:2:10: mounts.source: 'a' must be an absolute path or begin with ~/");
	refused("[[mounts]]\nsource = '/a:/b'", "without ':'");
	refused("[[mounts]]\nsource = '/a'\ntarget = '~/b'", "f:3:10: mounts.target");
	refused("[[mounts]]\nsource = '/a'\nmode = 'x'", "must be \"ro\" or \"rw\"");
	refused("[[mounts]]\nsource = '/a'\nfrom = 'x'", "f:3:1: unknown key 'from' in [[mounts]]");
	refused("[[mounts]]\nsource = 1", "mounts.source must be a string");
	refused("[mounts]\nsource = '/a'", "mounts must be written as [[mounts]], not a table");
	refused("a = [", "f:1:6: expected a value");
	refused("[security]\n[security]", "f:2:2: 'security' is already defined");
}

static void what_widens_is_told_from_what_narrows(void **state)
{
	struct run_request o = plain(), given = plain(), bare = plain(), guest = plain(), fast = plain();

	bare.argv = NULL;
	assert_int_equal(
		wide("[security]\nnetwork=false\nprofile='restrictive'\n[network]\ndeny=['a.test']\ndeny_cidr=['10.0.0.0/8']\n"
		     "[security.domains]\nblock=['a.test']\nallowlist_only=true\n[resources]\nvcpus=64\nmemory_mb=100000\npids=1024\ntmp_mb=512\ntimeout='9h'\n"
		     "[sandbox]\nname='n'\n[agent]\npreferred='codex'\ncompatibility_mode='native'\n[daemon]\nmin_warm=100\n",
			&o),
		0);
	assert_int_equal(wide("[security]\nprofile='moderate'\nnetwork=true\n[security.domains]\nallowlist_only=false", &o), 0);
	assert_int_equal(wide("[agent]\ncompatibility_mode='codex'", &o), 1);
	assert_int_equal(wide("[security]\nprofile='permissive'", &o), 1);
	assert_int_equal(wide("[network]\nallow=['a.test','b.test']\nallow_cidr=['10.0.0.0/8']", &o), 3);
	assert_int_equal(wide("[security.domains]\nallow=['a.test']", &o), 1);
	assert_int_equal(wide("[env]\nA='b'\nPATH=true", &o), 2);
	assert_int_equal(
		wide("[publish]\nports=[80]\n[[mounts]]\nsource='/a'\n[network]\npolicies=['mine']\ngroups=['g']", &o), 4);
	assert_int_equal(wide("[resources]\npids=1025\ntmp_mb=513", &o), 2);
	assert_int_equal(wide("[agent]\npreferred='codex'", &bare), 1);
	bare.timeout_ms = 30000; /* a front end's default */
	assert_int_equal(wide("[resources]\ntimeout='30s'", &bare), 0);
	assert_int_equal(wide("[resources]\ntimeout=31", &bare), 1);
	guest.vm = fast.vm_if_fast = true;
	assert_int_equal(wide("[resources]\nmemory_mb=513", &o), 0); /* without a limit by default */
	assert_int_equal(wide("[resources]\nmemory_mb=513", &guest), 1);
	assert_int_equal(wide("[resources]\nmemory_mb=513", &fast), 1);
	assert_int_equal(wide("[resources]\nmemory_mb=512\nvcpus=64", &guest), 0);
	assert_int_equal(wide("[sandbox]\nbackend='vm'\n[resources]\nmemory_mb=513", &o), 1);
	assert_int_equal(wide("[resources]\nmemory_mb=513\n[sandbox]\nbackend='auto'", &o), 1);
	assert_int_equal(wide("[sandbox]\nbackend='ns'\n[resources]\nmemory_mb=513", &o), 0);
	o.given[FIELD_BACKEND] = guest.given[FIELD_MEMORY] = true;
	assert_int_equal(wide("[sandbox]\nbackend='vm'\n[resources]\nmemory_mb=513", &o), 0);
	assert_int_equal(wide("[resources]\nmemory_mb=513", &guest), 0);
	given.given[FIELD_MODE] = given.given[FIELD_PROFILE] = given.given[FIELD_PIDS] = true;
	given.env[given.n_env++] = "A=x";
	given.mounts[given.n_mounts++] = (struct run_mount){ .source = "/x", .target = "/a" };
	given.n_publish = ak_publish_parse("80", &given.publish[0], &(struct ak_err){ "" }) == 0;
	assert_int_equal(wide("[[mounts]]\nsource='/a'\n[publish]\nports=['80:90']", &given), 0);
	assert_int_equal(
		wide("[agent]\ncompatibility_mode='codex'\n[security]\nprofile='permissive'\n[resources]\npids=5000\n[env]\nA='b'",
			&given),
		0);
}

static void only_a_regular_file_of_bounded_size_is_read(void **state)
{
	static char big[CONFIG_BYTES_MAX + 2];
	char dir[] = "/tmp/ak-config-XXXXXX", path[PATH_MAX], other[PATH_MAX];
	struct config *c = NULL;
	struct ak_err err;
	int fd;

	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/agentkernel.toml", dir);
	snprintf(other, sizeof(other), "%s/other", dir);
	assert_int_equal(config_load(dir, NULL, &c, &err), 0);
	assert_null(c); /* none */
	assert_int_equal(config_load("/nonexistent", NULL, &c, &err), 0);
	assert_int_equal(config_load(dir, other, &c, &err), -EINVAL);
	assert_int_equal(mkfifo(path, 0600), 0);
	assert_int_equal(config_load(dir, NULL, &c, &err), -EINVAL); /* and does not wait */
	assert_non_null(strstr(err.text, "not a regular file"));
	assert_int_equal(unlink(path), 0);
	assert_int_equal(symlink("other", path), 0);
	fd = open(other, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	assert_int_equal(ak_write_all(fd, "# x\n", 4), 0);
	close(fd);
	assert_int_equal(config_load(dir, NULL, &c, &err), -EINVAL);
	assert_non_null(strstr(err.text, "is a link"));
	assert_int_equal(unlink(path), 0);
	assert_int_equal(mkdir(path, 0700), 0);
	assert_int_equal(config_load(dir, NULL, &c, &err), -EINVAL);
	assert_int_equal(rmdir(path), 0);
	memset(big, '\n', sizeof(big));
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	assert_int_equal(ak_write_all(fd, big, CONFIG_BYTES_MAX), 0);
	assert_int_equal(config_load(dir, NULL, &c, &err), 0);
	config_free(TAKE(c));
	assert_int_equal(ak_write_all(fd, "\n", 1), 0);
	assert_int_equal(config_load(dir, NULL, &c, &err), -EINVAL);
	assert_non_null(strstr(err.text, "larger than 64 KiB"));
	close(fd);
	unlink(path);
	unlink(other);
	rmdir(dir);
}

static void the_difference_shows_what_was_taken_and_added(void **state)
{
	static const struct {
		const char *old, *new, *diff;
	} rows[] = {
		{ "a\nb\nc\n", "a\nx\nc\n", "- b\n+ x\n" },
		{ "a\n", "a\nb\n", "+ b\n" },
		{ "a\nb\n", "b\n", "- a\n" },
		{ "a", "a\n", "- a\n+ a\n" },
		{ "a\na\n", "a\n", "- a\n" },
		{ "", "a\xe2\x80\xae\tb", "+ a\\xe2\\x80\\xae\\x09b\n" },
		{ "same\n", "same\n", "" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		_cleanup_strbuf_ struct strbuf out = { 0 };

		trust_diff(rows[i].old, rows[i].new, &out);
		assert_string_equal(out.data ? out.data : "", rows[i].diff);
	}
}

/* After a change of the keys: AK_WRITE=1 build/tests/test_config */
static void the_schema_for_editors_is_the_one_of_the_keys(void **state)
{
	static const char file[] = AK_SOURCE_DIR "/gateway/config/agentkernel.schema.json";
	_cleanup_strbuf_ struct strbuf want = { 0 };
	_cleanup_free_ char *have = NULL;
	_cleanup_json_ cJSON *json = NULL;
	struct ak_err err;
	size_t len;

	config_schema(&want);
	assert_int_equal(json_parse(want.data, want.len, &json, &err), 0);
	if (getenv("AK_WRITE")) {
		int fd = open(file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

		assert_int_equal(ak_write_all(fd, want.data, want.len), 0);
		close(fd);
	}
	assert_int_equal(ak_read_file(AT_FDCWD, file, 1 << 20, &have, &len), 0);
	assert_string_equal(have, want.data);
}

/* Every commented line of the template that shows a key is one that the program takes. */
static void the_template_shows_only_keys_that_exist(void **state)
{
	_cleanup_free_ char *text = NULL;
	_cleanup_(config_freep) struct config *c = NULL;
	_cleanup_strbuf_ struct strbuf out = { 0 };
	struct ak_err err = { "" };
	size_t len;

	setenv("GITHUB_TOKEN", "x", 1);
	assert_int_equal(ak_read_file(AT_FDCWD, AK_SOURCE_DIR "/gateway/plugins/agentkernel.toml", 1 << 16, &text, &len), 0);
	for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
		char *mark;

		if (!strncmp(line, "# [[", 4) || (!strncmp(line, "# ", 2) && strstr(line, " = ") && strchr(line, '#')))
			line += 2;
		while ((mark = strstr(line, "@NAME@")) || (mark = strstr(line, "@AGENT@")) || (mark = strstr(line, "@IMAGE@")))
			memcpy(mark,
				mark[1] == 'N'		 ? "nameis"
					: mark[1] == 'A' ? "gemini\""
							 : "alpine\"",
				mark[1] == 'N' ? 6 : 7);
		strbuf_printf(&out, "%s\n", line);
	}
	for (char *twice; (twice = strstr(out.data, "\"\""));)
		memmove(twice, twice + 1, strlen(twice));
	if (config_parse(out.data, strlen(out.data), "template", &c, &err) < 0)
		fail_msg("%s\n%s", err.text, out.data);
	for (const struct config_key *k = config_keys; k->table; k++) {
		if (!k->table[0] || !strcmp(k->table, "security.domains") || k->table[0] == 'd' || k->kind == CONFIG_LIST ||
			k->field == FIELD_IMAGE)
			continue; /* older spelling, daemon.agents, and lists that the template leaves empty */
		if (!strstr(out.data, k->kind == CONFIG_VARIABLE ? "[env]" : k->key))
			fail_msg("the template does not have %s.%s", k->table, k->key);
	}
}

static void the_manual_page_has_every_key(void **state)
{
	_cleanup_free_ char *page = NULL;
	size_t len;

	assert_int_equal(ak_read_file(AT_FDCWD, AK_SOURCE_DIR "/gateway/agentkernel.toml.5", 1 << 16, &page, &len), 0);
	for (const struct config_key *k = config_keys; k->table; k++) {
		char table[64];

		snprintf(table, sizeof(table), "[%.*s", (int)strcspn(k->table, "*"), k->table);
		if (!strstr(page, table) || (strcmp(k->key, "*") != 0 && !strstr(page, k->key)))
			fail_msg("agentkernel.toml(5) does not have %s.%s", k->table, k->key);
	}
}

/* ---- images ---- */

static void image_of(const struct detect_ask *ask, const char *image, enum detect_clue clue, const char *why)
{
	struct detect_answer got;

	detect_image(ask, &got);
	assert_string_equal(got.image, image);
	assert_int_equal(got.clue, clue);
	if (!strstr(got.why, why))
		fail_msg("'%s' does not say '%s'", got.why, why);
}

static void every_language_is_known_by_its_files_and_commands(void **state)
{
	static const struct {
		const char *image, *files, *commands;
	} rows[] = {
		{ "node:22-alpine", "package.json yarn.lock pnpm-lock.yaml", "node npm npx yarn pnpm bun" },
		{ "python:3.12-alpine", "pyproject.toml requirements.txt Pipfile", "python python3 pip poetry uv pytest" },
		{ "rust:1.85-alpine", "Cargo.toml", "cargo rustc" },
		{ "golang:1.23-alpine", "go.mod", "go gofmt" },
		{ "ruby:3.3-alpine", "Gemfile", "ruby bundle rails rake" },
		{ "eclipse-temurin:21-alpine", "pom.xml build.gradle Main.kt", "java javac mvn gradle" },
		{ "mcr.microsoft.com/dotnet/sdk:8.0", "a.csproj b.sln", "dotnet" },
		{ "gcc:14-bookworm", "Makefile CMakeLists.txt", "gcc g++ make cmake" },
		{ "php:8.3-alpine", "composer.json", "php composer" },
		{ "elixir:1.16-alpine", "mix.exs", "elixir mix" },
		{ "nickblah/lua:5.4-alpine", "init.lua", "lua luajit" },
		{ "hashicorp/terraform:1.10", "main.tf x.tfvars", "terraform" },
		{ "alpine:3.20", "run.sh", "bash sh zsh" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		char files[128], commands[128];

		snprintf(files, sizeof(files), "%s", rows[i].files);
		for (char *f = strtok(files, " "); f; f = strtok(NULL, " ")) {
			const char *names[] = { "README.md", f };

			image_of(&(struct detect_ask){ .command = "./x", .names = names, .n_names = 2 }, rows[i].image,
				DETECT_FILE, f);
		}
		snprintf(commands, sizeof(commands), "%s", rows[i].commands);
		for (char *c = strtok(commands, " "); c; c = strtok(NULL, " ")) {
			char path[64];

			image_of(&(struct detect_ask){ .command = c }, rows[i].image, DETECT_COMMAND, c);
			snprintf(path, sizeof(path), "/usr/bin/%s", c);
			image_of(&(struct detect_ask){ .command = path }, rows[i].image, DETECT_COMMAND, c);
		}
	}
	image_of(&(struct detect_ask){ .command = "pythonx" }, DETECT_DEFAULT, DETECT_NOTHING, "");
	image_of(&(struct detect_ask){ .command = "" }, DETECT_DEFAULT, DETECT_NOTHING, "");
}

/* Take the clues away one by one: each time the next one counts. */
static void clues_count_in_their_order(void **state)
{
	const char *names[] = { "Cargo.toml", "package.json" };
	struct detect_ask ask = { .option = "o:1",
		.config = "c:1",
		.command = "go",
		.settings = "s:1",
		.names = names,
		.n_names = 2,
		.procfile = "# x: php\nrelease: ./tool\nweb: PORT=1 RAILS_ENV=x bundle exec puma\n" };

	image_of(&ask, "o:1", DETECT_OPTION, "--image");
	ask.option = NULL;
	image_of(&ask, "c:1", DETECT_CONFIG, "--config");
	ask.config = NULL;
	image_of(&ask, "golang:1.23-alpine", DETECT_COMMAND, "'go'");
	ask.command = "./other";
	image_of(&ask, "s:1", DETECT_SETTINGS, "agentkernel.toml");
	ask.settings = NULL;
	image_of(&ask, "node:22-alpine", DETECT_FILE, "package.json"); /* the order of the languages, not of the files */
	ask.n_names = 0;
	image_of(&ask, "ruby:3.3-alpine", DETECT_PROCFILE, "web: PORT=1");
	ask.procfile = "web: ./tool node";
	image_of(&ask, "alpine:3.20", DETECT_NOTHING, "nothing");
	ask.procfile = "no colon\n:\nx:\n\n";
	image_of(&ask, "alpine:3.20", DETECT_NOTHING, "nothing");
}

int main(void)
{
	setenv("HOME", "/home/me", 1);

	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_key_reaches_its_member),
		cmocka_unit_test(an_option_beats_the_file),
		cmocka_unit_test(wrong_keys_and_values_are_refused_with_their_place),
		cmocka_unit_test(what_widens_is_told_from_what_narrows),
		cmocka_unit_test(only_a_regular_file_of_bounded_size_is_read),
		cmocka_unit_test(the_difference_shows_what_was_taken_and_added),
		cmocka_unit_test(the_schema_for_editors_is_the_one_of_the_keys),
		cmocka_unit_test(the_template_shows_only_keys_that_exist),
		cmocka_unit_test(the_manual_page_has_every_key),
		cmocka_unit_test(every_language_is_known_by_its_files_and_commands),
		cmocka_unit_test(clues_count_in_their_order),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
