#include "gateway/relay/learned.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static int make(void **state)
{
	return learned_new((struct learned **)state);
}

static int drop(void **state)
{
	learned_free(*state);
	return 0;
}

static void learn(struct learned *l, const char *name, uint32_t addr, uint64_t now, uint64_t life)
{
	struct ak_addr a = ak_addr_v4(addr);
	struct learned_name *n = learned_name_new(name, NULL, 0, &a, 1, 60);

	assert_non_null(n);
	assert_int_equal(learned_add(l, n, now, life), 0);
	learned_name_unref(n);
}

static bool knows(struct learned *l, const char *name, uint32_t addr, uint64_t now)
{
	struct ak_addr a = ak_addr_v4(addr);

	return learned_find(l, &a, name, now) != NULL;
}

static void binding_joins_one_name_and_its_addresses(void **state)
{
	const struct ak_addr addrs[] = { ak_addr_v4(0x0b000001), ak_addr_v4(0x0b000002) };
	const char *cname[] = { "edge.test", "node.test" };
	struct learned_name *n = learned_name_new("a.test", cname, 2, addrs, 2, 30), *found;

	assert_int_equal(learned_add(*state, n, 0, 1000), 0);
	learned_name_unref(n);
	found = learned_find(*state, &addrs[1], "a.test", 10);
	assert_non_null(found);
	assert_string_equal(found->cname[1], "node.test");
	assert_int_equal(found->n_addrs, 2);
	assert_int_equal(learned_count(*state), 2);
	assert_null(learned_find(*state, &addrs[0], "b.test", 10));
	assert_false(knows(*state, "a.test", 0x0b000003, 10));
}

static void binding_ends_with_its_life(void **state)
{
	learn(*state, "a.test", 1, 100, 50);
	assert_true(knows(*state, "a.test", 1, 149));
	assert_false(knows(*state, "a.test", 1, 150));
	learn(*state, "b.test", 2, 200, 50);
	assert_int_equal(learned_count(*state), 1);
}

static void learning_again_extends_and_never_shortens(void **state)
{
	learn(*state, "a.test", 1, 0, 100);
	learn(*state, "a.test", 1, 50, 100);
	assert_true(knows(*state, "a.test", 1, 149));
	learn(*state, "a.test", 1, 60, 10);
	assert_true(knows(*state, "a.test", 1, 149));
	assert_false(knows(*state, "a.test", 1, 150));
	assert_int_equal(learned_count(*state), 1);
}

static void endless_life_is_cut(void **state)
{
	learn(*state, "a.test", 1, 1000, UINT64_MAX);
	assert_true(knows(*state, "a.test", 1, 2000));
	learn(*state, "b.test", 1, UINT64_MAX - 1, 5);
	assert_int_equal(learned_count(*state), 1);
}

static void names_come_newest_first(void **state)
{
	struct ak_addr a = ak_addr_v4(1);
	struct learned_name *names[4];

	learn(*state, "a.test", 1, 0, 100);
	learn(*state, "b.test", 1, 1, 10);
	learn(*state, "c.test", 1, 2, 100);
	learn(*state, "a.test", 1, 3, 100);
	assert_int_equal(learned_names(*state, &a, 5, names, 4), 3);
	assert_string_equal(names[0]->name, "a.test");
	assert_string_equal(names[1]->name, "c.test");
	assert_int_equal(learned_names(*state, &a, 50, names, 4), 2);
	assert_int_equal(learned_names(*state, &a, 50, names, 1), 1);
}

static void held_name_outlives_the_table(void **state)
{
	struct ak_addr a = ak_addr_v4(1);
	struct learned_name *held;

	learn(*state, "a.test", 1, 0, 10);
	held = learned_name_ref(learned_find(*state, &a, "a.test", 1));
	learn(*state, "b.test", 2, 100, 10);
	assert_string_equal(held->name, "a.test");
	learned_name_unref(held);
}

