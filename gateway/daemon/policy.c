/*
 * Live policies: one change at a time, applied completely or not at all. The gateway enforces a change before it is saved, so a change that is not
 * enforced is never reported as done; one that cannot be saved is reverted.
 */
#include "gateway/daemon/internal.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/base/say.h"
#include "gateway/log/events.h"
#include "gateway/store/info.h"

#include <errno.h>
#include <string.h>

#define FOR_MAX_MS RUN_TIMEOUT_MAX_MS

/* ---- replies ---- */

static cJSON *edits_json(const struct state_sandbox *s)
{
	_cleanup_json_ cJSON *whole = state_to_json(s);

	return whole ? cJSON_DetachItemFromObjectCaseSensitive(whole, "edits") : NULL;
}

/* Reply with the policy now in force. */
static void answer(struct request *r)
{
	cJSON *obj = sandbox_policy_json(&r->sb->state, r->policy, ak_deadline_now_us());

	if (obj)
		request_answer(r, obj);
	else
		request_fail(r, ENOMEM, "out of memory");
}

/* ---- changing ---- */

#define EDITS_MAX 8192 /* longer edits go into the event as text, truncated */

static void record(const struct dsb *sb)
{
	_cleanup_json_ cJSON *edits = edits_json(&sb->state);
	_cleanup_free_ char *text = edits ? cJSON_PrintUnformatted(edits) : NULL;
	_cleanup_strbuf_ struct strbuf more = { 0 };

	strbuf_printf(&more, ",\"generation\":%llu", (unsigned long long)sb->state.generation);
	if (text && strlen(text) <= EDITS_MAX)
		strbuf_printf(&more, ",\"edits\":%s", text);
	else if (text)
		event_put_text(&more, "edits_text", text);
	event_put_text(&more, "origin", state_origin(&sb->state));
	event_write(sb->d->paths, "sandbox_policy", sb->state.name, &more);
}

static void swap_edits(struct state_sandbox *a, struct state_sandbox *b)
{
	struct state_edit *edits = a->edits;
	size_t n = a->n_edits;

	a->edits = b->edits;
	a->n_edits = b->n_edits;
	b->edits = edits;
	b->n_edits = n;
}

/*
 * May MCP servers use the new policy? Yes if the user said so, or if it allows no more than the policy they could use before. Expired edits
 * still count as part of that earlier policy, so the expiry of a deny rule counts as a widening.
 */
static bool mcp_may_use(const struct request *r)
{
	const struct state_sandbox *s = &r->sb->state;
	_cleanup_(policy_unrefp) struct policy *before = NULL;
	struct ak_err ignored;

	if (!s->mcp.project[0] || json_truth(r->obj, "mcp"))
		return true;
	return s->mcp.generation == s->generation && state_policy(r->d->paths, s, 0, &before, &ignored) == 0 &&
		policy_within(r->policy, before);
}

/* Make the change the current state, in memory and on disk, or leave both unchanged. */
static int save_change(struct request *r, struct ak_err *err)
{
	struct dsb *sb = r->sb;
	uint64_t old_mcp = sb->state.mcp.generation;
	bool mcp = mcp_may_use(r);
	int rc;

	swap_edits(&sb->state, &r->change);
	sb->state.generation++;
	if (mcp)
		sb->state.mcp.generation = sb->state.generation;
	rc = state_save(sb->d->paths, &sb->state, err);
	if (rc < 0) {
		swap_edits(&sb->state, &r->change);
		sb->state.generation--;
		sb->state.mcp.generation = old_mcp;
	}
	return rc;
}

static void finish_change(struct request *r)
{
	struct dsb *sb = r->sb;
	struct ak_err err;

	if (state_write_policy(sb->d->paths, sb->state.name, r->policy, &err) < 0)
		ak_say("%s", err.text);
	if (sb->policy) {
		policy_unref(sb->policy);
		sb->policy = policy_ref(r->policy);
	}
	record(sb);
	dsb_arm_expiry(sb);
	answer(r);
}

static int send_policy(
	struct dsb *sb, const struct policy *p, uint64_t generation, dgw_done_fn done, void *ctx, struct ak_err *err)
{
	struct gw_msg msg = { .type = GW_MSG_POLICY, .id = sb->state.link_id, .generation = generation };
	int fd = dgw_policy_file(p);

	if (fd < 0)
		return ak_fail_errno(err, -fd, "policy");
	return dgw_send(sb->d, &msg, &fd, 1, done, ctx) < 0 ? ak_fail(err, ENOMEM, "out of memory") : 0;
}

