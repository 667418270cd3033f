/* Check field values. Words from the command line or a URL and JSON values share the same checks. See field/field.h. */
#include "gateway/field/internal.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/base/number.h"
#include "gateway/log/audit.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define CHOICES_MAX 256

int field_place(const struct field *f, enum field_front front, int rc, struct ak_err *err)
{
	return ak_err_prefix(err, rc, "%s%s", front == FIELD_CLI ? "--" : "", field_name(f, front));
}

/* ---- one value ---- */

static void add_choice(void *ctx, const char *word, size_t len)
{
	char *all = ctx;
	size_t used = strlen(all);

	snprintf(all + used, CHOICES_MAX - used, "%s%.*s", used ? ", " : "", (int)len, word);
}

static int check_choice(const struct field *f, const char *text, struct ak_err *err)
{
	char all[CHOICES_MAX] = "";

	if (field_is_word(f->choices, text))
		return 0;
	field_choices(f, add_choice, all);
	return ak_fail(err, EINVAL, "'%.100s' is not one of: %s", text, all);
}

/* Whether a policy of that name is installed is known only where the request is planned. */
static int check_mode(const struct field *f, const char *text, struct ak_err *err)
{
	char all[CHOICES_MAX] = "";

	if (ak_sandbox_name_ok(text))
		return 0;
	field_choices(f, add_choice, all);
	return ak_fail(err, EINVAL, "'%.100s' is neither one of %s nor the name of a policy", text, all);
}

static int check_length(const struct field *f, const char *text, struct ak_err *err)
{
	size_t len = strlen(text);

	if (len < f->min)
		return ak_fail(err, EINVAL, "is empty");
	return f->max && len > f->max ? ak_fail(err, EINVAL, "longer than %llu bytes", (unsigned long long)f->max) : 0;
}

static int check_path(const struct field *f, enum field_front front, const char *text, struct ak_err *err)
{
	int rc = check_length(f, text, err);

	if (rc < 0 || *text == '/' || (f->kind == KIND_DIR && front == FIELD_CLI))
		return rc;
	return ak_fail(
		err, EINVAL, "'%.100s': must be an absolute path%s", text, f->kind == KIND_PATH ? " inside the sandbox" : "");
}

/* K alone copies a variable of this process. Only the command line may ask for that: a client must not read the variables of a server. */
static int check_pair(enum field_front front, const char *text, struct ak_err *err)
{
	const char *eq = strchr(text, '=');

	if (!*text || eq == text || (!eq && front != FIELD_CLI))
		return ak_fail(err, EINVAL, "'%.100s': must be KEY=VALUE%s", text, front == FIELD_CLI ? " or KEY" : "");
	return 0;
}

static int check_name(const char *text, struct ak_err *err)
{
	if (ak_sandbox_name_ok(text))
		return 0;
	return ak_fail(err, EINVAL, "'%.64s' is not a name: 1 to 63 of A-Z a-z 0-9 _ -, a letter or digit at both ends", text);
}

static int check_policy(enum field_front front, const char *text, struct ak_err *err)
{
	static const struct field path = { .min = 1, .max = PATH_MAX - 1 };
	int rc = check_length(&path, text, err);

	if (rc < 0 || ak_sandbox_name_ok(text))
		return rc;
	if (!policy_is_file(text))
		return ak_fail(err, EINVAL, "'%.64s' is neither the name of a policy nor a file that ends in .json", text);
	if (front != FIELD_CLI && text[0] != '/')
		return ak_fail(err, EINVAL, "'%.100s': the path of a policy file must be absolute", text);
	return 0;
}

static int check_text(
	const struct field *f, enum field_front front, const char *text, struct field_value *ret, struct ak_err *err)
{
	static const struct field rule = { .min = 1, .max = 300 }, mount = { .min = 1, .max = 2 * PATH_MAX };
	int rc = 0;

	ret->text = text;
	if (f->kind == KIND_CHOICE)
		return check_choice(f, text, err);
	if (f->kind == KIND_MODE)
		return check_mode(f, text, err);
	if (f->kind == KIND_NAME)
		return check_name(text, err);
	if (f->kind == KIND_POLICIES)
		return check_policy(front, text, err);
	if (f->kind == KIND_PATH || f->kind == KIND_DIR)
		return check_path(f, front, text, err);
	if (f->kind == KIND_VARIABLES)
		return check_pair(front, text, err);
	rc = check_length(f->kind == KIND_RULES ? &rule : f->kind == KIND_MOUNTS ? &mount : f, text, err);
	if (rc == 0 && f->kind == KIND_TIME)
		rc = audit_parse_since(text, ak_wall_us(), &ret->number, err);
	return rc;
}

/* ---- numbers: with units on the command line; whole numbers of MiB or milliseconds in JSON ---- */

static const char *size_text(uint64_t bytes, char buf[static 32])
{
	unsigned shift = bytes >= 1ull << 40 ? 40 : bytes >= 1u << 20 ? 20 : 10;

	snprintf(buf, 32, "%llu%s", (unsigned long long)(bytes >> shift), shift == 40 ? "T" : shift == 20 ? "M" : "K");
	return buf;
}

