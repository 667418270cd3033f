/*
 * The matcher as a filter, for tests that ask thousands of questions: judge POLICY.json, targets on stdin as `network check` takes them or "dns NAME", one
 * verdict a line: "allow|deny<TAB>rule<TAB>reason". A target that cannot be read is "bad".
 */
#include "gateway/base/cleanup.h"
#include "policies/policy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void judge(const struct policy *p, const char *line)
{
	struct policy_decision d;
	struct policy_target t;
	struct ak_err err;
	char rule[512];

	if (!strncmp(line, "dns ", 4)) {
		d = policy_judge_dns(p, line + 4);
	} else if (policy_target_parse(line, &t, &err) < 0) {
		puts("bad");
		return;
	} else if (t.addr.family) {
		d = policy_judge_addr(p, &t.addr, t.proto, t.port);
	} else {
		d = policy_judge_name(p, t.host, t.proto, t.port);
	}
	printf("%s\t%s\t%s\n", d.allow ? "allow" : "deny", policy_rule_label(&d, rule, sizeof(rule)),
		policy_reason_text(d.reason, d.allow));
}

int main(int argc, char **argv)
{
	_cleanup_(policy_unrefp) struct policy *p = NULL;
	struct policy_dirs none = { { NULL } };
	struct ak_err err;
	char line[512];

	if (argc != 2 || policy_load(argv[1], &none, NULL, 0, &p, &err) < 0) {
		fprintf(stderr, "judge: %s\n", argc == 2 ? err.text : "usage: judge POLICY.json");
		return 1;
	}
	while (fgets(line, sizeof(line), stdin)) {
		line[strcspn(line, "\n")] = '\0';
		judge(p, line);
	}
	return 0;
}
