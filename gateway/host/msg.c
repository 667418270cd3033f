/*
 * Receiving messages between the gateway and its supervisor: see host/gw.h. Both sides validate every message; the supervisor treats
 * the gateway as compromised, because it parses sandbox traffic. An accepted message has the right direction, terminated strings
 * and well-formed hashes; fields that its type does not use are zero.
 */
#include "gateway/host/gw.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

enum direction { TO_SUPERVISOR, TO_GATEWAY };
enum body { NOTHING, TEXT, STATS, LOG, PUBLISH };

static const struct {
	enum direction direction;
	enum body body;
	bool named;
} kinds[GW_MSG_NUM] = {
	[GW_MSG_READY] = { TO_SUPERVISOR, NOTHING, false },
	[GW_MSG_FAILED] = { TO_SUPERVISOR, TEXT, false },
	[GW_MSG_UPSTREAM] = { TO_GATEWAY, TEXT, false },
	[GW_MSG_STOP] = { TO_GATEWAY, NOTHING, false },
	[GW_MSG_STATS] = { TO_SUPERVISOR, STATS, false },
	[GW_MSG_LOG_FULL] = { TO_SUPERVISOR, NOTHING, false },
	[GW_MSG_LOG_FD] = { TO_GATEWAY, LOG, false },
	[GW_MSG_ADD] = { TO_GATEWAY, LOG, true },
	[GW_MSG_REMOVE] = { TO_GATEWAY, NOTHING, false },
	[GW_MSG_POLICY] = { TO_GATEWAY, NOTHING, false },
	[GW_MSG_ASSIGN] = { TO_GATEWAY, LOG, true },
	[GW_MSG_LEARNED] = { TO_GATEWAY, NOTHING, false },
	[GW_MSG_COUNTS] = { TO_GATEWAY, NOTHING, false },
	[GW_MSG_DONE] = { TO_SUPERVISOR, NOTHING, false },
	[GW_MSG_REFUSED] = { TO_SUPERVISOR, TEXT, false },
	[GW_MSG_LOG_STUCK] = { TO_SUPERVISOR, NOTHING, false },
	[GW_MSG_PUBLISH] = { TO_GATEWAY, PUBLISH, false },
	[GW_MSG_UNPUBLISH] = { TO_GATEWAY, PUBLISH, false },
	[GW_MSG_ANCHOR] = { TO_SUPERVISOR, STATS, false },
};

/* 64 hexadecimal digits, or empty if there is no record yet. */
static bool hash_ok(const char hash[static SHA256_HEX])
{
	size_t len = strnlen(hash, SHA256_HEX);

	return len == 0 || (len == SHA256_HEX - 1 && strspn(hash, "0123456789abcdef") == len);
}

/* Record numbers continue from the log file's own, so any number is valid. */
static bool stats_ok(const struct gw_stats *s)
{
	return s->allowed <= GW_COUNT_MAX && s->denied <= GW_COUNT_MAX && s->learned <= GW_COUNT_MAX &&
		s->flows <= GW_COUNT_MAX && hash_ok(s->hash) && net_counts_ok(&s->counts);
}

static bool publish_ok(const struct ak_publish *p)
{
	return (p->addr.family == AF_INET || p->addr.family == AF_INET6) && p->host_port && p->port;
}

static int take_body(enum body body, const struct gw_msg *in, struct gw_msg *out)
{
	switch (body) {
	case NOTHING:
		return 0;
	case TEXT:
		memcpy(out->text, in->text, sizeof(out->text) - 1);
		return 0;
	case STATS:
		out->stats = in->stats;
		return stats_ok(&out->stats) ? 0 : -EPROTO;
	case LOG:
		out->log = in->log;
		return hash_ok(out->log.own.prev) && hash_ok(out->log.kept.prev) ? 0 : -EPROTO;
	case PUBLISH:
		out->publish = in->publish;
		return publish_ok(&out->publish) ? 0 : -EPROTO;
	}
	return -EPROTO;
}

static int take(const struct gw_msg *in, enum direction direction, struct gw_msg *ret)
{
	struct gw_msg out = { .type = in->type, .id = in->id };
	int rc;

	if (in->type >= GW_MSG_NUM || kinds[in->type].direction != direction)
		return -EPROTO;
	rc = take_body(kinds[in->type].body, in, &out);
	if (rc < 0)
		return rc;
	if (kinds[in->type].named)
		memcpy(out.name, in->name, sizeof(out.name) - 1);
	if (direction == TO_GATEWAY) {
		out.ipv6 = in->ipv6 != 0;
		out.generation = in->generation;
	}
	*ret = out;
	return 1;
}

int gw_request_recv(int sock, struct gw_msg *ret, int fds[static GW_FDS_MAX])
{
	size_t n_fds = GW_FDS_MAX;
	struct gw_msg in;
	ssize_t n = ak_recv_fds(sock, &in, sizeof(in), fds, &n_fds);
	int rc = n <= 0 ? (int)n : n == sizeof(in) ? take(&in, TO_GATEWAY, ret) : -EPROTO;

	if (n < 0)
		n_fds = 0;
	for (size_t i = 0; i < GW_FDS_MAX; i++) {
		if (i < n_fds && rc < 0)
			ak_close(fds[i]);
		if (i >= n_fds || rc < 0)
			fds[i] = -1;
	}
	return rc;
}

int gw_reply_recv(int sock, struct gw_msg *ret)
{
	struct gw_msg in;
	ssize_t n = ak_recv_fds(sock, &in, sizeof(in), NULL, NULL);

	return n <= 0 ? (int)n : n == sizeof(in) ? take(&in, TO_SUPERVISOR, ret) : -EPROTO;
}
