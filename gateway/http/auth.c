/* Who may use the API. See http/auth.h. */
#include "gateway/http/auth.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define KEY_FILE_MAX (1u << 20)
#define KEY_MAX 4096

/* ---- keys ---- */

static void digest(const char *text, uint8_t ret[static SHA256_SIZE])
{
	struct sha256 s;

	sha256_init(&s);
	sha256_add(&s, text, strlen(text));
	sha256_done(&s, ret);
}

int http_keys_add(struct http_keys *k, const char *key, struct ak_err *err)
{
	uint8_t(*grown)[SHA256_SIZE];

	if (!*key)
		return ak_fail(err, EINVAL, "the key is empty");
	if (strlen(key) > KEY_MAX)
		return ak_fail(err, EINVAL, "the key is longer than %d bytes", KEY_MAX);
	for (const char *p = key; *p; p++) {
		/* No client could send such a key in a header. */
		if ((unsigned char)*p <= ' ' || (unsigned char)*p >= 0x7f)
			return ak_fail(err, EINVAL, "the key contains a blank or a character that is not printable ASCII");
	}
	grown = reallocarray(k->digests, k->n + 1, sizeof(*grown));
	if (!grown)
		return ak_fail(err, ENOMEM, "out of memory");
	k->digests = grown;
	digest(key, k->digests[k->n++]);
	return 0;
}

static int add_line(struct http_keys *k, char *line, struct ak_err *err)
{
	char *end;

	line += strspn(line, " \t");
	for (end = line + strlen(line); end > line && strchr(" \t\r", end[-1]);)
		*--end = '\0';
	return !*line || *line == '#' ? 0 : http_keys_add(k, line, err);
}

int http_keys_load(struct http_keys *k, const char *path, struct ak_err *err)
{
	_cleanup_free_ char *text = NULL;
	size_t len, before = k->n;
	unsigned number = 0;
	int rc = ak_read_file(AT_FDCWD, path, KEY_FILE_MAX, &text, &len);

	if (rc < 0)
		return ak_fail_errno(err, -rc, "key file '%s'", path);
	if (memchr(text, '\0', len))
		return ak_fail(err, EINVAL, "key file '%s': not a text file", path);
	for (char *at = text, *line; (line = strsep(&at, "\n"));) {
		number++;
		rc = add_line(k, line, err);
		if (rc < 0)
			return ak_err_prefix(err, rc, "key file '%s': line %u", path, number);
	}
	return k->n > before ? 0 : ak_fail(err, EINVAL, "key file '%s': contains no key", path);
}

void http_keys_done(struct http_keys *k)
{
	free(k->digests);
	*k = (struct http_keys){ 0 };
}

bool http_keys_ok(const struct http_keys *k, const char *authorization)
{
	uint8_t given[SHA256_SIZE];
	unsigned any = 0;

	if (!authorization || strncasecmp(authorization, "Bearer ", 7) != 0)
		return false;
	digest(authorization + 7 + strspn(authorization + 7, " "), given);
	for (size_t i = 0; i < k->n; i++) {
		unsigned differ = 0;

		for (size_t j = 0; j < SHA256_SIZE; j++)
			differ |= given[j] ^ k->digests[i][j];
		any |= (differ - 1u) >> 31; /* 1 only when all bytes are equal */
	}
	return any != 0;
}

/* ---- Host and Origin ---- */

bool http_is_loopback(const struct ak_addr *a)
{
	static const struct ak_addr one = { AF_INET6, { [15] = 1 } };
	struct ak_addr v4;

	if (a->family == AF_INET)
		return a->bytes[0] == 127;
	if (ak_addr_embedded_v4(a, &v4) && a->bytes[10] == 0xff)
		return v4.bytes[0] == 127;
	return ak_addr_eq(a, &one);
}

/* Strip the port and brackets: "name:80" → "name", "[::1]:80" → "::1". */
static bool split_host(const char *host, char *ret, size_t size)
{
	const char *end = *host == '[' ? strchr(host, ']') : host + strcspn(host, ":");
	size_t len;

	if (!end)
		return false;
	if (*host == '[') {
		host++;
		if (end[1] != '\0' && end[1] != ':')
			return false;
	}
	len = (size_t)(end - host);
	if (!len || len >= size)
		return false;
	memcpy(ret, host, len);
	ret[len] = '\0';
	return true;
}

bool http_host_ok(const char *host, const char *const *names, const struct ak_addr *local)
{
	struct ak_addr addr;
	char name[256];
	size_t len;

	if (!split_host(host, name, sizeof(name)))
		return false;
	if (ak_addr_parse(name, &addr) == 0 && (http_is_loopback(&addr) || ak_addr_eq(&addr, local)))
		return true;
	len = strlen(name);
	if (len > 1 && name[len - 1] == '.')
		name[--len] = '\0';
	/* RFC 6761 section 6.3: localhost and the names below it always mean loopback. */
	if (!strcasecmp(name, "localhost") || (len > 10 && !strcasecmp(name + len - 10, ".localhost")))
		return true;
	for (; names && *names; names++) {
		if (!strcasecmp(name, *names))
			return true;
	}
	return false;
}

bool http_origin_ok(const char *origin, const char *host)
{
	size_t scheme = !strncasecmp(origin, "http://", 7) ? 7 : !strncasecmp(origin, "https://", 8) ? 8 : 0; /* behind a proxy */

	return scheme && !strcasecmp(origin + scheme, host);
}
