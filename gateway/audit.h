/*
 * Audit: append-only JSON lines, each chained by hash to the one before.
 *
 * Two kinds of files share the format. A sandbox's network log has one writer, the gateway process, which holds it open for
 * append and cannot open anything else; rotation is done for it by its supervisor, who hands a new descriptor in. The
 * events log (life cycle, exec, file, policy) is shared by all commands of a user under a lock.
 *
 * A record is one line: {"v":1, "time":…, "seq":N, …, "prev":"<hash>","hash":"<hash>"}. `hash` is SHA-256 over the line's
 * bytes up to the comma before "hash", so that any JSON tool can read a record and one can verify it without one.
 */
#ifndef AK_AUDIT_H
#define AK_AUDIT_H

#include "gateway/base/addr.h"
#include "gateway/base/err.h"
#include "gateway/base/sha256.h"
#include "gateway/base/strbuf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define AUDIT_VERSION 1
#define AUDIT_ROTATE_BYTES (16u << 20)
#define AUDIT_KEEP_FILES 4 /* NAME, NAME.1 … NAME.3 */

/* A network record. Pointers are borrowed during the call; NULL and 0 fields are left out of the line. */
struct audit_net {
	const char *sandbox;
	const char *event; /* "dns", "flow", "packet", "policy", "loss", "start", "end" */
	const char *verdict; /* "allow", "deny" or "error" */
	const char *reason;
	const char *rule;
	const char *policy;
	uint64_t generation;
	const char *proto; /* "dns", "tcp", "udp", "tls", "http", "icmp", "sctp" … */
	const char *name;
	const char *qtype;
	const char *sni;
	const struct ak_addr *dst;
	uint16_t port;
	const char *const *cname;
	size_t n_cname;
	const struct ak_addr *answers;
	size_t n_answers;
	uint32_t ttl;
	bool has_bytes; /* write bytes_out, bytes_in and duration_ms even when 0 */
	uint64_t bytes_out, bytes_in, duration_ms;
	uint64_t count; /* default 1 */
	uint64_t suppressed; /* like records that were not written one by one */
	const char *detail;
};

/* ---- writer ---- */

struct audit_writer {
	int fd; /* owned; -1: nothing is written, everything is counted as lost */
	uint64_t seq;
	char prev[SHA256_HEX];
	uint64_t size;
	uint64_t lost; /* records that could not be written since the last that could */
	uint64_t lost_total;
	uint64_t written;
	struct strbuf line;
};

/* Continue after SEQ and PREV (NULL starts a chain); takes FD over. */
void audit_writer_init(struct audit_writer *w, int fd, uint64_t seq, const char *prev, uint64_t size);
void audit_writer_done(struct audit_writer *w);

/* Never fails for the caller: a line that could not be written is counted, and a "loss" record says so once writing works. */
void audit_write_net(struct audit_writer *w, const struct audit_net *rec);

/* True when the file has grown past AUDIT_ROTATE_BYTES; the owner then gets a new descriptor and swaps it in. */
bool audit_writer_full(const struct audit_writer *w);
void audit_writer_swap(struct audit_writer *w, int fd);

/* ---- files (processes that have a file system) ---- */

/* Open PATH for append (0600, made if missing), find the end of its chain, cut off a torn last line. */
int audit_open(const char *path, struct audit_writer *w, struct ak_err *err);

/* PATH → PATH.1 → … and a fresh PATH; the new descriptor. */
int audit_rotate(const char *path, struct ak_err *err);

/* Append to the shared events log at PATH under a lock, rotating when needed. FIELDS is the record's own part as JSON members
 * (`"event":"sandbox_start","sandbox":"x"`), already escaped. */
int audit_event(const char *path, const char *fields, struct ak_err *err);

/* ---- reading ---- */

/* Verify PATH and its rotated predecessors, oldest first. 0 and the count when whole; -EBADMSG and a reason that names file, line and seq. */
int audit_verify(const char *path, uint64_t *ret_count, struct ak_err *err);

#endif
