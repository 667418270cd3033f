/*
 * The writer of audit records: see log/audit.h. It runs in the confined gateway process and handles every DNS answer. It
 * therefore opens nothing, allocates nothing once its line buffer has grown, and never makes its caller fail.
 */
#include "gateway/log/audit_line.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void audit_writer_init(struct audit_writer *w, int fd, uint64_t seq, const char *prev, uint64_t size)
{
	*w = (struct audit_writer){ .fd = fd, .seq = seq, .size = size };
	memcpy(w->prev, prev ? prev : AUDIT_NO_PREV, SHA256_HEX - 1);
}

void audit_writer_done(struct audit_writer *w)
{
	w->fd = ak_close(w->fd);
	strbuf_done(&w->line);
}

bool audit_writer_full(const struct audit_writer *w)
{
	return w->size >= AUDIT_ROTATE_BYTES;
}

void audit_writer_swap(struct audit_writer *w, int fd)
{
	audit_writer_trim(w);
	ak_close(w->fd);
	w->fd = fd;
	w->size = 0;
	w->tight = false;
	w->torn_open = 0; /* the broken line ends with its file; the next record still attests it */
}

static void put_uint(struct strbuf *sb, uint64_t value)
{
	char buf[20], *p = buf + sizeof(buf);

	do {
		*--p = (char)('0' + value % 10);
		value /= 10;
	} while (value);
	strbuf_add(sb, p, (size_t)(buf + sizeof(buf) - p));
}

/* How many bytes of TEXT fit into AUDIT_TEXT_MAX bytes of JSON. */
static size_t text_fits(const char *text)
{
	size_t n = 0, used = 0;

	for (; text[n]; n++) {
		unsigned char c = (unsigned char)text[n];

		used += c == '"' || c == '\\' ? 2 : c < 0x20 || c > 0x7e ? 6 : 1;
		if (used > AUDIT_TEXT_MAX)
			break;
	}
	return n;
}

/* Truncate a long text and append an ellipsis. */
static void put_text(struct strbuf *sb, const char *text)
{
	size_t n = text_fits(text);

	strbuf_jsonn(sb, text, n);
	if (!text[n] || sb->failed)
		return;
	sb->len--;
	strbuf_puts(sb, "\\u2026\"");
}

static void member_text(struct strbuf *sb, const char *key, const char *text)
{
	if (!text || !text[0])
		return;
	strbuf_puts(sb, key);
	put_text(sb, text);
}

const char *audit_net_reason(const struct audit_net *rec)
{
	return rec->why ? rec->why : net_reason_text(rec->reason);
}

static void member_uint(struct strbuf *sb, const char *key, uint64_t value)
{
	if (!value)
		return;
	strbuf_puts(sb, key);
	put_uint(sb, value);
}

static void put_addr(struct strbuf *sb, const struct ak_addr *a)
{
	char buf[AK_ADDR_TEXT];

	strbuf_putc(sb, '"');
	strbuf_puts(sb, ak_addr_print(a, buf));
	strbuf_putc(sb, '"');
}

static void member_bytes(struct strbuf *sb, const struct audit_net *rec)
{
	if (!rec->has_bytes)
		return;
	strbuf_puts(sb, ",\"bytes_out\":");
	put_uint(sb, rec->bytes_out);
	strbuf_puts(sb, ",\"bytes_in\":");
	put_uint(sb, rec->bytes_in);
	strbuf_puts(sb, ",\"duration_ms\":");
	put_uint(sb, rec->duration_ms);
}

static void member_lists(struct strbuf *sb, const struct audit_net *rec)
{
	for (size_t i = 0; i < rec->n_cname; i++) {
		strbuf_puts(sb, i ? "," : ",\"cname\":[");
		put_text(sb, rec->cname[i]);
	}
	if (rec->n_cname)
		strbuf_putc(sb, ']');
	for (size_t i = 0; i < rec->n_answers; i++) {
		strbuf_puts(sb, i ? "," : ",\"answers\":[");
		put_addr(sb, &rec->answers[i]);
	}
	if (rec->n_answers)
		strbuf_putc(sb, ']');
}

