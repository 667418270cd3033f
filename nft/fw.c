/* The public functions: each builds one batch in a reused buffer, sends it and reads the kernel's replies. */
#include "nft/fw.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "nft/batch.h"
#include "nft/counts.h"
#include "nft/ruleset.h"

#include <assert.h>
#include <errno.h>
#include <linux/netlink.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#define FW_SOCKET_BUFFER (4 << 20) /* capped by the system limit, which is enough */

struct fw {
	int fd; /* owned */
	uint32_t seq; /* sequence number of the next batch */
	struct fw_batch batch; /* reused for its buffers */
	unsigned used[FW_SHARDS]; /* number of sandboxes in each further table */
};

static const char *const reason_names[] = {
	[FW_REASON_DEFAULT] = "default",
	[FW_REASON_BLOCKED] = "blocked",
	[FW_REASON_SPOOF] = "spoof",
	[FW_REASON_DOT] = "dot",
	[FW_REASON_PROTO] = "proto",
	[FW_REASON_RATE] = "rate",
};
static_assert(ARRAY_SIZE(reason_names) == FW_REASON_NUM, "every reason has a name");

const char *fw_reason_name(enum fw_reason reason)
{
	return reason_names[reason];
}

/* Receive errors without a copy of the failed message, so that many fit into the buffer. Older kernels may not support it. */
static void socket_options(int fd)
{
	int one = 1, size = FW_SOCKET_BUFFER;

	setsockopt(fd, SOL_NETLINK, NETLINK_CAP_ACK, &one, sizeof(one));
	setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
	setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size));
}

int fw_new(int nfnl_fd, struct fw **ret, struct ak_err *err)
{
	_cleanup_close_ int fd = nfnl_fd;
	struct fw *fw;
	int rc;

	rc = ak_set_nonblock(fd, true);
	if (rc < 0)
		return ak_fail_errno(err, -rc, "nfnetlink socket");
	fw = calloc(1, sizeof(*fw));
	if (!fw)
		return ak_fail_errno(err, ENOMEM, "nfnetlink socket");
	socket_options(fd);
	fw->fd = TAKE_FD(fd);
	fw->seq = (uint32_t)time(NULL);
	*ret = fw;
	return 0;
}

void fw_free(struct fw *fw)
{
	if (!fw)
		return;
	fw_batch_done(&fw->batch);
	ak_close(fw->fd);
	free(fw);
}

static struct fw_batch *begin(struct fw *fw)
{
	fw_batch_begin(&fw->batch, fw->seq);
	return &fw->batch;
}

static int commit(struct fw *fw, struct ak_err *err)
{
	int rc = fw_batch_send(&fw->batch, fw->fd, err);

	fw->seq += (uint32_t)fw->batch.n + 2; /* begin, messages, end */
	return rc;
}

static int check_link(const struct fw_link *link, struct ak_err *err)
{
	size_t len = strnlen(link->ifname, sizeof(link->ifname));

	if (len == 0 || len == sizeof(link->ifname))
		return ak_fail(err, EINVAL, "link of sandbox %u: bad interface name", link->id);
	if (strncmp(link->ifname, "ak", 2) != 0)
		return ak_fail(err, EINVAL, "link of sandbox %u: '%s' does not start with ak", link->id, link->ifname);
	if (link->addr4.family != AF_INET || (link->addr6.family && link->addr6.family != AF_INET6))
		return ak_fail(err, EINVAL, "link of sandbox %u: bad address family", link->id);
	return 0;
}

/* ---- rules ---- */

int fw_base_install(struct fw *fw, struct ak_err *err)
{
	struct fw_batch *b = begin(fw);
	int rc;

	fw_build_base(b);
	for (unsigned shard = 1; shard < FW_SHARDS; shard++)
		fw_build_shard_remove(b, shard);
	rc = commit(fw, err);
	if (rc == 0)
		memset(fw->used, 0, sizeof(fw->used));
	return rc;
}

int fw_install_one(struct fw *fw, const struct fw_link *link, const struct policy *p, struct ak_err *err)
{
	struct fw_batch *b;
	int rc = check_link(link, err);

	if (rc < 0)
		return rc;
	b = begin(fw);
	/* Deleting a table, even a missing one, queues kernel work that closing the socket would have to wait for. */
	b->fresh = true;
	fw_build_base(b);
	fw_build_sandbox(b, link, p);
	return commit(fw, err);
}

int fw_sandbox_add(struct fw *fw, const struct fw_link *link, const struct policy *p, struct ak_err *err)
{
	unsigned shard = fw_shard(link->id);
	struct fw_batch *b;
	int rc = check_link(link, err);

	if (rc < 0)
		return rc;
	b = begin(fw);
	if (shard > 0 && fw->used[shard] == 0)
		fw_build_shard(b, shard);
	fw_build_sandbox(b, link, p);
	rc = commit(fw, err);
	if (rc == 0)
		fw->used[shard]++;
	return rc;
}

