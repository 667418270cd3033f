/*
 * What a client asks the daemon for: a run, a change of its policy; and the state of one as it lies on the disk. What is taken has a name that
 * can be one, a command and absolute paths, and a run or a state that was read is written and read again as the same.
 *
 * Input: a byte that is not looked at, then the object.
 */
#include "tests/fuzz/fuzz.h"

#include "gateway/base/cleanup.h"
#include "gateway/daemon/internal.h"
#include "gateway/store/request.h"

static const struct ak_paths paths = { .state = "/nowhere", .runtime = "/nowhere", .config = "/nowhere", .data = AK_SOURCE_DIR };

static bool absolute(const char *path)
{
	return !path[0] || path[0] == '/';
}

/* What was read is written and read again as the same. */
static void check_run(const struct run_ask *a)
{
	static struct run_ask again;
	_cleanup_json_ cJSON *once = run_ask_to_json(&a->opts, &a->plan), *twice = NULL;
	struct ak_err err;

	again = (struct run_ask){ .obj = cJSON_Duplicate(once, true) };
	must(once && again.obj && run_ask_from_json(&again, &err) == 0);
	twice = run_ask_to_json(&again.opts, &again.plan);
	must(twice && cJSON_Compare(once, twice, true));
	run_ask_done(&again);
}

static void as_run(cJSON *obj)
{
	static struct run_ask a;
	struct ak_err err = { "" };
	int rc;

	a = (struct run_ask){ .obj = obj };
	rc = run_ask_from_json(&a, &err);
	must(rc == 0 || (rc < 0 && err.text[0]));
	if (rc == 0) {
		must(a.argv && a.argv[0] && ak_sandbox_name_ok(a.plan.name) && a.plan.network);
		check_run(&a);
		must(absolute(a.plan.home) && absolute(a.plan.project) && absolute(a.plan.workdir));
		for (size_t i = 0; i < a.plan.n_mounts; i++)
			must(a.plan.mounts[i].source[0] == '/' && a.plan.mounts[i].target[0] == '/');
		for (size_t i = 0; i < a.opts.n_edits; i++)
			must(a.opts.edits[i].text && a.opts.edits[i].op < POLICY_EDIT_NUM);
	}
	run_ask_done(&a);
}

static void check_state(const struct state_sandbox *s)
{
	_cleanup_(state_done) struct state_sandbox again = { 0 };
	_cleanup_json_ cJSON *once = state_to_json(s), *twice = NULL;
	struct ak_err err;

	must(s->n_edits <= STATE_EDITS_MAX && ak_sandbox_name_ok(s->name) && absolute(s->dir) && s->mode < AK_MODE_NUM &&
		s->profile < AK_PROFILE_NUM);
	must(once && state_from_json(once, &again, &err) == 0);
	twice = state_to_json(&again);
	must(twice && cJSON_Compare(once, twice, true));
}

static void as_state(const cJSON *obj)
{
	_cleanup_(state_done) struct state_sandbox s = { 0 };
	struct ak_err err = { "" };
	int rc = state_from_json(obj, &s, &err);

	must(rc == 0 || (rc < 0 && err.text[0]));
	if (rc == 0) {
		check_state(&s);
		(void)policy_edits_read(&paths, obj, &s, &err);
		check_state(&s);
	}
}

static void as_policy(const cJSON *obj)
{
	_cleanup_(state_done) struct state_sandbox s = { .name = "box", .generation = 1, .mode = AK_MODE_CODEX };
	struct ak_err err = { "" };
	int rc = policy_edits_read(&paths, obj, &s, &err);

	must(rc == 0 || (rc < 0 && err.text[0]));
	check_state(&s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = { data, size };
	_cleanup_json_ cJSON *obj = NULL;
	struct ak_err err;

	(void)take_byte(&in); /* the corpus begins with one */
	if (json_parse((const char *)in.data, in.len, &obj, &err) < 0 || !cJSON_IsObject(obj))
		return 0;
	as_policy(obj);
	as_state(obj);
	as_run(cJSON_Duplicate(obj, true));
	return 0;
}
