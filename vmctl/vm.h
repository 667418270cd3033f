/*
 * The microVM backend: a guest with a kernel of its own, behind the same sandbox.h.
 *
 * A sandbox of this kind is first a namespace sandbox: the same root, mounts, limits, system-call filter and Landlock rules. Inside it runs QEMU instead of the command. The
 * guest's root is the sandbox's root, shared by 9p; its network is a tap in the gateway's namespace; its commands are started by an agent, over a virtio
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

#define VM_MEMORY_DEFAULT_MB 512u

/* What a restored guest needs. Sealed memory files; -1 if none. */
struct sandbox_vm {
	int memory, state, kernel, initrd; /* owned */
	uint32_t memory_mb;
};

/* Whether this host has what it takes: 0 and the kernel's release, or the reason. */
int vm_requirements(char *ret_kernel, size_t size, struct ak_err *err);

/* Open the template for MEMORY_MB in the folder DIR, which is created; boot a guest to make it if there is none, or it is old or does not fit. SAY (may be NULL) gets a
   line when that takes a while. -ENOENT if a program or a kernel is missing. */
int vm_open(const char *dir, uint32_t memory_mb, void (*say)(const char *line), struct sandbox_vm *ret, struct ak_err *err);
void sandbox_vm_done(struct sandbox_vm *vm);

#endif
