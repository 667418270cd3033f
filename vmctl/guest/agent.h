/* The agent in the guest: pid 1, statically linked, the only program of its initramfs. */
#ifndef AK_GUEST_AGENT_H
#define AK_GUEST_AGENT_H

#include "vmctl/vm_wire.h"

#include <poll.h>
#include <sys/types.h>

/* setup.c */
void guest_modules(void); /* load what lies in /modules, in order */
int guest_configure(const struct vm_config *c, const char **ret_step); /* 0 or -errno, with the step that failed */
extern struct vm_config guest_config;

/* confine.c; 0 or -errno */
#define GUEST_GROUP "/sys/fs/cgroup/commands" /* control group of all commands, each in one of its own below */
int guest_limits(const struct vm_config *c); /* of all commands together */
int guest_filter(
	void); /* of the calling process: no new privileges, no view of other commands, and the system calls of its isolation */

/* port.c: frames to the host. Writing blocks: the host reads whenever the guest writes, or the guest is of no use. */
extern int port;
void port_send(enum vm_frame_type type, uint16_t id, const void *a, size_t a_len, const void *b, size_t b_len);
void port_text(enum vm_frame_type type, uint16_t id, uint32_t code, const char *text);

/* command.c */
void command_request(uint16_t id, const uint8_t *data, size_t len);
void command_run(uint16_t id);
void command_connect(uint16_t id, uint32_t family, uint32_t port); /* to our own loopback */
void command_data(uint16_t id, const uint8_t *data, size_t len);
void command_credit(uint16_t id, const uint8_t *data);
void command_signal(uint16_t id, int sig);
void command_size(uint16_t id, uint16_t rows, uint16_t cols);
void command_kill(uint16_t id);
void commands_reap(void);
size_t commands_poll(struct pollfd *p, size_t max); /* call commands_serve after poll */
void commands_serve(const struct pollfd *p, size_t n);

#endif
