/* The table of fields: that every row is whole, that all front ends hold values to the same limits, and that schemas say what the checks do. */
#include "gateway/field/field.h"

#include "gateway/base/cleanup.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static bool is_numeric(const struct field *f)
{
	return f->kind == KIND_COUNT || f->kind == KIND_SIZE || f->kind == KIND_DURATION;
}

static void every_row_is_whole(void **state)
{
	for (size_t i = 0; i < FIELD_NUM; i++) {
		const struct field *f = &field_table[i];

		if (!(f->name || f->option) || !f->help || !*f->help)
			fail_msg("row %zu has no name or no words", i);
		assert_true((f->kind == KIND_CHOICE || f->kind == KIND_MODE) == (f->choices != NULL));
		assert_true(!is_numeric(f) || f->max > f->min);
		assert_true(!f->set || !f->at);
		assert_true(!f->option || f->kind == KIND_BOOL || field_arg(f));
		assert_true(f->max == 0 || f->min <= f->max);
	}
}

static void every_field_is_used_and_no_verb_has_a_name_twice(void **state)
{
	bool used[FIELD_NUM] = { false };

	for (int front = 0; front < FIELD_FRONT_NUM; front++) {
		for (int verb = 0; verb < VERB_NUM; verb++) {
			field_each(u, (enum field_verb)verb, (enum field_front)front) {
				const char *name = field_name(&field_table[u->id], (enum field_front)front);

				used[u->id] = true;
				assert_non_null(name);
				assert_ptr_equal(
					field_find((enum field_verb)verb, (enum field_front)front, name, strlen(name)), u);
			}
		}
	}
	for (size_t i = 0; i < FIELD_NUM; i++) {
		if (!used[i])
			fail_msg("no verb takes row %zu", i);
	}
}

struct counted {
	size_t n, known;
	const char *(*name)(int i);
	int max;
};

static const char *mode_name(int i)
{
	return ak_mode_name((enum ak_mode)i);
}

static const char *profile_name(int i)
{
	return ak_profile_name((enum ak_profile)i);
}

static void count(void *ctx, const char *word, size_t len)
{
	struct counted *c = ctx;

	c->n++;
	for (int i = 0; i < c->max; i++)
		c->known += strlen(c->name(i)) == len && !strncmp(c->name(i), word, len);
}

static void the_choices_are_the_modes_and_profiles_that_there_are(void **state)
{
	struct counted modes = { .name = mode_name, .max = AK_MODE_OWN },
		       profiles = { .name = profile_name, .max = AK_PROFILE_NUM };

	field_choices(&field_table[FIELD_MODE], count, &modes);
	field_choices(&field_table[FIELD_PROFILE], count, &profiles);
	assert_true(modes.n == AK_MODE_OWN && modes.known == AK_MODE_OWN);
	assert_true(profiles.n == AK_PROFILE_NUM && profiles.known == AK_PROFILE_NUM);
}

/* ---- words and JSON: the same limits ---- */

static int parse_json(const struct field *f, const char *json, char reason[static AK_ERR_MAX])
{
	_cleanup_strbuf_ struct strbuf text = { 0 };
	_cleanup_json_ cJSON *obj = NULL;
	struct ak_err err = { "" };
	int rc;

	strbuf_printf(&text, "{\"command\":[\"x\"],\"%s\":%s}", f->name, json);
	obj = cJSON_Parse(text.data);
	assert_non_null(obj);
	rc = fields_check(VERB_RUN, FIELD_HTTP, obj, &err);
	snprintf(reason, AK_ERR_MAX, "%s", err.text);
	return rc;
}

