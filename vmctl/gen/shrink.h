/*
 * Build time: make a system-call filter shorter. The kernel translates it at every start of a sandbox, instruction by
 * instruction (0.3 µs each).
 *
 * Libseccomp compares arguments in halves of 32 bits and loads a half before each comparison. Three things can be removed:
 * comparisons with an empty mask, masks of a single bit (the kernel has an instruction for that), and loads of a value that is
 * already loaded. The result is tested against the original with many calls, and a difference fails the build.
 */
#ifndef AK_VMCTL_GEN_SHRINK_H
#define AK_VMCTL_GEN_SHRINK_H

#include <linux/filter.h>
#include <stddef.h>
#include <stdint.h>

#define SHRINK_MAX 4096 /* the kernel's limit for a filter */

/* Shorten PROG of N instructions in place. Returns the new length, or -1 with a reason on stderr. */
int shrink(struct sock_filter *prog, size_t n);

#endif
