/* The store of unpacked images: see image.h. */
#include "gateway/image/image.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/image/names.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define EXACT_MAX ((1ull << 53) - 1)

void image_done(struct image *img)
{
	json_strings_free(TAKE(img->env));
	json_strings_free(TAKE(img->entrypoint));
	json_strings_free(TAKE(img->cmd));
	free(TAKE(img->workdir));
	free(TAKE(img->home));
	cJSON_Delete(TAKE(img->labels));
	img->lock = ak_close(img->lock);
}

static bool is_id(const char *id)
{
	return strlen(id) == SHA256_HEX - 1 && strspn(id, "0123456789abcdef") == SHA256_HEX - 1;
}

/* ---- image.json ---- */

static bool put_list(cJSON *obj, const char *key, char *const *list)
{
	cJSON *array = list ? cJSON_AddArrayToObject(obj, key) : NULL;

	for (size_t i = 0; array && list[i]; i++) {
		cJSON *text = cJSON_CreateString(list[i]);

		if (!text || !cJSON_AddItemToArray(array, text))
			return false;
	}
	return !list || array;
}

static bool put_labels(cJSON *obj, const cJSON *labels)
{
	cJSON *copy = labels ? cJSON_Duplicate(labels, true) : NULL;

	return !labels || (copy && cJSON_AddItemToObject(obj, "labels", copy));
}

static int write_record(int dir, const struct image_config *c, const struct image_facts *f)
{
	_cleanup_json_ cJSON *obj = cJSON_CreateObject();
	_cleanup_free_ char *text = NULL;
	bool ok = obj && cJSON_AddNumberToObject(obj, "version", 1) && cJSON_AddStringToObject(obj, "id", c->id) &&
		put_list(obj, "env", c->env) && put_list(obj, "entrypoint", c->entrypoint) && put_list(obj, "cmd", c->cmd) &&
		(!c->workdir || cJSON_AddStringToObject(obj, "workdir", c->workdir)) && put_labels(obj, c->labels) &&
		cJSON_AddNumberToObject(obj, "uid", f->uid) && cJSON_AddNumberToObject(obj, "gid", f->gid) &&
		cJSON_AddStringToObject(obj, "home", f->home) &&
		cJSON_AddNumberToObject(obj, "size_bytes", (double)f->size_bytes) &&
		cJSON_AddNumberToObject(obj, "created_us", (double)ak_wall_us());

	text = ok ? cJSON_PrintUnformatted(obj) : NULL;
	return text ? ak_replace_file(dir, "image.json", text, strlen(text), true) : -ENOMEM;
}

static int get_ids(const cJSON *obj, struct image *img, struct ak_err *err)
{
	uint64_t uid = 0, gid = 0;
	int rc = json_get_uint(obj, "uid", INT32_MAX, &uid, err);

	if (rc >= 0)
		rc = json_get_uint(obj, "gid", INT32_MAX, &gid, err);
	if (rc >= 0)
		rc = json_get_uint(obj, "size_bytes", EXACT_MAX, &img->size_bytes, err);
	if (rc >= 0)
		rc = json_get_uint(obj, "created_us", EXACT_MAX, &img->created_us, err);
	img->uid = (uint32_t)uid;
	img->gid = (uint32_t)gid;
	return rc;
}

static int get_texts(const cJSON *obj, struct image *img, struct ak_err *err)
{
	const char *workdir = json_text(obj, "workdir", NULL), *home = json_text(obj, "home", "/");
	const cJSON *labels = NULL;
	int rc = json_get_object(obj, "labels", &labels, err);

	if (rc < 0)
		return rc;
	if (home[0] != '/' || (workdir && workdir[0] != '/'))
		return ak_fail(err, EBADMSG, "home and workdir must be absolute paths");
	img->home = strdup(home);
	img->workdir = workdir ? strdup(workdir) : NULL;
	img->labels = labels ? cJSON_Duplicate(labels, true) : NULL;
	return img->home && (!workdir || img->workdir) && (!labels || img->labels) ? 0 : ak_fail(err, ENOMEM, "out of memory");
}

static int read_record(int dir, struct image *img, struct ak_err *err)
{
	_cleanup_free_ char *text = NULL;
	_cleanup_json_ cJSON *obj = NULL;
	size_t len;
	int rc = ak_read_file(dir, "image.json", IMAGE_JSON_MAX, &text, &len);

	if (rc < 0)
		return ak_fail_errno(err, -rc, "image.json");
	rc = json_parse(text, len, &obj, err);
	if (rc >= 0)
		rc = json_get_strings(obj, "env", &img->env, err);
	if (rc >= 0)
		rc = json_get_strings(obj, "entrypoint", &img->entrypoint, err);
	if (rc >= 0)
		rc = json_get_strings(obj, "cmd", &img->cmd, err);
	if (rc >= 0)
		rc = get_ids(obj, img, err);
	return rc < 0 ? rc : get_texts(obj, img, err);
}

