/* What is shown of a persistent sandbox: see store/info.h. */
#include "gateway/store/info.h"

#include "gateway/base/cleanup.h"
#include "gateway/log/audit.h"
#include "gateway/store/publish.h"

static bool put_text(cJSON *obj, const char *key, const char *text)
{
	return cJSON_AddStringToObject(obj, key, text) != NULL;
}

static bool put_number(cJSON *obj, const char *key, double n)
{
	return cJSON_AddNumberToObject(obj, key, n) != NULL;
}

static bool put_network(cJSON *obj, const struct state_sandbox *s)
{
	struct gwns_link link;
	char addr[AK_ADDR_TEXT];

	if (!cJSON_AddBoolToObject(obj, "network", state_network(s)))
		return false;
	if (!state_network(s))
		return cJSON_AddNullToObject(obj, "ip") != NULL;
	gwns_link_plan(s->link_id, &link);
	return put_text(obj, "ip", ak_addr_print(&link.addr4, addr));
}

static bool put_limits(cJSON *obj, const struct sandbox_limits *l)
{
	bool ok = l->cpus_milli ? put_number(obj, "vcpus", l->cpus_milli / 1000.0) : cJSON_AddNullToObject(obj, "vcpus") != NULL;

	return ok &&
		(l->memory_bytes ? put_number(obj, "memory_mb", (double)(l->memory_bytes >> 20))
				 : cJSON_AddNullToObject(obj, "memory_mb") != NULL) &&
		(!l->disk_bytes || put_number(obj, "disk_mb", (double)(l->disk_bytes >> 20)));
}

/* Who opened it to MCP servers, of which project; nothing when it is for none. */
static bool put_mcp(cJSON *obj, const struct state_mcp *m)
{
	cJSON *out;

	if (!m->project[0])
		return true;
	out = cJSON_AddObjectToObject(obj, "mcp");
	return out && put_text(out, "from", m->server[0] ? "server" : "user") && put_text(out, "project", m->project) &&
		(!m->keep || cJSON_AddTrueToObject(out, "keep"));
}

cJSON *sandbox_info_json(const struct sandbox_info *i)
{
	const struct state_sandbox *s = i->state;
	_cleanup_json_ cJSON *obj = cJSON_CreateObject();
	char when[AUDIT_TIME_MAX];

	if (!obj || !put_text(obj, "name", s->name) || !put_text(obj, "uuid", s->uuid) || !put_text(obj, "status", i->status) ||
		!put_text(obj, "backend", run_backend_name(s->vm, s->podman)) || !put_text(obj, "mode", state_mode(s)) ||
		!put_text(obj, "profile", ak_profile_name(s->profile)) || !put_limits(obj, &s->limits) || !put_network(obj, s) ||
		(s->dir[0] && !put_text(obj, "dir", s->dir)) || (s->image[0] && !put_text(obj, "image", s->image)) ||
		!put_text(obj, "created_at", audit_time_print(s->created_us, when)) ||
		!put_number(obj, "generation", (double)s->generation) || !put_mcp(obj, &s->mcp) ||
		!publish_put(obj, "publish", i->publish ? i->publish : s->publish, s->n_publish) ||
		!put_number(obj, "allowed", (double)i->allowed) || !put_number(obj, "denied", (double)i->denied))
		return NULL;
	return TAKE(obj);
}

cJSON *sandbox_info_damaged(const char *name, const char *reason)
{
	static const char *const unknown[] = { "uuid", "backend", "mode", "profile", "vcpus", "memory_mb", "ip", "created_at" };
	_cleanup_json_ cJSON *obj = cJSON_CreateObject();
	bool ok = obj && put_text(obj, "name", name) && put_text(obj, "status", "damaged") && put_text(obj, "error", reason);

	for (size_t i = 0; ok && i < ARRAY_SIZE(unknown); i++)
		ok = cJSON_AddNullToObject(obj, unknown[i]) != NULL;
	return ok ? TAKE(obj) : NULL;
}

/* ---- its policy ---- */

static bool put_change(cJSON *list, const struct state_edit *e)
{
	const struct policy_edit edit = { e->op, e->text };
	char when[AUDIT_TIME_MAX], name[POLICY_WORD_MAX];
	cJSON *item = cJSON_CreateObject();

	if (!item || !cJSON_AddItemToArray(list, item)) {
		cJSON_Delete(item);
		return false;
	}
	return cJSON_AddStringToObject(item, "op", policy_edit_name(e->op)) &&
		cJSON_AddStringToObject(item, "text", policy_edit_label(&edit, name)) &&
		(!e->until_us || cJSON_AddStringToObject(item, "until", audit_time_print(e->until_us, when)));
}

static bool put_changes(cJSON *obj, const struct state_sandbox *s, uint64_t now_us)
{
	cJSON *list = cJSON_AddArrayToObject(obj, "changes");

	for (size_t i = 0; list && i < s->n_edits; i++) {
		if (s->edits[i].until_us && s->edits[i].until_us <= now_us)
			continue;
		if (!put_change(list, &s->edits[i]))
			return false;
	}
	return list != NULL;
}

static bool put_policy(cJSON *obj, const struct policy *p)
{
	_cleanup_strbuf_ struct strbuf text = { 0 };
	cJSON *json;

	policy_print(p, &text);
	json = text.failed ? NULL : cJSON_Parse(text.data);
	if (json && cJSON_AddItemToObject(obj, "policy", json))
		return true;
	cJSON_Delete(json);
	return false;
}

cJSON *sandbox_policy_json(const struct state_sandbox *s, const struct policy *p, uint64_t now_us)
{
	_cleanup_json_ cJSON *obj = cJSON_CreateObject();

	if (!obj || !put_text(obj, "name", s->name) || !put_number(obj, "generation", (double)s->generation) ||
		(s->mcp.project[0] && !cJSON_AddBoolToObject(obj, "mcp", s->mcp.generation == s->generation)) ||
		!put_changes(obj, s, now_us) || !put_policy(obj, p))
		return NULL;
	return TAKE(obj);
}
