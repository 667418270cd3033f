/* Messages on stderr, and flushing standard output: see base/say.h. */
#include "gateway/base/say.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/base/strbuf.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool program_was_here;

void ak_say_after_program(void)
{
	program_was_here = true;
}

/* String terminator, for an unfinished title or the like; soft reset (margins, character set, cursor); plain colours. */
static void put_reset(struct strbuf *out)
{
	const char *term = getenv("TERM");

	if (program_was_here && term && term[0] && strcmp(term, "dumb") != 0 && isatty(STDERR_FILENO))
		strbuf_puts(out, "\033\\\033[!p\033[0m");
	program_was_here = false;
}

void ak_say(const char *fmt, ...)
{
	_cleanup_strbuf_ struct strbuf out = { 0 };
	char text[2048];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	put_reset(&out);
	strbuf_puts(&out, "agentkernel: ");
	strbuf_shown(&out, text, strlen(text));
	strbuf_putc(&out, '\n');
	if (!out.failed)
		ak_write_all(STDERR_FILENO, out.data, out.len);
}

int ak_flush(struct ak_err *err)
{
	int code;

	if (fflush(stdout) == 0 && !ferror(stdout))
		return 0;
	code = errno ? errno : EIO;
	__fpurge(stdout);
	clearerr(stdout);
	return ak_fail_errno(err, code, "cannot write the output");
}
