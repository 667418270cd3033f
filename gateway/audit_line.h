/* Inside audit: the parts of a line that the writer, the files and the verifier share. */
#ifndef AK_AUDIT_LINE_H
#define AK_AUDIT_LINE_H

#include "gateway/audit.h"

#define AUDIT_NO_PREV "0000000000000000000000000000000000000000000000000000000000000000"

/* A record is begun, filled with members that each start with a comma, and ended: hashed, written, counted. */
void audit_line_begin(struct audit_writer *w);
int audit_line_end(struct audit_writer *w);

/* Say what was lost, and attest a tear; 0 when there is nothing to say. */
int audit_write_loss(struct audit_writer *w, const char *sandbox);

void audit_line_hash(const char *line, size_t len, char ret[static SHA256_HEX]);

/* PATH for 0, PATH.N for others; -ENAMETOOLONG. */
int audit_file_name(const char *path, unsigned n, char *buf, size_t size);

#endif
