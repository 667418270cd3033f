/*
 * Pass the gateway's sockets from the child that opened them to their user: a bit mask, then the descriptors whose bits are
 * set, lowest first. An inconsistent message is an error, and its descriptors are closed. See gwns.h.
 */
#include "vmctl/gwns.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

/* The first two descriptors are the user namespace and the network namespace; the sockets follow. */
struct report {
	uint32_t mask;
	int32_t code; /* 0, or -errno and the reason */
	char reason[AK_ERR_MAX];
};
#define NAMESPACES 2
static_assert(NAMESPACES + GWNS_FD_NUM <= AK_FDS_MAX, "all descriptors fit in one message");

static uint32_t gather(const int fds[static GWNS_FD_NUM], int *ret, size_t *n)
{
	uint32_t mask = 0;

	for (unsigned i = 0; i < GWNS_FD_NUM; i++) {
		if (fds[i] < 0)
			continue;
		mask |= 1u << i;
		ret[(*n)++] = fds[i];
	}
	return mask;
}

static int place(uint32_t mask, const int *got, size_t n, int ret[static GWNS_FD_NUM])
{
	size_t at = 0;

	if (mask >> GWNS_FD_NUM || (size_t)__builtin_popcount(mask) != n)
		return -EPROTO;
	for (unsigned i = 0; i < GWNS_FD_NUM; i++)
		ret[i] = mask & 1u << i ? got[at++] : -1;
	return 0;
}

static int discard(const int *got, size_t n, struct ak_err *err, const char *who)
{
	for (size_t i = 0; i < n; i++)
		ak_close(got[i]);
	return ak_fail(err, EPROTO, "bad message from %s", who);
}

int gwns_sockets_send(int sock, const int fds[static GWNS_FD_NUM], struct ak_err *err)
{
	int present[GWNS_FD_NUM], rc;
	size_t n = 0;
	uint32_t mask = gather(fds, present, &n);

	rc = ak_send_fds(sock, &mask, sizeof(mask), present, n);
	return rc < 0 ? ak_fail_errno(err, -rc, "passing the gateway's sockets") : 0;
}

int gwns_sockets_receive(int sock, int fds[static GWNS_FD_NUM], struct ak_err *err)
{
	uint32_t mask = 0;
	int got[AK_FDS_MAX];
	size_t n_got = AK_FDS_MAX;
	ssize_t n = ak_recv_fds(sock, &mask, sizeof(mask), got, &n_got);

	if (n == 0)
		return ak_fail(err, EPIPE, "the setup process ended before it sent the gateway's sockets");
	if (n != sizeof(mask) || place(mask, got, n_got, fds) < 0)
		return discard(got, n > 0 ? n_got : 0, err, "the setup process");
	return 0;
}

int gwns_report_send(int sock, const struct gwns *ns)
{
	struct report report = { 0 };
	int all[AK_FDS_MAX] = { ns->user_ns, ns->net_ns };
	size_t n = NAMESPACES;

	report.mask = gather(ns->fds, all, &n);
	return ak_send_fds(sock, &report, sizeof(report), all, n);
}

int gwns_report_fail(int sock, int rc, const struct ak_err *err)
{
	struct report report = { .code = rc };

	memcpy(report.reason, err->text, sizeof(report.reason));
	return ak_send_fds(sock, &report, sizeof(report), NULL, 0);
}

int gwns_report_receive(int sock, struct gwns *ret, struct ak_err *err)
{
	struct report report;
	int got[AK_FDS_MAX];
	size_t n = AK_FDS_MAX;
	ssize_t len = ak_recv_fds(sock, &report, sizeof(report), got, &n);

	if (len == 0)
		return ak_fail(err, EPIPE, "the process that creates the gateway's namespaces was killed");
	if (len == sizeof(report) && n == 0 && report.code < 0 && report.code >= -AK_ERRNO_MAX && report.reason[0]) {
		report.reason[sizeof(report.reason) - 1] = '\0';
		return ak_fail(err, -report.code, "%s", report.reason);
	}
	if (len != sizeof(report) || report.code || n < NAMESPACES ||
		place(report.mask, got + NAMESPACES, n - NAMESPACES, ret->fds) < 0)
		return discard(got, len > 0 ? n : 0, err, "the process that creates the gateway's namespaces");
	ret->user_ns = got[0];
	ret->net_ns = got[1];
	return 0;
}