static void past_the_cap_the_first_to_expire_goes(void **state)
{
	for (uint32_t i = 0; i < LEARNED_CAP; i++)
		learn(*state, "a.test", i + 1, 0, 1000 + (i * 7919) % 5000);
	assert_int_equal(learned_count(*state), LEARNED_CAP);
	learn(*state, "b.test", 0x0b000001, 0, 100000);
	assert_int_equal(learned_count(*state), LEARNED_CAP);
	assert_false(knows(*state, "a.test", 1, 0)); /* life 1000, the shortest */
	assert_true(knows(*state, "b.test", 0x0b000001, 0));
	for (uint32_t i = 0; i < 100000; i++)
		learn(*state, "c.test", 0x0c000000 + i, 1, 200000);
	assert_int_equal(learned_count(*state), LEARNED_CAP);
	assert_true(knows(*state, "c.test", 0x0c000000 + 99999, 1));
}

struct evicted {
	struct learned *l;
	unsigned n;
	uint32_t last; /* the address, in host order */
};

static void on_evict(void *ctx, const struct learned_name *n, const struct ak_addr *a)
{
	struct evicted *e = ctx;

	e->n++;
	e->last = (uint32_t)a->bytes[0] << 24 | (uint32_t)a->bytes[1] << 16 | (uint32_t)a->bytes[2] << 8 | a->bytes[3];
	assert_true(knows(e->l, n->name, e->last, 0)); /* still there while it is told */
}

static void what_goes_before_its_time_is_told(void **state)
{
	struct evicted e = { .l = *state };

	learned_on_evict(*state, on_evict, &e);
	for (uint32_t i = 0; i < LEARNED_CAP; i++)
		learn(*state, "a.test", i + 1, 0, 1000 + i);
	assert_int_equal(e.n, 0);
	learn(*state, "b.test", 0x0b000001, 0, 100000);
	assert_int_equal(e.n, 1);
	assert_int_equal(e.last, 1);
	learn(*state, "b.test", 0x0b000002, 200000, 1000); /* the others expired: no one is evicted */
	assert_int_equal(e.n, 1);
}

static void one_address_has_a_bounded_number_of_names(void **state)
{
	struct ak_addr a = ak_addr_v4(1);
	struct learned_name *names[128];
	char name[32];

	for (int i = 0; i < 200; i++) {
		snprintf(name, sizeof(name), "n%d.test", i);
		learn(*state, name, 1, 0, 1000 + (uint64_t)i);
	}
	assert_int_equal(learned_names(*state, &a, 1, names, 128), 64);
	assert_string_equal(names[0]->name, "n199.test");
	assert_false(knows(*state, "n0.test", 1, 1));
}

static bool is_a(void *ctx, const struct learned_name *n, const struct ak_addr *a)
{
	++*(int *)ctx;
	return strcmp(n->name, "a.test") == 0;
}

static void sweep_removes_what_it_is_told_to(void **state)
{
	int calls = 0;

	for (uint32_t i = 1; i <= 300; i++) {
		learn(*state, "a.test", i, 0, 1000 - i);
		learn(*state, "b.test", i, 0, 1000 + i);
	}
	learned_sweep(*state, 1, is_a, &calls);
	assert_int_equal(calls, 600);
	assert_int_equal(learned_count(*state), 300);
	assert_false(knows(*state, "a.test", 7, 1));
	assert_true(knows(*state, "b.test", 7, 1));
}

#define T(fn) cmocka_unit_test_setup_teardown(fn, make, drop)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(binding_joins_one_name_and_its_addresses),
		T(binding_ends_with_its_life),
		T(learning_again_extends_and_never_shortens),
		T(endless_life_is_cut),
		T(names_come_newest_first),
		T(held_name_outlives_the_table),
		T(past_the_cap_the_first_to_expire_goes),
		T(what_goes_before_its_time_is_told),
		T(one_address_has_a_bounded_number_of_names),
		T(sweep_removes_what_it_is_told_to),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
