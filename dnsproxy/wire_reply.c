/*
 * The upstream side of the codec.
 *
 * Theory: one pass records the positions of the relevant records. Then the CNAME chain is followed from the question, and only
 * records owned by its last name are used. Records of any other owner are ignored.
 */
#include "dnsproxy/wire.h"

#include <errno.h>
#include <string.h>

#define CLASS_IN 1
#define RECORDS_MAX 256 /* answers recorded; further ones are ignored */
#define FLAG_QR 0x8000
#define FLAG_TC 0x0200

struct record {
	size_t owner; /* offset of the owner name */
	uint16_t type;
	uint32_t ttl_s;
	size_t rdata;
	uint16_t rdlen;
};

struct message {
	const uint8_t *msg;
	size_t len;
	struct record records[RECORDS_MAX];
	size_t n_records;
};

static uint16_t get16(const uint8_t *p)
{
	return (uint16_t)(p[0] << 8 | p[1]);
}

static uint32_t get32(const uint8_t *p)
{
	return (uint32_t)get16(p) << 16 | get16(p + 2);
}

/* RFC 2181 section 8: a TTL with the top bit set counts as 0. */
static uint32_t get_ttl(const uint8_t *p)
{
	uint32_t ttl = get32(p);

	return ttl & 0x80000000u ? 0 : ttl;
}

static uint8_t lower(uint8_t c)
{
	return c >= 'A' && c <= 'Z' ? (uint8_t)(c | 0x20) : c;
}

/*
 * Read the name at OFF, in lower case and decompressed. *RET_END is the offset after it. Each pointer must lead before the
 * start of the labels it follows, so the loop always ends.
 */
static bool read_name(const uint8_t *msg, size_t len, size_t off, struct dns_name *ret, size_t *ret_end)
{
	size_t out = 0, run = off, end = 0;

	for (;;) {
		size_t label;

		if (off >= len)
			return false;
		label = msg[off];
		if (label >= 0xc0) {
			size_t target;

			if (off + 2 > len)
				return false;
			target = get16(msg + off) & 0x3fff;
			if (target >= run || target < DNS_WIRE_HEADER)
				return false;
			if (end == 0)
				end = off + 2;
			run = off = target;
			continue;
		}
		if (label > 63 || off + 1 + label > len || out + 1 + label > DNS_WIRE_NAME_MAX)
			return false;
		ret->wire[out++] = (uint8_t)label;
		off++;
		if (label == 0)
			break;
		for (size_t i = 0; i < label; i++)
			ret->wire[out++] = lower(msg[off++]);
		if (out >= DNS_WIRE_NAME_MAX)
			return false;
	}
	ret->len = (uint8_t)out;
	*ret_end = end ? end : off;
	return true;
}

/* Skip a name without copying it. 0 if it does not fit. */
static size_t skip_name(const uint8_t *msg, size_t len, size_t off)
{
	while (off < len) {
		size_t label = msg[off];

		if (label == 0)
			return off + 1;
		if (label >= 0xc0)
			return off + 2 <= len ? off + 2 : 0;
		if (label > 63)
			return 0;
		off += 1 + label;
	}
	return 0;
}

static size_t read_record(const struct message *m, size_t off, struct record *ret, uint16_t *ret_class)
{
	ret->owner = off;
	off = skip_name(m->msg, m->len, off);
	if (off == 0 || off + 10 > m->len)
		return 0;
	ret->type = get16(m->msg + off);
	*ret_class = get16(m->msg + off + 2);
	ret->ttl_s = get_ttl(m->msg + off + 4);
	ret->rdlen = get16(m->msg + off + 8);
	ret->rdata = off + 10;
	if (ret->rdata + ret->rdlen > m->len)
		return 0;
	return ret->rdata + ret->rdlen;
}

/* Record the relevant answers. Returns the offset after the section, 0 if malformed. */
static size_t read_answers(struct message *m, size_t off, uint16_t qtype)
{
	unsigned count = get16(m->msg + 6);

	for (unsigned i = 0; i < count; i++) {
		struct record rec;
		uint16_t class;

		off = read_record(m, off, &rec, &class);
		if (off == 0)
			return 0;
		if (class == CLASS_IN && (rec.type == qtype || rec.type == DNS_TYPE_CNAME) && m->n_records < RECORDS_MAX)
			m->records[m->n_records++] = rec;
	}
	return off;
}

/* RFC 2308 section 5: the minimum of the SOA's TTL and its last field. Any owner will do: it can only shorten the TTL. */
static void read_soa(const struct message *m, const struct record *rec, struct dns_reply *ret)
{
	uint32_t minimum;

	if (rec->rdlen < 22)
		return;
	minimum = get_ttl(m->msg + rec->rdata + rec->rdlen - 4);
	ret->negative_ttl_s = rec->ttl_s < minimum ? rec->ttl_s : minimum;
}

