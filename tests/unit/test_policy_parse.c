/* Policy files: every way to be wrong names its place; extends, edits, printer, shipped files. */
#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "policies/policy.h"
#include "tests/unit/tmp_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#define SHIPPED AK_SOURCE_DIR "/policies"
static const struct policy_dirs shipped = { { SHIPPED } };

static void expect_error(const char *json, const char *want)
{
	struct policy *p = NULL;
	struct ak_err err = { "" };
	int rc = policy_parse(json, strlen(json), "t.json", &shipped, NULL, 0, &p, &err);

	if (rc >= 0)
		fail_msg("accepted: %s", json);
	assert_null(p);
	if (!strstr(err.text, want))
		fail_msg("%s\n  want: %s\n  got:  %s", json, want, err.text);
	assert_int_equal(strncmp(err.text, "t.json: ", 8), 0);
}

static struct policy *must_parse_edits(const char *json, const struct policy_edit *edits, size_t n)
{
	struct policy *p = NULL;
	struct ak_err err;

	if (policy_parse(json, strlen(json), "t.json", &shipped, edits, n, &p, &err) < 0)
		fail_msg("%s: %s", json, err.text);
	return p;
}

static struct policy *must_parse(const char *json)
{
	return must_parse_edits(json, NULL, 0);
}

static char *print(const struct policy *p)
{
	struct strbuf out = { 0 };

	policy_print(p, &out);
	assert_false(out.failed);
	return strbuf_take(&out);
}

/* ---- errors ---- */

static void errors_of_structure_name_their_place(void **state)
{
	expect_error("", "line 1, column 1");
	expect_error("{\"version\":1,}", "line 1, column");
	expect_error("// nothing but a comment\n", "line 1, column 1");
	expect_error("{\n \"version\": 1,\n \"allow\": [\"a.test\" \"b.test\"]\n}", "line 3");
	expect_error("{\"version\":1} x", "text after the end");
	expect_error("[]", "must be a JSON object");
	expect_error("{}", "version: missing");
	expect_error("{\"version\":2}", "version: 2 is not supported");
	expect_error("{\"version\":\"1\"}", "version: must be a whole number");
	expect_error("{\"version\":1.5}", "version: must be");
	expect_error("{\"version\":1,\"alow\":[]}", "alow: unknown key");
	expect_error("{\"version\":1,\"Allow\":[]}", "Allow: unknown key");
	expect_error("{\"version\":1,\"allow\":[],\"allow\":[]}", "allow: key given twice");
	expect_error("{\"version\":1,\"limits\":{\"dns_qps\":1,\"dns_qps\":2}}", "dns_qps: key given twice");
	expect_error("{\"version\":1,\"allow\":\"a.test\"}", "allow: must be an array");
	expect_error("{\"version\":1,\"allow\":[\"a.test\",1]}", "allow[1]: must be a string");
	expect_error("{\"version\":1,\"deny\":[null]}", "deny[0]: must be a string");
	expect_error("{\"version\":1,\"allow\":[{\"rule\":\"a.test\",\"from\":\"x\"}]}", "allow[0]: must be a string");
	expect_error("{\"version\":1,\"default\":\"open\"}", "default: 'open' is neither");
	expect_error("{\"version\":1,\"default\":true}", "default: must be a string");
	expect_error("{\"version\":1,\"name\":\"../x\"}", "name: '../x'");
	expect_error("{\"version\":1,\"name\":\"flags\"}", "name: 'flags'");
	expect_error("{\"version\":1,\"description\":\"a\\nb\"}", "description: must be one line");
	expect_error("{\"version\":1,\"description\":\"\xff\"}", "description: must be one line");
	expect_error("{\"version\":1,\"description\":\"\xc2\x9b\"}", "description: must be one line");
	expect_error("{\"version\":1,\"description\":\"\xe0\x80\xaf\"}", "description: must be one line");
	expect_error("{\"version\":1,\"allow\":[\"ok.test\\u0000.evil\"]}", "\\u0000 in a string");
	expect_error("{\"version\":1,\"extends\":\"codex\"}", "extends: must be an array");
	expect_error("{\"version\":1,\"extends\":[7]}", "extends[0]: must be a string");
	expect_error("{\"version\":1,\"extends\":[\"codex\",\"no-such\"]}", "extends[1]: no policy named 'no-such'");
	expect_error("{\"version\":1,\"extends\":[\"../codex\"]}", "extends[0]: '../codex' is not a policy name");
	expect_error("{\"version\":1,\"limits\":[]}", "limits: must be an object");
	expect_error("{\"version\":1,\"limits\":{\"qps\":1}}", "limits: qps: unknown key");
	expect_error("{\"version\":1,\"limits\":{\"dns_qps\":-1}}", "limits: dns_qps: must be");
	expect_error("{\"version\":1,\"limits\":{\"connections\":1e9}}", "limits: connections:");
	expect_error("{\"version\":1,\"limits\":{\"egress_bytes\":\"5X\"}}", "limits: egress_bytes: '5X'");
	expect_error("{\"version\":1,\"limits\":{\"egress_bytes\":\"99999999999999999T\"}}", "too large");
	expect_error("{\"version\":1,\"limits\":{\"egress_bytes\":true}}", "limits: egress_bytes: must be");
}

