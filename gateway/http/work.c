/* What a worker answers: see http/http.h. */
#include "gateway/http/http.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void http_work_data(struct http_work *w, unsigned status, const char *json, size_t len)
{
	char head[16];

	snprintf(head, sizeof(head), "%u ", status);
	if (ak_write_all(w->fd, head, strlen(head)) == 0)
		(void)ak_write_all(w->fd, json, len);
	w->said = true;
}

/* File names and the like may be any bytes; JSON may not. */
static void put_clean(struct strbuf *out, const char *text, size_t len)
{
	size_t start = 0;

	for (size_t i = 0, n; i < len; i += n ? n : 1) {
		n = ak_utf8_length((const unsigned char *)text + i, len - i);
		if (n)
			continue;
		strbuf_add(out, text + start, i - start);
		strbuf_puts(out, "\xef\xbf\xbd");
		start = i + 1;
	}
	strbuf_add(out, text + start, len - start);
}

void http_work_json(struct http_work *w, unsigned status, const cJSON *json)
{
	_cleanup_free_ char *text = json ? cJSON_PrintUnformatted(json) : NULL;
	_cleanup_strbuf_ struct strbuf clean = { 0 };

	if (text)
		put_clean(&clean, text, strlen(text));
	if (!text || clean.failed)
		http_work_data(w, 500, "out of memory", 13);
	else
		http_work_data(w, status, clean.data, clean.len);
}

void http_work_text(struct http_work *w, unsigned status, const char *text)
{
	_cleanup_strbuf_ struct strbuf out = { 0 };

	strbuf_json_utf8(&out, text, strlen(text));
	if (!out.failed)
		http_work_data(w, status, out.data, out.len);
}

unsigned http_status_of(int rc)
{
	switch (-rc) {
	case EINVAL:
	case ENOTSUP:
	case ENOTDIR:
	case EISDIR:
	case ELOOP:
	case E2BIG:
	case ENAMETOOLONG:
	case EXDEV:
	case EACCES:
	case EPERM:
	case ERANGE:
		return 400;
	case ENOENT:
		return 404;
	case EEXIST:
	case EALREADY:
	case ESRCH:
	case EBUSY:
	case ENOTEMPTY:
		return 409;
	case EFBIG:
		return 413;
	case EAGAIN:
		return 429;
	default:
		return 500;
	}
}

void http_work_fail(struct http_work *w, int rc, const struct ak_err *err)
{
	http_work_data(w, http_status_of(rc), err->text, strlen(err->text));
}
