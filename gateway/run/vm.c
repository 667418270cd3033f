/* Which template a sandbox needs. See run/vm.h. */
#include "gateway/run/vm.h"

#include "gateway/base/say.h"

#include <errno.h>

#define MB (1u << 20)
#define SMALLEST_MB 128u
#define LARGEST_MB 65536u
#define QEMU_MB 192u /* its code, translated code and buffers */
/*
 * A page of the saved guest that holds only zeros is a hole in its memory file. When a guest writes to it, the kernel first fills the hole, then makes the private copy
 * (do_cow_fault in mm/memory.c), and the limit counts both.
 */
#define PAGES_PER_PAGE 2u

static void say_line(const char *line)
{
	ak_say("%s", line);
}

int run_vm_limits(struct sandbox_limits *limits, uint32_t *ret_mb, struct ak_err *err)
{
	uint64_t mb = limits->memory_bytes ? limits->memory_bytes / MB : VM_MEMORY_DEFAULT_MB;

	if (mb < SMALLEST_MB || mb > LARGEST_MB)
		return ak_fail(
			err, EINVAL, "--memory: a virtual machine needs between %uM and %uG", SMALLEST_MB, LARGEST_MB / 1024);
	if (limits->memory_bytes)
		limits->memory_bytes = (PAGES_PER_PAGE * mb + QEMU_MB) * MB;
	*ret_mb = (uint32_t)mb;
	return 0;
}

int run_vm_open(
	const struct ak_paths *paths, struct sandbox_limits *limits, bool quiet, struct sandbox_vm *ret, struct ak_err *err)
{
	char dir[PATH_MAX];
	uint32_t mb = 0;
	int rc = ak_path_join(dir, paths->state, "vm", NULL);

	if (rc < 0)
		return ak_fail_errno(err, -rc, "%s", paths->state);
	rc = run_vm_limits(limits, &mb, err);
	return rc < 0 ? rc : vm_open(dir, mb, quiet ? NULL : say_line, ret, err);
}

int run_vm_test(const struct ak_paths *paths, bool again, struct ak_err *why)
{
	char dir[PATH_MAX];
	int rc = ak_path_join(dir, paths->state, "vm", NULL);

	return rc < 0 ? ak_fail_errno(why, -rc, "%s", paths->state) : vm_kvm_test(dir, again, why);
}

/* Nested namespaces need a kernel that is shared. */
bool run_vm_wanted(const struct ak_paths *paths, const struct run_request *opts)
{
	static int works = -1; /* the test's result is kept on disk too */
	struct ak_err ignored;

	if (opts->vm || !opts->vm_if_fast || opts->nested)
		return opts->vm;
	if (works < 0)
		works = run_vm_test(paths, false, &ignored) == 0;
	return works;
}

int run_vm_prepare(const struct ak_paths *paths, const struct sandbox_limits *limits, bool quiet, struct ak_err *err)
{
	struct sandbox_limits copy = *limits;
	struct sandbox_vm vm;
	int rc = run_vm_open(paths, &copy, quiet, &vm, err);

	if (rc == 0)
		sandbox_vm_done(&vm);
	return rc;
}

int run_vm_saved(const struct ak_paths *paths, uint32_t memory_mb, struct sandbox_vm *vm, struct ak_err *err)
{
	char dir[PATH_MAX];
	int rc = ak_path_join(dir, paths->state, "vm", NULL);

	return rc < 0 ? ak_fail_errno(err, -rc, "%s", paths->state) : vm_open_saved(dir, memory_mb, vm, err);
}
