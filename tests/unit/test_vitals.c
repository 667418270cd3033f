/* The daemon's life: what is counted, how long its successors wait, whose wish wins, and a record that cannot be read. */
#include "gateway/store/vitals.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "tests/unit/state_world.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

static struct vitals now(const struct world *w)
{
	struct vitals l;

	vitals_read(&w->paths, &l);
	return l;
}

static void put(const struct world *w, const char *text)
{
	_cleanup_close_ int dir = open(w->paths.runtime, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	assert_true(dir >= 0 && ak_replace_file(dir, "daemon.json", text, strlen(text), false) == 0);
}

static void each_failure_in_a_row_waits_twice_as_long_up_to_a_bound(void **state)
{
	(void)state;
	assert_int_equal(vitals_delay_ms(0), 0);
	assert_int_equal(vitals_delay_ms(1), 0);
	assert_int_equal(vitals_delay_ms(2), VITALS_RETRY_FIRST_MS);
	for (unsigned n = 3; n < 8; n++)
		assert_int_equal(vitals_delay_ms(n), 2 * vitals_delay_ms(n - 1));
	assert_int_equal(vitals_delay_ms(9), VITALS_RETRY_MAX_MS);
	assert_int_equal(vitals_delay_ms(1000000), VITALS_RETRY_MAX_MS);
}

static void a_death_is_counted_and_the_next_start_keeps_the_count(void **state)
{
	struct world *w = *state;
	struct ak_err err;
	struct vitals l;

	for (unsigned n = 1; n < 4; n++) {
		assert_int_equal(vitals_begin(&w->paths, n > 1, 7, &err), 0);
		assert_true(now(w).state == VITALS_SERVES && now(w).failures == n - 1 && now(w).log_bytes == 7);
		vitals_end(&w->paths, getpid(), "by a \"signal\"\n", &l);
		assert_true(l.state == VITALS_ENDED && l.failures == n);
		assert_true(now(w).state == VITALS_ENDED && now(w).failures == n);
		assert_string_equal(now(w).reason, "by a \"signal\"\n");
	}
	assert_true(vitals_wait_ms(&l, ak_now_ms()) > 0 && vitals_wait_ms(&l, ak_now_ms()) <= vitals_delay_ms(3));
}

static void one_that_fails_before_its_start_is_counted_and_another_ones_life_is_left_alone(void **state)
{
	struct world *w = *state;
	struct ak_err err;
	struct vitals l;

	assert_int_equal(vitals_begin(&w->paths, false, 0, &err), 0);
	vitals_end(&w->paths, getpid() + 1, "x", &l);
	assert_true(l.state == VITALS_SERVES && now(w).state == VITALS_SERVES && now(w).failures == 0);
	for (unsigned n = 1; n < 4; n++) {
		vitals_end(&w->paths, n > 1 ? getpid() + 1 : getpid(), "x", &l);
		assert_true(l.state == VITALS_ENDED && l.failures == n);
	}
}

static void one_that_served_for_long_begins_a_new_row(void **state)
{
	struct world *w = *state;
	struct ak_err err;
	struct vitals l;
	char text[160];

	assert_int_equal(vitals_begin(&w->paths, false, 0, &err), 0);
	snprintf(text, sizeof(text), "{\"state\":\"serves\",\"failures\":5,\"began_ms\":%llu}",
		(unsigned long long)(ak_now_ms() > VITALS_STEADY_MS ? ak_now_ms() - VITALS_STEADY_MS : 0));
	put(w, text);
	vitals_end(&w->paths, now(w).pid, "x", &l);
	assert_int_equal(l.failures, 1);
	assert_int_equal(vitals_wait_ms(&l, ak_now_ms()), 0);
	/* Times that lie ahead are of before the machine was started. */
	put(w, "{\"state\":\"serves\",\"failures\":5,\"began_ms\":4503599627370495}");
	vitals_end(&w->paths, now(w).pid, "x", &l);
	assert_int_equal(l.failures, 1);
	put(w, "{\"state\":\"ended\",\"failures\":5,\"retry_ms\":4503599627370495}");
	l = now(w);
	assert_int_equal(vitals_wait_ms(&l, ak_now_ms()), 0);
}

static void a_users_stop_wins_over_healing_and_a_users_start_over_that(void **state)
{
	struct world *w = *state;
	struct ak_err err;
	struct vitals l;

	assert_int_equal(vitals_begin(&w->paths, false, 0, &err), 0);
	assert_true(vitals_stop(&w->paths));
	assert_false(vitals_stop(&w->paths));
	assert_int_equal(vitals_begin(&w->paths, true, 0, &err), -ECANCELED);
	vitals_end(&w->paths, now(w).pid, "x", &l);
	assert_true(l.state == VITALS_STOPPED && l.failures == 0);
	assert_int_equal(vitals_begin(&w->paths, false, 0, &err), 0);
	assert_int_equal(now(w).state, VITALS_SERVES);
}

static void a_record_that_cannot_be_read_counts_as_none(void **state)
{
	static const char *const bad[] = { "", "{", "[]", "{\"state\":7}", "{\"state\":\"stopped\",\"failures\":-1}",
		"{\"state\":\"stopped\",\"began_ms\":\"x\"}", "{\"state\":\"nonsense\"}" };
	struct world *w = *state;
	struct ak_err err;
	struct vitals l;

	assert_int_equal(now(w).state, VITALS_UNKNOWN);
	assert_int_equal(vitals_begin(&w->paths, false, 0, &err), 0);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		put(w, bad[i]);
		assert_int_equal(now(w).state, VITALS_UNKNOWN);
		vitals_end(&w->paths, now(w).pid, "x", &l);
		assert_true(l.state == VITALS_ENDED && l.failures == 1);
	}
}

