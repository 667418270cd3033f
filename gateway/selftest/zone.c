/*
 * The DNS of the private Internet: its names, and a minimal codec for its server and for the probe. It is independent of the
 * proxy's codec, so that errors in one are not hidden by the other.
 */
#include "gateway/selftest/selftest.h"

#include "dnsproxy/dnsproxy.h"
#include "gateway/base/cleanup.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { T_A = 1, T_CNAME = 5, T_TXT = 16, T_AAAA = 28, T_OPT = 41 };
enum trick { PLAIN, EXTRA, SPREAD };

/* A name, or "*.name"; the first match answers. */
static const struct zone {
	const char *name;
	const char *a[3], *aaaa[3];
	const char *cname;
	bool fixed_ttl; /* use ttl_s, else 60 */
	uint32_t ttl_s;
	enum trick trick;
} zones[] = {
	{ .name = "ok.test", .a = { "11.1.0.5" }, .aaaa = { "2a00:1::5" } },
	{ .name = "other.test", .a = { "11.1.0.6" }, .aaaa = { "2a00:1::6" } },
	{ .name = "port.test", .a = { "11.1.0.7" } },
	{ .name = "ssh.test", .a = { "11.1.0.8" } },
	{ .name = "c9.test", .a = { "11.1.9.1" } },
	{ .name = "c9-evil.test", .a = { "11.1.9.1" } },
	{ .name = "*.wild.test", .a = { "11.1.1.1" } },
	{ .name = "*.b2.test", .a = { "11.1.2.1" } },
	{ .name = "b3.test", .a = { "11.1.3.1" } },
	{ .name = "b9.test", .a = { "11.1.3.9" } },
	{ .name = "b10.test", .a = { "11.1.10.1" }, .trick = EXTRA },
	{ .name = "b11.test", .cname = "b11-target.unlisted" },
	{ .name = "b11-target.unlisted", .a = { "11.1.11.1" } },
	{ .name = "loop.b11.test", .cname = "loop2.b11.test" },
	{ .name = "loop2.b11.test", .cname = "loop.b11.test" },
	{ .name = "h0.b11.test", .cname = "h1.b11.test" },
	{ .name = "h1.b11.test", .cname = "h2.b11.test" },
	{ .name = "h2.b11.test", .cname = "h3.b11.test" },
	{ .name = "h3.b11.test", .cname = "h4.b11.test" },
	{ .name = "h4.b11.test", .cname = "h5.b11.test" },
	{ .name = "h5.b11.test", .cname = "h6.b11.test" },
	{ .name = "h6.b11.test", .cname = "h7.b11.test" },
	{ .name = "h7.b11.test", .cname = "h8.b11.test" },
	{ .name = "h8.b11.test", .cname = "h9.b11.test" },
	{ .name = "h9.b11.test", .a = { "11.1.11.9" } },
	{ .name = "*.c1.test", .a = { "11.8.0.0" }, .trick = SPREAD },
	{ .name = "zero.c3.test", .a = { "11.1.30.1" }, .fixed_ttl = true, .ttl_s = 0 },
	{ .name = "one.c3.test", .a = { "11.1.30.2" }, .fixed_ttl = true, .ttl_s = 1 },
	{ .name = "half.c3.test", .a = { "11.1.30.3" }, .fixed_ttl = true, .ttl_s = UINT32_C(1) << 31 },
	{ .name = "max.c3.test", .a = { "11.1.30.4" }, .fixed_ttl = true, .ttl_s = UINT32_MAX },
	{ .name = "private.d1.test", .a = { "10.1.2.3", "192.168.7.7", "172.16.5.5" } },
	{ .name = "loopback.d1.test", .a = { "127.0.0.1" }, .aaaa = { "::1" } },
	{ .name = "link.d1.test", .a = { "169.254.9.9" }, .aaaa = { "fe80::9" } },
	{ .name = "shared.d1.test", .a = { "100.64.0.5", "100.127.1.1" } },
	{ .name = "meta.d1.test", .a = { "169.254.169.254", "169.254.170.2", "100.100.100.200" }, .aaaa = { "fd00:ec2::254" } },
	{ .name = "cloud.d1.test", .a = { "168.63.129.16", "192.0.0.192" } },
	{ .name = "mixed.d1.test", .a = { "10.1.2.3", "11.1.40.1", "169.254.169.254" } },
	{ .name = "mapped.d2.test", .aaaa = { "::ffff:10.1.2.3", "::ffff:169.254.169.254" } },
	{ .name = "nat64.d2.test", .aaaa = { "64:ff9b::a01:203", "64:ff9b::a9fe:a9fe" } },
	{ .name = "6to4.d2.test", .aaaa = { "2002:a01:203::1", "2002:7f00:1::1" } },
	{ .name = "teredo.d2.test", .aaaa = { "2001:0:4136:e378:8000:63bf:f5fe:fdfc" } }, /* embeds 10.1.2.3 */
	{ .name = "compat.d2.test", .aaaa = { "::10.1.2.3" } },
};

