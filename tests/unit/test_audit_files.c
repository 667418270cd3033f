/* Audit files: rotation, many writers at once, a disk that is really full, readers that follow, and `audit verify` over a state folder. */
#include "tests/unit/audit_common.h"

#include "gateway/base/say.h"
#include "gateway/cli/cmd.h"
#include "gateway/log/audit_anchor.h"

#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>

/* ---- rotation ---- */

static void rotate(struct audit_writer *w, const char *path)
{
	struct audit_gone gone = { 0 };
	struct ak_err err;
	int fd = audit_rotate(path, &err);

	must(fd, &err);
	audit_writer_swap(w, fd);
	audit_find_gone(path, &gone.from, &gone.to);
	audit_write_rotate(w, "s", &gone);
}

/* N files of four records each; those of rotation come on top. */
static void write_files(const char *path, int n)
{
	struct audit_writer w;
	struct ak_err err;

	must(audit_open(path, &w, &err), &err);
	for (int i = 0; i < n; i++) {
		if (i)
			rotate(&w, path);
		write_n(&w, 4);
	}
	audit_writer_done(&w);
}

static void remove_number(const struct fix *f, const char *suffix)
{
	char name[PATH_MAX];

	assert_true(snprintf(name, sizeof(name), "%s%s", f->path, suffix) < PATH_MAX);
	assert_int_equal(unlink(name), 0);
}

static void the_chain_goes_on_over_rotated_files(void **state)
{
	struct fix *f = *state;
	struct audit_writer w;
	struct audit_chain chain;
	struct ak_err err;
	int fd;

	write_files(f->path, 3);
	must(audit_verify_chain(f->path, &chain, &err), &err);
	assert_int_equal(chain.count, 14);
	/* Nothing in the newest file yet: the chain's end is in its predecessor. */
	fd = audit_rotate(f->path, &err);
	must(fd, &err);
	close(fd);
	must(audit_open(f->path, &w, &err), &err);
	assert_int_equal(w.seq, 14);
	assert_int_equal(w.size, 0);
	audit_writer_done(&w);
	write_records(f->path, 2);
	expect_whole(f->path, 16);
}

static void the_first_file_stays_and_what_goes_is_told(void **state)
{
	struct fix *f = *state;
	struct audit_chain chain;
	struct ak_err err;
	uint64_t from, to;

	write_files(f->path, 8);
	audit_find_gone(f->path, &from, &to);
	assert_int_equal(from, 5);
	assert_int_equal(to, 4 + 3 * 5);
	must(audit_verify_chain(f->path, &chain, &err), &err);
	assert_int_equal(chain.first_seq, 1);
	assert_int_equal(chain.last_seq, 4 + 7 * 5);
	assert_int_equal(chain.gone, 15);
	assert_int_equal(chain.count, 24);
}

static void a_file_that_rotation_did_not_take_is_missed(void **state)
{
	static const char *const files[] = { ".first", ".3", ".2", ".1" };

	for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
		struct fix *f;
		void *own = NULL;

		assert_int_equal(make_dir(&own), 0);
		f = own;
		write_files(f->path, 8);
		remove_number(f, files[i]);
		expect_broken(f->path, "missing");
		assert_int_equal(remove_dir(&own), 0);
	}
	(void)state;
}

static void a_lost_oldest_file_is_noticed_before_rotation_would_have_removed_it(void **state)
{
	struct fix *f = *state;

	write_files(f->path, 2);
	remove_number(f, ".first");
	expect_broken(f->path, "line 1: seq 5: the records before it are missing");
}

