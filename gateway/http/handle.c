/* Routes that need only the server's own memory. See http/http.h. */
#include "gateway/http/http.h"

void http_handle_health(struct http_call *c)
{
	http_reply_data(c, 200, "\"ok\"", 4);
}

void http_handle_openapi(struct http_call *c)
{
	_cleanup_strbuf_ struct strbuf out = { 0 };

	http_openapi(&out);
	if (out.failed)
		http_reply_error(c, 500, "out of memory");
	else
		http_reply_raw(c, 200, "application/json", out.data, out.len);
}
