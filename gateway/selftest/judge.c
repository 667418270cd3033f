/* Decides whether a vector holds: compares the client's result and time, the far side's count and the log with the catalogue. */
#include "gateway/selftest/selftest.h"

#include "gateway/log/netlog.h"

#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define IN_TIME_MS 1000

static bool one_of(const char *word, const char *list)
{
	size_t len = strlen(word);

	for (const char *at = list; (at = strstr(at, word)); at += len) {
		if ((at == list || at[-1] == '|') && (at[len] == '\0' || at[len] == '|'))
			return true;
	}
	return false;
}

static bool ends_with(const char *text, const char *tail)
{
	size_t n = strlen(text), m = strlen(tail);

	return n >= m && !strcasecmp(text + n - m, tail);
}

/* ---- the far side ---- */

static bool is_dns(const struct st_vector *v)
{
	return v->kind == ST_DNS || v->kind == ST_DNS_TCP;
}

static bool proto_is(uint8_t proto, const struct st_vector *v)
{
	if (v->kind == ST_TCP)
		return proto == IPPROTO_TCP;
	return v->kind != ST_UDP || proto == IPPROTO_UDP;
}

static bool event_is(const struct st_event *e, const struct st_vector *v, const struct ak_addr *dst)
{
	switch (e->kind) {
	case ST_EV_PACKET:
		/* Several vectors use the same address: only the server that was reached distinguishes them. */
		if (v->kind == ST_TLS || v->kind == ST_HTTP || (v->kind == ST_CALL && v->far == ST_AT_MOST))
			return false;
		return dst->family && ak_addr_eq(&e->dst, dst) && (!v->port || e->port == v->port) && proto_is(e->proto, v);
	case ST_EV_QUESTION:
		if (v->host && v->host[0] == '*')
			return ends_with(e->name, v->host + 1);
		return (is_dns(v) || v->kind == ST_RAW || v->kind == ST_CALL) && v->host && !strcasecmp(e->name, v->host) &&
			(v->kind == ST_RAW || v->kind == ST_CALL || e->qtype == v->type);
	case ST_EV_TLS:
		return v->kind == ST_TLS && ak_addr_eq(&e->dst, dst) && e->port == v->port &&
			!strcasecmp(e->name, v->name && v->type != ST_HELLO_NONE ? v->name : "");
	case ST_EV_HTTP:
		return v->kind == ST_HTTP && ak_addr_eq(&e->dst, dst) && !strcasecmp(e->name, v->detail ? v->detail : v->name);
	}
	return false;
}

static unsigned far_count(const struct st_facts *f, const struct st_vector *v, bool *ret_odd)
{
	struct ak_addr dst = { 0 };
	unsigned n = 0;

	if (v->host)
		(void)ak_addr_parse(v->host, &dst);
	if (v->port == ST_HOST_PORT || v->fn == st_call_unix)
		return f->host_accepts;
	if (is_dns(v) && v->name)
		(void)ak_addr_parse(v->name, &dst); /* the resolver that was addressed must not have received it */
	for (size_t i = 0; i < f->events->n; i++) {
		const struct st_event *e = &f->events->e[i];

		if (is_dns(v) && v->name && v->far == ST_SOMETHING && e->kind == ST_EV_PACKET)
			continue;
		if (event_is(e, v, &dst)) {
			n += e->count;
			*ret_odd |= e->odd;
		}
	}
	return n;
}

static bool judge_far(const struct st_facts *f, const struct st_vector *v, char *why, size_t size)
{
	bool odd = false;
	unsigned n = v->far == ST_UNSEEN ? 0 : far_count(f, v, &odd);

	switch (v->far) {
	case ST_NOTHING:
		if (n)
			snprintf(why, size, "it arrived on the far side (%u)", n);
		return n == 0;
	case ST_SOMETHING:
		if (!n)
			snprintf(why, size, "nothing arrived on the far side");
		if (odd)
			snprintf(why, size, "the upstream resolver saw more than a plain lower-case query");
		return n > 0 && !odd;
	case ST_AT_MOST:
		if (n > v->type)
			snprintf(why, size, "%u arrived on the far side, expected at most %u", n, v->type);
		return n <= v->type;
	case ST_UNSEEN:
	case ST_FAR_NUM:
		break;
	}
	return true;
}

/* ---- the log ---- */

/* The log may write an address differently, so compare it parsed. */
static bool same_address(const char *text, const struct ak_addr *a)
{
	struct ak_addr b;

	return text[0] && ak_addr_parse(text, &b) == 0 && ak_addr_eq(&b, a);
}

