/*
 * Validates untrusted JSON (RFC 8259) and its size limits before anything is built from it, so that no input costs more than
 * its length. Accepted text has no raw control characters, no invalid UTF-8 and no unpaired surrogates.
 */
#ifndef AK_BASE_JSONSCAN_H
#define AK_BASE_JSONSCAN_H

#include "gateway/base/err.h"

#include <stdbool.h>
#include <stddef.h>

#define JSON_SCAN_DEPTH_MAX 256

struct json_bounds {
	unsigned depth; /* of nested objects and arrays; at most JSON_SCAN_DEPTH_MAX */
	size_t members; /* per object */
	size_t values; /* in total */
};

/*
 * Returns 0; -EINVAL if it is not JSON ("byte 17: …"); -E2BIG if it exceeds a limit. *RET_NUL reports a \u0000: the text is
 * valid, but a C string made from it would end there.
 */
int json_scan(const char *text, size_t len, const struct json_bounds *bounds, bool *ret_nul, struct ak_err *err);

#endif