/* What a flood cannot push out: a copy in a file of its own, read where the original is gone and only there. */
static void copies_are_read_where_their_records_are_gone(void **state)
{
	struct fix *f = *state;
	struct audit_net deed = { .sandbox = "s", .event = "flow", .verdict = "deny", .name = "deed.example" };
	struct audit_writer w, kept;
	struct audit_chain chain;
	struct audit_reader r;
	struct ak_err err;
	int seen = 0, copies = 0;
	char *line;
	size_t len;
	bool whole;

	must(audit_open(f->path, &w, &err), &err);
	write_n(&w, 1);
	rotate(&w, f->path);
	must(audit_open_kept(f->path, &kept, &err), &err);
	audit_write_net(&w, &deed);
	audit_write_kept(&kept, &deed, w.seq);
	for (int i = 0; i < 5; i++) {
		struct audit_gone gone = { .kept = kept.seq, .kept_hash = kept.prev };
		int fd = audit_rotate(f->path, &err);

		must(fd, &err);
		audit_writer_swap(&w, fd);
		audit_find_gone(f->path, &gone.from, &gone.to);
		audit_write_rotate(&w, "s", &gone);
		write_n(&w, 1);
		must(audit_reader_open(&r, f->path, &err), &err);
		for (seen = copies = 0; audit_reader_next(&r, true, &line, &len, &whole) > 0;) {
			seen += strstr(line, "deed.example") != NULL;
			copies += strstr(line, "\"of\":") != NULL;
		}
		audit_reader_done(&r);
		assert_int_equal(seen, 1);
	}
	assert_int_equal(copies, 1);
	must(audit_verify_chain(f->path, &chain, &err), &err);
	assert_int_equal(chain.count + chain.gone, w.seq);
	audit_writer_done(&w);
	audit_writer_done(&kept);
	remove_number(f, ".kept");
	expect_broken(f->path, "missing; it had 1 records");
}

static void long_texts_are_cut(void **state)
{
	struct fix *f = *state;
	_cleanup_free_ char *text = NULL;
	char name[4000];
	struct audit_writer w;
	struct ak_err err;
	size_t len;

	memset(name, 0xff, sizeof(name));
	name[sizeof(name) - 1] = '\0';
	must(audit_open(f->path, &w, &err), &err);
	audit_write_net(&w, &(struct audit_net){ .event = "flow", .verdict = "deny", .sni = name });
	audit_writer_done(&w);
	text = slurp(f->path, &len);
	assert_true(len < AUDIT_TEXT_MAX + 400);
	assert_non_null(strstr(text, "\\u00ff\\u2026\""));
	expect_whole(f->path, 1);
}

static void a_full_file_says_so(void **state)
{
	struct audit_writer w;

	audit_writer_init(&w, -1, 0, NULL, AUDIT_ROTATE_BYTES - 1);
	assert_false(audit_writer_full(&w));
	w.size++;
	assert_true(audit_writer_full(&w));
	audit_writer_done(&w);
}

/* ---- readers ---- */

static void a_reader_follows_rotation_without_loss(void **state)
{
	struct fix *f = *state;
	struct audit_writer w;
	struct audit_reader r;
	struct ak_err err;
	uint64_t expected = 1;
	char *line;
	size_t len;
	bool whole;
	int rc;

	must(audit_open(f->path, &w, &err), &err);
	write_n(&w, 1);
	must(audit_reader_open(&r, f->path, &err), &err);
	for (int round = 0; round < 12; round++) {
		write_n(&w, 3);
		if (round % 2)
			rotate(&w, f->path);
		while ((rc = audit_reader_next(&r, false, &line, &len, &whole)) > 0) {
			struct audit_link link;

			assert_true(whole);
			assert_true(audit_link_parse(line, len, &link));
			assert_int_equal(link.seq, expected++);
		}
		assert_int_equal(rc, 0);
	}
	assert_int_equal(expected, 1 + 1 + 36 + 6); /* rotation has records of its own */
	audit_reader_done(&r);
	audit_writer_done(&w);
}

