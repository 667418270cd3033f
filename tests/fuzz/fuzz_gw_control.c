/*
 * A supervisor that says anything in any order to a whole gateway, which has a kernel of our own (kernel.h) behind it and no traffic. Each request gets the answer
 * that it must have and no other, one that is refused has changed nothing, the answers are such as the supervisor's side takes, and no descriptor
 * stays behind.
 *
 * Input: messages, each of a byte of flags, the message's own bytes (the rest of it is zero), and what is in its memory file.
 */
#include "tests/fuzz/kernel.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/host/internal.h"
#include "gateway/log/stats.h"

#include <event2/event.h>
#include <sys/mman.h>

enum {
	HOW_MEMORY = 1,
	HOW_LOG = 2,
	HOW_RTNL = 4,
	HOW_SHORT = 8,
	HOW_UNSEALED = 16,
	HOW_PATIENCE = 5 /* the bits from here on */
};

static struct gw gw;
static int supervisor;

/* ---- the gateway ---- */

static struct dns_client *client_of(void *ctx, unsigned ifindex, const struct ak_addr *src)
{
	(void)ctx;
	(void)ifindex;
	(void)src;
	return NULL;
}

static void on_dns_event(void *ctx, uint32_t id, const struct dns_event *event)
{
	(void)ctx;
	(void)id;
	(void)event;
}

static int deaf(void)
{
	return socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}

static void start(void)
{
	struct dns_hooks dns_hooks = { .ctx = &gw, .client_of = client_of, .event = on_dns_event };
	struct dns_upstream_conf upstream = { .servers_csv = "127.0.0.1:53" };
	struct dns_sockets dns = { deaf(), deaf(), -1, -1 };
	struct relay_hooks relay_hooks = { .ctx = &gw };
	struct relay_sockets relay = { deaf(), -1, deaf(), -1, deaf(), -1 };
	struct fw_log_hooks log_hooks = { .ctx = &gw };
	struct ak_err err;
	int pair[2];

	must(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) == 0);
	gw = (struct gw){ .base = event_base_new(), .control = pair[0], .rtnl = -1, .ipv6_link = true };
	supervisor = pair[1];
	must(fw_new(deaf(), &gw.fw, &err) == 0 && fw_log_new(deaf(), &log_hooks, &gw.fw_log, &err) == 0);
	must(dns_proxy_new(gw.base, &dns, &dns_hooks, &upstream, &gw.dns, &err) == 0);
	must(relay_new(gw.base, &relay, &relay_hooks, NULL, &gw.relay, &err) == 0);
}

static void forget_all(void)
{
	struct gw_stats ignored;

	kernel.patience = 0;
	for (size_t id = 0; id < gw.n_ids; id++) {
		if (!gw.by_id[id])
			continue;
		gw_sandbox_finish(gw.by_id[id], &ignored);
		gw_sandbox_drop(gw.by_id[id]);
	}
	event_base_loop(gw.base, EVLOOP_NONBLOCK); /* forgets that it was told to break */
}

/* ---- one message ---- */

static size_t hosted(void)
{
	size_t n = 0;

	for (size_t id = 0; id < gw.n_ids; id++)
		n += gw.by_id[id] != NULL;
	return n;
}

static int memory(const struct input *in, bool sealed)
{
	int fd = sealed ? ak_memory_file("fuzz", in->data, in->len) : memfd_create("fuzz", MFD_CLOEXEC);

	must(sealed || ak_write_all(fd, in->data, in->len) == 0);
	return fd;
}

static void send_message(uint8_t how, const struct gw_msg *msg, size_t len, const struct input *file)
{
	int fds[3];
	size_t n = 0;

	if (how & HOW_MEMORY)
		fds[n++] = memory(file, !(how & HOW_UNSEALED));
	if (how & HOW_LOG)
		fds[n++] = memfd_create("log", MFD_CLOEXEC);
	if (how & HOW_RTNL)
		fds[n++] = deaf();
	must(ak_send_fds(supervisor, msg, how & HOW_SHORT ? len : sizeof(*msg), fds, n) == 0);
	while (n > 0)
		ak_close(fds[--n]);
}