static int check_range(const struct field *f, const char *text, uint64_t n, struct ak_err *err)
{
	char low[32], high[32];

	if (n >= f->min && n <= f->max)
		return 0;
	if (f->kind == KIND_SIZE)
		return ak_fail(
			err, EINVAL, "'%.100s': must be from %s to %s", text, size_text(f->min, low), size_text(f->max, high));
	if (f->kind == KIND_DURATION)
		return ak_fail(err, EINVAL, "'%.100s': must be from %llums to %llud", text, (unsigned long long)f->min,
			(unsigned long long)f->max / 86400000);
	return ak_fail(err, EINVAL, "'%.100s': must be a whole number from %llu to %llu", text, (unsigned long long)f->min,
		(unsigned long long)f->max);
}

static int parse_number(const struct field *f, enum field_front front, const char *word, uint64_t *ret, struct ak_err *err)
{
	unsigned long long n = 0;
	int rc;

	if (f->kind == KIND_SIZE && front == FIELD_CLI)
		rc = ak_parse_size(word, &n, err);
	else if (f->kind == KIND_DURATION && front == FIELD_CLI)
		rc = ak_parse_duration(word, &n, err);
	else
		rc = ak_parse_count(word, 0, UINT64_MAX, &n, err);
	if (rc == 0)
		rc = check_range(f, word, n, err);
	if (rc < 0)
		return -EINVAL;
	*ret = n;
	return 0;
}

static int check_number(const struct field *f, const cJSON *v, uint64_t *ret, struct ak_err *err)
{
	uint64_t unit = f->kind == KIND_SIZE ? 1u << 20 : 1, min = f->min / unit, max = f->max / unit;
	double n = v->valuedouble;

	if (!cJSON_IsNumber(v) || floor(n) != n || n < (double)min || n > (double)max)
		return ak_fail(err, EINVAL, "must be a whole number from %llu to %llu", (unsigned long long)min,
			(unsigned long long)max);
	*ret = (uint64_t)n * unit;
	return 0;
}

static int parse_flag(const struct field *f, enum field_front front, const char *word, bool *ret, struct ak_err *err)
{
	static const struct {
		const char *word;
		bool flag;
	} words[] = { { "", true }, { "1", true }, { "true", true }, { "0", false }, { "false", false } };

	*ret = !f->negated;
	if (front == FIELD_CLI)
		return 0;
	for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
		if (!strcmp(word, words[i].word)) {
			*ret = words[i].flag;
			return 0;
		}
	}
	return ak_fail(err, EINVAL, "must be 1 or 0");
}

int field_parse(const struct field *f, enum field_front front, const char *word, struct field_value *ret, struct ak_err *err)
{
	int rc;

	*ret = (struct field_value){ .text = word };
	if (f->never)
		rc = ak_fail(err, EINVAL, "must be false: %s", f->never);
	else if (f->kind == KIND_BOOL)
		rc = parse_flag(f, front, word, &ret->flag, err);
	else if (f->kind == KIND_COUNT || f->kind == KIND_SIZE || f->kind == KIND_DURATION)
		rc = parse_number(f, front, word, &ret->number, err);
	else
		rc = check_text(f, front, word, ret, err);
	return rc < 0 ? field_place(f, front, rc, err) : 0;
}

/* ---- JSON ---- */

static int set(const struct field_sink *sink, const struct field *f, enum field_front front, const struct field_value *v,
	struct ak_err *err)
{
	return sink ? field_set(sink->o, f, front, v, err) : 0;
}

static int check_items(const struct field *f, const cJSON *list, struct ak_err *err)
{
	uint64_t n = (uint64_t)cJSON_GetArraySize(list);

	if (n < f->min)
		return ak_fail(err, EINVAL, "%s: is empty", f->name);
	return f->max && n > f->max ? ak_fail(err, EINVAL, "%s: more than %llu", f->name, (unsigned long long)f->max) : 0;
}

/* ITEM is number I of a list, or a named member of an object. */
static int take_item(const struct field *f, enum field_front front, const cJSON *item, size_t i, const struct field_sink *sink,
	struct ak_err *err)
{
	struct field_value v = { .text = item->valuestring };
	int rc = 0;

	if (f->kind == KIND_MOUNTS && (rc = field_put_mount(sink, item, err)) < 0)
		return ak_err_prefix(err, rc, "%s[%zu]", f->name, i);
	if (f->kind == KIND_MOUNTS)
		return 0;
	if (!cJSON_IsString(item) && item->string)
		return ak_fail(err, EINVAL, "%s.%.60s: must be a string", f->name, item->string);
	if (!cJSON_IsString(item))
		return ak_fail(err, EINVAL, "%s[%zu]: must be a string", f->name, i);
	if (f->kind == KIND_VARIABLES && item->string) {
		if (!*item->string || strchr(item->string, '='))
			return ak_fail(err, EINVAL, "%s: '%.100s' is not the name of a variable", f->name, item->string);
		return sink ? field_put_pair(sink, f, item->string, item->valuestring, err) : 0;
	}
	if (f->kind == KIND_STRINGS)
		rc = i == 0 && !*item->valuestring ? ak_fail(err, EINVAL, "is empty") : 0;
	else if (f->kind != KIND_TEXTS)
		rc = check_text(f, front, item->valuestring, &v, err);
	if (rc < 0)
		return ak_err_prefix(err, rc, "%s[%zu]", f->name, i);
	return f->kind == KIND_STRINGS || f->kind == KIND_TEXTS ? 0 : set(sink, f, front, &v, err);
}

