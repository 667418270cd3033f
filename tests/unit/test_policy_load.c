/* Policy files: extends, policies that are added, pinned files, and those that are shipped. */
#include "tests/unit/policy_rig.h"

/* ---- extends ---- */

struct tmp {
	char dir[2][64];
	struct policy_dirs dirs;
};

static int tmp_setup(void **state)
{
	static struct tmp t;

	t = (struct tmp){ 0 };
	for (int i = 0; i < 2; i++) {
		snprintf(t.dir[i], sizeof(t.dir[i]), "/tmp/ak-policy-XXXXXX");
		if (!tmp_dir(t.dir[i]))
			return -1;
		t.dirs.dirs[i] = t.dir[i];
	}
	*state = &t;
	return 0;
}

static int tmp_teardown(void **state)
{
	struct tmp *t = *state;

	for (int i = 0; i < 2; i++)
		ak_remove_tree(AT_FDCWD, t->dir[i]);
	return 0;
}

static void put(const struct tmp *t, int dir, const char *name, const char *json)
{
	char path[200];
	_cleanup_fclose_ FILE *f = NULL;

	snprintf(path, sizeof(path), "%s/%s.json", t->dir[dir], name);
	f = fopen(path, "we");
	assert_non_null(f);
	assert_true(fputs(json, f) >= 0);
}

static void expect_load_error(const struct tmp *t, const char *name, int code, const char *want)
{
	struct policy *p = NULL;
	struct ak_err err = { "" };

	assert_int_equal(policy_load(name, &t->dirs, NULL, 0, &p, &err), -code);
	assert_null(p);
	if (!strstr(err.text, want))
		fail_msg("want: %s\n got: %s", want, err.text);
}

static void extends_gathers_rules_and_remembers_where_from(void **state)
{
	const struct tmp *t = *state;
	_cleanup_(policy_unrefp) struct policy *p = NULL;
	struct policy_decision d;
	struct ak_err err;
	char label[100];

	put(t, 0, "top",
		"{\"version\":1,\"extends\":[\"a\",\"b\"],\"allow\":[\"own.test\",\"both.test\"],\"limits\":{\"dns_qps\":7}}");
	put(t, 1, "a",
		"{\"version\":1,\"default\":\"allow\",\"extends\":[\"shared\"],\"allow\":[\"a.test\",\"both.test\"],\"limits\":{\"dns_qps\":9,\"connections\":3}}");
	put(t, 1, "b", "{\"version\":1,\"extends\":[\"shared\"],\"deny\":[\"shut.test\"],\"allow_cidr\":[\"10.0.0.0/8\"]}");
	put(t, 1, "shared", "{\"version\":1,\"name\":\"other-name\",\"allow\":[\"shared.test\",\"shut.test\"]}");
	if (policy_load("top", &t->dirs, NULL, 0, &p, &err) < 0)
		fail_msg("%s", err.text);
	assert_string_equal(policy_name(p), "top");
	assert_false(policy_default_allow(p)); /* a group lends no default */
	assert_int_equal(policy_limits(p)->dns_qps, 7);
	assert_int_equal(policy_limits(p)->connections, 3);
	assert_int_equal(policy_limits(p)->egress_bytes, 0);
	d = policy_judge_name(p, "a.test", POLICY_TCP, 443);
	assert_string_equal(policy_rule_label(&d, label, sizeof(label)), "a: a.test");
	d = policy_judge_name(p, "both.test", POLICY_TCP, 443);
	assert_string_equal(d.policy, "top");
	d = policy_judge_name(p, "shared.test", POLICY_TCP, 443);
	assert_string_equal(d.policy, "other-name");
	d = policy_judge_name(p, "shut.test", POLICY_TCP, 443);
	assert_false(d.allow);
	assert_string_equal(d.policy, "b");
}

