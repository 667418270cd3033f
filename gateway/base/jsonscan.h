/*
 * JSON from strangers (RFC 8259): is it that, whole and within bounds? Run over a text before anything is built of it, so that no input
 * costs more than its length. What passes holds no raw control characters, no broken UTF-8 and no half surrogate.
 */
#ifndef AK_BASE_JSONSCAN_H
#define AK_BASE_JSONSCAN_H

#include "gateway/base/err.h"

#include <stdbool.h>
#include <stddef.h>

#define JSON_SCAN_DEPTH_MAX 256

struct json_bounds {
	unsigned depth; /* how deep objects and arrays may nest; at most JSON_SCAN_DEPTH_MAX */
	size_t members; /* of one object */
	size_t values; /* of it all */
};

/*
 * 0; -EINVAL when it is not JSON ("byte 17: …"); -E2BIG when it is past a bound. *RET_NUL tells of \u0000 somewhere: such a text is valid,
 * but a C string made of it would end there.
 */
int json_scan(const char *text, size_t len, const struct json_bounds *bounds, bool *ret_nul, struct ak_err *err);

#endif
