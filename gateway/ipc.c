/* Talk between our own processes: see ipc.h. */
#include "gateway/ipc.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define PACKET_MAX 32768 /* well below what a socket's buffer takes at once */
#define MARK_MEMORY "@" /* the whole packet, when the object is in the first descriptor */
#define BACKLOG 256

static_assert(IPC_FDS_MAX + 1 <= AK_FDS_MAX, "a packet's descriptors and the memory file fit one message");

/* ---- addresses ---- */

/* A socket address holds 107 bytes, a path may be longer: name the folder by its descriptor instead. */
struct place {
	int dir; /* owned */
	struct sockaddr_un sun;
};

static void place_done(struct place *p)
{
	p->dir = ak_close(p->dir);
}

static int place_open(const char *path, struct place *ret)
{
	const char *slash = strrchr(path, '/');
	char dir[PATH_MAX];
	int n;

	*ret = (struct place){ .dir = -1, .sun.sun_family = AF_UNIX };
	if (!slash || slash == path || strlen(path) >= sizeof(dir))
		return -EINVAL;
	memcpy(dir, path, (size_t)(slash - path));
	dir[slash - path] = '\0';
	ret->dir = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (ret->dir < 0)
		return -errno;
	n = snprintf(ret->sun.sun_path, sizeof(ret->sun.sun_path), "/proc/self/fd/%d/%s", ret->dir, slash + 1);
	if (n >= (int)sizeof(ret->sun.sun_path)) {
		place_done(ret);
		return -ENAMETOOLONG;
	}
	return 0;
}

static int connect_place(const struct place *p, int flags)
{
	_cleanup_close_ int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | flags, 0);

	if (fd < 0)
		return -errno;
	while (connect(fd, (const struct sockaddr *)&p->sun, sizeof(p->sun)) < 0) {
		if (errno != EINTR)
			return -errno;
	}
	return TAKE_FD(fd);
}

/* Under the folder's lock: gone when nobody listens. A full backlog means that somebody does. */
static bool remove_stale(const struct place *p)
{
	int fd = connect_place(p, SOCK_NONBLOCK);

	if (fd >= 0 || fd == -EAGAIN) {
		ak_close(fd);
		return false;
	}
	if (fd == -ECONNREFUSED)
		return unlink(p->sun.sun_path) == 0 || errno == ENOENT;
	return fd == -ENOENT;
}

static int bind_place(const struct place *p, struct ak_err *err, const char *path)
{
	_cleanup_close_ int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return ak_fail_errno(err, errno, "socket");
	fchmod(fd, 0600); /* before there is a name: the file is never wider */
	if (!remove_stale(p))
		return ak_fail(err, EADDRINUSE, "%s: another process serves it", path);
	if (bind(fd, (const struct sockaddr *)&p->sun, sizeof(p->sun)) < 0)
		return ak_fail_errno(err, errno, "%s", path);
	if (listen(fd, BACKLOG) < 0) {
		int rc = ak_fail_errno(err, errno, "%s", path);

		unlink(p->sun.sun_path);
		return rc;
	}
	return TAKE_FD(fd);
}

/* Looking, removing and binding must be one step: two who start at once would remove each other's socket. */
int ipc_listen(const char *path, struct ak_err *err)
{
	_cleanup_(place_done) struct place p;
	int rc = place_open(path, &p);

	if (rc < 0)
		return ak_fail_errno(err, -rc, "%s", path);
	if (flock(p.dir, LOCK_EX) < 0)
		return ak_fail_errno(err, errno, "%s", path);
	return bind_place(&p, err, path);
}

bool ipc_remove_stale(const char *path)
{
	_cleanup_(place_done) struct place p;

	return place_open(path, &p) == 0 && flock(p.dir, LOCK_EX) == 0 && remove_stale(&p);
}

int ipc_connect(const char *path)
{
	_cleanup_(place_done) struct place p;
	int rc = place_open(path, &p);

	return rc < 0 ? rc : connect_place(&p, 0);
}

int ipc_accept(int listener)
{
	_cleanup_close_ int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	struct ucred cred;
	socklen_t len = sizeof(cred);

	if (fd < 0)
		return errno == EWOULDBLOCK || errno == ECONNABORTED || errno == EINTR ? -EAGAIN : -errno;
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) < 0 || (cred.uid != geteuid() && cred.uid != 0))
		return -EPERM;
	return TAKE_FD(fd);
}

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

/* The text, or the mark and a memory file. */
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

	if (rc == 0)
		rc = wait_readable(sock, timeout_ms);
	if (rc == 0)
		rc = ipc_recv(sock, &answer, ret_fds, n_ret_fds ? n_ret_fds : &none);
	if (rc == 0 || rc == -EPIPE || rc == -ECONNRESET)
		return ak_fail(err, EPIPE, "the other side ended the connection");
	if (rc < 0)
		return ak_fail_errno(err, -rc, "no answer");
	rc = ipc_error_parse(answer, err);
	if (rc < 0)
		return rc;
	*ret = TAKE(answer);
	return 0;
}

/* ---- lists ---- */

void ipc_strings_free(char **list)
{
	for (size_t i = 0; list && list[i]; i++)
		free(list[i]);
	free(list);
}

void ipc_strings_freep(char ***list)
{
	ipc_strings_free(*list);
}

int ipc_get_strings(const cJSON *obj, const char *key, char ***ret, struct ak_err *err)
{
	_cleanup_(ipc_strings_freep) char **list = NULL;
	const cJSON *array = NULL, *item;
	size_t n = 0;
	int rc = json_get_array(obj, key, &array, err);

	if (rc <= 0)
		return rc;
	list = calloc((size_t)cJSON_GetArraySize(array) + 1, sizeof(*list));
	if (!list)
		return ak_fail(err, ENOMEM, "out of memory");
	cJSON_ArrayForEach(item, array) {
		if (!cJSON_IsString(item))
			return ak_fail(err, EINVAL, "%s[%zu]: must be a string", key, n);
		list[n] = strdup(item->valuestring);
		if (!list[n++])
			return ak_fail(err, ENOMEM, "out of memory");
	}
	*ret = TAKE(list);
	return 1;
}