/* A malformed tail is not an error: only a TTL and the presence of OPT are taken from it. */
static void read_rest(const struct message *m, size_t off, struct dns_reply *ret)
{
	unsigned authority = get16(m->msg + 8), total = authority + get16(m->msg + 10);

	for (unsigned i = 0; i < total && i < RECORDS_MAX; i++) {
		struct record rec;
		uint16_t class;

		off = read_record(m, off, &rec, &class);
		if (off == 0)
			return;
		if (i < authority && rec.type == DNS_TYPE_SOA)
			read_soa(m, &rec, ret);
		if (i >= authority && rec.type == DNS_TYPE_OPT)
			ret->has_opt = true;
	}
}

static bool owned_by(const struct message *m, const struct record *rec, const struct dns_name *name)
{
	struct dns_name owner;
	size_t end;

	return read_name(m->msg, m->len, rec->owner, &owner, &end) && dns_name_eq(&owner, name);
}

static const struct record *find_cname(const struct message *m, const struct dns_name *owner)
{
	for (size_t i = 0; i < m->n_records; i++) {
		const struct record *rec = &m->records[i];

		if (rec->type == DNS_TYPE_CNAME && owned_by(m, rec, owner))
			return rec;
	}
	return NULL;
}

static bool seen_before(const struct dns_reply *r, const struct dns_name *question, const struct dns_name *name)
{
	if (dns_name_eq(question, name))
		return true;
	for (size_t i = 0; i < r->n_cname; i++)
		if (dns_name_eq(&r->cname[i], name))
			return true;
	return false;
}

/* CNAME targets are shown to users and compared with policy names: allow the same octets as in a question. */
static bool host_name(const struct dns_name *name)
{
	for (size_t off = 0; name->wire[off] != 0; off += 1 + name->wire[off])
		for (size_t i = off + 1; i <= off + name->wire[off]; i++) {
			uint8_t c = name->wire[i];

			if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_'))
				return false;
		}
	return name->len > 1;
}

static void least_ttl(struct dns_reply *r, uint32_t ttl_s)
{
	if (ttl_s < r->ttl_s)
		r->ttl_s = ttl_s;
}

static int walk_chain(const struct message *m, const struct dns_name *question, struct dns_reply *r, const char **ret_why)
{
	const struct dns_name *at = question;
	const struct record *rec;

	while ((rec = find_cname(m, at)) != NULL) {
		struct dns_name target;
		size_t end;

		if (!read_name(m->msg, m->len, rec->rdata, &target, &end) || end != rec->rdata + rec->rdlen ||
			!host_name(&target)) {
			*ret_why = "malformed CNAME";
			return -EBADMSG;
		}
		if (seen_before(r, question, &target)) {
			*ret_why = "CNAME loop";
			return -EBADMSG;
		}
		if (r->n_cname == DNS_CNAME_MAX) {
			*ret_why = "more than 8 CNAME hops";
			return -EBADMSG;
		}
		r->cname[r->n_cname] = target;
		at = &r->cname[r->n_cname++];
		least_ttl(r, rec->ttl_s);
	}
	return 0;
}

static void take_addr(const struct message *m, const struct record *rec, struct dns_reply *r)
{
	struct ak_addr addr = { .family = rec->type == DNS_TYPE_A ? AF_INET : AF_INET6 };

	if (rec->rdlen != (rec->type == DNS_TYPE_A ? 4 : 16) || r->n_addrs == DNS_ANSWER_MAX)
		return;
	memcpy(addr.bytes, m->msg + rec->rdata, rec->rdlen);
	for (size_t i = 0; i < r->n_addrs; i++)
		if (ak_addr_eq(&r->addrs[i], &addr))
			return;
	r->addrs[r->n_addrs++] = addr;
	least_ttl(r, rec->ttl_s);
}

/* ---- rdata of forwarded types: fixed octets, character strings, names, fixed octets ---- */

struct rdata_shape {
	uint16_t type;
	uint8_t head; /* octets before */
	uint8_t strings; /* character strings after them; 255: to the end */
	uint8_t names; /* names after those */
	uint8_t tail; /* octets after the names; 255: to the end */
};

static const struct rdata_shape shapes[] = {
	{ .type = DNS_TYPE_NS, .names = 1 },
	{ .type = DNS_TYPE_SOA, .names = 2, .tail = 20 },
	{ .type = DNS_TYPE_MX, .head = 2, .names = 1 },
	{ .type = DNS_TYPE_TXT, .strings = 255 },
	{ .type = DNS_TYPE_SRV, .head = 6, .names = 1 },
	{ .type = DNS_TYPE_NAPTR, .head = 4, .strings = 3, .names = 1 },
	{ .type = DNS_TYPE_CAA, .head = 1, .strings = 1, .tail = 255 },
};

static const struct rdata_shape *shape_of(uint16_t type)
{
	for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
		if (shapes[i].type == type)
			return &shapes[i];
	return NULL;
}