static bool about(const struct netlog_rec *rec, const struct st_vector *v)
{
	const char *name = v->kind == ST_HTTP && v->detail ? v->detail : v->name;
	struct ak_addr dst = { 0 };

	switch (v->kind) {
	case ST_DNS:
	case ST_DNS_TCP:
		return !strcmp(rec->event, "dns") && (strchr(v->host, '\\') || !strcasecmp(rec->name, v->host));
	case ST_RAW:
		return !strcmp(rec->event, "dns");
	case ST_CALL:
		if (v->host && ak_addr_parse(v->host, &dst) == 0)
			return same_address(rec->dst, &dst);
		return v->host && ends_with(rec->name, v->host[0] == '*' ? v->host + 1 : v->host);
	case ST_TCP:
	case ST_UDP:
	case ST_FRAMES:
		return ak_addr_parse(v->host, &dst) == 0 && same_address(rec->dst, &dst) && (!v->port || rec->port == v->port);
	case ST_TLS:
	case ST_HTTP:
		return ak_addr_parse(v->host, &dst) == 0 && same_address(rec->dst, &dst) && rec->port == v->port &&
			(!name || v->type == ST_HELLO_NONE || v->type >= ST_HELLO_SSL2 || !strcasecmp(rec->sni, name) ||
				!rec->sni[0]);
	case ST_GATEWAY:
	case ST_KIND_NUM:
		break;
	}
	return false;
}

static bool judge_log(const struct st_facts *f, const struct st_vector *v, char *why, size_t size)
{
	const char *verdict = v->far == ST_SOMETHING ? "allow" : "deny";

	if (!f->log_clean) {
		snprintf(why, size, "a line of the log is not a record");
		return false;
	}
	if (!v->log)
		return true;
	for (size_t i = 0; i < f->n_log; i++) {
		const struct netlog_rec *rec = &f->log[i];

		if (!strcmp(rec->verdict, verdict) && about(rec, v) &&
			(strstr(rec->rule, v->log) || strstr(rec->reason, v->log)) && (verdict[0] == 'a' || rec->reason[0]))
			return true;
	}
	snprintf(why, size, "no matching record in the log (%s%s%s)", verdict, v->log[0] ? ", " : "", v->log);
	return false;
}

/* ---- the verdict ---- */

static bool judge_client(const struct st_facts *f, const struct st_vector *v, size_t i, char *why, size_t size)
{
	const struct st_outcome *o = &f->outcomes[i];
	unsigned limit = v->within_ms ? v->within_ms : IN_TIME_MS;

	if (!o->word) {
		snprintf(why, size, "not tried%s%s", f->why_not[0] ? ": " : "", f->why_not);
		return false;
	}
	if (!one_of(o->word, v->want)) {
		snprintf(why, size, "got %s%s%s, expected %s", o->word, o->detail[0] ? " " : "", o->detail, v->want);
		return false;
	}
	if (v->detail && strcmp(v->detail, o->detail) != 0) {
		snprintf(why, size, "got '%s', expected '%s'", o->detail, v->detail);
		return false;
	}
	if (f->took_ms[i] > limit) {
		snprintf(why, size, "took too long: %u ms", f->took_ms[i]);
		return false;
	}
	return true;
}

/* A description of the vector for the reason of a failure. */
static void describe(const struct st_facts *f, const struct st_vector *v, char *ret, size_t size)
{
	static const char *const runs[ST_RUN_NUM] = { "allowlist", "native", "empty allowlist", "gateway killed" };
	char port[16] = "";

	if (v->port)
		snprintf(port, sizeof(port), ":%u", v->port);
	snprintf(ret, size, "%s: %s%s%s%s", runs[f->run], v->host ? v->host : "", port, v->name ? " " : "",
		v->name ? v->name : "");
}

static struct selftest_row *row_of(struct selftest_report *report, const char *id)
{
	for (size_t i = 0; i < report->n_rows; i++) {
		if (!strcmp(report->rows[i].id, id))
			return &report->rows[i];
	}
	return NULL;
}

void st_judge(const struct st_facts *f, struct selftest_report *report)
{
	for (size_t i = 0; st_vectors[i].row; i++) {
		const struct st_vector *v = &st_vectors[i];
		struct selftest_row *row = row_of(report, v->row);
		char what[160], why[512] = "";

		if (!row || !(v->runs & 1u << f->run) || (f->outcomes[i].word && !strcmp(f->outcomes[i].word, "skipped")))
			continue;
		row->vectors++;
		if (row->result == SELFTEST_SKIPPED)
			row->result = SELFTEST_PASSED;
		if (row->result == SELFTEST_FAILED)
			continue;
		if (judge_client(f, v, i, why, sizeof(why)) && judge_far(f, v, why, sizeof(why)) &&
			judge_log(f, v, why, sizeof(why)))
			continue;
		row->result = SELFTEST_FAILED;
		describe(f, v, what, sizeof(what));
		snprintf(row->reason, sizeof(row->reason), "%s: %s", what, why);
	}
}
