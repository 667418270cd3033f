/* The matcher against tests/unit/vectors/match.txt, and what a table of vectors cannot say. */
#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "policies/policy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <fcntl.h>
#include <cmocka.h>

static struct policy *must_parse(const char *json)
{
	struct policy *p = NULL;
	struct ak_err err;

	if (policy_parse(json, strlen(json), "t.json", NULL, NULL, 0, &p, &err) < 0)
		fail_msg("%s: %s", json, err.text);
	return p;
}

/* ---- reasons ---- */

static void a_name_that_is_allowed_elsewhere_is_denied_for_its_port(void **state)
{
	_cleanup_(policy_unrefp) struct policy *p =
		must_parse("{\"version\":1,\"allow\":[\"a.test:443\",\"b.test\"],\"deny\":[\"b.test:80\"]}");

	assert_int_equal(policy_judge_name(p, "a.test", POLICY_TCP, 80).reason, POLICY_REASON_PORT);
	assert_int_equal(policy_judge_name(p, "a.test", POLICY_UDP, 443).reason, POLICY_REASON_PORT);
	assert_int_equal(policy_judge_name(p, "b.test", POLICY_TCP, 80).reason, POLICY_REASON_RULE);
	assert_int_equal(policy_judge_name(p, "c.test", POLICY_TCP, 80).reason, POLICY_REASON_DEFAULT);
	assert_string_equal(policy_reason_text(POLICY_REASON_PORT, false), "not allowed on this port");
}

/* ---- vectors ---- */

static struct policy_decision judge_target(const struct policy *p, const char *text)
{
	struct policy_target t;
	struct ak_err err;

	if (policy_target_parse(text, &t, &err) < 0)
		fail_msg("target %s", err.text);
	if (t.addr.family)
		return policy_judge_addr(p, &t.addr, t.proto, t.port);
	return policy_judge_name(p, t.host, t.proto, t.port);
}

static void check_line(const struct policy *p, unsigned line, const char *text)
{
	char verdict[8], target[300], want[400], got[400];
	struct policy_decision d;
	bool dns = !strncmp(text, "dns ", 4);

	if (sscanf(text + (dns ? 4 : 0), "%7s %299s %399[^\n]", verdict, target, want) != 3)
		fail_msg("line %u: cannot read '%s'", line, text);
	d = dns ? policy_judge_dns(p, target) : judge_target(p, target);
	policy_rule_label(&d, got, sizeof(got));
	if (d.allow != !strcmp(verdict, "allow") || strcmp(got, want))
		fail_msg("line %u: %s: want %s by '%s', got %s by '%s'", line, target, verdict, want, d.allow ? "allow" : "deny",
			got);
	assert_true(d.allow ? policy_reason_text(d.reason, true)[0] == '\0' : policy_reason_text(d.reason, false)[0] != '\0');
}

/* Each policy is judged twice: as written, and as printed and read back. */
static void run_vectors(bool reread)
{
	_cleanup_(policy_unrefp) struct policy *p = NULL;
	_cleanup_fclose_ FILE *f = fopen(AK_SOURCE_DIR "/tests/unit/vectors/match.txt", "re");
	char text[2000];
	unsigned line = 0, checked = 0;

	assert_non_null(f);
	while (fgets(text, sizeof(text), f)) {
		line++;
		if (text[0] == '#' || text[0] == '\n')
			continue;
		if (strncmp(text, "policy ", 7)) {
			check_line(p, line, text);
			checked++;
			continue;
		}
		policy_unref(p);
		p = must_parse(text + 7);
		if (reread) {
			_cleanup_strbuf_ struct strbuf out = { 0 };
			struct policy *again;

			policy_print(p, &out);
			again = must_parse(out.data);
			policy_unref(p);
			p = again;
		}
	}
	assert_true(checked > 200);
}

static void vectors_hold(void **state)
{
	run_vectors(false);
}

static void vectors_hold_for_the_printed_form(void **state)
{
	run_vectors(true);
}

/* ---- ports ---- */