/* How many there are, all of TYPE or OTHER and about ID. */
static size_t answers(uint32_t type, uint32_t other, uint32_t id, uint32_t *ret_last)
{
	struct gw_msg msg;
	size_t n = 0;
	int rc;

	for (; (rc = gw_reply_recv(supervisor, &msg)) == 1; n++) {
		must((msg.type == type || msg.type == other) && (id == UINT32_MAX || msg.id == id));
		*ret_last = msg.type;
	}
	must(rc == -EAGAIN);
	return n;
}

/* What SB was before MSG, and what may have become of it. */
static void check_change(const struct gw_msg *msg, const struct gw_sandbox *sb, const struct policy *policy, uint64_t generation)
{
	const struct gw_sandbox *now = gw_sandbox_find(&gw, msg->id);
	uint32_t last = GW_MSG_NUM;

	must(answers(GW_MSG_DONE, GW_MSG_REFUSED, msg->id, &last) == 1);
	if (last == GW_MSG_REFUSED) {
		must(now == sb && (!sb || (sb->policy == policy && sb->generation == generation)));
		return;
	}
	must(now && (msg->type == GW_MSG_LEARNED ? now == sb : now->generation == msg->generation));
	must(msg->type != GW_MSG_ADD || (!sb && msg->id > 0 && msg->id <= GWNS_ID_MAX));
	if (msg->type == GW_MSG_ADD || msg->type == GW_MSG_ASSIGN)
		must(!strncmp(now->name, msg->name, GW_NAME_MAX - 1));
}

/* The first LEN bytes of MSG count. False when the gateway ends by it. */
static bool say(uint8_t how, const struct gw_msg *msg, size_t len, const struct input *file)
{
	const struct gw_sandbox *sb = gw_sandbox_find(&gw, msg->id);
	const struct policy *policy = sb ? sb->policy : NULL;
	uint64_t generation = sb ? sb->generation : 0;
	size_t n = msg->type == GW_MSG_STOP && (!(how & HOW_SHORT) || len == sizeof(*msg)) ? hosted() : 0;
	uint32_t last;

	send_message(how, msg, len, file);
	gw_control_readable(&gw);
	if (event_base_got_break(gw.base)) { /* told to, or by a message that is none */
		must(answers(GW_MSG_STATS, GW_MSG_STATS, UINT32_MAX, &last) == n);
		return false;
	}
	if (msg->type == GW_MSG_REMOVE || msg->type == GW_MSG_COUNTS)
		must(answers(GW_MSG_STATS, GW_MSG_STATS, msg->id, &last) == 1);
	else if (msg->type == GW_MSG_UPSTREAM || msg->type == GW_MSG_LOG_FD)
		must(answers(GW_MSG_NUM, GW_MSG_NUM, 0, &last) == 0);
	else
		check_change(msg, sb, policy, generation);
	must(msg->type != GW_MSG_REMOVE || !gw_sandbox_find(&gw, msg->id));
	return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = { data, size };
	bool going = true;
	int before;

	kernel.obliging = true;
	if (!gw.base)
		start();
	before = open_fds();
	gw_control_readable(&gw); /* nothing is there */
	must(!event_base_got_break(gw.base));
	while (in.len > 0 && going) {
		uint8_t how = take_byte(&in);
		struct input head = take_part(&in), file = take_part(&in);
		size_t len = head.len < sizeof(struct gw_msg) ? head.len : sizeof(struct gw_msg);
		struct gw_msg msg = { 0 };

		memcpy(&msg, head.data, len);
		kernel.patience = how >> HOW_PATIENCE;
		going = say(how, &msg, len, &file);
	}
	forget_all();
	must(open_fds() == before);
	return 0;
}
