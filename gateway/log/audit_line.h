/* Inside audit: the parts of a line that the writer, the files and the verifier share. */
#ifndef AK_AUDIT_LINE_H
#define AK_AUDIT_LINE_H

#include "gateway/log/audit.h"

#define AUDIT_NO_PREV "0000000000000000000000000000000000000000000000000000000000000000"

/* The link of the first record in FD; false when there is none. */
bool audit_first_link(int fd, struct audit_link *ret);

/* A reader of the chain alone, without NAME.kept. */
int audit_reader_open_plain(struct audit_reader *r, const char *path, struct ak_err *err);

/* A number that stands behind MARK (`,"seq":`) in a line; 0 when it does not. What a sandbox sent cannot look like it: its quotes are escaped. */
uint64_t audit_line_number(const char *line, size_t len, const char *mark);

/* A record is begun, filled with members that each start with a comma, and ended: hashed, written, counted. */
void audit_line_begin(struct audit_writer *w);
int audit_line_end(struct audit_writer *w);

/* Say what was lost, and attest a tear; 0 when there is nothing to say. */
int audit_write_loss(struct audit_writer *w, const char *sandbox);

void audit_line_digest(const char *line, size_t len, uint8_t ret[static SHA256_SIZE]);

/* Numbers of files, the older the higher. */
enum { AUDIT_NUMBER_KEPT = AUDIT_KEEP_FILES, AUDIT_NUMBER_FIRST, AUDIT_NUMBERS };

/* PATH for 0, PATH.N for others, PATH.kept, PATH.first; -ENAMETOOLONG. */
int audit_file_name(const char *path, unsigned n, char *buf, size_t size);

/* Room that a log may need before it can ask for more: a sandbox may be waiting to fill what rotation has freed. Fails when there is none. */
int audit_set_room(int fd, uint32_t bytes);

/*
 * Copies of events that must outlive rotation, in the NAME.kept of the events log at PATH, whose lock the caller holds. Nothing is copied as long as the log was never rotated.
 * Each origin has a share of its own, so that none can fill the place of another.
 */
int audit_keep_event(const char *path, const struct audit_key *key, uint64_t of, const char *fields);

/* How many records it has, and the hash of the last one. */
uint64_t audit_kept_stand(const char *path, char ret_hash[static SHA256_HEX]);

#endif