static void ports_of_a_name_are_those_that_judge_allows(void **state)
{
	_cleanup_(policy_unrefp) struct policy *p = must_parse(
		"{\"version\":1,\"allow\":[\"n.a.test\",\"n.a.test:22\",\"*.a.test:53/udp\",\"*.n.a.test:9\",\"host.agentkernel.internal:8080\"],"
		"\"deny\":[\"n.a.test:80\",\"*.n.a.test:53\"]}");
	struct policy_port ports[8];
	size_t n = policy_name_ports(p, "n.a.test", ports, 8);

	assert_int_equal(n, 3); /* tcp 443, tcp 22, udp 53 */
	for (size_t i = 0; i < n; i++)
		assert_true(policy_judge_name(p, "n.a.test", ports[i].proto, ports[i].port).allow);
	assert_int_equal(policy_name_ports(p, "n.a.test", ports, 1), 1);
	assert_int_equal(policy_name_ports(p, "x.n.a.test", ports, 8), 1);
	assert_int_equal(ports[0].port, 9);
	assert_int_equal(policy_name_ports(p, "b.example", ports, 8), 0);
	assert_int_equal(policy_name_ports(p, POLICY_HOST_NAME, ports, 8), 1);
	assert_int_equal(ports[0].port, 8080);
}

static void an_open_policy_opens_no_learned_ports_but_the_hosts(void **state)
{
	_cleanup_(policy_unrefp) struct policy *p =
		must_parse("{\"version\":1,\"default\":\"allow\",\"allow\":[\"a.test\",\"host.agentkernel.internal:8080\"]}");
	struct policy_port ports[8];

	assert_int_equal(policy_name_ports(p, "a.test", ports, 8), 0);
	assert_int_equal(policy_name_ports(p, POLICY_HOST_NAME, ports, 8), 1);
}

/* ---- ranges ---- */

static uint64_t rng_state = 88172645463325252ull;

static uint32_t rng(void)
{
	rng_state ^= rng_state << 13;
	rng_state ^= rng_state >> 7;
	rng_state ^= rng_state << 17;
	return (uint32_t)(rng_state >> 16);
}

/* Mostly near the edges of ranges, where mistakes live. */
static struct ak_addr random_addr(const struct policy_range *ranges, size_t n, int family)
{
	struct ak_addr a = { .family = (uint8_t)family };
	unsigned bytes = family == AF_INET ? 4 : 16;

	if (rng() % 4 == 0) {
		for (unsigned i = 0; i < bytes; i++)
			a.bytes[i] = (uint8_t)rng();
		return a;
	}
	a = rng() % 2 ? ranges[rng() % n].lo : ranges[rng() % n].hi;
	if (rng() % 3)
		return a;
	for (int i = (int)bytes - 1, add = rng() % 2 ? 1 : -1; i >= 0; i--) {
		a.bytes[i] = (uint8_t)(a.bytes[i] + add);
		if (a.bytes[i] != (add > 0 ? 0 : 0xff))
			break;
	}
	return a;
}

static enum policy_addr_class class_by_ranges(const struct policy_range *ranges, size_t n, const struct ak_addr *a)
{
	for (size_t i = 0; i < n; i++) {
		if (ak_addr_cmp(a, &ranges[i].lo) >= 0 && ak_addr_cmp(a, &ranges[i].hi) <= 0)
			return ranges[i].class;
	}
	return POLICY_ADDR_PLAIN;
}

static void check_ranges(const struct policy *p, int family)
{
	size_t n;
	const struct policy_range *ranges = policy_ranges(p, family, &n);

	assert_true(n > 0);
	for (size_t i = 0; i < n; i++) {
		assert_true(ak_addr_cmp(&ranges[i].lo, &ranges[i].hi) <= 0);
		assert_true(ranges[i].class != POLICY_ADDR_PLAIN);
		if (i)
			assert_true(ak_addr_cmp(&ranges[i - 1].hi, &ranges[i].lo) < 0);
	}
	for (int i = 0; i < 20000; i++) {
		struct ak_addr a = random_addr(ranges, n, family);

		assert_int_equal(policy_addr_class(p, &a, NULL), class_by_ranges(ranges, n, &a));
	}
}

static void ranges_are_disjoint_and_agree_with_the_class(void **state)
{
	static const char *const policies[] = {
		"{\"version\":1}",
		"{\"version\":1,\"default\":\"allow\",\"allow_cidr\":[\"0.0.0.0/0\",\"::/0\"]}",
		("{\"version\":1,\"allow_cidr\":[\"10.0.0.0/8\",\"11.0.0.0/9\",\"10.1.2.3\",\"2a00::/16\",\"64:ff9b::/96\"],"
		 "\"deny_cidr\":[\"10.1.0.0/16\",\"11.0.0.0/30\",\"255.0.0.0/8\",\"2a00:5::/64\",\"ffff::/16\",\"64:ff9b::b00:0/112\"]}"),
	};

	for (size_t i = 0; i < ARRAY_SIZE(policies); i++) {
		_cleanup_(policy_unrefp) struct policy *p = must_parse(policies[i]);

		check_ranges(p, AF_INET);
		check_ranges(p, AF_INET6);
	}
}

