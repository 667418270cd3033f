/* Which template a sandbox needs. See run/vm.h. */
#include "gateway/run/vm.h"

#include "gateway/base/say.h"

#include <errno.h>

#define MB (1u << 20)
#define SMALLEST_MB 128u
#define LARGEST_MB 65536u
#define QEMU_MB 192u /* its code, translated code and buffers */

static void say_line(const char *line)
{
	ak_say("%s", line);
}

int run_vm_open(
	const struct ak_paths *paths, struct sandbox_limits *limits, bool quiet, struct sandbox_vm *ret, struct ak_err *err)
{
	uint64_t mb = limits->memory_bytes ? limits->memory_bytes / MB : VM_MEMORY_DEFAULT_MB;
	char dir[PATH_MAX];
	int rc = ak_path_join(dir, paths->state, "vm", NULL);

	if (rc < 0)
		return ak_fail_errno(err, -rc, "%s", paths->state);
	if (mb < SMALLEST_MB || mb > LARGEST_MB)
		return ak_fail(
			err, EINVAL, "--memory: a virtual machine needs between %uM and %uG", SMALLEST_MB, LARGEST_MB / 1024);
	if (limits->memory_bytes)
		limits->memory_bytes = (mb + QEMU_MB) * MB;
	return vm_open(dir, (uint32_t)mb, quiet ? NULL : say_line, ret, err);
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
