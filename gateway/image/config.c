/* Manifest and configuration of an image (OCI image specification 1.0, and docker's schema 2, which has the same members). */
#include "gateway/image/image.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>

#define LIST_MAX 1024 /* variables, words of a command */
#define TEXT_MAX 65536

void image_config_done(struct image_config *c)
{
	json_strings_free(TAKE(c->env));
	json_strings_free(TAKE(c->entrypoint));
	json_strings_free(TAKE(c->cmd));
	free(TAKE(c->user));
	free(TAKE(c->workdir));
	cJSON_Delete(TAKE(c->labels));
	c->n_layers = 0;
}

/* ---- manifest ---- */

/* "sha256:…" at KEY, without its prefix. */
static int get_digest(const cJSON *obj, const char *key, char ret[static SHA256_HEX], struct ak_err *err)
{
	const char *text = NULL;
	int rc = json_get_string(obj, key, &text, err);

	if (rc < 0)
		return rc;
	if (!text || strncmp(text, "sha256:", 7) != 0 || strlen(text) != 71 || strspn(text + 7, "0123456789abcdef") != 64)
		return ak_fail(err, EBADMSG, "%s: must be a sha256 digest", key);
	memcpy(ret, text + 7, SHA256_HEX);
	return 0;
}

static int get_packing(const cJSON *layer, enum image_packing *ret, struct ak_err *err)
{
	static const struct {
		const char *end;
		enum image_packing packing;
	} types[] = { { ".tar+gzip", IMAGE_GZIP }, { ".tar.gzip", IMAGE_GZIP }, { ".tar+zstd", IMAGE_ZSTD },
		{ ".tar", IMAGE_PLAIN } };
	const char *type = json_text(layer, "mediaType", "");
	size_t len = strlen(type);

	for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
		size_t n = strlen(types[i].end);

		if (len >= n && !strcmp(type + len - n, types[i].end)) {
			*ret = types[i].packing;
			return 0;
		}
	}
	return ak_fail(err, EBADMSG, "mediaType '%.100s': no kind of layer that agentkernel can unpack", type);
}

int image_manifest_parse(
	const char *text, size_t len, struct image_config *ret, char ret_config[static SHA256_HEX], struct ak_err *err)
{
	_cleanup_json_ cJSON *obj = NULL;
	const cJSON *config = NULL, *layers = NULL, *layer;
	int rc = json_parse(text, len, &obj, err);

	ret->n_layers = 0;
	if (rc >= 0)
		rc = json_get_object(obj, "config", &config, err);
	if (rc >= 0)
		rc = json_get_array(obj, "layers", &layers, err);
	if (rc < 0)
		return rc;
	if (!config || !layers)
		return ak_fail(err, EBADMSG, "not the manifest of an image: it has no config or no layers");
	rc = get_digest(config, "digest", ret_config, err);
	cJSON_ArrayForEach(layer, layers) {
		struct image_layer *l = &ret->layers[ret->n_layers];

		if (rc < 0)
			break;
		if (ret->n_layers == IMAGE_LAYERS_MAX)
			return ak_fail(err, E2BIG, "layers: more than %d", IMAGE_LAYERS_MAX);
		rc = get_digest(layer, "digest", l->blob, err);
		if (rc == 0)
			rc = get_packing(layer, &l->packing, err);
		if (rc < 0)
			return ak_err_prefix(err, rc, "layers[%zu]", ret->n_layers);
		ret->n_layers++;
	}
	return rc;
}

/* ---- configuration ---- */

/* What the image specification calls the architecture of this machine. */
static const char *own_arch(void)
{
	static const char *const names[][2] = { { "x86_64", "amd64" }, { "aarch64", "arm64" }, { "riscv64", "riscv64" } };
	static struct utsname un;

	if (uname(&un) < 0)
		return "";
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		if (!strcmp(un.machine, names[i][0]))
			return names[i][1];
	}
	return un.machine;
}

static int check_machine(const cJSON *obj, struct ak_err *err)
{
	const char *os = json_text(obj, "os", "linux"), *arch = json_text(obj, "architecture", own_arch());

	if (!strcmp(os, "linux") && !strcmp(arch, own_arch()))
		return 0;
	return ak_fail(err, ENOEXEC, "the image is for %.40s/%.40s; this machine is linux/%s", os, arch, own_arch());
}

