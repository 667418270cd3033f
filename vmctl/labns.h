/*
 * A private machine with a private Internet, for the self-test: nothing of it outlives its processes, and no packet of it can
 * reach a real network, because the only link of the one ends in the other.
 *
 *   caller → labns_enter → fork → pid 1 of the machine: labns_mounts, then a child for the Internet
 *   the Internet: labns_internet_enter … the machine: labns_host_link … the Internet: labns_internet_link … labns_host_route
 */
#ifndef AK_LABNS_H
#define AK_LABNS_H

#include "gateway/base/err.h"

#include <stdbool.h>
#include <sys/types.h>

#define LABNS_HOST4 "11.200.0.2"
#define LABNS_INET4 "11.200.0.1"
#define LABNS_HOST6 "2a00:ffff::2"
#define LABNS_INET6 "2a00:ffff::1"
#define LABNS_HOST_PRIVATE4 "10.77.0.1" /* a second address of the machine, on its loopback */
#define LABNS_INET_IF "inet0"

/* New namespaces for the calling process; its next child is pid 1. *RET_MAPPED: in a user namespace, where the caller is root. */
int labns_enter(bool *ret_mapped, struct ak_err *err);

/* As pid 1: private mounts, an empty folder in memory at SCRATCH, and RESOLV_CONF in place of the machine's own. */
int labns_mounts(const char *scratch, const char *resolv_conf, struct ak_err *err);

/* Be UID again, and nobody else, in one more user namespace: for a child of a mapped machine. */
int labns_become(uid_t uid, gid_t gid, struct ak_err *err);

/* The four steps of joining the two; IPv6 only where the kernel has it. */
int labns_internet_enter(struct ak_err *err);
int labns_host_link(pid_t internet, struct ak_err *err);
int labns_internet_link(struct ak_err *err);
int labns_host_route(struct ak_err *err);

bool labns_has_ipv6(void);

/* For a child: step into the network namespace of PID, with power over it. */
int labns_join_net(pid_t pid, struct ak_err *err);

#endif