static void on_enforced(void *ctx, int rc, const struct gw_msg *reply, const struct ak_err *reason)
{
	struct request *r = ctx;
	struct ak_err err, ignored;

	if (rc < 0) {
		request_fail(r, -rc, reason->text);
		return;
	}
	rc = save_change(r, &err);
	if (rc == 0) {
		finish_change(r);
		return;
	}
	/* Enforced but not saved: revert to the policy on disk. */
	(void)send_policy(r->sb, r->sb->policy, r->sb->state.generation, NULL, NULL, &ignored);
	request_fail(r, -rc, err.text);
}

static void take_mode(struct request *r)
{
	r->change.mode = r->sb->state.mode;
	memcpy(r->change.own, r->sb->state.own, sizeof(r->change.own));
}

/* r->change holds the new edits. Compile them, enforce them if the sandbox runs, save them. */
static void apply(struct request *r)
{
	struct dsb *sb = r->sb;
	struct ak_err err;
	int rc;

	take_mode(r);
	rc = state_policy(r->d->paths, &r->change, ak_deadline_now_us(), &r->policy, &err);
	if (rc < 0) {
		request_fail(r, -rc, err.text);
		return;
	}
	if (sb->status == DSB_RUNNING && sb->policy) {
		/* A gateway that is down gets the new policy when it restarts. */
		if (sb->hosted || sb->hosting) {
			rc = send_policy(sb, r->policy, sb->state.generation + 1, on_enforced, r, &err);
			if (rc < 0)
				request_fail(r, -rc, err.text);
			return;
		}
	}
	rc = save_change(r, &err);
	if (rc < 0)
		request_fail(r, -rc, err.text);
	else
		finish_change(r);
}

static int read_edit(const struct ak_paths *paths, const cJSON *item, struct state_sandbox *s, struct ak_err *err)
{
	struct policy_edit edit;
	uint64_t for_ms = 0;
	int rc = state_edit_get(item, "for_ms", FOR_MAX_MS, &edit, &for_ms, err);

	if (rc < 0)
		return rc;
	return state_edit_add(paths, s, edit.op, edit.text, for_ms ? ak_deadline_now_us() + for_ms * 1000 : 0, err);
}

int policy_edits_read(const struct ak_paths *paths, const cJSON *obj, struct state_sandbox *s, struct ak_err *err)
{
	const cJSON *list = NULL, *item;
	int rc = json_get_array(obj, "edits", &list, err);

	if (rc <= 0)
		return rc;
	cJSON_ArrayForEach(item, list) {
		rc = read_edit(paths, item, s, err);
		if (rc < 0)
			return rc;
	}
	return 0;
}

void op_policy(struct request *r)
{
	const cJSON *list = NULL;
	struct ak_err err;
	int reset = 0, mcp = 0, rc = json_get_bool(r->obj, "reset", &reset, &err);

	if (rc >= 0)
		rc = json_get_bool(r->obj, "mcp", &mcp, &err);
	if (rc >= 0 && mcp && !r->sb->state.mcp.project[0])
		rc = ak_fail(&err, EINVAL,
			"--mcp: sandbox '%s' is not open to MCP servers; 'agentkernel create --mcp' creates one that is",
			r->sb->state.name);
	if (rc >= 0)
		rc = json_get_array(r->obj, "edits", &list, &err);
	if (rc >= 0 && !reset && !mcp && (!list || !list->child))
		rc = ak_fail(&err, EINVAL, "edits: empty; give at least one change");
	if (rc >= 0 && !reset)
		rc = state_edits_copy(&r->sb->state, &r->change) < 0 ? ak_fail(&err, ENOMEM, "out of memory") : 0;
	take_mode(r);
	if (rc >= 0) {
		(void)state_edits_expire(&r->change, ak_deadline_now_us());
		rc = policy_edits_read(r->d->paths, r->obj, &r->change, &err);
	}
	if (rc < 0) {
		request_fail(r, -rc, err.text);
		return;
	}
	apply(r);
}

void op_expire_run(struct request *r)
{
	struct dsb *sb = r->sb;

	if (sb->status != DSB_RUNNING || state_edits_copy(&sb->state, &r->change) < 0 ||
		!state_edits_expire(&r->change, ak_deadline_now_us())) {
		dsb_arm_expiry(sb);
		request_answer(r, NULL);
		return;
	}
	apply(r);
}
