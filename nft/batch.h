/*
 * A batch: netlink messages in one buffer, each with the name of the object it speaks of, sent and
 * acknowledged as one transaction. Building is pure; only fw_batch_send talks to the kernel.
 *
 * Errors stick: after one failed append every later one is a no-op and fw_batch_send returns it.
 */
#ifndef AK_FW_BATCH_H
#define AK_FW_BATCH_H

#include "gateway/base/err.h"
#include "gateway/base/strbuf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <libmnl/libmnl.h>

#define FW_OBJECT_MAX 40 /* "sb4294967295_denied_default" and its NUL fit */

struct fw_batch_entry {
	const char *kind; /* static: "set", "chain" … */
	char object[FW_OBJECT_MAX];
	unsigned rule; /* 1 … for the rules of a chain, else 0 */
};

struct fw_batch {
	char *buf; /* owned */
	size_t len, cap;
	size_t last; /* offset of the newest message, which asks for the acknowledgement */
	struct fw_batch_entry *entries; /* owned; message i has sequence number seq + 1 + i */
	size_t n, cap_entries;
	uint32_t seq; /* of the batch's begin */
	const char *table; /* static: the inet table that the objects belong to */
	struct strbuf *text; /* borrowed: where the objects are also written as text, or NULL */
	int failed; /* 0 or -errno */
	bool fresh; /* nothing of ours is in the namespace yet: replacing is plain adding */
};

/* Start anew with sequence numbers from SEQ; buffers are kept. */
void fw_batch_begin(struct fw_batch *b, uint32_t seq);
void fw_batch_done(struct fw_batch *b);

/* The header of a new message about KIND OBJECT, or NULL once failed. At least FW_BATCH_ROOM bytes may follow it;
 * fw_batch_put ends the message. */
#define FW_BATCH_ROOM 16384
struct nlmsghdr *fw_batch_get(
	struct fw_batch *b, uint16_t type, uint16_t family, uint16_t flags, const char *kind, const char *object);
void fw_batch_put(struct fw_batch *b, const struct nlmsghdr *nlh);
void fw_batch_fail(struct fw_batch *b, int rc);

/* Append to the text, if there is one. */
void fw_batch_text(struct fw_batch *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Send all of it and read what the kernel says. 0 only when the kernel has committed it. */
int fw_batch_send(struct fw_batch *b, int fd, struct ak_err *err);

/* What the kernel said so far. */
struct fw_acks {
	bool committed; /* the last message was acknowledged with success */
	int code; /* the first failure, negative, or 0 */
	uint32_t failed_seq; /* and its message */
};

/* Take one datagram from the kernel. Pure; bytes that make no sense are skipped. */
void fw_acks_parse(const struct fw_batch *b, const void *data, size_t len, struct fw_acks *acks);

/* "set sb7_tcp4: No such file or directory". */
int fw_acks_result(const struct fw_batch *b, const struct fw_acks *acks, struct ak_err *err);

#endif
