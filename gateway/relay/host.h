/*
 * Detects addresses of the host itself.
 *
 * Queries the kernel's routes for each new flow: addresses that the host delivers to itself (local, anycast), to all hosts on
 * a link (broadcast) or to a group belong to the host. So does every address of its interfaces, even if our own routes do
 * not lead to it (a VRF has its own tables). Create it in the host's network namespace, before the process is confined.
 * Never blocks.
 */
#ifndef AK_RELAY_HOST_H
#define AK_RELAY_HOST_H

#include "gateway/base/addr.h"
#include "gateway/base/err.h"

#include <stdbool.h>
#include <stdint.h>

struct event_base;
struct relay_host;

/* Addresses in NET/BITS may now belong to the host; family 0: any address may. The callback may call relay_host_owns. */
typedef void (*relay_host_moved)(void *ctx, const struct ak_addr *net, unsigned bits);

int relay_host_new(struct event_base *base, relay_host_moved moved, void *ctx, struct relay_host **ret, struct ak_err *err);
void relay_host_free(struct relay_host *h); /* accepts NULL */

/* Would a flow of IPPROTO_ PROTO to ADDR and PORT stay on the host? True if that cannot be determined. */
bool relay_host_owns(struct relay_host *h, const struct ak_addr *addr, uint8_t proto, uint16_t port);

#endif
