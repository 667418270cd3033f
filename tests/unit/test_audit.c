/* The audit chain: what is written can be read by any JSON tool, and no record can be changed, moved, doubled or taken away unnoticed. */
#include "tests/unit/audit_common.h"

#include "gateway/base/io.h"
#include "gateway/base/json.h"
#include "gateway/log/audit_kinds.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

static void every_line_is_one_json_object(void **state)
{
	struct fix *f = *state;
	const char *const cname[] = { "a.example", "b\n.example" };
	struct ak_addr addrs[2] = { ak_addr_v4(0x0b000001), ak_addr_v4(0x0b000002) };
	struct audit_net rec = {
		.sandbox = "s",
		.event = "dns",
		.verdict = "deny",
		.reason = NET_REASON_DEFAULT,
		.rule = "default",
		.policy = "codex",
		.generation = 3,
		.proto = "dns",
		.name = "ev\"il\\\n\r\x01\x1b[2J\x80\xff.example",
		.qtype = "A",
		.sni = "\x7f",
		.dst = &addrs[0],
		.port = 443,
		.cname = cname,
		.n_cname = 2,
		.answers = addrs,
		.n_answers = 2,
		.ttl = 60,
		.has_bytes = true,
		.bytes_out = 0,
		.bytes_in = UINT64_MAX,
		.duration_ms = 7,
		.latency_us = 1234,
		.count = 2,
		.suppressed = 9,
		.detail = "x",
	};
	struct audit_writer w;
	_cleanup_free_ char *text = NULL;
	_cleanup_json_ cJSON *obj = NULL;
	struct ak_err err;
	size_t len;

	must(audit_open(f->path, &w, &err), &err);
	audit_write_net(&w, &rec);
	audit_writer_done(&w);
	assert_int_equal(ak_read_file(AT_FDCWD, f->path, 1 << 20, &text, &len), 0);
	assert_ptr_equal(strchr(text, '\n'), text + len - 1);
	for (size_t i = 0; i + 1 < len; i++)
		assert_in_range(text[i], 0x20, 0x7e);
	must(json_parse(text, len, &obj, &err), &err);
	assert_string_equal(cJSON_GetObjectItem(obj, "event")->valuestring, "dns");
	assert_int_equal(cJSON_GetObjectItem(obj, "seq")->valueint, 1);
	assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(obj, "cname")), 2);
	assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(obj, "answers")), 2);
	assert_string_equal(cJSON_GetObjectItem(obj, "dst")->valuestring, "11.0.0.1");
	assert_non_null(strstr(text, "\"bytes_in\":18446744073709551615,"));
	assert_non_null(strstr(text, "\"bytes_out\":0,"));
	assert_non_null(strstr(text, "\"latency_us\":1234,"));
	assert_int_equal(strlen(cJSON_GetObjectItem(obj, "time")->valuestring), strlen("2026-01-02T03:04:05.123456Z"));
}

static void empty_fields_are_left_out(void **state)
{
	struct fix *f = *state;
	_cleanup_free_ char *text = NULL;

	write_records(f->path, 1);
	assert_int_equal(ak_read_file(AT_FDCWD, f->path, 1 << 20, &text, NULL), 0);
	assert_null(strstr(text, "null"));
	assert_null(strstr(text, "\"sni\""));
	assert_null(strstr(text, "bytes_"));
	assert_null(strstr(text, "latency_us"));
	assert_non_null(strstr(text, ",\"count\":1,"));
}

