/* Joins and aggregates the records of a network log: see log/netlog.h. */
#include "gateway/log/netlog.h"

#include "gateway/base/cleanup.h"
#include "gateway/log/audit.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- one record ---- */

/* Our records are always printable ASCII, or UTF-8 in events; anything else was not written by us. */
static bool plain(const char *line, size_t len, bool utf8)
{
	const unsigned char *p = (const unsigned char *)line;

	for (size_t i = 0, n; i < len; i += n) {
		n = p[i] >= 0x20 && p[i] <= 0x7e ? 1 : utf8 && p[i] >= 0x80 ? ak_utf8_length(p + i, len - i) : 0;
		if (n == 0)
			return false;
	}
	return true;
}

/* cJSON ends a string at \u0000, which would hide the rest: replace it with the symbol for NUL (U+2400). */
static char *copy_without_nul(const char *line, size_t len)
{
	char *copy = malloc(len + 1);

	if (!copy)
		return NULL;
	memcpy(copy, line, len);
	copy[len] = '\0';
	for (char *p = copy; (p = strstr(p, "\\u0000")); p += 6)
		memcpy(p, "\\u2400", 6);
	return copy;
}

static int parse(const char *line, size_t len, bool utf8, struct netlog_rec *ret)
{
	_cleanup_free_ char *copy = NULL;
	_cleanup_json_ cJSON *json = NULL;
	struct netlog_rec rec = { 0 };

	if (!plain(line, len, utf8))
		return -EBADMSG;
	copy = copy_without_nul(line, len);
	if (!copy)
		return -ENOMEM;
	json = cJSON_ParseWithLengthOpts(copy, len + 1, NULL, true);
	if (!cJSON_IsObject(json) || json_number(json, "v", 0) != AUDIT_VERSION)
		return -EBADMSG;
	if (audit_time_parse(json_text(json, "time", ""), &rec.time_us) < 0)
		return -EBADMSG;
	rec.seq = json_number(json, "seq", 0);
	rec.event = json_text(json, "event", "");
	rec.verdict = json_text(json, "verdict", "");
	rec.reason = json_text(json, "reason", "");
	rec.rule = json_text(json, "rule", "");
	rec.proto = json_text(json, "proto", "");
	rec.name = json_text(json, "name", "");
	rec.qtype = json_text(json, "qtype", "");
	rec.sni = json_text(json, "sni", "");
	rec.dst = json_text(json, "dst", "");
	rec.detail = json_text(json, "detail", "");
	rec.port = (uint16_t)json_number(json, "port", 0);
	rec.has_bytes = cJSON_GetObjectItemCaseSensitive(json, "bytes_out") != NULL;
	rec.bytes_out = json_number(json, "bytes_out", 0);
	rec.bytes_in = json_number(json, "bytes_in", 0);
	rec.count = json_number(json, "count", 0) + json_number(json, "suppressed", 0);
	rec.json = TAKE(json);
	*ret = rec;
	return 0;
}

int netlog_rec_parse(const char *line, size_t len, struct netlog_rec *ret)
{
	return parse(line, len, false, ret);
}

int netlog_event_parse(const char *line, size_t len, struct netlog_rec *ret)
{
	return parse(line, len, true, ret);
}

void netlog_rec_done(struct netlog_rec *rec)
{
	cJSON_Delete(rec->json);
	*rec = (struct netlog_rec){ 0 };
}

bool netlog_wanted(enum netlog_only only, const char *verdict)
{
	switch (only) {
	case NETLOG_DENIED:
		return !strcmp(verdict, "deny");
	case NETLOG_ALLOWED:
		return !strcmp(verdict, "allow");
	case NETLOG_ALL:
	case NETLOG_ONLY_NUM:
		break;
	}
	return true;
}

/* ---- a map from text to pointers ---- */

struct entry {
	char *key; /* owned */
	void *value;
};

struct map {
	struct entry *slots; /* owned; a power of two, at most half full */
	size_t cap, used;
};