static void errors_of_patterns_name_their_place(void **state)
{
	static const struct {
		const char *pattern, *want;
	} cases[] = {
		{ "", "allow[1]: '': empty host name" },
		{ ".", "empty label" },
		{ "a..test", "'a..test': empty label" },
		{ ".a.test", "empty label" },
		{ "a.test..", "empty label" },
		{ "a b.test", "white space" },
		{ "a.test\\t", "white space or control" },
		{ "a.test\\u0001", "white space or control" },
		{ "b\xc3\xbc"
		  "cher.test",
			"A-label" },
		{ "\xd0\xb0pple.test", "A-label" },
		{ "a!.test", "only letters" },
		{ "-a.test", "may not start or end" },
		{ "a-.test", "may not start or end" },
		{ "https://a.test/", "not a URL" },
		{ "a.test/path", "protocol 'path'" },
		{ "a.test/udp", "a protocol needs a port" },
		{ "a.test:", "no port after" },
		{ "a.test:0", "port 0 out of range" },
		{ "a.test:70000", "port 70000 out of range" },
		{ "a.test:99999999999999999999", "out of range" },
		{ "a.test:http", "port 'http' is not a number" },
		{ "a.test:-1", "port '-1' is not a number" },
		{ "a.test:443/sctp", "protocol 'sctp'" },
		{ "a.test:1:2", "more than one ':'" },
		{ "*", "use \"default\": \"allow\"" },
		{ "*:443", "use \"default\": \"allow\"" },
		{ "*.com", "wildcard over a public suffix" },
		{ "*.co.uk", "wildcard over a public suffix" },
		{ "*.com:443", "wildcard over a public suffix" },
		{ "*", "allow[1]: '*'" },
		{ "*a.test", "'*' is only allowed at the start" },
		{ "a.*.test", "'*' is only allowed at the start" },
		{ "*.*.test", "'*' is only allowed at the start" },
		{ "*.", "'*.'" },
		{ "1.2.3.4", "use allow_cidr" },
		{ "1.2.3.4:80", "use allow_cidr" },
		{ "::1", "use allow_cidr" },
		{ "[2a00::1]:443", "use allow_cidr" },
		{ "2130706433", "use allow_cidr" },
		{ "0x7f.1", "use allow_cidr" },
		{ "0177.0.0.1", "use allow_cidr" },
		{ "127.1", "use allow_cidr" },
		{ "*.1.2.3.4", "use allow_cidr" },
		{ "[2a00::1", "'[' without ']'" },
		{ "host.agentkernel.internal", "add the port" },
	};
	char json[400];

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		snprintf(json, sizeof(json), "{\"version\":1,\"allow\":[\"ok.test\",\"%s\"]}", cases[i].pattern);
		expect_error(json, cases[i].want);
		expect_error(json, "allow[1]: ");
	}
	expect_error("{\"version\":1,\"deny\":[\"1.2.3.4\"]}", "deny[0]: '1.2.3.4': an address, not a host name: use deny_cidr");
	expect_error("{\"version\":1,\"deny\":[\"*.com\"]}", "deny[0]: '*.com'");
}

