/*
 * A private machine with a private Internet, for the self-test. Nothing of it outlives its processes. No packet can
 * reach a real network, because the machine's only link ends in the private Internet.
 *
 * Order of calls: labns_enter; fork; in the child, pid 1 of the machine, labns_mounts and a fork for the Internet.
 * Then, in turn: the Internet calls labns_internet_enter, the machine labns_host_link, the Internet
 * labns_internet_link, the machine labns_host_route.
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

/*
 * Move the calling process into new namespaces; its next child is pid 1. *RET_MAPPED: this includes a user namespace
 * in which the caller is root.
 */
int labns_enter(bool *ret_mapped, struct ak_err *err);

/*
 * Call as pid 1: make mounts private, mount an empty tmpfs at SCRATCH and replace the machine's resolv.conf by
 * RESOLV_CONF.
 */
int labns_mounts(const char *scratch, const char *resolv_conf, struct ak_err *err);

/* Become UID again, with no other id, in one more user namespace; for a child of a mapped machine. */
int labns_become(uid_t uid, gid_t gid, struct ak_err *err);

/* The four steps that connect the two. IPv6 only where the kernel has it. */
int labns_internet_enter(struct ak_err *err);
int labns_host_link(pid_t internet, struct ak_err *err);
int labns_internet_link(struct ak_err *err);
int labns_host_route(struct ak_err *err);

bool labns_has_ipv6(void);

/* In a child: join the network namespace of PID with capabilities over it. */
int labns_join_net(pid_t pid, struct ak_err *err);

#endif
