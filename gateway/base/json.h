/*
 * Strict reading of JSON with cJSON: errors name the place (line and column for syntax, a path
 * such as "allow[3]" for meaning), duplicate and unknown keys are refused.
 */
#ifndef AK_BASE_JSON_H
#define AK_BASE_JSON_H

#include "gateway/base/err.h"

#include <cjson/cJSON.h>
#include <stddef.h>
#include <stdbool.h>
#include <stdint.h>

/* Parse LEN bytes, all of them; "line 3, column 7: …" on bad syntax; duplicate keys at any depth are errors. */
int json_parse(const char *text, size_t len, cJSON **ret, struct ak_err *err);
#define JSON_DEPTH_MAX 100
#define JSON_VALUES_MAX (2u << 20)

/* Fail on the first key of OBJ that is not in the NULL-terminated list KNOWN. */
int json_check_keys(const cJSON *obj, const char *const *known, struct ak_err *err);

/*
 * Getters: 1 and the value when KEY is there, 0 and *RET untouched when absent or null,
 * -EINVAL ("limits: must be a string") when its type is wrong. Strings are borrowed from OBJ.
 */
int json_get_string(const cJSON *obj, const char *key, const char **ret, struct ak_err *err);
int json_get_uint(const cJSON *obj, const char *key, uint64_t max, uint64_t *ret, struct ak_err *err);
int json_get_bool(const cJSON *obj, const char *key, int *ret, struct ak_err *err);
int json_get_array(const cJSON *obj, const char *key, const cJSON **ret, struct ak_err *err);
int json_get_object(const cJSON *obj, const char *key, const cJSON **ret, struct ak_err *err);

/* For what we wrote ourselves, or only show: the text at KEY, borrowed, or OTHER where there is none. */
const char *json_text(const cJSON *obj, const char *key, const char *other);

/* The same for a whole number from 0 to 2^53 - 1, and for true. */
uint64_t json_number(const cJSON *obj, const char *key, uint64_t other);
bool json_truth(const cJSON *obj, const char *key);

void json_freep(cJSON **obj);
#define _cleanup_json_ __attribute__((cleanup(json_freep)))

/* A string list of OBJ as a NULL-terminated array of its own; *RET stays NULL when KEY is absent. -EINVAL with the place. */
int json_get_strings(const cJSON *obj, const char *key, char ***ret, struct ak_err *err);
void json_strings_free(char **list);
void json_strings_freep(char ***list);

#endif
