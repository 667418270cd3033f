/* API for the files of a running sandbox. All of it runs in workers. See http/http.h. */
#include "gateway/http/http.h"

#include "gateway/base/base64.h"
#include "gateway/base/cleanup.h"
#include "gateway/service/service.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define READ_MAX (16u << 20) /* the same limit as for writing */
#define SHORT_FILE 4096 /* escapes may always add this much, so that a short text stays text */

static bool is_text(const char *data, size_t len)
{
	for (size_t i = 0, n; i < len; i += n) {
		n = ak_utf8_length((const unsigned char *)data + i, len - i);
		if (!n || !data[i])
			return false;
	}
	return true;
}

static void say_file(struct work *w, const char *data, size_t len)
{
	static const char head[] = "{\"content\":\"";
	_cleanup_strbuf_ struct strbuf out = { 0 };
	bool text = is_text(data, len);

	strbuf_puts(&out, head);
	/* Send text as base64, which adds a third, when JSON escapes would make it longer than that. */
	text = text && strbuf_json_part(&out, data, len, sizeof(head) + SHORT_FILE + len + len / 3) == len;
	if (!text) {
		strbuf_reset(&out);
		strbuf_puts(&out, head);
		base64_encode(&out, data, len);
	}
	strbuf_printf(&out, "\",\"encoding\":\"%s\",\"size\":%zu}", text ? "utf8" : "base64", len);
	work_end_buf(w, 0, &out, NULL);
}

void http_work_file_read(struct http_call *c, struct work *w)
{
	_cleanup_free_ char *data = NULL;
	struct ak_err err;
	size_t len;
	_cleanup_close_ int root = service_root(c->s->paths, c->params.name, &err);
	int rc = root < 0 ? root : service_file_read(root, c->params.path, READ_MAX, &data, &len, &err);

	if (rc < 0) {
		work_fail(w, rc, &err);
		return;
	}
	service_file_event(c->s->paths, c->params.name, "read", c->params.path);
	say_file(w, data, len);
}

static int decode(const char *content, const char *encoding, char **ret, size_t *ret_len, struct ak_err *err)
{
	int rc;

	if (!encoding || strcmp(encoding, "base64") != 0) {
		*ret = strdup(content);
		*ret_len = strlen(content);
		return *ret ? 0 : ak_fail(err, ENOMEM, "out of memory");
	}
	rc = base64_decode(content, strlen(content), ret, ret_len, err);
	return rc < 0 ? ak_err_prefix(err, rc, "content") : 0;
}

/* Replace the file by a new one that keeps the permissions of the old one as far as possible. */
static int write_one(struct http_call *c, int root, const char *path, const char *data, size_t len, struct ak_err *err)
{
	int rc = service_file_write(root, path, data, len, 0644, true, err);

	if (rc == 0)
		service_file_event(c->s->paths, c->params.name, "write", path);
	return rc;
}

void http_work_file_write(struct http_call *c, struct work *w)
{
	_cleanup_free_ char *data = NULL;
	_cleanup_close_ int root = -1;
	struct ak_err err;
	size_t len;
	int rc = decode(http_body_text(c, "content"), http_body_text(c, "encoding"), &data, &len, &err);

	if (rc == 0)
		rc = root = service_root(c->s->paths, c->params.name, &err);
	if (rc >= 0)
		rc = write_one(c, root, c->params.path, data, len, &err);
	work_end_text(w, rc, "written", &err);
}

void http_work_file_delete(struct http_call *c, struct work *w)
{
	struct ak_err err;
	_cleanup_close_ int root = service_root(c->s->paths, c->params.name, &err);
	int rc = root < 0 ? root : service_file_delete(root, c->params.path, false, &err);

	if (rc == 0)
		service_file_event(c->s->paths, c->params.name, "delete", c->params.path);
	work_end_text(w, rc, "deleted", &err);
}

/* ---- several files ---- */

static int check_path(const char *path, struct ak_err *err)
{
	if (!*path || strlen(path) >= PATH_MAX - 1)
		return ak_fail(err, EINVAL, "files: a path is empty or too long");
	for (const char *at = path; at; at = strchr(at, '/')) {
		at += *at == '/';
		if (!strncmp(at, "..", 2) && (at[2] == '/' || !at[2]))
			return ak_fail(err, EINVAL, "files: '%.60s': the path contains '..'", path);
	}
	return 0;
}

/* Check all paths before writing the first file. */
static int write_all(struct http_call *c, const cJSON *files, unsigned *ret_n, struct ak_err *err)
{
	_cleanup_close_ int root = -1;
	const cJSON *item;
	int rc;

	cJSON_ArrayForEach(item, files) {
		rc = check_path(item->string, err);
		if (rc < 0)
			return rc;
	}
	root = service_root(c->s->paths, c->params.name, err);
	if (root < 0)
		return root;
	cJSON_ArrayForEach(item, files) {
		char path[PATH_MAX];

		snprintf(path, sizeof(path), "%s%s", item->string[0] == '/' ? "" : "/", item->string);
		rc = write_one(c, root, path, item->valuestring, strlen(item->valuestring), err);
		if (rc < 0)
			return ak_err_prefix(err, rc, "after %u files: %.100s", *ret_n, item->string);
		++*ret_n;
	}
	return 0;
}

void http_work_files_write(struct http_call *c, struct work *w)
{
	_cleanup_strbuf_ struct strbuf out = { 0 };
	struct ak_err err;
	unsigned n = 0;
	int rc = write_all(c, cJSON_GetObjectItemCaseSensitive(c->body, "files"), &n, &err);

	strbuf_printf(&out, "{\"written\":%u}", n);
	work_end_buf(w, rc, &out, &err);
}
