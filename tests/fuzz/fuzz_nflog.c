/*
 * What the kernel logs carries bytes that a sandbox chose: any datagram may come, none may be read past its end, and each ends a turn of reading. A first byte
 * says how: as one packet, as one prefix, or as all that the kernel says to a log (kernel.h), from its settings on.
 */
#include "tests/fuzz/kernel.h"

#include "nft/nflog.h"

enum { AS_MESSAGES, AS_PACKET, AS_PREFIX, AS_LOG, AS_LOG_REFUSED, AS_NUM };

static void on_denial(void *ctx, const struct fw_denial *d)
{
	(void)ctx;
	must(d->reason < FW_REASON_NUM && d->src.family == d->dst.family);
}

static void on_loss(void *ctx)
{
	(void)ctx;
	must(kernel.lost > 0);
}

static void read_log(const struct input *in, bool obliging)
{
	const struct fw_log_hooks hooks = { .on_denial = on_denial, .on_loss = obliging ? on_loss : NULL };
	struct fw_log *log = NULL;
	struct ak_err err = { "" };
	int rc;

	kernel.in = *in;
	kernel.obliging = obliging;
	kernel.lost = 0;
	rc = fw_log_new(open("/dev/null", O_RDONLY | O_CLOEXEC), &hooks, &log, &err);
	must(rc == 0 ? fw_log_fd(log) > 0 : rc < 0 && err.text[0]);
	while (rc == 0 && (rc = fw_log_read(log, 2)) > 0)
		rc = 0;
	fw_log_free(log);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct input in = { data, len };
	static const int send_errors[] = { 0, EINTR, EPERM };
	uint8_t first = take_byte(&in);
	int how = first % AS_NUM;
	char *copy = malloc(in.len ? in.len : 1); /* aligned, and its end is watched */
	const struct nlmsghdr *nlh;
	struct fw_denial d = { 0 };
	enum fw_reason reason;
	size_t at = 0;
	uint32_t id;

	kernel.send_error = send_errors[first / AS_NUM % 3];
	memcpy(copy, in.data, in.len);
	if (how >= AS_LOG)
		read_log(&in, how == AS_LOG);
	else if (how == AS_PACKET)
		(void)fw_nflog_packet_parse((const uint8_t *)copy, in.len, &d);
	else if (how == AS_PREFIX)
		(void)fw_nflog_prefix_parse(copy, in.len, &id, &reason);
	while (how == AS_MESSAGES && (nlh = ak_nlmsg_next(copy, in.len, &at))) {
		must((const char *)nlh + nlh->nlmsg_len <= copy + in.len); /* libmnl's own reads are not watched */
		if (fw_nflog_parse(nlh, &d))
			on_denial(NULL, &d);
	}
	free(copy);
	return 0;
}
