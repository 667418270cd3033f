/* The gateway's side of the protocol with its supervisor. */
#include "gateway/host/internal.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/base/json.h"

#include <errno.h>
#include <event2/event.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define POLICY_MAX (32u << 20)
#define KEEP_MAX (256u << 10) /* the longest text that is kept to recognise a policy */
#define SEND_PATIENCE_MS 2000

/* A message with its descriptors; the handler takes those it uses. */
struct request {
	struct gw_msg msg;
	int fds[GW_FDS_MAX]; /* owned; -1 where absent */
};

/* Replies must not be lost. If the supervisor does not read for this long, assume that it is dead. */
void gw_send(struct gw *gw, const struct gw_msg *msg)
{
	struct pollfd p = { .fd = gw->control, .events = POLLOUT };

	while (ak_send_fds(gw->control, msg, sizeof(*msg), NULL, 0) == -EAGAIN) {
		if (poll(&p, 1, SEND_PATIENCE_MS) == 0)
			return;
	}
}

static void answer(struct gw *gw, const struct request *r, int rc, const struct ak_err *err)
{
	struct gw_msg msg = { .type = rc < 0 ? GW_MSG_REFUSED : GW_MSG_DONE, .id = r->msg.id };

	if (rc < 0)
		memcpy(msg.text, err->text, sizeof(err->text));
	gw_send(gw, &msg);
}

static int read_memory(int fd, char **ret, size_t *ret_len, struct ak_err *err)
{
	int rc = fd < 0 ? -EBADF : ak_memory_read(fd, POLICY_MAX, ret, ret_len);

	return rc < 0 ? ak_fail_errno(err, -rc, "the supervisor's memory file") : 0;
}

/*
 * Policies are sent in compiled form, which extends nothing: no file is needed. The same text gives the same object, which need not be compiled again, and
 * which gw_sandbox_set_policy recognises.
 */
static int read_policy(struct gw *gw, int fd, struct policy **ret, struct ak_err *err)
{
	static const struct policy_dirs none;
	_cleanup_free_ char *text = NULL;
	size_t len;
	int rc = read_memory(fd, &text, &len, err);

	if (rc == 0 && gw->last.policy && len == gw->last.len && !memcmp(text, gw->last.text, len)) {
		*ret = policy_ref(gw->last.policy);
		return 0;
	}
	if (rc == 0)
		rc = policy_parse(text, len, "policy", &none, NULL, 0, ret, err);
	if (rc < 0 || len > KEEP_MAX)
		return rc;
	policy_unref(gw->last.policy);
	free(gw->last.text);
	gw->last.policy = policy_ref(*ret);
	gw->last.text = TAKE(text);
	gw->last.len = len;
	return 0;
}

/* ---- requests ---- */

static void on_add(struct gw *gw, struct request *r)
{
	_cleanup_(policy_unrefp) struct policy *p = NULL;
	struct gw_sandbox *sb;
	struct gwns_link link;
	struct ak_err err;
	int rc = read_policy(gw, r->fds[0], &p, &err);

	gwns_link_plan(r->msg.id, &link);
	if (rc == 0)
		rc = gw_sandbox_new(gw, r->msg.name, &link, p, r->msg.generation, TAKE_FD(r->fds[1]), &r->msg.log, &sb, &err);
	if (rc == 0)
		gw_sandbox_rotated(sb, TAKE_FD(r->fds[3]), &r->msg.log);
	if (rc == 0)
		rc = gw_sandbox_add(sb, r->fds[2], &err);
	answer(gw, r, rc, &err);
}

/* Send the counters of a sandbox; zeros if it is unknown. LAST: the sandbox is being removed. */
static void send_counts(struct gw *gw, const struct request *r, bool last)
{
	struct gw_msg msg = { .type = GW_MSG_STATS, .id = r->msg.id };
	struct gw_sandbox *sb = gw_sandbox_find(gw, r->msg.id);

	if (sb && last)
		gw_sandbox_finish(sb, &msg.stats);
	else if (sb)
		gw_sandbox_stats(sb, &msg.stats);
	gw_send(gw, &msg);
	if (sb && last)
		gw_sandbox_drop(sb);
}

