/*
 * Keys of the audit logs. Each user has one master key, STATE/audit.key, created on first use and readable only by that user;
 * each log has its own key, derived from the master key and the log's name.
 *
 * The key of a network log is replaced by a one-way function every AUDIT_EPOCH records, and the gateway process only gets the
 * current one: an attacker who takes over that process can neither forge nor alter earlier records. Whoever can read the
 * master key can forge everything.
 */
#ifndef AK_AUDIT_MAC_H
#define AK_AUDIT_MAC_H

#include "gateway/base/err.h"
#include "gateway/base/sha256.h"

#include <stdbool.h>
#include <stdint.h>

#define AUDIT_EPOCH 1024
#define AUDIT_MAC_HEX 33 /* 128 bits (RFC 2104, section 5) and the NUL */
#define AUDIT_KEY_FILE "audit.key"
#define AUDIT_EVENTS "events.jsonl" /* name of the events log for keys and anchors; not a valid sandbox name */

struct audit_key {
	uint8_t master[SHA256_SIZE];
	uint64_t since_us; /* when it was created */
	uint64_t before; /* the last event that existed then and has no MAC; 0: none */
	char before_hash[SHA256_HEX];
};

/* The current key of one log. All zero: no key, and records have no MAC. */
struct audit_mac {
	bool on;
	bool fixed; /* every writer of the log has the master key: the key is never replaced */
	uint64_t epoch;
	uint8_t key[SHA256_SIZE];
	struct sha256 inner, outer; /* HMAC state after the pads */
};

/* Load the key at PATH; -ENOENT if there is none, -EBADMSG if the file is not an audit key. */
int audit_key_load(const char *path, struct audit_key *ret, struct ak_err *err);

/* The key of the state folder DIR, created if missing. */
int audit_key_of(const char *dir, struct audit_key *ret, struct ak_err *err);

/* Derive the key of a log for the record after SEQ. KIND is "network", "kept" (both with the sandbox's NAME), "anchor" or AUDIT_EVENTS. */
void audit_mac_init(struct audit_mac *m, const struct audit_key *key, const char *kind, const char *name, uint64_t seq);

/* Use a key that another process derived, at EPOCH. */
void audit_mac_take(struct audit_mac *m, const uint8_t key[static SHA256_SIZE], uint64_t epoch);

/* The MAC of record SEQ, whose hash is HASH. SEQ must not be in an earlier epoch than before. */
void audit_mac_print(struct audit_mac *m, uint64_t seq, const uint8_t hash[static SHA256_SIZE], char ret[static AUDIT_MAC_HEX]);

#endif
