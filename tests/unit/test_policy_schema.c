/* The JSON Schema that editors use says the same as the parser, as far as a schema can. */
#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/base/json.h"
#include "policies/policy.h"

#include <fcntl.h>
#include <regex.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

static cJSON *schema;

static int load_schema(void **state)
{
	_cleanup_free_ char *text = NULL;
	struct ak_err err;
	size_t len;

	if (ak_read_file(AT_FDCWD, AK_SOURCE_DIR "/policies/policy.schema.json", 1 << 20, &text, &len) < 0)
		return -1;
	return json_parse(text, len, &schema, &err);
}

static int free_schema(void **state)
{
	cJSON_Delete(schema);
	return 0;
}

static const cJSON *at(const cJSON *obj, const char *key)
{
	const cJSON *item = cJSON_GetObjectItemCaseSensitive(obj, key);

	if (!item)
		fail_msg("no '%s' in the schema", key);
	return item;
}

static bool matches(const cJSON *type, const char *text)
{
	const char *pattern = at(type, "pattern")->valuestring;
	regex_t re;
	bool ok;

	if (regcomp(&re, pattern, REG_EXTENDED | REG_NOSUB))
		fail_msg("bad pattern %s", pattern);
	ok = regexec(&re, text, 0, NULL, 0) == 0;
	regfree(&re);
	return ok;
}

static bool parser_takes(enum policy_edit_op op, const char *text)
{
	const struct policy_edit edit = { op, text };
	_cleanup_(policy_unrefp) struct policy *p = NULL;
	struct ak_err err;

	return policy_parse("{\"version\":1}", 13, "t", NULL, &edit, 1, &p, &err) == 0;
}

static void check(const cJSON *type, enum policy_edit_op op, const char *text, bool want)
{
	if (matches(type, text) != want)
		fail_msg("schema: '%s' should be %s", text, want ? "taken" : "refused");
	if (parser_takes(op, text) != want)
		fail_msg("parser: '%s' should be %s", text, want ? "taken" : "refused");
}

static void host_patterns_agree(void **state)
{
	static const char *const good[] = { "a.test", "A.Test.", "a", "*.a.test", "*.a.b.test:443", "a.test:1",
		"a.test:65535/tcp", "_x.a.test:53/udp", "xn--bcher-kva.test", "a-b.test" };
	static const char *const bad[] = { "", "*", "*.com", "*a.test", "a.*.test", "a b.test", "a.test:", "a.test:x",
		"a.test/udp", "a.test:1/sctp", "https://a.test", "[2a00::1]:443", "-a.test", "a.test-", "b\xc3\xbc\x63her.test",
		"a.test:123456" };
	const cJSON *type = at(at(schema, "$defs"), "host");

	for (size_t i = 0; i < ARRAY_SIZE(good); i++)
		check(type, POLICY_EDIT_ALLOW_HOST, good[i], true);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		check(type, POLICY_EDIT_ALLOW_HOST, bad[i], false);
}

static void cidrs_agree(void **state)
{
	static const char *const good[] = { "10.0.0.0/8", "10.1.2.3", "::/0", "fd00::/8", "2a00::1" };
	static const char *const bad[] = { "", "10.0.0.0/", "10.0.0/8", "a.test", "10.0.0.0/8/8", "fe80::1%eth0" };
	const cJSON *type = at(at(at(schema, "$defs"), "cidrs"), "items");

	for (size_t i = 0; i < ARRAY_SIZE(good); i++)
		check(type, POLICY_EDIT_ALLOW_CIDR, good[i], true);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		check(type, POLICY_EDIT_ALLOW_CIDR, bad[i], false);
}

/* Null is read as absent, so a null of every key shows which keys the parser knows. */
static void keys_agree(void **state)
{
	const cJSON *item;
	unsigned n = 0;

	cJSON_ArrayForEach(item, at(schema, "properties")) {
		_cleanup_(policy_unrefp) struct policy *p = NULL;
		struct ak_err err;
		char json[100];

		n++;
		if (!strcmp(item->string, "version"))
			continue;
		snprintf(json, sizeof(json), "{\"version\":1,\"%s\":null}", item->string);
		if (policy_parse(json, strlen(json), "t", NULL, NULL, 0, &p, &err) < 0)
			fail_msg("%s", err.text);
	}
	assert_int_equal(n, 11);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(host_patterns_agree),
		cmocka_unit_test(cidrs_agree),
		cmocka_unit_test(keys_agree),
	};

	return cmocka_run_group_tests(tests, load_schema, free_schema);
}
