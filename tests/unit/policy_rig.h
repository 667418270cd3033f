/* What the tests of policy files share. */
#ifndef AK_TEST_POLICY_RIG_H
#define AK_TEST_POLICY_RIG_H

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "policies/policy.h"
#include "tests/unit/tmp_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#define SHIPPED AK_SOURCE_DIR "/policies"
static const struct policy_dirs shipped = { { SHIPPED } };

static inline void expect_error(const char *json, const char *want)
{
	struct policy *p = NULL;
	struct ak_err err = { "" };
	int rc = policy_parse(json, strlen(json), "t.json", &shipped, NULL, 0, &p, &err);

	if (rc >= 0)
		fail_msg("accepted: %s", json);
	assert_null(p);
	if (!strstr(err.text, want))
		fail_msg("%s\n  want: %s\n  got:  %s", json, want, err.text);
	assert_int_equal(strncmp(err.text, "t.json: ", 8), 0);
}

static inline struct policy *must_parse_edits(const char *json, const struct policy_edit *edits, size_t n)
{
	struct policy *p = NULL;
	struct ak_err err;

	if (policy_parse(json, strlen(json), "t.json", &shipped, edits, n, &p, &err) < 0)
		fail_msg("%s: %s", json, err.text);
	return p;
}

static inline struct policy *must_parse(const char *json)
{
	return must_parse_edits(json, NULL, 0);
}

static inline char *print(const struct policy *p)
{
	struct strbuf out = { 0 };

	policy_print(p, &out);
	assert_false(out.failed);
	return strbuf_take(&out);
}

#endif
