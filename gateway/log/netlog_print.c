/* The table and the summary of `network log`: see log/netlog.h. */
#include "gateway/log/netlog.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <time.h>

#define TOP_MAX 10

/* ---- text that is safe on a terminal ---- */

/* Decode the code point at P and its length; an invalid byte stands for itself. */
static unsigned decode(const unsigned char *p, unsigned *ret_len)
{
	*ret_len = 1;
	if ((p[0] & 0xe0) == 0xc0 && (p[1] & 0xc0) == 0x80) {
		*ret_len = 2;
		return (p[0] & 0x1fu) << 6 | (p[1] & 0x3fu);
	}
	if ((p[0] & 0xf0) == 0xe0 && (p[1] & 0xc0) == 0x80 && (p[2] & 0xc0) == 0x80) {
		*ret_len = 3;
		return (p[0] & 0x0fu) << 12 | (p[1] & 0x3fu) << 6 | (p[2] & 0x3fu);
	}
	return p[0];
}

void netlog_safe(struct strbuf *out, const char *text)
{
	const unsigned char *p = (const unsigned char *)text;
	unsigned len;

	for (; *p; p += len) {
		unsigned c = decode(p, &len);

		if (len == 1 && c >= 0x20 && c < 0x7f)
			strbuf_putc(out, (char)c);
		else if (c == 0x2400) /* the parser's replacement for NUL */
			strbuf_puts(out, "\\x00");
		else if (c < 0x100) /* the writer's encoding of a byte */
			strbuf_printf(out, "\\x%02x", c);
		else
			strbuf_printf(out, "\\u%04x", c);
	}
}

const char *netlog_bytes(uint64_t n, char *buf, size_t size)
{
	static const char units[] = "KMGTPE";
	double v = (double)n;
	int u = -1;

	while (v >= 1000 && units[u + 1]) {
		v /= 1024;
		u++;
	}
	if (u < 0)
		snprintf(buf, size, "%llu", (unsigned long long)n);
	else if (v < 9.95)
		snprintf(buf, size, "%.1f%c", v, units[u]);
	else
		snprintf(buf, size, "%.0f%c", v, units[u]);
	return buf;
}

/* ---- the table ---- */

static void cell_dest(struct strbuf *out, const struct netlog_row *row)
{
	strbuf_reset(out);
	netlog_safe(out, row->dest);
	if (row->n_addrs == 0)
		return;
	strbuf_puts(out, " (");
	netlog_safe(out, row->addrs[0]);
	if (row->n_addrs > 1)
		strbuf_printf(out, " +%u%s", row->n_addrs - 1, row->more_addrs ? "…" : "");
	strbuf_putc(out, ')');
}

static void cell_bytes(struct strbuf *out, const struct netlog_row *row)
{
	char a[32], b[32];

	strbuf_reset(out);
	if (row->has_bytes)
		strbuf_printf(
			out, "%s/%s", netlog_bytes(row->bytes_out, a, sizeof(a)), netlog_bytes(row->bytes_in, b, sizeof(b)));
}

static void cell_safe(struct strbuf *out, const char *text)
{
	strbuf_reset(out);
	netlog_safe(out, text);
}

static bool same_day(uint64_t a_us, uint64_t b_us)
{
	time_t a = (time_t)(a_us / 1000000), b = (time_t)(b_us / 1000000);
	struct tm x = { 0 }, y = { 0 };

	localtime_r(&a, &x);
	localtime_r(&b, &y);
	return x.tm_yday == y.tm_yday && x.tm_year == y.tm_year;
}

bool netlog_needs_date(struct netlog_row *const *rows, size_t n, uint64_t now_us)
{
	for (size_t i = 0; i < n; i++) {
		if (!same_day(rows[i]->time_us, now_us))
			return true;
	}
	return false;
}

void netlog_table_init(struct table *t)
{
	static const struct table_column columns[] = {
		{ "TIME", 0, 0, 0, 0 },
		{ "VERDICT", 0, 0, 0, 0 },
		{ "PROTO", TABLE_CUT, 8, 3, 0 },
		{ "DESTINATION", TABLE_CUT, 20, 0, 35 },
		{ "RULE", TABLE_CUT, 16, 1, 20 },
		{ "REASON", 0, 0, 0, 20 },
		{ "BYTES ↑/↓", 0, 0, 2, 11 },
		{ "COUNT", TABLE_RIGHT, 0, 4, 0 },
	};

	table_init(t, columns, ARRAY_SIZE(columns));
}

