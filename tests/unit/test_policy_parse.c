/* Policy texts: every way to be wrong names its place; edits, printer, names and targets. */
#include "tests/unit/policy_rig.h"

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
		cmocka_unit_test(edits_are_rules_of_flags_in_order),
		cmocka_unit_test(the_default_can_be_edited),
		cmocka_unit_test(edits_are_found_by_the_names_they_have),
		cmocka_unit_test(bad_edits_say_which),
		cmocka_unit_test(printed_policies_read_back_as_themselves),
		cmocka_unit_test(the_printed_form_is_strict_too),
		cmocka_unit_test(names_are_checked),
		cmocka_unit_test(targets_are_parsed),
		cmocka_unit_test(bad_targets_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
