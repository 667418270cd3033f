/* Reading the counters of one sandbox. */
#ifndef AK_FW_COUNTS_H
#define AK_FW_COUNTS_H

#include "nft/fw.h"

/* Request all counters with one send; advances *SEQ past the sequence numbers used. */
int fw_counts_read(int fd, uint32_t *seq, uint32_t id, struct fw_counts *ret, struct ak_err *err);

/* Pure: extract the packet count from a NEWOBJ message; false if it has none. */
struct nlmsghdr;
bool fw_counter_parse(const struct nlmsghdr *nlh, uint64_t *ret_packets);

#endif