static void extends_errors_name_every_file_on_the_way(void **state)
{
	const struct tmp *t = *state;

	put(t, 0, "x", "{\"version\":1,\"extends\":[\"y\"]}");
	put(t, 0, "y", "{\"version\":1,\"extends\":[\"z\"]}");
	put(t, 0, "z", "{\"version\":1,\"allow\":[\"a.test\",\"*.com\"]}");
	expect_load_error(t, "x", EINVAL, "x.json: extends[0]: ");
	expect_load_error(t, "x", EINVAL, "z.json: allow[1]: '*.com'");
	put(t, 0, "z", "{\"version\":1,\"extends\":[\"x\"]}");
	expect_load_error(t, "x", EINVAL, "cycle: x > y > z > x");
	put(t, 0, "self", "{\"version\":1,\"extends\":[\"self\"]}");
	expect_load_error(t, "self", EINVAL, "cycle: self > self");
	expect_load_error(t, "nothing", ENOENT, "no policy named 'nothing' (looked in /tmp/ak-policy-");
	expect_load_error(t, "./nothing.json", ENOENT, "./nothing.json: No such file");
	expect_load_error(t, "a b", EINVAL, "is not a policy name");
}

static void a_file_extends_the_one_that_it_replaces(void **state)
{
	const struct tmp *t = *state;
	_cleanup_(policy_unrefp) struct policy *p = NULL, *given = NULL;
	struct ak_err err;
	char path[200];

	put(t, 0, "codex", "{\"version\":1,\"extends\":[\"codex\"],\"allow\":[\"mine.test\"]}");
	put(t, 1, "codex", "{\"version\":1,\"extends\":[\"other\"],\"allow\":[\"below.test\"]}");
	put(t, 1, "other", "{\"version\":1,\"allow\":[\"other.test\"]}");
	if (policy_load("codex", &t->dirs, NULL, 0, &p, &err) < 0)
		fail_msg("%s", err.text);
	assert_int_equal(policy_rule_count(p), 3);
	snprintf(path, sizeof(path), "%s/codex.json", t->dir[0]); /* the same by its path */
	if (policy_load(path, &t->dirs, NULL, 0, &given, &err) < 0)
		fail_msg("%s", err.text);
	assert_int_equal(policy_rule_count(given), 3);

	put(t, 1, "other", "{\"version\":1,\"extends\":[\"codex\"]}");
	expect_load_error(t, "codex", EINVAL, "cycle: codex > codex > other > codex");
	put(t, 1, "codex", "{\"version\":1,\"extends\":[\"codex\"]}");
	expect_load_error(t, "codex", EINVAL, "cycle: codex > codex");
	put(t, 1, "codex", "{\"version\":1,\"extends\":[\"nowhere\"]}");
	expect_load_error(t, "codex", ENOENT, "no policy named 'nowhere'");
}

static struct policy *load_edits(const struct tmp *t, const char *name, const struct policy_edit *edits, size_t n)
{
	struct policy *p = NULL;
	struct ak_err err;

	if (policy_load(name, &t->dirs, edits, n, &p, &err) < 0)
		fail_msg("%s", err.text);
	return p;
}

static void put_parts(const struct tmp *t)
{
	put(t, 0, "open", "{\"version\":1,\"default\":\"allow\"}");
	put(t, 0, "mine",
		"{\"version\":1,\"allow\":[\"mine.test\",\"tie.test\"],\"deny\":[\"shut.test\"],\"limits\":{\"dns_qps\":7}}");
	put(t, 0, "base",
		"{\"version\":1,\"allow\":[\"base.test\",\"shut.test\"],\"deny\":[\"tie.test\"],\"limits\":{\"dns_qps\":9,\"connections\":3}}");
	put(t, 0, "group", "{\"version\":1,\"allow\":[\"group.test:22\",\"base.test:444\"]}");
}

static void assert_allows(const struct policy *p, const char *name, uint16_t port, bool allow)
{
	if (policy_judge_name(p, name, POLICY_TCP, port).allow != allow)
		fail_msg("%s:%u: %s", name, port, allow ? "denied" : "allowed");
}