/* A slow second opinion: every rule looked at for every address. */
struct cidr {
	struct ak_addr net;
	unsigned len;
	bool allow;
};

static void random_cidrs_agree_with_a_plain_search(void **state)
{
	_cleanup_strbuf_ struct strbuf json = { 0 };
	_cleanup_(policy_unrefp) struct policy *p = NULL;
	struct cidr rules[200];
	char text[AK_ADDR_TEXT];

	strbuf_puts(&json, "{\"version\":1");
	for (int pass = 0; pass < 2; pass++) {
		strbuf_puts(&json, pass ? "],\"allow_cidr\":[" : ",\"deny_cidr\":[");
		for (int i = 0; i < 100; i++) {
			struct cidr *c = &rules[100 * pass + i];

			c->len = 12 + rng() % 18;
			c->net = ak_addr_v4((0x0b000000u | (rng() & 0x003fffff)) & (0xffffffffu << (32 - c->len)));
			c->allow = pass;
			strbuf_printf(&json, "%s\"%s/%u\"", i ? "," : "", ak_addr_print(&c->net, text), c->len);
		}
	}
	strbuf_puts(&json, "]}");
	p = must_parse(json.data);
	for (int k = 0; k < 20000; k++) {
		struct ak_addr a = ak_addr_v4(0x0b000000u | (rng() & 0x003fffff));
		const struct cidr *best = NULL;
		enum policy_addr_class want = POLICY_ADDR_PLAIN;

		for (size_t i = 0; i < ARRAY_SIZE(rules); i++) {
			if (ak_addr_in_prefix(&a, &rules[i].net, rules[i].len) && (!best || rules[i].len > best->len))
				best = &rules[i]; /* denies come first: an equal allow does not replace one */
		}
		if (best)
			want = best->allow ? POLICY_ADDR_OPEN : POLICY_ADDR_BLOCKED;
		assert_int_equal(policy_addr_class(p, &a, NULL), want);
	}
}

static void every_hidden_form_of_a_blocked_address_is_blocked(void **state)
{
	_cleanup_(policy_unrefp) struct policy *p = must_parse("{\"version\":1,\"default\":\"allow\"}");

	for (int k = 0; k < 20000; k++) {
		struct ak_addr v4 = ak_addr_v4(rng()), nat64 = { .family = AF_INET6, .bytes = { 0, 0x64, 0xff, 0x9b } };
		struct ak_addr mapped = { .family = AF_INET6, .bytes = { [10] = 0xff, [11] = 0xff } };
		struct policy_decision d4, d6;

		memcpy(nat64.bytes + 12, v4.bytes, 4);
		memcpy(mapped.bytes + 12, v4.bytes, 4);
		assert_int_equal(policy_addr_class(p, &nat64, &d6), policy_addr_class(p, &v4, &d4));
		assert_int_equal(d6.reason, d4.reason);
		assert_int_equal(policy_addr_class(p, &mapped, &d6), POLICY_ADDR_BLOCKED);
		if (!d4.allow)
			assert_int_equal(d6.reason, d4.reason);
	}
}

static struct ak_addr v6(const char *text)
{
	struct ak_addr a;

	assert_int_equal(ak_addr_parse(text, &a), 0);
	return a;
}

static enum policy_addr_class class_of(const struct policy *p, const char *text)
{
	struct ak_addr a = v6(text);

	return policy_addr_class(p, &a, NULL);
}

