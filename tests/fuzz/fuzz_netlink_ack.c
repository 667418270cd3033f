/* Acknowledgements of a batch and counters: whatever comes, only the right one means success. */
#include "gateway/base/netlink.h"
#include "nft/batch.h"
#include "nft/counts.h"
#include "nft/ruleset.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	static struct fw_batch batch;
	char *copy = malloc(len ? len : 1); /* aligned, and its end is watched */
	const struct nlmsghdr *nlh;
	size_t at = 0;
	struct fw_acks acks = { 0 };
	struct ak_err err = { "" };
	uint64_t packets;

	if (!copy)
		return 0;
	if (!batch.n) {
		struct fw_elem e = { .addr = ak_addr_v4(0x0b000001), .port = 443, .timeout_s = 1 };

		fw_batch_begin(&batch, 100);
		fw_build_learn(&batch, 7, &e, 1, false);
	}
	memcpy(copy, data, len);
	fw_acks_parse(&batch, copy, len, &acks);
	if (fw_acks_result(&batch, &acks, &err) > 0)
		abort();
	while ((nlh = ak_nlmsg_next(copy, len, &at)))
		fw_counter_parse(nlh, &packets);
	free(copy);
	return 0;
}
