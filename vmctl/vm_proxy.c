/*
 * The process that stands on the host for a command in a guest: it has the command's streams, receives its signals, follows the size of its terminal, and ends with its exit
 * code. When it is killed, the guest kills the command with everything that it has started.
 *
 * The same process stands for a connection to a port of the guest's loopback: a socket instead of the streams, and an answer to the gateway instead of an exit code.
 */
#include "vmctl/vm_internal.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <termios.h>
#include <unistd.h>

#define CHUNK 4096 /* a pipe that polls writable takes this much without blocking */

struct proxy {
	int conn, signals, failure;
	bool tty, in_open, ended;
	int channel, theirs; /* of a connection: where to answer, and what, until it is connected; -1 otherwise */
	uint32_t asked;
	bool socket, out_ended;
	int exit_code;
	uint32_t credit; /* for standard input */
	struct strbuf out[2]; /* owned; standard output and error, not yet written */
	bool gone[2]; /* nobody reads that stream any more */
	bool stops; /* the command has stopped; so do we, when its output is written */
	uint8_t data[VM_HEAD + VM_PAYLOAD_MAX];
	size_t len;
};

static const char NO_GUEST[] = "the virtual machine has ended, or runs too many commands";

/* The command runs, and the machine has ended: init ends with it, tells why and takes us along. Our own exit code would come first and hide that. */
static _Noreturn void end_with_machine(void)
{
	for (;;)
		pause();
}

static void send_frame(const struct proxy *p, enum vm_frame_type type, const void *a, size_t a_len, const void *b, size_t b_len)
{
	static uint8_t frame[VM_HEAD + VM_PAYLOAD_MAX]; /* the stack of a command that starts is small */

	vm_head_put(frame, type, 0, (uint32_t)(a_len + b_len));
	if (a_len)
		memcpy(frame + VM_HEAD, a, a_len);
	if (b_len)
		memcpy(frame + VM_HEAD + a_len, b, b_len);
	if (ak_write_all(p->conn, frame, VM_HEAD + a_len + b_len) < 0) {
		if (p->failure < 0 && !p->socket)
			end_with_machine();
		_exit(125);
	}
}

static void send_number(const struct proxy *p, enum vm_frame_type type, uint32_t value)
{
	uint8_t data[4];

	vm_put32(data, value);
	send_frame(p, type, data, sizeof(data), NULL, 0);
}

/* ---- start ---- */

static void add_words(struct strbuf *out, char *const *words, uint32_t *ret_n)
{
	for (*ret_n = 0; words && *words; words++, (*ret_n)++)
		strbuf_add(out, *words, strlen(*words) + 1);
}

static void send_request(const struct proxy *p, const struct sb_command *cmd)
{
	struct vm_request r = { .tty = p->tty };
	_cleanup_strbuf_ struct strbuf out = { 0 };
	struct winsize w;

	if (p->tty && ioctl(0, TIOCGWINSZ, &w) == 0) {
		r.rows = w.ws_row;
		r.cols = w.ws_col;
	}
	strbuf_add(&out, &r, sizeof(r));
	strbuf_add(&out, cmd->workdir ? cmd->workdir : "", cmd->workdir ? strlen(cmd->workdir) + 1 : 1);
	add_words(&out, cmd->argv, &r.argc);
	add_words(&out, cmd->envp, &r.envc);
	if (out.failed)
		_exit(125);
	memcpy(out.data, &r, sizeof(r));
	for (size_t at = 0; at < out.len; at += VM_PAYLOAD_MAX)
		send_frame(p, VM_REQUEST, out.data + at, out.len - at < VM_PAYLOAD_MAX ? out.len - at : VM_PAYLOAD_MAX, NULL, 0);
	send_frame(p, VM_RUN, NULL, 0, NULL, 0);
}

static void answer(struct proxy *p, uint32_t error)
{
	const struct ak_socket_answer msg = { .id = p->asked, .error = error };

	(void)ak_send_fds(p->channel, &msg, sizeof(msg), &p->theirs, error ? 0 : 1);
	p->channel = ak_close(p->channel);
	p->theirs = ak_close(p->theirs);
}

static _Noreturn void fail(struct proxy *p, int code, const char *text, size_t len)
{
	struct sb_failure f = { .exit_code = code };

	if (p->socket) {
		if (p->channel >= 0)
			answer(p, ECONNREFUSED);
		_exit(0);
	}
	snprintf(f.err.text, sizeof(f.err.text), "%.*s", (int)len, text);
	(void)!write(p->failure, &f, sizeof(f));
	_exit(code);
}

/* ---- frames ---- */

