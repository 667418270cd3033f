/*
 * Policy files from anywhere: loading never crashes, what loads prints, what is printed loads again as the same, and
 * the built-in blocks hold whatever it says. Input that is no policy is tried as a target and as a rule.
 */
#include "policies/policy.h"
#include "gateway/base/cleanup.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool ok)
{
	if (!ok)
		abort();
}

static void check_blocks(const struct policy *p)
{
	static const char *const never[] = { "169.254.169.254", "127.0.0.1", "168.63.129.16", "100.64.0.1", "224.0.0.1",
		"fd00:ec2::254", "::1", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe" };
	struct ak_addr a;

	for (size_t i = 0; i < ARRAY_SIZE(never); i++) {
		must(ak_addr_parse(never[i], &a) == 0);
		must(policy_addr_class(p, &a, NULL) == POLICY_ADDR_BLOCKED);
	}
	must(!policy_judge_name(p, "metadata.google.internal", POLICY_TCP, 80).allow);
	must(!policy_judge_dns(p, "intranet").allow);
}

static void check_policy(const struct policy *p)
{
	_cleanup_strbuf_ struct strbuf once = { 0 }, twice = { 0 };
	_cleanup_(policy_unrefp) struct policy *again = NULL;
	struct ak_err err;

	check_blocks(p);
	policy_print(p, &once);
	must(policy_parse(once.data, once.len, "fuzz", NULL, NULL, 0, &again, &err) == 0);
	policy_print(again, &twice);
	must(once.len == twice.len && !memcmp(once.data, twice.data, once.len));
}

/* A word on its own: what a flag or `network check` could be given. */
static void try_word(const char *text)
{
	static const char empty[] = "{\"version\":1}";
	struct policy_target target;
	struct ak_err err;

	if (policy_target_parse(text, &target, &err) == 0)
		must(target.addr.family || policy_name_ok(target.host));
	for (int op = 0; op < POLICY_EDIT_NUM; op++) {
		const struct policy_edit edit = { (enum policy_edit_op)op, text };
		_cleanup_(policy_unrefp) struct policy *p = NULL;

		if (policy_parse(empty, sizeof(empty) - 1, "fuzz", NULL, &edit, 1, &p, &err) == 0)
			check_policy(p);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_(policy_unrefp) struct policy *p = NULL;
	_cleanup_free_ char *text = strndup((const char *)data, size);
	struct ak_err err;

	if (!text)
		return 0;
	if (policy_parse((const char *)data, size, "fuzz", NULL, NULL, 0, &p, &err) == 0)
		check_policy(p);
	else if (size < 400)
		try_word(text);
	return 0;
}
