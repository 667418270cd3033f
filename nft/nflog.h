/* NFLOG messages: pure parts, for the reader and its tests. */
#ifndef AK_FW_NFLOG_H
#define AK_FW_NFLOG_H

#include "nft/fw.h"

struct nlmsghdr;

/* One message (of any type) into a denial; false when it is not one of ours or makes no sense. */
bool fw_nflog_parse(const struct nlmsghdr *nlh, struct fw_denial *ret);

/* "ak:<ID>:<reason>", exactly, in LEN bytes without the NUL. */
bool fw_nflog_prefix_parse(const char *text, size_t len, uint32_t *ret_id, enum fw_reason *ret_reason);

/* Addresses, protocol and ports of the LEN bytes of an IP packet that were copied; false when not even the addresses are there. */
bool fw_nflog_packet_parse(const uint8_t *data, size_t len, struct fw_denial *ret);

#endif
