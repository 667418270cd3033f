/* Reading one sandbox's counters. */
#ifndef AK_FW_COUNTS_H
#define AK_FW_COUNTS_H

#include "nft/fw.h"

/* Ask for all of them with one send; *SEQ moves past the numbers used. */
int fw_counts_read(int fd, uint32_t *seq, uint32_t id, struct fw_counts *ret, struct ak_err *err);

/* Pure: take the packet count out of one NEWOBJ message's attributes; false when it has none. */
struct nlmsghdr;
bool fw_counter_parse(const struct nlmsghdr *nlh, uint64_t *ret_packets);

#endif
