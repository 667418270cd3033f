/* Numbers in text from outside: a command line, a request, a name. */
#ifndef AK_NUMBER_H
#define AK_NUMBER_H

#include "gateway/base/err.h"

/* Sizes ("512M", "2G", "0"), durations ("30s", "10m", "1h30m", "500ms"; a bare number is seconds) and counts. */
int ak_parse_size(const char *text, unsigned long long *ret_bytes, struct ak_err *err);
int ak_parse_duration(const char *text, unsigned long long *ret_ms, struct ak_err *err);
int ak_parse_count(const char *text, unsigned long long min, unsigned long long max, unsigned long long *ret, struct ak_err *err);

/* The value of a hexadecimal digit of either case; -1 if it is none. */
int ak_hex_digit(char c);

#endif
