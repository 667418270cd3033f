/* The tools that manage sandboxes and their files. See mcp/run.h. */
#include "gateway/mcp/run.h"

#include "gateway/base/base64.h"
#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/service/service.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define READ_DEFAULT MCP_OUTPUT_MAX

static void fail_with(struct mcp_result *ret, int rc, const struct ak_err *err)
{
	mcp_fail(ret, "%s%s", err->text, rc == -ESRCH ? " (use the tool sandbox_start)" : "");
}

static void put_state(struct mcp_result *ret, const char *name, const char *status)
{
	strbuf_printf(&ret->structured, "\"name\":\"%s\",\"status\":\"%s\"", name, status);
	strbuf_printf(&ret->text, "%s: %s\n", name, status);
}

/* ---- create, list ---- */

/* Append the members of SandboxInfo that a model needs. Leave out paths of the host. */
static void put_info(struct strbuf *out, const cJSON *info)
{
	static const char *const texts[] = { "name", "uuid", "status", "backend", "mode", "profile", "ip", "created_at" };
	bool any = false;

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		const char *value = mcp_arg_text(info, texts[i], NULL);

		if (!value)
			continue;
		strbuf_printf(out, "%s\"%s\":", any ? "," : "", texts[i]);
		strbuf_json_utf8(out, value, strlen(value));
		any = true;
	}
	strbuf_printf(out, ",\"network\":%s", mcp_arg_bool(info, "network", false) ? "true" : "false");
}

static void tell_info(struct strbuf *out, const cJSON *info)
{
	const char *name = mcp_arg_text(info, "name", "?"), *mode = mcp_arg_text(info, "mode", "?");

	strbuf_printf(out, "%s: %s, mode %s, profile %s, network %s\n", name, mcp_arg_text(info, "status", "?"), mode,
		mcp_arg_text(info, "profile", "?"), mcp_arg_bool(info, "network", false) ? "by policy" : "none");
}

static int create(const struct mcp_request *r, const char *name, cJSON **ret, struct ak_err *err)
{
	_cleanup_(field_mem_done) struct field_mem mem = { 0 };
	struct run_request opts = { .quiet = true };
	_cleanup_(config_freep) struct config *settings = NULL;
	int rc = mcp_ceiling_apply(r, &opts, &mem, err);

	if (rc == 0)
		rc = mcp_settings(r, &opts, &settings, err);
	if (rc < 0)
		return rc;
	opts.mcp = true;
	opts.mcp_server = r->owner->id;
	opts.keep = r->ceiling->keep;
	return service_create(r->paths, name, &opts, ret, err);
}

void mcp_do_create(const struct mcp_request *r, struct mcp_result *ret)
{
	const char *name = mcp_arg_text(r->args, "name", "");
	bool start = mcp_arg_bool(r->args, "start", true);
	_cleanup_json_ cJSON *info = NULL, *now = NULL;
	struct ak_err err;
	int rc = create(r, name, &info, &err);

	if (rc < 0) {
		mcp_fail(ret, "%s", err.text);
		return;
	}
	if (start)
		rc = service_start(r->paths, name, &(struct service_how){ .uuid = mcp_arg_text(info, "uuid", "") }, NULL, &err);
	if (rc < 0) {
		mcp_fail(ret, "sandbox '%s' was created, but it does not start: %s", name, err.text);
		return;
	}
	/* Read the state again after the start. */
	if (service_get(r->paths, name, &now, &err) < 0 ||
		strcmp(mcp_arg_text(now, "uuid", ""), mcp_arg_text(info, "uuid", "")) != 0) {
		cJSON_Delete(now);
		now = TAKE(info);
	}
	put_info(&ret->structured, now);
	tell_info(&ret->text, now);
}