static void isatap_and_the_networks_nat64_are_judged_by_what_they_hide(void **state)
{
	static const char *const made[] = { "2a00:64:c000:aa::", "2a00:64:1c0:0:aa::", "2a00:64:102:c000:0:aa00::",
		"2a00:64:102:3c0:0:aa::", "2a00:64:102:304:c0:0:aa00:0", "2a00:64:102:304:0:5:c000:ab" };
	static const char *const hiding[] = { "2a00:64:a00:1::", "2a00:64:10a:0:1::", "2a00:64:102:a00:0:100::",
		"2a00:64:102:30a:0:1::", "2a00:64:102:304:a:0:100:0", "2a00:64:102:304:0:5:a00:1" };
	_cleanup_(policy_unrefp) struct policy *p =
		must_parse("{\"version\":1,\"default\":\"allow\",\"allow_cidr\":[\"2a00:1::/32\"]}");
	struct policy_prefix prefix;
	struct ak_addr a;

	assert_int_equal(class_of(p, "2a00:2::5efe:a00:1"), POLICY_ADDR_BLOCKED);
	assert_int_equal(class_of(p, "2a00:2::200:5efe:a9fe:a9fe"), POLICY_ADDR_BLOCKED);
	assert_int_equal(class_of(p, "2a00:1::5efe:a00:1"), POLICY_ADDR_BLOCKED); /* also where a rule opens the network */
	assert_int_equal(class_of(p, "2a00:2::5efe:b01:5"), POLICY_ADDR_PLAIN);
	for (size_t i = 0; i < ARRAY_SIZE(made); i++) {
		policy_nat64_set(NULL, 0);
		assert_int_equal(class_of(p, hiding[i]), POLICY_ADDR_PLAIN);
		policy_nat64_unknown();
		assert_int_equal(class_of(p, hiding[i]), POLICY_ADDR_BLOCKED);
		a = v6(made[i]);
		assert_true(policy_nat64_prefix(&a, &prefix));
		policy_nat64_set(&prefix, 1);
		assert_int_equal(class_of(p, hiding[i]), POLICY_ADDR_BLOCKED);
		assert_int_equal(class_of(p, "2a00:2::a00:1"), POLICY_ADDR_PLAIN);
	}
	policy_nat64_unknown();
	assert_int_equal(class_of(p, "2a00:1450:4001:82b::200e"), POLICY_ADDR_PLAIN); /* small numbers hide nothing */
	assert_int_equal(class_of(p, "2a00:2::1"), POLICY_ADDR_PLAIN);
	a = v6("2a00:64::1");
	assert_false(policy_nat64_prefix(&a, &prefix));
	policy_nat64_set(NULL, 0);
}

static void an_address_without_family_is_blocked(void **state)
{
	_cleanup_(policy_unrefp) struct policy *p = must_parse("{\"version\":1,\"default\":\"allow\"}");
	struct ak_addr none = { 0 };
	struct policy_decision d;

	assert_int_equal(policy_addr_class(p, &none, &d), POLICY_ADDR_BLOCKED);
	assert_false(d.allow);
	assert_false(policy_judge_addr(p, &none, POLICY_TCP, 80).allow);
}

/* ---- names against a slow second opinion ---- */

static const char *const labels[] = { "a", "b", "c", "test", "example" };

static void random_name(char *buf, size_t size, unsigned depth)
{
	int n = 0;

	for (unsigned i = 0; i < depth; i++)
		n += snprintf(buf + n, size - (size_t)n, "%s.", labels[rng() % 3]);
	snprintf(buf + n, size - (size_t)n, "%s.%s", labels[rng() % 3], labels[3 + rng() % 2]);
}

struct plain_rule {
	char host[64];
	unsigned port, proto; /* proto 2: any */
	bool wild, allow;
};

/* Higher is more specific; 0: no match. */
static unsigned score(const struct plain_rule *r, const char *name, unsigned proto, unsigned port)
{
	size_t n = strlen(name), m = strlen(r->host);
	bool ported = r->port != 0;
	unsigned s;

	if (r->wild ? n <= m + 1 || strcmp(name + n - m, r->host) || name[n - m - 1] != '.' : strcmp(name, r->host))
		return 0;
	if (ported ? r->port != port || (r->proto != 2 && r->proto != proto)
		   : r->allow && (proto != POLICY_TCP || (port != 80 && port != 443)))
		return 0;
	s = r->wild ? (unsigned)m : 1000;
	return s * 4 + ported * 2 + !r->allow;
}

