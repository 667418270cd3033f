/* The two readers of JSON: what the strict parser builds, the scanner has passed; what is printed of it parses again; base64 turns back. */
#include "gateway/base/base64.h"
#include "gateway/base/cleanup.h"
#include "gateway/base/json.h"
#include "gateway/base/jsonscan.h"

#include <cjson/cJSON.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_getters(const cJSON *json)
{
	static const char *const known[] = { "a", "version", NULL };
	struct ak_err err;
	const char *text;
	const cJSON *item;
	uint64_t number;
	int flag;

	for (size_t i = 0; known[i]; i++) {
		(void)json_get_string(json, known[i], &text, &err);
		(void)json_get_uint(json, known[i], 1000, &number, &err);
		(void)json_get_bool(json, known[i], &flag, &err);
		(void)json_get_array(json, known[i], &item, &err);
		(void)json_get_object(json, known[i], &item, &err);
	}
	(void)json_check_keys(json, known, &err);
}

static void check_base64(const char *text, size_t size)
{
	_cleanup_strbuf_ struct strbuf again = { 0 };
	_cleanup_free_ char *bytes = NULL;
	struct ak_err err;
	size_t len;

	if (base64_decode(text, size, &bytes, &len, &err) < 0)
		return;
	base64_encode(&again, bytes, len);
	if (again.len != size || (size && memcmp(again.data, text, size) != 0))
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct json_bounds bounds = { .depth = 16, .members = 64, .values = 4096 };
	_cleanup_(json_freep) cJSON *json = NULL, *again = NULL;
	_cleanup_free_ char *copy = malloc(size ? size : 1), *text = NULL; /* its end is watched */
	struct ak_err err;
	bool nul = false;

	if (!copy)
		return 0;
	memcpy(copy, data, size);
	(void)json_scan(copy, size, &bounds, &nul, &err);
	check_base64(copy, size);
	if (json_parse(copy, size, &json, &err) < 0)
		return 0;
	if (cJSON_IsObject(json))
		check_getters(json);
	text = cJSON_PrintUnformatted(json);
	if (text && strlen(text) < 4096 && json_parse(text, strlen(text), &again, &err) < 0 &&
		json_scan(copy, size, &bounds, &nul, &err) == 0 && !nul)
		abort();
	return 0;
}
