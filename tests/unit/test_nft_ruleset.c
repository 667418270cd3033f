/*
 * Goldens: policy and link in, rules as text out, equal to golden/NAME.nft. AK_UPDATE_GOLDEN=1 writes them anew.
 * The text is nft's own syntax, so that a golden can be read, or loaded with `nft -f`.
 */
#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "nft/batch.h"
#include "nft/fw.h"
#include "nft/ruleset.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct policy *policy(const char *json)
{
	static const struct policy_dirs nowhere;
	struct ak_err err = { "" };
	struct policy *p = NULL;

	if (policy_parse(json, strlen(json), "test", &nowhere, NULL, 0, &p, &err) < 0)
		fail_msg("%s", err.text);
	return p;
}

static struct fw_link link_plan(bool ipv6)
{
	struct fw_link link = { .id = 7, .ifname = "ak7", .peer_mac = { 2, 0x61, 0x6b, 0, 0, 7 } };

	ak_addr_parse("100.64.0.30", &link.addr4);
	ak_addr_parse("100.64.0.29", &link.gw4);
	if (ipv6) {
		ak_addr_parse("fd61:6b::7:2", &link.addr6);
		ak_addr_parse("fd61:6b::7:1", &link.gw6);
	}
	return link;
}

static void assert_golden(const char *name, const struct strbuf *text)
{
	_cleanup_free_ char *want = NULL;
	char path[512];
	size_t len;

	snprintf(path, sizeof(path), "%s/tests/unit/golden/%s.nft", AK_SOURCE_DIR, name);
	if (getenv("AK_UPDATE_GOLDEN")) {
		_cleanup_close_ int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

		assert_int_equal(ak_write_all(fd, text->data, text->len), 0);
		return;
	}
	assert_int_equal(ak_read_file(AT_FDCWD, path, 1 << 20, &want, &len), 0);
	assert_string_equal(text->data, want);
}

static void assert_sandbox_golden(const char *name, const char *json, bool ipv6)
{
	_cleanup_strbuf_ struct strbuf text = { 0 };
	struct fw_link link = link_plan(ipv6);
	struct policy *p = policy(json);
	struct ak_err err = { "" };

	assert_int_equal(fw_print_sandbox(&link, p, &text, &err), 0);
	assert_golden(name, &text);
	policy_unref(p);
}

#define DENY "{\"version\":1,\"name\":\"t\",\"default\":\"deny\",\"allow\":[\"ok.test:443\"]}"
#define RANGES                                                                                                                   \
	"{\"version\":1,\"name\":\"t\",\"default\":\"deny\",\"allow_cidr\":[\"10.1.0.0/16\",\"11.0.0.0/8\"],\"deny_cidr\":[\"11.5.0.0/16\"]}"
#define ALLOW "{\"version\":1,\"name\":\"t\",\"default\":\"allow\"}"

static void base_table(void **state)
{
	_cleanup_strbuf_ struct strbuf text = { 0 };
	struct ak_err err = { "" };

	assert_int_equal(fw_print_base(&text, &err), 0);
	assert_golden("base", &text);
}

static void sandbox_in_an_allowlist_mode(void **state)
{
	assert_sandbox_golden("sandbox_deny", DENY, true);
}

static void sandbox_with_open_and_denied_ranges(void **state)
{
	assert_sandbox_golden("sandbox_ranges", RANGES, true);
}

static void sandbox_with_default_allow(void **state)
{
	assert_sandbox_golden("sandbox_allow", ALLOW, true);
}

static void sandbox_without_ipv6(void **state)
{
	assert_sandbox_golden("sandbox_ipv4", DENY, false);
}

static void sandbox_of_a_further_table(void **state)
{
	_cleanup_strbuf_ struct strbuf text = { 0 };
	struct fw_batch b = { .text = &text };
	struct fw_link link = link_plan(false);
	struct policy *p = policy(DENY);

	link.id = FW_SHARD_SIZE + 7;
	snprintf(link.ifname, sizeof(link.ifname), "ak%u", link.id);
	fw_batch_begin(&b, 1);
	fw_build_shard(&b, fw_shard(link.id));
	fw_build_sandbox(&b, &link, p);
	fw_build_remove(&b, &link);
	fw_build_shard_remove(&b, fw_shard(link.id));
	assert_int_equal(b.failed, 0);
	assert_golden("sandbox_shard", &text);
	fw_batch_done(&b);
	policy_unref(p);
}

static void policy_change_and_removal(void **state)
{
	_cleanup_strbuf_ struct strbuf text = { 0 };
	struct fw_link link = link_plan(true);
	struct policy *p = policy(RANGES);
	struct fw_batch b = { .text = &text };

	fw_batch_begin(&b, 1);
	fw_build_update(&b, &link, p);
	assert_int_equal(b.failed, 0);
	fw_batch_begin(&b, 1);
	fw_build_remove(&b, &link);
	assert_int_equal(b.failed, 0);
	assert_golden("change_remove", &text);
	fw_batch_done(&b);
	policy_unref(p);
}

static void building_is_pure(void **state)
{
	struct fw_link link = link_plan(true);
	struct policy *p = policy(RANGES);
	struct fw_batch a = { 0 }, b = { 0 };

	fw_batch_begin(&a, 5);
	fw_build_sandbox(&a, &link, p);
	fw_batch_begin(&b, 5);
	fw_build_sandbox(&b, &link, p);
	assert_int_equal(a.len, b.len);
	assert_int_equal(a.n, b.n);
	assert_memory_equal(a.buf, b.buf, a.len);
	fw_batch_done(&a);
	fw_batch_done(&b);
	policy_unref(p);
}

static void bad_links_are_refused(void **state)
{
	_cleanup_strbuf_ struct strbuf text = { 0 };
	struct fw_link link = link_plan(true);
	struct policy *p = policy(DENY);
	struct ak_err err = { "" };

	strcpy(link.ifname, "eth0");
	assert_int_equal(fw_print_sandbox(&link, p, &text, &err), -EINVAL);
	assert_string_equal(err.text, "link of sandbox 7: 'eth0' does not start with ak");
	memset(link.ifname, 'a', sizeof(link.ifname));
	assert_int_equal(fw_print_sandbox(&link, p, &text, &err), -EINVAL);
	link = link_plan(true);
	link.addr4.family = 0;
	assert_int_equal(fw_print_sandbox(&link, p, &text, &err), -EINVAL);
	policy_unref(p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(base_table),
		cmocka_unit_test(sandbox_in_an_allowlist_mode),
		cmocka_unit_test(sandbox_with_open_and_denied_ranges),
		cmocka_unit_test(sandbox_with_default_allow),
		cmocka_unit_test(sandbox_without_ipv6),
		cmocka_unit_test(sandbox_of_a_further_table),
		cmocka_unit_test(policy_change_and_removal),
		cmocka_unit_test(building_is_pure),
		cmocka_unit_test(bad_links_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
