/* Shared by the parts of the microVM backend. */
#ifndef AK_VMCTL_VM_INTERNAL_H
#define AK_VMCTL_VM_INTERNAL_H

#include "gateway/base/strbuf.h"
#include "vmctl/internal.h"
#include "vmctl/vm.h"
#include "vmctl/vm_wire.h"

/* vm_initrd.c: the guest's initramfs: our agent, and the kernel modules that it loads. */
struct vm_kernel {
	char image[64]; /* "/boot/vmlinuz-6.1.0-amd64" */
	char release[48];
};
int vm_kernel_find(struct vm_kernel *ret, struct ak_err *err);
int vm_initrd_build(const struct vm_kernel *k, struct strbuf *out, struct ak_err *err);

/* Strings of a command line live as long as this. */
#define VM_ARGS_MAX 64
struct vm_args {
	char *argv[VM_ARGS_MAX + 1];
	char text[4096];
	size_t n, used;
};
struct vm_machine {
	uint32_t memory_mb;
	bool kvm; /* hardware virtualisation; else software emulation */
	const char *kernel, *initrd, *memory; /* paths, as the monitor sees them */
	const char *root, *usr; /* folders to share */
	bool private_memory; /* a restored guest: a private mapping of MEMORY */
	int port, monitor, tap,
		console; /* descriptors; -1: files in the working folder, standard streams, and a file for the console; there is always a tap */
	uint8_t mac[6];
};
void vm_arg(struct vm_args *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* A conversation with a running monitor. */
struct vm_talk {
	int to, from; /* borrowed */
	bool (*alive)(void *ctx); /* whether its process still runs */
	void *ctx;
	char reply[65536];
	size_t len;
};

/*
 * A virtual machine monitor: its command line, and what is said to it. A guest is booted and saved once; every other one is restored.
 */
struct vmm {
	const char *name, *program;
	void (*args)(struct vm_args *a, const struct vm_machine *m);
	/* Save the guest: its memory is in its file, the rest becomes the file "state" of the working folder. */
	int (*save)(struct vm_talk *t, struct ak_err *err);
	/* Load the state from the descriptor STATE, which the monitor has inherited under the same number, and run. Answers are not awaited: a monitor that fails ends. */
	int (*restore)(int monitor, int state);
	int (*quit)(struct vm_talk *t, struct ak_err *err);
	void (*end)(int monitor); /* the same for a restored guest, without waiting */
};
extern const struct vmm vmm_qemu;

/* The monitor in use. */
const struct vmm *vmm_get(void);

/* vm_template.c: what a template depends on besides programs; a file's size and time; and a boot to the agent's first words that leaves nothing behind. */
struct vm_shape {
	uint32_t memory_mb;
	bool kvm;
};
void vm_stamp(struct strbuf *out, const char *path);
int vm_boot_test(int store, const char *store_path, const struct vm_kernel *k, const struct vm_shape *shape, uint64_t until_ms,
	struct ak_err *err);

/* vm_prune.c: in the locked folder STORE, remove templates that nobody will use any more; never KEEP. */
#define VM_AGE_MAX_S 86400 /* then a template is made anew */
void vm_prune(int store, const char *keep);

/*
 * vm_seal.c: add the checksum of the file NAME to *SUM; vm_seal also returns a sealed copy. -EBADMSG if the file is shorter than it says.
 */
int vm_sum(int dir, const char *name, uint64_t *sum);
int vm_seal(int dir, const char *name, uint64_t *sum);

/* vm_kvm.c: 0 if hardware virtualisation runs a guest, or the reason in WHY. In the locked folder STORE; tests unless the result is known, or AGAIN. */
int vm_kvm_recall(
	int store, const struct vm_kernel *k, struct ak_err *why); /* never tests: -ENODATA if the result is not known */
int vm_kvm_check(int store, const char *store_path, const struct vm_kernel *k, bool again, struct ak_err *why);

/* It did run a guest once, but does not any more. */
void vm_kvm_failed(int store, const struct vm_kernel *k, const struct ak_err *why);

/*
 * vm_room.c: move into the room, then, confined already, give up every file outside of what QEMU and the guest need. BASE is the sandbox's root; if it is not COMPLETE, vm_room_keep
 * starts a process in the room that mounts it when init sends a clone over SOCK, and answers with an int.
 */
int vm_room_enter(const struct sb_vm_host *host, int base, bool complete, struct ak_err *err);
int vm_room_keep(int sock);
int vm_room_close(bool kvm);

/*
 * vm_console.c: the guest's serial console. Lines go to DEBUG (-1: nowhere), and those that tell why a guest or a program of it ended become notices: struct ak_err, at most
 * VM_NOTICES_MAX.
 */
#define VM_NOTICES_MAX 4
struct vm_console {
	int fd, debug, notices; /* borrowed */
	unsigned n_notices;
	char line[256];
	size_t len;
};
bool vm_console_read(struct vm_console *c); /* false at its end */
void vm_console_notice(struct vm_console *c, const char *text);

/*
 * vm_mux.c: main function of the process that routes frames between commands and the guest. READY_FD, also in CONSOLE, gets a struct ak_err, "" when the guest is ready, and then
 * the notices.
 */
_Noreturn void vm_mux_main(int port, int dial, int ready_fd, struct vm_console *console, const struct vm_config *config);

#endif