static size_t hash_text(const char *text)
{
	uint64_t h = 0xcbf29ce484222325u;

	for (; *text; text++)
		h = (h ^ (unsigned char)*text) * 0x100000001b3u;
	return (size_t)(h ^ h >> 32);
}

static struct entry *map_slot(const struct map *m, const char *key)
{
	size_t i = hash_text(key) & (m->cap - 1);

	while (m->slots[i].key && strcmp(m->slots[i].key, key) != 0)
		i = (i + 1) & (m->cap - 1);
	return &m->slots[i];
}

static int map_grow(struct map *m)
{
	struct map bigger = { .cap = m->cap ? m->cap * 2 : 256, .used = m->used };

	bigger.slots = calloc(bigger.cap, sizeof(*bigger.slots));
	if (!bigger.slots)
		return -ENOMEM;
	for (size_t i = 0; i < m->cap; i++) {
		if (m->slots[i].key)
			*map_slot(&bigger, m->slots[i].key) = m->slots[i];
	}
	free(m->slots);
	*m = bigger;
	return 0;
}

/* The value slot of KEY, created with NULL if missing; NULL if out of memory. */
static void **map_at(struct map *m, const char *key)
{
	struct entry *e;

	if (m->used * 2 >= m->cap && map_grow(m) < 0)
		return NULL;
	e = map_slot(m, key);
	if (!e->key) {
		e->key = strdup(key);
		if (!e->key)
			return NULL;
		m->used++;
	}
	return &e->value;
}

static void *map_get(const struct map *m, const char *key)
{
	return m->cap ? map_slot(m, key)->value : NULL;
}

static void map_done(struct map *m)
{
	for (size_t i = 0; i < m->cap; i++)
		free(m->slots[i].key);
	free(m->slots);
}

/* ---- rows ---- */

struct netlog {
	struct netlog_row **rows; /* owned, and what they point to */
	size_t n, cap;
	struct map by_key; /* to rows */
	struct map by_name; /* to the first DNS query of a name */
	struct strbuf key, dest;
};

int netlog_new(struct netlog **ret)
{
	*ret = calloc(1, sizeof(**ret));
	return *ret ? 0 : -ENOMEM;
}

static void row_free(struct netlog_row *row)
{
	if (!row)
		return;
	free(row->verdict);
	free(row->proto);
	free(row->dest);
	free(row->rule);
	free(row->reason);
	free(row->host);
	for (unsigned i = 0; i < row->n_addrs; i++)
		free(row->addrs[i]);
	free(row);
}

void netlog_free(struct netlog *log)
{
	if (!log)
		return;
	for (size_t i = 0; i < log->n; i++)
		row_free(log->rows[i]);
	free(log->rows);
	map_done(&log->by_key);
	map_done(&log->by_name);
	strbuf_done(&log->key);
	strbuf_done(&log->dest);
	free(log);
}

void netlog_freep(struct netlog **log)
{
	netlog_free(*log);
}

static bool is_note(const struct netlog_rec *rec)
{
	return !strcmp(rec->event, "loss") || !strcmp(rec->event, "policy") || !strcmp(rec->event, "rotate");
}

static void put_port(struct strbuf *out, uint16_t port)
{
	if (port)
		strbuf_printf(out, ":%u", port);
}

static const char *const types[NETLOG_TYPES] = { "A", "AAAA", "HTTPS" };

/* The index of a DNS type that shares a row with others; -1 for the rest. */
static int shared_type(const struct netlog_rec *rec)
{
	for (int i = 0; !strcmp(rec->event, "dns") && i < NETLOG_TYPES; i++) {
		if (!strcmp(rec->qtype, types[i]))
			return i;
	}
	return -1;
}