static void an_unfinished_line_waits_for_its_end(void **state)
{
	struct fix *f = *state;
	struct audit_reader r;
	struct ak_err err;
	char *line;
	size_t len;
	bool whole;

	append_text(f->path, "one\ntw");
	must(audit_reader_open(&r, f->path, &err), &err);
	assert_int_equal(audit_reader_next(&r, false, &line, &len, &whole), 1);
	assert_string_equal(line, "one");
	assert_int_equal(audit_reader_next(&r, false, &line, &len, &whole), 0);
	append_text(f->path, "o\nthr");
	assert_int_equal(audit_reader_next(&r, false, &line, &len, &whole), 1);
	assert_string_equal(line, "two");
	assert_true(whole);
	assert_int_equal(audit_reader_next(&r, true, &line, &len, &whole), 1);
	assert_string_equal(line, "thr");
	assert_false(whole);
	audit_reader_done(&r);
}

static void an_endless_line_is_bounded(void **state)
{
	struct fix *f = *state;
	_cleanup_free_ char *big = malloc(4u << 20);
	struct audit_reader r;
	struct ak_err err;
	char *line;
	size_t len;
	bool whole;

	memset(big, 'x', 4u << 20);
	put(f->path, big, 4u << 20, 0);
	append_text(f->path, "\nafter\n");
	must(audit_reader_open(&r, f->path, &err), &err);
	assert_int_equal(audit_reader_next(&r, false, &line, &len, &whole), 1);
	assert_false(whole);
	assert_int_equal(audit_reader_next(&r, false, &line, &len, &whole), 1);
	assert_string_equal(line, "after");
	assert_true(r.cap <= 4u * AUDIT_LINE_MAX);
	audit_reader_done(&r);
	expect_broken(f->path, "line 1: seq 1:");
}

/* ---- the shared events log ---- */

#define WRITERS 8
#define EVENTS 60

static void write_events(const char *path, int who)
{
	struct ak_err err;
	char fields[128];

	for (int i = 0; i < EVENTS; i++) {
		snprintf(fields, sizeof(fields), "\"event\":\"test\",\"sandbox\":\"w%d\",\"n\":%d", who, i);
		if (audit_event(path, fields, &err) < 0)
			_exit(1);
	}
	_exit(0);
}

static void many_writers_make_one_chain(void **state)
{
	struct fix *f = *state;
	pid_t pids[WRITERS];
	int status;

	for (int i = 0; i < WRITERS; i++) {
		pids[i] = fork();
		assert_true(pids[i] >= 0);
		if (pids[i] == 0)
			write_events(f->path, i);
	}
	for (int i = 0; i < WRITERS; i++) {
		assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
		assert_int_equal(status, 0);
	}
	expect_whole(f->path, WRITERS * EVENTS);
}

static void the_events_log_rotates_under_many_writers(void **state)
{
	struct fix *f = *state;
	_cleanup_free_ char *pad = malloc(200001);
	struct audit_chain chain;
	struct ak_err err;
	char name[PATH_MAX];
	pid_t pids[4];
	int status;

	memset(pad, 'x', 200000);
	memcpy(pad, "\"event\":\"", 9);
	pad[199999] = '"';
	pad[200000] = '\0';
	for (size_t i = 0; i < ARRAY_SIZE(pids); i++) {
		pids[i] = fork();
		assert_true(pids[i] >= 0);
		for (int n = 0; pids[i] == 0 && n < 30; n++) {
			if (audit_event(f->path, pad, &err) < 0)
				_exit(1);
		}
		if (pids[i] == 0)
			_exit(0);
	}
	for (size_t i = 0; i < ARRAY_SIZE(pids); i++) {
		assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
		assert_int_equal(status, 0);
	}
	must(audit_verify_chain(f->path, &chain, &err), &err);
	assert_int_equal(chain.count, 122); /* 24 MB: rotated twice */
	must_join(name, f->dir, "log.1");
	assert_true(file_size(name) >= (off_t)AUDIT_ROTATE_BYTES);
}

