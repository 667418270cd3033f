/* Image references, in the grammar of docker: see image.h. */
#include "gateway/image/image.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

static bool is_lower(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

/* One part of a repository: lower case letters and digits, with . _ __ or any number of - between them. */
static bool part_ok(const char *p, size_t len)
{
	if (!len || !is_lower(p[0]) || !is_lower(p[len - 1]))
		return false;
	for (size_t i = 1; i < len; i++) {
		bool dot = p[i] == '.', under = p[i] == '_';

		if (!is_lower(p[i]) && p[i] != '-' && !dot && !under)
			return false;
		if ((dot && !is_lower(p[i - 1])) || (under && !is_lower(p[i - 1]) && (p[i - 1] != '_' || !is_lower(p[i - 2]))))
			return false;
		if (p[i] == '-' && (p[i - 1] == '.' || p[i - 1] == '_'))
			return false;
	}
	return true;
}

static bool repository_ok(const char *text)
{
	for (;;) {
		size_t len = strcspn(text, "/");

		if (!part_ok(text, len))
			return false;
		if (!text[len])
			return true;
		text += len + 1;
	}
}

static bool tag_ok(const char *tag)
{
	size_t len = strlen(tag);

	if (!len || len > 128 || tag[0] == '.' || tag[0] == '-')
		return false;
	for (; *tag; tag++) {
		if (!isalnum((unsigned char)*tag) && !strchr("._-", *tag))
			return false;
	}
	return true;
}

static bool digest_ok(const char *d)
{
	return !strncmp(d, "sha256:", 7) && strlen(d) == 71 && strspn(d + 7, "0123456789abcdef") == 64;
}

/* A host name with an optional port. The first part is one if it has a dot or a port, or is localhost; else it is a repository's. */
static bool is_registry(const char *p, size_t len)
{
	return memchr(p, '.', len) || memchr(p, ':', len) || (len == 9 && !memcmp(p, "localhost", 9));
}

static bool registry_ok(const char *r)
{
	size_t host = strcspn(r, ":");
	const char *port = r + host;

	if (!host || !isalnum((unsigned char)r[0]) || !isalnum((unsigned char)r[host - 1]))
		return false;
	for (size_t i = 0; i < host; i++) {
		if (!isalnum((unsigned char)r[i]) && r[i] != '-' && (r[i] != '.' || r[i + 1] == '.'))
			return false;
	}
	return !*port || (strlen(port) >= 2 && strlen(port) <= 6 && strspn(port + 1, "0123456789") == strlen(port + 1));
}

/* Cut off the digest and the tag of REST, the reference without its registry. */
static bool split_end(char *rest, struct image_ref *ret)
{
	char *at = strchr(rest, '@'), *colon;

	if (at) {
		*at = '\0';
		if (!digest_ok(at + 1))
			return false;
		snprintf(ret->digest, sizeof(ret->digest), "%s", at + 1);
	}
	colon = strrchr(rest, ':');
	if (!colon || strchr(colon, '/'))
		return true;
	*colon = '\0';
	if (!tag_ok(colon + 1))
		return false;
	snprintf(ret->tag, sizeof(ret->tag), "%s", colon + 1);
	return true;
}

/* The full name must fit, too: it is what is kept and parsed again. */
static bool set_repository(struct image_ref *ref, const char *rest)
{
	const char *owner = !strcmp(ref->registry, "docker.io") && !strchr(rest, '/') ? "library/" : "";
	size_t end = ref->digest[0] ? strlen(ref->digest) : strlen(ref->tag);

	if (strlen(ref->registry) + 1 + strlen(owner) + strlen(rest) + 1 + end >= IMAGE_NAME_MAX)
		return false;
	return snprintf(ref->repository, sizeof(ref->repository), "%s%s", owner, rest) < (int)sizeof(ref->repository);
}

int image_ref_parse(const char *text, struct image_ref *ret, struct ak_err *err)
{
	struct image_ref ref = { .registry = "docker.io" };
	char copy[IMAGE_NAME_MAX], *rest = copy, *slash;
	bool ok = strlen(text) < sizeof(copy);

	snprintf(copy, sizeof(copy), "%s", text);
	slash = strchr(copy, '/');
	if (slash && is_registry(copy, (size_t)(slash - copy))) {
		*slash = '\0';
		snprintf(ref.registry, sizeof(ref.registry), "%s", copy);
		rest = slash + 1;
	}
	if (!strcmp(ref.registry, "index.docker.io"))
		snprintf(ref.registry, sizeof(ref.registry), "docker.io");
	ok = ok && split_end(rest, &ref) && registry_ok(ref.registry) && repository_ok(rest);
	if (ok && !ref.tag[0] && !ref.digest[0])
		snprintf(ref.tag, sizeof(ref.tag), "latest");
	if (!ok || !set_repository(&ref, rest))
		return ak_fail(
			err, EINVAL, "'%s' is not the name of an image; for example: alpine:3.20, ghcr.io/owner/name:tag", text);
	*ret = ref;
	return 0;
}

void image_ref_print(const struct image_ref *ref, char ret[static IMAGE_NAME_MAX])
{
	/* The digest identifies the image; a tag beside it is ignored. */
	if (snprintf(ret, IMAGE_NAME_MAX, "%s/%s%s%s", ref->registry, ref->repository, ref->digest[0] ? "@" : ":",
		    ref->digest[0] ? ref->digest : ref->tag) >= IMAGE_NAME_MAX)
		ret[0] = '\0'; /* cannot happen: the parser limits the length */
}