static void an_added_policy_brings_its_rules_and_never_opens_the_default(void **state)
{
	const struct tmp *t = *state;
	const struct policy_edit mine = { POLICY_EDIT_ADD_POLICY, "mine" }, open = { POLICY_EDIT_ADD_POLICY, "open" };
	_cleanup_(policy_unrefp) struct policy *sum = NULL, *on_open = NULL, *opened = NULL, *both = NULL;
	_cleanup_free_ char *text = NULL;

	put_parts(t);
	sum = load_edits(t, "base", &mine, 1);
	assert_string_equal(policy_name(sum), "base+mine");
	assert_allows(sum, "base.test", 443, true);
	assert_allows(sum, "mine.test", 443, true);
	assert_allows(sum, "tie.test", 443, false); /* deny wins at ties, in either order */
	assert_allows(sum, "shut.test", 443, false);
	assert_int_equal(policy_limits(sum)->dns_qps, 7); /* the lower limit */
	assert_int_equal(policy_limits(sum)->connections, 3);

	on_open = load_edits(t, "open", &mine, 1);
	assert_string_equal(policy_name(on_open), "mine");
	assert_false(policy_default_allow(on_open));
	assert_allows(on_open, "else.test", 443, false);
	opened = load_edits(t, "base", &open, 1);
	assert_false(policy_default_allow(opened));
	both = load_edits(t, "open", &open, 1);
	assert_true(policy_default_allow(both));

	text = print(sum); /* the name of a sum is read back */
	policy_unref(both);
	both = must_parse(text);
	assert_string_equal(policy_name(both), "base+mine");
}

static void a_group_only_adds_and_a_block_covers_it_in_any_order(void **state)
{
	const struct tmp *t = *state;
	const struct policy_edit group = { POLICY_EDIT_ALLOW_GROUP, "group" }, block = { POLICY_EDIT_BLOCK_HOST, "group.test" };
	const struct policy_edit before[] = { block, group }, after[] = { group, block };
	_cleanup_(policy_unrefp) struct policy *p = NULL, *a = NULL, *b = NULL, *refused = NULL;
	struct policy_edit bad = { POLICY_EDIT_ALLOW_GROUP, "mine" };
	struct ak_err err;

	put_parts(t);
	p = load_edits(t, "base", &group, 1);
	assert_string_equal(policy_name(p), "base");
	assert_allows(p, "group.test", 22, true);
	assert_allows(p, "base.test", 444, true);
	assert_string_equal(policy_judge_name(p, "group.test", POLICY_TCP, 22).policy, "group");
	a = load_edits(t, "base", before, 2);
	b = load_edits(t, "base", after, 2);
	assert_allows(a, "group.test", 22, false);
	assert_allows(b, "group.test", 22, false);

	assert_int_equal(policy_load("base", &t->dirs, &bad, 1, &refused, &err), -EINVAL);
	assert_string_equal(
		err.text, "--allow-group: 'mine' is not a group: a group consists of allow rules; add it with --policy mine");
	bad.text = "nowhere";
	assert_int_equal(policy_load("base", &t->dirs, &bad, 1, &refused, &err), -EINVAL);
	assert_non_null(strstr(err.text, "--allow-group: no policy named 'nowhere'"));
	bad.text = "./group.json";
	assert_int_equal(policy_load("base", &t->dirs, &bad, 1, &refused, &err), -EINVAL);
	assert_non_null(strstr(err.text, "not a file"));
}

static void a_pinned_file_no_longer_depends_on_the_file(void **state)
{
	const struct tmp *t = *state;
	_cleanup_(policy_unrefp) struct policy *p = NULL;
	_cleanup_free_ char *text = NULL, *big = NULL;
	_cleanup_strbuf_ struct strbuf many = { 0 };
	struct policy_edit edit = { .op = POLICY_EDIT_ADD_POLICY };
	char path[200], label[POLICY_WORD_MAX];
	struct ak_err err;

	put_parts(t);
	put(t, 1, "file", "{\"version\":1,\"extends\":[\"group\"],\"allow\":[\"file.test:53/udp\"]}");
	snprintf(path, sizeof(path), "%s/file.json", t->dir[1]);
	assert_true(policy_is_file(path));
	assert_int_equal(policy_pin(path, &t->dirs, &text, &err), 0);
	put(t, 1, "file", "{\"version\":1,\"default\":\"allow\"}");
	edit.text = text;
	assert_false(policy_is_file(text));
	assert_string_equal(policy_edit_label(&edit, label), "file");
	p = load_edits(t, "base", &edit, 1);
	assert_string_equal(policy_name(p), "base+file");
	assert_false(policy_default_allow(p));
	assert_allows(p, "group.test", 22, true);
	assert_true(policy_judge_name(p, "file.test", POLICY_UDP, 53).allow);
	assert_int_equal(policy_limits(p)->dns_qps, 9); /* a limit that the file does not set lowers nothing */

	strbuf_puts(&many, "{\"version\":1,\"allow\":[\"first.test\"");
	for (int i = 0; i < 4000; i++)
		strbuf_printf(&many, ",\"host-%d.example.test\"", i);
	strbuf_puts(&many, "]}");
	put(t, 1, "file", many.data);
	assert_int_equal(policy_pin(path, &t->dirs, &big, &err), -EFBIG);
	assert_non_null(strstr(err.text, "copy it to your policy folder"));
}

