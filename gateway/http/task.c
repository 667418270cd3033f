/* What the body of a command means, and the worker that runs it. See http/task.h. */
#include "gateway/http/task.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/base/say.h"
#include "gateway/log/audit.h"
#include "gateway/service/service.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- /run ---- */

/* The strings stay the body's and MEM's. */
static int fill_opts(const struct http_task *t, struct run_request *o, struct field_mem *mem, struct ak_err *err)
{
	int rc;

	*o = (struct run_request){
		.mode = AK_MODE_NATIVE, .profile = AK_PROFILE_MODERATE, .name = t->name, .origin = RUN_ORIGIN_HTTP, .quiet = true
	};
	rc = fields_decode(VERB_RUN, FIELD_HTTP, t->spec, o, mem, err);
	if (rc < 0)
		return rc;
	if (json_truth(t->spec, "network") && !ak_profile_network(o->profile))
		return ak_fail(err, EINVAL, "network: the profile %s has none", ak_profile_name(o->profile));
	/* Only what the mode mounts anyway is taken from the host: a place to start in must not become a mount. */
	if (o->mode != AK_MODE_NATIVE || o->profile == AK_PROFILE_PERMISSIVE)
		o->dir = TAKE(o->workdir);
	return 0;
}

int http_task_check(struct http_task *t, struct ak_err *err)
{
	_cleanup_(field_mem_done) struct field_mem mem = { 0 };
	struct run_request *o = malloc(sizeof(*o));
	int rc = o ? fill_opts(t, o, &mem, err) : ak_fail(err, ENOMEM, "out of memory");

	if (rc == 0)
		t->mode = o->mode;
	free(o);
	return rc;
}

/* ---- what the network saw ---- */

/* A second line: the log at PATH, summed up. */
static void put_tally(struct strbuf *out, const char *path)
{
	struct http_tally tally = { 0 };
	struct audit_reader r;
	struct ak_err err;
	char *line;
	bool whole;
	size_t len;

	if (audit_reader_open(&r, path, &err) < 0)
		return;
	while (audit_reader_next(&r, true, &line, &len, &whole) > 0) {
		if (whole)
			http_tally_line(&tally, line, len);
	}
	audit_reader_done(&r);
	strbuf_putc(out, '\n');
	http_tally_put(out, &tally);
}

void http_task_stats(struct http_stats *st, enum ak_mode mode, const char *json, size_t len)
{
	_cleanup_json_ cJSON *obj = cJSON_ParseWithLength(json, len);

	http_stats_add(st, mode, obj);
}

/* ---- in the worker ---- */

static void say_run(const struct run_report *r, struct http_work *w)
{
	_cleanup_strbuf_ struct strbuf out = { 0 };
	const struct run_outcome *o = &r->outcome;
	char dir[PATH_MAX], path[PATH_MAX];

	strbuf_printf(&out,
		"{\"exit_code\":%d,\"duration_ms\":%llu,\"timed_out\":%s,\"out_of_memory\":%s,\"sandbox\":", o->exit_code,
		(unsigned long long)o->duration_ms, o->timed_out ? "true" : "false", o->out_of_memory ? "true" : "false");
	strbuf_json(&out, r->name);
	strbuf_printf(&out, ",\"network\":{\"allowed\":%llu,\"denied\":%llu}}", (unsigned long long)o->net.allowed,
		(unsigned long long)o->net.denied);
	if (o->net.allowed + o->net.denied > 0 && ak_path_join(dir, w->paths->state, "runs", r->name) == 0 &&
		ak_path_join(path, dir, "network.jsonl", NULL) == 0)
		put_tally(&out, path);
	if (!out.failed)
		http_work_data(w, 200, out.data, out.len);
}

void http_task_run(void *ctx, struct http_work *w)
{
	const struct http_task *t = ctx;
	static struct run_request opts; /* large, and this process runs one command */
	_cleanup_(field_mem_done) struct field_mem mem = { 0 };
	struct run_report result = { 0 };
	struct ak_err err = { "" };
	int rc = fill_opts(t, &opts, &mem, &err);

	if (rc == 0)
		rc = cJSON_IsFalse(cJSON_GetObjectItemCaseSensitive(t->spec, "fast"))
			? run_execute(&opts, w->paths, &result, &err)
			: service_run(&opts, w->paths, &result, &err);
	if (rc < 0) {
		http_work_fail(w, rc == -ENOENT ? -EINVAL : rc, &err);
		return;
	}
	say_run(&result, w);
	rundir_prune_sometimes(w->paths);
}

/* ---- exec ---- */

static void read_counts(const struct ak_paths *paths, const char *name, uint64_t ret[static 2])
{
	static const char *const keys[] = { "allowed", "denied" };
	_cleanup_json_ cJSON *request = cJSON_CreateObject(), *answer = NULL;
	struct ak_err ignored;

	if (!request || !cJSON_AddStringToObject(request, "name", name) ||
		service_call(paths, false, "get", TAKE(request), &answer, &ignored) < 0)
		return;
	for (int i = 0; i < 2; i++) {
		const cJSON *n = cJSON_GetObjectItemCaseSensitive(answer, keys[i]);

		if (cJSON_IsNumber(n) && n->valuedouble > 0)
			ret[i] = (uint64_t)n->valuedouble;
	}
}

static void say_exec(
	const char *name, const struct service_exit *end, uint64_t began_ms, const uint64_t before[2], struct http_work *w)
{
	_cleanup_strbuf_ struct strbuf out = { 0 };
	uint64_t after[2] = { before[0], before[1] };

	read_counts(w->paths, name, after);
	strbuf_printf(&out,
		"{\"exit_code\":%d,\"duration_ms\":%llu,\"timed_out\":%s,\"sandbox\":\"%s\",\"network\":{\"allowed\":%llu,\"denied\":%llu}}",
		end->exit_code, (unsigned long long)(ak_now_ms() - began_ms), end->timed_out ? "true" : "false", name,
		(unsigned long long)(after[0] >= before[0] ? after[0] - before[0] : 0),
		(unsigned long long)(after[1] >= before[1] ? after[1] - before[1] : 0));
	if (!out.failed)
		http_work_data(w, 200, out.data, out.len);
}

void http_exec_work(const char *name, const cJSON *spec, struct http_work *w)
{
	static struct run_request o; /* large, and this process runs one command */
	_cleanup_(field_mem_done) struct field_mem mem = { 0 };
	struct service_exec_opts opts = { .env = o.env, .stdio = { -1, 1, 2 } };
	uint64_t began = ak_now_ms(), before[2] = { 0 };
	struct service_exec x = { .sock = -1, .tty_fd = -1 };
	struct service_exit end = { 0 };
	struct ak_err err = { "" };
	int rc;

	read_counts(w->paths, name, before);
	rc = fields_decode(VERB_EXEC, FIELD_HTTP, spec, &o, &mem, &err);
	opts.argv = o.argv;
	opts.n_env = o.n_env;
	opts.workdir = o.workdir;
	opts.timeout_ms = o.timeout_ms;
	if (rc == 0)
		rc = service_exec_start(w->paths, name, &opts, &x, &err);
	if (rc == 0)
		rc = service_exec_poll(&x, true, &end, &err);
	service_exec_done(&x);
	if (rc == 1 && end.exit_code == AK_EXIT_FAILED && end.why.text[0]) {
		err = end.why;
		rc = -EIO;
	}
	if (rc < 0) {
		http_work_fail(w, rc == -EPIPE ? -ESRCH : rc, &err);
		return;
	}
	if (end.why.text[0])
		ak_say("%s", end.why.text);
	say_exec(name, &end, began, before, w);
}