static void one_has_the_lock(void **state)
{
	struct world *w = *state;
	struct ak_err err;
	int first;

	assert_int_equal(vitals_lock(&w->paths), -ENOENT);
	assert_int_equal(vitals_begin(&w->paths, false, 0, &err), 0);
	first = vitals_lock(&w->paths);
	assert_true(first >= 0);
	assert_int_equal(vitals_lock(&w->paths), -EWOULDBLOCK);
	close(first);
	first = vitals_lock(&w->paths);
	assert_true(first >= 0);
	close(first);
}

static void it_is_told_in_one_line(void **state)
{
	struct vitals l = {
		.state = VITALS_ENDED, .failures = 1, .retry_ms = 5000, .reason = "by signal 11 (Segmentation fault)"
	};
	struct ak_err told;

	(void)state;
	vitals_tell(&l, 5000, &told);
	assert_string_equal(told.text, "it ended by signal 11 (Segmentation fault)");
	l.failures = 3;
	vitals_tell(&l, 3500, &told);
	assert_string_equal(
		told.text, "it ended 3 times in a row, the last time by signal 11 (Segmentation fault); next attempt in 2 s");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_failure_in_a_row_waits_twice_as_long_up_to_a_bound),
		cmocka_unit_test_setup_teardown(a_death_is_counted_and_the_next_start_keeps_the_count, setup, teardown),
		cmocka_unit_test_setup_teardown(
			one_that_fails_before_its_start_is_counted_and_another_ones_life_is_left_alone, setup, teardown),
		cmocka_unit_test_setup_teardown(one_that_served_for_long_begins_a_new_row, setup, teardown),
		cmocka_unit_test_setup_teardown(a_users_stop_wins_over_healing_and_a_users_start_over_that, setup, teardown),
		cmocka_unit_test_setup_teardown(a_record_that_cannot_be_read_counts_as_none, setup, teardown),
		cmocka_unit_test_setup_teardown(one_has_the_lock, setup, teardown),
		cmocka_unit_test(it_is_told_in_one_line),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
