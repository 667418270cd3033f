/* Messages between our processes, as a peer gone wrong would send them: with descriptors, in a memory file, torn or in excess. No descriptor stays behind. */
#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/ipc.h"
#include "vmctl/internal.h"
#include "vmctl/pack.h"

#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool ok)
{
	if (!ok)
		abort();
}

static int next_fd(void)
{
	int fd = dup(STDIN_FILENO);

	return fd < 0 ? -1 : (ak_close(fd), fd);
}

static void read_object(int sock)
{
	int fds[IPC_FDS_MAX];
	size_t n = IPC_FDS_MAX;
	_cleanup_(json_freep) cJSON *obj = NULL;
	_cleanup_(ipc_strings_freep) char **list = NULL;
	struct ak_err err;

	if (ipc_recv(sock, &obj, fds, &n) != 1)
		return;
	must(n <= IPC_FDS_MAX && cJSON_IsObject(obj));
	(void)ipc_error_parse(obj, &err);
	(void)ipc_get_strings(obj, "argv", &list, &err);
	for (size_t i = 0; i < n; i++)
		ak_close(fds[i]);
}

static void read_message(int sock)
{
	int fds[SB_FDS_MAX];
	struct sb_msg msg;
	size_t n = 0;

	if (sb_recv(sock, &msg, fds, &n) != 1)
		return;
	must(n <= SB_FDS_MAX && memchr(msg.text, 0, sizeof(msg.text)));
	for (size_t i = 0; i < n; i++)
		ak_close(fds[i]);
}

/* The first byte says how many of what: descriptors that are no memory files, a memory file with the rest in it, or both. */
static void send_as(int sock, uint8_t how, const uint8_t *data, size_t size)
{
	int fds[4] = { -1, -1, -1, -1 };
	size_t n = 0;

	if (how & 4)
		fds[n++] = ak_memory_file("fuzz", data, size);
	for (unsigned i = 0; i < (how & 3u) && n < 4; i++)
		fds[n++] = dup(STDIN_FILENO);
	(void)ak_send_fds(sock, data, how & 8 ? 0 : size, fds, n);
	for (size_t i = 0; i < n; i++)
		ak_close(fds[i]);
}

static void unpack(const uint8_t *data, size_t size)
{
	_cleanup_close_ int fd = ak_memory_file("fuzz", data, size);
	_cleanup_pack_ struct pack p = { 0 };
	char **list;

	if (fd < 0 || pack_open(fd, &p) < 0)
		return;
	for (unsigned i = 0; i < 8 && !p.bad; i++) {
		(void)unpack_u64(&p);
		list = unpack_list(&p);
		for (size_t k = 0; list && list[k]; k++)
			must(strlen(list[k]) <= size);
		(void)unpack_str(&p);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	int pair[2], before = next_fd();

	if (size < 1 || size > 60000 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) < 0)
		return 0;
	send_as(pair[0], data[0], data + 1, size - 1);
	read_object(pair[1]);
	send_as(pair[0], data[0], data + 1, size - 1);
	read_message(pair[1]);
	unpack(data + 1, size - 1);
	ak_close(pair[0]);
	ak_close(pair[1]);
	must(next_fd() == before);
	return 0;
}
