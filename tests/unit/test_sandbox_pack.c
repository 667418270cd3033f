/* What travels to a sandbox's init in a memory file: everything arrives as it was, and a damaged file is an error and nothing worse. */
#include "gateway/base/cleanup.h"
#include "vmctl/pack.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

static void fill(struct strbuf *pack)
{
	char *const words[] = { (char *)(uintptr_t) "one", (char *)(uintptr_t) "", (char *)(uintptr_t) "thr\xff\n", NULL };
	char *const none[] = { NULL };

	pack_u64(pack, UINT64_MAX);
	pack_str(pack, "text");
	pack_str(pack, NULL);
	pack_list(pack, words);
	pack_list(pack, none);
	pack_list(pack, NULL);
	pack_str(pack, "end");
}

/* Reads all of it; what is bad is NULL. */
static void read_all(struct pack *p, char ***ret_words, char **ret_end)
{
	unpack_u64(p);
	unpack_str(p);
	unpack_str(p);
	*ret_words = unpack_list(p);
	unpack_list(p);
	unpack_list(p);
	*ret_end = unpack_str(p);
}

static void everything_arrives_as_it_was(void **state)
{
	_cleanup_strbuf_ struct strbuf pack = { 0 };
	_cleanup_pack_ struct pack p;
	_cleanup_close_ int fd = -1;
	char **list;

	fill(&pack);
	fd = pack_seal(&pack);
	assert_true(fd >= 0);
	assert_int_equal(pack_open(fd, &p), 0);
	assert_true(unpack_u64(&p) == UINT64_MAX);
	assert_string_equal(unpack_str(&p), "text");
	assert_null(unpack_str(&p));
	list = unpack_list(&p);
	assert_string_equal(list[0], "one");
	assert_string_equal(list[1], "");
	assert_string_equal(list[2], "thr\xff\n");
	assert_null(list[3]);
	list = unpack_list(&p);
	assert_non_null(list);
	assert_null(list[0]);
	assert_null(unpack_list(&p));
	assert_string_equal(unpack_str(&p), "end");
	assert_false(p.bad);
	assert_null(unpack_str(&p));
	assert_true(p.bad);
}

static void a_sealed_file_stays_as_it_is(void **state)
{
	_cleanup_strbuf_ struct strbuf pack = { 0 };
	_cleanup_close_ int fd = -1;

	fill(&pack);
	fd = pack_seal(&pack);
	assert_true(ftruncate(fd, 1) < 0 && errno == EPERM);
	assert_true(pwrite(fd, "x", 1, 0) < 0 && errno == EPERM);
}

/* A file of the first LEN bytes, one of them changed. */
static int damaged(const struct strbuf *pack, size_t len, size_t at, char with)
{
	int fd = memfd_create("damaged", MFD_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, pack->data, len), (ssize_t)len);
	if (at < len)
		assert_int_equal(pwrite(fd, &with, 1, (off_t)at), 1);
	return fd;
}

static void a_truncated_file_is_an_error(void **state)
{
	_cleanup_strbuf_ struct strbuf pack = { 0 };

	fill(&pack);
	for (size_t len = 0; len < pack.len; len++) {
		_cleanup_close_ int fd = damaged(&pack, len, len, 0);
		_cleanup_pack_ struct pack p = { .bad = true };
		char **words, *end;

		if (len == 0) {
			assert_int_equal(pack_open(fd, &p), -EBADMSG);
			continue;
		}
		assert_int_equal(pack_open(fd, &p), 0);
		read_all(&p, &words, &end);
		assert_true(p.bad);
		assert_null(end);
	}
}

static void a_damaged_file_stays_within_its_bounds(void **state)
{
	_cleanup_strbuf_ struct strbuf pack = { 0 };

	fill(&pack);
	for (size_t at = 0; at < pack.len; at++) {
		for (int with = 0; with < 256; with += 51) {
			_cleanup_close_ int fd = damaged(&pack, pack.len, at, (char)with);
			_cleanup_pack_ struct pack p = { .bad = true };
			char **words, *end;

			assert_int_equal(pack_open(fd, &p), 0);
			read_all(&p, &words, &end);
			for (size_t i = 0; words && words[i]; i++)
				assert_true(strlen(words[i]) < pack.len);
		}
	}
}

static void what_is_no_file_of_the_right_size_is_refused(void **state)
{
	_cleanup_close_ int null = open("/dev/null", O_RDONLY | O_CLOEXEC), big = memfd_create("big", MFD_CLOEXEC);
	_cleanup_strbuf_ struct strbuf pack = { 0 };
	static char block[1 << 20];
	struct pack p;

	assert_int_equal(pack_open(null, &p), -EBADMSG);
	assert_int_equal(ftruncate(big, (off_t)PACK_MAX + 1), 0);
	assert_int_equal(pack_open(big, &p), -EBADMSG);
	for (int i = 0; i < 5; i++)
		strbuf_add(&pack, block, sizeof(block));
	assert_int_equal(pack_seal(&pack), -E2BIG);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(everything_arrives_as_it_was),
		cmocka_unit_test(a_sealed_file_stays_as_it_is),
		cmocka_unit_test(a_truncated_file_is_an_error),
		cmocka_unit_test(a_damaged_file_stays_within_its_bounds),
		cmocka_unit_test(what_is_no_file_of_the_right_size_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