static void file_is_private(void **state)
{
	struct fix *f = *state;
	struct stat st;

	write_records(f->path, 1);
	assert_int_equal(stat(f->path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
}

static void a_chain_continues_after_reopening(void **state)
{
	struct fix *f = *state;
	struct audit_chain chain;
	struct ak_err err;

	for (int i = 0; i < 5; i++)
		write_records(f->path, 3);
	must(audit_verify_chain(f->path, &chain, &err), &err);
	assert_int_equal(chain.count, 15);
	assert_int_equal(chain.first_seq, 1);
	assert_int_equal(chain.last_seq, 15);
}

/* ---- tampering: each must be named with file, line and seq ---- */

static void an_edited_record_is_named(void **state)
{
	struct fix *f = *state;

	write_records(f->path, 5);
	edit(f->path, "\"seq\":3,", "\"seq\":3 ");
	expect_broken(f->path, "line 3: seq 3:");
	/* Every byte counts, not only those that matter to a reader. */
	for (size_t at = 0; at < 400; at += 7) {
		unlink(f->path);
		write_records(f->path, 2);
		flip_byte(f->path, at);
		expect_broken(f->path, "line");
	}
}

static void a_deleted_record_is_noticed(void **state)
{
	struct fix *f = *state;

	write_records(f->path, 5);
	delete_line(f->path, 3);
	expect_broken(f->path, "line 3: seq 4: 1 records before it are missing");
	unlink(f->path);
	write_records(f->path, 5);
	delete_line(f->path, 1);
	expect_broken(f->path, "line 1: seq 2: the records before it are missing");
}

static void a_swapped_pair_is_noticed(void **state)
{
	struct fix *f = *state;

	write_records(f->path, 5);
	swap_lines(f->path, 2, 3);
	expect_broken(f->path, "line 2: seq 3:");
}

static void a_doubled_record_is_noticed(void **state)
{
	struct fix *f = *state;

	write_records(f->path, 5);
	double_line(f->path, 2);
	expect_broken(f->path, "line 3: seq 2: out of order or twice");
}

static void a_cut_line_is_noticed(void **state)
{
	struct fix *f = *state;

	write_records(f->path, 5);
	assert_int_equal(truncate(f->path, file_size(f->path) - 10), 0);
	expect_broken(f->path, "line 5: seq 5: cut short");
}

static void foreign_lines_are_noticed(void **state)
{
	static const char *const lines[] = { "\n", "garbage\n", "{}\n", "{\"v\":1}\n", "garbage" };

	for (size_t i = 0; i < ARRAY_SIZE(lines); i++) {
		struct fix *f = *state;

		unlink(f->path);
		write_records(f->path, 2);
		append_text(f->path, lines[i]);
		expect_broken(f->path, "line 3: seq 3:");
	}
}

static void a_record_of_another_chain_is_noticed(void **state)
{
	struct fix *f = *state;
	char other[PATH_MAX];

	must_join(other, f->dir, "other");
	write_records(f->path, 3);
	write_records(other, 3);
	delete_line(f->path, 3);
	copy_line(other, 3, f->path);
	expect_broken(f->path, "line 3: seq 3: does not follow");
}

/* ---- torn writes ---- */

static void a_torn_last_line_is_cut_off_on_opening(void **state)
{
	struct fix *f = *state;

	write_records(f->path, 3);
	assert_int_equal(truncate(f->path, file_size(f->path) - 10), 0);
	write_records(f->path, 1);
	expect_whole(f->path, 3);
}

static void an_empty_or_wholly_torn_file_starts_anew(void **state)
{
	struct fix *f = *state;

	append_text(f->path, "{\"v\":1,\"ti");
	write_records(f->path, 2);
	expect_whole(f->path, 2);
}

static void writing_goes_on_after_damage_and_verification_still_names_it(void **state)
{
	struct fix *f = *state;

	write_records(f->path, 3);
	append_text(f->path, "damage\n");
	write_records(f->path, 2);
	expect_broken(f->path, "line 4: seq 4:");
}

/* ---- a full disk ---- */

static void count_lost_when_file_may_not_grow(const char *path)
{
	struct rlimit rl;
	struct audit_writer w;
	struct ak_err err;
	uint64_t before;

	signal(SIGXFSZ, SIG_IGN);
	must(audit_open(path, &w, &err), &err);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &rl), 0);
	write_n(&w, 10);
	before = w.size;
	/* Room for half a record: the write is short, and what was written must go again. */
	rl.rlim_cur = before + 100;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &rl), 0);
	write_n(&w, 7);
	assert_int_equal(w.lost, 7);
	assert_int_equal(w.lost_total, 7);
	assert_int_equal(file_size(path), before);
	rl.rlim_cur = RLIM_INFINITY;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &rl), 0);
	write_n(&w, 1);
	assert_int_equal(w.lost, 0);
	assert_int_equal(w.lost_total, 7);
	assert_int_equal(w.written, 12);
	audit_writer_done(&w);
}

static void lost_records_are_counted_and_told_later(void **state)
{
	struct fix *f = *state;
	_cleanup_free_ char *text = NULL;
	int status;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		count_lost_when_file_may_not_grow(f->path);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	expect_whole(f->path, 12);
	assert_int_equal(ak_read_file(AT_FDCWD, f->path, 1 << 20, &text, NULL), 0);
	assert_non_null(strstr(text,
		"\"event\":\"loss\",\"reason\":\"disk full\",\"detail\":\"no new connection was allowed meanwhile\",\"count\":7"));
}

