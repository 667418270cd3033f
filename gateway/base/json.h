/*
 * Strict JSON parsing with cJSON: errors name the position (line and column for syntax, a path such as "allow[3]"
 * otherwise); duplicate and unknown keys are errors.
 */
#ifndef AK_BASE_JSON_H
#define AK_BASE_JSON_H

#include "gateway/base/err.h"

#include <cjson/cJSON.h>
#include <stddef.h>
#include <stdbool.h>
#include <stdint.h>

/* Parse all LEN bytes. Syntax errors read "line 3, column 7: …"; duplicate keys at any depth are errors. */
int json_parse(const char *text, size_t len, cJSON **ret, struct ak_err *err);
#define JSON_DEPTH_MAX 100
#define JSON_VALUES_MAX (2u << 20)

/*
 * Find a place in the text of an object that json_parse has accepted: "allow[3]", "limits: connections" or "colour", as errors name
 * it. False if there is no such place. A member without an index is found at its key; of a key given twice, the second one.
 */
bool json_locate(const char *text, size_t len, const char *place, unsigned *ret_line, unsigned *ret_column);

/* Fail on the first key of OBJ that is not in the NULL-terminated list KNOWN. */
int json_check_keys(const cJSON *obj, const char *const *known, struct ak_err *err);

/*
 * Getters: return 1 and the value if KEY exists, 0 with *RET untouched if it is absent or null,
 * -EINVAL ("limits: must be a string") for a wrong type. Strings are borrowed from OBJ.
 */
int json_get_string(const cJSON *obj, const char *key, const char **ret, struct ak_err *err);
int json_get_uint(const cJSON *obj, const char *key, uint64_t max, uint64_t *ret, struct ak_err *err);
int json_get_bool(const cJSON *obj, const char *key, int *ret, struct ak_err *err);
int json_get_array(const cJSON *obj, const char *key, const cJSON **ret, struct ak_err *err);
int json_get_object(const cJSON *obj, const char *key, const cJSON **ret, struct ak_err *err);

/* For JSON that we wrote or only display: the text at KEY (borrowed), or OTHER if there is none. */
const char *json_text(const cJSON *obj, const char *key, const char *other);

/* The same for a whole number from 0 to 2^53 - 1, and for a boolean (false if absent). */
uint64_t json_number(const cJSON *obj, const char *key, uint64_t other);
bool json_truth(const cJSON *obj, const char *key);

void json_freep(cJSON **obj);
#define _cleanup_json_ __attribute__((cleanup(json_freep)))

/* Copy a list of strings as a NULL-terminated array; *RET stays NULL if KEY is absent. Errors name the position. */
int json_get_strings(const cJSON *obj, const char *key, char ***ret, struct ak_err *err);
void json_strings_free(char **list);
void json_strings_freep(char ***list);

#endif
