/*
 * audit verify: check every hash chain under the state folder. Compare it with the anchors and with the events log, which records how many records the log of
 * each run had at its end and which runs were pruned. With the key, also check the MAC of every record.
 */
#include "gateway/cli/cmd.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/strbuf.h"
#include "gateway/log/audit.h"
#include "gateway/log/audit_anchor.h"
#include "gateway/log/events_story.h"
#include "gateway/log/netlog.h"
#include "gateway/store/runs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

struct check {
	struct ak_paths paths;
	struct audit_key key;
	bool keyed;
	struct events_story story;
	uint64_t files, records, macs, gone, broken;
	bool json;
	struct strbuf problems, notes; /* JSON members */
	struct ak_err first;
};

static void check_done(struct check *c)
{
	events_story_done(&c->story);
	strbuf_done(&c->problems);
	strbuf_done(&c->notes);
}

static void tell(const struct check *c, struct strbuf *list, const char *word, const struct ak_err *err)
{
	_cleanup_strbuf_ struct strbuf text = { 0 };

	strbuf_puts(list, list->len ? "," : "");
	strbuf_json(list, err->text);
	netlog_safe(&text, err->text);
	if (!c->json)
		printf("%s: %s\n", word, text.len ? text.data : "");
}

static void problem(struct check *c, const struct ak_err *err)
{
	if (c->broken++ == 0)
		c->first = *err;
	tell(c, &c->problems, "broken", err);
}

/* ---- one log ---- */

static void add_point(struct audit_proof *p, uint64_t seq, const char *hash, const char *where)
{
	for (size_t i = 0; i < AUDIT_POINTS; i++) {
		if (p->points[i].seq)
			continue;
		p->points[i].seq = seq;
		p->points[i].hash = hash;
		p->points[i].where = where;
		return;
	}
}

/*
 * Add the points that the anchor proves. After a reboot the newest entry of the anchor may be ahead of the log, because a power loss can drop records that were
 * not yet on the disk. Then add only the settled entry, and return true.
 */
static bool add_anchor(const struct audit_anchor *a, struct audit_proof *p)
{
	add_point(p, a->settled.seq, a->settled.hash, "it was anchored");
	if (audit_anchor_restarted(a))
		return true;
	add_point(p, a->newest.seq, a->newest.hash, "it was anchored");
	return false;
}

static void note_short(struct check *c, const char *path, uint64_t had, uint64_t has)
{
	struct ak_err note;

	ak_fail(&note, EBADMSG,
		"%s: the last %llu records are missing; the machine has rebooted since, so this is either a power loss or tampering",
		path, (unsigned long long)(had - has));
	tell(c, &c->notes, "note", &note);
}

/* An altered anchor is reported and proves nothing else. */
static int read_anchor(struct check *c, const char *name, struct audit_anchor *ret)
{
	int rc = audit_anchor_get(c->paths.state, name, c->keyed ? &c->key : NULL, ret);
	struct ak_err err;

	if (rc < 0 && rc != -ENOENT) {
		ak_fail(&err, EBADMSG, "%s/" AUDIT_ANCHORS "/%s: %s", c->paths.state, name,
			rc == -EBADMSG ? "not an anchor, or changed after it was written" : strerror(-rc));
		problem(c, &err);
	}
	return rc;
}

static void fail_missing(struct check *c, const char *path, uint64_t had)
{
	struct ak_err err;

	ak_fail(&err, EBADMSG, "%s: missing; it had %llu records", path, (unsigned long long)had);
	problem(c, &err);
}

/* Check one log against its anchor, against END (may be NULL) and against the marks in KNOWN (may be NULL). ANCHORED: a log with MACs must have an anchor. */
static void check_log(struct check *c, const char *path, const char *kind, const char *name, const struct run_story *end,
	bool anchored, const struct audit_proof *known)
{
	const char *anchor_name = strcmp(kind, AUDIT_EVENTS) ? name : AUDIT_EVENTS;
	struct audit_proof proof = known ? *known : (struct audit_proof){ 0 };
	struct audit_chain chain = { 0 };
	struct audit_anchor a = { 0 };
	struct ak_err err;
	int anchor = read_anchor(c, anchor_name, &a), rc;
	bool lenient = anchor == 0 && add_anchor(&a, &proof);
	uint64_t had = end && end->ended ? end->records : a.newest.seq;

	proof.key = c->keyed ? &c->key : NULL;
	proof.kind = kind;
	proof.name = name;
	if (proof.n_marks && proof.marks[proof.n_marks - 1].seq > had)
		had = proof.marks[proof.n_marks - 1].seq;
	if (end && end->keyless)
		proof.keyless_until = end->records;
	if (end && end->ended)
		add_point(&proof, end->records, end->hash, "the run ended");
	rc = audit_verify_log(path, &proof, &chain, &err);
	c->files += rc != -ENOENT;
	if (rc == -ENOENT && (had || (anchored && strcmp(kind, AUDIT_EVENTS) != 0)))
		fail_missing(c, path, had);
	else if (rc < 0 && rc != -ENOENT)
		problem(c, &err);
	if (rc < 0)
		return;
	c->records += chain.count;
	c->macs += chain.macs;
	c->gone += chain.gone;
	if (lenient && a.newest.seq > chain.last_seq)
		note_short(c, path, a.newest.seq, chain.last_seq);
	if (anchored && anchor == -ENOENT && chain.macs) {
		ak_fail(&err, EBADMSG, "%s/" AUDIT_ANCHORS "/%s: missing; %s has %llu records", c->paths.state, anchor_name, path,
			(unsigned long long)chain.count);
		problem(c, &err);
	}
}

