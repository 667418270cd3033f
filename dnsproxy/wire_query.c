/* The client side of the codec: parses queries and builds replies; also builds upstream queries. */
#include "dnsproxy/wire.h"

#include <string.h>

#define FLAG_QR 0x8000
#define FLAG_TC 0x0200
#define FLAG_RD 0x0100
#define FLAG_RA 0x0080
#define CLASS_IN 1
#define OPT_FIXED 11 /* root, type, class, ttl, length */
#define EDE_OPTION 15

static uint16_t get16(const uint8_t *p)
{
	return (uint16_t)(p[0] << 8 | p[1]);
}

/* ---- question ---- */

/* The lower-case form of an octet that is valid in a label, or 0. */
static uint8_t host_octet(uint8_t c)
{
	if (c >= 'A' && c <= 'Z')
		return (uint8_t)(c | 0x20);
	if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_')
		return c;
	return 0;
}

/*
 * Copy the name of the question without following pointers. Returns its length, or 0 if it is malformed. *RET_OK is true if every
 * octet is valid in a host name; only then TEXT is complete.
 */
static size_t read_qname(const uint8_t *p, size_t room, struct dns_question *q, bool *ret_ok)
{
	size_t off = 0, out = 0;
	bool ok = true;

	for (;;) {
		size_t label;

		if (off >= room || off >= DNS_WIRE_NAME_MAX)
			return 0;
		label = p[off];
		if (label == 0)
			break;
		/* 64 and more are compression pointers and extended labels, which are not valid in a question */
		if (label > 63 || off + 1 + label >= room || off + 1 + label >= DNS_WIRE_NAME_MAX)
			return 0;
		q->name.wire[off] = (uint8_t)label;
		if (out > 0)
			q->text[out++] = '.';
		for (size_t i = off + 1; i <= off + label; i++) {
			uint8_t c = host_octet(p[i]);

			ok &= c != 0;
			q->name.wire[i] = c ? c : p[i];
			q->text[out++] = (char)c;
		}
		off += 1 + label;
	}
	q->name.wire[off++] = 0;
	q->name.len = (uint8_t)off;
	q->text[out] = '\0';
	q->ask.raw.len = (uint8_t)off;
	memcpy(q->ask.raw.wire, p, off);
	*ret_ok = ok;
	return off;
}

/* Parse the only additional record that a query may have. */
static enum dns_parse read_opt(const uint8_t *p, size_t room, struct dns_question *q, const char **ret_why)
{
	uint16_t size;

	if (room < OPT_FIXED || p[0] != 0 || get16(p + 1) != DNS_TYPE_OPT) {
		*ret_why = "an additional record that is not OPT";
		return DNS_PARSE_FORMERR;
	}
	if (get16(p + 9) != room - OPT_FIXED) {
		*ret_why = "OPT does not end the message";
		return DNS_PARSE_FORMERR;
	}
	size = get16(p + 3);
	q->ask.edns = true;
	q->ask.udp_max = size < DNS_WIRE_UDP_PLAIN ? DNS_WIRE_UDP_PLAIN : size > DNS_WIRE_UDP_MAX ? DNS_WIRE_UDP_MAX : size;
	if (p[6] != 0) {
		*ret_why = "EDNS version";
		return DNS_PARSE_BADVERS;
	}
	return DNS_PARSE_OK;
}

static enum dns_parse read_header(const uint8_t *msg, struct dns_question *q, const char **ret_why)
{
	uint16_t flags = get16(msg + 2);

	q->ask.id = get16(msg);
	q->ask.opcode = flags >> 11 & 15;
	q->ask.rd = flags & FLAG_RD;
	if (flags & FLAG_QR) {
		*ret_why = "a response, not a question";
		return DNS_PARSE_FORMERR;
	}
	if (q->ask.opcode != 0) {
		*ret_why = "opcode is not QUERY";
		return DNS_PARSE_NOTIMP;
	}
	if (get16(msg + 4) != 1) {
		*ret_why = "not exactly one question";
		return DNS_PARSE_FORMERR;
	}
	if (get16(msg + 6) != 0 || get16(msg + 8) != 0 || get16(msg + 10) > 1) {
		*ret_why = "records in a question";
		return DNS_PARSE_FORMERR;
	}
	return DNS_PARSE_OK;
}

