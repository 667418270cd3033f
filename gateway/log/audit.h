/*
 * Audit: append-only JSON lines, each chained by hash to the one before.
 *
 * Two kinds of files share the format. A sandbox's network log has one writer, the gateway process, which holds it open for
 * append and cannot open anything else; rotation is done for it by its supervisor, who hands a new descriptor in. The
 * events log (life cycle, exec, file, policy) is shared by all commands of a user under a lock.
 *
 * A record is one line: {"v":1,"time":…,"seq":N,…,"prev":"<hash>","hash":"<hash>"}. `hash` is SHA-256 over the line's
 * bytes up to the comma before "hash", so that any JSON tool can read a record and one can verify it without one. `seq` starts at 1 and
 * has no gaps; `prev` of the first record is 64 zeros.
 *
 * A write that fails half-way is taken back (ftruncate to the last good size). Where even that is refused, the next record that
 * can be written starts on a new line and is a "loss" record whose "torn" is the exact length of the broken line (or lines) before
 * it: only such an attested tear passes verification.
 *
 * Files of a log: NAME, its predecessors NAME.1 … NAME.3, which are rotated away, and NAME.first, the very first of them, which never is. Each file that
 * rotation begins starts with a "rotate" record that says which records are gone. Before they go, NAME.kept has a copy of every first denial of
 * its kind since: a chain of its own whose records say in "of" which number they had.
 *
 * With a key (log/audit_mac.h) each record ends with a MAC of its hash.
 */
#ifndef AK_AUDIT_H
#define AK_AUDIT_H

#include "gateway/base/addr.h"
#include "gateway/base/err.h"
#include "gateway/base/sha256.h"
#include "gateway/base/strbuf.h"
#include "gateway/log/audit_mac.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define AUDIT_VERSION 1
#define AUDIT_ROTATE_BYTES (8u << 20)
#define AUDIT_KEEP_FILES 4 /* NAME, NAME.1 … NAME.3 */
#define AUDIT_KEPT_BYTES (4u << 20) /* NAME.kept does not grow past this */
#define AUDIT_LINE_MAX (256u << 10) /* a longer line is not a record */
#define AUDIT_TEXT_MAX 512 /* a text in a network record that is longer than this in JSON is cut */
#define AUDIT_TIME_MAX 32 /* "2026-01-02T03:04:05.123456Z" and its NUL */

/* A network record. Pointers are borrowed during the call; NULL and 0 fields are left out of the line. */
struct audit_net {
	const char *sandbox;
	const char *event; /* "dns", "flow", "packet", "policy", "loss", "evict", "start", "end" */
	const char *verdict; /* "allow", "deny" or "error" */
	const char *reason;
	const char *rule; /* with where it came from: "codex: api.openai.com:443", "builtin: metadata", "default" */
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
	bool has_bytes; /* write bytes_out, bytes_in and duration_ms even when 0 */
	uint64_t bytes_out, bytes_in, duration_ms;
	uint32_t latency_us; /* until a question was answered, or the far side of a flow was connected */
	uint64_t count; /* default 1 */
	uint64_t suppressed; /* like records that were not written one by one */
	const char *detail;
};

#define AUDIT_GAP "\"event\":\"log_gap\"," /* an event: a log was shorter than its anchor when someone went on with it */

/* ---- writer ---- */

struct audit_writer {
	int fd; /* owned; -1: nothing is written, everything is counted as lost */
	uint64_t seq;
	char prev[SHA256_HEX];
	uint64_t size;
	uint64_t lost; /* records that could not be written since the last that could */
	int lost_errno; /* why the newest of them could not */
	uint64_t torn; /* bytes of broken lines that could not be taken back and no record attests yet */
	uint64_t torn_open; /* how many of them are at the very end, without a newline */
	uint64_t lost_total;
	uint64_t written;
	uint64_t reserved; /* the file has room up to this size, whoever else fills the file system */
	bool unreservable; /* the file system makes no such promise */
	bool tight; /* it has refused to make one */
	uint64_t retry_ms; /* when it is asked again */
	struct strbuf line;
	size_t members_at, members_len; /* of the record written last: what it says, without its numbers */
	struct audit_mac mac;
};