static void random_names_agree_with_a_plain_search(void **state)
{
	static const unsigned ports[] = { 80, 443, 22, 53 };

	for (int round = 0; round < 40; round++) {
		_cleanup_strbuf_ struct strbuf json = { 0 };
		_cleanup_(policy_unrefp) struct policy *p = NULL;
		struct plain_rule rules[40];

		strbuf_puts(&json, "{\"version\":1");
		for (int i = 0; i < 40; i++) {
			struct plain_rule *r = &rules[i];

			random_name(r->host, sizeof(r->host), rng() % 3);
			r->wild = rng() % 2;
			r->allow = i >= 20;
			r->port = rng() % 2 ? ports[rng() % 4] : 0;
			r->proto = r->port ? rng() % 3 : 2;
			strbuf_puts(&json, i == 0 ? ",\"deny\":[" : i == 20 ? "],\"allow\":[" : ",");
			strbuf_printf(&json, "\"%s%s", r->wild ? "*." : "", r->host);
			if (r->port)
				strbuf_printf(&json, ":%u%s", r->port, r->proto == 2 ? "" : r->proto == 1 ? "/udp" : "/tcp");
			strbuf_putc(&json, '"');
			if (r->allow && r->proto == 2)
				r->proto = POLICY_TCP;
		}
		strbuf_puts(&json, "]}");
		p = must_parse(json.data);
		for (int k = 0; k < 2000; k++) {
			unsigned best = 0, proto = rng() % 2, port = ports[rng() % 4];
			char name[100];

			random_name(name, sizeof(name), rng() % 4);
			for (int i = 0; i < 40; i++) {
				unsigned s = score(&rules[i], name, proto, port);

				best = s > best ? s : best;
			}
			assert_int_equal(policy_judge_name(p, name, (enum policy_proto)proto, (uint16_t)port).allow,
				best && best % 2 == 0);
		}
	}
}

/* ---- one within another ---- */

static bool within(const char *a, const char *b)
{
	_cleanup_(policy_unrefp) struct policy *p = must_parse(a), *limit = must_parse(b);

	return policy_within(p, limit);
}

