/*
 * The process that routes frames between commands and the guest. Each command has a proxy (vm_proxy.c) with a socket to here; the guest has one port for all. It looks only at heads:
 * it replaces the id, which a proxy does not know, and never believes what the guest says about another command than its own.
 *
 * Memory is bounded by the credits of vm_wire.h: what a proxy has not read yet is at most two windows, and no proxy is read while the port is busy. A guest that sends more loses its
 * sandbox.
 */
#include "vmctl/vm_internal.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define QUEUE_MAX (4 * VM_WINDOW) /* for one proxy */
#define PORT_BUSY (1u << 20)

struct reader {
	uint8_t data[VM_HEAD + VM_PAYLOAD_MAX];
	size_t len;
};

struct peer {
	int fd; /* owned; -1: the proxy is gone, or there is none */
	bool used; /* the guest still knows the id */
	struct strbuf out; /* owned; not yet read by the proxy */
	struct reader *in; /* owned */
};

struct mux {
	int port, dial, ready_fd;
	bool ready;
	struct vm_console *console; /* borrowed */
	struct strbuf out; /* for the guest */
	struct reader in;
	struct peer peers[VM_COMMANDS_MAX];
};

static void queue(struct strbuf *out, enum vm_frame_type type, uint16_t id, const void *data, size_t len)
{
	uint8_t head[VM_HEAD];

	vm_head_put(head, type, id, (uint32_t)len);
	strbuf_add(out, head, sizeof(head));
	strbuf_add(out, data, len);
	if (out->failed)
		_exit(1);
}

/* False when the other end is gone. */
static bool flush(int fd, struct strbuf *out)
{
	ssize_t n = out->len ? send(fd, out->data, out->len, MSG_DONTWAIT | MSG_NOSIGNAL) : 0;

	if (n < 0)
		return errno == EAGAIN || errno == EINTR;
	memmove(out->data, out->data + n, out->len - (size_t)n);
	out->len -= (size_t)n;
	return true;
}

/* ---- proxies ---- */

static void peer_close(struct mux *m, struct peer *p)
{
	uint16_t id = (uint16_t)(p - m->peers);

	if (p->fd < 0)
		return;
	p->fd = ak_close(p->fd);
	strbuf_done(&p->out);
	free(p->in);
	p->in = NULL;
	/* The proxy was killed, or its command has ended: what is left of it must go, too. */
	if (p->used)
		queue(&m->out, VM_KILL, id, NULL, 0);
}

/* What is dialled for: 'd', a command; 's', a connection to a port. */
static void on_dial(struct mux *m)
{
	int fds[2], slot = -1;
	size_t n = 2;
	char byte;
	ssize_t len = ak_recv_fds(m->dial, &byte, 1, fds, &n);

	if (len == 0)
		_exit(0);
	if (len < 0 || n != 1) {
		for (size_t i = 0; len > 0 && i < n; i++)
			ak_close(fds[i]);
		return;
	}
	for (int i = byte == 's' ? (int)VM_STREAMS_FROM : 1; i < (int)VM_COMMANDS_MAX && slot < 0; i++) {
		if (!m->peers[i].used && m->peers[i].fd < 0)
			slot = i;
	}
	if (slot < 0 || !(m->peers[slot].in = calloc(1, sizeof(struct reader)))) {
		ak_close(fds[0]);
		return;
	}
	ak_set_nonblock(fds[0], true);
	m->peers[slot].fd = fds[0];
	m->console->n_notices = 0; /* the limit is for each command */
	m->peers[slot].used = true;
}

/* Read what is there and call ON for each whole frame; false at end of file or for a malformed frame. */
static bool read_frames(
	int fd, struct reader *r, bool from_guest, void (*on)(void *ctx, const struct vm_head *h, const uint8_t *data), void *ctx)
{
	ssize_t n = read(fd, r->data + r->len, sizeof(r->data) - r->len);
	size_t at = 0;

	if (n <= 0)
		return n < 0 && (errno == EAGAIN || errno == EINTR);
	r->len += (size_t)n;
	while (r->len - at >= VM_HEAD) {
		struct vm_head h;

		if (vm_head_get(r->data + at, from_guest, &h) < 0)
			return false;
		if (r->len - at < VM_HEAD + h.len)
			break;
		on(ctx, &h, r->data + at + VM_HEAD);
		at += VM_HEAD + h.len;
	}
	memmove(r->data, r->data + at, r->len - at);
	r->len -= at;
	return true;
}

struct route {
	struct mux *m;
	uint16_t id;
};

