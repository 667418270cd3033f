/* Error messages: see err.h. */
#include "gateway/base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int ak_fail(struct ak_err *err, int code, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(err->text, sizeof(err->text), fmt, ap);
	va_end(ap);
	return -code;
}

int ak_fail_errno(struct ak_err *err, int code, const char *fmt, ...)
{
	va_list ap;
	size_t len;

	va_start(ap, fmt);
	vsnprintf(err->text, sizeof(err->text), fmt, ap);
	va_end(ap);
	len = strlen(err->text);
	snprintf(err->text + len, sizeof(err->text) - len, ": %s", strerror(code));
	return -code;
}

int ak_err_prefix(struct ak_err *err, int rc, const char *fmt, ...)
{
	char tail[AK_ERR_MAX];
	va_list ap;
	size_t len;

	memcpy(tail, err->text, sizeof(tail));
	va_start(ap, fmt);
	vsnprintf(err->text, sizeof(err->text), fmt, ap);
	va_end(ap);
	len = strlen(err->text);
	snprintf(err->text + len, sizeof(err->text) - len, ": %s", tail);
	return rc;
}