/* ---- names ---- */

size_t st_name_wire(const char *text, uint8_t out[static 256])
{
	size_t at = 0, len = 0;

	for (const char *c = text;; c++) {
		if (*c == '.' || !*c) {
			out[at] = (uint8_t)len;
			at += 1 + len;
			len = 0;
			if (!*c || !c[1])
				break;
			continue;
		}
		if (at + len + 3 > 256 || len == 63)
			return 0;
		out[at + 1 + len++] = *c == '\\' ? (uint8_t)((c[1] - '0') * 100 + (c[2] - '0') * 10 + c[3] - '0') : (uint8_t)*c;
		c += *c == '\\' ? 3 : 0;
	}
	out[at++] = 0;
	return at;
}

bool st_name_text(const uint8_t *msg, size_t len, size_t *at, char *ret, size_t size)
{
	size_t off = *at, out = 0;

	while (off < len && msg[off]) {
		size_t label = msg[off++];

		if (label > 63 || off + label > len || out + 4 * label + 2 > size)
			return false;
		if (out)
			ret[out++] = '.';
		for (size_t i = 0; i < label; i++) {
			uint8_t c = msg[off + i];

			if (c > 32 && c < 127 && c != '.' && c != '\\')
				ret[out++] = (char)c;
			else
				out += (size_t)snprintf(ret + out, size - out, "\\%03u", c);
		}
		off += label;
	}
	ret[out] = '\0';
	*at = off + 1;
	return off < len;
}

/* ---- building ---- */

struct message {
	uint8_t *buf;
	size_t cap, len;
};

static void put(struct message *m, const void *data, size_t n)
{
	if (m->len + n <= m->cap)
		memcpy(m->buf + m->len, data, n);
	m->len += n;
}

static void put16(struct message *m, unsigned v)
{
	put(m, (uint8_t[]){ (uint8_t)(v >> 8), (uint8_t)v }, 2);
}

static void put32(struct message *m, uint32_t v)
{
	put16(m, v >> 16);
	put16(m, v & 0xffff);
}

size_t st_dns_query(uint8_t *out, uint16_t id, const char *name, uint16_t qtype, bool loaded)
{
	/* client subnet, cookie, padding, and an unknown option */
	static const uint8_t options[] = { 0, 8, 0, 7, 0, 1, 24, 0, 11, 22, 33, 0, 10, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8, 0, 12, 0, 4,
		0, 0, 0, 0, 0xfd, 0xe9, 0, 6, 's', 'e', 'c', 'r', 'e', 't' };
	/* RD; loaded: Z, AD and CD too, and an OPT record */
	const uint8_t head[12] = { (uint8_t)(id >> 8), (uint8_t)id, 1, loaded ? 0x70 : 0, 0, 1, [11] = loaded };
	struct message m = { .buf = out, .cap = ST_DNS_MAX, .len = sizeof(head) };
	uint8_t wire[256];

	memcpy(out, head, sizeof(head));
	put(&m, wire, st_name_wire(name, wire));
	put16(&m, qtype);
	put16(&m, 1);
	if (loaded) {
		put(&m, "", 1);
		put16(&m, T_OPT);
		put16(&m, 4096);
		put32(&m, 0x8000); /* DO */
		put16(&m, sizeof(options));
		put(&m, options, sizeof(options));
	}
	return m.len;
}

