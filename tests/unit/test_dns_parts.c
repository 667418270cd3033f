/* The proxy's cache, budget and plan, each by itself. */
#include "dnsproxy/internal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

static const uint64_t key[2] = { 0x123456789abcdef1u, 0xfedcba9876543211u };

static struct dns_cache_entry *remember(struct dns_cache *cache, const char *text, uint32_t addr, uint64_t expires_ms)
{
	struct dns_name name;
	struct ak_addr a = ak_addr_v4(addr);
	struct dns_cache_item item = { .qtype = 1, .name = &name, .addrs = &a, .n_addrs = 1, .expires_ms = expires_ms };

	assert_int_equal(dns_name_from_text(text, &name), 0);
	return dns_cache_put(cache, &item);
}

static struct dns_cache_entry *recall(struct dns_cache *cache, const char *text, uint16_t qtype, uint64_t now_ms)
{
	struct dns_name name;

	assert_int_equal(dns_name_from_text(text, &name), 0);
	return dns_cache_find(cache, &name, qtype, now_ms);
}

static void entries_are_found_by_name_and_type_until_they_expire(void **state)
{
	struct dns_cache cache;

	dns_cache_init(&cache, key);
	assert_null(recall(&cache, "a.test", 1, 0));
	remember(&cache, "a.test", 1, 10000);
	assert_non_null(recall(&cache, "a.test", 1, 0));
	assert_null(recall(&cache, "a.test", 28, 0));
	assert_null(recall(&cache, "b.test", 1, 0));
	assert_non_null(recall(&cache, "a.test", 1, 9000));
	assert_null(recall(&cache, "a.test", 1, 9001)); /* its TTL would be 0 */
	dns_cache_done(&cache);
}

static void cache_is_bounded_and_the_least_used_goes(void **state)
{
	struct dns_cache cache;
	char name[32];

	dns_cache_init(&cache, key);
	remember(&cache, "kept.test", 1, 1000000);
	for (unsigned i = 0; i < 100000; i++) {
		snprintf(name, sizeof(name), "n%u.test", i);
		remember(&cache, name, 0x0b000000u + i, 1000000);
		if (i % 1000 == 0)
			assert_non_null(recall(&cache, "kept.test", 1, 0));
		assert_true(cache.n_entries <= DNS_CACHE_ENTRIES && cache.bytes <= DNS_CACHE_BYTES);
	}
	assert_non_null(recall(&cache, "n99999.test", 1, 0));
	assert_null(recall(&cache, "n0.test", 1, 0));
	dns_cache_done(&cache);
}

static void addresses_lead_back_to_the_name_that_brought_them_last(void **state)
{
	struct dns_cache cache;
	struct ak_addr a = ak_addr_v4(0x0b000001u), b = ak_addr_v4(0x0b000002u);
	struct dns_name name;
	char text[DNS_WIRE_TEXT_MAX];

	dns_cache_init(&cache, key);
	assert_null(dns_cache_by_addr(&cache, &a));
	remember(&cache, "first.test", 0x0b000001u, 10000);
	remember(&cache, "second.test", 0x0b000001u, 10000);
	dns_cache_name(dns_cache_by_addr(&cache, &a), &name);
	dns_name_text(&name, text);
	assert_string_equal(text, "second.test");
	assert_null(dns_cache_by_addr(&cache, &b));
	remember(&cache, "second.test", 0x0b000002u, 10000);
	assert_non_null(dns_cache_by_addr(&cache, &b));
	assert_null(dns_cache_by_addr(&cache, &a)); /* the name moved on */
	dns_cache_done(&cache);
}

static bool take(struct dns_budget *b, const char *rule, const char *text, uint64_t now_ms)
{
	struct dns_name name;

	assert_int_equal(dns_name_from_text(text, &name), 0);
	return dns_budget_take(b, rule, &name, now_ms);
}