static void an_event_that_is_no_line_is_refused(void **state)
{
	struct fix *f = *state;
	struct ak_err err;

	assert_int_equal(audit_event(f->path, "\"a\":1,\n\"b\":2", &err), -EINVAL);
	assert_int_equal(audit_event(f->path, "", &err), -EINVAL);
	assert_int_equal(audit_event("/proc/nonexistent/log", "\"a\":1", &err), -ENOENT);
	assert_non_null(strstr(err.text, "/proc/nonexistent/log"));
}

/* A real file system without room, in namespaces of our own. 77: this kernel does not let us. */
static void fill_a_small_disk(const char *dir)
{
	gid_t group = getegid();
	struct audit_writer w;
	struct ak_err err;
	char path[PATH_MAX], ballast[PATH_MAX], map[32], block[4096] = { 0 };
	int fd;

	snprintf(map, sizeof(map), "0 %u 1", (unsigned)geteuid());
	if (unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0 || ak_write_file("/proc/self/uid_map", map) < 0 ||
		ak_write_file("/proc/self/setgroups", "deny") < 0)
		_exit(77);
	snprintf(map, sizeof(map), "0 %u 1", (unsigned)group);
	if (ak_write_file("/proc/self/gid_map", map) < 0 || mount("none", dir, "tmpfs", 0, "size=64k") < 0)
		_exit(77);
	must_join(path, dir, "log");
	must_join(ballast, dir, "ballast");
	must(audit_open(path, &w, &err), &err);
	write_n(&w, 3);
	fd = open(ballast, O_WRONLY | O_CREAT, 0600);
	while (write(fd, block, sizeof(block)) == (ssize_t)sizeof(block))
		continue;
	close(fd);
	/* What is left of the log's own page can still be written; then every record is lost, and counted. */
	for (int i = 0; i < 100 && w.lost < 5; i++)
		write_n(&w, 1);
	assert_int_equal(w.lost, 5);
	assert_int_equal(w.lost_errno, ENOSPC);
	assert_int_equal(audit_event(path, "\"event\":\"x\"", &err), -ENOSPC);
	expect_whole(path, w.written);
	unlink(ballast);
	write_n(&w, 1);
	assert_int_equal(w.lost, 0);
	expect_whole(path, w.written);
	audit_writer_done(&w);
	_exit(0);
}

static void a_full_disk_loses_records_but_never_the_chain(void **state)
{
	struct fix *f = *state;
	int status;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0)
		fill_a_small_disk(f->dir);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77 && !getenv("AK_MUST_WORK"))
		skip();
	assert_int_equal(status, 0);
}

/* ---- audit verify over a state folder ---- */

static int run_verify(void)
{
	char *argv[] = { (char[]){ "verify" }, NULL };
	int out = dup(1), err = dup(2), null = open("/dev/null", O_WRONLY), rc;

	fflush(stdout);
	dup2(null, 1);
	dup2(null, 2);
	rc = cmd_audit_verify(1, argv);
	fflush(stdout);
	dup2(out, 1);
	dup2(err, 2);
	close(out);
	close(err);
	close(null);
	return rc;
}

/* One finished run with COUNT records and the event that says so. */
static void finish_run(const char *state_dir, const char *name, int count, char log[static PATH_MAX])
{
	char dir[PATH_MAX], events[PATH_MAX], fields[256];
	struct audit_writer w;
	struct audit_key key;
	struct ak_err err;

	assert_true(snprintf(dir, sizeof(dir), "%s/runs/%s", state_dir, name) < (int)sizeof(dir));
	assert_int_equal(ak_mkdir_p(dir, 0700), 0);
	assert_true(snprintf(log, PATH_MAX, "%s/runs/%s/network.jsonl", state_dir, name) < PATH_MAX);
	must(audit_key_of(state_dir, &key, &err), &err);
	must(audit_open(log, &w, &err), &err);
	audit_mac_init(&w.mac, &key, "network", name, 0);
	write_n(&w, count);
	snprintf(fields, sizeof(fields),
		"\"event\":\"run_end\",\"sandbox\":\"%s\",\"network_records\":%d,\"network_hash\":\"%s\"", name, count, w.prev);
	audit_writer_done(&w);
	must_join(events, state_dir, "events.jsonl");
	must(audit_event(events, fields, &err), &err);
}

