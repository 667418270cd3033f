/*
 * The microVM backend: a guest with a kernel of its own, behind the same sandbox.h.
 *
 * A sandbox of this kind is first a namespace sandbox: the same root, mounts, limits, system-call filter and Landlock rules. Inside it runs QEMU instead of the command, in a room of
 * its own (vm_room.c). The guest's root is the sandbox's root, of the host's programs or of an image, shared by 9p; its network is a tap in the gateway's namespace; its commands are started by an agent, over a virtio
 * serial port. So a guest that breaks out of QEMU is where an ordinary sandbox would have been.
 *
 * A guest is booted once for each kernel, QEMU and memory size, and saved before it mounts anything of the host: the template. Every start restores it, from a private
 * mapping of a sealed memory file.
 */
#ifndef AK_VMCTL_VM_H
#define AK_VMCTL_VM_H

#include "gateway/base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What a restored guest needs. Sealed memory files; -1 if none. */
struct sandbox_vm {
	int memory, state, kernel, initrd; /* owned */
	uint32_t memory_mb;
	bool kvm; /* hardware virtualisation; else software emulation */
	char name[40]; /* of the template, and the checksum of its files */
	uint64_t sum;
};

#define SANDBOX_VM_INIT                                                                                                          \
	{                                                                                                                        \
		.memory = -1, .state = -1, .kernel = -1, .initrd = -1                                                            \
	}
#define SANDBOX_VM_NONE ((struct sandbox_vm)SANDBOX_VM_INIT)

/* Whether this host has what it takes: 0 and the kernel's release, or the reason. */
int vm_requirements(char *ret_kernel, size_t size, struct ak_err *err);

/*
 * Whether hardware virtualisation really runs a guest to our agent's first words: 0, or the reason in WHY. Gives up in under 2 s. The result is kept in DIR for this kernel and this
 * QEMU; a bad one for a day. AGAIN: test in any case.
 */
int vm_kvm_test(const char *dir, bool again, struct ak_err *why);

/* Open the template for MEMORY_MB in the folder DIR, which is created; boot a guest to make it if there is none, or it is old or does not fit. SAY (may be NULL) gets a
   line when that takes a while. -ENOENT if a program or a kernel is missing. */
int vm_open(const char *dir, uint32_t memory_mb, void (*say)(const char *line), struct sandbox_vm *ret, struct ak_err *err);
/*
 * The same, but never boot a guest, nor wait for one who does: -ENOENT, or -EWOULDBLOCK. VM is SANDBOX_VM_NONE, or what an earlier call has opened; that stays as it is if the call
 * fails, and if it is still the saved guest.
 */
int vm_open_saved(const char *dir, uint32_t memory_mb, struct sandbox_vm *vm, struct ak_err *err);
void sandbox_vm_done(struct sandbox_vm *vm);

#endif