struct rdata {
	const struct message *m;
	size_t off, end;
	struct dns_reply *r;
	size_t out;
};

static bool copy_octets(struct rdata *d, size_t n)
{
	if (d->off + n > d->end || d->out + n > DNS_WIRE_RAW_MAX)
		return false;
	memcpy(d->r->raw + d->out, d->m->msg + d->off, n);
	d->off += n;
	d->out += n;
	return true;
}

static bool copy_name(struct rdata *d)
{
	struct dns_name name;
	size_t end;

	if (!read_name(d->m->msg, d->m->len, d->off, &name, &end) || end > d->end || d->out + name.len > DNS_WIRE_RAW_MAX)
		return false;
	memcpy(d->r->raw + d->out, name.wire, name.len);
	d->off = end;
	d->out += name.len;
	return true;
}

static bool copy_rdata(struct rdata *d, const struct rdata_shape *shape)
{
	if (!copy_octets(d, shape->head))
		return false;
	for (unsigned i = 0; shape->strings == 255 ? d->off < d->end : i < shape->strings; i++)
		if (d->off >= d->end || !copy_octets(d, 1u + d->m->msg[d->off]))
			return false;
	for (unsigned i = 0; i < shape->names; i++)
		if (!copy_name(d))
			return false;
	if (!copy_octets(d, shape->tail == 255 ? d->end - d->off : shape->tail))
		return false;
	return d->off == d->end;
}

/* Skip a record that does not have the expected form of its type, or that does not fit. */
static void take_raw(const struct message *m, const struct record *rec, struct dns_reply *r)
{
	const struct rdata_shape *shape = shape_of(rec->type);
	struct rdata d = { .m = m, .off = rec->rdata, .end = rec->rdata + rec->rdlen, .r = r, .out = r->raw_len + 2 };
	size_t size;

	if (!shape || d.out > DNS_WIRE_RAW_MAX || !copy_rdata(&d, shape))
		return;
	size = d.out - r->raw_len - 2;
	r->raw[r->raw_len] = (uint8_t)(size >> 8);
	r->raw[r->raw_len + 1] = (uint8_t)size;
	r->raw_len = d.out;
	r->n_raw++;
	least_ttl(r, rec->ttl_s);
}

static void take_records(const struct message *m, const struct dns_name *owner, uint16_t qtype, struct dns_reply *r)
{
	for (size_t i = 0; i < m->n_records; i++) {
		const struct record *rec = &m->records[i];

		if (rec->type != qtype || !owned_by(m, rec, owner))
			continue;
		if (qtype == DNS_TYPE_A || qtype == DNS_TYPE_AAAA)
			take_addr(m, rec, r);
		else
			take_raw(m, rec, r);
	}
}

/* The upstream has checked id, source and question. Check the question again, because parsing relies on it. */
static size_t check_head(const uint8_t *msg, size_t len, const struct dns_name *name, uint16_t qtype, const char **ret_why)
{
	struct dns_name question;
	size_t end;
	uint16_t flags;

	*ret_why = "malformed answer";
	if (len < DNS_WIRE_HEADER)
		return 0;
	flags = get16(msg + 2);
	if (!(flags & FLAG_QR) || (flags >> 11 & 15) != 0 || get16(msg + 4) != 1)
		return 0;
	if (!read_name(msg, len, DNS_WIRE_HEADER, &question, &end) || end + 4 > len)
		return 0;
	if (!dns_name_eq(&question, name) || get16(msg + end) != qtype || get16(msg + end + 2) != CLASS_IN) {
		*ret_why = "answer to another question";
		return 0;
	}
	if (flags & FLAG_TC) {
		*ret_why = "truncated answer";
		return 0;
	}
	return end + 4;
}

int dns_reply_parse(
	const uint8_t *msg, size_t len, const struct dns_name *name, uint16_t qtype, struct dns_reply *ret, const char **ret_why)
{
	struct message m; /* the table is not cleared: only the first n_records are read */
	size_t off;
	int rc;

	m.msg = msg;
	m.len = len;
	m.n_records = 0;
	ret->rcode = 0;
	ret->has_opt = false;
	ret->n_cname = ret->n_addrs = ret->n_raw = ret->raw_len = 0;
	ret->ttl_s = UINT32_MAX;
	ret->negative_ttl_s = 0;
	off = check_head(msg, len, name, qtype, ret_why);
	if (off == 0)
		return -EBADMSG;
	ret->rcode = msg[3] & 15;
	off = read_answers(&m, off, qtype);
	if (off == 0)
		return -EBADMSG;
	read_rest(&m, off, ret);
	rc = walk_chain(&m, name, ret, ret_why);
	if (rc < 0)
		return rc;
	take_records(&m, ret->n_cname ? &ret->cname[ret->n_cname - 1] : name, qtype, ret);
	return 0;
}