/* ---- opening ---- */

int image_open(const struct ak_paths *paths, const char *id, struct image *ret, struct ak_err *err)
{
	struct image img = { .lock = -1 };
	char dir[PATH_MAX];
	int rc = is_id(id) ? image_dir(paths, id, dir) : -EINVAL;

	if (rc == 0)
		rc = ak_path_join(img.root, dir, "rootfs", NULL);
	if (rc < 0)
		return ak_fail_errno(err, -rc, "image '%.64s'", id);
	img.lock = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (img.lock < 0)
		return ak_fail(err, ENOENT, "image %.12s is no longer on this machine", id);
	if (flock(img.lock, LOCK_SH | LOCK_NB) < 0)
		rc = ak_fail(err, ENOENT, "image %.12s is being removed", id);
	if (rc == 0)
		rc = read_record(img.lock, &img, err);
	if (rc < 0) {
		image_done(&img);
		return rc == -ENOENT ? rc
				     : ak_err_prefix(err, rc, "image %.12s: 'agentkernel image remove' and bring it again", id);
	}
	snprintf(img.id, sizeof(img.id), "%s", id);
	*ret = img;
	return 0;
}

int image_find(const struct ak_paths *paths, const char *name, struct image *ret, struct ak_err *err)
{
	char found[IMAGE_NAME_MAX], id[SHA256_HEX];
	int rc = image_names_find(paths, name, found, id, err);

	if (rc == -ENOENT)
		return ak_fail(
			err, ENOENT, "image '%s' is not on this machine; bring it with: agentkernel image pull %s", name, name);
	return rc < 0 ? rc : image_open(paths, id, ret, err);
}

/* ---- an import under way ---- */

/* What processes that died left behind. */
static void sweep(int images)
{
	_cleanup_(image_names_done) struct image_list list = { 0 };

	if (image_list_read(images, ".new-", &list) < 0)
		return;
	for (size_t i = 0; i < list.n; i++) {
		_cleanup_close_ int fd = openat(images, list.names[i], O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

		if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0)
			(void)image_tree_remove(images, list.names[i]);
	}
}

int image_work_begin(const struct ak_paths *paths, struct image_work *ret, struct ak_err *err)
{
	struct image_work w = { .fd = -1 };
	_cleanup_close_ int images = image_dir_open(paths, true, err);
	char fresh[32], name[40];
	int rc = images < 0 ? images : 0;

	if (rc < 0)
		return rc;
	sweep(images);
	rc = ak_fresh_name(fresh);
	snprintf(name, sizeof(name), ".new-%s", fresh);
	if (rc == 0)
		rc = image_dir(paths, name, w.path);
	if (rc == 0 && mkdirat(images, name, 0700) < 0)
		rc = -errno;
	if (rc == 0)
		w.fd = openat(images, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (rc == 0 &&
		(w.fd < 0 || flock(w.fd, LOCK_EX | LOCK_NB) < 0 || mkdirat(w.fd, "layout", 0700) < 0 ||
			mkdirat(w.fd, "out", 0700) < 0))
		rc = -errno;
	if (rc < 0) {
		ak_close(w.fd);
		return ak_fail_errno(err, -rc, "%s", w.path);
	}
	*ret = w;
	return 0;
}

void image_work_end(struct image_work *w)
{
	if (w->path[0])
		(void)image_tree_remove(AT_FDCWD, w->path);
	w->fd = ak_close(w->fd);
}

/* Move the folder to its place. If the store has the image already, that one stays: it has the same content. */
static int move_in(int images, const struct image_work *w, const char *id)
{
	if (renameat(w->fd, "out", images, id) == 0 || errno == EEXIST || errno == ENOTEMPTY)
		return 0;
	return -errno;
}

int image_work_keep(const struct ak_paths *paths, const struct image_work *w, const struct image_config *conf,
	const struct image_facts *facts, const char *name, struct ak_err *err)
{
	_cleanup_close_ int images = image_dir_open(paths, true, err), out = -1;
	int rc = images < 0 ? images : 0;

	if (rc < 0)
		return rc;
	out = openat(w->fd, "out", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	rc = out < 0 ? -errno : 0;
	if (rc == 0 && fchown(out, geteuid(), getegid()) < 0)
		rc = -errno;
	if (rc == 0)
		rc = write_record(out, conf, facts);
	if (rc < 0)
		return ak_fail_errno(err, -rc, "%s", w->path);
	return image_names_add(paths, name, conf->id, move_in, w, err);
}