static void long_names_are_refused(void **state)
{
	char json[600], label[70];

	memset(label, 'a', sizeof(label));
	snprintf(json, sizeof(json), "{\"version\":1,\"allow\":[\"%.64s.test\"]}", label);
	expect_error(json, "label longer than 63");
	snprintf(json, sizeof(json), "{\"version\":1,\"allow\":[\"%.60s.%.60s.%.60s.%.60s.%.10s.test\"]}", label, label, label,
		label, label);
	expect_error(json, "longer than 253");
	snprintf(json, sizeof(json), "{\"version\":1,\"allow\":[\"%.63s.%.63s.%.63s.%.56s.test\"]}", label, label, label, label);
	policy_unref(must_parse(json)); /* 253 exactly */
}

static void errors_of_cidrs_name_the_fix(void **state)
{
	static const struct {
		const char *cidr, *want;
	} cases[] = {
		{ "10.1.2.3/8", "host bits set: write 10.0.0.0/8" },
		{ "fd00::1/64", "host bits set: write fd00::/64" },
		{ "10.0.0.0/33", "prefix length 33 is more than 32" },
		{ "fd00::/129", "prefix length 129 is more than 128" },
		{ "10.0.0.0/", "prefix length ''" },
		{ "10.0.0.0/08", "prefix length '08'" },
		{ "10.0.0.0/-1", "prefix length '-1'" },
		{ "10.0.0.0/8/8", "prefix length '8/8'" },
		{ "10.0.0/8", "not an address" },
		{ "010.0.0.0/8", "not an address" },
		{ "a.test", "not an address" },
		{ "", "not an address" },
		{ "fe80::1%eth0/64", "not an address" },
		{ "::ffff:10.0.0.0/104", "write 10.0.0.0/8" },
	};
	char json[200];

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		snprintf(json, sizeof(json), "{\"version\":1,\"deny_cidr\":[\"11.0.0.0/8\",\"%s\"]}", cases[i].cidr);
		expect_error(json, cases[i].want);
		expect_error(json, "deny_cidr[1]: '");
	}
}

static void deep_nesting_is_an_error_not_a_crash(void **state)
{
	_cleanup_strbuf_ struct strbuf json = { 0 };

	strbuf_puts(&json, "{\"version\":1,\"allow\":");
	for (int i = 0; i < 100000; i++)
		strbuf_putc(&json, '[');
	expect_error(json.data, "nested too deep");
}

/* ---- all errors at once ---- */

static void note_flaw(void *ctx, const struct policy_flaw *f)
{
	strbuf_printf(ctx, "%u:%u %.12s\n", f->line, f->column, f->text);
}

static void validation_reports_every_error_with_its_line(void **state)
{
	static const struct {
		const char *json, *want;
	} vectors[] = {
		{ "{\n \"version\": 2,\n \"colour\": [1, \"]\"],\n \"allow\": [\"ok.test\", \"b\\\"x\",\n  \"*\", {\"a\": [1, \"]\"]}, \"c.test:70000\"],\n"
		  " \"limits\": {\"connections\": 3, \"dns_qps\": \"x\"},\n \"extends\": [\"no-such\", \"codex\"],\n \"allow_cidr\": [\"10.0.0.0/8\", \"::1\"]\n}",
			"3:2 colour: unkn\n2:2 version: 2 i\n6:31 limits: dns_\n4:23 allow[1]: 'b\n5:3 allow[2]: '*\n5:8 allow[3]: mu\n5:25 allow[4]: 'c\n"
			"8:31 allow_cidr[1\n7:14 extends[0]: \n" },
		{ "{\"version\": 1,\n}", "2:1 invalid JSON\n" },
		{ "{\"version\": 1,\n \"allow\": [],\n \"allow\": []}", "3:2 allow: key g\n" },
		{ "{\"version\": 1,\n \"name\": \"\\u0000\"}", "0:0 line 2: \\u00\n" },
		{ "[]", "0:0 must be a JS\n" },
	};
	char path[] = "/tmp/ak-flaws-XXXXXX";
	int fd = mkstemp(path);

	assert_true(fd >= 0);
	for (size_t i = 0; i < ARRAY_SIZE(vectors); i++) {
		_cleanup_strbuf_ struct strbuf got = { 0 };
		struct ak_err err;
		size_t rules;

		assert_int_equal(ftruncate(fd, 0), 0);
		assert_int_equal(pwrite(fd, vectors[i].json, strlen(vectors[i].json), 0), (ssize_t)strlen(vectors[i].json));
		assert_int_equal(policy_validate(path, &shipped, note_flaw, &got, &rules, &err), -EINVAL);
		assert_string_equal(got.data, vectors[i].want);
	}
	close(fd);
	unlink(path);
}

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

