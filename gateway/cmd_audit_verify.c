/*
 * audit verify: every chain under the state folder, and what the events log says of the network logs of finished runs: how many
 * records they had and what the last one's hash was. A run whose folder is gone was pruned; one whose folder is there must match. The log of
 * a persistent sandbox goes on for as long as it exists, so only its chain is checked.
 */
#include "gateway/cmd.h"

#include "gateway/audit.h"
#include "gateway/base/cleanup.h"
#include "gateway/base/json.h"
#include "gateway/base/strbuf.h"
#include "gateway/netlog.h"
#include "gateway/runs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct run_check {
	char name[AK_NAME_MAX];
	struct audit_chain chain;
	bool there, broken; /* the log */
	bool finished; /* an event tells what it should be */
	uint64_t want_records;
	char want_hash[SHA256_HEX];
};

struct check {
	struct ak_paths paths;
	struct run_check *runs; /* owned; sorted by name */
	size_t n_runs;
	uint64_t files, records, broken;
	bool json;
	struct strbuf problems; /* JSON members */
	struct ak_err first;
};

static void check_done(struct check *c)
{
	free(c->runs);
	strbuf_done(&c->problems);
}

static void problem(struct check *c, const struct ak_err *err)
{
	if (c->broken++ == 0)
		c->first = *err;
	strbuf_puts(&c->problems, c->problems.len ? "," : "");
	strbuf_json(&c->problems, err->text);
	if (!c->json) {
		_cleanup_strbuf_ struct strbuf text = { 0 };

		netlog_safe(&text, err->text);
		printf("broken: %s\n", text.len ? text.data : "");
	}
}

/* Verify one file; true when it is there and whole. */
static bool check_file(struct check *c, const char *path, bool *ret_there, struct audit_chain *ret)
{
	struct ak_err err;
	int rc = audit_verify_chain(path, ret, &err);

	*ret_there = rc != -ENOENT;
	if (rc == -ENOENT)
		return false;
	c->files++;
	if (rc < 0) {
		problem(c, &err);
		return false;
	}
	c->records += ret->count;
	return true;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct run_check *)a)->name, ((const struct run_check *)b)->name);
}

static int list_runs(struct check *c, struct ak_err *err)
{
	_cleanup_free_ struct run_entry *entries = NULL;
	size_t n = 0;
	int rc = runs_list(&c->paths, &entries, &n, err);

	if (rc < 0)
		return rc;
	c->runs = calloc(n + 1, sizeof(*c->runs));
	if (!c->runs)
		return ak_fail(err, ENOMEM, "out of memory");
	for (size_t i = 0; i < n; i++)
		memcpy(c->runs[i].name, entries[i].name, sizeof(c->runs[i].name));
	c->n_runs = n;
	qsort(c->runs, n, sizeof(*c->runs), by_name);
	return 0;
}

static int run_log_path(const struct check *c, const struct run_check *run, char path[static PATH_MAX], struct ak_err *err)
{
	char runs[PATH_MAX];
	int rc = ak_path_join(runs, c->paths.state, "runs", run->name);

	if (rc == 0)
		rc = ak_path_join(path, runs, "network.jsonl", NULL);
	return rc < 0 ? ak_fail(err, -rc, "state folder: path too long") : 0;
}

/* The newest end event of each run that is still there. */
static void note_end(struct check *c, const char *line, size_t len)
{
	struct netlog_rec rec = { 0 };
	const cJSON *sandbox, *hash, *records;
	struct run_check *run, key = { .there = false };

	if (!memmem(line, len, "\"network_hash\"", 14) || netlog_rec_parse(line, len, &rec) < 0)
		return;
	sandbox = cJSON_GetObjectItemCaseSensitive(rec.json, "sandbox");
	hash = cJSON_GetObjectItemCaseSensitive(rec.json, "network_hash");
	records = cJSON_GetObjectItemCaseSensitive(rec.json, "network_records");
	if (cJSON_IsString(sandbox) && ak_sandbox_name_ok(sandbox->valuestring) && cJSON_IsString(hash) &&
		cJSON_IsNumber(records)) {
		memcpy(key.name, sandbox->valuestring, strlen(sandbox->valuestring) + 1);
		run = bsearch(&key, c->runs, c->n_runs, sizeof(*c->runs), by_name);
		if (run) {
			run->finished = true;
			run->want_records = records->valuedouble > 0 ? (uint64_t)records->valuedouble : 0;
			snprintf(run->want_hash, sizeof(run->want_hash), "%s", hash->valuestring);
		}
	}
	netlog_rec_done(&rec);
}

