/* Prints and parses RFC 3339 times without a time zone file: see log/audit.h. */
#include "gateway/log/audit.h"

#include "gateway/base/number.h"

#include <errno.h>
#include <string.h>

static char *put_digits(char *p, unsigned value, unsigned width)
{
	for (unsigned i = width; i-- > 0; value /= 10)
		p[i] = (char)('0' + value % 10);
	return p + width;
}

const char *audit_time_print(uint64_t wall_us, char buf[static AUDIT_TIME_MAX])
{
	uint64_t secs = wall_us / 1000000;
	unsigned sod = (unsigned)(secs % 86400);
	/* Convert days to a Gregorian date, using years that start in March and eras of 400 years. */
	uint64_t days = secs / 86400 + 719468, era = days / 146097;
	unsigned doe = (unsigned)(days % 146097);
	unsigned yoe = (doe - doe / 1460 + doe / 36524 - doe / 146096) / 365;
	unsigned doy = doe - (365 * yoe + yoe / 4 - yoe / 100), mp = (5 * doy + 2) / 153;
	unsigned month = mp < 10 ? mp + 3 : mp - 9;
	char *p = buf;

	p = put_digits(p, (unsigned)(yoe + era * 400) + (month <= 2), 4);
	*p++ = '-';
	p = put_digits(p, month, 2);
	*p++ = '-';
	p = put_digits(p, doy - (153 * mp + 2) / 5 + 1, 2);
	*p++ = 'T';
	p = put_digits(p, sod / 3600, 2);
	*p++ = ':';
	p = put_digits(p, sod / 60 % 60, 2);
	*p++ = ':';
	p = put_digits(p, sod % 60, 2);
	*p++ = '.';
	p = put_digits(p, (unsigned)(wall_us % 1000000), 6);
	*p++ = 'Z';
	*p = '\0';
	return buf;
}

/* Read WIDTH digits at *P with a value from LO to HI. */
static bool take_number(const char **p, unsigned width, int64_t lo, int64_t hi, int64_t *ret)
{
	int64_t value = 0;

	for (unsigned i = 0; i < width; i++) {
		char c = (*p)[i];

		if (c < '0' || c > '9')
			return false;
		value = value * 10 + (c - '0');
	}
	if (value < lo || value > hi)
		return false;
	*p += width;
	*ret = value;
	return true;
}

static bool take_char(const char **p, const char *one_of)
{
	if (!**p || !strchr(one_of, **p))
		return false;
	(*p)++;
	return true;
}

static int64_t days_from_date(int64_t y, int64_t m, int64_t d)
{
	int64_t era, yoe, doy;

	y -= m <= 2;
	era = y / 400;
	yoe = y - era * 400;
	doy = (153 * (m > 2 ? m - 3 : m + 9) + 2) / 5 + d - 1;
	return era * 146097 + yoe * 365 + yoe / 4 - yoe / 100 + doy - 719468;
}

static bool take_fraction(const char **p, int64_t *ret_us)
{
	int64_t unit = 100000;

	*ret_us = 0;
	if (**p != '.')
		return true;
	(*p)++;
	if (**p < '0' || **p > '9')
		return false;
	for (; **p >= '0' && **p <= '9'; (*p)++, unit /= 10)
		*ret_us += (**p - '0') * unit;
	return true;
}

static bool take_offset(const char **p, int64_t *ret_s)
{
	int64_t hours, minutes;
	bool west = **p == '-';

	*ret_s = 0;
	if (take_char(p, "Zz"))
		return true;
	if (!take_char(p, "+-") || !take_number(p, 2, 0, 23, &hours) || !take_char(p, ":") || !take_number(p, 2, 0, 59, &minutes))
		return false;
	*ret_s = (hours * 60 + minutes) * (west ? -60 : 60);
	return true;
}

int audit_time_parse(const char *text, uint64_t *ret_wall_us)
{
	static const unsigned char month_days[] = { 31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31 };
	int64_t y, mo, d, h, mi, s, us, offset, total;
	const char *p = text;

	if (!take_number(&p, 4, 1970, 9999, &y) || !take_char(&p, "-") || !take_number(&p, 2, 1, 12, &mo) ||
		!take_char(&p, "-") || !take_number(&p, 2, 1, month_days[mo - 1], &d))
		return -EINVAL;
	if (mo == 2 && d == 29 && (y % 4 != 0 || (y % 100 == 0 && y % 400 != 0)))
		return -EINVAL;
	if (!take_char(&p, "Tt ") || !take_number(&p, 2, 0, 23, &h) || !take_char(&p, ":") || !take_number(&p, 2, 0, 59, &mi) ||
		!take_char(&p, ":") || !take_number(&p, 2, 0, 60, &s))
		return -EINVAL;
	if (!take_fraction(&p, &us) || !take_offset(&p, &offset) || *p)
		return -EINVAL;
	total = days_from_date(y, mo, d) * 86400 + h * 3600 + mi * 60 + s - offset;
	if (total < 0)
		return -EINVAL;
	*ret_wall_us = (uint64_t)total * 1000000 + (uint64_t)us;
	return 0;
}

int audit_parse_since(const char *text, uint64_t now_us, uint64_t *ret_us, struct ak_err *err)
{
	unsigned long long ms;
	struct ak_err ignored;

	if (audit_time_parse(text, ret_us) == 0)
		return 0;
	if (ak_parse_duration(text, &ms, &ignored) < 0)
		return ak_fail(err, EINVAL, "'%.100s' is neither a duration (10m) nor a time (2026-01-02T03:04:05Z)", text);
	*ret_us = ms < now_us / 1000 ? now_us - ms * 1000 : 0;
	return 0;
}
