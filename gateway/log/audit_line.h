/* Private to the audit log: line handling shared by the writer, the files and the verifier. */
#ifndef AK_AUDIT_LINE_H
#define AK_AUDIT_LINE_H

#include "gateway/log/audit.h"

#define AUDIT_NO_PREV "0000000000000000000000000000000000000000000000000000000000000000"

/* The link of the first record in FD; false if there is none. */
bool audit_first_link(int fd, struct audit_link *ret);

/* Open a reader of the main chain only, without NAME.kept. */
int audit_reader_open_plain(struct audit_reader *r, const char *path, struct ak_err *err);

/* The number after MARK (`,"seq":`) in a line; 0 if absent. Text from a sandbox cannot imitate MARK: its quotes are escaped. */
uint64_t audit_line_number(const char *line, size_t len, const char *mark);

/* Start a record, append members that each start with a comma, then end it: this hashes, writes and counts it. */
void audit_line_begin(struct audit_writer *w);
int audit_line_end(struct audit_writer *w);

/* Record lost records and attest broken lines; 0 if there are none. */
int audit_write_loss(struct audit_writer *w, const char *sandbox);

void audit_line_digest(const char *line, size_t len, uint8_t ret[static SHA256_SIZE]);

/* Numbers of the files; older files have higher numbers. */
enum { AUDIT_NUMBER_KEPT = AUDIT_KEEP_FILES, AUDIT_NUMBER_FIRST, AUDIT_NUMBERS };

/* PATH for 0, PATH.N for others, PATH.kept, PATH.first; -ENAMETOOLONG. */
int audit_file_name(const char *path, unsigned n, char *buf, size_t size);

/* Reserve the space that a log may need before it can reserve more, because a sandbox may fill freed space. Fails if full. */
int audit_set_room(int fd, uint32_t bytes);

/*
 * Copy an event that must survive rotation to the NAME.kept of the events log at PATH, whose lock the caller holds. Does
 * nothing before the first rotation. Each origin has its own share, so that none can use up the space of another.
 */
int audit_keep_event(const char *path, const struct audit_key *key, uint64_t of, const char *fields);

/* The number of records in NAME.kept, and the hash of the last one. */
uint64_t audit_kept_stand(const char *path, char ret_hash[static SHA256_HEX]);

#endif