static void verify_compares_logs_with_what_the_runs_ended_with(void **state)
{
	struct fix *f = *state;
	char dir[PATH_MAX], a[PATH_MAX], b[PATH_MAX], other[PATH_MAX];

	setenv("XDG_STATE_HOME", f->dir, 1);
	assert_int_equal(run_verify(), 0); /* nothing there at all */
	must_join(dir, f->dir, "agentkernel");
	finish_run(dir, "run-a", 4, a);
	finish_run(dir, "run-b", 4, b);
	assert_int_equal(run_verify(), 0);

	delete_line(a, 4); /* the tail: the chain itself cannot tell */
	assert_int_equal(run_verify(), AK_EXIT_ERROR);
	unlink(a);
	assert_int_equal(run_verify(), AK_EXIT_ERROR);
	assert_true(snprintf(other, sizeof(other), "%s/runs/run-a", dir) < (int)sizeof(other));
	assert_int_equal(rmdir(other), 0); /* pruned whole by an earlier version, which said nothing of it: fine */
	assert_int_equal(run_verify(), 0);

	/* A whole other log in its place. */
	unlink(b);
	write_records(b, 4);
	assert_int_equal(run_verify(), AK_EXIT_ERROR);
	unsetenv("XDG_STATE_HOME");
}

/* Line N and what follows go from PATH. */
static void cut_from(const char *path, int line)
{
	int order[64] = { 0 };

	for (int i = 1; i < line; i++)
		order[i - 1] = i;
	rearrange(path, order);
}

/* Make the chain of PATH anew, without the record in LINE: hashes, numbers, everything but the MACs, which take a key. */
static void chain_anew(const char *path, int without)
{
	size_t len;
	_cleanup_free_ char *text = slurp(path, &len);
	_cleanup_strbuf_ struct strbuf out = { 0 };
	char prev[SHA256_HEX], *line, *save = NULL;
	int n = 0, seq = 0;

	memset(prev, '0', sizeof(prev) - 1);
	prev[SHA256_HEX - 1] = '\0';
	for (line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		char *number = strstr(line, "\"seq\":") + 6, *rest = number + strspn(number, "0123456789"),
		     *tail = strstr(line, ",\"prev\":\"");
		size_t at = out.len;
		uint8_t digest[SHA256_SIZE];
		struct sha256 s;

		if (++n == without)
			continue;
		strbuf_printf(
			&out, "%.*s%d%.*s,\"prev\":\"%s\"", (int)(number - line), line, ++seq, (int)(tail - rest), rest, prev);
		sha256_init(&s);
		sha256_add(&s, out.data + at, out.len - at);
		sha256_done(&s, digest);
		sha256_hex(digest, prev);
		strbuf_printf(&out, ",\"hash\":\"%s\",\"mac\":\"%032d\"}\n", prev, 0);
	}
	put(path, out.data, out.len, O_TRUNC);
}

static void a_cut_or_missing_events_log_is_told(void **state)
{
	struct fix *f = *state;
	char dir[PATH_MAX], a[PATH_MAX], events[PATH_MAX], anchor[PATH_MAX];
	struct ak_err err;

	setenv("XDG_STATE_HOME", f->dir, 1);
	must_join(dir, f->dir, "agentkernel");
	for (int i = 0; i < 3; i++) {
		char name[16];

		snprintf(name, sizeof(name), "run-%d", i);
		finish_run(dir, name, 2, a);
	}
	must_join(events, dir, "events.jsonl");
	assert_int_equal(run_verify(), 0);
	cut_from(events, 3);
	assert_int_equal(run_verify(), AK_EXIT_ERROR);
	/* Going on with it does not hide it. */
	must(audit_event(events, "\"event\":\"x\"", &err), &err);
	must(audit_event(events, "\"event\":\"y\"", &err), &err);
	assert_int_equal(run_verify(), AK_EXIT_ERROR);
	assert_int_equal(unlink(events), 0);
	assert_int_equal(run_verify(), AK_EXIT_ERROR);
	must_join(anchor, dir, "anchors/events.jsonl");
	must(audit_event(events, "\"event\":\"x\"", &err), &err);
	assert_int_equal(unlink(anchor), 0);
	assert_int_equal(run_verify(), AK_EXIT_ERROR);
	unsetenv("XDG_STATE_HOME");
}