static int read_ends(struct check *c, const char *path, struct ak_err *err)
{
	struct audit_reader r;
	char *line;
	size_t len;
	bool whole;
	int rc = audit_reader_open(&r, path, err);

	if (rc < 0)
		return rc;
	while ((rc = audit_reader_next(&r, true, &line, &len, &whole)) > 0) {
		struct audit_link link;

		if (whole && audit_link_parse(line, len, &link)) /* what was tampered with says nothing */
			note_end(c, line, len);
	}
	if (rc < 0)
		ak_fail_errno(err, -rc, "cannot read '%s'", r.name);
	audit_reader_done(&r);
	return rc;
}

static void compare_end(struct check *c, const struct run_check *run, const char *path)
{
	struct ak_err err;

	if (!run->finished || run->broken || (!run->there && run->want_records == 0))
		return;
	if (!run->there)
		ak_fail(&err, EBADMSG, "%s: missing; it had %llu records when the run ended", path,
			(unsigned long long)run->want_records);
	else if (run->chain.last_seq != run->want_records)
		ak_fail(&err, EBADMSG, "%s: ends with seq %llu, but the run ended with seq %llu", path,
			(unsigned long long)run->chain.last_seq, (unsigned long long)run->want_records);
	else if (run->want_records > 0 && strcmp(run->chain.last_hash, run->want_hash) != 0)
		ak_fail(&err, EBADMSG, "%s: seq %llu: not the record the run ended with", path,
			(unsigned long long)run->want_records);
	else
		return;
	problem(c, &err);
}

static int check_persistent(struct check *c, struct ak_err *err)
{
	_cleanup_free_ struct run_entry *entries = NULL;
	size_t n = 0;
	int rc = runs_persistent(&c->paths, &entries, &n, err);

	for (size_t i = 0; i < n && rc == 0; i++) {
		char dir[PATH_MAX], path[PATH_MAX];
		struct audit_chain chain;
		bool there;

		if (ak_path_join(dir, c->paths.state, "sandboxes", entries[i].name) < 0 ||
			ak_path_join(path, dir, "network.jsonl", NULL) < 0)
			return ak_fail(err, ENAMETOOLONG, "state folder: path too long");
		check_file(c, path, &there, &chain);
	}
	return rc;
}

/* The runs are listed and their ends read before their logs are: a run that ends meanwhile has only more than was promised of it. */
static int check_all(struct check *c, struct ak_err *err)
{
	char events[PATH_MAX], path[PATH_MAX];
	struct audit_chain chain;
	bool there;
	int rc = ak_paths_init(&c->paths, err);

	if (rc == 0 && ak_path_join(events, c->paths.state, "events.jsonl", NULL) < 0)
		rc = ak_fail(err, ENAMETOOLONG, "state folder: path too long");
	if (rc == 0)
		rc = list_runs(c, err);
	if (rc < 0)
		return rc;
	check_file(c, events, &there, &chain);
	if (there)
		rc = read_ends(c, events, err);
	for (size_t i = 0; i < c->n_runs && rc == 0; i++) {
		struct run_check *run = &c->runs[i];

		rc = run_log_path(c, run, path, err);
		if (rc < 0)
			break;
		run->broken = !check_file(c, path, &run->there, &run->chain) && run->there;
		compare_end(c, run, path);
	}
	return rc < 0 ? rc : check_persistent(c, err);
}

static int report(const struct check *c)
{
	if (c->json)
		printf("{\"intact\":%s,\"files\":%llu,\"records\":%llu,\"problems\":[%s]}\n", c->broken ? "false" : "true",
			(unsigned long long)c->files, (unsigned long long)c->records, c->problems.len ? c->problems.data : "");
	if (c->broken) {
		ak_say("audit verify: %llu of %llu files broken; first: %s", (unsigned long long)c->broken,
			(unsigned long long)c->files, c->first.text);
		return AK_EXIT_ERROR;
	}
	if (!c->json)
		printf("%llu files, %llu records: chain intact\n", (unsigned long long)c->files, (unsigned long long)c->records);
	return 0;
}

int cmd_audit_verify(int argc, char **argv)
{
	_cleanup_(check_done) struct check c = { 0 };
	struct ak_err err;
	struct cmd_args a;
	const char *value;
	int rc;

	cmd_args_init(&a, cmd_row("audit verify"), argc, argv);
	while ((rc = cmd_next(&a, &value)) != CMD_END) {
		if (rc == CMD_HELP)
			return 0;
		if (rc == CMD_ARG)
			ak_say("audit verify: takes no arguments");
		if (rc < 0)
			return AK_EXIT_USAGE;
		c.json = true;
	}
	rc = check_all(&c, &err);
	if (rc < 0) {
		ak_say("audit verify: %s", err.text);
		return AK_EXIT_ERROR;
	}
	return report(&c);
}