/* A file that refuses ftruncate, as one with the append-only attribute does: sealed memory. */
static void tear_a_sealed_file(const char *path)
{
	int fd = memfd_create("audit", MFD_CLOEXEC | MFD_ALLOW_SEALING), copy;
	struct rlimit rl;
	struct audit_writer w;
	char buf[16384];
	ssize_t n;

	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	assert_int_equal(fcntl(fd, F_SETFL, O_APPEND), 0);
	audit_writer_init(&w, fd, 0, NULL, 0);
	write_n(&w, 2);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &rl), 0);
	rl.rlim_cur = w.size + 50;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &rl), 0);
	write_n(&w, 3);
	assert_int_equal(w.torn, 50);
	assert_int_equal(w.lost, 3);
	/* Now the newline fits and half of the record that tells of the tear: a tear after a tear. */
	rl.rlim_cur += 31;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &rl), 0);
	write_n(&w, 1);
	assert_int_equal(w.torn, 80);
	rl.rlim_cur = RLIM_INFINITY;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &rl), 0);
	write_n(&w, 1);
	assert_int_equal(w.torn, 0);
	assert_int_equal(w.lost, 0);
	assert_int_equal(lseek(w.fd, 0, SEEK_SET), 0);
	n = read(w.fd, buf, sizeof(buf));
	assert_int_equal(n, w.size);
	copy = open(path, O_WRONLY | O_CREAT, 0600);
	assert_int_equal(ak_write_all(copy, buf, (size_t)n), 0);
	close(copy);
	audit_writer_done(&w);
}

static void an_attested_tear_passes_and_an_altered_one_does_not(void **state)
{
	struct fix *f = *state;
	struct audit_chain chain;
	struct ak_err err;
	int status;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		tear_a_sealed_file(f->path);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	must(audit_verify_chain(f->path, &chain, &err), &err);
	assert_int_equal(chain.count, 4);
	assert_int_equal(chain.tears, 1);
	delete_line(f->path, 4);
	expect_broken(f->path, "line 3: seq 3:");
	delete_line(f->path, 3);
	expect_broken(f->path, "line 3: seq 3: attests a torn line that is not there");
}

static void without_a_file_everything_is_counted(void **state)
{
	struct audit_writer w;

	audit_writer_init(&w, -1, 0, NULL, 0);
	write_n(&w, 3);
	assert_int_equal(w.lost, 3);
	assert_int_equal(w.written, 0);
	audit_writer_done(&w);
}

/* A copy that could not be written is tried again. */
static void a_kind_that_was_taken_back_is_new_again(void **state)
{
	struct audit_net rec = { .event = "dns", .verdict = "deny", .rule = "default" };
	struct audit_kinds kinds = { 0 };
	struct audit_kind kind;
	char name[32];

	(void)state;
	rec.name = name;
	for (int i = 0; i < 500; i++) {
		snprintf(name, sizeof(name), "n%d.test", i);
		audit_kind_of(&rec, &kind);
		assert_true(audit_kinds_first(&kinds, &rec, &kind));
		audit_kinds_forget(&kinds, &kind);
		assert_true(audit_kinds_first(&kinds, &rec, &kind));
		assert_false(audit_kinds_first(&kinds, &rec, &kind));
	}
	audit_kinds_done(&kinds);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_kind_that_was_taken_back_is_new_again),
		with_dir(every_line_is_one_json_object),
		with_dir(empty_fields_are_left_out),
		with_dir(file_is_private),
		with_dir(a_chain_continues_after_reopening),
		with_dir(an_edited_record_is_named),
		with_dir(a_deleted_record_is_noticed),
		with_dir(a_swapped_pair_is_noticed),
		with_dir(a_doubled_record_is_noticed),
		with_dir(a_cut_line_is_noticed),
		with_dir(foreign_lines_are_noticed),
		with_dir(a_record_of_another_chain_is_noticed),
		with_dir(a_torn_last_line_is_cut_off_on_opening),
		with_dir(an_empty_or_wholly_torn_file_starts_anew),
		with_dir(writing_goes_on_after_damage_and_verification_still_names_it),
		with_dir(an_attested_tear_passes_and_an_altered_one_does_not),
		with_dir(lost_records_are_counted_and_told_later),
		with_dir(without_a_file_everything_is_counted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
