/* Parse a netlink datagram. Unlike the usual macros, this rejects lengths that are negative or above INT_MAX. */
#ifndef AK_NETLINK_H
#define AK_NETLINK_H

#include "gateway/base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <linux/netlink.h>

/* Return the message at *AT in the LEN bytes of DATA (aligned to 4) and advance *AT; NULL if no complete one is left. */
static inline const struct nlmsghdr *ak_nlmsg_next(const void *data, size_t len, size_t *at)
{
	const struct nlmsghdr *nlh;

	if (*at > len || len - *at < sizeof(*nlh))
		return NULL;
	nlh = (const struct nlmsghdr *)(const void *)((const char *)data + *at);
	if (nlh->nlmsg_len < sizeof(*nlh) || nlh->nlmsg_len > len - *at)
		return NULL;
	*at += NLMSG_ALIGN((size_t)nlh->nlmsg_len);
	return nlh;
}

/* Is it an acknowledgement? Stores 0 or -errno in *RET_CODE. Invalid error codes do not count. */
static inline bool ak_nlmsg_ack(const struct nlmsghdr *nlh, int *ret_code)
{
	int code;

	if (nlh->nlmsg_type != NLMSG_ERROR || nlh->nlmsg_len < NLMSG_HDRLEN + sizeof(code))
		return false;
	memcpy(&code, (const char *)nlh + NLMSG_HDRLEN, sizeof(code));
	if (code > 0 || code < -AK_ERRNO_MAX)
		return false;
	*ret_code = code;
	return true;
}

#endif
