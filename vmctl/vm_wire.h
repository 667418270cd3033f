/*
 * Frames between the host and the agent in a guest, over one byte stream (a virtio serial port). Shared by both ends: the guest is built from this file too,
 * with another C library, so it uses nothing of ours.
 *
 * A frame is a head of 8 bytes, little endian, and a payload of at most VM_PAYLOAD_MAX bytes. Each end treats the other as hostile: an unknown type, a
 * length over the limit or an id out of range ends the connection.
 *
 * Flow control: an end may send data of a stream only while it has credit. Both start with VM_WINDOW bytes for each stream of a command, and each CREDIT gives back
 * what the receiver has passed on.
 */
#ifndef AK_VM_WIRE_H
#define AK_VM_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define VM_WIRE_VERSION 5
#define VM_PIDS_WORDS "agentkernel: a process was refused" /* on the console: a command reached the process limit */
#define VM_PAYLOAD_MAX 32768u
#define VM_HEAD 8u
#define VM_COMMANDS_MAX 256u /* at one time; ids are below this */
#define VM_STREAMS_FROM 64u /* connections have ids from here on, so that they leave room for commands */
#define VM_WINDOW 131072u
#define VM_REQUEST_MAX (4u << 20) /* bytes of arguments and environment of one command */

enum vm_frame_type {
	VM_HELLO = 1, /* guest: it is up; u32 version */
	VM_CONFIG, /* host: struct vm_config */
	VM_READY, /* guest: configured */
	VM_REFUSED, /* guest: text; the configuration failed */
	VM_REQUEST, /* host: a part of a command's request; see vm_request below */
	VM_RUN, /* host: the request is complete */
	VM_STARTED, /* guest: the program runs */
	VM_FAILED, /* guest: u32 exit code (125 to 127), text; EXITED follows */
	VM_DATA, /* both: u8 stream (0 in, 1 out, 2 err), data; no data: end of file */
	VM_CREDIT, /* both: u8 stream, u32 bytes */
	VM_SIGNAL, /* host: u32 signal, for the command's process group */
	VM_SIZE, /* host: u16 rows, u16 columns */
	VM_KILL, /* host: end everything that the command has started */
	VM_EXITED, /* guest: u32 exit code, u32 signal (0: exited by itself); everything of the command is gone or left on purpose */
	VM_SHUTDOWN, /* host: write back and power off */
	VM_CONNECT, /* host, instead of a request: u32 family (4 or 6), u32 port of the guest's own loopback. Then as for a command: STARTED or FAILED, DATA, EXITED */
	VM_STOPPED, /* guest: the program of a terminal was stopped, by the suspend key for example; SIGCONT continues it */
	VM_TYPE_NUM
};

struct vm_head {
	uint32_t len; /* of the payload */
	uint16_t type;
	uint16_t id; /* of a command; 0 otherwise */
};

/* What a guest shall do. A parked one prepares itself first and gets its job later. */
#define VM_STEP_PREPARE 1u /* entropy, network, shares */
#define VM_STEP_JOB 2u /* clock, names and the root; entropy again */

/* The payload of VM_CONFIG. */
struct vm_config {
	uint32_t version;
	uint32_t steps;
	uint32_t uid, gid; /* of the commands */
	uint32_t ipv6; /* 1: configure the IPv6 addresses too */
	uint32_t pids; /* process limit of all commands together */
	uint32_t strict; /* 1: the tighter system-call filter */
	uint32_t network; /* 0: loopback only */
	uint32_t image; /* 1: the root is an image, whose users own their files */
	int64_t clock_s, clock_ns;
	uint8_t entropy[64];
	uint8_t mac[6], gw_mac[6];
	uint8_t addr4[4], gw4[4], addr6[16], gw6[16];
	uint32_t prefix4, prefix6;
	char hostname[64];
	char home[256];
};

/*
 * A request, in one or more VM_REQUEST frames: this head, then NUL-terminated strings: the working folder ("": the home), ARGC arguments, ENVC variables.
 */
struct vm_request {
	uint16_t tty, rows, cols;
	uint16_t pad;
	uint32_t argc, envc;
};

/* Append a frame's head to BUF. */
void vm_head_put(uint8_t buf[VM_HEAD], enum vm_frame_type type, uint16_t id, uint32_t len);

/* 0 and the head, or -1 if it is not one that the given end may send. */
int vm_head_get(const uint8_t buf[VM_HEAD], bool from_guest, struct vm_head *ret);

void vm_put32(uint8_t *p, uint32_t v);
uint32_t vm_get32(const uint8_t *p);

/* Take a request apart; ARGV and ENVP have room for argc + 1 and envc + 1. -1 if it is malformed. */
int vm_request_check(const char *data, size_t len, struct vm_request *ret);
void vm_request_strings(const char *data, const struct vm_request *r, const char **ret_workdir, char **argv, char **envp);

#endif
