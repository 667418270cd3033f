/* Helpers for every process of a sandbox: close descriptors that are not needed, and report a failure. */
#include "vmctl/internal.h"

#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

_Noreturn void sb_child_fail(int ctl, int exit_code, const struct ak_err *err)
{
	sb_send(ctl, SB_MSG_FAILED, exit_code, err->text, -1);
	_exit(exit_code);
}

int sb_keep_fds(const int *fds, size_t n)
{
	unsigned next = 0;

	for (;;) {
		int keep = -1;

		for (size_t i = 0; i < n; i++) {
			if (fds[i] >= (int)next && (keep < 0 || fds[i] < keep))
				keep = fds[i];
		}
		if (keep < 0)
			break;
		if ((unsigned)keep > next && syscall(SYS_close_range, next, (unsigned)keep - 1, 0) < 0)
			return -errno;
		next = (unsigned)keep + 1;
	}
	return syscall(SYS_close_range, next, ~0u, 0) < 0 ? -errno : 0;
}
