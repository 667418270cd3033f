/* Validates untrusted JSON: see jsonscan.h. Recursive descent; the depth limit bounds the stack. */
#include "gateway/base/jsonscan.h"

#include "gateway/base/strbuf.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

struct scan {
	const char *text, *p, *end; /* borrowed */
	const struct json_bounds *bounds; /* borrowed */
	size_t values;
	bool nul;
	struct ak_err *err; /* borrowed */
};

static int scan_value(struct scan *s, unsigned depth);

static int bad(struct scan *s, const char *what)
{
	return ak_fail(s->err, EINVAL, "byte %zu: %s", (size_t)(s->p - s->text) + 1, what);
}

static void skip_space(struct scan *s)
{
	while (s->p < s->end && (*s->p == ' ' || *s->p == '\t' || *s->p == '\r' || *s->p == '\n'))
		s->p++;
}

static bool at(const struct scan *s, char c)
{
	return s->p < s->end && *s->p == c;
}

static bool take(struct scan *s, char c)
{
	if (!at(s, c))
		return false;
	s->p++;
	return true;
}

/* Read the four digits after "\u"; -1 if they are invalid. */
static long take_hex4(struct scan *s)
{
	long value = 0;

	if (s->end - s->p < 4)
		return -1;
	for (int i = 0; i < 4; i++) {
		const char *digits = "0123456789abcdef", c = *s->p++;
		const char *d = c ? strchr(digits, c >= 'A' && c <= 'F' ? c + ('a' - 'A') : c) : NULL;

		if (!d)
			return -1;
		value = value * 16 + (d - digits);
	}
	return value;
}

/* Scan after the backslash. */
static int scan_escape(struct scan *s)
{
	char c = s->p < s->end ? *s->p++ : '\0';
	long unit, low;

	if (c && strchr("\"\\/bfnrt", c))
		return 0;
	if (c != 'u')
		return bad(s, "unknown escape in a string");
	unit = take_hex4(s);
	if (unit < 0)
		return bad(s, "\\u needs four hexadecimal digits");
	if (unit == 0)
		s->nul = true;
	if (unit >= 0xdc00 && unit <= 0xdfff)
		return bad(s, "unpaired surrogate");
	if (unit < 0xd800 || unit > 0xdbff)
		return 0;
	low = take(s, '\\') && take(s, 'u') ? take_hex4(s) : -1;
	return low >= 0xdc00 && low <= 0xdfff ? 0 : bad(s, "unpaired surrogate");
}

static int scan_string(struct scan *s)
{
	if (!take(s, '"'))
		return bad(s, "expected a string");
	while (s->p < s->end && *s->p != '"') {
		unsigned char c = (unsigned char)*s->p;
		size_t n;
		int rc = 0;

		if (c < 0x20)
			return bad(s, "control character in a string");
		if (c == '\\') {
			s->p++;
			rc = scan_escape(s);
		} else {
			n = ak_utf8_length((const unsigned char *)s->p, (size_t)(s->end - s->p));
			if (n == 0)
				return bad(s, "invalid UTF-8");
			s->p += n;
		}
		if (rc < 0)
			return rc;
	}
	return take(s, '"') ? 0 : bad(s, "unterminated string");
}

static bool take_digits(struct scan *s)
{
	const char *from = s->p;

	while (s->p < s->end && *s->p >= '0' && *s->p <= '9')
		s->p++;
	return s->p > from;
}

static int scan_number(struct scan *s)
{
	(void)take(s, '-');
	if (!take(s, '0') && !take_digits(s))
		return bad(s, "expected a value");
	if (take(s, '.') && !take_digits(s))
		return bad(s, "number without digits after the decimal point");
	if (take(s, 'e') || take(s, 'E')) {
		if (!take(s, '+'))
			(void)take(s, '-');
		if (!take_digits(s))
			return bad(s, "number without digits in the exponent");
	}
	return 0;
}

static int scan_word(struct scan *s, const char *word)
{
	size_t len = strlen(word);

	if ((size_t)(s->end - s->p) < len || memcmp(s->p, word, len) != 0)
		return bad(s, "expected a value");
	s->p += len;
	return 0;
}

static int scan_member(struct scan *s, unsigned depth)
{
	int rc;

	skip_space(s);
	rc = scan_string(s);
	if (rc < 0)
		return rc;
	skip_space(s);
	return take(s, ':') ? scan_value(s, depth) : bad(s, "expected ':'");
}

/* Scan an object or array after its opening bracket. */
static int scan_inside(struct scan *s, char close, unsigned depth)
{
	size_t n = 0;
	int rc;

	if (depth > s->bounds->depth)
		return ak_fail(s->err, E2BIG, "nested deeper than %u levels", s->bounds->depth);
	skip_space(s);
	if (take(s, close))
		return 0;
	do {
		if (close == '}' && ++n > s->bounds->members)
			return ak_fail(s->err, E2BIG, "an object with more than %zu members", s->bounds->members);
		rc = close == '}' ? scan_member(s, depth) : scan_value(s, depth);
		if (rc < 0)
			return rc;
		skip_space(s);
	} while (take(s, ','));
	return take(s, close) ? 0 : bad(s, close == '}' ? "expected ',' or '}'" : "expected ',' or ']'");
}

static int scan_value(struct scan *s, unsigned depth)
{
	skip_space(s);
	if (++s->values > s->bounds->values)
		return ak_fail(s->err, E2BIG, "more than %zu values", s->bounds->values);
	if (at(s, '"'))
		return scan_string(s);
	if (take(s, '{'))
		return scan_inside(s, '}', depth + 1);
	if (take(s, '['))
		return scan_inside(s, ']', depth + 1);
	if (at(s, 't'))
		return scan_word(s, "true");
	if (at(s, 'f'))
		return scan_word(s, "false");
	return at(s, 'n') ? scan_word(s, "null") : scan_number(s);
}

int json_scan(const char *text, size_t len, const struct json_bounds *bounds, bool *ret_nul, struct ak_err *err)
{
	struct scan s = { .text = text, .p = text, .end = text + len, .bounds = bounds, .err = err };
	int rc;

	assert(bounds->depth <= JSON_SCAN_DEPTH_MAX);
	rc = scan_value(&s, 0);
	if (rc < 0)
		return rc;
	skip_space(&s);
	if (s.p < s.end)
		return bad(&s, "text after the end of the value");
	*ret_nul = s.nul;
	return 0;
}
