/* Frames between host and guest: each end accepts only what the other may send, within its limits. */
#include "vmctl/vm_wire.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static int head(unsigned type, unsigned id, uint32_t len, bool from_guest)
{
	uint8_t buf[VM_HEAD];
	struct vm_head h;

	vm_head_put(buf, (enum vm_frame_type)type, (uint16_t)id, len);
	if (vm_head_get(buf, from_guest, &h) < 0)
		return -1;
	assert_int_equal(h.type, type);
	assert_int_equal(h.id, id);
	assert_int_equal(h.len, len);
	return 0;
}

static void a_head_is_read_as_it_was_written(void **state)
{
	assert_int_equal(head(VM_HELLO, 0, 4, true), 0);
	assert_int_equal(head(VM_DATA, 255, VM_PAYLOAD_MAX, true), 0);
	assert_int_equal(head(VM_DATA, 1, 1, false), 0);
	assert_int_equal(head(VM_CONFIG, 0, sizeof(struct vm_config), false), 0);
}

static void what_the_other_end_may_not_send_is_refused(void **state)
{
	assert_int_equal(head(VM_HELLO, 0, 4, false), -1);
	assert_int_equal(head(VM_CONFIG, 0, sizeof(struct vm_config), true), -1);
	assert_int_equal(head(VM_RUN, 1, 0, true), -1);
	assert_int_equal(head(VM_EXITED, 1, 8, false), -1);
	assert_int_equal(head(0, 0, 0, true), -1);
	assert_int_equal(head(VM_TYPE_NUM, 0, 0, true), -1);
}

static void lengths_and_ids_out_of_range_are_refused(void **state)
{
	assert_int_equal(head(VM_DATA, 1, 0, true), -1);
	assert_int_equal(head(VM_DATA, 1, VM_PAYLOAD_MAX + 1, true), -1);
	assert_int_equal(head(VM_DATA, VM_COMMANDS_MAX, 1, true), -1);
	assert_int_equal(head(VM_EXITED, 1, 7, true), -1);
	assert_int_equal(head(VM_CREDIT, 1, 6, false), -1);
	assert_int_equal(head(VM_CONFIG, 0, sizeof(struct vm_config) - 1, false), -1);
}

static size_t request(char *buf, uint32_t argc, uint32_t envc, const char *strings, size_t len)
{
	struct vm_request r = { .argc = argc, .envc = envc };

	memcpy(buf, &r, sizeof(r));
	memcpy(buf + sizeof(r), strings, len);
	return sizeof(r) + len;
}

static void a_request_has_exactly_its_strings(void **state)
{
	static const char strings[] = "/tmp\0ls\0-l\0\0A=b";
	const char *workdir;
	char buf[128], *argv[4], *envp[2];
	struct vm_request r;
	size_t len = request(buf, 3, 1, strings, sizeof(strings));

	assert_int_equal(vm_request_check(buf, len, &r), 0);
	vm_request_strings(buf, &r, &workdir, argv, envp);
	assert_string_equal(workdir, "/tmp");
	assert_string_equal(argv[1], "-l");
	assert_string_equal(argv[2], "");
	assert_null(argv[3]);
	assert_string_equal(envp[0], "A=b");
	assert_null(envp[1]);
	assert_int_equal(vm_request_check(buf, request(buf, 2, 1, strings, sizeof(strings)), &r), -1);
	assert_int_equal(vm_request_check(buf, request(buf, 4, 1, strings, sizeof(strings)), &r), -1);
	assert_int_equal(vm_request_check(buf, request(buf, 0, 4, strings, sizeof(strings)), &r), -1);
	assert_int_equal(vm_request_check(buf, request(buf, 0xffffffff, 5, strings, sizeof(strings)), &r), -1);
	assert_int_equal(vm_request_check(buf, request(buf, 3, 1, strings, sizeof(strings) - 1), &r), -1);
	assert_int_equal(vm_request_check(buf, sizeof(r), &r), -1);
	assert_int_equal(vm_request_check(buf, 3, &r), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_head_is_read_as_it_was_written),
		cmocka_unit_test(what_the_other_end_may_not_send_is_refused),
		cmocka_unit_test(lengths_and_ids_out_of_range_are_refused),
		cmocka_unit_test(a_request_has_exactly_its_strings),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