static void on_data(struct proxy *p, const uint8_t *data, size_t len)
{
	int s = data[0] - 1;
	uint8_t credit[5] = { data[0] };

	if (s == 0 && len == 1)
		p->out_ended = true;
	if (s < 0 || s > 1 || len == 1)
		return;
	if (p->out[s].len + len > VM_WINDOW + VM_PAYLOAD_MAX)
		fail(p, 125, "the guest broke the protocol", 28);
	if (!p->gone[s]) {
		strbuf_add(&p->out[s], data + 1, len - 1);
		if (p->out[s].failed)
			_exit(125);
	}
	vm_put32(credit + 1, (uint32_t)(len - 1));
	if (p->gone[s])
		send_frame(p, VM_CREDIT, credit, sizeof(credit), NULL, 0);
}

static void on_frame(struct proxy *p, const struct vm_head *h, const uint8_t *data)
{
	switch (h->type) {
	case VM_STARTED:
		if (p->channel >= 0)
			answer(p, 0);
		p->failure = ak_close(p->failure);
		break;
	case VM_FAILED:
		if (p->failure < 0 && !p->socket)
			_exit(125);
		fail(p, (int)vm_get32(data), (const char *)data + 4, h->len - 4);
	case VM_DATA:
		on_data(p, data, h->len);
		break;
	case VM_CREDIT:
		if (data[0] == 0 && vm_get32(data + 1) <= VM_WINDOW - p->credit)
			p->credit += vm_get32(data + 1);
		break;
	case VM_STOPPED:
		p->stops = p->tty;
		break;
	case VM_EXITED:
		p->ended = true;
		p->exit_code = (int)(vm_get32(data) & 0xff);
		break;
	}
}

static void read_conn(struct proxy *p)
{
	ssize_t n = read(p->conn, p->data + p->len, sizeof(p->data) - p->len);
	size_t at = 0;

	if (n <= 0) {
		if (n < 0 && errno == EINTR)
			return;
		if (p->failure >= 0 || p->socket)
			fail(p, 125, NO_GUEST, sizeof(NO_GUEST) - 1);
		end_with_machine();
	}
	p->len += (size_t)n;
	while (p->len - at >= VM_HEAD) {
		struct vm_head h;

		if (vm_head_get(p->data + at, true, &h) < 0)
			_exit(125);
		if (p->len - at < VM_HEAD + h.len)
			break;
		on_frame(p, &h, p->data + at + VM_HEAD);
		at += VM_HEAD + h.len;
	}
	memmove(p->data, p->data + at, p->len - at);
	p->len -= at;
}

/* ---- streams and signals ---- */

static void read_input(struct proxy *p)
{
	uint8_t buf[CHUNK], stream = 0;
	size_t max = p->credit < sizeof(buf) ? p->credit : sizeof(buf);
	ssize_t n = read(0, buf, max);

	if (n < 0 && (errno == EINTR || errno == EAGAIN))
		return;
	if (n <= 0) {
		p->in_open = false;
		send_frame(p, VM_DATA, &stream, 1, NULL, 0);
		if (p->tty) /* the caller has closed the terminal */
			send_number(p, VM_SIGNAL, SIGHUP);
		return;
	}
	p->credit -= (uint32_t)n;
	send_frame(p, VM_DATA, &stream, 1, buf, (size_t)n);
}

static void write_output(struct proxy *p, int s)
{
	uint8_t credit[5] = { (uint8_t)(s + 1) };
	size_t len = p->out[s].len < CHUNK ? p->out[s].len : CHUNK;
	ssize_t n = write(s + 1, p->out[s].data, len);

	if (n < 0 && (errno == EINTR || errno == EAGAIN))
		return;
	if (n < 0) { /* nobody reads it any more: as the kernel would tell the command */
		if (p->socket)
			send_frame(p, VM_KILL, NULL, 0, NULL, 0);
		else
			send_number(p, VM_SIGNAL, SIGPIPE);
		p->gone[s] = true;
		n = (ssize_t)p->out[s].len;
	}
	vm_put32(credit + 1, (uint32_t)n);
	send_frame(p, VM_CREDIT, credit, sizeof(credit), NULL, 0);
	memmove(p->out[s].data, p->out[s].data + n, p->out[s].len - (size_t)n);
	p->out[s].len -= (size_t)n;
}

static void read_signal(const struct proxy *p)
{
	struct signalfd_siginfo info;
	struct winsize w;

	if (read(p->signals, &info, sizeof(info)) != sizeof(info))
		return;
	if (info.ssi_signo != SIGWINCH)
		send_number(p, VM_SIGNAL, info.ssi_signo);
	else if (p->tty && ioctl(0, TIOCGWINSZ, &w) == 0)
		send_number(p, VM_SIZE, (uint32_t)w.ws_row | (uint32_t)w.ws_col << 16);
}

