/* Strict JSON parsing: see json.h. */
#include "gateway/base/json.h"

#include "gateway/base/cleanup.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

const char *json_text(const cJSON *obj, const char *key, const char *other)
{
	const cJSON *item = cJSON_GetObjectItemCaseSensitive(obj, key);

	return cJSON_IsString(item) ? item->valuestring : other;
}

uint64_t json_number(const cJSON *obj, const char *key, uint64_t other)
{
	const cJSON *item = cJSON_GetObjectItemCaseSensitive(obj, key);
	double value = cJSON_IsNumber(item) ? item->valuedouble : -1;

	return value >= 0 && value < 9007199254740992.0 ? (uint64_t)value : other;
}

bool json_truth(const cJSON *obj, const char *key)
{
	return cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(obj, key));
}

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

/* Objects with up to this many keys are compared pairwise; larger ones are sorted. */
#define FEW_KEYS 16

static int twice(const char *key, struct ak_err *err)
{
	return ak_fail(err, EINVAL, "%s: key given twice", key);
}

static int cmp_keys(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Sort the keys, so that a large object costs n log n. */
static int check_many_keys(const cJSON *obj, size_t n, struct ak_err *err)
{
	const char **keys = reallocarray(NULL, n, sizeof(*keys));
	size_t i = 0;
	int rc = 0;

	if (!keys)
		return ak_fail(err, ENOMEM, "out of memory");
	for (const cJSON *c = obj->child; c; c = c->next)
		keys[i++] = c->string;
	qsort(keys, n, sizeof(*keys), cmp_keys);
	for (i = 1; i < n && rc == 0; i++) {
		if (!strcmp(keys[i - 1], keys[i]))
			rc = twice(keys[i], err);
	}
	free(keys);
	return rc;
}

static int check_keys_once(const cJSON *obj, struct ak_err *err)
{
	size_t n = 0;

	for (const cJSON *c = obj->child; c; c = c->next)
		n++;
	if (n > FEW_KEYS)
		return check_many_keys(obj, n, err);
	for (const cJSON *c = obj->child; c; c = c->next) {
		for (const cJSON *d = c->next; d; d = d->next) {
			if (!strcmp(c->string, d->string))
				return twice(c->string, err);
		}
	}
	return 0;
}

/* The recursion is limited by the depth limit of json_parse. */
static int check_duplicates(const cJSON *item, struct ak_err *err)
{
	int rc = cJSON_IsObject(item) ? check_keys_once(item, err) : 0;

	for (const cJSON *c = item->child; c && rc == 0; c = c->next) {
		if (c->child)
			rc = check_duplicates(c, err);
	}
	return rc;
}

/* Return the end of the string that starts at P, or END. */
static const char *skip_string(const char *p, const char *end)
{
	for (p++; p < end && *p != '"'; p++) {
		if (*p == '\\')
			p++;
	}
	return p < end ? p : end;
}

/* cJSON allocates about 64 bytes for every value: limit depth and number before parsing. */
static int check_size(const char *text, size_t len, struct ak_err *err)
{
	unsigned depth = 0, values = 0;

	for (const char *p = text, *end = text + len; p < end; p++) {
		if (*p == '"')
			p = skip_string(p, end);
		else if (*p == ',')
			values++;
		else if (*p == '[' || *p == '{')
			depth++, values++;
		else if ((*p == ']' || *p == '}') && depth > 0)
			depth--;
		if (p == end)
			break;
		if (depth > JSON_DEPTH_MAX)
			return fail_at(err, text, p, "nested too deeply");
		if (values > JSON_VALUES_MAX)
			return fail_at(err, text, p, "too many values");
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
	rc = check_size(text, len, err);
	if (rc < 0)
		return rc;
	obj = cJSON_ParseWithLengthOpts(text, len, &end, false);
	if (!obj)
		return fail_at(err, text, end ? end : text, "invalid JSON");
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

void json_strings_free(char **list)
{
	for (size_t i = 0; list && list[i]; i++)
		free(list[i]);
	free(list);
}

void json_strings_freep(char ***list)
{
	json_strings_free(*list);
}

int json_get_strings(const cJSON *obj, const char *key, char ***ret, struct ak_err *err)
{
	_cleanup_(json_strings_freep) char **list = NULL;
	const cJSON *array = NULL, *item;
	size_t n = 0;
	int rc = json_get_array(obj, key, &array, err);

	if (rc <= 0)
		return rc;
	list = calloc((size_t)cJSON_GetArraySize(array) + 1, sizeof(*list));
	if (!list)
		return ak_fail(err, ENOMEM, "out of memory");
	cJSON_ArrayForEach(item, array) {
		if (!cJSON_IsString(item))
			return ak_fail(err, EINVAL, "%s[%zu]: must be a string", key, n);
		list[n] = strdup(item->valuestring);
		if (!list[n++])
			return ak_fail(err, ENOMEM, "out of memory");
	}
	*ret = TAKE(list);
	return 1;
}