/* "api.openai.com:443", "203.0.113.9:443 sni=evil.example", "[2a00::1]:443", "pastebin.com A". */
static void put_dest(struct strbuf *out, const struct netlog_rec *rec)
{
	if (!strcmp(rec->event, "dns")) {
		strbuf_printf(out, "%s%s%s", rec->name, rec->qtype[0] ? " " : "", rec->qtype);
		return;
	}
	if (is_note(rec)) {
		strbuf_puts(out, rec->detail);
		return;
	}
	if (rec->name[0])
		strbuf_puts(out, rec->name);
	else if (strchr(rec->dst, ':') && rec->port)
		strbuf_printf(out, "[%s]", rec->dst);
	else
		strbuf_puts(out, rec->dst);
	put_port(out, rec->port);
	if (rec->sni[0] && strcmp(rec->sni, rec->name) != 0)
		strbuf_printf(out, " sni=%s", rec->sni);
}

static const char *row_proto(const struct netlog_rec *rec)
{
	return rec->proto[0] ? rec->proto : rec->event;
}

/* Build the key of a row: records with the same key are aggregated. */
static int put_key(struct netlog *log, const struct netlog_rec *rec)
{
	strbuf_reset(&log->dest);
	put_dest(&log->dest, rec);
	strbuf_puts(&log->dest, "");
	strbuf_reset(&log->key);
	strbuf_printf(&log->key, "%s\x1f%s\x1f%s\x1f%s\x1f%s", rec->verdict, row_proto(rec),
		shared_type(rec) >= 0	 ? rec->name
			: log->dest.data ? log->dest.data
					 : "",
		rec->rule, rec->reason);
	return log->key.failed || log->dest.failed ? -ENOMEM : 0;
}

static struct netlog_row *row_new(const struct netlog *log, const struct netlog_rec *rec)
{
	struct netlog_row *row = calloc(1, sizeof(*row));

	if (!row)
		return NULL;
	row->verdict = strdup(rec->verdict);
	row->proto = strdup(row_proto(rec));
	row->dest = strdup(log->dest.data);
	row->rule = strdup(rec->rule);
	row->reason = strdup(rec->reason);
	row->host = strdup(rec->sni[0] ? rec->sni : rec->name);
	row->port = rec->port;
	row->note = is_note(rec);
	row->dns_allow = !strcmp(rec->event, "dns") && !strcmp(rec->verdict, "allow");
	if (row->verdict && row->proto && row->dest && row->rule && row->reason && row->host)
		return row;
	row_free(row);
	return NULL;
}

static int keep_row(struct netlog *log, struct netlog_row *row)
{
	if (log->n == log->cap) {
		size_t cap = log->cap ? log->cap * 2 : 64;
		struct netlog_row **grown = realloc(log->rows, cap * sizeof(*grown));

		if (!grown)
			return -ENOMEM;
		log->rows = grown;
		log->cap = cap;
	}
	log->rows[log->n++] = row;
	return 0;
}

/* Link a DNS query to the others of the same name. */
static int index_name(struct netlog *log, struct netlog_row *row, const char *name)
{
	void **first = map_at(&log->by_name, name);

	if (!first)
		return -ENOMEM;
	row->same_name = *first;
	*first = row;
	return 0;
}

static int find_row(struct netlog *log, const struct netlog_rec *rec, struct netlog_row **ret)
{
	int rc = put_key(log, rec);
	struct netlog_row *row;
	void **at;

	if (rc < 0)
		return rc;
	at = map_at(&log->by_key, log->key.data);
	if (!at)
		return -ENOMEM;
	if (*at) {
		*ret = *at;
		return 0;
	}
	row = row_new(log, rec);
	if (!row)
		return -ENOMEM;
	rc = keep_row(log, row);
	if (rc < 0) {
		row_free(row);
		return rc;
	}
	*at = row;
	*ret = row;
	return row->dns_allow ? index_name(log, row, rec->name) : 0;
}

static int add_addr(struct netlog_row *row, const char *addr)
{
	for (unsigned i = 0; i < row->n_addrs; i++) {
		if (!strcmp(row->addrs[i], addr))
			return 0;
	}
	if (row->n_addrs == NETLOG_ADDRS) {
		row->more_addrs = true;
		return 0;
	}
	row->addrs[row->n_addrs] = strdup(addr);
	if (!row->addrs[row->n_addrs])
		return -ENOMEM;
	row->n_addrs++;
	return 0;
}

