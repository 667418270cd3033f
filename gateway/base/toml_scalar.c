/* TOML booleans, numbers, dates and times. See base/toml.h. */
#include "gateway/base/toml_internal.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TOKEN_MAX 1024

/* ---- dates and times: a cursor over the token that stops at the first thing that does not fit ---- */

struct cursor {
	const char *at;
	bool bad;
};

static int take_digits(struct cursor *c, int n, int min, int max)
{
	int value = 0;

	for (int i = 0; i < n && !c->bad; i++) {
		if (toml_is_digit(*c->at))
			value = value * 10 + (*c->at++ - '0');
		else
			c->bad = true;
	}
	c->bad = c->bad || value < min || value > max;
	return value;
}

static bool take_one(struct cursor *c, const char *accepted)
{
	if (c->bad || !*c->at || !strchr(accepted, *c->at))
		return false;
	c->at++;
	return true;
}

static void need_one(struct cursor *c, const char *accepted)
{
	if (!take_one(c, accepted))
		c->bad = true;
}

static int days_in(int year, int month)
{
	static const int days[] = { 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31 };
	bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;

	return days[month - 1] + (month == 2 && leap);
}

static void take_date(struct cursor *c, struct toml_date *d)
{
	d->year = take_digits(c, 4, 0, 9999);
	need_one(c, "-");
	d->month = take_digits(c, 2, 1, 12);
	need_one(c, "-");
	d->day = take_digits(c, 2, 1, c->bad ? 31 : days_in(d->year, d->month));
	d->has_date = true;
}

static void take_fraction(struct cursor *c, struct toml_date *d)
{
	uint32_t unit = 100000000;

	if (!take_one(c, "."))
		return;
	c->bad = !toml_is_digit(*c->at);
	for (; toml_is_digit(*c->at); c->at++, unit /= 10)
		d->nanosecond += (uint32_t)(*c->at - '0') * unit;
}

static void take_time(struct cursor *c, struct toml_date *d)
{
	d->hour = take_digits(c, 2, 0, 23);
	need_one(c, ":");
	d->minute = take_digits(c, 2, 0, 59);
	need_one(c, ":");
	d->second = take_digits(c, 2, 0, 60); /* 60: a leap second, as RFC 3339 allows */
	take_fraction(c, d);
	d->has_time = true;
}

static void take_offset(struct cursor *c, struct toml_date *d)
{
	int sign = *c->at == '-' ? -1 : 1;

	if (take_one(c, "Zz")) {
		d->has_offset = true;
	} else if (take_one(c, "+-")) {
		d->offset_minutes = take_digits(c, 2, 0, 23) * 60;
		need_one(c, ":");
		d->offset_minutes = sign * (d->offset_minutes + take_digits(c, 2, 0, 59));
		d->has_offset = true;
	}
}

static bool read_date(const char *token, struct toml_value *v)
{
	struct cursor c = { .at = token };

	v->kind = TOML_DATE;
	v->date = (struct toml_date){ 0 };
	if (token[2] == ':') {
		take_time(&c, &v->date);
	} else {
		take_date(&c, &v->date);
		if (*c.at) {
			need_one(&c, "Tt ");
			take_time(&c, &v->date);
			take_offset(&c, &v->date);
		}
	}
	return !c.bad && !*c.at;
}

/* ---- numbers ---- */

/* Copy digits of BASE to OUT without underscores, which must stand between two digits. Returns where they end, or NULL. */
static const char *copy_digits(const char *at, int base, char **out)
{
	const char *start = at;

	for (;; at++) {
		char c = *at, low = (char)(c | 0x20);
		bool digit = (c >= '0' && c < '0' + (base < 10 ? base : 10)) || (base == 16 && low >= 'a' && low <= 'f');

		if (digit)
			*(*out)++ = c;
		else if (c != '_')
			return at > start && at[-1] != '_' ? at : NULL;
		else if (at == start || at[-1] == '_')
			return NULL;
	}
}

/* 0x, 0o and 0b, without a sign: the base, and 10 for everything else. */
static int base_of(const char *token)
{
	return token[0] != '0' ? 10 : token[1] == 'x' ? 16 : token[1] == 'o' ? 8 : token[1] == 'b' ? 2 : 10;
}