static void a_policy_is_within_another_only_where_no_rule_widens_it(void **state)
{
	static const char base[] =
		"{\"version\":1,\"allow\":[\"a.test\",\"*.b.test:443\"],\"deny\":[\"x.b.test\"],\"allow_cidr\":[\"10.0.0.0/8\"],"
		"\"deny_cidr\":[\"10.1.0.0/16\"],\"limits\":{\"connections\":10,\"egress_bytes\":\"100\"}}";
	static const struct {
		const char *json;
		bool within;
	} rows[] = {
		{ base, true },
		{ "{\"version\":1,\"deny\":[\"x.b.test\",\"y.b.test\"],\"allow\":[\"*.b.test:443\"],\"deny_cidr\":[\"10.1.0.0/16\",\"10.2.0.0/16\"],"
		  "\"limits\":{\"connections\":5,\"egress_bytes\":\"7\"}}",
			true },
		{ "{\"version\":1,\"deny\":[\"x.b.test\"],\"deny_cidr\":[\"10.1.0.0/16\"],\"limits\":{\"connections\":10}}",
			false }, /* egress */
		{ "{\"version\":1,\"deny\":[\"x.b.test\"],\"deny_cidr\":[\"10.1.0.0/16\"],\"limits\":{\"connections\":11,\"egress_bytes\":\"1\"}}",
			false },
		{ "{\"version\":1,\"deny_cidr\":[\"10.1.0.0/16\"],\"limits\":{\"connections\":1,\"egress_bytes\":\"1\"}}",
			false },
		{ "{\"version\":1,\"deny\":[\"x.b.test\"],\"limits\":{\"connections\":1,\"egress_bytes\":\"1\"}}", false },
		{ "{\"version\":1,\"default\":\"allow\",\"deny\":[\"x.b.test\"],\"deny_cidr\":[\"10.1.0.0/16\"],"
		  "\"limits\":{\"connections\":1,\"egress_bytes\":\"1\"}}",
			false },
		{ "{\"version\":1,\"allow\":[\"c.test\"],\"deny\":[\"x.b.test\"],\"deny_cidr\":[\"10.1.0.0/16\"],"
		  "\"limits\":{\"connections\":1,\"egress_bytes\":\"1\"}}",
			false },
		{ "{\"version\":1,\"allow_cidr\":[\"192.168.0.0/16\"],\"deny\":[\"x.b.test\"],\"deny_cidr\":[\"10.1.0.0/16\"],"
		  "\"limits\":{\"connections\":1,\"egress_bytes\":\"1\"}}",
			false },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		assert_int_equal(within(rows[i].json, base), rows[i].within);
	assert_true(within("{\"version\":1}", "{\"version\":1,\"default\":\"allow\"}"));
}

/* Each rule of a fixed set is in or out by a bit of MASK. */
static struct policy *policy_of_bits(uint32_t mask)
{
	static const char *const rules[] = { "a.test", "*.a.test", "b.a.test:443", "*.b.a.test", "b.a.test", "a.test:22" };
	_cleanup_strbuf_ struct strbuf json = { 0 };

	strbuf_printf(&json, "{\"version\":1,\"default\":\"%s\"", mask & 1 ? "allow" : "deny");
	for (unsigned kind = 0; kind < 2; kind++) {
		bool first = true;

		strbuf_printf(&json, ",\"%s\":[", kind ? "allow" : "deny");
		for (unsigned i = 0; i < ARRAY_SIZE(rules); i++) {
			if (mask >> (1 + 2 * i + kind) & 1) {
				strbuf_printf(&json, "%s\"%s\"", first ? "" : ",", rules[i]);
				first = false;
			}
		}
		strbuf_putc(&json, ']');
	}
	strbuf_putc(&json, '}');
	return must_parse(json.data);
}

static void what_is_within_reaches_nothing_more(void **state)
{
	static const char *const names[] = { "a.test", "b.a.test", "c.b.a.test", "x.a.test", "else.test" };
	static const uint16_t ports[] = { 80, 443, 22 };
	unsigned found = 0;

	(void)state;
	for (int round = 0; round < 20000; round++) {
		uint32_t bits = rng();
		_cleanup_(policy_unrefp) struct policy *limit = policy_of_bits(bits),
						       *p = policy_of_bits(bits ^ (rng() & rng() & rng()));

		if (!policy_within(p, limit))
			continue;
		found++;
		for (size_t i = 0; i < ARRAY_SIZE(names) * ARRAY_SIZE(ports); i++) {
			const char *name = names[i / ARRAY_SIZE(ports)];
			uint16_t port = ports[i % ARRAY_SIZE(ports)];

			if (policy_judge_name(p, name, POLICY_TCP, port).allow)
				assert_true(policy_judge_name(limit, name, POLICY_TCP, port).allow);
		}
	}
	assert_true(found > 500);
}

/* ---- size ---- */

static void a_hundred_thousand_rules_work(void **state)
{
	_cleanup_strbuf_ struct strbuf json = { 0 };
	_cleanup_(policy_unrefp) struct policy *p = NULL;
	char name[64];

	strbuf_puts(&json, "{\"version\":1,\"allow\":[");
	for (int i = 0; i < 100000; i++)
		strbuf_printf(&json, "%s\"%sh%d.zone%d.test:443\"", i ? "," : "", i % 3 ? "" : "*.", i, i % 1000);
	strbuf_puts(&json, "]}");
	p = must_parse(json.data);
	assert_int_equal(policy_rule_count(p), 100000);
	for (int i = 0; i < 100000; i += 7) {
		snprintf(name, sizeof(name), "%sh%d.zone%d.test", i % 3 ? "" : "x.", i, i % 1000);
		assert_true(policy_judge_name(p, name, POLICY_TCP, 443).allow);
		assert_false(policy_judge_name(p, name, POLICY_TCP, 80).allow);
		snprintf(name, sizeof(name), "n%d.zone%d.test", i, i % 1000);
		assert_false(policy_judge_name(p, name, POLICY_TCP, 443).allow);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_name_that_is_allowed_elsewhere_is_denied_for_its_port),
		cmocka_unit_test(vectors_hold),
		cmocka_unit_test(vectors_hold_for_the_printed_form),
		cmocka_unit_test(ports_of_a_name_are_those_that_judge_allows),
		cmocka_unit_test(an_open_policy_opens_no_learned_ports_but_the_hosts),
		cmocka_unit_test(ranges_are_disjoint_and_agree_with_the_class),
		cmocka_unit_test(random_cidrs_agree_with_a_plain_search),
		cmocka_unit_test(every_hidden_form_of_a_blocked_address_is_blocked),
		cmocka_unit_test(isatap_and_the_networks_nat64_are_judged_by_what_they_hide),
		cmocka_unit_test(an_address_without_family_is_blocked),
		cmocka_unit_test(random_names_agree_with_a_plain_search),
		cmocka_unit_test(a_policy_is_within_another_only_where_no_rule_widens_it),
		cmocka_unit_test(what_is_within_reaches_nothing_more),
		cmocka_unit_test(a_hundred_thousand_rules_work),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