static void restart_row(struct netlog_row *row, const struct netlog_rec *rec)
{
	row->live = true;
	row->time_us = rec->time_us;
	row->seq = rec->seq;
	row->count = row->bytes_in = row->bytes_out = 0;
	memset(row->by_type, 0, sizeof(row->by_type));
	row->has_bytes = false;
}

/* "pastebin.com A, AAAA" */
static int name_types(struct netlog_row *row)
{
	_cleanup_strbuf_ struct strbuf dest = { 0 };
	const char *gap = " ";
	char *text;

	strbuf_puts(&dest, row->host);
	for (int i = 0; i < NETLOG_TYPES; i++) {
		if (!row->by_type[i])
			continue;
		strbuf_printf(&dest, "%s%s", gap, types[i]);
		gap = ", ";
	}
	text = strbuf_take(&dest);
	if (!text)
		return -ENOMEM;
	free(row->dest);
	row->dest = text;
	return 0;
}

static int count_type(struct netlog_row *row, const struct netlog_rec *rec, int type)
{
	uint64_t before = row->by_type[type];

	row->by_type[type] += rec->count;
	if (row->by_type[type] > row->count)
		row->count = row->by_type[type];
	return before ? 0 : name_types(row);
}

int netlog_add(struct netlog *log, const struct netlog_rec *rec)
{
	bool flow = !strcmp(rec->event, "flow");
	struct netlog_row *row = NULL;
	int rc;

	if (!strcmp(rec->event, "start") || !strcmp(rec->event, "end"))
		return 0;
	/* Skip "rotate" records that declare no deleted records. */
	if (!strcmp(rec->event, "rotate") && !rec->detail[0])
		return 0;
	rc = find_row(log, rec, &row);
	if (rc < 0)
		return rc;
	/* Sums of cached answers are written later than the flow that used them. */
	if (row->folded && !strcmp(rec->detail, "from the cache"))
		return 0;
	row->folded = false;
	if (!row->live)
		restart_row(row, rec);
	if (shared_type(rec) >= 0)
		return count_type(row, rec, shared_type(rec));
	row->count = strcmp(rec->event, "rotate") ? row->count + rec->count : rec->count;
	row->bytes_out += rec->bytes_out;
	row->bytes_in += rec->bytes_in;
	row->has_bytes |= rec->has_bytes;
	if (!flow || !rec->name[0])
		return 0;
	for (struct netlog_row *q = map_get(&log->by_name, rec->name); q; q = q->same_name) {
		q->folded = true;
		q->live = false;
	}
	return rec->dst[0] ? add_addr(row, rec->dst) : 0;
}

static int by_time(const void *a, const void *b)
{
	const struct netlog_row *x = *(struct netlog_row *const *)a, *y = *(struct netlog_row *const *)b;

	if (x->time_us != y->time_us)
		return x->time_us < y->time_us ? -1 : 1;
	return x->seq < y->seq ? -1 : x->seq > y->seq;
}

int netlog_rows(
	struct netlog *log, enum netlog_only only, uint64_t now_us, uint64_t hold_us, struct netlog_row ***ret, size_t *ret_n)
{
	struct netlog_row **rows = calloc(log->n + 1, sizeof(*rows));
	size_t n = 0;

	if (!rows)
		return -ENOMEM;
	for (size_t i = 0; i < log->n; i++) {
		struct netlog_row *row = log->rows[i];
		bool held = hold_us && row->dns_allow && row->time_us + hold_us > now_us;

		if (row->live && !held && netlog_wanted(only, row->verdict))
			rows[n++] = row;
	}
	qsort(rows, n, sizeof(*rows), by_time);
	*ret = rows;
	*ret_n = n;
	return 0;
}
