/*
 * Messages between the gateway and its supervisor, as either could send them once it was taken over: bytes of any length, with descriptors. Each side takes whole
 * messages that come its way and no others, and may print what is in them.
 */
#include "tests/fuzz/fuzz.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/host/gw.h"

#include <errno.h>
#include <sys/socket.h>

static bool zero(const void *data, size_t len)
{
	const char *bytes = data;

	return len == 0 || (bytes[0] == 0 && !memcmp(bytes, bytes + 1, len - 1));
}

static void check_hash(const char hash[static SHA256_HEX])
{
	must(memchr(hash, 0, SHA256_HEX) && strspn(hash, "0123456789abcdef") == strlen(hash));
}

static void check_log(const struct gw_log_state *log)
{
	check_hash(log->own.prev);
	check_hash(log->kept.prev);
}

static void check_request(const struct gw_msg *msg)
{
	must(memchr(msg->name, 0, sizeof(msg->name)) && msg->ipv6 <= 1);
	if (msg->type == GW_MSG_UPSTREAM)
		must(memchr(msg->text, 0, sizeof(msg->text)));
	else if (msg->type == GW_MSG_ADD || msg->type == GW_MSG_ASSIGN || msg->type == GW_MSG_LOG_FD)
		check_log(&msg->log);
	else
		must(zero(msg->text, sizeof(msg->text)));
}

static void check_reply(const struct gw_msg *msg)
{
	bool text = msg->type == GW_MSG_FAILED || msg->type == GW_MSG_REFUSED;

	must(text || msg->type == GW_MSG_READY || msg->type == GW_MSG_STATS || msg->type == GW_MSG_LOG_FULL ||
		msg->type == GW_MSG_LOG_STUCK || msg->type == GW_MSG_ANCHOR || msg->type == GW_MSG_DONE);
	must(zero(msg->name, sizeof(msg->name)) && msg->generation == 0 && msg->ipv6 == 0);
	if (text) {
		must(memchr(msg->text, 0, sizeof(msg->text)));
	} else if (msg->type == GW_MSG_STATS || msg->type == GW_MSG_ANCHOR) {
		must(msg->stats.allowed <= GW_COUNT_MAX && msg->stats.denied <= GW_COUNT_MAX &&
			net_counts_ok(&msg->stats.counts));
		check_hash(msg->stats.hash);
	} else {
		must(zero(msg->text, sizeof(msg->text)));
	}
}

static bool as_request(int sock)
{
	int fds[GW_FDS_MAX], rc;
	struct gw_msg msg;

	rc = gw_request_recv(sock, &msg, fds);
	if (rc == 1)
		check_request(&msg);
	for (int i = 0; rc == 1 && i < GW_FDS_MAX; i++)
		ak_close(fds[i]);
	must(rc == 1 || rc == 0 || (fds[0] == -1 && fds[1] == -1 && fds[2] == -1));
	return rc == 1;
}

static bool as_reply(int sock)
{
	struct gw_msg msg;
	int rc = gw_reply_recv(sock, &msg);

	if (rc == 1)
		check_reply(&msg);
	return rc == 1;
}

/* LEN bytes with N descriptors, to both sides. */
static void send_both(const int pair[2], const void *data, size_t len, size_t n)
{
	const int fds[AK_FDS_MAX] = { 0 };

	must(ak_send_fds(pair[1], data, len, fds, n) == 0 && ak_send_fds(pair[1], data, len, fds, n) == 0);
	must(!as_request(pair[0]) + !as_reply(pair[0]) >= 1); /* no message goes both ways */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = { data, size };
	int pair[2], before = open_fds();

	must(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) == 0);
	must(!as_request(pair[0]) && !as_reply(pair[0]));
	while (in.len > 0) {
		size_t n = take_byte(&in) % 5;
		struct input part = take_part(&in);
		struct gw_msg whole;

		send_both(pair, part.data, part.len, n);
		/* The same as long as a message is: what the input does not say is zero. */
		memset(&whole, 0, sizeof(whole));
		memcpy(&whole, part.data, part.len < sizeof(whole) ? part.len : sizeof(whole));
		send_both(pair, &whole, sizeof(whole), n);
	}
	close(pair[0]);
	close(pair[1]);
	must(open_fds() == before);
	return 0;
}
