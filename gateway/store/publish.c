/* Published ports in JSON: see store/publish.h. */
#include "gateway/store/publish.h"

#include "gateway/base/cleanup.h"

#include <errno.h>

bool publish_put(cJSON *obj, const char *key, const struct ak_publish *list, size_t n)
{
	cJSON *array = n ? cJSON_AddArrayToObject(obj, key) : NULL;
	bool ok = array || !n;

	for (size_t i = 0; ok && i < n; i++) {
		char text[AK_PUBLISH_TEXT];
		cJSON *item = cJSON_CreateString(ak_publish_print(&list[i], text));

		ok = item && cJSON_AddItemToArray(array, item);
	}
	return ok;
}

int publish_get(const cJSON *obj, const char *key, struct ak_publish *list, size_t *n, struct ak_err *err)
{
	_cleanup_(json_strings_freep) char **texts = NULL;
	struct ak_publish p;
	int rc = json_get_strings(obj, key, &texts, err);

	for (size_t i = 0; rc > 0 && texts[i]; i++) {
		rc = ak_publish_parse(texts[i], &p, err);
		if (rc == 0)
			rc = ak_publish_add(list, n, &p, err);
		if (rc < 0)
			return ak_err_prefix(err, rc, "%s[%zu]", key, i);
		rc = 1;
	}
	return rc < 0 ? rc : 0;
}
