/*
 * Keys of the audit logs. One master key a user, STATE/audit.key, made on first use and readable by that user alone; each log has
 * a key of its own that is made from it and from the log's name.
 *
 * A network log's key moves on by a one-way step every AUDIT_EPOCH records, and the gateway process is handed only where it stands: one who takes that process
 * over can neither make nor alter records of before. Whoever can read the master key can forge everything.
 */
#ifndef AK_AUDIT_MAC_H
#define AK_AUDIT_MAC_H

#include "gateway/base/err.h"
#include "gateway/base/sha256.h"

#include <stdbool.h>
#include <stdint.h>

#define AUDIT_EPOCH 1024
#define AUDIT_MAC_HEX 33 /* 128 bits (RFC 2104, section 5) and a NUL */
#define AUDIT_KEY_FILE "audit.key"
#define AUDIT_EVENTS "events.jsonl" /* the events log's name among keys and anchors; no sandbox can have it */

struct audit_key {
	uint8_t master[SHA256_SIZE];
	uint64_t since_us; /* when it was made */
	uint64_t before; /* the last event that was there then, and has no MAC; 0: none */
	char before_hash[SHA256_HEX];
};

/* The key of one log where it stands. All zero: none, and records carry no MAC. */
struct audit_mac {
	bool on;
	bool fixed; /* a log whose every writer holds the master key: it does not move */
	uint64_t epoch;
	uint8_t key[SHA256_SIZE];
	struct sha256 inner, outer; /* HMAC with the pads taken in */
};

/* PATH's key; -ENOENT when there is none, -EBADMSG when it is none of ours. */
int audit_key_load(const char *path, struct audit_key *ret, struct ak_err *err);

/* The key of the state folder DIR, made when missing. */
int audit_key_of(const char *dir, struct audit_key *ret, struct ak_err *err);

/* The key of a log, for the record after SEQ. KIND is "network", "kept" (both with the sandbox's NAME), "anchor" or AUDIT_EVENTS. */
void audit_mac_init(struct audit_mac *m, const struct audit_key *key, const char *kind, const char *name, uint64_t seq);

/* Take over a key that someone else derived, at EPOCH. */
void audit_mac_take(struct audit_mac *m, const uint8_t key[static SHA256_SIZE], uint64_t epoch);

/* The MAC of record SEQ, whose hash is HASH. SEQ never goes back to an epoch before. */
void audit_mac_print(struct audit_mac *m, uint64_t seq, const uint8_t hash[static SHA256_SIZE], char ret[static AUDIT_MAC_HEX]);

#endif
