/*
 * Extracts the name that a flow gives, from its ClientHello or its HTTP requests, before the bytes are forwarded.
 *
 * If an allowlist is in force (route NAMED), or on ports 80 and 443 while a rule denies names there, data that cannot be parsed
 * cuts the flow: it could hide a denied name. Otherwise it passes. A flow that parses and has no name is judged by its
 * address: denied names are never resolved, so no address was learned for them.
 */
#include "gateway/relay/flow.h"

#include "gateway/base/io.h"
#include "gateway/wire/tls_hello.h"

#include <stdlib.h>
#include <string.h>

#define NAMES_PAST 8

static bool is_strict(const struct relay_tcp *t)
{
	return t->must_read || t->flow.route == RELAY_ROUTE_NAMED;
}

static enum relay_look cut(struct relay_tcp *t, enum net_reason reason, const char *why)
{
	t->flow.decision = (struct policy_decision){ .reason = POLICY_REASON_DEFAULT, .policy = "default", .rule = "" };
	relay_flow_deny(&t->flow, reason, why);
	return RELAY_LOOK_CUT;
}

/* Inspection is complete: forward all buffered bytes and everything that follows. */
static enum relay_look pass_all(struct relay_tcp *t)
{
	t->inspect = RELAY_INSPECT_OFF;
	t->out.ready = t->out.len;
	return RELAY_LOOK_PASS;
}

/* Forward data that cannot be parsed. Remember it, because a later policy may not allow it. */
static enum relay_look pass_unread(struct relay_tcp *t)
{
	t->unread = true;
	return pass_all(t);
}

/* An address, or one in brackets (RFC 3986 section 3.2.2). */
static bool is_literal(const char *raw)
{
	char inner[AK_ADDR_TEXT];
	struct ak_addr addr;
	size_t len = strlen(raw);

	if (raw[0] != '[')
		return ak_addr_parse(raw, &addr) == 0;
	if (len < 2 || raw[len - 1] != ']' || len - 2 >= sizeof(inner))
		return false;
	memcpy(inner, raw + 1, len - 2);
	inner[len - 2] = '\0';
	return ak_addr_parse(inner, &addr) == 0 && addr.family == AF_INET6;
}

/* RAW is not a host name. */
static enum relay_look judge_odd_name(struct relay_tcp *t, const char *raw)
{
	bool is_addr = is_literal(raw);

	if (t->flow.route == RELAY_ROUTE_NAMED && is_addr)
		return cut(t, NET_REASON_LITERAL, NULL);
	if (is_strict(t) && !is_addr)
		return cut(t, NET_REASON_BAD_NAME, NULL);
	t->unread |= !is_addr;
	return RELAY_LOOK_PASS;
}

/* ---- admitted names ---- */

/*
 * Connections carry hundreds of requests for a few hosts, so a verdict is reused until the policy changes. The flow holds the
 * last name, with its details for the log; this table holds the previous ones.
 */
struct relay_names {
	struct let_in {
		char *raw; /* owned: as sent by the flow, or NULL */
		struct policy_decision decision;
		struct learned_name *name; /* owned reference, or NULL */
	} past[NAMES_PAST];
	unsigned at; /* the next slot to replace */
};

static void let_in_done(struct let_in *p)
{
	free(p->raw);
	learned_name_unref(p->name);
	*p = (struct let_in){ 0 };
}

void relay_names_forget(struct relay_tcp *t)
{
	for (size_t i = 0; t->names && i < NAMES_PAST; i++)
		let_in_done(&t->names->past[i]);
	free(t->names);
	t->names = NULL;
}

/* Swap the flow's last name with P. */
static void names_swap(struct relay_flow *f, struct let_in *p)
{
	struct let_in last = { f->sni, f->decision, f->name };

	f->sni = p->raw;
	f->decision = p->decision;
	f->name = p->name;
	*p = last;
}

/* Was RAW admitted before? If so, make it the flow's last name. */
static bool names_find(struct relay_tcp *t, const char *raw)
{
	struct relay_flow *f = &t->flow;

	if (!t->requests || !f->sni || !f->decision.allow)
		return false;
	if (strcmp(f->sni, raw) == 0)
		return true;
	for (size_t i = 0; t->names && i < NAMES_PAST; i++) {
		struct let_in *p = &t->names->past[i];

		if (p->raw && strcmp(p->raw, raw) == 0) {
			names_swap(f, p);
			f->reason = NET_REASON_NONE;
			f->detail = NULL;
			return true;
		}
	}
	return false;
}

/* Before another name replaces it, keep the last one if it was admitted. Without memory, it is only judged again. */
static void names_keep(struct relay_tcp *t)
{
	struct relay_flow *f = &t->flow;
	struct let_in *p;

	if (!t->requests || !f->sni || !f->decision.allow)
		return;
	if (!t->names)
		t->names = calloc(1, sizeof(*t->names));
	if (!t->names)
		return;
	p = &t->names->past[t->names->at++ % NAMES_PAST];
	let_in_done(p);
	*p = (struct let_in){ f->sni, f->decision, learned_name_ref(f->name) };
	f->sni = NULL;
}

/* Judge RAW, a name that the flow gave. */
static enum relay_look judge_name(struct relay_tcp *t, const char *raw)
{
	struct relay_flow *f = &t->flow;
	char name[POLICY_NAME_MAX];
	struct relay_verdict v;