int fw_sandbox_remove(struct fw *fw, const struct fw_link *link, struct ak_err *err)
{
	unsigned shard = fw_shard(link->id);
	struct fw_batch *b;
	int rc = check_link(link, err);

	if (rc < 0)
		return rc;
	b = begin(fw);
	fw_build_remove(b, link);
	if (shard > 0 && fw->used[shard] == 1)
		fw_build_shard_remove(b, shard);
	rc = commit(fw, err);
	if (rc == 0 && fw->used[shard] > 0)
		fw->used[shard]--;
	return rc;
}

/* ---- learned elements ---- */

static int check_elems(uint32_t id, const struct fw_elem *elems, size_t n, struct ak_err *err)
{
	for (size_t i = 0; i < n; i++) {
		const struct fw_elem *e = &elems[i];

		if (e->timeout_s == 0 || e->timeout_s > FW_TIMEOUT_MAX_S)
			return ak_fail(err, EINVAL, "element of sandbox %u: timeout of %u s out of range", id, e->timeout_s);
		if (e->addr.family != AF_INET && e->addr.family != AF_INET6)
			return ak_fail(err, EINVAL, "element of sandbox %u: no address", id);
		if ((unsigned)e->proto >= POLICY_PROTO_NUM || e->port == 0)
			return ak_fail(err, EINVAL, "element of sandbox %u: bad protocol or port", id);
	}
	return 0;
}

int fw_learn(struct fw *fw, uint32_t id, const struct fw_elem *elems, size_t n, bool fresh, struct ak_err *err)
{
	int rc = check_elems(id, elems, n, err);

	if (rc < 0)
		return rc;
	fw_build_learn(begin(fw), id, elems, n, fresh);
	return commit(fw, err);
}

/*
 * fw_forget adds elements before it deletes them, because deleting an expired element would fail. In a full set, adding a
 * missing element fails, so process them one by one: existing elements are deleted, and one that cannot be added is absent.
 */
static int forget_each(struct fw *fw, uint32_t id, const struct fw_elem *elems, size_t n, struct ak_err *err)
{
	for (size_t i = 0; i < n; i++) {
		int rc;

		fw_build_forget(begin(fw), id, &elems[i], 1);
		rc = commit(fw, err);
		if (rc < 0 && rc != -ENFILE)
			return rc;
	}
	return 0;
}

int fw_forget(struct fw *fw, uint32_t id, const struct fw_elem *elems, size_t n, struct ak_err *err)
{
	struct ak_err full;
	int rc = check_elems(id, elems, n, err);

	if (rc < 0)
		return rc;
	fw_build_forget(begin(fw), id, elems, n);
	rc = commit(fw, &full);
	if (rc == -ENFILE)
		return forget_each(fw, id, elems, n, err);
	if (rc < 0)
		*err = full;
	return rc;
}

int fw_sandbox_change(struct fw *fw, const struct fw_link *link, const struct policy *p, const struct fw_elem *gone,
	size_t n_gone, const struct fw_elem *added, size_t n_added, struct ak_err *err)
{
	struct fw_batch *b;
	int rc = check_link(link, err);

	if (rc == 0)
		rc = check_elems(link->id, gone, n_gone, err);
	if (rc == 0)
		rc = check_elems(link->id, added, n_added, err);
	if (rc < 0)
		return rc;
	b = begin(fw);
	fw_build_update(b, link, p);
	fw_build_forget(b, link->id, gone, n_gone);
	fw_build_learn(b, link->id, added, n_added, false);
	return commit(fw, err);
}

/* ---- counters and text output ---- */

int fw_sandbox_counts(struct fw *fw, uint32_t id, struct fw_counts *ret, struct ak_err *err)
{
	return fw_counts_read(fw->fd, &fw->seq, id, ret, err);
}

static int print(struct fw_batch *b, struct strbuf *out, struct ak_err *err)
{
	int rc = b->failed ? b->failed : out->failed ? -ENOMEM : 0;

	fw_batch_done(b);
	return rc < 0 ? ak_fail_errno(err, -rc, "nftables batch") : 0;
}

int fw_print_base(struct strbuf *out, struct ak_err *err)
{
	struct fw_batch b = { .text = out };

	fw_batch_begin(&b, 0);
	fw_build_base(&b);
	return print(&b, out, err);
}

int fw_print_sandbox(const struct fw_link *link, const struct policy *p, struct strbuf *out, struct ak_err *err)
{
	struct fw_batch b = { .text = out };
	int rc = check_link(link, err);

	if (rc < 0)
		return rc;
	fw_batch_begin(&b, 0);
	fw_build_sandbox(&b, link, p);
	return print(&b, out, err);
}
