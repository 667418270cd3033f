/* The pure parsers of NFLOG messages, for the reader and its tests. */
#ifndef AK_FW_NFLOG_H
#define AK_FW_NFLOG_H

#include "nft/fw.h"

struct nlmsghdr;

/* Parse one message of any type; false if it is malformed or not from our rules. */
bool fw_nflog_parse(const struct nlmsghdr *nlh, struct fw_denial *ret);

/* Parse exactly "ak:<ID>:<reason>", LEN bytes without the NUL. */
bool fw_nflog_prefix_parse(const char *text, size_t len, uint32_t *ret_id, enum fw_reason *ret_reason);

/* Parse addresses, protocol and ports from the first LEN bytes of an IP packet; false if the addresses are incomplete. */
bool fw_nflog_packet_parse(const uint8_t *data, size_t len, struct fw_denial *ret);

#endif
