/*
 * Batches: see batch.h.
 *
 * The kernel reports every failed message, whether or not it requested an acknowledgement, and reports a failed commit with
 * the sequence number of the begin message. Requesting one acknowledgement, on the last message, is therefore enough: if it
 * succeeds and no failure was reported, the whole batch was committed. All replies are queued before send returns, because
 * nfnetlink works in the sender's context.
 */
#include "nft/batch.h"

#include "gateway/base/netlink.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <linux/netlink.h>

#include <libnftnl/common.h>

#define BATCH_FIRST_CAP 65536

void fw_batch_fail(struct fw_batch *b, int rc)
{
	if (!b->failed)
		b->failed = rc;
}

void fw_batch_done(struct fw_batch *b)
{
	free(b->buf);
	free(b->entries);
	memset(b, 0, sizeof(*b));
}

/* Make room for N more bytes. */
static bool batch_room(struct fw_batch *b, size_t n)
{
	size_t cap = b->cap ? b->cap : BATCH_FIRST_CAP;
	char *buf;

	if (b->failed)
		return false;
	while (cap - b->len < n)
		cap *= 2;
	if (cap == b->cap)
		return true;
	buf = realloc(b->buf, cap);
	if (!buf) {
		fw_batch_fail(b, -ENOMEM);
		return false;
	}
	memset(buf + b->cap, 0, cap - b->cap);
	b->buf = buf;
	b->cap = cap;
	return true;
}

static bool batch_room_entry(struct fw_batch *b)
{
	size_t cap = b->cap_entries ? b->cap_entries * 2 : 128;
	struct fw_batch_entry *entries;

	if (b->n < b->cap_entries)
		return true;
	entries = reallocarray(b->entries, cap, sizeof(*entries));
	if (!entries) {
		fw_batch_fail(b, -ENOMEM);
		return false;
	}
	b->entries = entries;
	b->cap_entries = cap;
	return true;
}

void fw_batch_begin(struct fw_batch *b, uint32_t seq)
{
	if (b->len)
		memset(b->buf, 0, b->len); /* libmnl does not clear the padding between attributes */
	b->len = b->last = b->n = 0;
	b->failed = 0;
	b->fresh = false;
	b->seq = seq;
	if (batch_room(b, FW_BATCH_ROOM))
		b->len = nftnl_batch_begin(b->buf, seq)->nlmsg_len;
}

struct nlmsghdr *fw_batch_get(
	struct fw_batch *b, uint16_t type, uint16_t family, uint16_t flags, const char *kind, const char *object)
{
	struct fw_batch_entry *e;

	if (!batch_room(b, FW_BATCH_ROOM + sizeof(struct nlmsghdr)) || !batch_room_entry(b))
		return NULL;
	e = &b->entries[b->n];
	e->kind = kind;
	e->rule = 0;
	memccpy(e->object, object, '\0', sizeof(e->object));
	e->object[sizeof(e->object) - 1] = '\0';
	return nftnl_nlmsg_build_hdr(b->buf + b->len, type, family, flags, b->seq + 1 + (uint32_t)b->n);
}

void fw_batch_put(struct fw_batch *b, const struct nlmsghdr *nlh)
{
	b->last = b->len;
	b->len += MNL_ALIGN(nlh->nlmsg_len);
	b->n++;
}

void fw_batch_text(struct fw_batch *b, const char *fmt, ...)
{
	char line[512];
	va_list ap;

	if (!b->text)
		return;
	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	strbuf_puts(b->text, line);
}

void fw_acks_parse(const struct fw_batch *b, const void *data, size_t len, struct fw_acks *acks)
{
	const struct nlmsghdr *nlh;
	size_t at = 0;

	while ((nlh = ak_nlmsg_next(data, len, &at))) {
		uint32_t index = nlh->nlmsg_seq - b->seq; /* 0 is the begin message; wraps for messages of other batches */
		int code;

		if (!ak_nlmsg_ack(nlh, &code) || index > b->n)
			continue;
		if (code && !acks->code) {
			acks->code = code;
			acks->failed_seq = nlh->nlmsg_seq;
		}
		if (!code && index == b->n)
			acks->committed = true;
	}
}

