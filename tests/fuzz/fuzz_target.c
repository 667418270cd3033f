/*
 * What `network check` and flags are given: "host[:port][/proto]", addresses, prefixes. A target that is taken is a name that judges or an address that prints and
 * reads back the same; an IPv6 address that hides a blocked IPv4 one is blocked.
 */
#include "gateway/base/addr.h"
#include "gateway/base/cleanup.h"
#include "policies/policy.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool ok)
{
	if (!ok)
		abort();
}

static const struct policy *any(void)
{
	static const char text[] = "{\"version\":1,\"default\":\"allow\"}";
	static struct policy *p;
	struct ak_err err;

	if (!p)
		must(policy_parse(text, sizeof(text) - 1, "fuzz", NULL, NULL, 0, &p, &err) == 0);
	return p;
}

static void check_addr(const struct ak_addr *a, const struct policy_target *t)
{
	struct ak_addr again, v4;
	char buf[AK_ADDR_TEXT];

	must(ak_addr_parse(ak_addr_print(a, buf), &again) == 0 && ak_addr_eq(a, &again));
	if (a->family == AF_INET6 && ak_addr_embedded_v4(a, &v4) && policy_addr_class(any(), &v4, NULL) == POLICY_ADDR_BLOCKED)
		must(!policy_judge_addr(any(), a, t->proto, t->port).allow);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_free_ char *text = strndup((const char *)data, size);
	struct policy_target t;
	struct ak_err err = { "" };
	struct ak_addr raw = { .family = AF_INET6 };

	if (!text)
		return 0;
	if (size >= 16) { /* the bytes themselves as an address */
		memcpy(raw.bytes, data, 16);
		check_addr(&raw, &(struct policy_target){ .proto = POLICY_TCP, .port = 443 });
	}
	if (policy_target_parse(text, &t, &err) < 0) {
		for (const char *c = err.text; *c; c++) /* an error never speaks to the terminal */
			must((unsigned char)*c >= ' ');
		return 0;
	}
	must(t.port > 0 && (t.addr.family || policy_name_ok(t.host)));
	if (t.addr.family)
		check_addr(&t.addr, &t);
	else if (policy_judge_name(any(), t.host, t.proto, t.port).allow)
		must(policy_judge_dns(any(), t.host).allow);
	return 0;
}
