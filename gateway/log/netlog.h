/*
 * What a user sees of the network: records of a sandbox's log, joined and aggregated into the rows of `network log`.
 *
 * Like records (same verdict, protocol, destination, rule and reason) become one row with a count. An allowed DNS question is folded
 * into the flow that followed it under the same name; it stands alone only while no flow has used it.
 */
#ifndef AK_NETLOG_H
#define AK_NETLOG_H

#include "gateway/base/json.h"
#include "gateway/base/strbuf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define NETLOG_ADDRS 4 /* how many addresses of one destination are told apart */

/* One record. Strings are borrowed from JSON, "" when absent. */
struct netlog_rec {
	cJSON *json; /* owned */
	uint64_t time_us, seq;
	const char *event, *verdict, *reason, *rule, *proto, *name, *qtype, *sni, *dst, *detail;
	uint16_t port;
	bool has_bytes;
	uint64_t bytes_out, bytes_in;
	uint64_t count; /* with the suppressed ones */
};

/* -EBADMSG when the line is not a record of ours (or not plain ASCII, which ours always are). */
int netlog_rec_parse(const char *line, size_t len, struct netlog_rec *ret);

/* The same for a record of the events log, where command lines stand as UTF-8. */
int netlog_event_parse(const char *line, size_t len, struct netlog_rec *ret);
void netlog_rec_done(struct netlog_rec *rec);

struct netlog_row {
	uint64_t time_us, seq; /* of its first record */
	char *verdict, *proto, *dest, *rule, *reason; /* owned; raw, not yet safe to print */
	char *addrs[NETLOG_ADDRS]; /* owned; of a destination with a name */
	unsigned n_addrs;
	bool more_addrs;
	bool has_bytes;
	uint64_t bytes_out, bytes_in, count;
	bool note; /* a loss, or a change of policy: no verdict on a destination */
	bool dns_allow; /* folds into a flow */
	bool live; /* neither folded nor printed already */
	bool folded; /* a question whose name a flow has used: the flow speaks for it */
	struct netlog_row *same_name; /* next DNS question of the same name */
};

enum netlog_only { NETLOG_ALL, NETLOG_DENIED, NETLOG_ALLOWED, NETLOG_ONLY_NUM };
bool netlog_wanted(enum netlog_only only, const char *verdict);

struct netlog;
int netlog_new(struct netlog **ret);
void netlog_free(struct netlog *log);
void netlog_freep(struct netlog **log);
int netlog_add(struct netlog *log, const struct netlog_rec *rec);

/* The live rows, oldest first. With HOLD_US, DNS questions younger than that (at NOW_US) are left out: their flow may come yet.
 * The array is the caller's to free, the rows stay the log's. */
int netlog_rows(
	struct netlog *log, enum netlog_only only, uint64_t now_us, uint64_t hold_us, struct netlog_row ***ret, size_t *ret_n);

/* ---- printing ---- */

struct netlog_layout {
	bool with_date;
	int time, verdict, proto, dest, rule, reason, bytes; /* widths */
};

/* Widths that fit ROWS into WIDTH columns; with FLOOR for rows still to come as well. The date is shown unless all is of today. */
void netlog_layout_fit(
	struct netlog_layout *ret, struct netlog_row *const *rows, size_t n, int width, uint64_t now_us, bool floor);
void netlog_print_header(const struct netlog_layout *l, FILE *out);
void netlog_print_row(const struct netlog_layout *l, const struct netlog_row *row, FILE *out);

int netlog_print_summary(struct netlog_row *const *rows, size_t n, bool json, FILE *out);

/* TEXT with everything but printable ASCII escaped as \xNN. */
void netlog_safe(struct strbuf *out, const char *text);

/* "0", "512", "4.1K", "88K", "1.2M" */
const char *netlog_bytes(uint64_t n, char *buf, size_t size);

/* Columns of the terminal on OUT, or 120. */
int netlog_width(FILE *out);

#endif