static int get_layers(const cJSON *obj, struct image_config *c, struct ak_err *err)
{
	const cJSON *rootfs = NULL, *list = NULL, *item;
	size_t n = 0;
	int rc = json_get_object(obj, "rootfs", &rootfs, err);

	if (rc > 0)
		rc = json_get_array(rootfs, "diff_ids", &list, err);
	if (rc < 0)
		return rc;
	cJSON_ArrayForEach(item, list) {
		const char *text = cJSON_IsString(item) ? item->valuestring : "";

		if (n == c->n_layers || strncmp(text, "sha256:", 7) != 0 || strlen(text) != 71 ||
			strspn(text + 7, "0123456789abcdef") != 64)
			return ak_fail(err, EBADMSG, "rootfs.diff_ids[%zu]: must be a sha256 digest, one for each layer", n);
		memcpy(c->layers[n++].content, text + 7, SHA256_HEX);
	}
	return n == c->n_layers ? 0 : ak_fail(err, EBADMSG, "rootfs.diff_ids: %zu for %zu layers", n, c->n_layers);
}

static int get_list(const cJSON *obj, const char *key, char ***ret, struct ak_err *err)
{
	const cJSON *list = NULL, *item;
	int rc = json_get_array(obj, key, &list, err);

	if (rc <= 0)
		return rc;
	if (cJSON_GetArraySize(list) > LIST_MAX)
		return ak_fail(err, E2BIG, "%s: more than %d", key, LIST_MAX);
	cJSON_ArrayForEach(item, list) {
		if (cJSON_IsString(item) && strlen(item->valuestring) > TEXT_MAX)
			return ak_fail(err, E2BIG, "%s: a text of more than %d bytes", key, TEXT_MAX);
	}
	return json_get_strings(obj, key, ret, err);
}

/* "" is the same as none. */
static int get_text(const cJSON *obj, const char *key, size_t max, char **ret, struct ak_err *err)
{
	const char *text = NULL;
	int rc = json_get_string(obj, key, &text, err);

	if (rc <= 0 || !text[0])
		return rc < 0 ? rc : 0;
	if (strlen(text) > max)
		return ak_fail(err, E2BIG, "%s: longer than %zu bytes", key, max);
	*ret = strdup(text);
	return *ret ? 0 : ak_fail(err, ENOMEM, "out of memory");
}

static int check_env(char *const *env, struct ak_err *err)
{
	for (size_t i = 0; env && env[i]; i++) {
		if (env[i][0] == '=' || !strchr(env[i], '='))
			return ak_fail(err, EBADMSG, "Env[%zu]: must be KEY=VALUE", i);
	}
	return 0;
}

static int get_run(const cJSON *in, struct image_config *c, struct ak_err *err)
{
	const cJSON *labels = NULL;
	int rc = get_list(in, "Env", &c->env, err);

	if (rc >= 0)
		rc = check_env(c->env, err);
	if (rc >= 0)
		rc = get_list(in, "Entrypoint", &c->entrypoint, err);
	if (rc >= 0)
		rc = get_list(in, "Cmd", &c->cmd, err);
	if (rc >= 0)
		rc = get_text(in, "User", 255, &c->user, err);
	if (rc >= 0)
		rc = get_text(in, "WorkingDir", 4000, &c->workdir, err);
	if (rc >= 0)
		rc = json_get_object(in, "Labels", &labels, err);
	if (rc < 0)
		return rc;
	if (c->workdir && c->workdir[0] != '/')
		return ak_fail(err, EBADMSG, "WorkingDir '%.100s': must be an absolute path", c->workdir);
	c->labels = labels ? cJSON_Duplicate(labels, true) : NULL;
	return labels && !c->labels ? ak_fail(err, ENOMEM, "out of memory") : 0;
}

