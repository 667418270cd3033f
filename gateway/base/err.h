/*
 * Error messages. Libraries return them, commands print them.
 *
 * A function whose failure users must understand takes a
 * `struct ak_err *` last: a fixed buffer, never NULL, untouched on success.
 * Callers prepend their own context, so that the text reads from
 * the outside in: "codex.json: allow[3]: port 70000 out of range".
 */
#ifndef AK_BASE_ERR_H
#define AK_BASE_ERR_H

#define AK_ERR_MAX 512
#define AK_ERRNO_MAX 4095 /* the kernel's limit: larger values are not an errno */

struct ak_err {
	char text[AK_ERR_MAX];
};

/* Write the message; returns -code, for `return ak_fail(err, EINVAL, …)`. */
int ak_fail(struct ak_err *err, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* Like ak_fail, with ": strerror(code)" appended. */
int ak_fail_errno(struct ak_err *err, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* Prepend context to an existing message; returns RC unchanged. */
int ak_err_prefix(struct ak_err *err, int rc, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

#endif
