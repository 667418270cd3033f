/* What the gateway counts: each time in its own bucket, every reason of a policy by its name, and the same numbers on both sides of the codec. */
#include "gateway/base/cleanup.h"
#include "gateway/log/stats.h"
#include "policies/policy.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void a_time_is_in_the_first_bucket_that_holds_it(void **state)
{
	struct net_histogram h = { 0 };

	net_histogram_add(&h, 500);
	net_histogram_add(&h, 501);
	net_histogram_add(&h, 30000001);
	assert_int_equal(h.buckets[0], 1);
	assert_int_equal(h.buckets[1], 1);
	assert_int_equal(h.buckets[NET_BUCKETS], 1);
	assert_int_equal(h.sum_us, 30001002);
}

static void every_reason_of_a_policy_has_a_number_of_its_own(void **state)
{
	bool seen[NET_REASON_NUM] = { false };

	assert_int_equal(net_reason_of("no such reason"), NET_REASON_OTHER);
	assert_int_equal(net_reason_of(NULL), NET_REASON_NONE);
	for (int i = 0; i < POLICY_REASON_NUM; i++) {
		enum net_reason recorded = policy_reason_recorded((enum policy_reason)i, false);

		assert_false(seen[recorded]);
		seen[recorded] = true;
		assert_int_equal(policy_reason_recorded((enum policy_reason)i, true), NET_REASON_NONE);
	}
	assert_false(seen[NET_REASON_NONE] || seen[NET_REASON_OTHER]);
	for (enum net_reason i = 0; i < NET_REASON_NUM; i++)
		assert_int_equal(net_reason_of(net_reason_text(i)), i);
}

static void counts_are_read_as_they_were_written(void **state)
{
	struct net_counts c = { .bytes_out = 1, .bytes_in = GW_COUNT_MAX }, got = { 0 };
	_cleanup_json_ cJSON *obj = NULL;
	struct ak_err err;

	c.verdicts[0][NET_REASON_DEFAULT] = 7;
	c.verdicts[1][NET_REASON_NONE] = 8;
	net_histogram_add(&c.timings[NET_TIMING_DIAL], 900);
	obj = net_counts_to_json(&c);
	assert_int_equal(net_counts_from_json(obj, &got, &err), 0);
	assert_memory_equal(&got, &c, sizeof(c));
}

static void what_are_no_counts_is_refused_with_its_place(void **state)
{
	static const struct {
		const char *json, *place;
	} rows[] = {
		{ "{}", "bytes" },
		{ "{\"deny\":[]}", "deny" },
		{ "{\"deny\":{\"x\":-1}}", "deny" },
		{ "{\"allow\":{\"x\":1e300}}", "allow" },
		{ "{\"bytes\":[1,2,3]}", "bytes" },
		{ "{\"bytes\":[1,2],\"flows\":[1]}", "flows" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		_cleanup_json_ cJSON *obj = cJSON_Parse(rows[i].json);
		struct net_counts got = { .bytes_in = 42 };
		struct ak_err err = { "" };

		assert_int_equal(net_counts_from_json(obj, &got, &err), -EINVAL);
		assert_non_null(strstr(err.text, rows[i].place));
		assert_int_equal(got.bytes_in, 42);
	}
}

static void sums_stop_where_numbers_do(void **state)
{
	struct net_counts a = { .bytes_in = GW_COUNT_MAX - 1, .bytes_out = 3 }, b = { .bytes_in = 5, .bytes_out = 2 };

	net_counts_max(&b, &a);
	assert_int_equal(b.bytes_out, 3);
	net_counts_add(&a, &b);
	assert_int_equal(a.bytes_in, GW_COUNT_MAX);
	assert_int_equal(a.bytes_out, 6);
	assert_true(net_counts_ok(&a));
	a.timings[0].sum_us = GW_COUNT_MAX + 1;
	assert_false(net_counts_ok(&a));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_time_is_in_the_first_bucket_that_holds_it),
		cmocka_unit_test(every_reason_of_a_policy_has_a_number_of_its_own),
		cmocka_unit_test(counts_are_read_as_they_were_written),
		cmocka_unit_test(what_are_no_counts_is_refused_with_its_place),
		cmocka_unit_test(sums_stop_where_numbers_do),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
