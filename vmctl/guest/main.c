/*
 * pid 1 of the guest. It loads the modules, opens its port and says HELLO: that is the state in which the guest is saved, before anything of the host is mounted.
 * Everything else comes with the configuration, after each restore.
 */
#include "agent.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#define PORT_NAME "/dev/vport0p1"
#define PORT_OTHER "/dev/vport1p1"
#define POLL_MAX (2 + 3 * VM_COMMANDS_MAX)

static uint8_t in[VM_HEAD + VM_PAYLOAD_MAX];
static size_t in_len;

static void power_off(void)
{
	sync();
	reboot(RB_POWER_OFF);
}

static void on_config(const uint8_t *data)
{
	struct vm_config c;
	const char *step = "";
	int rc;

	memcpy(&c, data, sizeof(c));
	c.hostname[sizeof(c.hostname) - 1] = c.home[sizeof(c.home) - 1] = '\0';
	rc = guest_configure(&c, &step);
	if (rc == 0) {
		port_send(VM_READY, 0, NULL, 0, NULL, 0);
	} else {
		char text[256];
		int n = snprintf(text, sizeof(text), "%s: %s", step, strerror(-rc));

		port_send(VM_REFUSED, 0, text, (size_t)n, NULL, 0);
	}
}

static void on_frame(const struct vm_head *h, const uint8_t *data)
{
	switch (h->type) {
	case VM_CONFIG:
		on_config(data);
		break;
	case VM_REQUEST:
		command_request(h->id, data, h->len);
		break;
	case VM_RUN:
		command_run(h->id);
		break;
	case VM_DATA:
		command_data(h->id, data, h->len);
		break;
	case VM_CREDIT:
		command_credit(h->id, data);
		break;
	case VM_SIGNAL:
		command_signal(h->id, (int)vm_get32(data));
		break;
	case VM_SIZE:
		command_size(h->id, (uint16_t)vm_get32(data), (uint16_t)(vm_get32(data) >> 16));
		break;
	case VM_KILL:
		command_kill(h->id);
		break;
	case VM_CONNECT:
		command_connect(h->id, vm_get32(data), vm_get32(data + 4));
		break;
	case VM_SHUTDOWN:
		power_off();
		break;
	}
}

static void read_port(void)
{
	ssize_t n = read(port, in + in_len, sizeof(in) - in_len);
	size_t at = 0;

	if (n <= 0) {
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		/* No host behind the port: nothing can ever arrive again but a new host after a restore. */
		poll(NULL, 0, 10);
		return;
	}
	in_len += (size_t)n;
	while (in_len - at >= VM_HEAD) {
		struct vm_head h;

		if (vm_head_get(in + at, false, &h) < 0)
			power_off();
		if (in_len - at < VM_HEAD + h.len)
			break;
		on_frame(&h, in + at + VM_HEAD);
		at += VM_HEAD + h.len;
	}
	memmove(in, in + at, in_len - at);
	in_len -= at;
}

static void open_port(void)
{
	for (int tries = 0; port < 0 && tries < 1000; tries++) {
		port = open(PORT_NAME, O_RDWR | O_CLOEXEC);
		if (port < 0)
			port = open(PORT_OTHER, O_RDWR | O_CLOEXEC);
		if (port < 0)
			poll(NULL, 0, 10);
	}
	if (port < 0) {
		printf("agentkernel guest: no port to the host\n");
		power_off();
	}
}

int main(void)
{
	static struct pollfd p[POLL_MAX];
	struct signalfd_siginfo info;
	uint8_t version[4];
	sigset_t set;
	int children;

	mkdir("/dev", 0755);
	mkdir("/proc", 0755);
	mkdir("/sys", 0755);
	mount("devtmpfs", "/dev", "devtmpfs", 0, "mode=0755");
	mount("proc", "/proc", "proc", 0, NULL);
	mount("sysfs", "/sys", "sysfs", 0, NULL);
	sigfillset(&set);
	sigprocmask(SIG_SETMASK, &set, NULL);
	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	children = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	guest_modules();
	open_port();
	vm_put32(version, VM_WIRE_VERSION);
	port_send(VM_HELLO, 0, version, sizeof(version), NULL, 0);
	for (;;) {
		size_t n = 2;

		p[0] = (struct pollfd){ .fd = port, .events = POLLIN };
		p[1] = (struct pollfd){ .fd = children, .events = POLLIN };
		n += commands_poll(p + 2, POLL_MAX - 2);
		if (poll(p, n, -1) < 0)
			continue;
		if (n > 2)
			commands_serve(p + 2, n - 2);
		if (p[1].revents) {
			(void)!read(children, &info, sizeof(info));
			commands_reap();
		}
		if (p[0].revents)
			read_port();
	}
}
