/*
 * The relay's verdicts. Pure functions of the sandbox's policy and its learned names, so that the result is the same when a
 * flow starts, when it gives a name, and when the policy changes.
 */
#include "gateway/relay/flow.h"

#include <string.h>

#define NAMES_MAX 64

bool relay_name_canon(const char *raw, char ret[static POLICY_NAME_MAX])
{
	size_t len = strlen(raw);

	if (len && raw[len - 1] == '.')
		len--;
	if (!len || len >= POLICY_NAME_MAX)
		return false;
	for (size_t i = 0; i < len; i++)
		ret[i] = raw[i] >= 'A' && raw[i] <= 'Z' ? (char)(raw[i] - 'A' + 'a') : raw[i];
	ret[len] = '\0';
	return policy_name_ok(ret);
}

bool relay_port_needs_name(const struct relay_target *t)
{
	return t->proto == POLICY_TCP && (t->port == 443 || t->port == 80);
}

bool relay_must_read(const struct relay_sandbox *sb, enum relay_route route, const struct relay_target *t)
{
#ifdef AK_SABOTAGE_NOUNREAD
	return route == RELAY_ROUTE_NAMED && relay_port_needs_name(t);
#endif
	if (t->proto != POLICY_TCP)
		return false;
	switch (route) {
	case RELAY_ROUTE_NAMED:
		return relay_port_needs_name(t);
	case RELAY_ROUTE_ANY:
	case RELAY_ROUTE_OPEN:
		return policy_denies_names(sb->policy, t->proto, t->port);
	case RELAY_ROUTE_HOST:
	case RELAY_ROUTE_PUBLISHED:
	case RELAY_ROUTE_NONE:
	case RELAY_ROUTE_NUM:
		break;
	}
	return false;
}

static void judge_host(const struct relay_sandbox *sb, const struct relay_target *t, struct relay_verdict *ret)
{
	ret->decision = policy_judge_name(sb->policy, POLICY_HOST_NAME, t->proto, t->port);
	ret->allow = ret->decision.allow;
	ret->reason = ret->allow ? NET_REASON_NONE : NET_REASON_HOST_SERVICE;
	/* Only a rule with this name and a port opens it, never a default or a wildcard over everything. */
	if (ret->allow && ret->decision.reason != POLICY_REASON_RULE) {
		ret->allow = ret->decision.allow = false;
		ret->decision.reason = POLICY_REASON_INTERNAL;
	}
}

/* Judge by the names that DNS has bound to the address, otherwise by the address alone. */
static void judge_nameless(
	const struct relay_sandbox *sb, const struct relay_target *t, uint64_t now_ms, struct relay_verdict *ret)
{
	struct learned_name *names[NAMES_MAX];
	size_t n = learned_names(sb->learned, &t->dst, now_ms, names, NAMES_MAX);

	for (size_t i = 0; i < n; i++) {
		struct policy_decision d = policy_judge_name(sb->policy, names[i]->name, t->proto, t->port);

		if (d.allow) {
			*ret = (struct relay_verdict){ .allow = true, .decision = d, .name = names[i] };
			return;
		}
		if (i == 0)
			*ret = (struct relay_verdict){ .decision = d, .reason = NET_REASON_PORT };
	}
	if (n)
		return;
	ret->decision = policy_judge_addr(sb->policy, &t->dst, t->proto, t->port);
	ret->allow = ret->decision.allow;
}

enum relay_route relay_judge_route(
	const struct relay_sandbox *sb, const struct relay_target *t, uint64_t now_ms, struct relay_verdict *ret)
{
	*ret = (struct relay_verdict){ 0 };
	if (ak_addr_eq(&t->dst, &sb->gw4) || ak_addr_eq(&t->dst, &sb->gw6)) {
		judge_host(sb, t, ret);
		return ret->allow ? RELAY_ROUTE_HOST : RELAY_ROUTE_NONE;
	}
	switch (policy_addr_class(sb->policy, &t->dst, &ret->decision)) {
	case POLICY_ADDR_OPEN:
		ret->decision = policy_judge_addr(sb->policy, &t->dst, t->proto, t->port);
		ret->allow = ret->decision.allow;
		return RELAY_ROUTE_OPEN;
	case POLICY_ADDR_PLAIN:
		judge_nameless(sb, t, now_ms, ret);
		return policy_default_allow(sb->policy) ? RELAY_ROUTE_ANY : RELAY_ROUTE_NAMED;
	case POLICY_ADDR_BLOCKED:
	case POLICY_ADDR_CLASS_NUM:
		break;
	}
	ret->decision.allow = false;
	return RELAY_ROUTE_NONE;
}

/* The flow's own binding may have expired in the table; the flow still holds it. */
static struct learned_name *binding_of(const struct relay_sandbox *sb, const struct relay_target *t, const char *name,
	struct learned_name *held, uint64_t now_ms)
{
	return held && strcmp(held->name, name) == 0 ? held : learned_find(sb->learned, &t->dst, name, now_ms);
}

/* For an allowlist: is the name allowed, and was this address learned for it? */
static void judge_bound(const struct relay_sandbox *sb, const struct relay_target *t, const char *name, struct learned_name *held,
	uint64_t now_ms, struct relay_verdict *ret)
{
	if (!ret->decision.allow) {
		ret->reason = t->port == 80 ? NET_REASON_HOST_DENIED : NET_REASON_SNI_DENIED;
		return;
	}
	ret->name = binding_of(sb, t, name, held, now_ms);
	ret->allow = ret->name != NULL;
	if (ret->allow)
		return;
	ret->decision = policy_judge_addr(sb->policy, &t->dst, t->proto, t->port);
	ret->decision.allow = false;
	ret->reason = t->port == 80 ? NET_REASON_HOST_UNBOUND : NET_REASON_SNI_UNBOUND;
}

void relay_judge_named(const struct relay_sandbox *sb, enum relay_route route, const struct relay_target *t, const char *name,
	struct learned_name *held, uint64_t now_ms, struct relay_verdict *ret)
{
	struct policy_decision d = policy_judge_name(sb->policy, name, t->proto, t->port);

	*ret = (struct relay_verdict){ .decision = d };
	switch (route) {
	case RELAY_ROUTE_NAMED:
		judge_bound(sb, t, name, held, now_ms, ret);
		return;
	case RELAY_ROUTE_ANY:
		ret->allow = d.allow;
		ret->name = d.allow ? binding_of(sb, t, name, held, now_ms) : NULL;
		ret->reason = d.allow ? NET_REASON_NONE : NET_REASON_NAME_DENIED;
		return;
	case RELAY_ROUTE_OPEN:
		ret->allow = d.allow || d.reason != POLICY_REASON_RULE;
		ret->reason = ret->allow ? NET_REASON_NONE : NET_REASON_NAME_DENIED;
		if (ret->allow)
			policy_addr_class(sb->policy, &t->dst, &ret->decision);
		return;
	case RELAY_ROUTE_HOST:
	case RELAY_ROUTE_PUBLISHED:
		judge_host(sb, t, ret);
		return;
	case RELAY_ROUTE_NONE:
	case RELAY_ROUTE_NUM:
		break;
	}
	ret->decision.allow = false;
}
