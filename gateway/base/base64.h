/* Base64 (RFC 4648 section 4), for files inside JSON. */
#ifndef AK_BASE_BASE64_H
#define AK_BASE_BASE64_H

#include "gateway/base/err.h"
#include "gateway/base/strbuf.h"

#include <stddef.h>

/* Append the padded base64 text of LEN bytes, on one line. */
void base64_encode(struct strbuf *out, const void *data, size_t len);

/* Strict: requires padding and zero unused bits, accepts no other characters. The caller frees *RET. -EINVAL, -ENOMEM. */
int base64_decode(const char *text, size_t len, char **ret, size_t *ret_len, struct ak_err *err);

#endif