/* List only sandboxes that the other tools may use: even a name can reveal the user's other work. */
static bool shown(const struct mcp_request *r, const cJSON *info)
{
	char uuid[37];
	struct ak_err ignored;

	return mcp_enter(r, mcp_arg_text(info, "name", ""), uuid, &ignored) == 0 && !strcmp(uuid, mcp_arg_text(info, "uuid", ""));
}

void mcp_do_list(const struct mcp_request *r, struct mcp_result *ret)
{
	_cleanup_json_ cJSON *list = NULL;
	const cJSON *info;
	struct ak_err err;
	bool any = false;

	if (service_list(r->paths, NULL, NULL, &list, &err) < 0) {
		mcp_fail(ret, "%s", err.text);
		return;
	}
	strbuf_puts(&ret->structured, "\"sandboxes\":[");
	cJSON_ArrayForEach(info, list) {
		if (!shown(r, info))
			continue;
		strbuf_puts(&ret->structured, any ? ",{" : "{");
		put_info(&ret->structured, info);
		strbuf_putc(&ret->structured, '}');
		tell_info(&ret->text, info);
		any = true;
	}
	strbuf_putc(&ret->structured, ']');
	if (!any)
		strbuf_puts(&ret->text, "There are no sandboxes.\n");
}

/* ---- start, stop, remove ---- */

/* Apply VERB to the sandbox that the call names, if the tools may use it. STATUS is its status afterwards. */
static void change(const struct mcp_request *r, service_change_fn *verb, const char *status, struct mcp_result *ret)
{
	const char *name = mcp_arg_text(r->args, "name", "");
	char uuid[37];
	const struct service_how how = { .uuid = uuid, .force = mcp_arg_bool(r->args, "force", false) };
	struct ak_err err;
	int rc = mcp_enter(r, name, uuid, &err);

	if (rc == 0)
		rc = verb(r->paths, name, &how, NULL, &err);
	if (rc < 0)
		mcp_fail(ret, "%s", err.text);
	else
		put_state(ret, name, status);
}

void mcp_do_start(const struct mcp_request *r, struct mcp_result *ret)
{
	change(r, service_start, "running", ret);
}

void mcp_do_stop(const struct mcp_request *r, struct mcp_result *ret)
{
	change(r, service_stop, "stopped", ret);
}

void mcp_do_remove(const struct mcp_request *r, struct mcp_result *ret)
{
	change(r, service_remove, "removed", ret);
}

/* ---- files ---- */

/* Open the root folder of a running sandbox that the tools may use. */
static int open_root(const struct mcp_request *r, const char *name, struct ak_err *err)
{
	_cleanup_close_ int root = -1;
	char uuid[37];
	int rc = mcp_enter(r, name, uuid, err);

	if (rc < 0)
		return rc;
	root = service_root(r->paths, name, err);
	rc = root < 0 ? root : service_same(r->paths, name, uuid, err);
	return rc < 0 ? rc : TAKE_FD(root);
}

void mcp_do_file_write(const struct mcp_request *r, struct mcp_result *ret)
{
	const char *name = mcp_arg_text(r->args, "name", ""), *path = mcp_arg_text(r->args, "path", "");
	const char *content = mcp_arg_text(r->args, "content", "");
	_cleanup_free_ char *decoded = NULL;
	_cleanup_close_ int root = -1;
	size_t len = strlen(content);
	struct ak_err err;
	int rc = 0;

	if (!strcmp(mcp_arg_text(r->args, "encoding", "utf8"), "base64"))
		rc = base64_decode(content, len, &decoded, &len, &err);
	if (rc < 0)
		ak_err_prefix(&err, rc, "content");
	if (rc == 0)
		rc = root = open_root(r, name, &err);
	if (rc >= 0)
		rc = service_file_write(root, path, decoded ? decoded : content, len, 0644, true, &err);
	if (rc < 0) {
		fail_with(ret, rc, &err);
		return;
	}
	service_file_event(r->paths, name, "write", path);
	strbuf_printf(&ret->text, "Wrote %zu bytes to %s\n", len, path);
	strbuf_puts(&ret->structured, "\"path\":");
	strbuf_json_utf8(&ret->structured, path, strlen(path));
	strbuf_printf(&ret->structured, ",\"size\":%zu", len);
}

