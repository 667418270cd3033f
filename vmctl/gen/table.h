/*
 * Build time: a libseccomp filter as a C table. libseccomp needs half a millisecond to compile one, a tenth of a sandbox's
 * start.
 */
#ifndef AK_VMCTL_GEN_TABLE_H
#define AK_VMCTL_GEN_TABLE_H

#include <seccomp.h>
#include <stdint.h>
#include <stdio.h>

/* Returns RC; prints a line on stderr if it is an error. */
int table_check(int rc, const char *what);

/*
 * Print the filter as "static const struct sock_filter seccomp_NAME[]". Unless FIRST_UNKNOWN is 0, calls from that number on
 * return ENOSYS; this check comes first. A separate filter for it would be translated at every start and run at every call.
 */
int table_print(FILE *out, scmp_filter_ctx ctx, const char *name, uint32_t first_unknown);

#endif