static void on_remove(struct gw *gw, struct request *r)
{
	send_counts(gw, r, true);
}

static void on_counts(struct gw *gw, struct request *r)
{
	send_counts(gw, r, false);
}

static int set_policy(struct gw_sandbox *sb, const struct request *r, struct ak_err *err)
{
	_cleanup_(policy_unrefp) struct policy *p = NULL;
	int rc = sb ? read_policy(sb->gw, r->fds[0], &p, err) : ak_fail(err, ENOENT, "the gateway has no sandbox %u", r->msg.id);

	return rc < 0 ? rc : gw_sandbox_set_policy(sb, p, r->msg.generation, err);
}

static void on_policy(struct gw *gw, struct request *r)
{
	struct ak_err err;
	int rc = set_policy(gw_sandbox_find(gw, r->msg.id), r, &err);

	answer(gw, r, rc, &err);
}

/* Give a warm sandbox the name, log and policy of its job. */
static void on_assign(struct gw *gw, struct request *r)
{
	struct gw_sandbox *sb = gw_sandbox_find(gw, r->msg.id);
	struct ak_err err;
	/* Set the policy first: the record of this change does not belong into the job's log. */
	int rc = set_policy(sb, r, &err);

	if (rc == 0) {
		gw_sandbox_set_log(sb, TAKE_FD(r->fds[1]), &r->msg.log);
		snprintf(sb->name, sizeof(sb->name), "%s", r->msg.name);
		sb->allowed = sb->denied = 0;
		sb->counts = (struct net_counts){ 0 };
		gw_record_edge(sb, "start");
	}
	answer(gw, r, rc, &err);
}

/* Learn one restored answer, as if the client had just queried it. */
static int restore_one(struct gw_sandbox *sb, const cJSON *item, struct ak_err *err)
{
	struct ak_addr addrs[DNS_ANSWER_MAX];
	struct dns_answer dns = { .qtype = 1, .addrs = addrs };
	const cJSON *list = NULL, *a;
	uint64_t ttl = 0;
	int rc = json_get_string(item, "name", &dns.name, err);

	if (rc > 0)
		rc = json_get_array(item, "addrs", &list, err);
	if (rc > 0)
		rc = json_get_uint(item, "ttl", DNS_TTL_MAX_S, &ttl, err);
	if (rc <= 0)
		return rc < 0 ? rc : ak_fail(err, EINVAL, "incomplete");
	cJSON_ArrayForEach(a, list) {
		if (cJSON_IsString(a) && dns.n_addrs < DNS_ANSWER_MAX &&
			ak_addr_parse(a->valuestring, &addrs[dns.n_addrs]) == 0 &&
			policy_addr_class(sb->policy, &addrs[dns.n_addrs], NULL) != POLICY_ADDR_BLOCKED)
			dns.n_addrs++;
	}
	dns.ttl_s = ttl ? (uint32_t)ttl : 1;
	if (!policy_name_ok(dns.name) || !policy_judge_dns(sb->policy, dns.name).allow)
		return 0; /* the policy no longer allows it */
	rc = gw_sandbox_learn(sb, &dns);
	return rc < 0 ? ak_fail_errno(err, -rc, "%s", dns.name) : 0;
}

static void on_learned(struct gw *gw, struct request *r)
{
	struct gw_sandbox *sb = gw_sandbox_find(gw, r->msg.id);
	_cleanup_json_ cJSON *list = NULL;
	_cleanup_free_ char *text = NULL;
	const cJSON *item;
	struct ak_err err;
	size_t len;
	int rc = sb ? read_memory(r->fds[0], &text, &len, &err)
		    : ak_fail(&err, ENOENT, "the gateway has no sandbox %u", r->msg.id);

	if (rc == 0)
		rc = json_parse(text, len, &list, &err);
	if (rc == 0 && !cJSON_IsArray(list))
		rc = ak_fail(&err, EINVAL, "learned addresses: must be a JSON array");
	for (item = rc == 0 ? list->child : NULL; item && rc == 0; item = item->next)
		rc = restore_one(sb, item, &err);
	answer(gw, r, rc, &err);
}

