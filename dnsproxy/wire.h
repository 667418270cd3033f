/*
 * The wire codec: parses untrusted messages and builds messages. Pure: no allocation, no I/O, no state.
 *
 * Every read uses an offset that was checked against the message length. Compression pointers are followed only in upstream
 * answers and only strictly backwards, so there can be no loop.
 */
#ifndef AK_DNS_WIRE_H
#define AK_DNS_WIRE_H

#include "dnsproxy/dnsproxy.h"

#define DNS_WIRE_NAME_MAX 255
#define DNS_WIRE_TEXT_MAX 1024 /* a name with every octet escaped (\DDD), dots and NUL */
#define DNS_WIRE_HEADER 12
#define DNS_WIRE_UDP_PLAIN 512 /* RFC 1035 2.3.4: limit for a client without EDNS */
#define DNS_WIRE_UDP_MAX 1232 /* fits into the IPv6 minimum MTU: never fragmented */
#define DNS_WIRE_REPLY_MAX 8192
#define DNS_WIRE_RAW_MAX 3072 /* total forwarded rdata of one answer */
#define DNS_WIRE_EDE_TEXT 160

enum dns_type {
	DNS_TYPE_A = 1,
	DNS_TYPE_NS = 2,
	DNS_TYPE_CNAME = 5,
	DNS_TYPE_SOA = 6,
	DNS_TYPE_PTR = 12,
	DNS_TYPE_MX = 15,
	DNS_TYPE_TXT = 16,
	DNS_TYPE_AAAA = 28,
	DNS_TYPE_SRV = 33,
	DNS_TYPE_NAPTR = 35,
	DNS_TYPE_OPT = 41,
	DNS_TYPE_CAA = 257,
};

enum dns_rcode {
	DNS_RCODE_NOERROR = 0,
	DNS_RCODE_FORMERR = 1,
	DNS_RCODE_SERVFAIL = 2,
	DNS_RCODE_NXDOMAIN = 3,
	DNS_RCODE_NOTIMP = 4,
	DNS_RCODE_REFUSED = 5,
	DNS_RCODE_BADVERS = 16,
};

/* Extended DNS Errors, RFC 8914 section 4. */
enum dns_ede {
	DNS_EDE_NONE = -1,
	DNS_EDE_OTHER = 0,
	DNS_EDE_BLOCKED = 15,
	DNS_EDE_FILTERED = 17,
	DNS_EDE_PROHIBITED = 18,
	DNS_EDE_UNREACHABLE = 22,
};

/* A name as length-prefixed labels including the root octet. */
struct dns_name {
	uint8_t len;
	uint8_t wire[DNS_WIRE_NAME_MAX];
};

/* The fields of a query that the reply echoes. */
struct dns_ask {
	uint16_t id;
	uint16_t qtype;
	uint16_t udp_max; /* largest datagram that the client accepts */
	uint8_t opcode;
	bool rd;
	bool edns;
	struct dns_name raw; /* with the client's letter case; len 0: the question could not be parsed */
};

struct dns_question {
	struct dns_ask ask;
	struct dns_name name; /* lower case */
	char text[DNS_WIRE_TEXT_MAX]; /* lower case, dotted, escaped; "" if nothing was parsed */
};

enum dns_parse {
	DNS_PARSE_OK,
	DNS_PARSE_SILENT, /* no complete header: send no reply */
	DNS_PARSE_FORMERR,
	DNS_PARSE_NOTIMP,
	DNS_PARSE_BADVERS,
	DNS_PARSE_BADNAME, /* well-formed, but a label has an octet that is not valid in a host name */
	DNS_PARSE_NUM
};

/* Parse a client's query. RET is filled as far as possible, so that even a refusal can echo it. RET_WHY: a static text. */
enum dns_parse dns_question_parse(const uint8_t *msg, size_t len, struct dns_question *ret, const char **ret_why);

/* Build the upstream query: lower-case name, RD only, our OPT record if EDNS. Returns the length. */
#define DNS_WIRE_QUERY_MAX (DNS_WIRE_HEADER + DNS_WIRE_NAME_MAX + 4 + 11)
size_t dns_query_build(
	uint8_t out[static DNS_WIRE_QUERY_MAX], uint16_t id, const struct dns_name *name, uint16_t qtype, bool edns);

/* The parts of an upstream answer that concern one question; records of other owners are dropped. */
struct dns_reply {
	uint8_t rcode;
	bool has_opt;
	struct dns_name cname[DNS_CNAME_MAX]; /* in order, from the question */
	size_t n_cname;
	struct ak_addr addrs[DNS_ANSWER_MAX];
	size_t n_addrs;
	uint32_t ttl_s; /* minimum of the records used, not clamped; 0 if the top bit is set (RFC 2181 section 8) */
	uint32_t negative_ttl_s; /* RFC 2308 section 5; 0 without an SOA */
	size_t n_raw; /* number of records of forwarded types */
	size_t raw_len;
	uint8_t raw[DNS_WIRE_RAW_MAX]; /* n_raw times: 16-bit length, rdata without compression */
};

/* Returns 0, or -EBADMSG and a static reason. Records of QTYPE are read as addresses (A, AAAA) or as raw rdata (forwarded types). */
int dns_reply_parse(
	const uint8_t *msg, size_t len, const struct dns_name *name, uint16_t qtype, struct dns_reply *ret, const char **ret_why);

/* The content of a reply; pointers are borrowed. */
struct dns_content {
	uint8_t rcode; /* low four bits, or DNS_RCODE_BADVERS */
	uint32_t ttl_s;
	const struct dns_name *cname;
	size_t n_cname;
	const struct ak_addr *addrs;
	size_t n_addrs;
	const uint8_t *raw; /* as in struct dns_reply; records of the queried type */
	size_t n_raw;
	enum dns_ede ede; /* sent only to clients that use EDNS */
	const char *ede_text; /* or NULL */
};

/*
 * Build the reply to ASK in OUT. If it exceeds LIMIT, it contains only the question and the TC flag. Returns the length, 0 if CAP
 * is too small.
 */
size_t dns_reply_build(uint8_t *out, size_t cap, size_t limit, const struct dns_ask *ask, const struct dns_content *content);

bool dns_name_eq(const struct dns_name *a, const struct dns_name *b);

/* Printable form: octets other than letters, digits, '-' and '_' are escaped. */
void dns_name_text(const struct dns_name *name, char ret[static DNS_WIRE_TEXT_MAX]);

/* Parse dotted text without a trailing dot; -EINVAL if it is too long or malformed. */
int dns_name_from_text(const char *text, struct dns_name *ret);

/* The address of a reverse name (in-addr.arpa, ip6.arpa); false for other names. */
bool dns_name_reverse(const struct dns_name *name, struct ak_addr *ret);

#endif
