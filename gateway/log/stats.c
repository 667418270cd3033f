/* What the gateway counts: see log/stats.h. */
#include "gateway/log/stats.h"

#include "gateway/base/cleanup.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

/* ---- times ---- */

const uint64_t net_bucket_us[NET_BUCKETS] = { 500, 1000, 2500, 5000, 10000, 25000, 50000, 100000, 250000, 1000000, 5000000,
	30000000 };

static const char *const timing_names[NET_TIMING_NUM] = {
	[NET_TIMING_FLOWS] = "flows",
	[NET_TIMING_DNS] = "dns",
	[NET_TIMING_DIAL] = "dial",
};

void net_histogram_add(struct net_histogram *h, uint64_t us)
{
	size_t i = 0;

	while (i < NET_BUCKETS && us > net_bucket_us[i])
		i++;
	h->buckets[i]++;
	h->sum_us += us;
}

/* ---- verdicts ---- */

static_assert(NET_REASON_NUM <= NET_REASONS, "room for each reason");

/* All of it is numbers of one type. */
#define N_COUNTS (sizeof(struct net_counts) / sizeof(uint64_t))
static_assert(sizeof(struct net_counts) == N_COUNTS * sizeof(uint64_t), "nothing but counts");

void net_counts_add(struct net_counts *sum, const struct net_counts *more)
{
	uint64_t *to = (uint64_t *)sum;
	const uint64_t *from = (const uint64_t *)more;

	for (size_t i = 0; i < N_COUNTS; i++)
		to[i] = from[i] < GW_COUNT_MAX - to[i] ? to[i] + from[i] : GW_COUNT_MAX;
}

void net_counts_max(struct net_counts *to, const struct net_counts *other)
{
	uint64_t *at = (uint64_t *)to;
	const uint64_t *from = (const uint64_t *)other;

	for (size_t i = 0; i < N_COUNTS; i++)
		at[i] = from[i] > at[i] ? from[i] : at[i];
}

bool net_counts_ok(const struct net_counts *c)
{
	const uint64_t *at = (const uint64_t *)c;

	for (size_t i = 0; i < N_COUNTS; i++) {
		if (at[i] > GW_COUNT_MAX)
			return false;
	}
	return true;
}

/* ---- the codec ---- */

static bool put_list(cJSON *obj, const char *key, const uint64_t *list, size_t n)
{
	cJSON *out = cJSON_AddArrayToObject(obj, key);

	for (size_t i = 0; out && i < n; i++) {
		cJSON *item = cJSON_CreateNumber((double)list[i]);

		if (!item || !cJSON_AddItemToArray(out, item)) {
			cJSON_Delete(item);
			return false;
		}
	}
	return out != NULL;
}

static bool put_verdicts(cJSON *obj, const char *key, const uint64_t list[static NET_REASONS])
{
	cJSON *out = cJSON_AddObjectToObject(obj, key);

	for (enum net_reason i = 0; out && i < NET_REASON_NUM; i++) {
		if (list[i] && !cJSON_AddNumberToObject(out, net_reason_text(i), (double)list[i]))
			return false;
	}
	return out != NULL;
}

cJSON *net_counts_to_json(const struct net_counts *c)
{
	_cleanup_json_ cJSON *obj = cJSON_CreateObject();
	bool ok = obj && put_verdicts(obj, "deny", c->verdicts[0]) && put_verdicts(obj, "allow", c->verdicts[1]) &&
		put_list(obj, "bytes", (const uint64_t[]){ c->bytes_out, c->bytes_in }, 2);

	for (size_t i = 0; ok && i < NET_TIMING_NUM; i++)
		ok = put_list(obj, timing_names[i], (const uint64_t *)&c->timings[i], NET_BUCKETS + 2);
	return ok ? TAKE(obj) : NULL;
}

static int get_number(const cJSON *item, const char *place, uint64_t *ret, struct ak_err *err)
{
	if (!cJSON_IsNumber(item) || !(item->valuedouble >= 0 && item->valuedouble <= (double)GW_COUNT_MAX))
		return ak_fail(err, EINVAL, "%s: not a count", place);
	*ret = (uint64_t)item->valuedouble;
	return 0;
}

static int get_list(const cJSON *obj, const char *key, uint64_t *list, size_t n, struct ak_err *err)
{
	const cJSON *in = NULL, *item;
	size_t i = 0;
	int rc = json_get_array(obj, key, &in, err);

	if (rc < 0)
		return rc;
	cJSON_ArrayForEach(item, in) {
		rc = i < n ? get_number(item, key, &list[i++], err) : ak_fail(err, EINVAL, "%s: more than %zu numbers", key, n);
		if (rc < 0)
			return rc;
	}
	return i == n ? 0 : ak_fail(err, EINVAL, "%s: %zu numbers in place of %zu", key, i, n);
}

static int get_verdicts(const cJSON *obj, const char *key, uint64_t list[static NET_REASONS], struct ak_err *err)
{
	const cJSON *in = NULL, *item;
	int rc = json_get_object(obj, key, &in, err);

	if (rc < 0)
		return rc;
	cJSON_ArrayForEach(item, in) {
		rc = get_number(item, key, &list[net_reason_of(item->string)], err);
		if (rc < 0)
			return rc;
	}
	return 0;
}

int net_counts_from_json(const cJSON *obj, struct net_counts *ret, struct ak_err *err)
{
	struct net_counts c = { 0 };
	uint64_t bytes[2] = { 0 };
	int rc = get_verdicts(obj, "deny", c.verdicts[0], err);

	if (rc == 0)
		rc = get_verdicts(obj, "allow", c.verdicts[1], err);
	if (rc == 0)
		rc = get_list(obj, "bytes", bytes, 2, err);
	for (size_t i = 0; rc == 0 && i < NET_TIMING_NUM; i++)
		rc = get_list(obj, timing_names[i], (uint64_t *)&c.timings[i], NET_BUCKETS + 2, err);
	if (rc < 0)
		return rc;
	c.bytes_out = bytes[0];
	c.bytes_in = bytes[1];
	*ret = c;
	return 0;
}