	if (names_find(t, raw))
		return RELAY_LOOK_PASS;
	names_keep(t);
	free(f->sni);
	f->sni = strdup(raw);
	if (!f->sni)
		return cut(t, NET_REASON_NO_MEMORY, NULL);
	if (!relay_name_canon(raw, name))
		return judge_odd_name(t, raw);
	relay_judge_named(f->sb, f->route, &f->target, name, f->name, ak_now_ms(), &v);
	relay_flow_judged(f, &v);
	f->end = RELAY_END_DENIED; /* overwritten when a flow that passes ends */
	return v.allow ? RELAY_LOOK_PASS : RELAY_LOOK_CUT;
}

/* ---- TLS ---- */

static enum relay_look look_tls(struct relay_tcp *t)
{
	struct tls_hello hello;

	switch (tls_hello_read(&t->hello, t->out.buf, t->out.len, &hello)) {
	case TLS_HELLO_MORE:
		return RELAY_LOOK_MORE;
	case TLS_HELLO_NOT_TLS:
		return t->must_read ? cut(t, NET_REASON_OTHER, hello.why) : pass_unread(t);
	case TLS_HELLO_BAD:
		t->flow.seen = "tls";
		return is_strict(t) ? cut(t, NET_REASON_OTHER, hello.why) : pass_unread(t);
	case TLS_HELLO_OK:
	case TLS_HELLO_STATUS_NUM:
		break;
	}
	t->flow.seen = "tls";
#ifdef AK_SABOTAGE_NOSNI
	return pass_all(t);
#endif
	if (!hello.has_sni)
		return t->needs_name ? cut(t, NET_REASON_NO_SNI, NULL) : pass_all(t);
	return judge_name(t, hello.sni) == RELAY_LOOK_PASS ? pass_all(t) : RELAY_LOOK_CUT;
}

/* ---- HTTP ---- */

static enum relay_look http_doubt(struct relay_tcp *t, enum net_reason reason, const char *why)
{
	return is_strict(t) ? cut(t, reason, why) : pass_unread(t);
}

/* Handle one complete request head: judge it, forward it, and set up the parsing of its body. */
static enum relay_look http_request(struct relay_tcp *t, const struct http_head *head)
{
	t->flow.seen = "http";
#ifdef AK_SABOTAGE_NOHTTPHOST
	t->out.ready += head->len;
	http_body_init(&t->body, head);
	return RELAY_LOOK_PASS;
#endif
	if (head->host[0]) {
		if (judge_name(t, head->host) != RELAY_LOOK_PASS)
			return RELAY_LOOK_CUT;
	} else if (t->flow.route == RELAY_ROUTE_NAMED) {
		return cut(t, NET_REASON_NO_HOST, NULL);
	}
	if (head->stray_body)
		return http_doubt(t, NET_REASON_STRAY_BODY, NULL);
	t->out.ready += head->len;
	http_body_init(&t->body, head);
	t->in_body = t->body.state != HTTP_BODY_DONE;
	/* Only the response to the first request of a connection can be identified reliably. */
	if (++t->requests == 1 && head->websocket)
		t->upgrade = RELAY_UPGRADE_ASKED;
	return RELAY_LOOK_PASS;
}

static enum relay_look look_http(struct relay_tcp *t)
{
	struct relay_dir *d = &t->out;
	ssize_t n;

	while (d->ready < d->len && t->upgrade != RELAY_UPGRADE_ASKED) {
		const char *at = (const char *)d->buf + d->ready;

		if (t->in_body) {
			n = http_body_take(&t->body, at, d->len - d->ready);
			if (n < 0)
				return http_doubt(t, NET_REASON_BAD_BODY, NULL);
			d->ready += (size_t)n;
			t->in_body = t->body.state != HTTP_BODY_DONE;
			continue;
		}
		switch (http_head_read(&t->head, at, d->len - d->ready)) {
		case HTTP_MORE:
			return d->ready ? RELAY_LOOK_PASS : RELAY_LOOK_MORE;
		case HTTP_OK:
			if (http_request(t, &t->head.head) != RELAY_LOOK_PASS)
				return RELAY_LOOK_CUT;
			t->head = (struct http_reader){ 0 };
			break;
		case HTTP_BAD:
		case HTTP_STATUS_NUM:
			return http_doubt(t, NET_REASON_OTHER, t->head.head.why);
		}
	}
	return d->ready ? RELAY_LOOK_PASS : RELAY_LOOK_MORE;
}

/* ---- common ---- */

/* Choose the protocol: by the port if a name is needed or may be denied, otherwise by the first byte. */
static enum relay_inspect sniff(const struct relay_tcp *t)
{
	bool is_80 = t->flow.target.port == 80;

	if (t->out.buf[0] == 0x16)
		return t->needs_name && is_80 ? RELAY_INSPECT_HTTP : RELAY_INSPECT_TLS;
	if (is_80)
		return RELAY_INSPECT_HTTP;
	return t->must_read ? RELAY_INSPECT_TLS : RELAY_INSPECT_OFF;
}

enum relay_look relay_tcp_look(struct relay_tcp *t)
{
	if (t->inspect == RELAY_INSPECT_SNIFF) {
		if (!t->out.len)
			return RELAY_LOOK_MORE;
		t->inspect = sniff(t);
		t->unread = t->inspect == RELAY_INSPECT_OFF;
	}
	switch (t->inspect) {
	case RELAY_INSPECT_TLS:
		return look_tls(t);
	case RELAY_INSPECT_HTTP:
		return look_http(t);
	case RELAY_INSPECT_OFF:
	case RELAY_INSPECT_SNIFF:
	case RELAY_INSPECT_NUM:
		break;
	}
	return pass_all(t);
}
