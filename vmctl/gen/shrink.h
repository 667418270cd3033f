/*
 * Build time: make a system-call filter shorter. The kernel translates it at every start of a sandbox, instruction by instruction (0.3 µs each).
 *
 * Libseccomp compares arguments in halves of 32 bits and loads a half before each comparison. Three things can go: comparisons of no bit at all, masks of a
 * single bit (the kernel has an instruction for that), and loads of what is loaded already. The result is run against the original on many calls, and a
 * difference fails the build.
 */
#ifndef AK_VMCTL_GEN_SHRINK_H
#define AK_VMCTL_GEN_SHRINK_H

#include <linux/filter.h>
#include <stddef.h>
#include <stdint.h>

#define SHRINK_MAX 4096 /* the kernel's limit for a filter */

/* PROG of N instructions in place; how many are left, or -1 with a reason on stderr. */
int shrink(struct sock_filter *prog, size_t n);

#endif
