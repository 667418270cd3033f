/*
 * A batch: netlink messages in one buffer, sent and acknowledged as one transaction. Each message carries the name of its
 * object for error reports. Building is pure; only fw_batch_send talks to the kernel.
 *
 * Errors are sticky: after one failed append, later ones do nothing and fw_batch_send returns the error.
 */
#ifndef AK_FW_BATCH_H
#define AK_FW_BATCH_H

#include "gateway/base/err.h"
#include "gateway/base/strbuf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <libmnl/libmnl.h>

#define FW_OBJECT_MAX 40 /* fits "sb4294967295_denied_default" and the NUL */

struct fw_batch_entry {
	const char *kind; /* static: "set", "chain" … */
	char object[FW_OBJECT_MAX];
	unsigned rule; /* number of the rule in its chain, from 1; 0 for other objects */
};

struct fw_batch {
	char *buf; /* owned */
	size_t len, cap;
	size_t last; /* offset of the last message, which requests the acknowledgement */
	struct fw_batch_entry *entries; /* owned; message i has sequence number seq + 1 + i */
	size_t n, cap_entries;
	uint32_t seq; /* sequence number of the begin message */
	const char *table; /* static: the inet table of the objects */
	struct strbuf *text; /* borrowed, or NULL: also print the objects here as text */
	int failed; /* 0 or -errno */
	bool fresh; /* the namespace holds none of our objects: add instead of replace */
};

/* Start a new batch with sequence numbers from SEQ; keeps the buffers. */
void fw_batch_begin(struct fw_batch *b, uint32_t seq);
void fw_batch_done(struct fw_batch *b);

/*
 * Start a message about KIND OBJECT and return its header, or NULL after an error. At least FW_BATCH_ROOM bytes may follow
 * it; fw_batch_put ends the message.
 */
#define FW_BATCH_ROOM 16384
struct nlmsghdr *fw_batch_get(
	struct fw_batch *b, uint16_t type, uint16_t family, uint16_t flags, const char *kind, const char *object);
void fw_batch_put(struct fw_batch *b, const struct nlmsghdr *nlh);
void fw_batch_fail(struct fw_batch *b, int rc);

/* Append to the text output, if enabled. */
void fw_batch_text(struct fw_batch *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Send the batch and read the kernel's replies. Returns 0 only if the kernel committed the batch. */
int fw_batch_send(struct fw_batch *b, int fd, struct ak_err *err);

/* The kernel's replies so far. */
struct fw_acks {
	bool committed; /* the kernel acknowledged the last message */
	int code; /* the first error (negative), or 0 */
	uint32_t failed_seq; /* the message that caused it */
};

/* Parse one datagram from the kernel. Pure; malformed messages are skipped. */
void fw_acks_parse(const struct fw_batch *b, const void *data, size_t len, struct fw_acks *acks);

/* Turn the replies into a result, for example "set sb7_tcp4: No such file or directory". */
int fw_acks_result(const struct fw_batch *b, const struct fw_acks *acks, struct ak_err *err);

#endif