static void chains_that_were_made_anew_are_told(void **state)
{
	struct fix *f = *state;
	char dir[PATH_MAX], a[PATH_MAX], events[PATH_MAX];

	setenv("XDG_STATE_HOME", f->dir, 1);
	must_join(dir, f->dir, "agentkernel");
	finish_run(dir, "run-a", 4, a);
	finish_run(dir, "run-b", 4, a);
	must_join(events, dir, "events.jsonl");
	assert_int_equal(run_verify(), 0);
	chain_anew(a, 2);
	assert_int_equal(run_verify(), AK_EXIT_ERROR);
	/* Everything but the key is in the hands of the one who did it: the anchors go, and both files are made anew. */
	chain_anew(events, 2);
	must_join(a, dir, "anchors/events.jsonl");
	assert_int_equal(unlink(a), 0);
	assert_int_equal(run_verify(), AK_EXIT_ERROR);
	unsetenv("XDG_STATE_HOME");
}

static void another_key_is_told(void **state)
{
	struct fix *f = *state;
	char dir[PATH_MAX], a[PATH_MAX], key[PATH_MAX];

	setenv("XDG_STATE_HOME", f->dir, 1);
	must_join(dir, f->dir, "agentkernel");
	finish_run(dir, "run-a", 4, a);
	must_join(key, dir, AUDIT_KEY_FILE);
	assert_int_equal(run_verify(), 0);
	flip_byte(key, 40);
	assert_int_equal(run_verify(), AK_EXIT_ERROR);
	assert_int_equal(unlink(key), 0);
	assert_int_equal(run_verify(), AK_EXIT_ERROR);
	unsetenv("XDG_STATE_HOME");
}

static void hash_of(const char *path, uint64_t seq, char ret[static SHA256_HEX])
{
	struct audit_link link = { 0 };
	struct audit_reader r;
	struct ak_err err;
	char *line;
	size_t len;
	bool whole;

	must(audit_reader_open(&r, path, &err), &err);
	while (link.seq != seq && audit_reader_next(&r, true, &line, &len, &whole) > 0)
		assert_true(audit_link_parse(line, len, &link));
	audit_reader_done(&r);
	memcpy(ret, link.hash, SHA256_HEX);
}

/* An anchor that a killed writer left behind lags; that is no alarm. One that lost power may be ahead: the settled entry counts. */
static void an_anchor_may_lag_and_never_lead(void **state)
{
	struct fix *f = *state;
	char dir[PATH_MAX], log[PATH_MAX], prev[SHA256_HEX];
	struct audit_anchor a;
	struct audit_key key;
	struct ak_err err;

	setenv("XDG_STATE_HOME", f->dir, 1);
	must_join(dir, f->dir, "agentkernel");
	finish_run(dir, "run-a", 4, log);
	must_join(log, dir, "runs/run-a/network.jsonl");
	assert_int_equal(audit_anchor_get(dir, "run-a", NULL, &a), -ENOENT);
	must(audit_key_of(dir, &key, &err), &err);
	hash_of(log, 2, prev);
	assert_int_equal(audit_anchor_set(dir, "run-a", &key, 2, prev), 0);
	assert_int_equal(run_verify(), 0); /* it lags by two */
	assert_int_equal(audit_anchor_set(dir, "run-a", &key, 9, prev), 0);
	assert_int_equal(run_verify(), AK_EXIT_ERROR); /* it leads: five are missing */
	assert_int_equal(audit_anchor_get(dir, "run-a", &key, &a), 0);
	assert_int_equal(a.newest.seq, 9);
	assert_false(audit_anchor_restarted(&a));
	a.boot_us += 3600000000u; /* as after a restart */
	assert_true(audit_anchor_restarted(&a));
	unsetenv("XDG_STATE_HOME");
}