/* ---- all logs ---- */

static int network_log(const struct check *c, const char *folder, const char *name, char ret[static PATH_MAX], struct ak_err *err)
{
	char dir[PATH_MAX];

	if (ak_path_join(dir, c->paths.state, folder, name) < 0 || ak_path_join(ret, dir, "network.jsonl", NULL) < 0)
		return ak_fail(err, ENAMETOOLONG, "state folder: path too long");
	return 0;
}

static int check_runs(struct check *c, const struct run_entry *runs, size_t n, struct ak_err *err)
{
	char path[PATH_MAX];

	for (size_t i = 0; i < n; i++) {
		int rc = network_log(c, "runs", runs[i].name, path, err);

		if (rc < 0)
			return rc;
		check_log(c, path, "network", runs[i].name, events_story_find(&c->story, runs[i].name), false, NULL);
	}
	return 0;
}

static bool is_there(const struct check *c, const char *folder, const char *name)
{
	char path[PATH_MAX];

	return ak_path_join(path, c->paths.state, folder, name) < 0 || access(path, F_OK) == 0 || errno != ENOENT;
}

/* A run that started and was not pruned must have a folder. */
static void check_missing_runs(struct check *c)
{
	for (size_t i = 0; i < c->story.n_runs; i++) {
		const struct run_story *run = &c->story.runs[i];
		struct ak_err err;

		if (!run->started || run->gone || is_there(c, "runs", run->name))
			continue;
		ak_fail(&err, EBADMSG, "%s/runs/%s: missing, but no record says that it was pruned", c->paths.state, run->name);
		problem(c, &err);
	}
}

static void check_gaps(struct check *c)
{
	for (size_t i = 0; i < c->story.n_gaps; i++) {
		const struct gap_story *g = &c->story.gaps[i];
		struct ak_err err;

		if (g->restarted) {
			note_short(c, g->name[0] ? g->name : "events.jsonl", g->had, g->has);
			continue;
		}
		ak_fail(&err, EBADMSG, "%s: had %llu records, but only %llu when it was next written to",
			g->name[0] ? g->name : "events.jsonl", (unsigned long long)g->had, (unsigned long long)g->has);
		problem(c, &err);
	}
}

/* Marks must not decrease: a lower one shows that the log was truncated and then continued. */
static size_t collect_marks(struct check *c, const struct log_story *story, size_t n, struct audit_mark *ret)
{
	size_t n_marks = 0;

	for (size_t i = 0; i < n; i++) {
		struct ak_err err;

		if (story[i].what != LOG_STORY_MARK)
			continue;
		if (n_marks && story[i].mark.seq < ret[n_marks - 1].seq) {
			ak_fail(&err, EBADMSG, "%s: had %llu records, but later only %llu", story->name,
				(unsigned long long)ret[n_marks - 1].seq, (unsigned long long)story[i].mark.seq);
			problem(c, &err);
			n_marks = 0;
		}
		ret[n_marks++] = story[i].mark;
	}
	return n_marks;
}

static void check_sandbox(struct check *c, const char *path, const char *name)
{
	struct audit_proof known = { 0 };
	size_t n = 0;
	const struct log_story *story = events_story_log(&c->story, name, &n);
	_cleanup_free_ struct audit_mark *marks = calloc(n + 1, sizeof(*marks));
	bool started = false;

	known.keyless_until = story && story->keyless ? UINT64_MAX : 0;
	for (size_t i = 0; i < n; i++)
		started |= story[i].what >= LOG_STORY_STARTED;
	if (marks)
		known.n_marks = collect_marks(c, story, n, marks);
	known.marks = marks;
	check_log(c, path, "network", name, NULL, started, &known);
}

static int check_persistent(struct check *c, struct ak_err *err)
{
	_cleanup_free_ struct run_entry *entries = NULL;
	size_t n = 0;
	int rc = runs_persistent(&c->paths, &entries, &n, err);

	for (size_t i = 0; i < n && rc == 0; i++) {
		char path[PATH_MAX];

		rc = network_log(c, "sandboxes", entries[i].name, path, err);
		if (rc == 0)
			check_sandbox(c, path, entries[i].name);
	}
	return rc;
}

/* Pruning removes the anchor before the log, so an anchor without a log means that the log was lost. */
static void check_orphans(struct check *c)
{
	char path[PATH_MAX];
	DIR *dir = ak_path_join(path, c->paths.state, AUDIT_ANCHORS, NULL) < 0 ? NULL : opendir(path);

	for (struct dirent *e; dir && (e = readdir(dir));) {
		struct ak_err err;

		if (!ak_sandbox_name_ok(e->d_name) || is_there(c, "runs", e->d_name) || is_there(c, "sandboxes", e->d_name) ||
			!is_there(c, AUDIT_ANCHORS, e->d_name))
			continue;
		ak_fail(&err, EBADMSG, "%s/%s: the log of this anchor is missing", path, e->d_name);
		problem(c, &err);
	}
	if (dir)
		closedir(dir);
}

