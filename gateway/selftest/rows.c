/*
 * The catalogue of the self-test. Each row is a class of attack; each vector uses its own name or address, so that its packets can
 * be identified on the far side. 11.1.0.0/16 is reachable, 11.66.0.0/16 is not.
 */
#include "gateway/selftest/selftest.h"

#include "vmctl/labns.h"

#define LIST (1u << ST_LIST)
#define NATIVE (1u << ST_NATIVE)
#define EMPTY (1u << ST_EMPTY)
#define DEAD (1u << ST_DEAD)
#define BOTH (LIST | NATIVE)

const struct st_policy st_policies[ST_RUN_NUM] = {
	[ST_LIST] = { "codex",
		"{\"version\":1,\"name\":\"codex\",\"default\":\"deny\",\"allow\":[\"ok.test\",\"other.test\",\"port.test:8443\",\"ssh.test:22\","
		"\"c9.test\",\"*.wild.test\",\"*.b2.test\",\"b3.test\",\"b9.test\",\"b10.test\",\"b11.test\",\"*.b11.test\",\"*.c1.test\",\"*.c3.test\","
		"\"*.d1.test\",\"*.d2.test\",\"host.agentkernel.internal:8098\"],\"deny\":[\"no.wild.test\"],"
		"\"limits\":{\"connections\":2048,\"dns_qps\":1000000}}" },
	[ST_NATIVE] = { "native",
		"{\"version\":1,\"name\":\"native\",\"default\":\"allow\",\"deny\":[\"h9-evil.test\"],\"limits\":{\"dns_qps\":1000000}}" },
	[ST_EMPTY] = { "claude", "{\"version\":1,\"name\":\"claude\",\"allow\":[]}" },
	[ST_DEAD] = { "native", NULL },
};

const char *const st_warm_names[] = { "ok.test", "other.test", "port.test", "ssh.test", "c9.test", "b10.test", "b11.test",
	"host.agentkernel.internal", NULL };

const struct st_row st_rows[] = {
	{ .id = "a1", .what = "an empty allowlist allows nothing" },
	{ .id = "a2", .what = "octets that are not valid in a host name" },
	{ .id = "a3", .what = "a dot inside one label" },
	{ .id = "a4", .what = "names that only look like an allowed one" },
	{ .id = "a5", .what = "wildcard and apex, ports, the more specific rule" },
	{ .id = "a6", .what = "mixed case" },
	{ .id = "a7", .what = "malformed names and truncated messages" },
	{ .id = "a8", .what = "messages that are not a single plain query" },
	{ .id = "b1", .what = "data in a denied name" },
	{ .id = "b2", .what = "data in many names below an allowed wildcard" },
	{ .id = "b3", .what = "other record types of an allowed name" },
	{ .id = "b4", .what = "EDNS options and spare header bits" },
	{ .id = "b5", .what = "other resolvers and odd DNS ports" },
	{ .id = "b6", .what = "DNS over TCP: pipelined, dripped, huge, idle" },
	{ .id = "b7", .what = "DNS over TLS, and the name that turns DNS over HTTPS on" },
	{ .id = "b8", .what = "multicast and broadcast discovery" },
	{ .id = "b9", .what = "forged answers: wrong id, question, server" },
	{ .id = "b10", .what = "records of another owner in an answer" },
	{ .id = "b11", .what = "aliases to unlisted names, loops, long chains" },
	{ .id = "b12", .what = "HTTPS and SVCB records with hints and keys" },
	{ .id = "b14", .what = "metadata and internal names, everything else allowed" },
	{ .id = "c1", .what = "connecting as soon as the answer arrives" },
	{ .id = "c3", .what = "TTLs of 0, 1 and billions of seconds" },
	{ .id = "c9", .what = "two names, one address" },
	{ .id = "c10", .what = "a learned address on another port or protocol" },
	{ .id = "d1", .what = "an allowed name that answers with a private address" },
	{ .id = "d2", .what = "the same, hidden in IPv6 forms of IPv4" },
	{ .id = "d3", .what = "raw addresses, metadata, private ranges, numbers as names" },
	{ .id = "d4", .what = "services of the host" },
	{ .id = "e1", .what = "spoofed source addresses" },
	{ .id = "e2", .what = "spoofed MAC addresses and ARP" },
	{ .id = "e3", .what = "rogue router and neighbour advertisements, redirects, DHCP" },
	{ .id = "e4", .what = "the same over IPv6" },
	{ .id = "e5", .what = "VLANs and odd ethertypes" },
	{ .id = "e6", .what = "fragments" },
	{ .id = "e7", .what = "IP options and extension headers" },
	{ .id = "e8", .what = "protocols other than TCP and UDP" },
	{ .id = "e9", .what = "ICMP with a payload, redirects" },
	{ .id = "f1", .what = "an allowed SNI at another name's address" },
	{ .id = "f2", .what = "an HTTP Host that is not allowed here" },
	{ .id = "f3", .what = "no SNI, ECH, old hellos, no TLS at all" },
	{ .id = "f4", .what = "ClientHellos in pieces, in many records, large" },
	{ .id = "f5", .what = "QUIC" },
	{ .id = "f6", .what = "other protocols on the ports that a rule names" },
	{ .id = "f7", .what = "several HTTP requests with changing Host" },
	{ .id = "g1", .what = "sendmmsg and io_uring" },
	{ .id = "g2", .what = "marks, routes and rules from inside, also as root of a namespace" },
	{ .id = "g3", .what = "inherited descriptors, processes, capabilities" },
	{ .id = "g4", .what = "the kernel's attack surface" },
	{ .id = "g6", .what = "the gateway is killed" },
	{ .id = "g8", .what = "records and sockets of the host" },
	{ .id = "h2", .what = "set-uid and set-gid files" },
	{ .id = "h6", .what = "nested namespaces and unusual sockets" },
	{ .id = "h9", .what = "a denied host, everything else allowed, with data that cannot be parsed" },
	{ .id = "h17", .what = "terminals, memory score, leases and core dumps" },
	{ .id = "h27", .what = "the command line that started the sandbox" },
	{ .id = "inv6", .what = "the gateway process has no privileges" },
	{ .id = NULL },
};