static void package_managers_never_trip_the_budget(void **state)
{
	static const char *const names[] = { "registry.npmjs.org", "www.npmjs.org", "replicate.npmjs.org",
		"files.pythonhosted.org", "pypi.pythonhosted.org", "storage.googleapis.com", "generativelanguage.googleapis.com",
		"oauth2.googleapis.com" };
	static const char *const rules[] = { "*.npmjs.org:443", "*.npmjs.org:443", "*.npmjs.org:443", "*.pythonhosted.org",
		"*.pythonhosted.org", "*.googleapis.com:443", "*.googleapis.com:443", "*.googleapis.com:443" };
	struct dns_budget b;

	dns_budget_init(&b, key);
	/* the shortest lives there are, both types, for a day: the cache lets none leave more often */
	for (uint64_t ms = 0; ms < 86400000; ms += 1000ull * DNS_TTL_MIN_S)
		for (unsigned i = 0; i < 16; i++)
			assert_true(take(&b, rules[i % 8], names[i % 8], ms));
	dns_budget_done(&b);
}

/* 256 names are an octet each time one of them is chosen. */
static void names_paid_for_are_charged_when_they_leave_again(void **state)
{
	struct dns_budget b;
	unsigned left = 0;
	char name[64];

	dns_budget_init(&b, key);
	for (unsigned i = 0; i < 256; i++) {
		snprintf(name, sizeof(name), "n%u.w.test", i);
		assert_true(take(&b, "*.w.test", name, 1000));
	}
	for (unsigned i = 0; i < 100000; i++) {
		snprintf(name, sizeof(name), "n%u.w.test", i * 7919 % 256);
		left += take(&b, "*.w.test", name, 1000 + i);
	}
	assert_in_range(left, 1000, DNS_BUDGET_OCTETS / 2 * 7 / 6);
	dns_budget_done(&b);
}

static void exact_names_share_a_bound(void **state)
{
	struct dns_budget b;
	unsigned left = 0;

	dns_budget_init(&b, key);
	for (unsigned i = 0; i < 200000; i++)
		left += take(&b, "api.test:443", "api.test", 1000);
	assert_int_equal(left, DNS_BUDGET_OCTETS * 1000 / DNS_BUDGET_EXACT_MILLI);
	assert_false(take(&b, "other.test", "other.test", 1000));
	assert_true(take(&b, "*.w.test", "n.w.test", 1000));
	assert_true(take(&b, "other.test", "other.test", 2000));
	dns_budget_done(&b);
}

static void budget_fills_again_with_time(void **state)
{
	struct dns_budget b;
	unsigned first = 0, later = 0;
	char name[64];

	dns_budget_init(&b, key);
	for (unsigned i = 0; i < 1000; i++) {
		snprintf(name, sizeof(name), "n%u.w.test", i);
		first += take(&b, "*.w.test", name, 1000);
	}
	assert_int_equal(first, DNS_BUDGET_NAMES);
	assert_true(take(&b, "*.w.test", "n5.w.test", 1000)); /* asked before */
	assert_true(take(&b, "*.other.test", "n5.other.test", 1000));
	assert_false(take(&b, "*.w.test:443", "n5000.w.test", 1000)); /* one purse for all ports */
	for (unsigned i = 1000; i < 2000; i++) {
		snprintf(name, sizeof(name), "n%u.w.test", i);
		later += take(&b, "*.w.test", name, 1000 + DNS_BUDGET_WINDOW_MS / 2);
	}
	assert_int_equal(later, DNS_BUDGET_NAMES / 2);
	dns_budget_done(&b);
}

static void budget_bounds_octets_whatever_their_shape(void **state)
{
	struct dns_budget b;
	size_t passed = 0;
	char name[260];

	dns_budget_init(&b, key);
	for (unsigned i = 0; i < 100000; i++) {
		unsigned mixed = i * 2654435761u;

		snprintf(name, sizeof(name), "%08xqwrtpsdfghkl%08xzxcvbnm.%08xmnbvcxzlkjhgf%08x.w.test", mixed, i, ~mixed,
			i ^ mixed);
		if (take(&b, "*.w.test", name, 1000 + i))
			passed += strlen(name) - strlen(".w.test");
	}
	/* 100 seconds: a full bucket and a sixth of another at most */
	assert_true(passed <= DNS_BUDGET_OCTETS * 7 / 6);
	dns_budget_done(&b);
}

