/* Published ports in JSON: an array of strings in the form of --publish. */
#ifndef AK_STORE_PUBLISH_H
#define AK_STORE_PUBLISH_H

#include "gateway/base/json.h"
#include "gateway/base/publish.h"

/* False: out of memory. No member is added for an empty list. */
bool publish_put(cJSON *obj, const char *key, const struct ak_publish *list, size_t n);

/* Append the ports in OBJ's member KEY, which may be absent, to LIST of *N (room for AK_PUBLISH_MAX). */
int publish_get(const cJSON *obj, const char *key, struct ak_publish *list, size_t *n, struct ak_err *err);

#endif