/* Continue after SEQ and PREV (NULL starts a chain); takes FD over. */
void audit_writer_init(struct audit_writer *w, int fd, uint64_t seq, const char *prev, uint64_t size);
void audit_writer_done(struct audit_writer *w);

/*
 * Never fails for the caller: a line that could not be written is counted, and a "loss" record says so once writing works.
 * One write(2) and no other system call but clock_gettime (and ftruncate after a failure); opens nothing.
 */
void audit_write_net(struct audit_writer *w, const struct audit_net *rec);

/* What a record said, MEMBERS, COUNT times more. */
void audit_write_again(struct audit_writer *w, const char *sandbox, const char *members, size_t len, uint64_t count);

/* A copy of record OF for NAME.kept. */
void audit_write_kept(struct audit_writer *w, const struct audit_net *rec, uint64_t of);

/*
 * Room for records. What a sandbox may do is recorded when it ends, so it is begun only when its record is sure to find room: the file
 * system is asked to set some aside, which no file of the sandbox can take. READY is asked before each new flow, with the number of flows whose
 * records are still to come; it also fails while a record has just been lost. SPARE tells whether a record that belongs to none of them may be written.
 */
bool audit_writer_ready(struct audit_writer *w, const char *sandbox, uint32_t pending);
bool audit_writer_spare(const struct audit_writer *w, uint32_t pending);
void audit_writer_lose(struct audit_writer *w, int code);

/* Give back what is set aside and was not needed. */
void audit_writer_trim(struct audit_writer *w);

/* True when the file has grown past AUDIT_ROTATE_BYTES; the owner then gets a new descriptor and swaps it in. */
bool audit_writer_full(const struct audit_writer *w);
void audit_writer_swap(struct audit_writer *w, int fd);

/* What rotation took away, and what NAME.kept has of it. */
struct audit_gone {
	uint64_t from, to; /* numbers of records; 0: none is gone */
	uint64_t kept; /* records of NAME.kept */
	const char *kept_hash; /* of the last of them; borrowed */
};
/* The first record of a file that rotation began. */
void audit_write_rotate(struct audit_writer *w, const char *sandbox, const struct audit_gone *gone);

/* Microseconds since 1970 as RFC 3339 in UTC. Needs no time zone file, unlike gmtime. */
const char *audit_time_print(uint64_t wall_us, char buf[static AUDIT_TIME_MAX]);

/* Any RFC 3339 time; -EINVAL when it is none. */
int audit_time_parse(const char *text, uint64_t *ret_wall_us);

/* A point in time: a duration before NOW_US ("10m") or an RFC 3339 time; microseconds since 1970. */
int audit_parse_since(const char *text, uint64_t now_us, uint64_t *ret_us, struct ak_err *err);

/* ---- files (processes that have a file system) ---- */

/* Open PATH for append (0600, made if missing), find the end of its chain, cut off a torn last line. Reads the tail only. */
int audit_open(const char *path, struct audit_writer *w, struct ak_err *err);

/* PATH → PATH.first or PATH.1 → … and a fresh PATH with some room set aside; the new descriptor. Fails, and changes nothing, when there is no room. */
int audit_rotate(const char *path, struct ak_err *err);

/* The records that rotation has taken from PATH so far. */
void audit_find_gone(const char *path, uint64_t *ret_from, uint64_t *ret_to);

/* The number and the hash of the last record of the log at PATH; 0 and "" when there is none. */
void audit_stand(const char *path, uint64_t *ret_seq, char ret_hash[static SHA256_HEX]);

/* PATH's NAME.kept, made when missing; the descriptor is the writer's. It is `tight` when no room could be set aside for all that it may come to hold. */
int audit_open_kept(const char *path, struct audit_writer *w, struct ak_err *err);

/* Append to the shared events log at PATH under a lock, rotating when needed. FIELDS is the record's own part as JSON members
 * (`"event":"sandbox_start","sandbox":"x"`), already escaped. */
