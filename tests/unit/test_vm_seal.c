/* Sealed copies of a template's files: any number of guests maps one, none can change it, and damage shows in the checksum. */
#include "vmctl/vm_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

#define SIZE (3u << 20)
#define ODD_SIZE (SIZE + 4096u + 77)

struct fixture {
	char path[32];
	int dir, file;
};

static void poke(const struct fixture *f, off_t at, unsigned char byte)
{
	assert_int_equal(pwrite(f->file, &byte, 1, at), 1);
}

/* Data at both ends and in the middle, the rest holes. */
static int open_fixture(void **state)
{
	static struct fixture f;

	snprintf(f.path, sizeof(f.path), "/tmp/vmsealXXXXXX");
	assert_non_null(mkdtemp(f.path));
	f.dir = open(f.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	f.file = openat(f.dir, "memory", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	assert_int_equal(ftruncate(f.file, ODD_SIZE), 0);
	for (unsigned i = 0; i < 4096; i++)
		poke(&f, i, (unsigned char)(i * 7));
	poke(&f, SIZE / 2 + 1, 9);
	poke(&f, ODD_SIZE - 1, 5);
	*state = &f;
	return 0;
}

static int close_fixture(void **state)
{
	struct fixture *f = *state;

	unlinkat(f->dir, "memory", 0);
	rmdir(f->path);
	close(f->dir);
	close(f->file);
	return 0;
}

static uint64_t sum_of(const struct fixture *f)
{
	uint64_t sum = 0;

	assert_int_equal(vm_sum(f->dir, "memory", &sum), 0);
	return sum;
}

static void a_copy_is_whole_and_has_the_same_checksum(void **state)
{
	static char a[ODD_SIZE], b[ODD_SIZE];
	const struct fixture *f = *state;
	uint64_t sum = 0;
	int copy = vm_seal(f->dir, "memory", &sum);

	assert_true(copy >= 0);
	assert_int_equal(pread(copy, a, sizeof(a), 0), sizeof(a));
	assert_int_equal(lseek(copy, 0, SEEK_END), sizeof(a));
	assert_int_equal(pread(f->file, b, sizeof(b), 0), sizeof(b));
	assert_memory_equal(a, b, sizeof(a));
	assert_true(sum == sum_of(f));
	close(copy);
}

static void one_changed_bit_or_byte_more_shows(void **state)
{
	static const off_t places[] = { 0, 31, 4095, 4096, SIZE / 2, SIZE / 2 + 1, SIZE, ODD_SIZE - 2, ODD_SIZE - 1 };
	const struct fixture *f = *state;
	uint64_t whole = sum_of(f);

	for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++) {
		unsigned char byte;

		assert_int_equal(pread(f->file, &byte, 1, places[i]), 1);
		poke(f, places[i], byte ^ 0x80);
		assert_true(sum_of(f) != whole);
		poke(f, places[i], byte);
		assert_true(sum_of(f) == whole); /* also where zeros have taken the place of a hole */
	}
	assert_int_equal(ftruncate(f->file, ODD_SIZE + 1), 0);
	assert_true(sum_of(f) != whole);
}

static void a_copy_can_be_mapped_privately_but_changed_by_nobody(void **state)
{
	const struct fixture *f = *state;
	uint64_t sum = 0;
	int copy = vm_seal(f->dir, "memory", &sum), again;
	char path[64], *map;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", copy);
	again = open(path, O_RDWR | O_CLOEXEC); /* as QEMU opens it */
	assert_true(again >= 0);
	map = mmap(NULL, ODD_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE, again, 0);
	assert_true(map != MAP_FAILED);
	map[0] = 'x';
	assert_int_equal(munmap(map, ODD_SIZE), 0);
	assert_true(mmap(NULL, ODD_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, again, 0) == MAP_FAILED);
	for (const int *fd = (const int[]){ copy, again, -1 }; *fd >= 0; fd++) {
		assert_true(pwrite(*fd, "x", 1, 0) == -1 && errno == EPERM);
		assert_true(ftruncate(*fd, 0) == -1 && errno == EPERM);
		assert_true(ftruncate(*fd, 2 * ODD_SIZE) == -1 && errno == EPERM);
		assert_true(fallocate(*fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) == -1 && errno == EPERM);
		assert_true(fcntl(*fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE) == -1);
	}
	map = mmap(NULL, ODD_SIZE, PROT_READ, MAP_PRIVATE, copy, 0);
	assert_true(map != MAP_FAILED && map[0] == 0 && map[1] == 7);
	munmap(map, ODD_SIZE);
	close(copy);
	close(again);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_copy_is_whole_and_has_the_same_checksum, open_fixture, close_fixture),
		cmocka_unit_test_setup_teardown(one_changed_bit_or_byte_more_shows, open_fixture, close_fixture),
		cmocka_unit_test_setup_teardown(
			a_copy_can_be_mapped_privately_but_changed_by_nobody, open_fixture, close_fixture),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