static void put_net(struct strbuf *sb, const struct audit_net *rec)
{
	member_text(sb, ",\"sandbox\":", rec->sandbox);
	member_text(sb, ",\"event\":", rec->event);
	member_text(sb, ",\"verdict\":", rec->verdict);
	member_text(sb, ",\"reason\":", audit_net_reason(rec));
	member_text(sb, ",\"rule\":", rec->rule);
	member_text(sb, ",\"policy\":", rec->policy);
	member_uint(sb, ",\"generation\":", rec->generation);
	member_text(sb, ",\"proto\":", rec->proto);
	member_text(sb, ",\"name\":", rec->name);
	member_text(sb, ",\"qtype\":", rec->qtype);
	member_text(sb, ",\"sni\":", rec->sni);
	if (rec->dst && rec->dst->family) {
		strbuf_puts(sb, ",\"dst\":");
		put_addr(sb, rec->dst);
	}
	member_uint(sb, ",\"port\":", rec->port);
	member_lists(sb, rec);
	member_uint(sb, ",\"ttl\":", rec->ttl);
	member_bytes(sb, rec);
	member_uint(sb, ",\"latency_us\":", rec->latency_us);
	member_text(sb, ",\"detail\":", rec->detail);
}

static void put_counts(struct strbuf *sb, const struct audit_net *rec)
{
	member_uint(sb, ",\"count\":", rec->count ? rec->count : 1);
	member_uint(sb, ",\"suppressed\":", rec->suppressed);
}

void audit_line_begin(struct audit_writer *w)
{
	char when[AUDIT_TIME_MAX];

	strbuf_reset(&w->line);
	strbuf_puts(&w->line, "{\"v\":1,\"time\":\"");
	strbuf_puts(&w->line, audit_time_print(ak_wall_us(), when));
	strbuf_puts(&w->line, "\",\"seq\":");
	put_uint(&w->line, w->seq + 1);
}

/* Remove what a failed write left behind, so that the file ends with a complete line again. */
static void take_back(struct audit_writer *w)
{
	if (!w->torn_open || ftruncate(w->fd, (off_t)w->size) < 0)
		return;
	w->reserved = 0; /* ftruncate released it too */
	w->torn -= w->torn_open;
	w->torn_open = 0;
}

static ssize_t write_once(int fd, const char *data, size_t len)
{
	ssize_t n;

	do {
		n = write(fd, data, len);
	} while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : n;
}

static int append(struct audit_writer *w, const char *data, size_t len)
{
	ssize_t n = write_once(w->fd, data, len);

	if (n < 0)
		return (int)n;
	if ((size_t)n == len)
		return 0;
	w->torn += (uint64_t)n;
	w->torn_open = (uint64_t)n;
	take_back(w);
	return -ENOSPC; /* a write to a regular file is short only if the disk is full */
}

/* Terminate a broken line that could not be removed. */
static int close_tear(struct audit_writer *w)
{
	ssize_t n;

	if (!w->torn_open)
		return 0;
	n = write_once(w->fd, "\n", 1);
	if (n != 1)
		return n < 0 ? (int)n : -ENOSPC;
	w->size += w->torn_open + 1;
	w->torn_open = 0;
	return 0;
}

int audit_line_end(struct audit_writer *w)
{
	struct strbuf *sb = &w->line;
	char hash[SHA256_HEX], mac[AUDIT_MAC_HEX];
	uint8_t digest[SHA256_SIZE];
	int rc;

	strbuf_puts(sb, ",\"prev\":\"");
	strbuf_add(sb, w->prev, SHA256_HEX - 1);
	strbuf_putc(sb, '"');
	if (sb->failed)
		return -ENOMEM;
	audit_line_digest(sb->data, sb->len, digest);
	sha256_hex(digest, hash);
	strbuf_puts(sb, ",\"hash\":\"");
	strbuf_add(sb, hash, SHA256_HEX - 1);
	if (w->mac.on) {
		audit_mac_print(&w->mac, w->seq + 1, digest, mac);
		strbuf_puts(sb, "\",\"mac\":\"");
		strbuf_add(sb, mac, AUDIT_MAC_HEX - 1);
	}
	strbuf_puts(sb, "\"}\n");
	if (sb->failed)
		return -ENOMEM;
	if (sb->len > AUDIT_LINE_MAX)
		return -E2BIG;
	rc = append(w, sb->data, sb->len);
	if (rc < 0)
		return rc;
	memcpy(w->prev, hash, sizeof(w->prev));
	w->seq++;
	w->size += sb->len;
	w->written++;
	return 0;
}

