/*
 * A minimal rtnetlink client: a fixed buffer of messages that are sent together; every acknowledgement is read.
 * Internal to vmctl.
 */
#ifndef AK_RTNL_H
#define AK_RTNL_H

#include "gateway/base/addr.h"
#include "gateway/base/err.h"

#include <stddef.h>
#include <stdint.h>

#define RTNL_MESSAGES_MAX 16
#define RTNL_LO_INDEX 1 /* of the loopback interface, in every namespace */

struct rtnl_batch {
	_Alignas(8) char buf[4096];
	size_t len;
	size_t last; /* offset of the message being built */
	const char *what[RTNL_MESSAGES_MAX]; /* names of the messages, for errors */
	unsigned n;
};

/* Begin a message with the fixed header HEADER. WHAT is borrowed. */
void rtnl_begin(struct rtnl_batch *b, const char *what, uint16_t type, uint16_t flags, const void *header, size_t len);
void rtnl_attr(struct rtnl_batch *b, uint16_t type, const void *data, size_t len);
void rtnl_attr_u32(struct rtnl_batch *b, uint16_t type, uint32_t value);
void rtnl_attr_str(struct rtnl_batch *b, uint16_t type, const char *text);
void rtnl_attr_addr(struct rtnl_batch *b, uint16_t type, const struct ak_addr *a);
size_t rtnl_nest(struct rtnl_batch *b, uint16_t type, const void *header, size_t len);
void rtnl_nest_end(struct rtnl_batch *b, size_t nest);

/* Whole messages, each as the command `ip` has it: link set up; addr add; route add default via; route add local default dev lo. */
void rtnl_up(struct rtnl_batch *b, const char *what, uint32_t index);
void rtnl_address(struct rtnl_batch *b, const char *what, uint32_t index, const struct ak_addr *a, unsigned prefix_len);
void rtnl_default_route(struct rtnl_batch *b, const char *what, uint32_t index, const struct ak_addr *via);
void rtnl_local_default(struct rtnl_batch *b, const char *what, int family);

/* Send the batch and read one acknowledgement per message; ERR names the first message that failed. */
int rtnl_send(int fd, struct rtnl_batch *b, struct ak_err *err);

/*
 * A kernel worker reports the carrier to the end of a link that was brought up first. Until then its packets are dropped, and a
 * client would lose its first SYN. Query the link state, which runs the pending work at once. FD is any socket in the link's namespace.
 */
void rtnl_settle(int fd, const char *ifname);

#endif