static enum dns_parse read_question(const uint8_t *msg, size_t len, struct dns_question *q, const char **ret_why)
{
	size_t off = DNS_WIRE_HEADER, n;
	bool host_name;
	enum dns_parse rc;

	n = read_qname(msg + off, len - off, q, &host_name);
	if (n == 0 || off + n + 4 > len) {
		q->ask.raw.len = 0;
		*ret_why = "malformed name in the question";
		return DNS_PARSE_FORMERR;
	}
	off += n;
	if (!host_name)
		dns_name_text(&q->name, q->text);
	q->ask.qtype = get16(msg + off);
	if (get16(msg + off + 2) != CLASS_IN) {
		/* the reply builder cannot echo another class: leave the question out */
		q->ask.raw.len = 0;
		*ret_why = "class is not IN";
		return DNS_PARSE_FORMERR;
	}
	off += 4;
	if (get16(msg + 10) == 1) {
		rc = read_opt(msg + off, len - off, q, ret_why);
		if (rc != DNS_PARSE_OK)
			return rc;
	} else if (off != len) {
		*ret_why = "bytes after the question";
		return DNS_PARSE_FORMERR;
	}
	if (!host_name) {
		*ret_why = "octet that no host name has";
		return DNS_PARSE_BADNAME;
	}
	return DNS_PARSE_OK;
}

enum dns_parse dns_question_parse(const uint8_t *msg, size_t len, struct dns_question *ret, const char **ret_why)
{
	enum dns_parse rc;

	ret->ask.id = 0;
	ret->ask.qtype = 0;
	ret->ask.udp_max = DNS_WIRE_UDP_PLAIN;
	ret->ask.opcode = 0;
	ret->ask.rd = false;
	ret->ask.edns = false;
	ret->ask.raw.len = 0;
	ret->name.len = 0;
	ret->text[0] = '\0';
	if (len < DNS_WIRE_HEADER) {
		*ret_why = "shorter than a header";
		return DNS_PARSE_SILENT;
	}
	rc = read_header(msg, ret, ret_why);
	if (rc != DNS_PARSE_OK)
		return rc;
	rc = read_question(msg, len, ret, ret_why);
	if (rc == DNS_PARSE_FORMERR && ret->ask.raw.len == 0 && ret->name.len == 0)
		ret->text[0] = '\0';
	return rc;
}

/* ---- builder ---- */

/* Writes past the end only advance the length; one check at the end detects the overflow. */
struct builder {
	uint8_t *buf;
	size_t cap;
	size_t len;
};

static void put_bytes(struct builder *b, const void *data, size_t n)
{
	if (b->len + n <= b->cap && n > 0)
		memcpy(b->buf + b->len, data, n);
	b->len += n;
}

static void put16(struct builder *b, uint16_t v)
{
	uint8_t bytes[2] = { (uint8_t)(v >> 8), (uint8_t)v };

	put_bytes(b, bytes, sizeof(bytes));
}

static void put32(struct builder *b, uint32_t v)
{
	put16(b, (uint16_t)(v >> 16));
	put16(b, (uint16_t)v);
}

/* An OPT record with our own size, the upper rcode bits, DO off, and at most one option: the extended error. */
static void put_opt(struct builder *b, uint8_t rcode, enum dns_ede ede, const char *text)
{
	size_t text_len = text ? strnlen(text, DNS_WIRE_EDE_TEXT) : 0;

	put_bytes(b, "", 1);
	put16(b, DNS_TYPE_OPT);
	put16(b, DNS_WIRE_UDP_MAX);
	put16(b, (uint16_t)((rcode >> 4) << 8));
	put16(b, 0);
	if (ede == DNS_EDE_NONE) {
		put16(b, 0);
		return;
	}
	put16(b, (uint16_t)(6 + text_len));
	put16(b, EDE_OPTION);
	put16(b, (uint16_t)(2 + text_len));
	put16(b, (uint16_t)ede);
	put_bytes(b, text, text_len);
}