#define DNS_(r, in, h, t, w, f, l)                                                                                               \
	{                                                                                                                        \
		.row = r, .runs = in, .kind = ST_DNS, .host = h, .type = t, .want = w, .far = f, .log = l                        \
	}
#define DENIED(r, in, h) DNS_(r, in, h, 1, "nxdomain", ST_NOTHING, "")
#define RAW(r, t, h)                                                                                                             \
	{                                                                                                                        \
		.row = r, .runs = LIST, .kind = ST_RAW, .host = h, .type = t, .want = "formerr|notimp|silence",                  \
		.far = ST_NOTHING                                                                                                \
	}
#define TCP(r, in, h, p)                                                                                                         \
	{                                                                                                                        \
		.row = r, .runs = in, .kind = ST_TCP, .host = h, .port = p, .want = "refused", .far = ST_NOTHING, .log = ""      \
	}
#define TCP6(r, in, h, p)                                                                                                        \
	{                                                                                                                        \
		.row = r, .runs = in, .kind = ST_TCP, .host = h, .port = p, .want = "refused", .far = ST_NOTHING, .log = "",     \
		.ipv6 = true                                                                                                     \
	}
#define UDP(r, in, h, p)                                                                                                         \
	{                                                                                                                        \
		.row = r, .runs = in, .kind = ST_UDP, .host = h, .port = p, .want = "refused", .far = ST_NOTHING, .log = ""      \
	}
#define TLS_OK(r, h, p, sni, how)                                                                                                \
	{                                                                                                                        \
		.row = r, .runs = LIST, .kind = ST_TLS, .host = h, .port = p, .name = sni, .type = how, .want = "works",         \
		.far = ST_SOMETHING, .log = ""                                                                                   \
	}
#define TLS_NO(r, h, sni, how, l)                                                                                                \
	{                                                                                                                        \
		.row = r, .runs = LIST, .kind = ST_TLS, .host = h, .port = 443, .name = sni, .type = how, .want = "refused",     \
		.far = ST_NOTHING, .log = l                                                                                      \
	}
#define CALL(r, in, f, w)                                                                                                        \
	{                                                                                                                        \
		.row = r, .runs = in, .kind = ST_CALL, .fn = f, .want = w, .far = ST_UNSEEN                                      \
	}