static void a_word_and_a_json_value_have_the_same_limits_and_reasons_name_the_place(void **state)
{
	static const struct {
		enum field_id id;
		const char *word, *json;
		const char *word_says, *json_says; /* NULL: right */
	} vectors[] = {
		{ FIELD_MEMORY, "4M", "4", NULL, NULL },
		{ FIELD_MEMORY, "16T", "16777216", NULL, NULL },
		{ FIELD_MEMORY, "3M", "3", "--memory: '3M': must be from 4M to 16T",
			"memory_mb: must be a whole number from 4 to 16777216" },
		{ FIELD_MEMORY, "17T", "16777217", "--memory: '17T': must be from 4M to 16T",
			"memory_mb: must be a whole number from 4 to 16777216" },
		{ FIELD_TIMEOUT, "1ms", "1", NULL, NULL },
		{ FIELD_TIMEOUT, "366d", "31622400000", NULL, NULL },
		{ FIELD_TIMEOUT, "0", "0", "--timeout: '0': must be from 1ms to 366d",
			"timeout_ms: must be a whole number from 1 to 31622400000" },
		{ FIELD_TIMEOUT, "367d", "31622400001", "--timeout: '367d': must be from 1ms to 366d",
			"timeout_ms: must be a whole number from 1 to 31622400000" },
		{ FIELD_TIMEOUT, "soon", "\"soon\"", "--timeout: 'soon' is not a duration (write for example 30s, 10m or 1h30m)",
			"timeout_ms: must be a whole number from 1 to 31622400000" },
		{ FIELD_VCPUS, "1024", "1024", NULL, NULL },
		{ FIELD_VCPUS, "1025", "1025", "--vcpus: '1025': must be a whole number from 1 to 1024",
			"vcpus: must be a whole number from 1 to 1024" },
		{ FIELD_PIDS, "1.5", "1.5", "--pids: '1.5' is not a whole number",
			"pids: must be a whole number from 1 to 4194304" },
		{ FIELD_MODE, "codex", "\"codex\"", NULL, NULL },
		{ FIELD_MODE, "mine", "\"mine\"", NULL, NULL },
		{ FIELD_MODE, "g.pt", "\"g.pt\"",
			"--compatibility-mode: 'g.pt' is neither one of claude, codex, gemini, native, opencode nor the name of a policy",
			"compatibility_mode: 'g.pt' is neither one of claude, codex, gemini, native, opencode nor the name of a policy" },
		{ FIELD_ADD_POLICY, "mine", "[\"mine\"]", NULL, NULL },
		{ FIELD_ADD_POLICY, "mine.json", "[\"/a/mine.json\"]", NULL, NULL },
		{ FIELD_ADD_POLICY, "m.ine", "[\"mine\",\"./mine.json\"]",
			"--policy: 'm.ine' is neither the name of a policy nor a file that ends in .json",
			"policies[1]: './mine.json': the path of a policy file must be absolute" },
		{ FIELD_PROFILE, "", "\"\"", "--profile: '' is not one of: permissive, moderate, restrictive",
			"profile: '' is not one of: permissive, moderate, restrictive" },
		{ FIELD_ALLOW_HOST, "a.example", "[\"a.example\"]", NULL, NULL },
		{ FIELD_ALLOW_HOST, "", "[\"a.example\",\"\"]", "--allow-host: is empty", "allow[1]: is empty" },
		{ FIELD_ENV, "A=B", "[\"A=B\"]", NULL, NULL },
		{ FIELD_ENV, "=B", "[\"=B\"]", "--env: '=B': must be KEY=VALUE or KEY", "env[0]: '=B': must be KEY=VALUE" },
		{ FIELD_IMAGE, "alpine", "\"alpine\"", NULL, NULL },
	};

	for (size_t i = 0; i < ARRAY_SIZE(vectors); i++) {
		const struct field *f = &field_table[vectors[i].id];
		struct field_value value;
		struct ak_err err = { "" };
		char reason[AK_ERR_MAX];
		int rc = field_parse(f, FIELD_CLI, vectors[i].word, &value, &err);

		assert_int_equal(rc < 0, vectors[i].word_says != NULL);
		assert_string_equal(err.text, vectors[i].word_says ? vectors[i].word_says : "");
		rc = parse_json(f, vectors[i].json, reason);
		assert_int_equal(rc < 0, vectors[i].json_says != NULL);
		assert_string_equal(reason, vectors[i].json_says ? vectors[i].json_says : "");
	}
}

static void a_body_becomes_the_request_that_the_same_options_become(void **state)
{
	static const char body[] =
		"{\"command\":[\"ls\",\"-l\"],\"compatibility_mode\":\"codex\",\"profile\":\"restrictive\",\"network\":false,\"memory_mb\":512,"
		"\"vcpus\":2,\"pids\":7,\"timeout_ms\":30000,\"env\":{\"A\":\"1\"},\"allow\":[\"a.example\"],\"deny_cidr\":[\"10.0.0.0/8\"],\"image\":null}";
	static const struct {
		enum field_id id;
		const char *word;
	} words[] = { { FIELD_MODE, "codex" }, { FIELD_PROFILE, "restrictive" }, { FIELD_NETWORK, NULL },
		{ FIELD_MEMORY, "512M" }, { FIELD_VCPUS, "2" }, { FIELD_PIDS, "7" }, { FIELD_TIMEOUT, "30s" },
		{ FIELD_ENV, "A=1" }, { FIELD_ALLOW_HOST, "a.example" }, { FIELD_BLOCK_CIDR, "10.0.0.0/8" } };
	_cleanup_(field_mem_done) struct field_mem mem = { 0 };
	_cleanup_json_ cJSON *obj = cJSON_Parse(body);
	struct run_request *json = calloc(1, sizeof(*json)), *cli = calloc(1, sizeof(*cli));
	struct ak_err err;

	assert_int_equal(fields_decode(VERB_RUN, FIELD_HTTP, obj, json, &mem, &err), 0);
	for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
		struct field_value v;

		assert_int_equal(field_parse(&field_table[words[i].id], FIELD_CLI, words[i].word, &v, &err), 0);
		assert_int_equal(field_set(cli, &field_table[words[i].id], FIELD_CLI, &v, &err), 0);
	}
	assert_string_equal(json->argv[1], "-l");
	assert_null(json->argv[2]);
	assert_int_equal(cli->n_env, 1);
	assert_int_equal(cli->n_edits, 2);
	assert_string_equal(cli->env[0], json->env[0]);
	for (size_t i = 0; i < 2; i++) {
		assert_int_equal(cli->edits[i].op, json->edits[i].op);
		assert_string_equal(cli->edits[i].text, json->edits[i].text);
		cli->edits[i].text = json->edits[i].text;
	}
	cli->env[0] = json->env[0];
	cli->argv = json->argv;
	assert_memory_equal(cli, json, sizeof(*cli));
	assert_true(json->no_network && json->limits.memory_bytes == 512u << 20 && json->timeout_ms == 30000);
	free(json);
	free(cli);
}

