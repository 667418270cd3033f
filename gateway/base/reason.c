/* The words of reasons: see base/reason.h. */
#include "gateway/base/reason.h"

#include "gateway/base/cleanup.h"

#include <assert.h>
#include <string.h>

static const char *const texts[] = {
	[NET_REASON_NONE] = "",
	[NET_REASON_OTHER] = "other",
	[NET_REASON_DEFAULT] = "not in allowlist",
	[NET_REASON_ADDRESS] = "no allowed name has this address",
	[NET_REASON_RULE] = "denied by rule",
	[NET_REASON_SNI_DENIED] = "SNI not allowed here",
	[NET_REASON_HOST_DENIED] = "Host not allowed here",
	[NET_REASON_SNI_UNBOUND] = "SNI is not a name of this address",
	[NET_REASON_HOST_UNBOUND] = "Host is not a name of this address",
	[NET_REASON_NO_SNI] = "TLS without a server name (SNI)",
	[NET_REASON_NO_HOST] = "HTTP without a Host header",
	[NET_REASON_NAME_DENIED] = "name denied",
	[NET_REASON_PORT] = "not allowed on this port",
	[NET_REASON_HOST_SERVICE] = "a service of the host",
	[NET_REASON_LITERAL] = "an address in place of a name",
	[NET_REASON_HOST_ADDRESS] = "an address of the host itself",
	[NET_REASON_BAD_NAME] = "malformed name",
	[NET_REASON_BAD_BODY] = "malformed request body",
	[NET_REASON_STRAY_BODY] = "body of a request that should have none",
	[NET_REASON_CLOSED_NAMELESS] = "closed before it gave a name",
	[NET_REASON_ENDED_NAMELESS] = "ended before it gave a name",
	[NET_REASON_PEEK_TIMEOUT] = "gave no name in time",
	[NET_REASON_METADATA] = "cloud metadata",
	[NET_REASON_LOOPBACK] = "loopback address",
	[NET_REASON_LINK_LOCAL] = "link-local address",
	[NET_REASON_PRIVATE] = "private address",
	[NET_REASON_MULTICAST] = "multicast or broadcast",
	[NET_REASON_RESERVED] = "not a public address",
	[NET_REASON_INTERNAL] = "internal name",
	[NET_REASON_RESOLVER] = "encrypted-DNS resolver",
	[NET_REASON_UNREAD] = "QUIC: its name is not read, and names are denied",
	[NET_REASON_WITHHELD] = "record type withheld",
	[NET_REASON_DNS_BUDGET] = "DNS budget exceeded",
	[NET_REASON_FILTERED] = "answers in blocked ranges",
	[NET_REASON_BAD_QUERY] = "malformed query",
	[NET_REASON_UNRECORDED] = "log cannot be written",
	[NET_REASON_REVOKED] = "cut by a policy change",
	[NET_REASON_LIMIT] = "policy limit reached",
	[NET_REASON_TIMEOUT] = "timed out",
	[NET_REASON_RESET] = "reset",
	[NET_REASON_STOPPED] = "sandbox ended",
	[NET_REASON_SPOOF] = "spoofed source address",
	[NET_REASON_DOT] = "DNS only through the gateway",
	[NET_REASON_FRAGMENT] = "fragments and IP options may not pass",
	[NET_REASON_PROTOCOL] = "only TCP and UDP may pass",
	[NET_REASON_FLOOD] = "far more questions than the policy allows",
	[NET_REASON_FRAME] = "not a plain IPv4 or IPv6 frame of this sandbox",
	[NET_REASON_MORE] = "more of the same than were logged",
	[NET_REASON_UPSTREAM] = "resolver failed",
	[NET_REASON_UNLEARNED] = "kernel did not acknowledge the addresses",
	[NET_REASON_FORGED] = "forged answers",
	[NET_REASON_UNREACHABLE] = "destination unreachable",
	[NET_REASON_PUBLISH_CLOSED] = "nothing listens on this port inside",
	[NET_REASON_PUBLISH_LIMIT] = "limit of published ports reached",
	[NET_REASON_EVICTED] = "too many learned addresses: the oldest went",
	[NET_REASON_DISK_FULL] = "disk full",
	[NET_REASON_FILE_TOO_LARGE] = "file too large",
	[NET_REASON_IO_ERROR] = "input/output error",
	[NET_REASON_NO_MEMORY] = "out of memory",
	[NET_REASON_CANNOT_WRITE] = "cannot write",
	[NET_REASON_LOG_TOO_LONG] = "the log was too long",
};
static_assert(ARRAY_SIZE(texts) == NET_REASON_NUM, "words for each reason");

const char *net_reason_text(enum net_reason reason)
{
	return texts[reason];
}

enum net_reason net_reason_of(const char *text)
{
	for (enum net_reason i = 0; i < NET_REASON_NUM; i++) {
		if (!strcmp(texts[i], text ? text : ""))
			return i;
	}
	return NET_REASON_OTHER;
}
