/* All errors of a policy file at once, with their lines: see policies/policy.h. */
#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/base/json.h"
#include "policies/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

struct told {
	const char *text; /* of the file */
	size_t len;
	void (*fn)(void *ctx, const struct policy_flaw *f);
	void *ctx;
};

static void tell_flaw(void *ctx, const char *text)
{
	const struct told *t = ctx;
	struct policy_flaw flaw = { .text = text };

	(void)json_locate(t->text, t->len, text, &flaw.line, &flaw.column);
	t->fn(t->ctx, &flaw);
}

/* An error that ended the reading: its line is part of the text if it is about the syntax. */
static void tell_last(const struct told *t, const char *path, const struct ak_err *err)
{
	const char *text = err->text;
	size_t n = strlen(path);
	struct policy_flaw flaw = { 0 };
	int used = 0;

	if (!strncmp(text, path, n) && !strncmp(text + n, ": ", 2))
		text += n + 2;
	if (sscanf(text, "line %u, column %u: %n", &flaw.line, &flaw.column, &used) >= 2 && used > 0)
		text += used;
	else if (flaw.line)
		flaw.line = 0; /* the text says it */
	else
		(void)json_locate(t->text, t->len, text, &flaw.line, &flaw.column);
	flaw.text = text;
	t->fn(t->ctx, &flaw);
}

/* A FIFO would block; what the shell has opened for us has a writer. */
static bool blocks(const char *path)
{
	struct stat st;

	return strncmp(path, "/dev/", 5) != 0 && strncmp(path, "/proc/", 6) != 0 && stat(path, &st) == 0 && S_ISFIFO(st.st_mode);
}

int policy_validate(const char *path, const struct policy_dirs *dirs, void (*fn)(void *ctx, const struct policy_flaw *f),
	void *ctx, size_t *ret_rules, struct ak_err *err)
{
	_cleanup_(policy_unrefp) struct policy *p = NULL;
	_cleanup_free_ char *text = NULL;
	struct told t = { .fn = fn, .ctx = ctx };
	int rc;

	if (blocks(path))
		return ak_fail(err, EINVAL, "%s: is a FIFO; name a file", path);
	rc = ak_read_file(AT_FDCWD, path, POLICY_FILE_MAX, &text, &t.len);

	if (rc < 0)
		return ak_fail_errno(err, -rc, "%s", path);
	t.text = text;
	rc = policy_tell_errors(text, t.len, path, dirs, tell_flaw, &t, &p, err);
	if (rc == -ENOMEM)
		return rc;
	if (rc < 0 && rc != -EBADMSG)
		tell_last(&t, path, err);
	if (rc < 0)
		return ak_fail(err, EINVAL, "%s: not valid", path);
	*ret_rules = policy_rule_count(p);
	return 0;
}