#define FRAMES(r, t, h, l)                                                                                                       \
	{                                                                                                                        \
		.row = r, .runs = BOTH, .kind = ST_FRAMES, .host = h, .type = t, .want = "sent", .far = ST_NOTHING, .log = l     \
	}

/* One vector per line. */
/* clang-format off */
const struct st_vector st_vectors[] = {
	DENIED("a1", EMPTY, "a1.test"),
	DENIED("a1", EMPTY, "ok.test"),
	TCP("a1", EMPTY, "11.66.11.1", 443),
	TCP("a1", EMPTY, "11.1.0.5", 443),
	UDP("a1", EMPTY, "11.66.11.1", 5000),
	TCP6("a1", EMPTY, "2a00:66::a1", 443),

	DNS_("a2", BOTH, "a\\000b.a2.wild.test", 1, "nxdomain|formerr|refused", ST_NOTHING, "malformed"),
	DNS_("a2", BOTH, "a\\032b.a2.wild.test", 1, "nxdomain|formerr|refused", ST_NOTHING, "malformed"),
	DNS_("a2", BOTH, "\\027[31m.a2.wild.test", 1, "nxdomain|formerr|refused", ST_NOTHING, "malformed"),
	DNS_("a2", BOTH, "\\010.a2.wild.test", 1, "nxdomain|formerr|refused", ST_NOTHING, "malformed"),
	DNS_("a2", BOTH, "\\255\\254.a2.wild.test", 1, "nxdomain|formerr|refused", ST_NOTHING, "malformed"),
	DNS_("a2", BOTH, "\\034}.a2.wild.test", 1, "nxdomain|formerr|refused", ST_NOTHING, "malformed"),
	DNS_("a3", BOTH, "ok\\046test", 1, "nxdomain|formerr|refused", ST_NOTHING, ""),
	DNS_("a3", BOTH, "a3\\046wild.test", 1, "nxdomain|formerr|refused", ST_NOTHING, ""),
	DNS_("a3", BOTH, "a3.b\\046wild.test", 1, "nxdomain|formerr|refused", ST_NOTHING, ""),
	DENIED("a4", LIST, "evilok.test"),
	DENIED("a4", LIST, "ok.test.evil"),
	DENIED("a4", LIST, "sub.ok.test"),
	DENIED("a4", LIST, "ok.tes"),
	DENIED("a4", LIST, "a.evilwild.test"),
	DENIED("a4", LIST, "a.wild.test.evil"),
	DNS_("a4", LIST, "-ok.test", 1, "nxdomain|formerr|refused", ST_NOTHING, ""),
	DENIED("a5", LIST, "wild.test"),
	DENIED("a5", LIST, "no.wild.test"),
	DNS_("a5", LIST, "x.y.z.wild.test", 1, "answer", ST_SOMETHING, "*.wild.test"),
	TLS_OK("a5", "11.1.0.7", 8443, "port.test", ST_HELLO_PLAIN),
	TCP("a5", LIST, "11.1.0.7", 443),
	TCP("a5", LIST, "11.1.0.7", 80),
	DNS_("a6", LIST, "MiXeD.wIlD.TeSt", 1, "answer", ST_SOMETHING, ""),
	TLS_OK("a6", "11.1.0.5", 443, "oK.TEST", ST_HELLO_PLAIN),
	RAW("a7", ST_RAW_POINTER, "a7.wild.test"),
	RAW("a7", ST_RAW_LOOP, "a7.wild.test"),
	RAW("a7", ST_RAW_LONG_LABEL, "a7.wild.test"),
	RAW("a7", ST_RAW_LONG_NAME, "a7.wild.test"),
	RAW("a7", ST_RAW_CUT, "a7.wild.test"),
	RAW("a8", ST_RAW_NO_QUESTION, "a8.wild.test"),
	RAW("a8", ST_RAW_TWO, "a8.wild.test"),
	RAW("a8", ST_RAW_OPCODE, "a8.wild.test"),
	RAW("a8", ST_RAW_CLASS, "a8.wild.test"),
	RAW("a8", ST_RAW_RESPONSE, "a8.wild.test"),
	RAW("a8", ST_RAW_RECORDS, "a8.wild.test"),

	DENIED("b1", LIST, "6d79207365637265742074657874.b1.evil.test"),
	DNS_("b1", LIST, "more-secrets.b1.evil.test", 28, "nxdomain", ST_NOTHING, ""),
	DNS_("b1", LIST, "txt-secrets.b1.evil.test", 16, "nxdomain", ST_NOTHING, ""),
	{ .row = "b1", .runs = LIST, .kind = ST_DNS_TCP, .host = "tcp-secrets.b1.evil.test", .type = 1, .want = "nxdomain", .log = "" },
	{ .row = "b2", .runs = LIST, .kind = ST_CALL, .host = "*.b2.test", .type = 320, .fn = st_call_budget, .want = "limited", .far = ST_AT_MOST, .log = "budget", .within_ms = 8000 },
	DNS_("b3", LIST, "b3.test", 16, "nodata", ST_NOTHING, NULL),
	DNS_("b3", LIST, "b3.test", 10, "nodata", ST_NOTHING, NULL),
	DNS_("b3", LIST, "b3.test", 15, "nodata", ST_NOTHING, NULL),
	DNS_("b3", LIST, "b3.test", 33, "nodata", ST_NOTHING, NULL),
	DNS_("b3", LIST, "b3.test", 255, "nodata", ST_NOTHING, NULL),
	DNS_("b3", LIST, "b3.test", 65280, "nodata", ST_NOTHING, NULL),
	{ .row = "b4", .runs = BOTH, .kind = ST_CALL, .host = "b4.wild.test", .fn = st_call_loaded_query, .want = "answer", .far = ST_SOMETHING, .log = "" },
	{ .row = "b5", .runs = BOTH, .kind = ST_DNS, .host = "b5.wild.test", .type = 1, .name = "11.66.5.1", .want = "answer", .far = ST_SOMETHING, .log = "" },
	{ .row = "b5", .runs = LIST, .kind = ST_DNS, .host = "b5.evil.test", .type = 1, .name = "11.66.5.2", .want = "nxdomain", .far = ST_NOTHING, .log = "" },
	{ .row = "b5", .runs = LIST, .kind = ST_DNS_TCP, .host = "b5-tcp.evil.test", .type = 1, .name = "11.66.5.4", .want = "nxdomain", .far = ST_NOTHING, .log = "" },
	UDP("b5", LIST, "11.66.5.3", 5353),
	UDP("b5", LIST, "11.1.0.5", 5353),
	{ .row = "b6", .runs = LIST, .kind = ST_CALL, .host = "b6.evil.test", .fn = st_call_tcp_pipeline, .want = "same verdicts", .log = "" },
	{ .row = "b6", .runs = LIST, .kind = ST_CALL, .host = "b6-drip.evil.test", .fn = st_call_tcp_drip, .want = "nxdomain", .log = "" },
	{ .row = "b6", .runs = LIST, .kind = ST_CALL, .fn = st_call_tcp_huge, .want = "refused", .far = ST_UNSEEN, .within_ms = 3000 },
	{ .row = "b6", .runs = LIST, .kind = ST_CALL, .fn = st_call_tcp_idle, .want = "answer", .far = ST_UNSEEN, .within_ms = 3000 },
	TCP("b7", BOTH, "11.66.7.1", 853),
	UDP("b7", BOTH, "11.66.7.1", 853),
	TCP("b7", LIST, "11.1.0.5", 853),
	DENIED("b7", BOTH, "use-application-dns.net"),
	DENIED("b7", LIST, "dns.google"),
	{ .row = "b8", .runs = BOTH, .kind = ST_CALL, .host = "224.0.0.251", .port = 5353, .fn = st_call_multicast, .want = "sent", .log = "" },
	{ .row = "b8", .runs = BOTH, .kind = ST_CALL, .host = "239.255.255.250", .port = 1900, .fn = st_call_multicast, .want = "sent", .log = "" },
	{ .row = "b8", .runs = BOTH, .kind = ST_CALL, .host = "255.255.255.255", .port = 67, .fn = st_call_multicast, .want = "sent", .log = "" },
	{ .row = "b8", .runs = BOTH, .kind = ST_CALL, .host = "ff02::fb", .port = 5353, .fn = st_call_multicast, .want = "sent", .ipv6 = true },
	{ .row = "b9", .runs = BOTH, .kind = ST_DNS, .host = "b9.test", .type = 1, .want = "answer", .detail = "11.1.3.9", .far = ST_SOMETHING, .log = "" },
	TCP("b9", LIST, "11.66.9.1", 443),
	{ .row = "b10", .runs = BOTH, .kind = ST_DNS, .host = "b10.test", .type = 1, .want = "answer", .detail = "11.1.10.1", .far = ST_SOMETHING, .log = "" },
	TCP("b10", LIST, "11.66.10.1", 443),
	DNS_("b11", LIST, "b11.test", 1, "answer", ST_SOMETHING, ""),
	TLS_OK("b11", "11.1.11.1", 443, "b11.test", ST_HELLO_PLAIN),
	TLS_NO("b11", "11.1.11.1", "b11-target.unlisted", ST_HELLO_PLAIN, "SNI"),
	DNS_("b11", LIST, "loop.b11.test", 1, "servfail", ST_UNSEEN, NULL),
	DNS_("b11", LIST, "h0.b11.test", 1, "servfail", ST_UNSEEN, NULL),
	TCP("b11", LIST, "11.1.11.9", 443),
	DNS_("b12", BOTH, "b12.wild.test", 65, "nodata", ST_NOTHING, NULL),
	DNS_("b12", BOTH, "b12.wild.test", 64, "nodata", ST_NOTHING, NULL),
	DENIED("b14", BOTH, "metadata.google.internal"),
	DENIED("b14", BOTH, "db.internal"),
	DENIED("b14", BOTH, "printer.local"),
	DENIED("b14", BOTH, "intranet"),
	DENIED("b14", BOTH, "metadata"),
	DENIED("b14", BOTH, "localhost"),

	{ .row = "c1", .runs = LIST, .kind = ST_CALL, .host = "*.c1.test", .fn = st_call_at_once, .want = "works", .far = ST_SOMETHING, .log = "*.c1.test", .within_ms = 8000 },
	DNS_("c3", LIST, "zero.c3.test", 1, "answer", ST_SOMETHING, ""),
	DNS_("c3", LIST, "one.c3.test", 1, "answer", ST_SOMETHING, ""),
	DNS_("c3", LIST, "half.c3.test", 1, "answer", ST_SOMETHING, ""),
	DNS_("c3", LIST, "max.c3.test", 1, "answer", ST_SOMETHING, ""),
	TLS_OK("c9", "11.1.9.1", 443, "c9.test", ST_HELLO_PLAIN),
	TLS_NO("c9", "11.1.9.1", "c9-evil.test", ST_HELLO_PLAIN, "SNI"),
	TLS_NO("c9", "11.1.9.1", NULL, ST_HELLO_NONE, "TLS without a server name (SNI)"),
	TCP("c10", LIST, "11.1.9.1", 22),
	TCP("c10", LIST, "11.1.9.1", 8080),
	TCP("c10", LIST, "11.1.0.5", 8443),
	UDP("c10", LIST, "11.1.9.1", 5000),
	UDP("c10", LIST, "11.1.0.7", 8443),

	DNS_("d1", BOTH, "private.d1.test", 1, "nodata|nxdomain", ST_UNSEEN, ""),
	DNS_("d1", BOTH, "loopback.d1.test", 1, "nodata|nxdomain", ST_UNSEEN, ""),
	DNS_("d1", BOTH, "loopback.d1.test", 28, "nodata|nxdomain", ST_UNSEEN, NULL),
	DNS_("d1", BOTH, "link.d1.test", 1, "nodata|nxdomain", ST_UNSEEN, ""),
	DNS_("d1", BOTH, "link.d1.test", 28, "nodata|nxdomain", ST_UNSEEN, NULL),
	DNS_("d1", BOTH, "shared.d1.test", 1, "nodata|nxdomain", ST_UNSEEN, ""),
	DNS_("d1", BOTH, "meta.d1.test", 1, "nodata|nxdomain", ST_UNSEEN, ""),
	DNS_("d1", BOTH, "meta.d1.test", 28, "nodata|nxdomain", ST_UNSEEN, NULL),
	DNS_("d1", BOTH, "cloud.d1.test", 1, "nodata|nxdomain", ST_UNSEEN, ""),
	{ .row = "d1", .runs = BOTH, .kind = ST_DNS, .host = "mixed.d1.test", .type = 1, .want = "answer", .detail = "11.1.40.1", .far = ST_SOMETHING, .log = "" },
	DNS_("d2", BOTH, "mapped.d2.test", 28, "nodata|nxdomain", ST_UNSEEN, NULL),
	DNS_("d2", BOTH, "nat64.d2.test", 28, "nodata|nxdomain", ST_UNSEEN, NULL),
	DNS_("d2", BOTH, "6to4.d2.test", 28, "nodata|nxdomain", ST_UNSEEN, NULL),
	DNS_("d2", BOTH, "teredo.d2.test", 28, "nodata|nxdomain", ST_UNSEEN, NULL),
	DNS_("d2", BOTH, "compat.d2.test", 28, "nodata|nxdomain", ST_UNSEEN, NULL),
	TCP("d3", LIST, "11.66.3.1", 443),
	TCP("d3", LIST, "11.66.3.1", 80),
	TCP("d3", LIST, "11.66.3.1", 7),
	UDP("d3", LIST, "11.66.3.1", 5000),
	TCP("d3", BOTH, "169.254.169.254", 80),
	TCP("d3", BOTH, "169.254.170.2", 80),
	TCP("d3", BOTH, "100.100.100.200", 80),
	TCP("d3", BOTH, "168.63.129.16", 80),
	TCP("d3", BOTH, "192.0.0.192", 80),
	TCP("d3", BOTH, "10.1.2.3", 443),
	TCP("d3", BOTH, "172.16.5.5", 443),
	TCP("d3", BOTH, "192.168.7.7", 443),
	TCP("d3", BOTH, "100.64.0.10", 443),
	UDP("d3", BOTH, "10.1.2.3", 5000),
	UDP("d3", BOTH, "169.254.169.254", 5000),
	TCP6("d3", BOTH, "fd00:ec2::254", 80),
	TCP6("d3", BOTH, "fd12::1", 443),
	TCP6("d3", BOTH, "64:ff9b::a9fe:a9fe", 80),
	DENIED("d3", BOTH, "2130706433"),
	DENIED("d3", BOTH, "0x7f000001"),
	DNS_("d3", BOTH, "0177.0.0.1", 1, "nxdomain|formerr|refused", ST_NOTHING, ""),
	TCP("d4", LIST, LABNS_HOST4, ST_HOST_PORT),
	{ .row = "d4", .runs = NATIVE, .kind = ST_TCP, .host = LABNS_HOST4, .port = ST_HOST_PORT, .want = "refused|cut", .log = "" },
	TCP("d4", BOTH, LABNS_HOST_PRIVATE4, ST_HOST_PORT),
	TCP("d4", BOTH, "100.64.0.5", ST_HOST_PORT),
	{ .row = "d4", .runs = BOTH, .kind = ST_TCP, .host = "127.0.0.1", .port = ST_HOST_PORT, .want = "refused" },
	TCP6("d4", LIST, LABNS_HOST6, ST_HOST_PORT),
	{ .row = "d4", .runs = NATIVE, .kind = ST_TCP, .host = LABNS_HOST6, .port = ST_HOST_PORT, .want = "refused|cut", .log = "", .ipv6 = true },
	{ .row = "d4", .runs = BOTH, .kind = ST_CALL, .fn = st_call_unix, .want = "refused" },
	{ .row = "d4", .runs = LIST, .kind = ST_TCP, .host = "100.64.0.5", .port = ST_OPEN_PORT, .want = "works", .far = ST_UNSEEN },

	FRAMES("e1", ST_FRAMES_SPOOF4, "11.66.21.1", "spoof"),
	{ .row = "e1", .runs = BOTH, .kind = ST_FRAMES, .host = "2a00:66::21", .type = ST_FRAMES_SPOOF6, .want = "sent", .log = "spoof", .ipv6 = true },
	FRAMES("e2", ST_FRAMES_MAC, "11.66.22.1", NULL),
	FRAMES("e2", ST_FRAMES_ARP, "11.66.22.2", NULL),
	TLS_OK("e2", "11.1.0.5", 443, "ok.test", ST_HELLO_PLAIN),
	{ .row = "e3", .runs = BOTH, .kind = ST_FRAMES, .host = "255.255.255.255", .port = 68, .type = ST_FRAMES_ROGUE, .want = "sent" },
	TLS_OK("e3", "11.1.0.6", 443, "other.test", ST_HELLO_PLAIN),
	{ .row = "e3", .runs = LIST, .kind = ST_TLS, .host = "2a00:1::6", .port = 443, .name = "other.test", .want = "works", .far = ST_SOMETHING, .log = "", .ipv6 = true },
	{ .row = "e4", .runs = LIST, .kind = ST_TLS, .host = "2a00:1::5", .port = 443, .name = "ok.test", .want = "works", .far = ST_SOMETHING, .log = "", .ipv6 = true },
	{ .row = "e4", .runs = LIST, .kind = ST_TLS, .host = "2a00:1::5", .port = 443, .name = "e4-evil.test", .want = "refused", .log = "SNI", .ipv6 = true },
	{ .row = "e4", .runs = LIST, .kind = ST_TLS, .host = "2a00:1::6", .port = 443, .name = "ok.test", .want = "refused", .log = "SNI", .ipv6 = true },
	TCP6("e4", LIST, "2a00:66::4", 443),
	TCP6("e4", LIST, "2a00:1::5", 22),
	TCP6("e4", BOTH, "2a00:66::4", 853),
	FRAMES("e5", ST_FRAMES_ETHER, "11.66.25.1", NULL),
	FRAMES("e6", ST_FRAMES_FRAGMENTS, "11.66.26.1", "protocol"),
	FRAMES("e7", ST_FRAMES_OPTIONS, "11.66.27.1", "protocol"),
	{ .row = "e7", .runs = BOTH, .kind = ST_FRAMES, .host = "2a00:66::27", .type = ST_FRAMES_EXTENSIONS, .want = "sent", .log = "protocol", .ipv6 = true },
	FRAMES("e8", ST_FRAMES_PROTOCOLS, "11.66.28.1", "protocol"),
	{ .row = "e8", .runs = BOTH, .kind = ST_CALL, .name = "raw", .fn = st_call_sockets, .want = "refused", .far = ST_UNSEEN },
	FRAMES("e9", ST_FRAMES_ICMP, "11.66.29.1", "protocol"),

	TLS_NO("f1", "11.1.0.6", "ok.test", ST_HELLO_PLAIN, "SNI is not a name of this address"),
	TLS_NO("f1", "11.1.0.5", "other.test", ST_HELLO_PLAIN, "SNI is not a name of this address"),
	{ .row = "f2", .runs = LIST, .kind = ST_HTTP, .host = "11.1.0.5", .port = 80, .name = "ok.test", .want = "works", .far = ST_SOMETHING, .log = "" },
	{ .row = "f2", .runs = LIST, .kind = ST_HTTP, .host = "11.1.0.5", .port = 80, .name = "f2-evil.test", .want = "refused", .log = "Host" },
	{ .row = "f2", .runs = LIST, .kind = ST_HTTP, .host = "11.1.0.5", .port = 80, .name = "other.test", .want = "refused", .log = "Host" },
	{ .row = "f2", .runs = LIST, .kind = ST_HTTP, .host = "11.1.0.5", .port = 80, .name = "169.254.169.254", .want = "refused", .log = "" },
	TLS_NO("f3", "11.1.0.6", NULL, ST_HELLO_NONE, "TLS without a server name (SNI)"),
	TLS_NO("f3", "11.1.0.6", "f3-outer.test", ST_HELLO_ECH, "SNI"),
	TLS_OK("f3", "11.1.0.6", 443, "other.test", ST_HELLO_GREASE),
	TLS_NO("f3", "11.1.0.6", NULL, ST_HELLO_SSL2, ""),
	TLS_NO("f3", "11.1.0.6", NULL, ST_HELLO_GARBAGE, ""),
	TLS_OK("f4", "11.1.0.5", 443, "Ok.tesT", ST_HELLO_DRIPPED),
	TLS_OK("f4", "11.1.0.5", 443, "oK.Test", ST_HELLO_RECORDS),
	TLS_OK("f4", "11.1.0.5", 443, "OK.test", ST_HELLO_BIG),
	TLS_NO("f4", "11.1.0.5", "f4-drip.test", ST_HELLO_DRIPPED, "SNI"),
	TLS_NO("f4", "11.1.0.5", "f4-records.test", ST_HELLO_RECORDS, "SNI"),
	TLS_NO("f4", "11.1.0.5", "f4-big.test", ST_HELLO_BIG, "SNI"),
	{ .row = "f5", .runs = LIST, .kind = ST_UDP, .host = "11.1.0.5", .port = 443, .want = "refused", .log = "", .within_ms = 300 },
	{ .row = "f6", .runs = LIST, .kind = ST_TCP, .host = "11.1.0.8", .port = 22, .want = "works", .far = ST_SOMETHING, .log = "" },
	TCP("f6", LIST, "11.1.0.8", 443),
	{ .row = "f7", .runs = LIST, .kind = ST_HTTP, .host = "11.1.0.6", .port = 80, .name = "other.test", .detail = "f7-evil.test", .want = "refused", .log = "Host" },
	{ .row = "f7", .runs = LIST, .kind = ST_HTTP, .host = "11.1.0.6", .port = 80, .name = "other.test", .detail = "Other.test", .want = "works", .far = ST_SOMETHING, .log = "" },

	{ .row = "g1", .runs = LIST, .kind = ST_CALL, .host = "11.66.31.1", .port = 5000, .fn = st_call_sendmmsg, .want = "refused", .log = "" },
	{ .row = "g1", .runs = BOTH, .kind = ST_CALL, .host = "10.1.31.1", .port = 5000, .fn = st_call_sendmmsg, .want = "refused", .log = "" },
	CALL("g1", BOTH, st_call_io_uring, "refused"),
	CALL("g2", BOTH, st_call_mark, "refused"),
	CALL("g2", BOTH, st_call_route, "refused"),
	CALL("g2", BOTH, st_call_nested, "refused"),
	CALL("g3", BOTH, st_call_descriptors, "none"),
	CALL("g3", BOTH, st_call_processes, "none"),
	CALL("g3", BOTH, st_call_power, "none"),
	CALL("g4", BOTH, st_call_filter, "filtered"),
	CALL("g4", BOTH, st_call_syscalls, "refused"),
	CALL("g4", BOTH, st_call_sockets, "refused"),
	CALL("g8", BOTH, st_call_records, "none"),
	CALL("h2", BOTH, st_call_set_ids, "refused"),
	CALL("h6", BOTH, st_call_nesting, "refused"),
	CALL("h6", BOTH, st_call_odd_sockets, "refused"),
	{ .row = "h9", .runs = NATIVE, .kind = ST_TLS, .host = "11.66.32.1", .port = 443, .name = "h9-evil.test", .type = ST_HELLO_BIG, .want = "refused", .log = "denied" },
	{ .row = "h9", .runs = NATIVE, .kind = ST_TLS, .host = "11.66.32.1", .port = 443, .type = ST_HELLO_GARBAGE, .want = "refused", .log = "not TLS" },
	{ .row = "h9", .runs = NATIVE, .kind = ST_TLS, .host = "11.66.32.1", .port = 443, .type = ST_HELLO_SSL2, .want = "refused", .log = "SSLv2" },
	{ .row = "h9", .runs = NATIVE, .kind = ST_UDP, .host = "11.66.32.1", .port = 443, .want = "refused", .log = "QUIC", .within_ms = 300 },
	{ .row = "h9", .runs = NATIVE, .kind = ST_TLS, .host = "11.1.0.6", .port = 443, .name = "Other.test", .type = ST_HELLO_BIG, .want = "works", .far = ST_SOMETHING, .log = "" },
	CALL("h17", BOTH, st_call_left_behind, "refused"),
	CALL("h27", BOTH, st_call_words, "none"),
	{ .row = "inv6", .runs = BOTH, .kind = ST_GATEWAY, .want = "confined", .far = ST_UNSEEN },
	{ .row = "g6", .runs = DEAD, .kind = ST_TCP, .host = "11.1.60.1", .port = 7, .want = "works", .far = ST_SOMETHING },
	{ .row = "g6", .runs = DEAD, .kind = ST_GATEWAY, .type = 1, .want = "killed", .far = ST_UNSEEN },
	{ .row = "g6", .runs = DEAD, .kind = ST_TCP, .host = "11.66.60.1", .port = 7, .want = "refused|cut|timeout", .within_ms = 3000 },
	{ .row = "g6", .runs = DEAD, .kind = ST_UDP, .host = "11.66.60.1", .port = 7, .want = "refused|cut|timeout", .within_ms = 3000 },
	{ .row = NULL },
};
/* clang-format on */