/* ---- answering ---- */

static const struct zone *find(const char *name)
{
	size_t len = strlen(name);

	for (size_t i = 0; i < ARRAY_SIZE(zones); i++) {
		const char *z = zones[i].name;
		size_t tail = strlen(z) - 1;

		if (!strcasecmp(z, name))
			return &zones[i];
		if (z[0] == '*' && len > tail && !strcasecmp(z + 1, name + len - tail))
			return &zones[i];
	}
	return NULL;
}

static void put_record(struct message *m, const char *owner, unsigned type, uint32_t ttl_s, const void *data, size_t n)
{
	uint8_t wire[256];

	put(m, wire, st_name_wire(owner, wire));
	put16(m, type);
	put16(m, 1);
	put32(m, ttl_s);
	put16(m, (unsigned)n);
	put(m, data, n);
}

/* "n012.c1.test" → 11.8.0.12: a separate address for each name. */
static void spread(const char *name, struct ak_addr *a)
{
	unsigned n = 0;

	for (const char *c = name; *c && *c != '.'; c++) {
		if (*c >= '0' && *c <= '9')
			n = n * 10 + (unsigned)(*c - '0');
	}
	a->bytes[2] = (uint8_t)(n >> 8);
	a->bytes[3] = (uint8_t)n;
}

static unsigned put_addresses(struct message *m, const struct zone *z, const char *owner, uint16_t qtype)
{
	const char *const *list = qtype == T_A ? z->a : z->aaaa;
	unsigned n = 0;

	for (size_t i = 0; i < 3 && list[i]; i++) {
		struct ak_addr a;

		if (ak_addr_parse(list[i], &a) < 0)
			continue;
		if (z->trick == SPREAD)
			spread(owner, &a);
		put_record(m, owner, qtype, z->fixed_ttl ? z->ttl_s : 60, a.bytes, ak_addr_bits(&a) / 8);
		n++;
	}
	return n;
}

/* Append the CNAME chain from NAME on, as a recursive resolver does. */
static unsigned put_answers(struct message *m, const char *name, uint16_t qtype)
{
	const struct zone *z = find(name);
	unsigned n = 0;

	for (int hops = 0; z && z->cname && hops < 12; hops++) {
		uint8_t wire[256];

		put_record(m, name, T_CNAME, 60, wire, st_name_wire(z->cname, wire));
		name = z->cname;
		z = find(name);
		n++;
	}
	if (z && (qtype == T_A || qtype == T_AAAA))
		n += put_addresses(m, z, name, qtype);
	if (z && qtype == T_TXT) {
		put_record(m, name, T_TXT, 60, "\6secret", 7);
		n++;
	}
	return n;
}

/* A lying resolver: append an address of a name that was not queried. */
static void put_extra(struct message *m)
{
	put_record(m, "b10-evil.test", T_A, 60, (uint8_t[]){ 11, 66, 10, 1 }, 4);
}

