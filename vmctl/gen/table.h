/*
 * Build time: a libseccomp filter as a C table. libseccomp needs half a millisecond to compile one, which is a tenth of a sandbox's whole start.
 */
#ifndef AK_VMCTL_GEN_TABLE_H
#define AK_VMCTL_GEN_TABLE_H

#include <seccomp.h>
#include <stdint.h>
#include <stdio.h>

/* RC, with a line on stderr when it is an error. */
int table_check(int rc, const char *what);

/*
 * The filter as "static const struct sock_filter seccomp_NAME[]". Calls from the number FIRST_UNKNOWN on are ENOSYS, in front of everything else, unless it is 0:
 * a filter of its own for that would be translated at every start and run at every call.
 */
int table_print(FILE *out, scmp_filter_ctx ctx, const char *name, uint32_t first_unknown);

#endif
