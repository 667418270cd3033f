/* The self-test's catalogue is whole, and its own DNS agrees with itself. */
#include "gateway/selftest/selftest.h"

#include "gateway/base/cleanup.h"
#include "policies/policy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static bool row_exists(const char *id)
{
	for (size_t i = 0; st_rows[i].id; i++) {
		if (!strcmp(st_rows[i].id, id))
			return true;
	}
	return false;
}

static void every_vector_has_a_row_and_every_row_a_vector(void **state)
{
	(void)state;
	for (size_t i = 0; st_vectors[i].row; i++) {
		assert_true(row_exists(st_vectors[i].row));
		assert_true(st_vectors[i].runs != 0 && st_vectors[i].want != NULL);
		assert_true(st_vectors[i].kind != ST_CALL || st_vectors[i].fn);
	}
	for (size_t i = 0; st_rows[i].id; i++) {
		size_t n = 0;

		for (size_t k = 0; st_vectors[k].row; k++)
			n += !strcmp(st_vectors[k].row, st_rows[i].id);
		assert_true(n > 0);
		assert_true(i < SELFTEST_ROWS_MAX);
	}
}

static void its_policies_load(void **state)
{
	static const struct policy_dirs none;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(st_policies); i++) {
		_cleanup_(policy_unrefp) struct policy *p = NULL;
		struct ak_err err;

		if (st_policies[i].text)
			assert_int_equal(policy_parse(st_policies[i].text, strlen(st_policies[i].text), "selftest", &none, NULL,
						 0, &p, &err),
				0);
	}
}

static void names_survive_the_wire(void **state)
{
	static const char *const names[] = { "ok.test", "a\\000b.wild.test", "ok\\046test", "\\255\\254.x", "-ok.test" };
	char text[256];
	uint8_t wire[256];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		size_t len = st_name_wire(names[i], wire), at = 0;

		assert_true(len > 0 && st_name_text(wire, len, &at, text, sizeof(text)));
		assert_string_equal(text, names[i]);
		assert_int_equal(at, len);
	}
}

static void ask(const char *name, uint16_t qtype, bool loaded, struct st_outcome *ret, struct st_event *event)
{
	uint8_t query[ST_DNS_MAX], reply[ST_DNS_MAX];
	size_t n = st_dns_query(query, 7, name, qtype, loaded);

	memset(event, 0, sizeof(*event));
	st_dns_read(reply, st_zone_answer(query, n, reply, sizeof(reply), event), query, n, ret);
}

static void a_question_is_answered_and_told(void **state)
{
	struct st_outcome o;
	struct st_event e;

	(void)state;
	ask("ok.test", 1, false, &o, &e);
	assert_string_equal(o.word, "answer");
	assert_string_equal(o.detail, "11.1.0.5");
	assert_string_equal(e.name, "ok.test");
	assert_false(e.odd);
	ask("nothing.here", 1, false, &o, &e);
	assert_string_equal(o.word, "nxdomain");
	ask("zero.c3.test", 1, false, &o, &e);
	assert_string_equal(o.word, "unbounded life");
}

static void more_than_a_plain_question_is_odd(void **state)
{
	struct st_outcome o;
	struct st_event e;

	(void)state;
	ask("ok.test", 1, true, &o, &e);
	assert_true(e.odd);
	ask("oK.test", 1, false, &o, &e);
	assert_false(e.odd); /* the gateway's own random case */
	assert_string_equal(e.name, "ok.test");
	assert_string_equal(o.word, "answer");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_vector_has_a_row_and_every_row_a_vector),
		cmocka_unit_test(its_policies_load),
		cmocka_unit_test(names_survive_the_wire),
		cmocka_unit_test(a_question_is_answered_and_told),
		cmocka_unit_test(more_than_a_plain_question_is_odd),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
