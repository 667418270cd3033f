/*
 * Audit logs: append-only JSON lines; each record contains the hash of the previous one.
 *
 * Two kinds of files share the format. A sandbox's network log has one writer, the gateway process, which holds it open for
 * append and cannot open any other file; its supervisor rotates the log and passes in a new descriptor. The events log (life
 * cycle, exec, file, policy) is shared by all commands of a user under a lock.
 *
 * A record is one line: {"v":1,"time":…,"seq":N,…,"prev":"<hash>","hash":"<hash>"}. `hash` is SHA-256 over the bytes of
 * the line up to the comma before "hash": any JSON tool can read a record, and verifying it needs no JSON parser. `seq`
 * starts at 1 and has no gaps; `prev` of the first record is 64 zeros.
 *
 * A partial write is undone (ftruncate to the last good size). If that fails too, the next successful record starts on a new
 * line and is a "loss" record whose "torn" is the exact length of the broken lines before it: verification accepts a broken
 * line only if a record attests it like this.
 *
 * Files of a log: NAME, its predecessors NAME.1 … NAME.3, which rotation eventually deletes, and NAME.first, the very first one,
 * which is never deleted. Each file after a rotation starts with a "rotate" record that says which records are gone. Before
 * they are deleted, NAME.kept receives a copy of the first denial of each kind: a separate chain whose records contain the
 * original number in "of".
 *
 * With a key (log/audit_mac.h) each record ends with a MAC of its hash.
 */
#ifndef AK_AUDIT_H
#define AK_AUDIT_H

#include "gateway/base/addr.h"
#include "gateway/base/err.h"
#include "gateway/base/sha256.h"
#include "gateway/base/strbuf.h"
#include "gateway/base/reason.h"
#include "gateway/log/audit_mac.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define AUDIT_VERSION 1
#define AUDIT_ROTATE_BYTES (8u << 20)
#define AUDIT_KEEP_FILES 4 /* NAME, NAME.1 … NAME.3 */
#define AUDIT_KEPT_BYTES (4u << 20) /* maximum size of NAME.kept */
#define AUDIT_LINE_MAX (256u << 10) /* a longer line is not a record */
#define AUDIT_TEXT_MAX 512 /* texts in a network record are truncated to this length in JSON */
#define AUDIT_TIME_MAX 32 /* "2026-01-02T03:04:05.123456Z" including the NUL */

/* A network record. Pointers are borrowed for the duration of the call; NULL and 0 fields are omitted. */
struct audit_net {
	const char *sandbox;
	const char *event; /* "dns", "flow", "publish", "packet", "policy", "loss", "evict", "start", "end" */
	const char *verdict; /* "allow", "deny" or "error" */
	enum net_reason reason;
	const char *why; /* in place of the reason's own words, with NET_REASON_OTHER */
	const char *rule; /* with its source: "codex: api.openai.com:443", "builtin: metadata", "default" */
	const char *policy; /* the policy in force */
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
	bool has_bytes; /* write bytes_out, bytes_in and duration_ms even if 0 */
	uint64_t bytes_out, bytes_in, duration_ms;
	uint32_t latency_us; /* until a query was answered, or until the server of a flow was connected */
	uint64_t count; /* default 1 */
	uint64_t suppressed; /* number of similar records that were not written individually */
	const char *detail;
};

/* The words of the reason. */
const char *audit_net_reason(const struct audit_net *rec);

#define AUDIT_GAP "\"event\":\"log_gap\"," /* an event: a log was shorter than its anchor when a writer continued it */

/* ---- writer ---- */

struct audit_writer {
	int fd; /* owned; -1: write nothing and count everything as lost */
	uint64_t seq;
	char prev[SHA256_HEX];
	uint64_t size;
	uint64_t lost; /* records that could not be written since the last successful one */
	int lost_errno; /* the error of the most recent one */
	uint64_t torn; /* bytes of broken lines that could not be removed and that no record attests yet */
	uint64_t torn_open; /* how many of them are at the end of the file, without a newline */
	uint64_t lost_total;
	uint64_t written;
	uint64_t reserved; /* space is reserved up to this file size, however full the file system gets */
	bool unreservable; /* the file system does not support reservations */
	bool tight; /* the last reservation failed */
	uint64_t retry_ms; /* when to try again */
	struct strbuf line;
	size_t members_at, members_len; /* position of the members of the last record, without its numbers */
	struct audit_mac mac;
};

