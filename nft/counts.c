/* Reading counters: each is requested by name (a dump would include every sandbox), all with one send. */
#include "nft/counts.h"

#include "gateway/base/netlink.h"
#include "nft/batch.h"
#include "nft/object.h"
#include "nft/ruleset.h"

#include <endian.h>
#include <errno.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nfnetlink.h>
#include <string.h>
#include <sys/socket.h>

#include <libnftnl/common.h>

#define COUNTS_MAX (FW_REASON_NUM + 4)
#define REQUEST_ROOM 160 /* header, two names and a type */

struct count_slot {
	uint64_t *into; /* the count is added to this */
	char name[FW_OBJECT_MAX];
	bool seen;
};

struct count_request {
	char buf[COUNTS_MAX * REQUEST_ROOM] __attribute__((aligned(8)));
	size_t len;
	struct count_slot slots[COUNTS_MAX];
	unsigned n;
	uint32_t seq;
};

static void ask(struct count_request *q, uint16_t family, const char *table, const char *name, uint64_t *into)
{
	struct nlmsghdr *nlh = nftnl_nlmsg_build_hdr(q->buf + q->len, NFT_MSG_GETOBJ, family, 0, q->seq + q->n);

	mnl_attr_put_strz(nlh, NFTA_OBJ_TABLE, table);
	mnl_attr_put_strz(nlh, NFTA_OBJ_NAME, name);
	mnl_attr_put_u32(nlh, NFTA_OBJ_TYPE, htobe32(NFT_OBJECT_COUNTER));
	q->len += MNL_ALIGN(nlh->nlmsg_len);
	q->slots[q->n].into = into;
	memccpy(q->slots[q->n].name, name, '\0', FW_OBJECT_MAX);
	q->n++;
}

static void build_request(struct count_request *q, uint32_t id, struct fw_counts *into)
{
	struct fw_name name;
	const char *rules = fw_shard_table(fw_shard(id));

	for (enum fw_reason reason = 0; reason < FW_REASON_NUM; reason++) {
		name = fw_name_denied(id, reason);
		ask(q, NFPROTO_INET, rules, name.text, &into->denied[reason]);
	}
	name = fw_name(id, "_admitted");
	ask(q, NFPROTO_INET, rules, name.text, &into->admitted);
	name = fw_name(id, "_late");
	ask(q, NFPROTO_INET, rules, name.text, &into->late);
	name = fw_name(id, FW_LINK_DROPPED);
	ask(q, NFPROTO_NETDEV, rules, name.text, &into->link);
	name = fw_name(id, FW_LINK_ODD);
	ask(q, NFPROTO_NETDEV, rules, name.text, &into->denied[FW_REASON_PROTO]);
}

/* Find the attribute TYPE among the LEN bytes of ATTRS; NULL if it is missing or shorter than MIN. */
static const struct nlattr *find_attr(const void *attrs, size_t len, uint16_t type, size_t min)
{
	const struct nlattr *attr;

	mnl_attr_for_each_payload(
		attrs, len) if (mnl_attr_get_type(attr) == type && mnl_attr_get_payload_len(attr) >= min) return attr;
	return NULL;
}

bool fw_counter_parse(const struct nlmsghdr *nlh, uint64_t *ret_packets)
{
	const size_t head = MNL_ALIGN(sizeof(struct nfgenmsg));
	const struct nlattr *data, *packets;
	uint64_t be;

	if (mnl_nlmsg_get_payload_len(nlh) < head)
		return false;
	data = find_attr(mnl_nlmsg_get_payload_offset(nlh, head), mnl_nlmsg_get_payload_len(nlh) - head, NFTA_OBJ_DATA, 0);
	if (!data)
		return false;
	packets = find_attr(mnl_attr_get_payload(data), mnl_attr_get_payload_len(data), NFTA_COUNTER_PACKETS, sizeof(be));
	if (!packets)
		return false;
	memcpy(&be, mnl_attr_get_payload(packets), sizeof(be));
	*ret_packets = be64toh(be);
	return true;
}

/* Handle one reply: a counter, or an error. */
static int take_answer(struct count_request *q, const struct nlmsghdr *nlh, struct ak_err *err)
{
	uint32_t index = nlh->nlmsg_seq - q->seq;
	struct count_slot *slot;
	uint64_t packets;
	int code;

	if (index >= q->n)
		return 0;
	slot = &q->slots[index];
	if (ak_nlmsg_ack(nlh, &code))
		return code < 0 ? ak_fail_errno(err, -code, "counter %s", slot->name) : 0;
	if (nlh->nlmsg_type == ((NFNL_SUBSYS_NFTABLES << 8) | NFT_MSG_NEWOBJ) && !slot->seen && fw_counter_parse(nlh, &packets)) {
		slot->seen = true;
		*slot->into += packets;
	}
	return 0;
}

/* Read all queued replies; return the first error after reading the rest. */
static int read_answers(struct count_request *q, int fd, struct ak_err *err)
{
	char buf[8192] __attribute__((aligned(8)));
	struct ak_err ignored;
	int rc = 0;

	for (;;) {
		ssize_t n = recv(fd, buf, sizeof(buf), MSG_DONTWAIT);
		const struct nlmsghdr *nlh;
		size_t at = 0;

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return rc;
		if (n < 0 && errno == ENOBUFS) {
			rc = rc < 0 ? rc : ak_fail_errno(err, ENOBUFS, "counters");
			continue;
		}
		if (n < 0)
			return rc < 0 ? rc : ak_fail_errno(err, errno, "counters");
		while ((nlh = ak_nlmsg_next(buf, (size_t)n, &at))) {
			int one = take_answer(q, nlh, rc < 0 ? &ignored : err);

			rc = rc < 0 ? rc : one;
		}
	}
}

int fw_counts_read(int fd, uint32_t *seq, uint32_t id, struct fw_counts *ret, struct ak_err *err)
{
	static const struct sockaddr_nl kernel = { .nl_family = AF_NETLINK };
	struct count_request q = { .seq = *seq };
	struct fw_counts counts = { 0 };
	ssize_t n;
	int rc;

	build_request(&q, id, &counts);
	*seq += q.n;
	do {
		n = sendto(fd, q.buf, q.len, MSG_DONTWAIT, (const struct sockaddr *)&kernel, sizeof(kernel));
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return ak_fail_errno(err, errno, "counters");
	rc = read_answers(&q, fd, err);
	if (rc < 0)
		return rc;
	for (unsigned i = 0; i < q.n; i++)
		if (!q.slots[i].seen)
			return ak_fail(err, EIO, "counter %s: no reply from the kernel", q.slots[i].name);
	*ret = counts;
	return 0;
}