static void on_publish(struct gw *gw, struct request *r)
{
	struct gw_sandbox *sb = gw_sandbox_find(gw, r->msg.id);
	char text[AK_PUBLISH_TEXT];
	struct ak_err err;
	int rc;

	if (!sb)
		rc = ak_fail(&err, ENOENT, "the gateway has no sandbox %u", r->msg.id);
	else if (r->fds[0] < 0 || r->fds[1] < 0)
		rc = ak_fail(&err, EBADF, "a published port needs a listener and a channel");
	else
		rc = relay_publish(gw->relay, &sb->relay, &r->msg.publish, TAKE_FD(r->fds[0]), TAKE_FD(r->fds[1]));
	if (rc < 0 && sb)
		ak_fail_errno(&err, -rc, "publishing %s", ak_publish_host(&r->msg.publish, text));
	answer(gw, r, rc, &err);
}

static void on_unpublish(struct gw *gw, struct request *r)
{
	struct gw_sandbox *sb = gw_sandbox_find(gw, r->msg.id);

	if (sb)
		(void)relay_unpublish(&sb->relay, &r->msg.publish);
	answer(gw, r, 0, NULL);
}

static void on_log_fd(struct gw *gw, struct request *r)
{
	struct gw_sandbox *sb = gw_sandbox_find(gw, r->msg.id);

	if (!sb || r->fds[0] < 0)
		return;
	audit_writer_swap(&sb->log, TAKE_FD(r->fds[0]));
	gw_sandbox_rotated(sb, TAKE_FD(r->fds[1]), &r->msg.log);
	sb->log_wanted = false;
}

static void on_upstream(struct gw *gw, struct request *r)
{
	struct dns_upstream_conf conf = { .servers_csv = r->msg.text, .ipv6 = r->msg.ipv6 != 0 };
	struct ak_err err;

	(void)dns_proxy_set_upstream(gw->dns, &conf, &err);
}

static void on_stop(struct gw *gw, struct request *r)
{
	for (size_t id = 0; id < gw->n_ids; id++) {
		struct gw_msg msg = { .type = GW_MSG_STATS, .id = (uint32_t)id };

		if (!gw->by_id[id])
			continue;
		/* The namespaces end with us or belong to processes that stay: in both cases leave the kernel objects alone. */
		gw_sandbox_finish(gw->by_id[id], &msg.stats);
		gw_send(gw, &msg);
	}
	event_base_loopbreak(gw->base);
}

static void (*const handlers[GW_MSG_NUM])(struct gw *gw, struct request *r) = {
	[GW_MSG_UPSTREAM] = on_upstream,
	[GW_MSG_STOP] = on_stop,
	[GW_MSG_LOG_FD] = on_log_fd,
	[GW_MSG_ADD] = on_add,
	[GW_MSG_REMOVE] = on_remove,
	[GW_MSG_POLICY] = on_policy,
	[GW_MSG_ASSIGN] = on_assign,
	[GW_MSG_LEARNED] = on_learned,
	[GW_MSG_COUNTS] = on_counts,
	[GW_MSG_PUBLISH] = on_publish,
	[GW_MSG_UNPUBLISH] = on_unpublish,
};

void gw_control_readable(struct gw *gw)
{
	struct request r;
	int rc = gw_request_recv(gw->control, &r.msg, r.fds);

	if (rc == -EAGAIN)
		return;
	if (rc <= 0) { /* the supervisor is gone: exit too */
		event_base_loopbreak(gw->base);
		return;
	}
	handlers[r.msg.type](gw, &r);
	for (int i = 0; i < GW_FDS_MAX; i++)
		ak_close(r.fds[i]);
}
