/* Any bytes, read as a client's question and as an upstream's answer. What was read must be rebuilt into something that reads the same. */
#include "dnsproxy/wire.h"

#include <assert.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Its text means the same name, and an address's reverse name means that address. */
static void check_name(const struct dns_question *q)
{
	struct dns_name name;
	struct ak_addr addr;

	if (!strchr(q->text, '\\'))
		assert(dns_name_from_text(q->text, &name) == 0 && dns_name_eq(&name, &q->name));
	if (dns_name_reverse(&q->name, &addr))
		assert(addr.family == AF_INET || addr.family == AF_INET6);
}

static void as_question(const uint8_t *data, size_t size)
{
	struct dns_question q, again;
	struct dns_content content = { .rcode = DNS_RCODE_NXDOMAIN, .ede = DNS_EDE_BLOCKED, .ede_text = "fuzz" };
	uint8_t out[DNS_WIRE_REPLY_MAX], query[DNS_WIRE_QUERY_MAX];
	const char *why;
	enum dns_parse rc = dns_question_parse(data, size, &q, &why);
	size_t len;

	if (rc == DNS_PARSE_SILENT)
		return;
	assert(strlen(q.text) < DNS_WIRE_TEXT_MAX);
	len = dns_reply_build(out, sizeof(out), q.ask.udp_max, &q.ask, &content);
	assert(len >= DNS_WIRE_HEADER && len <= q.ask.udp_max);
	if (rc != DNS_PARSE_OK)
		return;
	len = dns_query_build(query, 1, &q.name, q.ask.qtype, true);
	assert(dns_question_parse(query, len, &again, &why) == DNS_PARSE_OK);
	assert(dns_name_eq(&q.name, &again.name) && strcmp(q.text, again.text) == 0);
	check_name(&q);
}

static void as_answer(const uint8_t *data, size_t size, uint16_t qtype)
{
	struct dns_question q;
	struct dns_reply r, again;
	struct dns_ask ask = { .qtype = qtype };
	struct dns_content content = { .ede = DNS_EDE_NONE };
	uint8_t out[DNS_WIRE_REPLY_MAX], tiny[512];
	const char *why;
	size_t len, small;

	/* the question the bytes themselves have, so that the answer matches it */
	if (size < DNS_WIRE_HEADER || size > 65535)
		return;
	uint8_t head[65535];
	memcpy(head, data, size);
	head[2] = head[3] = head[6] = head[7] = head[8] = head[9] = head[10] = head[11] = 0;
	dns_question_parse(head, size, &q, &why);
	if (q.name.len == 0 || dns_reply_parse(data, size, &q.name, qtype, &r, &why) < 0)
		return;
	assert(r.n_cname <= DNS_CNAME_MAX && r.n_addrs <= DNS_ANSWER_MAX && r.raw_len <= DNS_WIRE_RAW_MAX);
	ask.raw = q.name;
	content.cname = r.cname;
	content.n_cname = r.n_cname;
	content.addrs = r.addrs;
	content.n_addrs = r.n_addrs;
	content.raw = r.raw;
	content.n_raw = r.n_raw;
	len = dns_reply_build(out, sizeof(out), sizeof(out), &ask, &content);
	assert(len > 0);
	ask.edns = !ask.edns;
	small = dns_reply_build(tiny, sizeof(tiny), sizeof(tiny), &ask, &content);
	assert(small > 0 && small <= sizeof(tiny) && (small >= len || (tiny[2] & 2) || ask.edns)); /* cut is told */
	assert(dns_reply_parse(out, len, &q.name, qtype, &again, &why) == 0);
	assert(again.n_cname == r.n_cname && again.n_addrs == r.n_addrs && again.n_raw == r.n_raw);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const uint16_t types[] = { DNS_TYPE_A, DNS_TYPE_AAAA, DNS_TYPE_MX, DNS_TYPE_TXT, DNS_TYPE_SOA, DNS_TYPE_NAPTR,
		DNS_TYPE_CAA };

	as_question(data, size);
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
		as_answer(data, size, types[i]);
	return 0;
}