/*
 * The kernel reports an unknown expression with ENOENT, as it does a missing object. Every object that a rule refers to exists
 * already or is in the same batch, so ENOENT for a rule means that the kernel lacks an expression.
 */
static int rule_refused(const struct fw_batch_entry *e, int code, struct ak_err *err)
{
	if (code != ENOENT && code != EOPNOTSUPP)
		return ak_fail_errno(err, code, "rule %u of chain %s", e->rule, e->object);
	return ak_fail(err, code,
		"rule %u of chain %s: %s: the kernel lacks an nftables module; as root: modprobe -a nft_tproxy nft_socket nft_limit nft_log nft_reject_inet",
		e->rule, e->object, strerror(code));
}

int fw_acks_result(const struct fw_batch *b, const struct fw_acks *acks, struct ak_err *err)
{
	const struct fw_batch_entry *e;
	uint32_t index = acks->failed_seq - b->seq;

	if (!acks->code)
		return acks->committed ? 0 : ak_fail(err, EIO, "nftables: the kernel did not acknowledge the batch");
	if (index == 0 || index > b->n)
		return ak_fail_errno(err, -acks->code, "nftables commit");
	e = &b->entries[index - 1];
	if (e->rule)
		return rule_refused(e, -acks->code, err);
	return ak_fail_errno(err, -acks->code, "%s %s", e->kind, e->object);
}

/*
 * Read until nothing is queued. Lost acknowledgements (ENOBUFS) count as failure whatever else was read, because they could
 * hide an error.
 */
static int batch_read_acks(const struct fw_batch *b, int fd, struct fw_acks *acks)
{
	char buf[32768] __attribute__((aligned(8)));
	int lost = 0;

	for (;;) {
		ssize_t n = recv(fd, buf, sizeof(buf), MSG_DONTWAIT);

		if (n >= 0)
			fw_acks_parse(b, buf, (size_t)n, acks);
		else if (errno == EAGAIN)
			return lost;
		else if (errno == ENOBUFS)
			lost = -ENOBUFS;
		else if (errno != EINTR)
			return -errno;
	}
}

static int batch_write(const struct fw_batch *b, int fd)
{
	static const struct sockaddr_nl kernel = { .nl_family = AF_NETLINK };

	for (;;) {
		ssize_t n = sendto(fd, b->buf, b->len, MSG_DONTWAIT, (const struct sockaddr *)&kernel, sizeof(kernel));

		if (n >= 0)
			return (size_t)n == b->len ? 0 : -EIO;
		if (errno != EINTR)
			return -errno;
	}
}

int fw_batch_send(struct fw_batch *b, int fd, struct ak_err *err)
{
	struct fw_acks acks = { 0 };
	int rc;

	if (!b->failed && b->n == 0)
		return 0;
	if (!batch_room(b, FW_BATCH_ROOM))
		return ak_fail_errno(err, -b->failed, "nftables batch");
	((struct nlmsghdr *)(void *)(b->buf + b->last))->nlmsg_flags |= NLM_F_ACK;
	b->len += nftnl_batch_end(b->buf + b->len, b->seq + 1 + (uint32_t)b->n)->nlmsg_len;

	rc = batch_write(b, fd);
	if (rc == -EMSGSIZE)
		return ak_fail(err, EMSGSIZE, "nftables batch of %zu bytes exceeds the kernel's limit for one message", b->len);
	if (rc < 0)
		return ak_fail_errno(err, -rc, "nftables batch");
	rc = batch_read_acks(b, fd, &acks);
	if (rc < 0)
		return ak_fail_errno(err, -rc, "nftables acknowledgements");
	return fw_acks_result(b, &acks, err);
}
