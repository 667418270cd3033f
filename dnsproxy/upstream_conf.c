/* The list of servers: "1.2.3.4:53,[2001:db8::1]:53,[fe80::1%eth0]:53". */
#include "dnsproxy/upstream_internal.h"

#include "gateway/base/cleanup.h"

#include <net/if.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#define SERVER_TEXT 96

static int parse_port(const char *text, uint16_t *ret)
{
	char *end;
	unsigned long port = strtoul(text, &end, 10);

	if (*text < '0' || *text > '9' || *end || port == 0 || port > UINT16_MAX)
		return -EINVAL;
	*ret = (uint16_t)port;
	return 0;
}

/* Split "ADDRESS:PORT" or "[ADDRESS%LINK]:PORT" in place. */
static int cut(char *text, char **ret_addr, char **ret_scope, uint16_t *ret_port)
{
	char *end = *text == '[' ? strchr(text, ']') : strchr(text, ':');
	char *colon = end && *text == '[' ? end + 1 : end;

	if (!end || *colon != ':')
		return -EINVAL;
	*ret_addr = text + (*text == '[');
	*end = '\0';
	*ret_scope = strchr(*ret_addr, '%');
	if (*ret_scope)
		*(*ret_scope)++ = '\0';
	return parse_port(colon + 1, ret_port);
}

static int parse_server(char *text, struct dns_server *ret)
{
	char *addr_text, *scope;
	struct ak_addr addr;
	uint16_t port;

	if (cut(text, &addr_text, &scope, &port) < 0 || ak_addr_parse(addr_text, &addr) < 0)
		return -EINVAL;
	ret->len = ak_addr_to_sockaddr(&addr, port, &ret->addr);
	if (!scope)
		return 0;
	if (addr.family != AF_INET6)
		return -EINVAL;
	((struct sockaddr_in6 *)&ret->addr)->sin6_scope_id = if_nametoindex(scope);
	return 0; /* an unknown link is no error: the server will not answer, and the others are tried */
}

int dns_servers_parse(const char *csv, struct dns_servers **ret, struct ak_err *err)
{
	_cleanup_free_ struct dns_servers *s = calloc(1, sizeof(*s));

	if (!s)
		return ak_fail(err, ENOMEM, "out of memory");
	if (!csv || !*csv)
		return ak_fail(err, EINVAL, "no upstream DNS resolver configured");
	for (const char *at = csv; *at && s->n < DNS_UPSTREAM_SERVERS_MAX;) {
		size_t len = strcspn(at, ",");
		char text[SERVER_TEXT];

		if (len >= sizeof(text))
			return ak_fail(err, EINVAL, "upstream resolvers '%s': not addresses with ports", csv);
		memcpy(text, at, len);
		text[len] = '\0';
		if (parse_server(text, &s->at[s->n++]) < 0)
			return ak_fail(err, EINVAL, "upstream resolvers '%s': not addresses with ports", csv);
		at += len;
		at += *at == ',';
	}
	s->refs = 1;
	*ret = TAKE(s);
	return 0;
}

struct dns_servers *dns_servers_ref(struct dns_servers *s)
{
	s->refs++;
	return s;
}

void dns_servers_unref(struct dns_servers *s)
{
	if (s && --s->refs == 0)
		free(s);
}