static void a_list_is_cut_off_by_an_error_not_silently(void **state)
{
	struct run_request *o = calloc(1, sizeof(*o));
	struct field_value v = { .text = "A=1" };
	struct ak_err err;

	for (size_t i = 0; i < PLAN_LIST_MAX; i++)
		assert_int_equal(field_set(o, &field_table[FIELD_ENV], FIELD_CLI, &v, &err), 0);
	assert_true(field_set(o, &field_table[FIELD_ENV], FIELD_CLI, &v, &err) < 0);
	assert_string_equal(err.text, "--env: more than 256 variables");
	free(o);
}

/* A server's own variables are nobody's business: a name without a value is for the command line only. */
static void only_the_command_line_passes_variables_on(void **state)
{
	char reason[AK_ERR_MAX];
	struct field_value v;
	struct ak_err err;

	assert_int_equal(field_parse(&field_table[FIELD_ENV], FIELD_CLI, "HOME", &v, &err), 0);
	assert_true(parse_json(&field_table[FIELD_ENV], "[\"HOME\"]", reason) < 0);
	assert_true(parse_json(&field_table[FIELD_ENV], "{\"HOME=x\":\"\"}", reason) < 0);
	assert_string_equal(reason, "env: 'HOME=x' is not the name of a variable");
}

/* No tool widens the network, mounts a folder or passes on a key. */
static void tools_have_no_field_that_widens_anything(void **state)
{
	static const enum field_id never[] = { FIELD_ALLOW_HOST, FIELD_ALLOW_CIDR, FIELD_BLOCK_HOST, FIELD_DEFAULT, FIELD_RESET,
		FIELD_REMOVE_RULE, FIELD_FOR, FIELD_DIR, FIELD_BROAD_DIR, FIELD_PROJECT_WRITABLE, FIELD_NESTED,
		FIELD_PASS_API_KEY, FIELD_KEEP, FIELD_OPEN_TO_MCP };

	for (int verb = 0; verb < VERB_NUM; verb++) {
		field_each(u, (enum field_verb)verb, FIELD_MCP) {
			for (size_t i = 0; i < ARRAY_SIZE(never); i++)
				assert_int_not_equal(u->id, never[i]);
		}
	}
}

/* ---- schemas ---- */

static void schemas_are_json_and_tell_the_limits(void **state)
{
	for (int verb = 0; verb < VERB_NUM; verb++) {
		for (int front = FIELD_HTTP; front < FIELD_FRONT_NUM; front++) {
			_cleanup_strbuf_ struct strbuf text = { 0 };
			_cleanup_json_ cJSON *schema = NULL;
			const cJSON *properties;

			fields_schema(&text, (enum field_verb)verb, (enum field_front)front);
			schema = cJSON_Parse(text.data);
			assert_non_null(schema);
			properties = cJSON_GetObjectItemCaseSensitive(schema, "properties");
			field_each(u, (enum field_verb)verb, (enum field_front)front) {
				const cJSON *p = cJSON_GetObjectItemCaseSensitive(properties, field_table[u->id].name);
				uint64_t unit = field_table[u->id].kind == KIND_SIZE ? 1u << 20 : 1;

				assert_true(strlen(json_text(p, "description", "")) > 0);
				if (is_numeric(&field_table[u->id]))
					assert_int_equal(json_number(p, "maximum", 0), field_table[u->id].max / unit);
			}
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_row_is_whole),
		cmocka_unit_test(every_field_is_used_and_no_verb_has_a_name_twice),
		cmocka_unit_test(the_choices_are_the_modes_and_profiles_that_there_are),
		cmocka_unit_test(a_word_and_a_json_value_have_the_same_limits_and_reasons_name_the_place),
		cmocka_unit_test(a_body_becomes_the_request_that_the_same_options_become),
		cmocka_unit_test(a_list_is_cut_off_by_an_error_not_silently),
		cmocka_unit_test(only_the_command_line_passes_variables_on),
		cmocka_unit_test(tools_have_no_field_that_widens_anything),
		cmocka_unit_test(schemas_are_json_and_tell_the_limits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
