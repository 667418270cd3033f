/* Where a value stands in JSON text: see json.h. The text is valid JSON, so brackets and strings are all there is to look at. */
#include "gateway/base/json.h"

#include <stdlib.h>
#include <string.h>

struct reader {
	const char *p, *end;
};

/* Is the next character one of SET? */
static bool at(const struct reader *r, const char *set)
{
	return r->p < r->end && *r->p && strchr(set, *r->p);
}

static void skip_space(struct reader *r)
{
	while (at(r, " \t\r\n"))
		r->p++;
}

static void skip_string(struct reader *r)
{
	for (r->p++; r->p < r->end && *r->p != '"'; r->p++)
		r->p += *r->p == '\\' && r->p + 1 < r->end;
	r->p += r->p < r->end;
}

static void skip_value(struct reader *r)
{
	unsigned depth = 0;

	skip_space(r);
	if (!at(r, "[{\"")) { /* a number or a word */
		while (r->p < r->end && !at(r, ",]} \t\r\n"))
			r->p++;
		return;
	}
	do {
		if (at(r, "\"")) {
			skip_string(r);
			continue;
		}
		if (at(r, "[{"))
			depth++;
		else if (at(r, "]}"))
			depth--;
		r->p++;
	} while (depth > 0 && r->p < r->end);
}

/* Step over a separator; false at the closing bracket. */
static bool more(struct reader *r)
{
	skip_space(r);
	if (at(r, ","))
		r->p++;
	skip_space(r);
	return r->p < r->end && !at(r, "]}");
}

/* Move R, at an object, to the value of its member KEY (LEN bytes); *RET_KEY is where the key stands. Of several, the last. */
static bool enter_member(struct reader *r, const char *key, size_t len, const char **ret_key)
{
	struct reader found = { 0 };

	skip_space(r);
	if (!at(r, "{"))
		return false;
	for (r->p++; more(r) && at(r, "\""); skip_value(r)) {
		const char *start = r->p;
		bool this;

		skip_string(r);
		this = (size_t)(r->p - start) == len + 2 && !memcmp(start + 1, key, len);
		skip_space(r);
		r->p += r->p < r->end; /* the colon */
		if (this) {
			found = *r;
			*ret_key = start;
		}
	}
	*r = found;
	return found.p != NULL;
}

static bool enter_element(struct reader *r, unsigned long index)
{
	skip_space(r);
	if (!at(r, "["))
		return false;
	for (r->p++; more(r); skip_value(r)) {
		if (index-- == 0)
			return true;
	}
	return false;
}

static void count_lines(const char *text, const char *to, unsigned *line, unsigned *column)
{
	*line = *column = 1;
	for (const char *p = text; p < to; p++) {
		*column = *p == '\n' ? 1 : *column + ((*p & 0xc0) != 0x80);
		*line += *p == '\n';
	}
}

bool json_locate(const char *text, size_t len, const char *place, unsigned *ret_line, unsigned *ret_column)
{
	struct reader r = { text, text + len };
	size_t n = strcspn(place, "[:");
	const char *found = NULL, *inner = place[n] == ':' && place[n + 1] == ' ' ? place + n + 2 : NULL;
	struct reader within;

	if (!enter_member(&r, place, n, &found))
		return false;
	if (place[n] == '[') {
		if (!enter_element(&r, strtoul(place + n + 1, NULL, 10)))
			return false;
		found = r.p;
	}
	within = r;
	if (inner)
		(void)enter_member(&within, inner, strcspn(inner, ":"), &found);
	count_lines(text, found, ret_line, ret_column);
	return true;
}