/* ---- edits ---- */

static void edits_are_rules_of_flags_in_order(void **state)
{
	const struct policy_edit edits[] = {
		{ POLICY_EDIT_ALLOW_HOST, "new.test:8443" },
		{ POLICY_EDIT_BLOCK_HOST, "old.test" },
		{ POLICY_EDIT_ALLOW_CIDR, "10.0.0.0/8" },
		{ POLICY_EDIT_BLOCK_CIDR, "10.1.0.0/16" },
		{ POLICY_EDIT_ALLOW_HOST, "gone.test" },
		{ POLICY_EDIT_REMOVE, "gone.test" },
		{ POLICY_EDIT_REMOVE, "written.test:443/tcp" },
		{ POLICY_EDIT_REMOVE, "11.0.0.0/8" },
	};
	_cleanup_(policy_unrefp) struct policy *p =
		must_parse_edits("{\"version\":1,\"allow\":[\"old.test\",\"written.test:443\"],\"allow_cidr\":[\"11.0.0.0/8\"]}",
			edits, ARRAY_SIZE(edits));
	struct policy_decision d = policy_judge_name(p, "new.test", POLICY_TCP, 8443);
	struct ak_addr a;

	assert_true(d.allow);
	assert_string_equal(d.policy, "flags");
	assert_false(policy_judge_dns(p, "old.test").allow); /* equal patterns: deny wins */
	assert_false(policy_judge_dns(p, "gone.test").allow);
	assert_false(policy_judge_dns(p, "written.test").allow);
	ak_addr_parse("10.0.0.1", &a);
	assert_int_equal(policy_addr_class(p, &a, &d), POLICY_ADDR_OPEN);
	ak_addr_parse("10.1.0.1", &a);
	assert_int_equal(policy_addr_class(p, &a, &d), POLICY_ADDR_BLOCKED);
	ak_addr_parse("11.0.0.1", &a);
	assert_int_equal(policy_addr_class(p, &a, &d), POLICY_ADDR_PLAIN);
}

static void the_default_can_be_edited(void **state)
{
	const struct policy_edit edit = { POLICY_EDIT_DEFAULT, "allow" };
	_cleanup_(policy_unrefp) struct policy *p = must_parse_edits("{\"version\":1}", &edit, 1);

	assert_true(policy_default_allow(p));
	assert_true(policy_judge_dns(p, "a.test").allow);
}

static void edits_are_found_by_the_names_they_have(void **state)
{
	static const char *const none[] = { "", "allow", "allow-hos", "allow-hosts", "Allow-host", "json" };
	enum policy_edit_op op;

	for (int i = 0; i < POLICY_EDIT_NUM; i++) {
		assert_true(policy_edit_parse(policy_edit_name((enum policy_edit_op)i), &op));
		assert_int_equal(op, i);
	}
	for (size_t i = 0; i < ARRAY_SIZE(none); i++)
		assert_false(policy_edit_parse(none[i], &op));
}