int audit_event(const char *path, const char *fields, struct ak_err *err);

/* ---- reading ---- */

/* What a whole chain is. */
struct audit_chain {
	uint64_t count; /* records that are still there */
	uint64_t first_seq, last_seq; /* 0 when there are none */
	uint64_t tears; /* attested ones */
	uint64_t macs; /* records that have one */
	uint64_t gone; /* records that were rotated away */
	char last_hash[SHA256_HEX]; /* "" when there are none */
};

/* Verify PATH and its rotated predecessors, oldest first. 0 and the count when whole; -EBADMSG and a reason that names file, line and seq. */
int audit_verify(const char *path, uint64_t *ret_count, struct ak_err *err);
int audit_verify_chain(const char *path, struct audit_chain *ret, struct ak_err *err);

/* The same with what is known of the log from elsewhere. */
#define AUDIT_POINTS 3
struct audit_mark {
	uint64_t seq;
	char hash[SHA256_HEX];
};
struct audit_proof {
	const struct audit_key *key; /* borrowed; NULL: MACs are not looked at */
	const char *kind, *name; /* of the log, for its own key */
	struct {
		uint64_t seq; /* 0: none */
		const char *hash;
		const char *where; /* who knows: "the run ended", "the anchor has it" */
	} points[AUDIT_POINTS]; /* records that must be there */
	const struct audit_mark
		*marks; /* borrowed; the same from the events log, the lowest first, where some may have been rotated away */
	size_t n_marks;
	uint64_t keyless_until; /* the last record that may have no MAC: it is from before there was a key */
};
int audit_verify_log(const char *path, const struct audit_proof *proof, struct audit_chain *ret, struct ak_err *err);

/* The chain's part of one line (without its newline), checked against its own hash. */
struct audit_link {
	uint64_t seq;
	uint64_t of; /* of a copy: the number that its record had */
	uint64_t torn; /* of a "loss" record */
	char prev[SHA256_HEX], hash[SHA256_HEX];
	uint8_t digest[SHA256_SIZE]; /* the same as HASH */
	char mac[AUDIT_MAC_HEX]; /* "" when there is none */
};
bool audit_link_parse(const char *line, size_t len, struct audit_link *ret);

/*
 * The lines of PATH and its rotated predecessors, oldest first; between NAME.first and those, what only NAME.kept still has. Follows rotation while reading: the file after the one just
 * finished is found by its inode, so nothing is read twice and nothing is left out while the predecessor is kept.
 */
struct audit_reader {
	char path[4096];
	int fd; /* owned */
	dev_t dev;
	ino_t ino;
	unsigned number; /* which of the files it is: see log/audit_line.h */
	bool plain; /* leave NAME.kept out */
	uint64_t kept_until; /* in NAME.kept: what is from here on is in the other files, too */
	char *buf; /* owned */
	size_t start, len, cap; /* what was read and not handed out: LEN bytes at START */
	size_t scanned; /* how much of that holds no newline */
	bool skipping; /* inside a line longer than AUDIT_LINE_MAX */
	uint64_t line; /* number of the line handed out last, in this file */
	char name[4096]; /* the file it is in */
};
int audit_reader_open(struct audit_reader *r, const char *path, struct ak_err *err);
void audit_reader_done(struct audit_reader *r);

/*
 * 1 and a line (NUL in place of its newline, valid until the next call); 0 when there is none for now: call again later to
 * follow; -errno. An unfinished line is handed out with *RET_WHOLE false once a newer file exists (it can never be finished), or when
 * AT_END asks for it; so is the head of an overlong one.
 */
int audit_reader_next(struct audit_reader *r, bool at_end, char **ret_line, size_t *ret_len, bool *ret_whole);

/*
 * All lines that are there now, through FN until it returns a negative errno. A reader without a file (fd -1) opens PATH first; that it is not there
 * yet is no failure.
 */
int audit_reader_drain(struct audit_reader *r, const char *path, bool at_end,
	int (*fn)(void *ctx, const char *line, size_t len, bool whole), void *ctx, struct ak_err *err);

#endif
