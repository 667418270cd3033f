/*
 * Does KVM really run a guest? That /dev/kvm can be opened does not show it: nested virtualisation may be broken. A guest of a few instructions in
 * real mode tells; it needs no kernel image.
 */
#include "gateway/doctor/internal.h"

#include "gateway/base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef __x86_64__
#include <linux/kvm.h>

#define GUEST_AT 0x1000
#define GUEST_SIZE 0x1000
#define GUEST_PORT 0x10
#define GUEST_VALUE 0x2a
#define GUEST_SECONDS 2

static int guest_memory(int vm, struct ak_err *err)
{
	/* mov dx, GUEST_PORT; mov al, GUEST_VALUE; out dx, al; hlt */
	static const unsigned char code[] = { 0xba, GUEST_PORT, 0x00, 0xb0, GUEST_VALUE, 0xee, 0xf4 };
	void *memory = mmap(NULL, GUEST_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct kvm_userspace_memory_region region = {
		.guest_phys_addr = GUEST_AT, .memory_size = GUEST_SIZE, .userspace_addr = (uintptr_t)memory
	};

	if (memory == MAP_FAILED)
		return ak_fail_errno(err, errno, "memory of the guest");
	memcpy(memory, code, sizeof(code));
	if (ioctl(vm, KVM_SET_USER_MEMORY_REGION, &region) < 0)
		return ak_fail_errno(err, errno, "KVM_SET_USER_MEMORY_REGION");
	return 0;
}

static int guest_registers(int cpu, struct ak_err *err)
{
	struct kvm_regs regs = { .rip = GUEST_AT, .rflags = 2 };
	struct kvm_sregs sregs;

	if (ioctl(cpu, KVM_GET_SREGS, &sregs) < 0)
		return ak_fail_errno(err, errno, "KVM_GET_SREGS");
	sregs.cs.base = 0;
	sregs.cs.selector = 0;
	if (ioctl(cpu, KVM_SET_SREGS, &sregs) < 0 || ioctl(cpu, KVM_SET_REGS, &regs) < 0)
		return ak_fail_errno(err, errno, "registers of the guest");
	return 0;
}

static int guest_run(int kvm, int cpu, struct ak_err *err)
{
	int size = ioctl(kvm, KVM_GET_VCPU_MMAP_SIZE, 0);
	struct kvm_run *run = size > 0 ? mmap(NULL, (size_t)size, PROT_READ | PROT_WRITE, MAP_SHARED, cpu, 0) : MAP_FAILED;

	if (run == MAP_FAILED)
		return ak_fail_errno(err, errno, "shared page of the guest");
	if (ioctl(cpu, KVM_RUN, 0) < 0)
		return ak_fail_errno(err, errno, "KVM_RUN");
	if (run->exit_reason != KVM_EXIT_IO || run->io.port != GUEST_PORT ||
		*((unsigned char *)run + run->io.data_offset) != GUEST_VALUE)
		return ak_fail(err, EIO, "the guest stopped with reason %u instead of running", run->exit_reason);
	return 0;
}

static int guest(struct ak_err *err)
{
	_cleanup_close_ int kvm = open("/dev/kvm", O_RDWR | O_CLOEXEC);
	_cleanup_close_ int vm = kvm < 0 ? -1 : ioctl(kvm, KVM_CREATE_VM, 0);
	int rc;

	if (kvm < 0)
		return ak_fail_errno(err, errno, "/dev/kvm");
	if (vm < 0)
		return ak_fail_errno(err, errno, "KVM_CREATE_VM");
	_cleanup_close_ int cpu = ioctl(vm, KVM_CREATE_VCPU, 0);

	if (cpu < 0)
		return ak_fail_errno(err, errno, "KVM_CREATE_VCPU");
	rc = guest_memory(vm, err);
	if (rc == 0)
		rc = guest_registers(cpu, err);
	return rc < 0 ? rc : guest_run(kvm, cpu, err);
}

/* In a child: a guest that hangs is ended by the alarm, and its memory goes with the process. */
int doctor_kvm_guest(struct ak_err *err)
{
	int fds[2], status = 0;
	ssize_t n;
	pid_t pid;

	if (pipe2(fds, O_CLOEXEC) < 0)
		return ak_fail_errno(err, errno, "pipe");
	pid = fork();
	if (pid == 0) {
		struct ak_err why = { "" };
		int rc;

		signal(SIGALRM, SIG_DFL);
		alarm(GUEST_SECONDS);
		rc = guest(&why);
		if (write(fds[1], &why, sizeof(why)) < 0)
			_exit(1);
		_exit(rc == 0 ? 0 : -rc & 0xff);
	}
	ak_close(fds[1]);
	n = pid < 0 ? -1 : read(fds[0], err, sizeof(*err));
	ak_close(fds[0]);
	if (pid < 0)
		return ak_fail_errno(err, errno, "fork");
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (WIFSIGNALED(status))
		return ak_fail(err, ETIME, "a guest of four instructions hung for %d s", GUEST_SECONDS);
	if (n != sizeof(*err))
		return ak_fail(err, EIO, "the process of the guest died");
	return -WEXITSTATUS(status);
}

#else

int doctor_kvm_guest(struct ak_err *err)
{
	return access("/dev/kvm", R_OK | W_OK) < 0 ? ak_fail_errno(err, errno, "/dev/kvm")
						   : ak_fail(err, EOPNOTSUPP, "not tried on this processor");
}

#endif
