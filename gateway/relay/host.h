/*
 * Whether an address is the host's own.
 *
 * Asked of the kernel's routes, for each new flow anew: what the host delivers to itself (local, anycast), to everyone on a link (broadcast) or to a
 * group is the host's, whoever may bind it. Besides, no address of any of its interfaces is a stranger's, even when our own routes do not
 * lead to it (a VRF has tables of its own). To be made in the host's network namespace, before the process is confined; never blocks.
 */
#ifndef AK_RELAY_HOST_H
#define AK_RELAY_HOST_H

#include "gateway/base/addr.h"
#include "gateway/base/err.h"

#include <stdbool.h>
#include <stdint.h>

struct event_base;
struct relay_host;

/* What lies in NET/BITS may have become the host's; family 0: anything may. relay_host_owns may be called from it. */
typedef void (*relay_host_moved)(void *ctx, const struct ak_addr *net, unsigned bits);

int relay_host_new(struct event_base *base, relay_host_moved moved, void *ctx, struct relay_host **ret, struct ak_err *err);
void relay_host_free(struct relay_host *h); /* NULL is fine */

/* Would a flow of IPPROTO_ PROTO to ADDR and PORT stay on the host? True also when that cannot be told. */
bool relay_host_owns(struct relay_host *h, const struct ak_addr *addr, uint8_t proto, uint16_t port);

#endif
