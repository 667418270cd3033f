/* Shared by the parts of the microVM backend. */
#ifndef AK_VMCTL_VM_INTERNAL_H
#define AK_VMCTL_VM_INTERNAL_H

#include "gateway/base/strbuf.h"
#include "vmctl/internal.h"
#include "vmctl/vm.h"
#include "vmctl/vm_wire.h"

#define VM_QEMU "/usr/bin/qemu-system-x86_64"

/* vm_initrd.c: the guest's initramfs: our agent, and the kernel modules that it loads. */
struct vm_kernel {
	char image[64]; /* "/boot/vmlinuz-6.1.0-amd64" */
	char release[48];
};
int vm_kernel_find(struct vm_kernel *ret, struct ak_err *err);
int vm_initrd_build(const struct vm_kernel *k, struct strbuf *out, struct ak_err *err);

/* vm_qemu.c: QEMU's command line. Strings of ARGS live as long as it does. */
#define VM_ARGS_MAX 64
struct vm_args {
	char *argv[VM_ARGS_MAX + 1];
	char text[4096];
	size_t n, used;
};
struct vm_machine {
	uint32_t memory_mb;
	const char *kernel, *initrd, *memory; /* paths, as QEMU sees them */
	bool private_memory; /* a restored guest: a private mapping of MEMORY */
	int port, monitor, tap; /* descriptors; -1: files in the working folder, standard streams, no network */
	uint8_t mac[6];
};
void vm_args_build(struct vm_args *a, const struct vm_machine *m);

/* vm_mux.c: main function of the process that routes frames between commands and the guest. READY_FD gets a struct ak_err, "" when the guest is ready. */
_Noreturn void vm_mux_main(int port, int dial, int ready_fd, const struct vm_config *config);

#endif