/* Lock out pruning: a run pruned after we read the events would look missing. */
static int hold_runs(const struct check *c)
{
	char path[PATH_MAX];
	int fd = ak_path_join(path, c->paths.state, "runs", NULL) < 0 ? -1 : open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd >= 0)
		(void)flock(fd, LOCK_SH);
	return fd;
}

/* List the runs and read their ends before reading their logs: a run that ends in between then only has more records than expected. */
static int check_all(struct check *c, struct ak_err *err)
{
	_cleanup_free_ struct run_entry *runs = NULL;
	_cleanup_close_ __attribute__((unused)) int held = hold_runs(c);
	struct audit_mark mark = { .seq = c->key.before };
	struct audit_proof known = { 0 };
	char events[PATH_MAX];
	size_t n = 0;
	int rc = runs_list(&c->paths, &runs, &n, err);

	if (rc == 0 && ak_path_join(events, c->paths.state, "events.jsonl", NULL) < 0)
		rc = ak_fail(err, ENAMETOOLONG, "state folder: path too long");
	if (rc < 0)
		return rc;
	if (c->keyed && c->key.before) {
		snprintf(mark.hash, sizeof(mark.hash), "%s", c->key.before_hash);
		known = (struct audit_proof){ .keyless_until = c->key.before, .marks = &mark, .n_marks = 1 };
	}
	check_log(c, events, AUDIT_EVENTS, "", NULL, true, &known);
	rc = events_story_read(events, &c->story, err);
	if (rc == 0)
		rc = check_runs(c, runs, n, err);
	if (rc < 0)
		return rc;
	check_missing_runs(c);
	check_orphans(c);
	check_gaps(c);
	return check_persistent(c, err);
}

/* ---- the command ---- */

static int load_key(struct check *c, const char *file, struct ak_err *err)
{
	char own[PATH_MAX];
	int rc;

	if (!file && ak_path_join(own, c->paths.state, AUDIT_KEY_FILE, NULL) < 0)
		return ak_fail(err, ENAMETOOLONG, "state folder: path too long");
	rc = audit_key_load(file ? file : own, &c->key, err);
	c->keyed = rc == 0;
	return rc == -ENOENT && !file ? 0 : rc;
}

/* Records have MACs but the key is missing: someone removed it, and the MACs cannot be checked. */
static void check_key(struct check *c)
{
	struct ak_err err;

	if (c->keyed || !c->macs)
		return;
	ak_fail(&err, EBADMSG, "%s/" AUDIT_KEY_FILE ": missing; %llu records have MACs that cannot be checked without it",
		c->paths.state, (unsigned long long)c->macs);
	problem(c, &err);
}

static int report(const struct check *c)
{
	_cleanup_strbuf_ struct strbuf out = { 0 };

	strbuf_printf(&out,
		"{\"intact\":%s,\"files\":%llu,\"records\":%llu,\"authenticated\":%llu,\"rotated_away\":%llu,\"problems\":[%s],"
		"\"notes\":[%s]}",
		c->broken ? "false" : "true", (unsigned long long)c->files, (unsigned long long)c->records,
		(unsigned long long)(c->keyed ? c->macs : 0), (unsigned long long)c->gone,
		c->problems.len ? c->problems.data : "", c->notes.len ? c->notes.data : "");
	if (c->json)
		(void)cmd_print_json_text(&out);
	if (c->broken) {
		ak_say("audit verify: %llu of %llu file%s broken; first: %s", (unsigned long long)c->broken,
			(unsigned long long)c->files, c->files == 1 ? "" : "s", c->first.text);
		return AK_EXIT_ERROR;
	}
	if (!c->json)
		printf("%llu file%s, %llu record%s: chain intact\n", (unsigned long long)c->files, c->files == 1 ? "" : "s",
			(unsigned long long)c->records, c->records == 1 ? "" : "s");
	return 0;
}

static int verify(struct check *c, const char *key_file, struct ak_err *err)
{
	int rc = ak_paths_init(&c->paths, err);

	if (rc == 0)
		rc = load_key(c, key_file, err);
	if (rc == 0)
		rc = check_all(c, err);
	if (rc == 0)
		check_key(c);
	return rc;
}

int cmd_audit_verify(int argc, char **argv)
{
	_cleanup_(check_done) struct check c = { 0 };
	struct ak_err err;
	struct cmd_args a;
	int rc = cmd_read(&a, "audit verify", argc, argv, NULL, 0, NULL);

	if (rc)
		return rc - 1;
	c.json = a.seen[FIELD_JSON];
	rc = verify(&c, a.given[FIELD_KEY_FILE].text, &err);
	if (rc < 0) {
		ak_say("audit verify: %s", err.text);
		return AK_EXIT_ERROR;
	}
	return report(&c);
}
