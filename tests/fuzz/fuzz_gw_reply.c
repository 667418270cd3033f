/*
 * What a gateway that was taken over could answer: bytes of any length, with descriptors. Its supervisor takes whole messages that come this way and no others,
 * and may print what is in them.
 */
#include "tests/fuzz/fuzz.h"

#include "gateway/base/io.h"
#include "gateway/gw.h"

#include <errno.h>
#include <sys/socket.h>

static bool zero(const void *data, size_t len)
{
	const char *bytes = data;

	return len == 0 || (bytes[0] == 0 && !memcmp(bytes, bytes + 1, len - 1));
}

static void check(const struct gw_msg *msg)
{
	bool text = msg->type == GW_MSG_FAILED || msg->type == GW_MSG_REFUSED;

	must(text || msg->type == GW_MSG_READY || msg->type == GW_MSG_STATS || msg->type == GW_MSG_LOG_FULL ||
		msg->type == GW_MSG_DONE);
	must(zero(msg->name, sizeof(msg->name)) && msg->generation == 0 && msg->ipv6 == 0);
	if (text) {
		must(memchr(msg->text, 0, sizeof(msg->text)));
	} else if (msg->type == GW_MSG_STATS) {
		must(msg->stats.allowed <= GW_COUNT_MAX && msg->stats.denied <= GW_COUNT_MAX && msg->stats.lost <= GW_COUNT_MAX);
		must(memchr(msg->stats.hash, 0, SHA256_HEX) && !strpbrk(msg->stats.hash, "\"\\\n"));
	} else {
		must(zero(msg->text, sizeof(msg->text)));
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = { data, size };
	int pair[2], before = open_fds(), fds[] = { STDIN_FILENO, STDIN_FILENO }, rc;
	struct gw_msg msg;

	must(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) == 0);
	while (in.len > 0) {
		size_t n = take_byte(&in) % 3;
		struct input part = take_part(&in);

		must(ak_send_fds(pair[1], part.data, part.len, fds, n) == 0);
		rc = gw_reply_recv(pair[0], &msg);
		must(rc == 1 || rc == -EPROTO || rc == -EMSGSIZE || (rc == 0 && part.len == 0));
		if (rc == 1)
			check(&msg);
	}
	close(pair[0]);
	close(pair[1]);
	must(open_fds() == before);
	return 0;
}