static int take_list(
	const struct field *f, enum field_front front, const cJSON *list, const struct field_sink *sink, struct ak_err *err)
{
	const cJSON *item;
	size_t i = 0;
	int rc = check_items(f, list, err);

	if (rc < 0)
		return rc;
	cJSON_ArrayForEach(item, list) {
		rc = take_item(f, front, item, i++, sink, err);
		if (rc < 0)
			return rc;
	}
	return sink && f->kind == KIND_STRINGS ? field_put_argv(sink, list, err) : 0;
}

static int take_runs(const struct field *f, enum field_front front, const cJSON *list, struct ak_err *err)
{
	const cJSON *item;
	size_t i = 0;

	cJSON_ArrayForEach(item, list) {
		int rc = cJSON_IsObject(item) ? fields_check(VERB_RUN, front, item, err)
					      : ak_fail(err, EINVAL, "must be an object");

		if (rc < 0)
			return ak_err_prefix(err, rc, "%s[%zu]", f->name, i);
		i++;
	}
	return check_items(f, list, err);
}

static int take_value(
	const struct field *f, enum field_front front, const cJSON *v, const struct field_sink *sink, struct ak_err *err)
{
	struct field_value value = { .flag = cJSON_IsTrue(v) };
	int rc;

	if (f->never && !cJSON_IsFalse(v))
		rc = ak_fail(err, EINVAL, "must be false: %s", f->never);
	else if (f->kind == KIND_BOOL)
		rc = cJSON_IsBool(v) ? 0 : ak_fail(err, EINVAL, "must be true or false");
	else if (f->kind == KIND_COUNT || f->kind == KIND_SIZE || f->kind == KIND_DURATION)
		rc = check_number(f, v, &value.number, err);
	else if (!cJSON_IsString(v))
		rc = ak_fail(err, EINVAL, "must be a string");
	else
		rc = check_text(f, front, v->valuestring, &value, err);
	return rc < 0 ? field_place(f, front, rc, err) : set(sink, f, front, &value, err);
}

static int take_member(
	const struct field *f, enum field_front front, const cJSON *v, const struct field_sink *sink, struct ak_err *err)
{
	/* The JSON forms that each list kind accepts. */
	static const struct {
		bool array, object;
		const char *wanted;
	} forms[KIND_NUM] = {
		[KIND_STRINGS] = { true, false, "an array of strings" },
		[KIND_RULES] = { true, false, "an array of strings" },
		[KIND_POLICIES] = { true, false, "an array of strings" },
		[KIND_VARIABLES] = { true, true, "an object of strings or an array of K=V strings" },
		[KIND_MOUNTS] = { true, false, "an array of objects" },
		[KIND_TEXTS] = { false, true, "an object of strings" },
		[KIND_RUNS] = { true, false, "an array of objects" },
	};
	/* The MCP schema describes only the object form of variables. */
	enum field_kind kind = f->kind == KIND_VARIABLES && front == FIELD_MCP ? KIND_TEXTS : f->kind;

	if (!forms[kind].wanted)
		return take_value(f, front, v, sink, err);
	if (!(forms[kind].array && cJSON_IsArray(v)) && !(forms[kind].object && cJSON_IsObject(v)))
		return ak_fail(err, EINVAL, "%s: must be %s", f->name, forms[kind].wanted);
	return kind == KIND_RUNS ? take_runs(f, front, v, err) : take_list(f, front, v, sink, err);
}

int fields_walk(enum field_verb verb, enum field_front front, const cJSON *obj, const struct field_sink *sink, struct ak_err *err)
{
	const cJSON *item;

	cJSON_ArrayForEach(item, obj) {
		const struct field_use *u = field_find(verb, front, item->string, strlen(item->string));
		int rc = 0;

		if (!u)
			return ak_fail(err, EINVAL, "%.60s: unknown %s", item->string, front == FIELD_MCP ? "argument" : "field");
		if (!cJSON_IsNull(item))
			rc = take_member(&field_table[u->id], front, item, sink, err);
		if (rc < 0)
			return rc;
	}
	field_each(u, verb, front) {
		item = cJSON_GetObjectItemCaseSensitive(obj, field_table[u->id].name);
		if (u->fronts & FIELD_REQUIRED && (!item || cJSON_IsNull(item)))
			return ak_fail(err, EINVAL, "%s: is missing", field_table[u->id].name);
	}
	return 0;
}

int fields_check(enum field_verb verb, enum field_front front, const cJSON *obj, struct ak_err *err)
{
	return fields_walk(verb, front, obj, NULL, err);
}