static void macs_do_not_depend_on_where_a_writer_began(void **state)
{
	struct audit_key key = { .master = { 1, 2, 3 } };
	uint8_t hash[SHA256_SIZE] = { 7 };
	char a[AUDIT_MAC_HEX], b[AUDIT_MAC_HEX];
	struct audit_mac m, late;

	(void)state;
	audit_mac_init(&m, &key, "network", "x", 0);
	for (uint64_t seq = 1; seq < 5000; seq += 333) {
		audit_mac_print(&m, seq, hash, a);
		audit_mac_init(&late, &key, "network", "x", seq - 1);
		audit_mac_print(&late, seq, hash, b);
		assert_string_equal(a, b);
		audit_mac_take(&late, m.key, m.epoch);
		audit_mac_print(&late, seq, hash, b);
		assert_string_equal(a, b);
	}
	audit_mac_init(&late, &key, "network", "y", 0);
	audit_mac_print(&late, 4999, hash, b);
	assert_string_not_equal(a, b);
}

/* ---- times ---- */

static void times_are_read_as_they_are_printed(void **state)
{
	static const struct {
		const char *text;
		uint64_t us;
	} vectors[] = {
		{ "1970-01-01T00:00:00.000000Z", 0 },
		{ "2000-02-29T12:34:56.000001Z", 951827696000001u },
		{ "2026-01-02T03:04:05.123456Z", 1767323045123456u },
		{ "2100-02-28T23:59:59.999999Z", 4107542399999999u },
		{ "2100-03-01T00:00:00.000000Z", 4107542400000000u },
		{ "9999-12-31T23:59:59.000000Z", 253402300799000000u },
	};
	static const char *const bad[] = { "", "2026", "2026-13-01T00:00:00Z", "2026-02-29T00:00:00Z", "2026-01-01T24:00:00Z",
		"2026-01-01T00:00:00", "2026-01-01T00:00:00Zx", "2026-01-01T00:00:00.Z", "1969-12-31T23:59:59Z",
		"2026-01-01T00:00:00+1:00" };
	char buf[AUDIT_TIME_MAX];
	uint64_t us;

	for (size_t i = 0; i < ARRAY_SIZE(vectors); i++) {
		assert_string_equal(audit_time_print(vectors[i].us, buf), vectors[i].text);
		assert_int_equal(audit_time_parse(vectors[i].text, &us), 0);
		assert_int_equal(us, vectors[i].us);
	}
	assert_int_equal(audit_time_parse("2026-01-02T05:04:05.5+02:00", &us), 0);
	assert_string_equal(audit_time_print(us, buf), "2026-01-02T03:04:05.500000Z");
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(audit_time_parse(bad[i], &us), -EINVAL);
}

/* ---- events that outlive rotation ---- */

/* N events of EVENT by ORIGIN, each BYTES long. */
static void flood_events(const char *path, const char *event, const char *origin, int n, size_t bytes)
{
	_cleanup_free_ char *fill = malloc(bytes + 1), *fields = malloc(bytes + 256);
	struct ak_err err;

	assert_non_null(fill);
	assert_non_null(fields);
	memset(fill, 'A', bytes);
	fill[bytes] = '\0';
	snprintf(fields, bytes + 256, "\"event\":\"%s\",\"origin\":\"%s\",\"fill\":\"%s\"", event, origin, fill);
	for (int i = 0; i < n; i++)
		must(audit_event(path, fields, &err), &err);
}

