/* What /metrics makes of network records: times go into the histogram they belong to, and survive the way from worker to server. */
#include "gateway/http/http.h"

#include "gateway/base/cleanup.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define LINE(members) "{\"v\":1,\"time\":\"2026-01-02T12:00:00Z\",\"seq\":1," members ",\"count\":1}"

static void tally(struct http_tally *t, const char *line)
{
	http_tally_line(t, line, strlen(line));
}

static uint64_t total(const struct http_histogram *h)
{
	uint64_t sum = 0;

	for (size_t i = 0; i <= HTTP_BUCKETS; i++)
		sum += h->buckets[i];
	return sum;
}

/* As the server gets them. */
static void hand_over(const struct http_tally *t, struct http_stats *st)
{
	_cleanup_strbuf_ struct strbuf text = { 0 };
	_cleanup_json_ cJSON *json = NULL;

	http_tally_put(&text, t);
	json = cJSON_ParseWithLength(text.data, text.len);
	assert_non_null(json);
	http_stats_add(st, AK_MODE_CODEX, json);
}

static void each_time_is_in_its_own_histogram(void **state)
{
	struct http_tally t = { 0 };
	struct http_stats st = { 0 };

	tally(&t, LINE("\"event\":\"dns\",\"verdict\":\"allow\",\"latency_us\":700"));
	tally(&t, LINE("\"event\":\"dns\",\"verdict\":\"deny\",\"reason\":\"no\",\"latency_us\":40"));
	tally(&t,
		LINE("\"event\":\"flow\",\"verdict\":\"allow\",\"bytes_out\":1,\"bytes_in\":2,\"duration_ms\":90,\"latency_us\":3000"));
	hand_over(&t, &st);
	hand_over(&t, &st);
	assert_int_equal(total(&st.timings[HTTP_TIMING_DNS]), 4);
	assert_int_equal(st.timings[HTTP_TIMING_DNS].buckets[0], 2);
	assert_int_equal(st.timings[HTTP_TIMING_DNS].buckets[1], 2);
	assert_int_equal(st.timings[HTTP_TIMING_DNS].sum_us, 1480);
	assert_int_equal(total(&st.timings[HTTP_TIMING_DIAL]), 2);
	assert_int_equal(st.timings[HTTP_TIMING_DIAL].sum_us, 6000);
	assert_int_equal(total(&st.timings[HTTP_TIMING_FLOWS]), 2);
	assert_int_equal(st.timings[HTTP_TIMING_FLOWS].sum_us, 180000);
	http_stats_done(&st);
}

static void what_has_no_time_is_in_none(void **state)
{
	struct http_tally t = { 0 };

	tally(&t, LINE("\"event\":\"dns\",\"verdict\":\"allow\",\"detail\":\"from the cache\""));
	tally(&t, LINE("\"event\":\"flow\",\"verdict\":\"deny\""));
	tally(&t, LINE("\"event\":\"packet\",\"verdict\":\"deny\",\"latency_us\":5"));
	tally(&t, LINE("\"event\":\"dns\",\"latency_us\":\"5\""));
	tally(&t, LINE("\"event\":\"dns\",\"latency_us\":-5"));
	tally(&t, LINE("\"event\":\"dns\",\"latency_us\":1e300"));
	for (size_t i = 0; i < HTTP_TIMING_NUM; i++)
		assert_int_equal(total(&t.timings[i]), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_time_is_in_its_own_histogram),
		cmocka_unit_test(what_has_no_time_is_in_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