/* strerror may load translations, but the writer has no file system access. */
static enum net_reason loss_reason(int code)
{
	switch (code) {
	case ENOSPC:
	case EDQUOT:
		return NET_REASON_DISK_FULL;
	case EFBIG:
		return NET_REASON_FILE_TOO_LARGE;
	case EIO:
		return NET_REASON_IO_ERROR;
	case ENOMEM:
		return NET_REASON_NO_MEMORY;
	default:
		return NET_REASON_CANNOT_WRITE;
	}
}

int audit_write_loss(struct audit_writer *w, const char *sandbox)
{
	struct audit_net loss = { .sandbox = sandbox, .event = "loss", .count = w->lost };
	int rc;

	take_back(w);
	rc = close_tear(w);
	if (rc < 0)
		return rc;
	if (!w->lost && !w->torn)
		return 0;
	loss.reason = loss_reason(w->lost_errno);
	loss.detail = sandbox ? "no new connection was allowed meanwhile" : NULL;
	audit_line_begin(w);
	put_net(&w->line, &loss);
	put_counts(&w->line, &loss);
	member_uint(&w->line, ",\"torn\":", w->torn);
	rc = audit_line_end(w);
	if (rc < 0)
		return rc;
	w->lost = 0;
	w->torn = 0;
	return 0;
}

/* Before any record: report lost ones. */
static int begin(struct audit_writer *w, const char *sandbox)
{
	int rc = w->fd < 0 ? -EBADF : w->lost || w->torn ? audit_write_loss(w, sandbox) : 0;

	if (rc < 0)
		return rc;
	audit_line_begin(w);
	w->members_at = w->line.len;
	return 0;
}

static void end(struct audit_writer *w, int rc)
{
	if (rc == 0)
		rc = audit_line_end(w);
	if (rc < 0)
		audit_writer_lose(w, -rc);
}

void audit_write_net(struct audit_writer *w, const struct audit_net *rec)
{
	int rc = begin(w, rec->sandbox);

	if (rc == 0) {
		put_net(&w->line, rec);
		w->members_len = w->line.len - w->members_at;
		put_counts(&w->line, rec);
	}
	end(w, rc);
}

void audit_write_again(struct audit_writer *w, const char *sandbox, const char *members, size_t len, uint64_t count)
{
	int rc = begin(w, sandbox);

	if (rc == 0) {
		strbuf_add(&w->line, members, len);
		member_uint(&w->line, ",\"count\":", count);
	}
	end(w, rc);
}

void audit_write_kept(struct audit_writer *w, const struct audit_net *rec, uint64_t of)
{
	int rc = begin(w, rec->sandbox);

	if (rc == 0) {
		member_uint(&w->line, ",\"of\":", of);
		put_net(&w->line, rec);
		put_counts(&w->line, rec);
	}
	end(w, rc);
}

void audit_write_rotate(struct audit_writer *w, const char *sandbox, const struct audit_gone *gone)
{
	struct audit_net rec = { .sandbox = sandbox, .event = "rotate", .verdict = "allow" };
	int rc = begin(w, sandbox);

	if (gone->to) {
		rec.count = gone->to - gone->from + 1;
		rec.reason = NET_REASON_LOG_TOO_LONG;
		rec.detail = "old records went; the first of them, and the first denial of each kind, stay";
	}
	if (rc == 0) {
		put_net(&w->line, &rec);
		put_counts(&w->line, &rec);
		member_uint(&w->line, ",\"gone_from\":", gone->from);
		member_uint(&w->line, ",\"gone_to\":", gone->to);
		member_uint(&w->line, ",\"kept\":", gone->kept);
		member_text(&w->line, ",\"kept_hash\":", gone->kept ? gone->kept_hash : NULL);
	}
	end(w, rc);
}