/* Continue after SEQ and PREV (NULL starts a chain); takes ownership of FD. */
void audit_writer_init(struct audit_writer *w, int fd, uint64_t seq, const char *prev, uint64_t size);
void audit_writer_done(struct audit_writer *w);

/*
 * Never fails: a line that could not be written is counted, and a "loss" record reports it once writing works again.
 * One write(2) and no other system call but clock_gettime (and ftruncate after a failure); opens nothing.
 */
void audit_write_net(struct audit_writer *w, const struct audit_net *rec);

/* Write that a record with MEMBERS was repeated COUNT times. */
void audit_write_again(struct audit_writer *w, const char *sandbox, const char *members, size_t len, uint64_t count);

/* Write a copy of record OF to NAME.kept. */
void audit_write_kept(struct audit_writer *w, const struct audit_net *rec, uint64_t of);

/*
 * Space for records. A flow is recorded when it ends, so it may start only if its record is certain to find space: the
 * writer reserves space in the file system that no file of the sandbox can take. Call `ready` before each new flow, with
 * the number of flows whose records are still to come; it also fails while a record has just been lost. `spare` says whether
 * a record that belongs to none of them may be written.
 */
bool audit_writer_ready(struct audit_writer *w, const char *sandbox, uint32_t pending);
bool audit_writer_spare(const struct audit_writer *w, uint32_t pending);
void audit_writer_lose(struct audit_writer *w, int code);

/* Release reserved space that was not needed. */
void audit_writer_trim(struct audit_writer *w);

/* True if the file has grown past AUDIT_ROTATE_BYTES; the owner then gets a new descriptor and swaps it in. */
bool audit_writer_full(const struct audit_writer *w);
void audit_writer_swap(struct audit_writer *w, int fd);

/* The records that rotation deleted, and the copies in NAME.kept. */
struct audit_gone {
	uint64_t from, to; /* numbers of the deleted records; 0: none */
	uint64_t kept; /* number of records in NAME.kept */
	const char *kept_hash; /* hash of the last of them; borrowed */
};
/* Write the first record of a file after a rotation. */
void audit_write_rotate(struct audit_writer *w, const char *sandbox, const struct audit_gone *gone);

/* Print microseconds since 1970 as RFC 3339 in UTC. Unlike gmtime, needs no time zone file. */
const char *audit_time_print(uint64_t wall_us, char buf[static AUDIT_TIME_MAX]);

/* Parse any RFC 3339 time; -EINVAL if it is invalid. */
int audit_time_parse(const char *text, uint64_t *ret_wall_us);

/* Parse a point in time: a duration before NOW_US ("10m") or an RFC 3339 time; microseconds since 1970. */
int audit_parse_since(const char *text, uint64_t now_us, uint64_t *ret_us, struct ak_err *err);

/* ---- files (for processes that have file system access) ---- */

/* Open PATH for append (0600, created if missing), find the end of its chain, remove a torn last line. Reads only the tail. */
int audit_open(const char *path, struct audit_writer *w, struct ak_err *err);

/*
 * Rename PATH → PATH.first or PATH.1 → … and create a new PATH with reserved space; returns its descriptor. Fails without any change
 * if there is no space.
 */
int audit_rotate(const char *path, struct ak_err *err);

/* The numbers of the records that rotation has deleted from PATH so far. */
void audit_find_gone(const char *path, uint64_t *ret_from, uint64_t *ret_to);

/* The number and hash of the last record of the log at PATH; 0 and "" if there is none. */
void audit_stand(const char *path, uint64_t *ret_seq, char ret_hash[static SHA256_HEX]);

/* Open PATH's NAME.kept, created if missing; the writer owns the descriptor. `tight` is set if its full size could not be reserved. */
int audit_open_kept(const char *path, struct audit_writer *w, struct ak_err *err);