/* Owner (a pointer to the name's offset), type, class, TTL. */
static void put_record(struct builder *b, size_t owner, uint16_t type, uint32_t ttl_s)
{
	put16(b, (uint16_t)(0xc000 | owner));
	put16(b, type);
	put16(b, CLASS_IN);
	put32(b, ttl_s);
}

static uint16_t put_answers(struct builder *b, const struct dns_ask *ask, const struct dns_content *c)
{
	size_t owner = DNS_WIRE_HEADER;
	const uint8_t *raw = c->raw;

	for (size_t i = 0; i < c->n_cname; i++) {
		put_record(b, owner, DNS_TYPE_CNAME, c->ttl_s);
		put16(b, c->cname[i].len);
		owner = b->len;
		put_bytes(b, c->cname[i].wire, c->cname[i].len);
	}
	for (size_t i = 0; i < c->n_addrs; i++) {
		uint16_t size = c->addrs[i].family == AF_INET ? 4 : 16;

		put_record(b, owner, ask->qtype, c->ttl_s);
		put16(b, size);
		put_bytes(b, c->addrs[i].bytes, size);
	}
	for (size_t i = 0; i < c->n_raw; i++) {
		uint16_t size = get16(raw);

		put_record(b, owner, ask->qtype, c->ttl_s);
		put_bytes(b, raw, 2u + size);
		raw += 2u + size;
	}
	return (uint16_t)(c->n_cname + c->n_addrs + c->n_raw);
}

size_t dns_reply_build(uint8_t *out, size_t cap, size_t limit, const struct dns_ask *ask, const struct dns_content *c)
{
	struct builder b = { .buf = out, .cap = cap };
	uint16_t flags = FLAG_QR | FLAG_RA | (uint16_t)(ask->opcode << 11) | (ask->rd ? FLAG_RD : 0) | (c->rcode & 15);
	bool has_question = ask->raw.len > 0;
	uint16_t answers = 0;
	size_t question_end;

	put16(&b, ask->id);
	put16(&b, flags);
	put16(&b, has_question);
	put32(&b, 0); /* the answer count is set below; authority is empty */
	put16(&b, ask->edns);
	if (has_question) {
		put_bytes(&b, ask->raw.wire, ask->raw.len);
		put16(&b, ask->qtype);
		put16(&b, CLASS_IN);
	}
	question_end = b.len;
	if (has_question)
		answers = put_answers(&b, ask, c);
	if (ask->edns)
		put_opt(&b, c->rcode, c->ede, c->ede_text);
	if (b.len > limit || b.len > cap) {
		b.len = question_end;
		answers = 0;
		flags |= FLAG_TC;
		if (ask->edns)
			put_opt(&b, c->rcode, DNS_EDE_NONE, NULL);
	}
	if (b.len > cap)
		return 0;
	out[2] = (uint8_t)(flags >> 8);
	out[6] = (uint8_t)(answers >> 8);
	out[7] = (uint8_t)answers;
	return b.len;
}

size_t dns_query_build(
	uint8_t out[static DNS_WIRE_QUERY_MAX], uint16_t id, const struct dns_name *name, uint16_t qtype, bool edns)
{
	struct builder b = { .buf = out, .cap = DNS_WIRE_QUERY_MAX };

	put16(&b, id);
	put16(&b, FLAG_RD);
	put16(&b, 1);
	put32(&b, 0);
	put16(&b, edns);
	put_bytes(&b, name->wire, name->len);
	put16(&b, qtype);
	put16(&b, CLASS_IN);
	if (edns)
		put_opt(&b, 0, DNS_EDE_NONE, NULL);
	return b.len;
}