static void extends_is_bounded(void **state)
{
	const struct tmp *t = *state;
	char name[20], json[100];

	for (int i = 0; i < 12; i++) {
		snprintf(name, sizeof(name), "d%d", i);
		snprintf(json, sizeof(json), "{\"version\":1,\"extends\":[\"d%d\"]}", i + 1);
		put(t, 0, name, json);
	}
	expect_load_error(t, "d0", EINVAL, "deep");
}

static void the_first_folder_wins_and_a_bad_file_there_is_an_error(void **state)
{
	const struct tmp *t = *state;
	_cleanup_(policy_unrefp) struct policy *p = NULL;
	struct ak_err err;

	put(t, 0, "m", "{\"version\":1,\"allow\":[\"first.test\"]}");
	put(t, 1, "m", "{\"version\":1,\"allow\":[\"second.test\"]}");
	assert_int_equal(policy_load("m", &t->dirs, NULL, 0, &p, &err), 0);
	assert_true(policy_judge_dns(p, "first.test").allow);
	assert_false(policy_judge_dns(p, "second.test").allow);
	put(t, 0, "m", "{\"version\":1,\"allow\":[");
	expect_load_error(t, "m", EINVAL, "/m.json: line 1");
}

/* ---- shipped files ---- */

static void shipped_policies_load(void **state)
{
	static const char *const names[] = { "native", "claude", "codex", "gemini", "package-registries", "os-packages",
		"source-hosting", "container-registries", "opencode" };

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		_cleanup_(policy_unrefp) struct policy *p = NULL;
		struct ak_err err;

		if (policy_load(names[i], &shipped, NULL, 0, &p, &err) < 0)
			fail_msg("%s", err.text);
		assert_string_equal(policy_name(p), names[i]);
		assert_int_equal(policy_default_allow(p), !strcmp(names[i], "native"));
		assert_true(strlen(policy_description(p)) > 20);
	}
}

static void modes_reach_their_apis_and_registries(void **state)
{
	static const struct {
		const char *mode, *host;
		bool allow;
	} cases[] = {
		{ "claude", "api.anthropic.com", true },
		{ "claude", "cdn.anthropic.com", true },
		{ "claude", "api.openai.com", false },
		{ "codex", "api.openai.com", true },
		{ "codex", "cdn.openai.com", true },
		{ "codex", "files.pythonhosted.org", true },
		{ "codex", "x.npmjs.org", true },
		{ "codex", "npmjs.org", false },
		{ "codex", "github.com", false },
		{ "codex", "example.com", false },
		{ "gemini", "generativelanguage.googleapis.com", true },
		{ "gemini", "cloudcode-pa.googleapis.com", true },
		{ "gemini", "accounts.google.com", true },
		{ "gemini", "dns.google", false },
		{ "native", "example.com", true },
		{ "native", "metadata.google.internal", false },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_(policy_unrefp) struct policy *p = NULL;
		struct ak_err err;

		assert_int_equal(policy_load(cases[i].mode, &shipped, NULL, 0, &p, &err), 0);
		if (policy_judge_name(p, cases[i].host, POLICY_TCP, 443).allow != cases[i].allow)
			fail_msg("%s: %s", cases[i].mode, cases[i].host);
	}
}

static const char *const modes[] = { "claude", "codex", "gemini", "opencode" };