static void bad_edits_say_which(void **state)
{
	static const struct {
		struct policy_edit edit;
		const char *want;
	} cases[] = {
		{ { POLICY_EDIT_ALLOW_HOST, "*" }, "allow-host: '*'" },
		{ { POLICY_EDIT_BLOCK_HOST, "a b" }, "block-host: 'a b'" },
		{ { POLICY_EDIT_ALLOW_CIDR, "10.0.0.1/8" }, "allow-cidr: '10.0.0.1/8'" },
		{ { POLICY_EDIT_BLOCK_CIDR, "x" }, "block-cidr: 'x'" },
		{ { POLICY_EDIT_DEFAULT, "open" }, "default: 'open'" },
		{ { POLICY_EDIT_REMOVE, "never.test" }, "remove: 'never.test': no such rule" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct policy *p = NULL;
		struct ak_err err;

		assert_true(policy_parse("{\"version\":1}", 13, "t", NULL, &cases[i].edit, 1, &p, &err) < 0);
		assert_null(p);
		assert_non_null(strstr(err.text, cases[i].want));
	}
}

/* ---- printer ---- */

static void printed_policies_read_back_as_themselves(void **state)
{
	const struct policy_edit edit = { POLICY_EDIT_ALLOW_HOST, "extra.test:9/udp" };
	_cleanup_(policy_unrefp) struct policy *p = must_parse_edits(
		"{\"version\":1,\"name\":\"mine\",\"description\":\"caf\xc3\xa9 \\\"x\\\" \\\\\",\"extends\":[\"codex\",\"source-hosting\"],"
		"\"allow\":[\"B.test\",\"*.npmjs.org:443\"],\"deny\":[\"*\",\"x.test:1/udp\"],\"deny_cidr\":[\"11.0.0.0/8\"],"
		"\"limits\":{\"connections\":9,\"egress_bytes\":\"10M\"}}",
		&edit, 1);
	_cleanup_free_ char *once = print(p);
	_cleanup_(policy_unrefp) struct policy *q = must_parse(once);
	_cleanup_free_ char *twice = print(q);

	assert_string_equal(once, twice);
	assert_string_equal(policy_description(q), "caf\xc3\xa9 \"x\" \\");
	assert_int_equal(policy_limits(q)->egress_bytes, 10 << 20);
	assert_int_equal(policy_limits(q)->dns_qps, POLICY_DNS_QPS_DEFAULT);
	assert_int_equal(policy_rule_count(q), policy_rule_count(p));
	assert_non_null(strstr(once, "{\"rule\": \"api.openai.com:443\", \"from\": \"codex\"}"));
	assert_non_null(strstr(once, "{\"rule\": \"*.npmjs.org:443\", \"from\": \"mine\"}"));
	assert_non_null(strstr(once, "{\"rule\": \"extra.test:9/udp\", \"from\": \"flags\"}"));
	assert_null(strstr(once, "extends"));
}

static void the_printed_form_is_strict_too(void **state)
{
	expect_error("{\"version\":1,\"compiled\":true,\"extends\":[]}", "extends: unknown key");
	expect_error("{\"version\":1,\"compiled\":true,\"allow\":[{\"rule\":\"a.test\"}]}", "allow[0]: from: missing");
	expect_error("{\"version\":1,\"compiled\":true,\"allow\":[{\"from\":\"x\"}]}", "allow[0]: rule: missing");
	expect_error(
		"{\"version\":1,\"compiled\":true,\"allow\":[{\"rule\":\"a.test\",\"from\":\"a\\nb\"}]}", "allow[0]: from: ");
	expect_error(
		"{\"version\":1,\"compiled\":true,\"allow\":[{\"rule\":\"a.test\",\"from\":\"x\",\"z\":1}]}", "z: unknown key");
	expect_error("{\"version\":1,\"compiled\":1}", "compiled: must be true or false");
	expect_error("{\"version\":1,\"compiled\":false}", "compiled: unknown key");
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

/* ---- words ---- */

static void names_are_checked(void **state)
{
	static const char *const good[] = { "a.test", "a", "_dmarc.a.test", "xn--bcher-kva.test", "a-b.c--d.test", "1.a",
		"0x7f.a" };
	static const char *const bad[] = { "", ".", "a.", "A.test", "a..b", "1.2.3.4", "127.1", "2130706433", "0x7f000001",
		"a.0x1", "1.2.3", "a b", "a\nb", "*.a.test", "a:1", "\xc3\xbc.test" };

	for (size_t i = 0; i < ARRAY_SIZE(good); i++)
		assert_true(policy_name_ok(good[i]));
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		if (policy_name_ok(bad[i]))
			fail_msg("'%s'", bad[i]);
	}
}

static void targets_are_parsed(void **state)
{
	struct policy_target t;
	struct ak_err err;
	char text[AK_ADDR_TEXT];

	assert_int_equal(policy_target_parse("Api.Test.", &t, &err), 0);
	assert_string_equal(t.host, "api.test");
	assert_int_equal(t.port, 443);
	assert_int_equal(t.proto, POLICY_TCP);
	assert_int_equal(policy_target_parse("a.test:53/udp", &t, &err), 0);
	assert_int_equal(t.port, 53);
	assert_int_equal(t.proto, POLICY_UDP);
	assert_int_equal(policy_target_parse("a.test/udp", &t, &err), 0);
	assert_int_equal(t.proto, POLICY_UDP);
	assert_int_equal(policy_target_parse("11.0.0.1:22", &t, &err), 0);
	assert_string_equal(t.host, "");
	assert_int_equal(t.port, 22);
	assert_int_equal(policy_target_parse("[2a00::1]:8443/tcp", &t, &err), 0);
	assert_string_equal(ak_addr_print(&t.addr, text), "2a00::1");
	assert_int_equal(t.port, 8443);
	assert_int_equal(policy_target_parse("2a00::1", &t, &err), 0);
	assert_int_equal(t.addr.family, AF_INET6);
	assert_int_equal(policy_target_parse("[2a00::1]", &t, &err), 0);
	assert_int_equal(t.port, 443);
}

static void bad_targets_are_refused(void **state)
{
	static const char *const bad[] = { "", "*.a.test", "a.test:0", "a.test:65536", "a.test:x", "a.test/icmp", "http://a.test",
		"127.1", "0x7f.1", "2130706433", "[a.test]:1", "[11.0.0.1]:1", "[2a00::1", "[2a00::1]x", "a..test", "a_b c",
		"2a00::1::2" };

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct policy_target t = { .port = 7 };
		struct ak_err err = { "" };

		if (policy_target_parse(bad[i], &t, &err) >= 0)
			fail_msg("'%s'", bad[i]);
		assert_int_equal(t.port, 7);
		assert_int_not_equal(err.text[0], '\0');
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(validation_reports_every_error_with_its_line),
		cmocka_unit_test(errors_of_structure_name_their_place),
		cmocka_unit_test(errors_of_patterns_name_their_place),
		cmocka_unit_test(long_names_are_refused),
		cmocka_unit_test(errors_of_cidrs_name_the_fix),
		cmocka_unit_test(deep_nesting_is_an_error_not_a_crash),
		cmocka_unit_test_setup_teardown(extends_gathers_rules_and_remembers_where_from, tmp_setup, tmp_teardown),
		cmocka_unit_test_setup_teardown(extends_errors_name_every_file_on_the_way, tmp_setup, tmp_teardown),
		cmocka_unit_test_setup_teardown(a_file_extends_the_one_that_it_replaces, tmp_setup, tmp_teardown),
		cmocka_unit_test_setup_teardown(
			an_added_policy_brings_its_rules_and_never_opens_the_default, tmp_setup, tmp_teardown),
		cmocka_unit_test_setup_teardown(a_group_only_adds_and_a_block_covers_it_in_any_order, tmp_setup, tmp_teardown),
		cmocka_unit_test_setup_teardown(a_pinned_file_no_longer_depends_on_the_file, tmp_setup, tmp_teardown),
		cmocka_unit_test_setup_teardown(extends_is_bounded, tmp_setup, tmp_teardown),
		cmocka_unit_test_setup_teardown(the_first_folder_wins_and_a_bad_file_there_is_an_error, tmp_setup, tmp_teardown),
		cmocka_unit_test(edits_are_rules_of_flags_in_order),
		cmocka_unit_test(the_default_can_be_edited),
		cmocka_unit_test(edits_are_found_by_the_names_they_have),
		cmocka_unit_test(bad_edits_say_which),
		cmocka_unit_test(printed_policies_read_back_as_themselves),
		cmocka_unit_test(the_printed_form_is_strict_too),
		cmocka_unit_test(shipped_policies_load),
		cmocka_unit_test(modes_reach_their_apis_and_registries),
		cmocka_unit_test(names_are_checked),
		cmocka_unit_test(targets_are_parsed),
		cmocka_unit_test(bad_targets_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
