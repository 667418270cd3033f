/*
 * Set-id bits in an image: calls of root that would give a file such bits succeed, and the bits are left out. Package managers
 * need that: dpkg and apk give a file the mode that its package names, and stop when this is refused.
 *
 * Theory of operation. The system-call filter does not let such a call through, it reports it to a listener, and the caller
 * waits. A helper process that holds the listener interrupts the caller with ptrace, clears the bits in the register that holds
 * the mode, and detaches. The kernel then restarts the call, which passes the filter like every other call. So
 *  - the filter still decides: whatever the helper does or fails to do, no call with such bits reaches the kernel;
 *  - the caller makes the call itself, with its own credentials, root, folder, umask and Landlock rules, and nobody else waits
 *    for a file that blocks;
 *  - the helper reads nothing that a process inside wrote: only registers, and only to compare and to clear bits.
 * The register keeps its new value after the call. The kernel normally preserves it, but a program that looks at the mode there
 * only sees what the file got.
 *
 * The helper needs CAP_SYS_PTRACE in the sandbox's user namespace, because it is no parent of the callers (Yama). Processes
 * inside cannot look into it. If one kills it, such calls return ENOSYS, and no other process can take its place, because the filter
 * refuses listeners. It may have to wait for a caller that the kernel cannot
 * interrupt; further callers of the sandbox wait with it, and all of them can be killed.
 */
#include "vmctl/internal.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/title.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/ptrace.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOTE_MAX 1024 /* bytes of a notification; a later kernel may have larger ones than we know */
#define SET_IDS ((uint64_t)(S_ISUID | S_ISGID))

/* <sys/ptrace.h> and <linux/ptrace.h> cannot be used together. */
static long trace(long request, uint32_t pid, long addr, uintptr_t data)
{
	return syscall(SYS_ptrace, request, (long)pid, addr, data);
}

/* ---- registers ---- */

/* The C libraries give the members different types of the same size. */
union registers {
	struct user_regs_struct regs;
	uint64_t words[sizeof(struct user_regs_struct) / sizeof(uint64_t)];
};
#define WORD(member) (offsetof(struct user_regs_struct, member) / sizeof(uint64_t))

#if defined(__x86_64__)
static const size_t arguments[] = { WORD(rdi), WORD(rsi), WORD(rdx), WORD(r10), WORD(r8), WORD(r9) };

static bool about_to_restart(const struct user_regs_struct *regs, const struct seccomp_data *call)
{
	const int64_t restarts = -512; /* the kernel's ERESTARTSYS, which only a tracer sees */

	return (int)regs->orig_rax == call->nr && (int64_t)regs->rax == restarts && regs->rip == call->instruction_pointer;
}
#elif defined(__aarch64__)
static const size_t arguments[] = { WORD(regs[0]), WORD(regs[1]), WORD(regs[2]), WORD(regs[3]), WORD(regs[4]), WORD(regs[5]) };

/* Here the kernel moves back to the instruction before the tracer looks. */
static bool about_to_restart(const struct user_regs_struct *regs, const struct seccomp_data *call)
{
	return (int)regs->regs[8] == call->nr && regs->pc + 4 == call->instruction_pointer;
}
#else
#error "registers of this architecture"
#endif

/* Leaves a process alone that does something else by now, for example because a signal interrupted the call. */
static void clear_bits(const struct seccomp_notif *n, int mode)
{
	union registers r;
	struct iovec all = { &r, sizeof(r) };

	if (trace(PTRACE_GETREGSET, n->pid, NT_PRSTATUS, (uintptr_t)&all) < 0 || !about_to_restart(&r.regs, &n->data))
		return;
	r.words[arguments[mode]] &= ~SET_IDS;
	(void)trace(PTRACE_SETREGSET, n->pid, NT_PRSTATUS, (uintptr_t)&all);
}

/* ---- notifications ---- */

/* The kernel lets a process read the limits of another only if all ids of that one are its own real ids: here, root's. */
static bool is_root(uint32_t pid)
{
	struct rlimit unused;

	return syscall(SYS_prlimit64, pid, RLIMIT_NOFILE, NULL, &unused) == 0;
}

static void refuse(int listener, uint64_t id)
{
	union {
		struct seccomp_notif_resp resp;
		char room[NOTE_MAX];
	} answer = { .resp = { .id = id, .error = -EPERM } };

	(void)ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &answer);
}

static void on_call(int listener, const struct seccomp_notif *n)
{
	const int mode = sb_mode_argument(n->data.nr);
	int status, sig;

	/* Fails for a process that is being traced already. */
	if (mode < 0 || !is_root(n->pid) || trace(PTRACE_SEIZE, n->pid, 0, 0) < 0) {
		refuse(listener, n->id);
		return;
	}
	(void)trace(PTRACE_INTERRUPT, n->pid, 0, 0);
	if (waitpid((pid_t)n->pid, &status, __WALL) != (pid_t)n->pid || !WIFSTOPPED(status))
		return; /* it was killed */
	clear_bits(n, mode);
	/* If a signal stopped it first, deliver that. */
	sig = status >> 16 == PTRACE_EVENT_STOP ? 0 : WSTOPSIG(status);
	(void)trace(PTRACE_DETACH, n->pid, 0, (uintptr_t)sig);
}

static _Noreturn void serve(int listener)
{
	union {
		struct seccomp_notif n;
		char room[NOTE_MAX];
	} note;

	for (;;) {
		memset(&note, 0, sizeof(note));
		if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &note) == 0)
			on_call(listener, &note.n);
		else if (errno != EINTR && errno != ENOENT) /* ENOENT: the caller does not wait any more */
			_exit(1);
	}
}

/* ---- start ---- */

/* Our memory is a copy of the caller's, and /proc shows its command line: see init_loop.c. */
static _Noreturn void helper_main(int listener, int ready)
{
	const int keep[] = { listener, ready };
	struct seccomp_notif_sizes sizes;

	prctl(PR_SET_NAME, "agentkernel");
	ak_title_set("agentkernel helper");
	if (sb_keep_fds(keep, ARRAY_SIZE(keep)) < 0 || syscall(SYS_seccomp, SECCOMP_GET_NOTIF_SIZES, 0, &sizes) < 0)
		_exit(1);
	if (sizes.seccomp_notif > NOTE_MAX || sizes.seccomp_notif_resp > NOTE_MAX)
		_exit(1);
	/* The filter that follows has no write; nothing of the host is left to be found here. */
	if (write(ready, "", 1) != 1 || close(ready) < 0 || sb_confine_helper() < 0)
		_exit(1);
	serve(listener);
}

pid_t sb_setid_start(int listener)
{
	_cleanup_close_ int owned = listener;
	int ready[2];
	pid_t pid;
	char byte;

	if (pipe2(ready, O_CLOEXEC) < 0)
		return -errno;
	pid = fork();
	if (pid == 0)
		helper_main(owned, ready[1]);
	if (pid < 0)
		pid = -errno;
	ak_close(ready[1]);
	/* No command may find it half prepared. All signals are blocked, so nothing interrupts the read. */
	if (pid > 0 && read(ready[0], &byte, 1) != 1)
		pid = -ESRCH;
	ak_close(ready[0]);
	return pid;
}