static void assert_every_mode(const char *what, const char *host, uint16_t port, bool allow)
{
	for (size_t i = 0; i < ARRAY_SIZE(modes); i++) {
		_cleanup_(policy_unrefp) struct policy *p = NULL;
		struct ak_err err;

		assert_int_equal(policy_load(modes[i], &shipped, NULL, 0, &p, &err), 0);
		if (policy_judge_name(p, host, POLICY_TCP, port).allow != allow)
			fail_msg("%s: %s: %s:%u: %s", modes[i], what, host, port, allow ? "denied" : "allowed");
	}
}

/* An index that can be reached is of no use where its downloads come from a host that cannot. */
static void modes_reach_what_each_package_manager_contacts(void **state)
{
	static const struct {
		const char *client, *hosts[6];
	} clients[] = {
		{ "npm", { "any.npmjs.org" } },
		{ "pip", { "pypi.org", "files.pythonhosted.org" } },
		{ "cargo", { "index.crates.io", "static.crates.io", "crates.io" } },
		{ "go", { "proxy.golang.org", "sum.golang.org", "storage.googleapis.com" } },
		{ "bundle", { "index.rubygems.org", "rubygems.org" } },
		{ "mvn", { "repo.maven.apache.org", "repo1.maven.org" } },
		{ "gradle",
			{ "plugins.gradle.org", "plugins-artifacts.gradle.org", "services.gradle.org", "downloads.gradle.org",
				"repo.maven.apache.org", "dl.google.com" } },
		{ "composer", { "repo.packagist.org", "packagist.org", "api.github.com", "codeload.github.com" } },
		{ "dotnet", { "api.nuget.org", "globalcdn.nuget.org", "data.nuget.org", "www.nuget.org" } },
	};

	for (size_t i = 0; i < ARRAY_SIZE(clients); i++)
		for (size_t j = 0; j < ARRAY_SIZE(clients[i].hosts) && clients[i].hosts[j]; j++) {
			assert_every_mode(clients[i].client, clients[i].hosts[j], 443, true);
			assert_every_mode(clients[i].client, clients[i].hosts[j], 22, false);
		}
}

static void modes_reach_no_name_that_only_looks_like_a_registry(void **state)
{
	static const char *const hosts[] = { "any.npmjs.org.example.com", "any-npmjs.org", "pypi.org.example.com",
		"files-pythonhosted.org", "xpypi.org", "static.crates.io.example.com", "static-crates.io", "other.crates.io",
		"x.proxy.golang.org", "proxy-golang.org", "storage.googleapis.com.example.com", "xrubygems.org",
		"rubygems.org.example.com", "repo.maven.apache.org.example.com", "x.repo1.maven.org", "other.gradle.org",
		"xpackagist.org", "xnuget.org", "api.nuget.org.example.com", "github.com", "uploads.github.com",
		"release-assets.githubusercontent.com" };

	for (size_t i = 0; i < ARRAY_SIZE(hosts); i++)
		assert_every_mode("look-alike", hosts[i], 443, false);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(extends_gathers_rules_and_remembers_where_from, tmp_setup, tmp_teardown),
		cmocka_unit_test_setup_teardown(extends_errors_name_every_file_on_the_way, tmp_setup, tmp_teardown),
		cmocka_unit_test_setup_teardown(a_file_extends_the_one_that_it_replaces, tmp_setup, tmp_teardown),
		cmocka_unit_test_setup_teardown(
			an_added_policy_brings_its_rules_and_never_opens_the_default, tmp_setup, tmp_teardown),
		cmocka_unit_test_setup_teardown(a_group_only_adds_and_a_block_covers_it_in_any_order, tmp_setup, tmp_teardown),
		cmocka_unit_test_setup_teardown(a_pinned_file_no_longer_depends_on_the_file, tmp_setup, tmp_teardown),
		cmocka_unit_test_setup_teardown(extends_is_bounded, tmp_setup, tmp_teardown),
		cmocka_unit_test_setup_teardown(the_first_folder_wins_and_a_bad_file_there_is_an_error, tmp_setup, tmp_teardown),
		cmocka_unit_test(shipped_policies_load),
		cmocka_unit_test(modes_reach_their_apis_and_registries),
		cmocka_unit_test(modes_reach_what_each_package_manager_contacts),
		cmocka_unit_test(modes_reach_no_name_that_only_looks_like_a_registry),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