static int read_part(int fd, uint64_t offset, size_t limit, struct strbuf *out)
{
	char buf[65536];

	while (out->len < limit) {
		size_t want = limit - out->len < sizeof(buf) ? limit - out->len : sizeof(buf);
		ssize_t n = ak_pread_all(fd, buf, want, offset + out->len);

		if (n < 0)
			return (int)n;
		if (n == 0)
			break;
		strbuf_add(out, buf, (size_t)n);
	}
	return out->failed ? -ENOMEM : 0;
}

/* The length of the text in PART; 0 when PART is binary, or has so many control characters that base64 is shorter. An incomplete character at the end is
 * left for the next part. */
static size_t text_length(const struct strbuf *part, bool more)
{
	size_t whole = mcp_utf8_whole(part->data, part->len);

	if (memchr(part->data, '\0', part->len) || mcp_json_grows(part->data, part->len, 2 * part->len) ||
		(whole < part->len && (!more || part->len - whole > 3)))
		return 0;
	return whole;
}

static void put_part(struct mcp_result *ret, const char *path, const struct strbuf *part, uint64_t offset, uint64_t size)
{
	bool more = offset + part->len < size;
	size_t text = part->len ? text_length(part, more) : 0, used = text ? text : part->len;
	bool binary = part->len && !text;

	strbuf_puts(&ret->structured, "\"path\":");
	strbuf_json_utf8(&ret->structured, path, strlen(path));
	strbuf_printf(&ret->structured,
		",\"encoding\":\"%s\",\"size\":%llu,\"offset\":%llu,\"truncated\":%s,\"content\":", binary ? "base64" : "utf8",
		(unsigned long long)size, (unsigned long long)offset, more || offset ? "true" : "false");
	if (binary) {
		strbuf_printf(&ret->text, "[binary, %zu bytes as base64]\n", used);
		base64_encode(&ret->text, part->data, used);
		strbuf_putc(&ret->structured, '"');
		base64_encode(&ret->structured, part->data, used);
		strbuf_putc(&ret->structured, '"');
	} else {
		strbuf_add(&ret->text, part->data ? part->data : "", used);
		strbuf_json_utf8(&ret->structured, part->data ? part->data : "", used);
	}
	if (!more)
		return;
	strbuf_printf(&ret->structured, ",\"next_offset\":%llu", (unsigned long long)(offset + used));
	strbuf_printf(&ret->text, "\n[bytes %llu to %llu of %llu; continue with offset %llu]\n", (unsigned long long)offset,
		(unsigned long long)(offset + used), (unsigned long long)size, (unsigned long long)(offset + used));
}

void mcp_do_file_read(const struct mcp_request *r, struct mcp_result *ret)
{
	const char *name = mcp_arg_text(r->args, "name", ""), *path = mcp_arg_text(r->args, "path", "");
	uint64_t offset = mcp_arg_uint(r->args, "offset", 0);
	_cleanup_strbuf_ struct strbuf part = { 0 };
	struct stat st = { .st_size = 0 };
	struct ak_err err;
	_cleanup_close_ int root = open_root(r, name, &err), fd = -1;
	int rc = root;

	if (rc >= 0)
		rc = fd = service_file_open(root, path, &st, &err);
	if (rc >= 0) {
		rc = read_part(fd, offset, (size_t)mcp_arg_uint(r->args, "limit", READ_DEFAULT), &part);
		if (rc < 0)
			ak_fail_errno(&err, -rc, "'%.200s'", path);
	}
	if (rc < 0) {
		fail_with(ret, rc, &err);
		return;
	}
	service_file_event(r->paths, name, "read", path);
	put_part(ret, path, &part, offset, (uint64_t)st.st_size);
}
