/*
 * Messages between our processes, as a peer gone wrong would send them: with descriptors or without, in a memory file that is sealed or not, torn, empty
 * or in excess. What is taken as an object travels on unchanged, what is taken as a command is one, and no descriptor stays behind.
 *
 * Input: who reads it, how it comes (the low half: that many descriptors), then its bytes.
 */
#include "tests/fuzz/fuzz.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/ipc/ipc.h"
#include "gateway/service/service.h"
#include "vmctl/gwns.h"
#include "vmctl/internal.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/socket.h>

enum { HOW_FDS = 15, HOW_MEMORY = 16, HOW_UNSEALED = 32, HOW_MARK = 64, HOW_GONE = 128 };

static int here, there; /* the two ends */

static void close_all(const int *fds, size_t n)
{
	for (size_t i = 0; i < n; i++)
		ak_close(fds[i]);
}

static int memory(const struct input *in, bool sealed)
{
	int fd = sealed ? ak_memory_file("fuzz", in->data, in->len) : memfd_create("fuzz", MFD_CLOEXEC);

	if (!sealed)
		must(ak_write_all(fd, in->data, in->len) == 0);
	return fd;
}

static void send_as(uint8_t how, const struct input *in)
{
	int fds[AK_FDS_MAX];
	size_t n = 0;

	if (how & HOW_MEMORY)
		fds[n++] = memory(in, !(how & HOW_UNSEALED));
	for (int i = 0; i < (how & HOW_FDS); i++)
		fds[n++] = dup(STDIN_FILENO);
	(void)(how & HOW_MARK ? ak_send_fds(there, "@", 1, fds, n) : ak_send_fds(there, in->data, in->len, fds, n));
	close_all(fds, n);
	if ((how & HOW_GONE) && (how & HOW_UNSEALED)) /* with something that it has not read */
		must(ak_send_fds(here, "x", 1, NULL, 0) == 0);
	if (how & HOW_GONE)
		there = ak_close(there);
}

/* What was taken goes out again, with the descriptors that came, and is the same; the larger it is, the more ways there are. */
static void pass_on(cJSON *obj, const int *fds, size_t n, size_t more)
{
	_cleanup_json_ cJSON *again = NULL;
	_cleanup_free_ char *text = NULL, *copy = NULL, *pad = calloc(1, more + 1);
	int got[IPC_FDS_MAX + 1], bad[IPC_FDS_MAX + 1] = { -1 };
	size_t n_got = IPC_FDS_MAX;

	if (there < 0)
		return;
	memset(pad, 'x', more);
	cJSON_DeleteItemFromObjectCaseSensitive(obj, "more");
	if (more)
		must(cJSON_AddStringToObject(obj, "more", pad));
	must(ipc_send(there, obj, bad, 1) == (more > IPC_MESSAGE_MAX ? -EMSGSIZE : -EBADF) &&
		ipc_send(there, obj, bad, IPC_FDS_MAX + 1) == -E2BIG);
	if (more > IPC_MESSAGE_MAX)
		return;
	must(ipc_send(there, obj, fds, n) == 0 && ipc_recv(here, &again, got, &n_got) == 1 && n_got == n);
	close_all(got, n_got);
	text = cJSON_PrintUnformatted(obj);
	copy = cJSON_PrintUnformatted(again);
	must(text && copy && !strcmp(text, copy));
}

static void as_object(bool with_fds, size_t more)
{
	int fds[IPC_FDS_MAX];
	size_t n = with_fds ? IPC_FDS_MAX : 0;
	_cleanup_json_ cJSON *obj = NULL;
	_cleanup_(json_strings_freep) char **list = NULL;
	struct ak_err err;

	if (ipc_recv(here, &obj, with_fds ? fds : NULL, with_fds ? &n : NULL) != 1)
		return;
	must(n <= IPC_FDS_MAX && cJSON_IsObject(obj));
	(void)json_get_strings(obj, "argv", &list, &err);
	pass_on(obj, fds, n, more);
	close_all(fds, n);
}

static void as_answer(bool with_fds)
{
	_cleanup_json_ cJSON *request = cJSON_CreateObject(), *answer = NULL;
	int fds[IPC_FDS_MAX], rc;
	size_t n = IPC_FDS_MAX;
	struct ak_err err = { "" };

	rc = ipc_call(here, request, NULL, 0, 1, &answer, with_fds ? fds : NULL, with_fds ? &n : NULL, &err);
	must(rc == 0 ? cJSON_IsObject(answer) : rc < 0 && !answer);
	if (rc == 0 && with_fds)
		close_all(fds, n);
	must(there < 0 || ipc_send_error(there, EBUSY, "no") == 0);
}

static void as_exit(void)
{
	struct service_exec x = { .sock = here, .tty_fd = -1 };
	struct service_exit end;
	struct ak_err err = { "" };
	int rc = service_exec_poll(&x, false, &end, &err);

	must(rc != 1 || memchr(end.why.text, 0, sizeof(end.why.text)));
	must(rc >= 0 || err.text[0]);
	(void)service_exec_signal(&x, 15);
	ak_close(x.tty_fd);
}

static void as_message(void)
{
	int fds[SB_FDS_MAX];
	struct sb_msg msg;
	size_t n = 0;

	if (sb_recv(here, &msg, fds, &n) != 1)
		return;
	must(n <= SB_FDS_MAX && memchr(msg.text, 0, sizeof(msg.text)));
	close_all(fds, n);
	if (there < 0)
		return;
	must(sb_send(there, msg.type, msg.value, msg.text, STDIN_FILENO) == 0 &&
		sb_send(there, msg.type, msg.value, NULL, -1) == 0);
	must(sb_recv(here, &msg, fds, &n) == 1 && n == 1);
	close_all(fds, n);
}