size_t st_zone_answer(const uint8_t *msg, size_t len, uint8_t *reply, size_t cap, struct st_event *ret)
{
	struct message m = { .buf = reply, .cap = cap };
	size_t at = 12;
	const struct zone *z;
	unsigned n;

	if (len < 17 || !st_name_text(msg, len, &at, ret->name, sizeof(ret->name)) || at + 4 > len)
		return 0;
	ret->qtype = (uint16_t)(msg[at] << 8 | msg[at + 1]);
	at += 4;
	/* Our queries have only RD set, and at most an empty OPT. */
	ret->odd = msg[2] != 1 || msg[3] != 0 || (msg[11] && (len != at + 11 || msg[at + 7] || msg[at + 8])) ||
		(!msg[11] && len != at);
	for (char *c = ret->name; *c; c++)
		*c = (char)tolower((unsigned char)*c); /* their letter case is random */
	z = find(ret->name);
	put(&m, msg, at);
	n = put_answers(&m, ret->name, ret->qtype);
	if (z && z->trick == EXTRA) {
		put_extra(&m);
		put_extra(&m);
		n++;
	}
	if (m.len > cap)
		return 0;
	reply[2] = 0x81;
	reply[3] = z ? 0x80 : 0x83;
	memset(reply + 6, 0, 6);
	reply[7] = (uint8_t)n;
	reply[11] = z && z->trick == EXTRA;
	return m.len;
}

/* ---- reading ---- */

static bool skip_name(const uint8_t *msg, size_t len, size_t *at)
{
	while (*at < len && msg[*at]) {
		if (msg[*at] >= 0xc0) {
			*at += 2;
			return *at <= len;
		}
		*at += 1u + msg[*at];
	}
	return ++*at <= len;
}

/* Read one answer at *AT; false at the end or if malformed. Addresses are added to DETAIL; *RET_TTL_OK is false for a bad TTL. */
static bool read_record(const uint8_t *msg, size_t len, size_t *at, struct st_outcome *o, bool *ret_ttl_ok)
{
	struct ak_addr a = { 0 };
	char text[AK_ADDR_TEXT];
	unsigned type, size, used = (unsigned)strlen(o->detail);
	uint32_t ttl_s;

	if (!skip_name(msg, len, at) || *at + 10 > len)
		return false;
	type = (unsigned)msg[*at] << 8 | msg[*at + 1];
	ttl_s = (uint32_t)msg[*at + 4] << 24 | (uint32_t)msg[*at + 5] << 16 | (uint32_t)msg[*at + 6] << 8 | msg[*at + 7];
	size = (unsigned)msg[*at + 8] << 8 | msg[*at + 9];
	*at += 10;
	if (*at + size > len)
		return false;
	*ret_ttl_ok &= ttl_s >= 1 && ttl_s <= DNS_TTL_MAX_S;
	if ((type == T_A && size == 4) || (type == T_AAAA && size == 16)) {
		a.family = type == T_A ? AF_INET : AF_INET6;
		memcpy(a.bytes, msg + *at, size);
		snprintf(o->detail + used, sizeof(o->detail) - used, "%s%s", used ? "," : "", ak_addr_print(&a, text));
	}
	*at += size;
	return true;
}

static const char *const rcode_words[] = { "nodata", "formerr", "servfail", "nxdomain", "notimp", "refused" };

void st_dns_read(const uint8_t *msg, size_t len, const uint8_t *query, size_t query_len, struct st_outcome *ret)
{
	unsigned rcode, answers;
	bool ttl_ok = true;
	size_t at = 12;

	ret->detail[0] = '\0';
	if (len < 12) {
		ret->word = "silence";
		return;
	}
	rcode = msg[3] & 15;
	answers = (unsigned)msg[6] << 8 | msg[7];
	ret->word = rcode < ARRAY_SIZE(rcode_words) ? rcode_words[rcode] : "other";
	if (rcode || !answers)
		return;
	ret->word = "answer";
	if (!skip_name(msg, len, &at) || at + 4 > query_len || memcmp(msg + 12, query + 12, at - 12) != 0)
		ret->word = "other question";
	at += 4;
	for (unsigned i = 0; i < answers; i++) {
		if (!read_record(msg, len, &at, ret, &ttl_ok))
			ret->word = "malformed answer";
	}
	if (!ttl_ok)
		ret->word = "unbounded life";
}