static void put_time(struct table *t, uint64_t time_us, bool with_date)
{
	time_t at = (time_t)(time_us / 1000000);
	struct tm tm = { 0 };
	char buf[32];

	localtime_r(&at, &tm);
	strftime(buf, sizeof(buf), with_date ? "%m-%d %H:%M:%S" : "%H:%M:%S", &tm);
	table_put(t, AK_DIM, buf);
}

static enum ak_style style_of(const char *verdict)
{
	return !strcmp(verdict, "allow") ? AK_GOOD : !strcmp(verdict, "deny") || !strcmp(verdict, "error") ? AK_BAD : AK_PLAIN;
}

void netlog_table_put(struct table *t, const struct netlog_row *row, bool with_date)
{
	_cleanup_strbuf_ struct strbuf text = { 0 };

	put_time(t, row->time_us, with_date);
	cell_safe(&text, row->verdict[0] ? row->verdict : "-");
	table_put(t, style_of(row->verdict), text.data);
	cell_safe(&text, row->proto);
	table_put(t, AK_PLAIN, text.data);
	cell_dest(&text, row);
	table_put(t, AK_PLAIN, text.data);
	cell_safe(&text, row->rule);
	table_put(t, AK_DIM, text.data);
	cell_safe(&text, row->reason);
	table_put(t, AK_PLAIN, text.data);
	cell_bytes(&text, row);
	table_put(t, AK_DIM, text.data);
	table_putf(t, AK_PLAIN, "%llu", (unsigned long long)row->count);
	t->failed |= text.failed;
}

/* ---- the summary ---- */

struct top {
	const char *text, *verdict; /* borrowed from rows */
	uint64_t count;
};

enum top_kind { TOP_DEST, TOP_RULE, TOP_REASON, TOP_NUM };

static const struct {
	const char *title, *list, *key;
} top_names[TOP_NUM] = {
	[TOP_DEST] = { "DESTINATION", "destinations", "destination" },
	[TOP_RULE] = { "RULE", "rules", "rule" },
	[TOP_REASON] = { "REASON", "reasons", "reason" },
};

static const char *top_text(const struct netlog_row *row, enum top_kind kind)
{
	switch (kind) {
	case TOP_DEST:
		return row->dest;
	case TOP_RULE:
		return row->rule;
	case TOP_REASON:
	case TOP_NUM:
		break;
	}
	return row->reason;
}

static int by_text(const void *a, const void *b)
{
	const struct top *x = a, *y = b;
	int d = strcmp(x->text, y->text);

	return d ? d : strcmp(x->verdict, y->verdict);
}

static int by_count(const void *a, const void *b)
{
	const struct top *x = a, *y = b;

	if (x->count != y->count)
		return x->count > y->count ? -1 : 1;
	return by_text(a, b);
}

/* The most frequent texts of a kind: sort, merge equal neighbours, sort by count. */
static int make_top(struct netlog_row *const *rows, size_t n, enum top_kind kind, struct top **ret, size_t *ret_n)
{
	struct top *top = calloc(n + 1, sizeof(*top));
	size_t used = 0, merged = 0;

	if (!top)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		const char *text = top_text(rows[i], kind);

		if (text[0] && !rows[i]->note)
			top[used++] = (struct top){ text, rows[i]->verdict, rows[i]->count };
	}
	qsort(top, used, sizeof(*top), by_text);
	for (size_t i = 0; i < used; i++) {
		if (merged > 0 && by_text(&top[merged - 1], &top[i]) == 0)
			top[merged - 1].count += top[i].count;
		else
			top[merged++] = top[i];
	}
	qsort(top, merged, sizeof(*top), by_count);
	*ret = top;
	*ret_n = MIN(merged, (size_t)TOP_MAX);
	return 0;
}

struct total {
	uint64_t count, bytes_out, bytes_in;
};

static struct total total_of(struct netlog_row *const *rows, size_t n, const char *verdict)
{
	struct total t = { 0 };

	for (size_t i = 0; i < n; i++) {
		/* A name that was looked up and not used is no connection, as in `list` and `audit`. */
		if (strcmp(rows[i]->verdict, verdict) != 0 || rows[i]->note || rows[i]->dns_allow)
			continue;
		t.count += rows[i]->count;
		t.bytes_out += rows[i]->bytes_out;
		t.bytes_in += rows[i]->bytes_in;
	}
	return t;
}

static uint64_t lost_records(struct netlog_row *const *rows, size_t n)
{
	uint64_t lost = 0;

	for (size_t i = 0; i < n; i++)
		lost += rows[i]->note && !strcmp(rows[i]->proto, "loss") ? rows[i]->count : 0;
	return lost;
}

static const char *const verdicts[] = { "allow", "deny", "error" };

