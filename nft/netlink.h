/* Walking the messages of one datagram. libmnl's own test takes a length above INT_MAX for a small one; this one does not. */
#ifndef AK_FW_NETLINK_H
#define AK_FW_NETLINK_H

#include <stddef.h>
#include <linux/netlink.h>

/* The message at *AT of the LEN bytes of DATA (aligned to 4), moving *AT past it; NULL when no whole one is left. */
static inline const struct nlmsghdr *fw_nlmsg_next(const void *data, size_t len, size_t *at)
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

#endif
