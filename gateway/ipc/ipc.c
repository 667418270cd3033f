/* Messages between our own processes: packets, calls, lists. See ipc/ipc.h. */
#include "gateway/ipc/ipc.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#define PACKET_MAX 32768 /* well below the size of a socket buffer */
#define MARK_MEMORY "@" /* the content of the packet if the object is in the first descriptor */

static_assert(IPC_FDS_MAX + 1 <= AK_FDS_MAX, "a packet's descriptors and the memory file fit one message");

/* ---- packets ---- */

void ipc_packet_free(struct ipc_packet *p)
{
	if (!p)
		return;
	for (size_t i = 0; i < p->n_fds; i++)
		ak_close(p->fds[i]);
	free(p->data);
	free(p);
}

static void packet_freep(struct ipc_packet **p)
{
	ipc_packet_free(*p);
}

/* Set the text, or the mark and a memory file. */
static int packet_text(struct ipc_packet *p, const cJSON *obj)
{
	int fd;

	p->data = cJSON_PrintUnformatted(obj);
	if (!p->data)
		return -ENOMEM;
	p->len = strlen(p->data);
	if (p->len <= PACKET_MAX)
		return 0;
	if (p->len > IPC_MESSAGE_MAX)
		return -EMSGSIZE;
	fd = ak_memory_file("message", p->data, p->len);
	if (fd < 0)
		return fd;
	p->fds[p->n_fds++] = fd;
	p->len = strlen(MARK_MEMORY);
	memcpy(p->data, MARK_MEMORY, p->len + 1);
	return 0;
}

int ipc_packet_new(const cJSON *obj, const int *fds, size_t n_fds, struct ipc_packet **ret)
{
	_cleanup_(packet_freep) struct ipc_packet *p = calloc(1, sizeof(*p));
	int rc;

	if (n_fds > IPC_FDS_MAX)
		return -E2BIG;
	if (!p)
		return -ENOMEM;
	rc = packet_text(p, obj);
	for (size_t i = 0; rc >= 0 && i < n_fds; i++) {
		rc = fcntl(fds[i], F_DUPFD_CLOEXEC, 3);
		if (rc < 0)
			return -errno;
		p->fds[p->n_fds++] = rc;
	}
	if (rc < 0)
		return rc;
	*ret = TAKE(p);
	return 0;
}

int ipc_packet_send(int sock, const struct ipc_packet *p)
{
	return ak_send_fds(sock, p->data, p->len, p->fds, p->n_fds);
}

int ipc_send(int sock, const cJSON *obj, const int *fds, size_t n_fds)
{
	_cleanup_(packet_freep) struct ipc_packet *p = NULL;
	int rc = ipc_packet_new(obj, fds, n_fds, &p);

	return rc < 0 ? rc : ipc_packet_send(sock, p);
}

static int parse_object(const char *text, size_t len, cJSON **ret)
{
	_cleanup_json_ cJSON *obj = NULL;
	struct ak_err ignored;

	if (json_parse(text, len, &obj, &ignored) < 0 || !cJSON_IsObject(obj))
		return -EBADMSG;
	*ret = TAKE(obj);
	return 0;
}

static int parse_memory(int fd, cJSON **ret)
{
	_cleanup_free_ char *text = NULL;
	size_t len = 0;
	int rc = ak_memory_read(fd, IPC_MESSAGE_MAX, &text, &len);

	return rc < 0 ? rc : parse_object(text, len, ret);
}

int ipc_recv(int sock, cJSON **ret, int *fds, size_t *n_fds)
{
	char buf[PACKET_MAX];
	int got[AK_FDS_MAX];
	size_t n_got = AK_FDS_MAX, room = n_fds ? *n_fds : 0, from = 0, n_out = 0;
	ssize_t n = ak_recv_fds(sock, buf, sizeof(buf), got, &n_got);
	int rc;

	if (n == -ECONNRESET) { /* the peer closed without reading everything; its last message may still be queued */
		n_got = AK_FDS_MAX;
		n = ak_recv_fds(sock, buf, sizeof(buf), got, &n_got);
	}
	if (n <= 0)
		return n == -ECONNRESET ? 0 : (int)n;
	if (n == 1 && buf[0] == MARK_MEMORY[0] && n_got > 0) {
		rc = parse_memory(got[0], ret);
		ak_close(got[0]);
		from = 1;
	} else {
		rc = parse_object(buf, (size_t)n, ret);
	}
	for (size_t i = from; i < n_got; i++) {
		if (rc == 0 && n_out < room)
			fds[n_out++] = got[i];
		else
			ak_close(got[i]);
	}
	if (n_fds)
		*n_fds = n_out;
	return rc < 0 ? rc : 1;
}

/* ---- calls ---- */

cJSON *ipc_error(int code, const char *text)
{
	cJSON *obj = cJSON_CreateObject();

	if (!obj || !cJSON_AddStringToObject(obj, "error", text) || !cJSON_AddNumberToObject(obj, "code", code)) {
		cJSON_Delete(obj);
		return NULL;
	}
	return obj;
}

int ipc_send_error(int sock, int code, const char *text)
{
	_cleanup_json_ cJSON *obj = ipc_error(code, text);

	return obj ? ipc_send(sock, obj, NULL, 0) : -ENOMEM;
}

int ipc_error_parse(const cJSON *answer, struct ak_err *err)
{
	const cJSON *text = cJSON_GetObjectItemCaseSensitive(answer, "error");
	const cJSON *code = cJSON_GetObjectItemCaseSensitive(answer, "code");

	if (!cJSON_IsString(text))
		return 0;
	return ak_fail(err, cJSON_IsNumber(code) && code->valueint > 0 ? code->valueint : EIO, "%s", text->valuestring);
}

static int wait_readable(int sock, int timeout_ms)
{
	struct pollfd p = { .fd = sock, .events = POLLIN };
	uint64_t until = ak_now_ms() + (uint64_t)timeout_ms;
	int n;

	do {
		uint64_t now = ak_now_ms();

		n = poll(&p, 1, timeout_ms <= 0 ? -1 : now < until ? (int)(until - now) : 0);
	} while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : n == 0 ? -ETIMEDOUT : 0;
}

int ipc_call(int sock, const cJSON *request, const int *fds, size_t n_fds, int timeout_ms, cJSON **ret, int *ret_fds,
	size_t *n_ret_fds, struct ak_err *err)
{
	_cleanup_json_ cJSON *answer = NULL;
	size_t none = 0;
	int rc = ipc_send(sock, request, fds, n_fds);

	if (rc == -EPIPE || rc == -ECONNRESET)
		rc = 0; /* a peer that refused us has sent the reason before closing */
	if (rc == 0)
		rc = wait_readable(sock, timeout_ms);
	if (rc == 0)
		rc = ipc_recv(sock, &answer, ret_fds, n_ret_fds ? n_ret_fds : &none);
	if (rc == 0 || rc == -EPIPE || rc == -ECONNRESET)
		return ak_fail(err, EPIPE, "the other process closed the connection");
	if (rc < 0)
		return ak_fail_errno(err, -rc, "no reply");
	rc = ipc_error_parse(answer, err);
	if (rc < 0) {
		for (size_t i = 0; n_ret_fds && i < *n_ret_fds; i++)
			ak_close(ret_fds[i]);
		return rc;
	}
	*ret = TAKE(answer);
	return 0;
}
