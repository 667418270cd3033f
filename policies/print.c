/*
 * Labels, reasons, and the canonical JSON of a compiled policy. policy_parse reads the JSON back as an equal policy, including
 * the source policy of each rule.
 */
#include "gateway/base/cleanup.h"
#include "policies/internal.h"

#include <assert.h>
#include <string.h>

static const enum net_reason reasons[] = {
	[POLICY_REASON_RULE] = NET_REASON_RULE,
	[POLICY_REASON_DEFAULT] = NET_REASON_DEFAULT,
	[POLICY_REASON_METADATA] = NET_REASON_METADATA,
	[POLICY_REASON_LOOPBACK] = NET_REASON_LOOPBACK,
	[POLICY_REASON_LINK_LOCAL] = NET_REASON_LINK_LOCAL,
	[POLICY_REASON_PRIVATE] = NET_REASON_PRIVATE,
	[POLICY_REASON_MULTICAST] = NET_REASON_MULTICAST,
	[POLICY_REASON_RESERVED] = NET_REASON_RESERVED,
	[POLICY_REASON_INTERNAL] = NET_REASON_INTERNAL,
	[POLICY_REASON_RESOLVER] = NET_REASON_RESOLVER,
	[POLICY_REASON_ADDRESS] = NET_REASON_ADDRESS,
	[POLICY_REASON_PORT] = NET_REASON_PORT,
	[POLICY_REASON_UNREAD] = NET_REASON_UNREAD,
};
static_assert(ARRAY_SIZE(reasons) == POLICY_REASON_NUM, "what is recorded for each reason");

enum net_reason policy_reason_recorded(enum policy_reason reason, bool allow)
{
	return allow ? NET_REASON_NONE : reasons[reason];
}

const char *policy_reason_text(enum policy_reason reason, bool allow)
{
	return net_reason_text(policy_reason_recorded(reason, allow));
}

const char *policy_rule_label(const struct policy_decision *d, char *buf, size_t size)
{
	if (d->rule && d->rule[0])
		snprintf(buf, size, "%s: %s", d->policy, d->rule);
	else
		snprintf(buf, size, "%s", d->policy ? d->policy : "default");
	return buf;
}

void policy_print_text(const char *text, struct strbuf *out)
{
	strbuf_putc(out, '"');
	for (; *text; text++) {
		if (*text == '"' || *text == '\\')
			strbuf_putc(out, '\\');
		strbuf_putc(out, *text);
	}
	strbuf_putc(out, '"');
}

static void put_rule(struct strbuf *out, const char *text, const char *from, bool *first)
{
	strbuf_puts(out, *first ? "\n    {\"rule\": " : ",\n    {\"rule\": ");
	strbuf_json(out, text);
	strbuf_puts(out, ", \"from\": ");
	strbuf_json(out, from);
	strbuf_putc(out, '}');
	*first = false;
}

static void put_hosts(const struct policy *p, struct strbuf *out, const char *key, bool allow)
{
	bool first = true;

	strbuf_printf(out, "  \"%s\": [", key);
	for (size_t i = 0; i < p->n_rules; i++) {
		if (p->rules[i].allow == allow)
			put_rule(out, p->rules[i].text, p->rules[i].from, &first);
	}
	strbuf_puts(out, first ? "],\n" : "\n  ],\n");
}

static void put_cidrs(const struct policy *p, struct strbuf *out, const char *key, bool allow)
{
	bool first = true;

	strbuf_printf(out, "  \"%s\": [", key);
	for (size_t i = 0; i < p->n_cidrs; i++) {
		if (p->cidrs[i].allow == allow)
			put_rule(out, p->cidrs[i].text, p->cidrs[i].from, &first);
	}
	strbuf_puts(out, first ? "],\n" : "\n  ],\n");
}

static void put_limits(const struct policy *p, bool defaults, struct strbuf *out)
{
	const char *gap = "";

	strbuf_puts(out, "  \"limits\": {");
	if (defaults || p->has_connections) {
		strbuf_printf(out, "\"connections\": %u", p->limits.connections);
		gap = ", ";
	}
	if (defaults || p->has_dns_qps) {
		strbuf_printf(out, "%s\"dns_qps\": %u", gap, p->limits.dns_qps);
		gap = ", ";
	}
	if (defaults || p->has_egress)
		strbuf_printf(out, "%s\"egress_bytes\": \"%llu\"", gap, (unsigned long long)p->limits.egress_bytes);
	strbuf_puts(out, "}\n}\n");
}

void policy_print_all(const struct policy *p, bool defaults, struct strbuf *out)
{
	strbuf_puts(out, "{\n  \"version\": 1,\n  \"compiled\": true,\n  \"name\": ");
	strbuf_json(out, p->name);
	strbuf_puts(out, ",\n  \"description\": ");
	policy_print_text(p->description, out);
	strbuf_printf(out, ",\n  \"default\": \"%s\",\n", p->default_allow ? "allow" : "deny");
	put_hosts(p, out, "allow", true);
	put_hosts(p, out, "deny", false);
	put_cidrs(p, out, "allow_cidr", true);
	put_cidrs(p, out, "deny_cidr", false);
	put_limits(p, defaults, out);
}

void policy_print(const struct policy *p, struct strbuf *out)
{
	policy_print_all(p, true, out);
}
