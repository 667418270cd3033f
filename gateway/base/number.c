/* Numbers in text: see base/number.h. */
#include "gateway/base/number.h"

#include "gateway/base/cleanup.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <strings.h>

/* Read the digits at *P; false if there are none or too many. */
static bool take_digits(const char **p, unsigned long long *ret)
{
	const char *at = *p;
	unsigned long long value = 0;

	for (; *at >= '0' && *at <= '9'; at++) {
		if (__builtin_mul_overflow(value, 10ull, &value) ||
			__builtin_add_overflow(value, (unsigned long long)(*at - '0'), &value))
			return false;
	}
	if (at == *p)
		return false;
	*p = at;
	*ret = value;
	return true;
}

int ak_parse_count(const char *text, unsigned long long min, unsigned long long max, unsigned long long *ret, struct ak_err *err)
{
	const char *p = text;
	unsigned long long value;

	if (!take_digits(&p, &value) || *p)
		return ak_fail(err, EINVAL, "'%.100s' is not a whole number", text);
	if (value < min || value > max)
		return ak_fail(err, ERANGE, "%llu is not between %llu and %llu", value, min, max);
	*ret = value;
	return 0;
}

int ak_parse_size(const char *text, unsigned long long *ret_bytes, struct ak_err *err)
{
	static const char *const units[] = { "", "k", "m", "g", "t" };
	const char *p = text;
	unsigned long long value;

	if (!take_digits(&p, &value))
		return ak_fail(err, EINVAL, "'%.100s' is not a size (write for example 512M or 2G)", text);
	for (unsigned i = 0; i < ARRAY_SIZE(units); i++) {
		size_t len = strlen(units[i]);
		const char *rest = p + len;

		if (strncasecmp(p, units[i], len) != 0)
			continue;
		/* "M", "MB" and "MiB" all mean 1024 times 1024. */
		if (*rest && strcasecmp(rest, "b") != 0 && !(len && !strcasecmp(rest, "ib")))
			continue;
		if (value > ~0ull >> (10 * i))
			return ak_fail(err, ERANGE, "'%.100s' is too large", text);
		*ret_bytes = value << (10 * i);
		return 0;
	}
	return ak_fail(err, EINVAL, "'%.100s' is not a size (write for example 512M or 2G)", text);
}

/* Skip the unit at *P and return its milliseconds; 0 if it is unknown. */
static unsigned long long take_unit(const char **p)
{
	static const struct {
		const char *name;
		unsigned long long ms;
	} units[] = { { "ms", 1 }, { "s", 1000 }, { "m", 60000 }, { "h", 3600000 }, { "d", 86400000 } };

	for (size_t i = 0; i < ARRAY_SIZE(units); i++) {
		size_t len = strlen(units[i].name);

		if (!strncmp(*p, units[i].name, len)) {
			*p += len;
			return units[i].ms;
		}
	}
	return 0;
}

int ak_parse_duration(const char *text, unsigned long long *ret_ms, struct ak_err *err)
{
	unsigned long long total = 0, value, unit, last = ~0ull;
	const char *p = text;

	do {
		if (!take_digits(&p, &value))
			return ak_fail(err, EINVAL, "'%.100s' is not a duration (write for example 30s, 10m or 1h30m)", text);
		unit = total == 0 && last == ~0ull && !*p ? 1000 : take_unit(&p);
		if (unit == 0 || unit >= last)
			return ak_fail(err, EINVAL, "'%.100s' is not a duration (write for example 30s, 10m or 1h30m)", text);
		if (__builtin_mul_overflow(value, unit, &value) || __builtin_add_overflow(total, value, &total))
			return ak_fail(err, ERANGE, "'%.100s' is too long", text);
		last = unit;
	} while (*p);
	*ret_ms = total;
	return 0;
}

int ak_hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c |= 0x20;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}
