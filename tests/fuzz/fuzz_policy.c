/*
 * Policy files from anywhere: loading never crashes, what loads prints, what is printed loads again as the same and judges the same, and
 * the built-in blocks hold whatever it says. Input that is no policy is tried as a target and as a rule.
 *
 * Input: the file; after a NUL, edits with a NUL between them, each a digit and a text.
 */
#include "gateway/base/cleanup.h"
#include "policies/policy.h"

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

/* Two that are the same say the same of everything. */
static void check_same(const struct policy *a, const struct policy *b)
{
	static const char *const names[] = { "a.example", "b.a.example", "example", "x.b.a.example", "metadata.google.internal",
		"api.openai.com", POLICY_HOST_NAME };
	static const char *const addrs[] = { "11.1.0.5", "10.1.2.3", "2a00:1::5", "192.168.0.1" };
	struct policy_port ports[32];
	struct ak_addr addr;

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		size_t n = policy_name_ports(a, names[i], ports, ARRAY_SIZE(ports));

		must(policy_judge_dns(a, names[i]).allow == policy_judge_dns(b, names[i]).allow);
		for (int port = 0; port < 3; port++) {
			const uint16_t number = (const uint16_t[]){ 443, 80, 53 }[port];

			must(policy_judge_name(a, names[i], POLICY_UDP, number).allow ==
				policy_judge_name(b, names[i], POLICY_UDP, number).allow);
		}
		for (size_t k = 0; k < n; k++) /* what the kernel is told to open, the matcher allows */
			must(policy_judge_name(a, names[i], ports[k].proto, ports[k].port).allow);
	}
	for (size_t i = 0; i < ARRAY_SIZE(addrs); i++) {
		must(ak_addr_parse(addrs[i], &addr) == 0);
		must(policy_judge_addr(a, &addr, POLICY_TCP, 443).allow == policy_judge_addr(b, &addr, POLICY_TCP, 443).allow);
	}
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
	check_same(p, again);
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

/* The edits in TEXT, which LEN bytes of input and a NUL are in; how many. */
static size_t read_edits(const char *text, size_t len, struct policy_edit *ret, size_t max)
{
	size_t n = 0;

	for (const char *at = text; at <= text + len && n < max; at += strlen(at) + 1) {
		if (*at >= '0' && *at < '0' + POLICY_EDIT_NUM)
			ret[n++] = (struct policy_edit){ (enum policy_edit_op)(*at - '0'), at + 1 };
	}
	return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct policy_dirs dirs = { { AK_SOURCE_DIR "/policies" } };
	_cleanup_(policy_unrefp) struct policy *p = NULL;
	_cleanup_free_ char *text = calloc(1, size + 1);
	struct policy_edit edits[8];
	struct ak_err err;
	size_t len, n;

	memcpy(text, data, size);
	len = strlen(text);
	n = len < size ? read_edits(text + len + 1, size - len - 1, edits, ARRAY_SIZE(edits)) : 0;
	if (policy_parse(text, len, "fuzz", &dirs, edits, n, &p, &err) == 0)
		check_policy(p);
	else if (size < 400)
		try_word(text);
	return 0;
}
