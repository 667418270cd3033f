/*
 * Joins and aggregates the records of a sandbox's network log into the rows of `network log`.
 *
 * Similar records (same verdict, protocol, destination, rule and reason) become one row with a count. An allowed DNS query is
 * merged into the flow that followed it under the same name; it has its own row only while no flow has used it.
 *
 * A program that wants a host asks for its A, AAAA and perhaps HTTPS records at once. That is one thing the user did: such queries
 * share a row, which counts the most frequent type.
 */
#ifndef AK_NETLOG_H
#define AK_NETLOG_H

#include "gateway/base/json.h"
#include "gateway/base/strbuf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define NETLOG_TYPES 3 /* DNS types that share a row */
#define NETLOG_ADDRS 4 /* number of addresses listed per destination */

/* One record. Strings are borrowed from JSON, "" if absent. */
struct netlog_rec {
	cJSON *json; /* owned */
	uint64_t time_us, seq;
	const char *event, *verdict, *reason, *rule, *proto, *name, *qtype, *sni, *dst, *detail;
	uint16_t port;
	bool has_bytes;
	uint64_t bytes_out, bytes_in;
	uint64_t count; /* including suppressed ones */
};

/* -EBADMSG if the line is not one of our records, which are always printable ASCII. */
int netlog_rec_parse(const char *line, size_t len, struct netlog_rec *ret);

/* The same for a record of the events log, which contains command lines as UTF-8. */
int netlog_event_parse(const char *line, size_t len, struct netlog_rec *ret);
void netlog_rec_done(struct netlog_rec *rec);

struct netlog_row {
	uint64_t time_us, seq; /* of its first record */
	char *verdict, *proto, *dest, *rule, *reason; /* owned; raw, not safe to print yet */
	char *host; /* owned; the name that was asked for, or "" */
	uint16_t port; /* 0: none, as in a DNS query */
	char *addrs[NETLOG_ADDRS]; /* owned; of a destination with a name */
	unsigned n_addrs;
	bool more_addrs;
	bool has_bytes;
	uint64_t bytes_out, bytes_in, count;
	uint64_t by_type[NETLOG_TYPES]; /* of DNS queries: how often each type of netlog_types was asked */
	bool note; /* lost records, a policy change or a rotation, not a verdict on a destination */
	bool dns_allow; /* an allowed DNS query, which can be merged into a flow */
	bool live; /* neither merged nor printed yet */
	bool folded; /* a query whose name a flow has used: the flow's row includes it */
	struct netlog_row *same_name; /* next DNS query of the same name */
};

enum netlog_only { NETLOG_ALL, NETLOG_DENIED, NETLOG_ALLOWED, NETLOG_ONLY_NUM };
bool netlog_wanted(enum netlog_only only, const char *verdict);

struct netlog;
int netlog_new(struct netlog **ret);
void netlog_free(struct netlog *log);
void netlog_freep(struct netlog **log);
int netlog_add(struct netlog *log, const struct netlog_rec *rec);

/*
 * The live rows, oldest first. With HOLD_US, DNS queries younger than that (at NOW_US) are omitted, because their flow may still
 * follow. The caller frees the array; the rows belong to the log.
 */
int netlog_rows(
	struct netlog *log, enum netlog_only only, uint64_t now_us, uint64_t hold_us, struct netlog_row ***ret, size_t *ret_n);

/* ---- printing ---- */

struct table;

/* Make T the table of rows; add one. The date is shown if one of the N rows of the first print is not from today. */
void netlog_table_init(struct table *t);
void netlog_table_put(struct table *t, const struct netlog_row *row, bool with_date);
bool netlog_needs_date(struct netlog_row *const *rows, size_t n, uint64_t now_us);

int netlog_print_summary(struct netlog_row *const *rows, size_t n, bool json, FILE *out);

/* Append TEXT, escaping everything but printable ASCII as \xNN. */
void netlog_safe(struct strbuf *out, const char *text);

/* "0", "512", "4.1K", "88K", "1.2M" */
const char *netlog_bytes(uint64_t n, char *buf, size_t size);

#endif