static void loop(struct proxy *p)
{
	while (!p->ended || p->out[0].len || p->out[1].len) {
		struct pollfd f[] = { { .fd = p->ended ? -1 : p->conn, .events = POLLIN }, { .fd = p->signals, .events = POLLIN },
			{ .fd = p->in_open && p->credit && !p->ended ? 0 : -1, .events = POLLIN },
			{ .fd = p->out[0].len ? 1 : -1, .events = POLLOUT },
			{ .fd = p->out[1].len ? 2 : -1, .events = POLLOUT } };

		if (poll(f, ARRAY_SIZE(f), -1) < 0)
			continue;
		for (int s = 0; s < 2; s++) {
			if (f[3 + s].revents)
				write_output(p, s);
		}
		if (f[1].revents)
			read_signal(p);
		if (f[2].revents)
			read_input(p);
		if (f[0].revents)
			read_conn(p);
		/* The leader of our session (leader.c) sees that, and the caller then has a job that has stopped. SIGCONT is forwarded. */
		if (p->stops && !p->out[0].len && !p->out[1].len) {
			p->stops = false;
			kill(getpid(), SIGSTOP);
		}
		if (p->socket && p->out_ended && !p->out[0].len) {
			shutdown(1, SHUT_WR);
			p->out_ended = false;
		}
	}
}

/* ---- main ---- */

static int connect_mux(int dial, char what)
{
	int pair[2], rc;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		return -errno;
	rc = ak_send_fds(dial, &what, 1, &pair[1], 1);
	ak_close(pair[1]);
	if (rc < 0) {
		ak_close(pair[0]);
		return rc;
	}
	return pair[0];
}

static void make_raw(void)
{
	struct termios t;

	if (tcgetattr(0, &t) < 0)
		return;
	cfmakeraw(&t);
	tcsetattr(0, TCSANOW, &t);
}

_Noreturn void vm_proxy_main(const struct sb_command *cmd, int dial, int failure)
{
	static struct proxy p;
	sigset_t set;

	p = (struct proxy){
		.failure = failure, .in_open = true, .credit = VM_WINDOW, .tty = cmd->tty_slave >= 0, .channel = -1, .theirs = -1
	};
	p.conn = connect_mux(dial, 'd');
	ak_close(dial);
	if (p.conn < 0)
		fail(&p, 125, NO_GUEST, sizeof(NO_GUEST) - 1);
	sigfillset(&set);
	sigdelset(&set, SIGCHLD);
	sigprocmask(SIG_SETMASK, &set, NULL);
	p.signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (p.tty)
		make_raw();
	send_request(&p, cmd);
	loop(&p);
	_exit(p.exit_code);
}

static _Noreturn void stream_main(int dial, int channel, const struct ak_socket_ask *ask)
{
	static struct proxy p;
	uint8_t request[8];
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		_exit(1);
	p = (struct proxy){ .failure = -1,
		.signals = -1,
		.in_open = true,
		.credit = VM_WINDOW,
		.socket = true,
		.asked = ask->id,
		.conn = connect_mux(dial, 's'),
		.channel = fcntl(channel, F_DUPFD_CLOEXEC, 10),
		.theirs = fcntl(pair[1], F_DUPFD_CLOEXEC, 10) };
	if (p.conn >= 0)
		p.conn = fcntl(p.conn, F_DUPFD_CLOEXEC, 10);
	dup2(pair[0], 0);
	dup2(0, 1);
	if (sb_keep_fds((const int[]){ 0, 1, p.conn, p.channel, p.theirs }, 5) < 0)
		_exit(1);
	if (p.conn < 0)
		fail(&p, 125, "", 0);
	ak_set_nonblock(0, true);
	vm_put32(request, ask->family == AF_INET6 ? 6 : 4);
	vm_put32(request + 4, ask->port);
	send_frame(&p, VM_CONNECT, request, sizeof(request), NULL, 0);
	loop(&p);
	_exit(0);
}

int vm_stream_start(int dial, int channel, const struct ak_socket_ask *ask)
{
	pid_t pid = fork();

	if (pid == 0)
		stream_main(dial, channel, ask);
	return pid < 0 ? -errno : 1;
}

static bool read_notice(const struct sb_ctx *ctx, struct ak_err *ret)
{
	if (!ctx->dial || read(ctx->vm_run.notices, ret, sizeof(*ret)) != sizeof(*ret))
		return false;
	ret->text[sizeof(ret->text) - 1] = '\0';
	return true;
}

bool sb_vm_reason(const struct sb_ctx *ctx, struct ak_err *ret)
{
	bool any = false;

	while (read_notice(ctx, ret))
		any = true;
	return any;
}

bool sb_vm_notes(const struct sb_ctx *ctx)
{
	struct ak_err notice;
	bool any = false;

	while (read_notice(ctx, &notice)) {
		sb_send(ctx->ctl, SB_MSG_NOTE, 0, notice.text, -1);
		any = true;
	}
	return any;
}
