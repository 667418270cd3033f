/*
 * How long the matcher takes, at several sizes of policy: nanoseconds a look-up, printed as a table.
 * Exits 1 when a name costs a microsecond or more at 100,000 rules.
 */
#include "gateway/base/cleanup.h"
#include "policies/policy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define NAMES 4096
#define LOOKUPS 2000000u

static double now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static struct policy *build(unsigned n)
{
	_cleanup_strbuf_ struct strbuf json = { 0 };
	struct policy *p = NULL;
	struct ak_err err;

	strbuf_puts(&json, "{\"version\":1,\"allow\":[\"n.example.test\"");
	for (unsigned i = 0; i < n; i++)
		strbuf_printf(&json, ",\"%sh%u.zone%u.test:443\"", i % 3 ? "" : "*.", i, i % 1000);
	strbuf_puts(&json, "],\"allow_cidr\":[\"11.0.0.0/8\"");
	for (unsigned i = 0; i < n; i++)
		strbuf_printf(&json, ",\"12.%u.%u.0/%u\"", (i >> 8) & 255, i & 255, 24 + (i >> 16));
	strbuf_puts(&json, "]}");
	if (policy_parse(json.data, json.len, "bench", NULL, NULL, 0, &p, &err) < 0) {
		fprintf(stderr, "%s\n", err.text);
		exit(1);
	}
	return p;
}

/* Half of the names are in the policy, spread so that the caches do not help more than they would. */
static void make_names(char (*names)[64], unsigned n)
{
	for (unsigned i = 0; i < NAMES; i++) {
		unsigned k = (unsigned)(((uint64_t)i * 2654435761u) % (n ? n : 1));

		snprintf(names[i], sizeof(names[i]), "%s%c%u.zone%u.test", k % 3 ? "" : "x.", i % 2 ? 'h' : 'n', k, k % 1000);
	}
}

static unsigned sink;

static double time_names(const struct policy *p, char (*names)[64])
{
	double start = now_ns();

	for (unsigned i = 0; i < LOOKUPS; i++)
		sink += policy_judge_name(p, names[i % NAMES], POLICY_TCP, 443).allow;
	return (now_ns() - start) / LOOKUPS;
}

static double time_dns(const struct policy *p, char (*names)[64])
{
	double start = now_ns();

	for (unsigned i = 0; i < LOOKUPS; i++)
		sink += policy_judge_dns(p, names[i % NAMES]).allow;
	return (now_ns() - start) / LOOKUPS;
}

static double time_addrs(const struct policy *p)
{
	double start = now_ns();

	for (unsigned i = 0; i < LOOKUPS; i++) {
		struct ak_addr a = ak_addr_v4(0x0b000000u + (i * 2654435761u) % 0x02000000u);

		sink += (unsigned)policy_addr_class(p, &a, NULL);
	}
	return (now_ns() - start) / LOOKUPS;
}

int main(void)
{
	static const unsigned sizes[] = { 0, 100, 10000, 100000 };
	static char names[NAMES][64];
	double last = 0;

	printf("%10s %12s %12s %12s %12s\n", "RULES", "NAME ns", "DNS ns", "ADDRESS ns", "LOAD ms");
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		double start = now_ns();
		struct policy *p = build(sizes[i]);
		double load = (now_ns() - start) / 1e6;

		make_names(names, sizes[i]);
		last = time_names(p, names);
		printf("%10zu %12.0f %12.0f %12.0f %12.1f\n", policy_rule_count(p), last, time_dns(p, names), time_addrs(p),
			load);
		policy_unref(p);
	}
	return last < 1000 && sink ? 0 : 1;
}