static void same_list(char *const *a, char *const *b)
{
	must(!a == !b);
	for (size_t i = 0; a && (a[i] || b[i]); i++)
		must(a[i] && b[i] && !strcmp(a[i], b[i]));
}

/* A command that was taken is packed as it was written, and reads the same. */
static void pack_again(const struct sb_command *cmd)
{
	_cleanup_strbuf_ struct strbuf out = { 0 };
	_cleanup_close_ int fd = -1;
	_cleanup_pack_ struct pack p = { .bad = true };
	struct sb_command again;

	pack_list(&out, cmd->argv);
	pack_list(&out, cmd->envp);
	pack_str(&out, cmd->workdir);
	pack_u64(&out, cmd->tty);
	pack_u64(&out, cmd->rows);
	pack_u64(&out, cmd->cols);
	fd = pack_seal(&out);
	must(fd >= 0 && sb_command_read(&(struct sb_msg){ 0 }, &fd, 1, &p, &again) == 0);
	same_list(cmd->argv, again.argv);
	same_list(cmd->envp, again.envp);
	must(!cmd->workdir == !again.workdir && (!cmd->workdir || !strcmp(cmd->workdir, again.workdir)));
	must(cmd->tty == again.tty && cmd->rows == again.rows && cmd->cols == again.cols);
}

static void as_command(const struct sb_msg *msg, const int *fds, size_t n)
{
	_cleanup_pack_ struct pack p = { .bad = true };
	struct sb_command cmd = { 0 };

	if (sb_command_read(msg, fds, n, &p, &cmd) == 0) {
		must(cmd.argv && cmd.envp);
		pack_again(&cmd);
	}
}

static void as_job(const struct sb_msg *msg, int *fds, size_t n)
{
	static const struct sandbox_spec parked = {
		.name = "parked", .isolation = SANDBOX_STRICT, .stdio = { 0, 1, 2 }, .parked = true
	};
	struct sb_job job = { 0 };
	size_t groups = 0;

	if (sb_job_read(&parked, msg, fds, n, &job, &groups) == 0) {
		must(groups >= 1 && groups <= n && job.spec.name && job.spec.isolation == SANDBOX_STRICT && !job.spec.parked);
		for (size_t i = 0; i < job.spec.n_mounts; i++)
			must(job.spec.mounts[i].source && job.spec.mounts[i].target);
		for (int i = 0; i < 3; i++)
			must(job.spec.stdio[i] > STDERR_FILENO || job.spec.stdio[i] == -1);
	}
	sb_job_done(&job);
}

/* The pack, then streams and groups; which of the streams says the message's value. */
static void as_packed(bool job, uint8_t how, struct input *in)
{
	struct sb_msg msg = { .value = (int8_t)take_byte(in) };
	int fds[AK_FDS_MAX];
	size_t n = 0;

	if (how & HOW_MEMORY)
		fds[n++] = memory(in, !(how & HOW_UNSEALED));
	if ((how & HOW_MEMORY) && (how & HOW_UNSEALED))
		must(ftruncate(fds[0], PACK_MAX + 1) == 0);
	for (int i = 0; i < (how & 7); i++)
		fds[n++] = dup(STDIN_FILENO);
	if (job)
		as_job(&msg, fds, n);
	else
		as_command(&msg, fds, n);
	close_all(fds, n);
}

static void as_sockets(void)
{
	int fds[GWNS_FD_NUM], again[GWNS_FD_NUM];
	struct ak_err err;

	if (gwns_sockets_receive(here, fds, &err) < 0)
		return;
	must(there < 0 || (gwns_sockets_send(there, fds, &err) == 0 && gwns_sockets_receive(here, again, &err) == 0));
	for (int i = 0; i < GWNS_FD_NUM && there >= 0; i++)
		must((fds[i] < 0) == (again[i] < 0));
	close_all(fds, GWNS_FD_NUM);
	if (there >= 0)
		close_all(again, GWNS_FD_NUM);
}

static void as_report(void)
{
	struct gwns ns, again;
	struct ak_err err = { "" };

	if (gwns_report_receive(here, &ns, &err) < 0) {
		must(err.text[0] && (there < 0 || gwns_report_fail(there, -EPERM, &err) == 0));
		must(there < 0 || gwns_report_receive(here, &ns, &err) == -EPERM);
		return;
	}
	if (there >= 0) {
		must(gwns_report_send(there, &ns) == 0 && gwns_report_receive(here, &again, &err) == 0);
		close_all((int[]){ again.user_ns, again.net_ns }, 2);
		close_all(again.fds, GWNS_FD_NUM);
	}
	close_all((int[]){ ns.user_ns, ns.net_ns }, 2);
	close_all(ns.fds, GWNS_FD_NUM);
}

static void read_as(uint8_t who, uint8_t how, struct input *in)
{
	static const size_t more[] = { 0, 0, 40000, IPC_MESSAGE_MAX + 1 };

	if (who == 8 || who == 9) {
		as_packed(who == 8, how, in);
		return;
	}
	send_as(how, in);
	if (who < 4)
		as_object(who > 0, more[who]);
	else if (who < 6)
		as_answer(who == 5);
	else if (who == 6)
		as_exit();
	else if (who == 7)
		as_message();
	else if (who == 10)
		as_sockets();
	else
		as_report();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = { data, size };
	uint8_t who = take_byte(&in) % 12, how = take_byte(&in);
	int pair[2], before = open_fds();

	if (size > 60000 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) < 0)
		return 0;
	here = pair[0];
	there = pair[1];
	read_as(who, how, &in);
	ak_close(here);
	ak_close(there);
	must(open_fds() == before);
	return 0;
}
