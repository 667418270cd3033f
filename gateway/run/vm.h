/* The virtual machine of a sandbox that wants one: the template in STATE/vm, for every driver of the engine. */
#ifndef AK_RUN_VM_H
#define AK_RUN_VM_H

#include "gateway/base/err.h"
#include "gateway/base/paths.h"
#include "gateway/store/plan.h"
#include "vmctl/sandbox.h"
#include "vmctl/vm.h"

/* Open the template for LIMITS' memory; make it first if there is none, which takes seconds and is told unless QUIET. Raises the memory limit by what QEMU needs besides. */
int run_vm_open(
	const struct ak_paths *paths, struct sandbox_limits *limits, bool quiet, struct sandbox_vm *ret, struct ak_err *err);

/* Whether the request wants a virtual machine: it says so, or says "auto" and hardware virtualisation runs one. */
bool run_vm_wanted(const struct ak_paths *paths, const struct run_request *opts);

/* vm_kvm_test (vmctl/vm.h) in the user's own folder. */
int run_vm_test(const struct ak_paths *paths, bool again, struct ak_err *why);

/* The guest's memory, and raise the memory limit by what QEMU needs besides: a part of run_vm_open, for who has the template already. */
int run_vm_limits(struct sandbox_limits *limits, uint32_t *ret_mb, struct ak_err *err);

/* vm_open_saved (vmctl/vm.h) of the user's own folder: never make a template. */
int run_vm_saved(const struct ak_paths *paths, uint32_t memory_mb, struct sandbox_vm *vm, struct ak_err *err);

/* Make the template now, so that later starts are fast. */
int run_vm_prepare(const struct ak_paths *paths, const struct sandbox_limits *limits, bool quiet, struct ak_err *err);

#endif