static void more_wildcards_than_the_table_holds_are_refused(void **state)
{
	struct dns_budget b;
	unsigned ok = 0;

	dns_budget_init(&b, key);
	for (unsigned i = 0; i < 1000; i++) {
		char rule[32], name[32];

		snprintf(rule, sizeof(rule), "*.w%u.test", i);
		snprintf(name, sizeof(name), "a.w%u.test", i);
		ok += take(&b, rule, name, 1000);
	}
	assert_int_equal(ok, DNS_BUDGET_PARENTS - 1);
	assert_true(take(&b, "*.new.test", "a.new.test", 1000 + DNS_BUDGET_WINDOW_MS));
	dns_budget_done(&b);
}

static void encoded_labels_weigh_more(void **state)
{
	static const struct {
		const char *label;
		unsigned weight;
	} cases[] = { { "registry", 1 }, { "files", 1 }, { "production-cloudflare-images", 1 }, { "generativelanguage", 1 },
		{ "d2lzkl7pfhq30w", 1 }, { "mfzwizltoq2gk3tfnfxgoylmnrxw", 2 }, { "deadbeef0123456789abcdef01234567", 2 },
		{ "deadbeef0123456789abcdef0123456789abcdef", 4 },
		{ "deadbeef0123456789abcdef0123456789abcdef0123456789abcdef", 8 } };

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		assert_int_equal(dns_budget_weight((const uint8_t *)cases[i].label, strlen(cases[i].label)), cases[i].weight);
}

static void plan_follows_mode_type_and_family(void **state)
{
	static const uint16_t withheld[] = { 5, 10, 13, 64, 65, 255, 65280 };

	assert_int_equal(dns_plan_of(false, false, "a.test", 1), DNS_PLAN_RESOLVE);
	assert_int_equal(dns_plan_of(false, false, "a.test", 28), DNS_PLAN_WITHHOLD);
	assert_int_equal(dns_plan_of(false, true, "a.test", 28), DNS_PLAN_RESOLVE);
	assert_int_equal(dns_plan_of(false, true, "a.test", 16), DNS_PLAN_WITHHOLD);
	assert_int_equal(dns_plan_of(true, true, "a.test", 16), DNS_PLAN_FORWARD);
	assert_int_equal(dns_plan_of(true, true, POLICY_HOST_NAME, 1), DNS_PLAN_HOST);
	assert_int_equal(dns_plan_of(true, true, POLICY_HOST_NAME, 16), DNS_PLAN_WITHHOLD);
	for (size_t i = 0; i < sizeof(withheld) / sizeof(withheld[0]); i++) {
		assert_int_equal(dns_plan_of(true, true, "a.test", withheld[i]), DNS_PLAN_WITHHOLD);
		assert_int_equal(dns_plan_of(false, true, "a.test", withheld[i]), DNS_PLAN_WITHHOLD);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(entries_are_found_by_name_and_type_until_they_expire),
		cmocka_unit_test(cache_is_bounded_and_the_least_used_goes),
		cmocka_unit_test(addresses_lead_back_to_the_name_that_brought_them_last),
		cmocka_unit_test(package_managers_never_trip_the_budget),
		cmocka_unit_test(names_paid_for_are_charged_when_they_leave_again),
		cmocka_unit_test(exact_names_share_a_bound),
		cmocka_unit_test(budget_fills_again_with_time),
		cmocka_unit_test(budget_bounds_octets_whatever_their_shape),
		cmocka_unit_test(more_wildcards_than_the_table_holds_are_refused),
		cmocka_unit_test(encoded_labels_weigh_more),
		cmocka_unit_test(plan_follows_mode_type_and_family),
	};

	return cmocka_run_group_tests_name("dns parts", tests, NULL, NULL);
}