static bool read_based(const char *token, int base, char *digits)
{
	const char *end = copy_digits(token + 2, base, &digits);

	*digits = '\0';
	return end && !*end;
}

/* Does the whole token have the form of a decimal number? *RET_FLOAT: it has a fraction or an exponent. */
static bool read_decimal(const char *at, char *out, bool *ret_float)
{
	if (*at == '+' || *at == '-')
		*out++ = *at++;
	if (*at == '0' && (toml_is_digit(at[1]) || at[1] == '_'))
		return false;
	at = copy_digits(at, 10, &out);
	if (at && *at == '.') {
		*ret_float = true;
		*out++ = '.';
		at = copy_digits(at + 1, 10, &out);
	}
	if (at && (*at == 'e' || *at == 'E')) {
		*ret_float = true;
		*out++ = *at++;
		if (*at == '+' || *at == '-')
			*out++ = *at++;
		at = copy_digits(at, 10, &out);
	}
	*out = '\0';
	return at && !*at;
}

static bool read_special(const char *token, struct toml_value *v)
{
	const char *word = token + (*token == '+' || *token == '-');
	bool inf = !strcmp(word, "inf");

	if (!inf && strcmp(word, "nan") != 0)
		return false;
	v->kind = TOML_FLOAT;
	v->number = copysign(inf ? INFINITY : NAN, *token == '-' ? -1.0 : 1.0);
	return true;
}

/* Returns 1 for a number, 0 for anything else, -ERANGE for a whole number that does not fit in 64 bits. */
static int read_number(const char *token, struct toml_value *v)
{
	int base = base_of(token);
	bool is_float = false;
	char digits[TOKEN_MAX];

	if (read_special(token, v))
		return 1;
	if (base != 10 ? !read_based(token, base, digits) : !read_decimal(token, digits, &is_float))
		return 0;
	errno = 0;
	v->kind = is_float ? TOML_FLOAT : TOML_INTEGER;
	if (is_float)
		v->number = strtod(digits, NULL);
	else
		v->integer = strtoll(digits, NULL, base);
	return !is_float && errno == ERANGE ? -ERANGE : 1;
}

/* ---- any of them ---- */

static size_t token_length(const char *at)
{
	size_t n = 0;

	while (toml_is_digit(at[n]) || (at[n] >= 'a' && at[n] <= 'z') || (at[n] >= 'A' && at[n] <= 'Z') ||
		(at[n] && strchr("_+-.:", at[n])))
		n++;
	return n;
}

static bool looks_like_date(const char *at, size_t n)
{
	return (n >= 5 && at[4] == '-' && strspn(at, "0123456789") == 4) || (n >= 3 && at[2] == ':' && toml_is_digit(at[0]));
}

int toml_read_scalar(struct toml_parser *p, struct toml_value *v)
{
	const char *at = p->doc->text + p->at;
	size_t n = token_length(at);
	char token[TOKEN_MAX];
	bool date = looks_like_date(at, n);
	int rc;

	if (!n)
		return toml_fail(p, p->at, "expected a value");
	if (date && n == 10 && at[10] == ' ' && toml_is_digit(at[11])) /* a space may stand for the T */
		n += 1 + token_length(at + 11);
	if (n >= sizeof(token))
		return toml_fail(p, p->at, "the value is longer than %d characters", TOKEN_MAX - 1);
	memcpy(token, at, n);
	token[n] = '\0';
	if (!strcmp(token, "true") || !strcmp(token, "false")) {
		v->kind = TOML_BOOL;
		v->flag = token[0] == 't';
	} else if (date) {
		if (!read_date(token, v))
			return toml_fail(p, p->at, "'%.64s' is not a date or time", token);
	} else {
		rc = read_number(token, v);
		if (rc == -ERANGE)
			return toml_fail(p, p->at, "%.64s does not fit in 64 bits", token);
		if (rc == 0)
			return toml_fail(p, p->at, "'%.64s' is not a value; text needs quotes", token);
	}
	p->at += n;
	return 0;
}
