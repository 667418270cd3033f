/*
 * A log may hold anything by the time it is read. Its readers hand out every line once, a chain that verifies is whole and goes on with the next record, what is
 * printed or summed up of it is plain, and what a daemon takes out of it to restore is what the gateway reads.
 *
 * Input: up to four files, the oldest first, a NUL between them; a byte of 1 stands for more than a line may have.
 */
#include "tests/fuzz/fuzz.h"

#include "gateway/base/table.h"
#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/base/jsonscan.h"
#include "gateway/daemon/internal.h"
#include "gateway/log/audit.h"
#include "gateway/log/netlog.h"
#include "gateway/log/stats.h"

#include <poll.h>
#include <sys/stat.h>

static char dir[32], path[64], overlong[AUDIT_LINE_MAX + 1];

int __wrap_poll(struct pollfd *fds, nfds_t n, int timeout_ms);

/* Nobody writes while we read: there is nothing to wait for. */
int __wrap_poll(struct pollfd *fds, nfds_t n, int timeout_ms)
{
	(void)fds;
	must(n == 0 && timeout_ms > 0);
	return 0;
}

/* ---- the files ---- */

static void name_file(unsigned n, char ret[static 80])
{
	snprintf(ret, 80, n ? "%s.%u" : "%s", path, n);
}

static void write_file(unsigned n, const uint8_t *data, size_t len)
{
	_cleanup_close_ int fd = -1;
	char name[80];

	name_file(n, name);
	fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	must(fd >= 0);
	for (const uint8_t *one; (one = memchr(data, 1, len)); len -= (size_t)(one + 1 - data), data = one + 1)
		must(ak_write_all(fd, data, (size_t)(one - data)) == 0 && ak_write_all(fd, overlong, sizeof(overlong)) == 0);
	must(ak_write_all(fd, data, len) == 0);
}

