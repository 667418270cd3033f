/*
 * Parsers for host names, host patterns, CIDRs and the targets of `network check`.
 *
 * A pattern is [*.]host[:port[/proto]]. The defaults are set here: in allow, `host` means tcp 443 and 80 and `host:443`
 * means tcp. A deny without a protocol covers tcp and udp, so that a rule meant to block a host does not leave QUIC
 * open.
 */
#include "gateway/base/cleanup.h"
#include "policies/internal.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

#define SHOWN_MAX 112 /* how much of a wrong value an error message repeats */

/* ---- names ---- */

static bool is_name_char(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

/* inet_aton takes "127.1", "2130706433" and "0x7f.1" for addresses: they end in a number, and no real name does. */
static bool ends_in_number(const char *host, size_t len)
{
	const char *last = memrchr(host, '.', len);
	size_t n;

	last = last ? last + 1 : host;
	n = len - (size_t)(last - host);
	if (n >= 2 && last[0] == '0' && (last[1] == 'x' || last[1] == 'X')) {
		size_t i = 2;

		while (i < n && isxdigit((unsigned char)last[i]))
			i++;
		return i == n;
	}
	for (size_t i = 0; i < n; i++) {
		if (!isdigit((unsigned char)last[i]))
			return false;
	}
	return n > 0;
}

/* Return NULL if HOST is a valid name, else a description of the fault. */
static const char *name_fault(const char *host, size_t len)
{
	size_t label = 0;

	if (len == 0)
		return "empty host name";
	if (len >= POLICY_NAME_MAX)
		return "host name longer than 253 octets";
	for (size_t i = 0; i < len; i++) {
		if (host[i] == '.') {
			if (label == 0)
				return "empty label";
			label = 0;
			continue;
		}
		if (!is_name_char(host[i]))
			return "only letters, digits, '-' and '_' are allowed in a label";
		if (++label > POLICY_LABEL_MAX)
			return "label longer than 63 octets";
	}
	if (label == 0)
		return "empty label";
	if (ends_in_number(host, len))
		return "an address, not a host name";
	return NULL;
}

bool policy_name_ok(const char *text)
{
	return !name_fault(text, strnlen(text, POLICY_NAME_MAX));
}

bool policy_word_ok(const char *text)
{
	size_t len = strnlen(text, 64);

	if (len == 0 || len > 63 || !isalnum((unsigned char)text[0]) || !isalnum((unsigned char)text[len - 1]))
		return false;
	for (size_t i = 0; i < len; i++) {
		if (!isalnum((unsigned char)text[i]) && text[i] != '-' && text[i] != '_')
			return false;
	}
	return true;
}

/* ---- parsing "host:port/proto" ---- */

struct parts {
	char host[2 * POLICY_NAME_MAX]; /* lower case, no trailing dot, still with "*." */
	size_t host_len;
	uint16_t port; /* 0: none */
	uint8_t proto; /* RULE_ANY: none */
	bool bracketed; /* [v6] */
};

static int parse_port(const char *text, size_t len, uint16_t *ret, struct ak_err *err)
{
	unsigned long port = 0;

	for (size_t i = 0; i < len; i++) {
		if (!isdigit((unsigned char)text[i]))
			return ak_fail(err, EINVAL, "port '%.*s' is not a number", (int)(len > 20 ? 20 : len), text);
		if (port <= 65535)
			port = port * 10 + (unsigned long)(text[i] - '0');
	}
	if (len == 0)
		return ak_fail(err, EINVAL, "no port after ':'");
	if (port < 1 || port > 65535)
		return ak_fail(err, EINVAL, "port %.*s out of range (1 to 65535)", (int)(len > 20 ? 20 : len), text);
	*ret = (uint16_t)port;
	return 0;
}

/*
 * Escape TEXT for an error message: everything but printable ASCII becomes \xNN, so that look-alike characters are visible
 * and no bidirectional or terminal control sequence gets through.
 */
static const char *shown(const char *text, char buf[static SHOWN_MAX])
{
	size_t n = 0;

	for (const unsigned char *c = (const unsigned char *)text; *c && n + 5 < SHOWN_MAX; c++) {
		if (*c < ' ' || *c >= 0x7f)
			n += (size_t)snprintf(buf + n, SHOWN_MAX - n, "\\x%02x", *c);
		else
			buf[n++] = (char)*c;
	}
	buf[n] = '\0';
	return buf;
}

static int about(struct ak_err *err, int rc, const char *text)
{
	char buf[SHOWN_MAX];

	return ak_err_prefix(err, rc, "'%s'", shown(text, buf));
}

static int parse_proto(const char *text, uint8_t *ret, struct ak_err *err)
{
	if (!strcasecmp(text, "tcp"))
		*ret = RULE_TCP;
	else if (!strcasecmp(text, "udp"))
		*ret = RULE_UDP;
	else
		return ak_fail(err, EINVAL, "protocol '%.20s' is neither tcp nor udp", text);
	return 0;
}

static const char *proto_name(uint8_t proto)
{
	return proto == RULE_UDP ? "udp" : "tcp";
}

static int check_text(const char *text, struct ak_err *err)
{
	if (strstr(text, "://"))
		return ak_fail(err, EINVAL, "write a host name, not a URL");
	for (const char *c = text; *c; c++) {
		if ((unsigned char)*c >= 0x80)
			return ak_fail(err, EINVAL, "not ASCII: write the name's A-label form (xn--…), as `idn2` prints it");
		if ((unsigned char)*c <= ' ' || *c == 0x7f)
			return ak_fail(err, EINVAL, "white space or control character in a host name");
	}
	return 0;
}

static void lower_host(const char *text, size_t len, struct parts *ret)
{
	if (len > 1 && text[len - 1] == '.')
		len--;
	if (len >= sizeof(ret->host))
		len = sizeof(ret->host) - 1; /* still longer than a valid name */
	for (size_t i = 0; i < len; i++)
		ret->host[i] = (char)tolower((unsigned char)text[i]);
	ret->host[len] = '\0';
	ret->host_len = len;
}

static int split(const char *text, struct parts *ret, struct ak_err *err)
{
	const char *slash, *end, *colon, *host = text;
	struct ak_addr addr;
	int rc = check_text(text, err);

	if (rc < 0)
		return rc;
	*ret = (struct parts){ .proto = RULE_ANY };
	slash = strchr(text, '/');
	if (slash) {
		rc = parse_proto(slash + 1, &ret->proto, err);
		if (rc < 0)
			return rc;
	}
	end = slash ? slash : text + strlen(text);
	if (*text == '[') {
		const char *close = memchr(text, ']', (size_t)(end - text));

		if (!close)
			return ak_fail(err, EINVAL, "'[' without ']'");
		ret->bracketed = true;
		host = text + 1;
		lower_host(host, (size_t)(close - host), ret);
		if (close + 1 == end)
			return 0;
		if (close[1] != ':')
			return ak_fail(err, EINVAL, "only a port may follow ']'");
		return parse_port(close + 2, (size_t)(end - close - 2), &ret->port, err);
	}
	colon = memchr(text, ':', (size_t)(end - text));
	lower_host(text, (size_t)((colon ? colon : end) - text), ret);
	if (!colon)
		return 0;
	if (memchr(colon + 1, ':', (size_t)(end - colon - 1))) {
		/* Without brackets an IPv6 address cannot have a port. */
		lower_host(text, (size_t)(end - text), ret);
		return ak_addr_parse(ret->host, &addr) < 0 ? ak_fail(err, EINVAL, "more than one ':'") : 0;
	}
	return parse_port(colon + 1, (size_t)(end - colon - 1), &ret->port, err);
}

/* ---- patterns ---- */

static bool is_second_level_suffix(const char *label, size_t len)
{
	static const char *const known[] = { "ac", "co", "com", "edu", "gov", "net", "org" };

	for (size_t i = 0; i < ARRAY_SIZE(known); i++) {
		if (strlen(known[i]) == len && !memcmp(known[i], label, len))
			return true;
	}
	return false;
}

/* A suffix under which registries sell names: a top-level domain, or "co.uk" and similar. */
static bool is_public_suffix(const char *host)
{
	const char *dot = strchr(host, '.');

	if (!dot)
		return true;
	return strlen(dot + 1) == 2 && is_second_level_suffix(host, (size_t)(dot - host));
}

static int check_labels(const char *host, struct ak_err *err)
{
	const char *fault = name_fault(host, strlen(host));

	if (fault)
		return ak_fail(err, EINVAL, "%s", fault);
	for (const char *label = host; label; label = strchr(label, '.')) {
		size_t n;

		label += *label == '.';
		n = strcspn(label, ".");
		if (label[0] == '-' || label[n - 1] == '-')
			return ak_fail(err, EINVAL, "a label may not start or end with '-'");
	}
	return 0;
}

static int check_pattern(const struct parts *parts, bool allow, bool wild, const char *host, struct ak_err *err)
{
	struct ak_addr addr;
	int rc;

	if (parts->proto != RULE_ANY && !parts->port)
		return ak_fail(
			err, EINVAL, "a protocol needs a port, as in '%.60s:443/%s'", parts->host, proto_name(parts->proto));
	if (!strcmp(parts->host, "*"))
		return allow ? ak_fail(err, EINVAL,
				       "every host is not a rule: use \"default\": \"allow\" in a file, or the mode native")
			     : 0;
	if (parts->bracketed || ak_addr_parse(host, &addr) == 0 || ends_in_number(host, strlen(host)))
		return ak_fail(err, EINVAL, "an address, not a host name: use %s",
			allow ? "allow_cidr (--allow-cidr)" : "deny_cidr (--block-cidr)");
	if (strchr(host, '*'))
		return ak_fail(err, EINVAL, "'*' is only allowed at the start, as in '*.example.com'");
	rc = check_labels(host, err);
	if (rc < 0)
		return rc;
	if (wild && is_public_suffix(host))
		return ak_fail(err, EINVAL, "wildcard over a public suffix: name the domain, as in '*.example.%.60s'", host);
	if (allow && !wild && !strcmp(host, POLICY_HOST_NAME) && !parts->port)
		return ak_fail(
			err, EINVAL, "a service on the host needs a port: add the port, as in '%s:8080'", POLICY_HOST_NAME);
	return 0;
}

static int pattern_text(const struct parts *parts, struct arena *arena, const char **ret)
{
	char buf[sizeof(parts->host) + 16];
	int n = snprintf(buf, sizeof(buf), "%s", parts->host);

	if (parts->port)
		n += snprintf(buf + n, sizeof(buf) - (size_t)n, ":%u", parts->port);
	if (parts->proto != RULE_ANY)
		n += snprintf(buf + n, sizeof(buf) - (size_t)n, "/%s", proto_name(parts->proto));
	*ret = arena_copy(arena, buf, (size_t)n);
	return *ret ? 0 : -ENOMEM;
}

int pattern_parse(const char *text, bool allow, struct arena *arena, struct host_rule *ret, struct ak_err *err)
{
	struct parts parts;
	bool wild, root;
	int rc = split(text, &parts, err);

	if (rc < 0)
		return about(err, rc, text);
	root = !strcmp(parts.host, "*");
	wild = root || !strncmp(parts.host, "*.", 2);
	rc = check_pattern(&parts, allow, wild, parts.host + (wild && !root ? 2 : 0), err);
	if (rc < 0)
		return about(err, rc, text);
	rc = pattern_text(&parts, arena, &ret->text);
	if (rc < 0)
		return ak_fail(err, ENOMEM, "out of memory");
	ret->host = root ? "" : ret->text + (wild ? 2 : 0);
	ret->host_len = (uint16_t)(root ? 0 : parts.host_len - (wild ? 2 : 0));
	ret->port = parts.port;
	ret->proto = parts.proto == RULE_ANY && allow ? RULE_TCP : parts.proto;
	ret->wild = wild;
	ret->allow = allow;
	return 0;
}

/* ---- CIDRs ---- */

static void mask_addr(struct ak_addr *a, unsigned len)
{
	for (unsigned i = 0; i < 16; i++) {
		unsigned keep = len > 8 * i ? len - 8 * i : 0;

		if (keep < 8)
			a->bytes[i] &= (uint8_t)(0xff00u >> keep);
	}
}

static int parse_prefix_len(const char *text, unsigned bits, unsigned *ret, struct ak_err *err)
{
	size_t n = strspn(text, "0123456789");
	char buf[SHOWN_MAX];
	unsigned len = 0;

	if (n == 0 || n > 3 || text[n] || (n > 1 && text[0] == '0'))
		return ak_fail(err, EINVAL, "prefix length '%.40s' is not a number", shown(text, buf));
	for (size_t i = 0; i < n; i++)
		len = len * 10 + (unsigned)(text[i] - '0');
	if (len > bits)
		return ak_fail(err, EINVAL, "prefix length %u is more than %u", len, bits);
	*ret = len;
	return 0;
}

static int cidr_read(const char *text, struct ak_addr *ret_net, unsigned *ret_len, struct ak_err *err)
{
	const char *slash = strchr(text, '/');
	size_t n = slash ? (size_t)(slash - text) : strlen(text);
	char buf[AK_ADDR_TEXT], fixed[AK_ADDR_TEXT];
	struct ak_addr net, masked, v4;
	unsigned len;
	int rc;

	if (n >= sizeof(buf))
		return ak_fail(err, EINVAL, "not an address");
	memcpy(buf, text, n);
	buf[n] = '\0';
	if (ak_addr_parse(buf, &net) < 0)
		return ak_fail(err, EINVAL, "not an address: write one such as 10.1.0.0/16 or fd12::/64");
	len = ak_addr_bits(&net);
	rc = slash ? parse_prefix_len(slash + 1, len, &len, err) : 0;
	if (rc < 0)
		return rc;
	masked = net;
	mask_addr(&masked, len);
	if (!ak_addr_eq(&masked, &net))
		return ak_fail(err, EINVAL, "host bits set: write %s/%u", ak_addr_print(&masked, fixed), len);
	if (len >= 96 && net.bytes[10] == 0xff && net.bytes[11] == 0xff && ak_addr_embedded_v4(&net, &v4))
		return ak_fail(err, EINVAL, "an IPv4-mapped IPv6 address: write %s/%u", ak_addr_print(&v4, fixed), len - 96);
	*ret_net = net;
	*ret_len = len;
	return 0;
}

int cidr_parse(const char *text, struct ak_addr *ret_net, uint8_t *ret_len, struct ak_err *err)
{
	unsigned len = 0;
	int rc = cidr_read(text, ret_net, &len, err);

	if (rc < 0)
		return about(err, rc, text);
	*ret_len = (uint8_t)len;
	return 0;
}

/* ---- targets ---- */

static int target_read(const char *text, struct policy_target *ret, struct ak_err *err)
{
	struct policy_target t = { .proto = POLICY_TCP, .port = 443 };
	struct parts parts;
	const char *fault;
	int rc = split(text, &parts, err);

	if (rc < 0)
		return rc;
	if (parts.port)
		t.port = parts.port;
	if (parts.proto == RULE_UDP)
		t.proto = POLICY_UDP;
	if (ak_addr_parse(parts.host, &t.addr) == 0) {
		if (parts.bracketed && t.addr.family != AF_INET6)
			return ak_fail(err, EINVAL, "only IPv6 addresses may be in brackets");
		*ret = t;
		return 0;
	}
	if (parts.bracketed)
		return ak_fail(err, EINVAL, "not an IPv6 address in brackets");
	fault = name_fault(parts.host, parts.host_len);
	if (fault && ends_in_number(parts.host, parts.host_len))
		fault = "neither a host name nor an IPv4 address of four decimal parts";
	if (fault)
		return ak_fail(err, EINVAL, "%s", fault);
	memcpy(t.host, parts.host, parts.host_len + 1);
	*ret = t;
	return 0;
}

int policy_target_parse(const char *text, struct policy_target *ret, struct ak_err *err)
{
	int rc = target_read(text, ret, err);

	return rc < 0 ? about(err, rc, text) : 0;
}
