/* The virtual machine of a sandbox that wants one: the template in STATE/vm, for every driver of the engine. */
#ifndef AK_RUN_VM_H
#define AK_RUN_VM_H

#include "gateway/base/err.h"
#include "gateway/base/paths.h"
#include "vmctl/sandbox.h"
#include "vmctl/vm.h"

/* Open the template for LIMITS' memory; make it first if there is none, which takes seconds and is told unless QUIET. Raises the memory limit by what QEMU needs besides. */
int run_vm_open(
	const struct ak_paths *paths, struct sandbox_limits *limits, bool quiet, struct sandbox_vm *ret, struct ak_err *err);

/* Make the template now, so that later starts are fast. */
int run_vm_prepare(const struct ak_paths *paths, const struct sandbox_limits *limits, bool quiet, struct ak_err *err);

#endif