static int totals_table(struct netlog_row *const *rows, size_t n, FILE *out)
{
	static const struct table_column columns[] = { { "VERDICT", 0, 0, 0, 0 }, { "COUNT", TABLE_RIGHT, 0, 0, 0 },
		{ "BYTES ↑/↓", 0, 0, 0, 0 } };
	struct table t;
	int rc;

	table_init(&t, columns, ARRAY_SIZE(columns));
	for (size_t i = 0; i < ARRAY_SIZE(verdicts); i++) {
		struct total sum = total_of(rows, n, verdicts[i]);
		char a[32], b[32];

		if (i == 2 && sum.count == 0)
			continue;
		table_put(&t, style_of(verdicts[i]), verdicts[i]);
		table_putf(&t, AK_PLAIN, "%llu", (unsigned long long)sum.count);
		if (sum.bytes_out || sum.bytes_in)
			table_putf(&t, AK_PLAIN, "%s/%s", netlog_bytes(sum.bytes_out, a, sizeof(a)),
				netlog_bytes(sum.bytes_in, b, sizeof(b)));
		else
			table_put(&t, AK_PLAIN, "");
	}
	if (lost_records(rows, n)) {
		table_put(&t, AK_BAD, "lost");
		table_putf(&t, AK_PLAIN, "%llu", (unsigned long long)lost_records(rows, n));
		table_put(&t, AK_PLAIN, "");
	}
	rc = table_print(&t, out, false);
	table_done(&t);
	return rc;
}

static void totals_json(struct netlog_row *const *rows, size_t n, FILE *out)
{
	fprintf(out, "{\"verdicts\":{");
	for (size_t i = 0; i < ARRAY_SIZE(verdicts); i++) {
		struct total t = total_of(rows, n, verdicts[i]);

		fprintf(out, "%s\"%s\":{\"count\":%llu,\"bytes_out\":%llu,\"bytes_in\":%llu}", i ? "," : "", verdicts[i],
			(unsigned long long)t.count, (unsigned long long)t.bytes_out, (unsigned long long)t.bytes_in);
	}
	fprintf(out, "},\"lost\":%llu", (unsigned long long)lost_records(rows, n));
}

static int top_table(const struct top *top, size_t n, enum top_kind kind, FILE *out)
{
	const struct table_column columns[] = { { "VERDICT", 0, 0, 0, 0 }, { "COUNT", TABLE_RIGHT, 0, 0, 0 },
		{ top_names[kind].title, kind == TOP_REASON ? 0 : TABLE_CUT, 20, 0, 0 } };
	_cleanup_strbuf_ struct strbuf text = { 0 };
	struct table t;
	int rc;

	if (n == 0)
		return 0;
	fputc('\n', out);
	table_init(&t, columns, ARRAY_SIZE(columns));
	for (size_t i = 0; i < n; i++) {
		cell_safe(&text, top[i].verdict);
		table_put(&t, style_of(top[i].verdict), text.data);
		table_putf(&t, AK_PLAIN, "%llu", (unsigned long long)top[i].count);
		cell_safe(&text, top[i].text);
		table_put(&t, AK_PLAIN, text.data);
	}
	rc = text.failed ? -ENOMEM : table_print(&t, out, false);
	table_done(&t);
	return rc;
}

static int top_json(const struct top *top, size_t n, enum top_kind kind, FILE *out)
{
	_cleanup_strbuf_ struct strbuf text = { 0 };

	strbuf_printf(&text, ",\"%s\":[", top_names[kind].list);
	for (size_t i = 0; i < n; i++) {
		strbuf_printf(&text, "%s{\"%s\":", i ? "," : "", top_names[kind].key);
		strbuf_json(&text, top[i].text);
		strbuf_puts(&text, ",\"verdict\":");
		strbuf_json(&text, top[i].verdict);
		strbuf_printf(&text, ",\"count\":%llu}", (unsigned long long)top[i].count);
	}
	strbuf_putc(&text, ']');
	if (text.failed)
		return -ENOMEM;
	fputs(text.data, out);
	return 0;
}

int netlog_print_summary(struct netlog_row *const *rows, size_t n, bool json, FILE *out)
{
	int rc = 0;

	if (json)
		totals_json(rows, n, out);
	else
		rc = totals_table(rows, n, out);
	if (rc < 0)
		return rc;
	for (enum top_kind kind = 0; kind < TOP_NUM; kind++) {
		_cleanup_free_ struct top *top = NULL;
		size_t n_top;

		rc = make_top(rows, n, kind, &top, &n_top);
		if (rc == 0)
			rc = json ? top_json(top, n_top, kind, out) : top_table(top, n_top, kind, out);
		if (rc < 0)
			return rc;
	}
	if (json)
		fputs("}\n", out);
	return 0;
}