/*
 * Append to the shared events log at PATH under a lock; rotates if needed. FIELDS are the record's own JSON members
 * (`"event":"sandbox_start","sandbox":"x"`), already escaped.
 */
int audit_event(const char *path, const char *fields, struct ak_err *err);

/* ---- reading ---- */

/* Summary of a verified chain. */
struct audit_chain {
	uint64_t count; /* records that still exist */
	uint64_t first_seq, last_seq; /* 0 if there are none */
	uint64_t tears; /* attested broken lines */
	uint64_t macs; /* records with a MAC */
	uint64_t gone; /* records deleted by rotation */
	char last_hash[SHA256_HEX]; /* "" if there are none */
};

/*
 * Verify PATH and its rotated predecessors, oldest first. Returns 0 if they are intact, or -EBADMSG with a reason that names file,
 * line and seq.
 */
int audit_verify_chain(const char *path, struct audit_chain *ret, struct ak_err *err);

/* The same, with additional evidence about the log from other sources. */
#define AUDIT_POINTS 3
struct audit_mark {
	uint64_t seq;
	char hash[SHA256_HEX];
};
struct audit_proof {
	const struct audit_key *key; /* borrowed; NULL: do not check MACs */
	const char *kind, *name; /* of the log, to derive its key */
	struct {
		uint64_t seq; /* 0: none */
		const char *hash;
		const char *where; /* completes "but … with seq N": "the run ended", "it was anchored" */
	} points[AUDIT_POINTS]; /* records that must exist */
	const struct audit_mark
		*marks; /* borrowed; records known from the events log, lowest first; some may have been deleted by rotation */
	size_t n_marks;
	uint64_t keyless_until; /* the last record that may lack a MAC: it is older than the key */
};
int audit_verify_log(const char *path, const struct audit_proof *proof, struct audit_chain *ret, struct ak_err *err);

/* The chain fields of one line (without its newline), checked against its own hash. */
struct audit_link {
	uint64_t seq;
	uint64_t of; /* of a copy: the original number */
	uint64_t torn; /* of a "loss" record */
	char prev[SHA256_HEX], hash[SHA256_HEX];
	uint8_t digest[SHA256_SIZE]; /* the same as HASH */
	char mac[AUDIT_MAC_HEX]; /* "" if there is none */
};
bool audit_link_parse(const char *line, size_t len, struct audit_link *ret);

/*
 * Reads the lines of PATH and its rotated predecessors, oldest first; after NAME.first come the records that exist only in
 * NAME.kept. Follows rotation while reading: it finds the file after the current one by its inode, so no line is read twice,
 * and none is skipped as long as its file exists.
 */
struct audit_reader {
	char path[4096];
	int fd; /* owned */
	dev_t dev;
	ino_t ino;
	unsigned number; /* which file this is: see log/audit_line.h */
	bool plain; /* skip NAME.kept */
	uint64_t kept_until; /* in NAME.kept: records from this number on are also in the other files */
	char *buf; /* owned */
	size_t start, len, cap; /* bytes read but not returned yet: LEN bytes at START */
	size_t scanned; /* how many of them are known to contain no newline */
	bool skipping; /* inside a line longer than AUDIT_LINE_MAX */
	uint64_t line; /* number of the last returned line, in this file */
	char name[4096]; /* the file that contains it */
};
int audit_reader_open(struct audit_reader *r, const char *path, struct ak_err *err);
void audit_reader_done(struct audit_reader *r);

/*
 * Returns 1 and a line (NUL replaces its newline; valid until the next call); 0 if there is none now: call again later to
 * follow; -errno. An incomplete line is returned with *RET_WHOLE false once a newer file exists (it can never be completed),
 * or if AT_END; so is the start of an overlong line.
 */
int audit_reader_next(struct audit_reader *r, bool at_end, char **ret_line, size_t *ret_len, bool *ret_whole);

/*
 * Pass all available lines to FN until it returns a negative errno. A reader without a file (fd -1) opens PATH first; a
 * missing file is no error.
 */
int audit_reader_drain(struct audit_reader *r, const char *path, bool at_end,
	int (*fn)(void *ctx, const char *line, size_t len, bool whole), void *ctx, struct ak_err *err);

#endif