int image_config_parse(const char *text, size_t len, struct image_config *ret, struct ak_err *err)
{
	_cleanup_json_ cJSON *obj = NULL;
	const cJSON *run = NULL;
	int rc = json_parse(text, len, &obj, err);

	if (rc >= 0 && !cJSON_IsObject(obj))
		rc = ak_fail(err, EBADMSG, "must be an object");
	if (rc >= 0)
		rc = check_machine(obj, err);
	if (rc >= 0)
		rc = get_layers(obj, ret, err);
	if (rc >= 0)
		rc = json_get_object(obj, "config", &run, err);
	if (rc > 0)
		rc = get_run(run, ret, err) < 0 ? ak_err_prefix(err, -EBADMSG, "config") : 0;
	return rc < 0 ? rc : 0;
}

/* ---- an OCI layout ---- */

/* Read a regular file below DIR_FD, one folder at a time, so that no link is followed. */
static int read_below(int dir_fd, const char *const *parts, char **ret, size_t *ret_len, struct ak_err *err)
{
	_cleanup_close_ int dir = openat(dir_fd, ".", O_PATH | O_DIRECTORY | O_CLOEXEC), fd = -1;
	struct stat st;
	ssize_t n;

	for (; dir >= 0 && parts[1]; parts++) {
		int next = openat(dir, parts[0], O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

		ak_close(dir);
		dir = next;
	}
	fd = dir < 0 ? -1 : openat(dir, parts[0], O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0)
		return ak_fail_errno(err, errno, "%s", parts[0]);
	if (!S_ISREG(st.st_mode) || st.st_size > IMAGE_JSON_MAX)
		return ak_fail(err, EFBIG, "%s: must be a file of at most %u bytes", parts[0], IMAGE_JSON_MAX);
	*ret = malloc((size_t)st.st_size + 1);
	if (!*ret)
		return ak_fail(err, ENOMEM, "out of memory");
	n = ak_pread_all(fd, *ret, (size_t)st.st_size, 0);
	if (n < 0)
		return ak_fail_errno(err, (int)-n, "%s", parts[0]);
	(*ret)[n] = '\0';
	*ret_len = (size_t)n;
	return 0;
}

static int read_blob(int dir_fd, const char *hex, char **ret, size_t *ret_len, struct ak_err *err)
{
	const char *const parts[] = { "blobs", "sha256", hex, NULL };
	uint8_t digest[SHA256_SIZE];
	char own[SHA256_HEX];
	struct sha256 s;
	int rc = read_below(dir_fd, parts, ret, ret_len, err);

	if (rc < 0)
		return rc;
	sha256_init(&s);
	sha256_add(&s, *ret, *ret_len);
	sha256_done(&s, digest);
	sha256_hex(digest, own);
	return strcmp(own, hex) != 0 ? ak_fail(err, EBADMSG, "blob sha256:%.12s…: its content does not match its name", hex) : 0;
}

static int find_manifest(int dir_fd, char ret[static SHA256_HEX], struct ak_err *err)
{
	static const char *const parts[] = { "index.json", NULL };
	_cleanup_free_ char *text = NULL;
	_cleanup_json_ cJSON *obj = NULL;
	const cJSON *list = NULL;
	size_t len;
	int rc = read_below(dir_fd, parts, &text, &len, err);

	if (rc == 0)
		rc = json_parse(text, len, &obj, err);
	if (rc >= 0)
		rc = json_get_array(obj, "manifests", &list, err);
	if (rc < 0)
		return ak_err_prefix(err, rc, "index.json");
	if (cJSON_GetArraySize(list) != 1)
		return ak_fail(err, EBADMSG, "index.json: must name one image");
	return get_digest(cJSON_GetArrayItem(list, 0), "digest", ret, err);
}

int image_layout_read(int dir_fd, struct image_config *ret, struct ak_err *err)
{
	_cleanup_free_ char *manifest = NULL, *config = NULL;
	char hex[SHA256_HEX];
	size_t len;
	int rc = find_manifest(dir_fd, hex, err);

	if (rc == 0)
		rc = read_blob(dir_fd, hex, &manifest, &len, err);
	if (rc == 0 && (rc = image_manifest_parse(manifest, len, ret, ret->id, err)) < 0)
		ak_err_prefix(err, rc, "manifest");
	if (rc == 0)
		rc = read_blob(dir_fd, ret->id, &config, &len, err);
	if (rc == 0 && (rc = image_config_parse(config, len, ret, err)) < 0 && rc != -ENOEXEC)
		ak_err_prefix(err, rc, "image configuration");
	return rc;
}
