/* Shared by the audit tests: a private folder, records to write, and ways to damage a file. */
#ifndef AK_TEST_AUDIT_COMMON_H
#define AK_TEST_AUDIT_COMMON_H

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/log/audit.h"
#include "tests/unit/tmp_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#define MAYBE_UNUSED __attribute__((unused))

struct fix {
	char dir[64];
	char path[128]; /* DIR/log, not there yet */
};

MAYBE_UNUSED static int make_dir(void **state)
{
	struct fix *f = calloc(1, sizeof(*f));

	if (!f)
		return -1;
	strcpy(f->dir, "/tmp/ak-audit-XXXXXX");
	if (!tmp_dir(f->dir))
		return -1;
	snprintf(f->path, sizeof(f->path), "%s/log", f->dir);
	*state = f;
	return 0;
}

MAYBE_UNUSED static int remove_dir(void **state)
{
	struct fix *f = *state;
	int rc = ak_remove_tree(AT_FDCWD, f->dir);

	free(f);
	return rc;
}

#define with_dir(test) cmocka_unit_test_setup_teardown(test, make_dir, remove_dir)

MAYBE_UNUSED static void must(int rc, const struct ak_err *err)
{
	if (rc < 0)
		fail_msg("%s", err->text);
}

MAYBE_UNUSED static void must_join(char buf[static PATH_MAX], const char *dir, const char *name)
{
	assert_true(snprintf(buf, PATH_MAX, "%s/%s", dir, name) < PATH_MAX);
}

MAYBE_UNUSED static void write_n(struct audit_writer *w, int n)
{
	struct ak_addr dst = ak_addr_v4(0x0b000001);

	for (int i = 0; i < n; i++)
		audit_write_net(w,
			&(struct audit_net){
				.sandbox = "s", .event = "dns", .verdict = "deny", .name = "a.example", .dst = &dst });
}

MAYBE_UNUSED static void write_records(const char *path, int n)
{
	struct audit_writer w;
	struct ak_err err;

	must(audit_open(path, &w, &err), &err);
	write_n(&w, n);
	assert_int_equal(w.lost, 0);
	audit_writer_done(&w);
}

MAYBE_UNUSED static off_t file_size(const char *path)
{
	struct stat st;

	assert_int_equal(stat(path, &st), 0);
	return st.st_size;
}

MAYBE_UNUSED static void expect_whole(const char *path, uint64_t count)
{
	struct audit_chain got = { 0 };
	struct ak_err err;

	must(audit_verify_chain(path, &got, &err), &err);
	assert_int_equal(got.count, count);
}

MAYBE_UNUSED static void expect_broken(const char *path, const char *reason)
{
	struct ak_err err = { "" };
	struct audit_chain got;

	assert_int_equal(audit_verify_chain(path, &got, &err), -EBADMSG);
	if (!strstr(err.text, reason) || strncmp(err.text, path, strlen(path)) != 0)
		fail_msg("'%s' does not name '%s' of %s", err.text, reason, path);
}

/* ---- damage ---- */

MAYBE_UNUSED static char *slurp(const char *path, size_t *len)
{
	char *text = NULL;

	assert_int_equal(ak_read_file(AT_FDCWD, path, 64u << 20, &text, len), 0);
	return text;
}

MAYBE_UNUSED static void put(const char *path, const char *text, size_t len, int flags)
{
	_cleanup_close_ int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0600);

	assert_true(fd >= 0);
	assert_int_equal(ak_write_all(fd, text, len), 0);
}

MAYBE_UNUSED static void append_text(const char *path, const char *text)
{
	put(path, text, strlen(text), O_APPEND);
}

MAYBE_UNUSED static void edit(const char *path, const char *from, const char *to)
{
	size_t len, at = 0;
	_cleanup_free_ char *text = slurp(path, &len);

	while (at < len && strncmp(text + at, from, strlen(from)) != 0)
		at++;
	assert_true(at < len);
	put(path, text, at, O_TRUNC);
	append_text(path, to);
	append_text(path, text + at + strlen(from));
}

MAYBE_UNUSED static void flip_byte(const char *path, size_t at)
{
	size_t len;
	_cleanup_free_ char *text = slurp(path, &len);

	assert_true(at < len);
	text[at] ^= 1;
	put(path, text, len, O_TRUNC);
}

/* Rewrite the file with its lines in the order given: numbers from 1, ended by 0. */
MAYBE_UNUSED static void rearrange(const char *path, const int *order)
{
	size_t len;
	_cleanup_free_ char *text = slurp(path, &len);

	put(path, "", 0, O_TRUNC);
	for (; *order; order++) {
		const char *line = text;

		for (int i = 1; i < *order; i++) {
			line = strchr(line, '\n');
			assert_non_null(line);
			line++;
		}
		put(path, line, strcspn(line, "\n") + 1, O_APPEND);
	}
}

MAYBE_UNUSED static int count_lines(const char *path)
{
	size_t len;
	_cleanup_free_ char *text = slurp(path, &len);
	int n = 0;

	for (const char *p = text; (p = strchr(p, '\n')); p++)
		n++;
	return n;
}

MAYBE_UNUSED static void delete_line(const char *path, int line)
{
	int order[64] = { 0 }, n = count_lines(path), used = 0;

	assert_true(n < 60);
	for (int i = 1; i <= n; i++) {
		if (i != line)
			order[used++] = i;
	}
	rearrange(path, order);
}

MAYBE_UNUSED static void swap_lines(const char *path, int a, int b)
{
	int order[64] = { 0 }, n = count_lines(path);

	assert_true(n < 60);
	for (int i = 1; i <= n; i++)
		order[i - 1] = i == a ? b : i == b ? a : i;
	rearrange(path, order);
}

MAYBE_UNUSED static void double_line(const char *path, int line)
{
	int order[64] = { 0 }, n = count_lines(path), used = 0;

	assert_true(n < 60);
	for (int i = 1; i <= n; i++) {
		order[used++] = i;
		if (i == line)
			order[used++] = i;
	}
	rearrange(path, order);
}

MAYBE_UNUSED static void copy_line(const char *from, int line, const char *to)
{
	size_t len;
	_cleanup_free_ char *text = slurp(from, &len);
	const char *at = text;

	for (int i = 1; i < line; i++)
		at = strchr(at, '\n') + 1;
	put(to, at, strcspn(at, "\n") + 1, O_APPEND);
}

#endif