struct sought {
	const char *text;
	int found;
};

static int seek(void *ctx, const char *line, size_t len, bool whole)
{
	struct sought *s = ctx;

	assert_true(whole);
	s->found += memmem(line, len, s->text, strlen(s->text)) != NULL;
	return 0;
}

static int count_events(const char *path, const char *text)
{
	struct audit_reader r = { .fd = -1 };
	struct sought s = { .text = text };
	struct ak_err err;

	must(audit_reader_drain(&r, path, true, seek, &s, &err), &err);
	audit_reader_done(&r);
	return s.found;
}

/* Another origin fills its share of the copies first, and the log after. */
static void a_flood_by_one_origin_takes_no_other_ones_important_events(void **state)
{
	const struct fix *f = *state;
	char path[PATH_MAX], kept[PATH_MAX];
	struct audit_proof proof = { .kind = AUDIT_EVENTS, .name = "" };
	struct audit_chain chain;
	struct audit_key key;
	struct ak_err err;
	struct stat st;

	must_join(path, f->dir, "events.jsonl");
	must_join(kept, f->dir, "events.jsonl.kept");
	flood_events(path, "run_start", "mcp", 90, 100000);
	assert_int_equal(access(kept, F_OK), 0);
	flood_events(path, "project_changed", "mcp", 100, 60000);
	must(audit_event(path, "\"event\":\"project_changed\",\"sandbox\":\"deed\",\"origin\":\"cli\"", &err), &err);
	must(audit_event(path, "\"event\":\"run_start\",\"sandbox\":\"other\",\"origin\":\"cli\"", &err), &err);
	assert_int_equal(count_events(path, "\"deed\""), 1);
	flood_events(path, "run_start", "mcp", 400, 100000);
	flood_events(path, "run_end", "mcp", 100, 60000);
	assert_int_equal(count_events(path, "\"other\""), 0);
	assert_int_equal(count_events(path, "\"deed\""), 1);
	assert_int_equal(stat(kept, &st), 0);
	assert_true(st.st_size < AUDIT_KEPT_BYTES);
	must(audit_key_of(f->dir, &key, &err), &err);
	proof.key = &key;
	must(audit_verify_log(path, &proof, &chain, &err), &err);
	/* And the copies are part of what is verified. */
	assert_int_equal(unlink(kept), 0);
	assert_int_equal(audit_verify_log(path, &proof, &chain, &err), -EBADMSG);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		with_dir(the_chain_goes_on_over_rotated_files),
		with_dir(the_first_file_stays_and_what_goes_is_told),
		cmocka_unit_test(a_file_that_rotation_did_not_take_is_missed),
		with_dir(a_lost_oldest_file_is_noticed_before_rotation_would_have_removed_it),
		with_dir(copies_are_read_where_their_records_are_gone),
		with_dir(long_texts_are_cut),
		with_dir(a_full_file_says_so),
		with_dir(a_reader_follows_rotation_without_loss),
		with_dir(an_unfinished_line_waits_for_its_end),
		with_dir(an_endless_line_is_bounded),
		with_dir(many_writers_make_one_chain),
		with_dir(the_events_log_rotates_under_many_writers),
		with_dir(an_event_that_is_no_line_is_refused),
		with_dir(a_full_disk_loses_records_but_never_the_chain),
		with_dir(verify_compares_logs_with_what_the_runs_ended_with),
		with_dir(a_cut_or_missing_events_log_is_told),
		with_dir(chains_that_were_made_anew_are_told),
		with_dir(another_key_is_told),
		with_dir(an_anchor_may_lag_and_never_lead),
		with_dir(a_flood_by_one_origin_takes_no_other_ones_important_events),
		cmocka_unit_test(macs_do_not_depend_on_where_a_writer_began),
		with_dir(times_are_read_as_they_are_printed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
