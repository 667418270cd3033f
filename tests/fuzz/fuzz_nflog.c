/* What the kernel logs carries bytes that a sandbox chose: any datagram may come, none may be read past its end. */
#include "gateway/base/netlink.h"
#include "nft/nflog.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	char *copy = malloc(len ? len : 1); /* aligned, and its end is watched */
	const struct nlmsghdr *nlh;
	size_t at = 0;
	struct fw_denial d = { 0 };
	enum fw_reason reason;
	uint32_t id;

	if (!copy)
		return 0;
	memcpy(copy, data, len);
	while ((nlh = ak_nlmsg_next(copy, len, &at)))
		if (fw_nflog_parse(nlh, &d) && (d.reason >= FW_REASON_NUM || d.src.family != d.dst.family))
			abort();
	fw_nflog_packet_parse((const uint8_t *)copy, len, &d);
	fw_nflog_prefix_parse(copy, len, &id, &reason);
	free(copy);
	return 0;
}