static void from_proxy(void *ctx, const struct vm_head *h, const uint8_t *data)
{
	struct route *r = ctx;

	if (h->type != VM_CONFIG && h->type != VM_SHUTDOWN)
		queue(&r->m->out, (enum vm_frame_type)h->type, r->id, data, h->len);
}

/* ---- the guest ---- */

static void tell_ready(struct mux *m, const char *text, size_t len)
{
	struct ak_err err = { "" };

	if (m->ready)
		return;
	m->ready = true;
	if (text)
		snprintf(err.text, sizeof(err.text), "the guest could not be configured: %.*s", (int)len, text);
	(void)!write(m->ready_fd, &err, sizeof(err));
}

static void from_guest(void *ctx, const struct vm_head *h, const uint8_t *data)
{
	struct mux *m = ctx;
	struct peer *p = &m->peers[h->id];

	if (h->id == 0) {
		if (h->type == VM_READY)
			tell_ready(m, NULL, 0);
		else if (h->type == VM_REFUSED)
			tell_ready(m, (const char *)data, h->len);
		return;
	}
	if (p->fd >= 0) {
		queue(&p->out, (enum vm_frame_type)h->type, 0, data, h->len);
		if (p->out.len > QUEUE_MAX) {
			vm_console_notice(m->console, "the guest sent more than it may, and was ended");
			_exit(1);
		}
		if (!flush(p->fd, &p->out))
			peer_close(m, p);
	}
	if (h->type == VM_EXITED)
		p->used = false;
}

/* ---- loop ---- */

static void serve_peers(struct mux *m, const struct pollfd *polled)
{
	for (uint16_t i = 1; i < VM_COMMANDS_MAX; i++) {
		struct peer *p = &m->peers[i];
		struct route r = { m, i };
		short events = polled[i].fd >= 0 && polled[i].fd == p->fd ? polled[i].revents : 0;

		if (events & POLLOUT && !flush(p->fd, &p->out))
			peer_close(m, p);
		else if (events & (POLLIN | POLLHUP | POLLERR) && !read_frames(p->fd, p->in, false, from_proxy, &r))
			peer_close(m, p);
	}
}

static void loop(struct mux *m)
{
	static struct pollfd polled[VM_COMMANDS_MAX + 2];
	struct pollfd *port = &polled[0], *dial = &polled[VM_COMMANDS_MAX], *console = dial + 1;

	for (;;) {
		bool busy = m->out.len > PORT_BUSY;

		*port = (struct pollfd){ .fd = m->port, .events = (short)(POLLIN | (m->out.len ? POLLOUT : 0)) };
		*dial = (struct pollfd){ .fd = m->dial, .events = POLLIN };
		*console = (struct pollfd){ .fd = m->console->fd, .events = POLLIN };
		for (int i = 1; i < (int)VM_COMMANDS_MAX; i++)
			polled[i] = (struct pollfd){ .fd = m->peers[i].fd,
				.events = (short)((busy ? 0 : POLLIN) | (m->peers[i].out.len ? POLLOUT : 0)) };
		if (poll(polled, VM_COMMANDS_MAX + 2, -1) < 0)
			continue;
		/* First, so that the reason of an end is known before the end. */
		if (console->revents && !vm_console_read(m->console))
			m->console->fd = -1;
		if (port->revents & (POLLIN | POLLHUP | POLLERR) && !read_frames(m->port, &m->in, true, from_guest, m))
			return;
		if (dial->revents)
			on_dial(m);
		serve_peers(m, polled);
		if (!flush(m->port, &m->out))
			return;
	}
}

_Noreturn void vm_mux_main(int port, int dial, int ready_fd, struct vm_console *console, const struct vm_config *config)
{
	struct mux *m = calloc(1, sizeof(*m));

	if (!m)
		_exit(1);
	prctl(PR_SET_NAME, "ak-vm");
	m->port = port;
	m->dial = dial;
	m->ready_fd = ready_fd;
	m->console = console;
	ak_set_nonblock(ready_fd, true);
	ak_set_nonblock(console->fd, true);
	ak_set_nonblock(port, true);
	for (int i = 0; i < (int)VM_COMMANDS_MAX; i++)
		m->peers[i].fd = -1;
	queue(&m->out, VM_CONFIG, 0, config, sizeof(*config));
	loop(m);
	while (console->fd >= 0 && poll(&(struct pollfd){ .fd = console->fd, .events = POLLIN }, 1, 0) > 0 &&
		vm_console_read(console))
		;
	_exit(0);
}