/* How many bytes are in them. */
static size_t make_files(struct input in)
{
	unsigned n = 0;
	size_t total = 0;

	strcpy(dir, access("/dev/shm", W_OK) == 0 ? "/dev/shm/ak-fuzz-XXXXXX" : "/tmp/ak-fuzz-XXXXXX");
	must(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/log", dir);
	for (size_t i = 0; i < in.len && n < AUDIT_KEEP_FILES - 1; i++)
		n += in.data[i] == 0;
	for (;; n--) {
		const uint8_t *nul = n ? memchr(in.data, 0, in.len) : NULL;
		size_t len = nul ? (size_t)(nul - in.data) : in.len;

		write_file(n, in.data, len);
		total += len;
		if (n == 0)
			return total;
		take(&in, len + 1);
	}
}

static void remove_files(void)
{
	char name[80];

	for (unsigned n = 0; n < AUDIT_KEEP_FILES; n++) {
		name_file(n, name);
		(void)unlink(name);
	}
	must(rmdir(dir) == 0);
}

/* ---- lines ---- */

struct sums {
	struct netlog *log;
	uint64_t last_us; /* of any record */
	char last_hash[SHA256_HEX];
	bool unchained; /* a record does not follow from the one before it */
	size_t lines;
};

static int on_line(void *ctx, const char *line, size_t len, bool whole)
{
	struct sums *s = ctx;
	struct netlog_rec rec;
	struct audit_link link;
	uint64_t when, again;
	char text[AUDIT_TIME_MAX];

	must(line[len] == '\0');
	s->lines++;
	if (audit_link_parse(line, len, &link)) {
		must(strlen(link.hash) == SHA256_HEX - 1 && strlen(link.prev) == SHA256_HEX - 1);
		s->unchained |= whole && s->last_hash[0] && strcmp(s->last_hash, link.prev) != 0;
		memcpy(s->last_hash, link.hash, sizeof(s->last_hash));
	}
	if (len < 64 && audit_time_parse(line, &when) == 0 && when < 253402300800000000ull)
		must(audit_time_parse(audit_time_print(when, text), &again) == 0 && again == when);
	if (netlog_rec_parse(line, len, &rec) < 0)
		return 0;
	must(audit_time_parse(audit_time_print(rec.time_us, text), &again) == 0 && again == rec.time_us);
	s->last_us = rec.time_us > s->last_us ? rec.time_us : s->last_us;
	(void)netlog_add(s->log, &rec);
	netlog_rec_done(&rec);
	return 0;
}

static void plain_json(const char *text, size_t len)
{
	static const struct json_bounds bounds = { .depth = 16, .members = 1 << 20, .values = 1 << 20 };
	struct ak_err err;
	bool nul;

	must(json_scan(text, len, &bounds, &nul, &err) == 0 && !nul);
}

/* ---- what is made of them ---- */

static void print_rows(struct netlog *log, FILE *out, enum netlog_only only, int width, bool json)
{
	_cleanup_free_ struct netlog_row **rows = NULL;
	struct table t;
	size_t n = 0;

	must(netlog_rows(log, only, 1700000000000000ull, json ? 0 : 1000000, &rows, &n) == 0);
	if (json) {
		netlog_print_summary(rows, n, true, out);
		return;
	}
	netlog_table_init(&t);
	table_look(&t, (struct ak_look){ .width = width });
	for (size_t i = 0; i < n; i++)
		netlog_table_put(&t, rows[i], netlog_needs_date(rows, n, 1700000000000000ull));
	must(table_print(&t, out, only == NETLOG_ALL) == 0);
	table_done(&t);
	netlog_print_summary(rows, n, false, out);
}

static void check_print(struct netlog *log, enum netlog_only only, int width, bool json)
{
	_cleanup_free_ char *text = NULL;
	size_t len = 0;
	FILE *out = open_memstream(&text, &len);

	print_rows(log, out, only, width, json);
	fclose(out);
	for (size_t i = 0; i < len; i++) /* an arrow or an ellipsis of ours is UTF-8; a control character is no one's */
		must((unsigned char)text[i] >= ' ' || text[i] == '\n');
	if (json)
		plain_json(text, len);
}

/* Counts come from a process of their own: what is taken of them is read again as the same. */
static void add_sums(const struct input *in)
{
	_cleanup_json_ cJSON *obj = NULL, *again = NULL;
	struct net_counts c = { 0 }, same = { 0 };
	struct ak_err err;

	if (json_parse((const char *)in->data, in->len, &obj, &err) < 0 || net_counts_from_json(obj, &c, &err) < 0)
		return;
	must(net_counts_ok(&c));
	again = net_counts_to_json(&c);
	must(again && net_counts_from_json(again, &same, &err) == 0 && !memcmp(&c, &same, sizeof(c)));
}

static void check_restore(uint64_t now_us)
{
	_cleanup_strbuf_ struct strbuf out = { 0 };
	_cleanup_json_ cJSON *list = NULL;
	struct ak_err err;
	int n = adopt_learned(path, 0, now_us, &out);

	must(n >= 0 && !out.failed);
	plain_json(out.data, out.len);
	must(json_parse(out.data, out.len, &list, &err) == 0 && cJSON_IsArray(list) && cJSON_GetArraySize(list) == n);
}

/* What verifies can be gone on with; then there is one record more. Opening heals only what a writer may leave. */
static void check_chain(bool unchained)
{
	struct audit_chain before = { 0 }, after;
	struct audit_writer w;
	struct ak_err err = { "" };
	bool whole = audit_verify_chain(path, &before, &err) == 0;
	uint64_t seq = before.last_seq;

	must(whole ? !unchained : err.text[0] != 0);
	must(!whole || before.count == 0 || before.last_seq - before.first_seq + 1 == before.count);
	if (audit_open(path, &w, &err) < 0)
		return;
	must(!whole || w.seq == seq);
	audit_write_net(&w, &(struct audit_net){ .event = "end", .verdict = "allow", .count = 1 });
	must(!whole || w.lost == 0);
	audit_writer_done(&w);
	if (whole)
		must(audit_verify_chain(path, &after, &err) == 0 && after.count == before.count + 1 && after.last_seq == seq + 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct audit_reader r;
	struct sums s = { 0 };
	struct ak_err err;
	size_t total;

	if (!overlong[0])
		memset(overlong, 'x', sizeof(overlong));
	total = make_files((struct input){ data, size });
	r = (struct audit_reader){ .fd = -1 };
	must(netlog_new(&s.log) == 0 && audit_reader_drain(&r, path, true, on_line, &s, &err) == 0);
	must(s.lines <= total + AUDIT_KEEP_FILES);
	audit_reader_done(&r);
	check_print(s.log, NETLOG_ALL, 120, false);
	check_print(s.log, NETLOG_DENIED, 60, false);
	check_print(s.log, NETLOG_ALLOWED, 200, false);
	check_print(s.log, NETLOG_ALL, 120, true);
	add_sums(&(struct input){ data, size });
	check_restore(s.last_us + 1000000);
	check_chain(s.unchained);
	netlog_free(s.log);
	remove_files();
	return 0;
}
