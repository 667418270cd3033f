/* Strict reading of JSON: see json.h. */
#include "gateway/base/json.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

void json_freep(cJSON **obj)
{
	cJSON_Delete(*obj);
}

static int fail_at(struct ak_err *err, const char *text, const char *at, const char *what)
{
	unsigned line = 1, column = 1;

	for (const char *p = text; p < at; p++) {
		if (*p == '\n') {
			line++;
			column = 1;
		} else {
			column++;
		}
	}
	return ak_fail(err, EINVAL, "line %u, column %u: %s", line, column, what);
}

static int check_duplicates(const cJSON *item, struct ak_err *err)
{
	for (const cJSON *c = item->child; c; c = c->next) {
		int rc;

		for (const cJSON *d = c->next; cJSON_IsObject(item) && d; d = d->next) {
			if (!strcmp(c->string, d->string))
				return ak_fail(err, EINVAL, "%s: key given twice", c->string);
		}
		rc = check_duplicates(c, err);
		if (rc < 0)
			return rc;
	}
	return 0;
}

int json_parse(const char *text, size_t len, cJSON **ret, struct ak_err *err)
{
	const char *end = text;
	_cleanup_json_ cJSON *obj = NULL;
	int rc;

	if (memchr(text, '\0', len))
		return fail_at(err, text, memchr(text, '\0', len), "NUL byte in JSON");
	obj = cJSON_ParseWithLengthOpts(text, len, &end, false);
	if (!obj)
		return fail_at(err, text, end ? end : text, "not valid JSON here");
	while (end < text + len && strchr(" \t\r\n", *end))
		end++;
	if (end < text + len)
		return fail_at(err, text, end, "text after the end of the JSON value");
	rc = check_duplicates(obj, err);
	if (rc < 0)
		return rc;
	*ret = obj;
	obj = NULL;
	return 0;
}

int json_check_keys(const cJSON *obj, const char *const *known, struct ak_err *err)
{
	for (const cJSON *c = obj->child; c; c = c->next) {
		bool found = false;

		for (const char *const *k = known; *k && !found; k++)
			found = !strcmp(*k, c->string);
		if (!found)
			return ak_fail(err, EINVAL, "%s: unknown key", c->string);
	}
	return 0;
}

static const cJSON *get(const cJSON *obj, const char *key)
{
	const cJSON *item = cJSON_GetObjectItemCaseSensitive(obj, key);

	return item && !cJSON_IsNull(item) ? item : NULL;
}

int json_get_string(const cJSON *obj, const char *key, const char **ret, struct ak_err *err)
{
	const cJSON *item = get(obj, key);

	if (!item)
		return 0;
	if (!cJSON_IsString(item))
		return ak_fail(err, EINVAL, "%s: must be a string", key);
	*ret = item->valuestring;
	return 1;
}

int json_get_uint(const cJSON *obj, const char *key, uint64_t max, uint64_t *ret, struct ak_err *err)
{
	const cJSON *item = get(obj, key);

	if (!item)
		return 0;
	if (!cJSON_IsNumber(item) || item->valuedouble < 0 || floor(item->valuedouble) != item->valuedouble)
		return ak_fail(err, EINVAL, "%s: must be a whole number of 0 or more", key);
	if (item->valuedouble > (double)max)
		return ak_fail(err, EINVAL, "%s: %.0f is more than %llu", key, item->valuedouble, (unsigned long long)max);
	*ret = (uint64_t)item->valuedouble;
	return 1;
}

int json_get_bool(const cJSON *obj, const char *key, int *ret, struct ak_err *err)
{
	const cJSON *item = get(obj, key);

	if (!item)
		return 0;
	if (!cJSON_IsBool(item))
		return ak_fail(err, EINVAL, "%s: must be true or false", key);
	*ret = cJSON_IsTrue(item);
	return 1;
}

int json_get_array(const cJSON *obj, const char *key, const cJSON **ret, struct ak_err *err)
{
	const cJSON *item = get(obj, key);

	if (!item)
		return 0;
	if (!cJSON_IsArray(item))
		return ak_fail(err, EINVAL, "%s: must be an array", key);
	*ret = item;
	return 1;
}

int json_get_object(const cJSON *obj, const char *key, const cJSON **ret, struct ak_err *err)
{
	const cJSON *item = get(obj, key);

	if (!item)
		return 0;
	if (!cJSON_IsObject(item))
		return ak_fail(err, EINVAL, "%s: must be an object", key);
	*ret = item;
	return 1;
}
