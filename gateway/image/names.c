/* Names of images: STATE/images/names.json, {"NAME":{"id":"…","us":N}}. See names.h and image.h. */
#include "gateway/image/names.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "vmctl/sandbox.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAMES_FILE "names.json"
#define NAMES_BYTES_MAX (4u << 20)

/* ---- folders ---- */

int image_dir(const struct ak_paths *paths, const char *name, char ret[static PATH_MAX])
{
	return ak_path_join(ret, paths->state, "images", name);
}

int image_dir_open(const struct ak_paths *paths, bool make, struct ak_err *err)
{
	char path[PATH_MAX];
	int rc = image_dir(paths, NULL, path), fd;

	if (rc == 0 && make)
		rc = ak_mkdir_p(path, 0700);
	if (rc < 0)
		return ak_fail_errno(err, -rc, "%s", path);
	fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return fd < 0 ? ak_fail_errno(err, errno, "%s", path) : fd;
}

int image_tree_remove(int dir, const char *name)
{
	return sandbox_remove_tree(dir, name);
}

void image_names_done(struct image_list *l)
{
	for (size_t i = 0; i < l->n; i++)
		free(l->names[i]);
	free(l->names);
	*l = (struct image_list){ 0 };
}

static int list_add(struct image_list *l, const char *name)
{
	char **grown = reallocarray(l->names, l->n + 1, sizeof(*grown));

	if (!grown)
		return -ENOMEM;
	l->names = grown;
	l->names[l->n] = strdup(name);
	return l->names[l->n] ? (l->n++, 0) : -ENOMEM;
}

int image_list_read(int dir, const char *prefix, struct image_list *ret)
{
	int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), rc = 0;
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *e;

	if (!d) {
		ak_close(fd);
		return -errno;
	}
	while (rc == 0 && (e = readdir(d))) {
		if (!strncmp(e->d_name, prefix, strlen(prefix)))
			rc = list_add(ret, e->d_name);
	}
	closedir(d);
	return rc;
}

/* ---- names.json ---- */

/* An empty object if there is no file. */
static int read_names(int images, cJSON **ret, struct ak_err *err)
{
	_cleanup_free_ char *text = NULL;
	size_t len;
	int rc = ak_read_file(images, NAMES_FILE, NAMES_BYTES_MAX, &text, &len);

	if (rc == -ENOENT) {
		*ret = cJSON_CreateObject();
		return *ret ? 0 : ak_fail(err, ENOMEM, "out of memory");
	}
	if (rc < 0)
		return ak_fail_errno(err, -rc, "images/" NAMES_FILE);
	rc = json_parse(text, len, ret, err);
	return rc < 0 ? ak_err_prefix(err, rc, "images/" NAMES_FILE) : 0;
}

static int write_names(int images, const cJSON *names, struct ak_err *err)
{
	_cleanup_free_ char *text = cJSON_Print(names);
	int rc = text ? ak_replace_file(images, NAMES_FILE, text, strlen(text), true) : -ENOMEM;

	return rc < 0 ? ak_fail_errno(err, -rc, "images/" NAMES_FILE) : 0;
}

static int lock_file(int images, const char *name, struct ak_err *err)
{
	_cleanup_close_ int fd = openat(images, name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);

	if (fd < 0)
		return ak_fail_errno(err, errno, "images/%s", name);
	while (flock(fd, LOCK_EX) < 0) {
		if (errno != EINTR)
			return ak_fail_errno(err, errno, "images/%s", name);
	}
	return TAKE_FD(fd);
}

static const char *id_of(const cJSON *names, const char *name)
{
	return json_text(cJSON_GetObjectItemCaseSensitive(names, name), "id", NULL);
}

/* A short name is docker's own, or else that of an imported image. */
static const char *find_name(const cJSON *names, const struct image_ref *ref, char found[static IMAGE_NAME_MAX])
{
	const bool library = !strcmp(ref->registry, "docker.io") && !strncmp(ref->repository, "library/", 8);
	struct image_ref local = *ref;
	const char *id;

	image_ref_print(ref, found);
	id = id_of(names, found);
	if (id || !library)
		return id;
	snprintf(local.registry, sizeof(local.registry), "localhost");
	snprintf(local.repository, sizeof(local.repository), "%s", ref->repository + 8);
	image_ref_print(&local, found);
	return id_of(names, found);
}

/* Open the store and look NAME up in it. */
static int look_up(const struct ak_paths *paths, const char *name, cJSON **ret_names, char found[static IMAGE_NAME_MAX],
	const char **ret_id, struct ak_err *err)
{
	_cleanup_close_ int images = -1;
	struct image_ref ref;
	int rc = image_ref_parse(name, &ref, err);

	if (rc < 0)
		return rc;
	images = image_dir_open(paths, false, err);
	if (images < 0)
		return images;
	rc = read_names(images, ret_names, err);
	if (rc < 0)
		return rc;
	*ret_id = find_name(*ret_names, &ref, found);
	return *ret_id && strlen(*ret_id) == SHA256_HEX - 1 ? 0 : -ENOENT;
}

int image_names_find(const struct ak_paths *paths, const char *name, char ret_name[static IMAGE_NAME_MAX],
	char ret_id[static SHA256_HEX], struct ak_err *err)
{
	_cleanup_json_ cJSON *names = NULL;
	const char *id = NULL;
	int rc = look_up(paths, name, &names, ret_name, &id, err);

	if (rc == 0)
		memcpy(ret_id, id, SHA256_HEX);
	return rc;
}

static int put_name(cJSON *names, const char *name, const char *id)
{
	cJSON *item = cJSON_CreateObject();

	cJSON_DeleteItemFromObjectCaseSensitive(names, name);
	if (!item || !cJSON_AddItemToObject(names, name, item))
		return -ENOMEM;
	return cJSON_AddStringToObject(item, "id", id) && cJSON_AddNumberToObject(item, "us", (double)ak_wall_us()) ? 0 : -ENOMEM;
}

int image_names_add(const struct ak_paths *paths, const char *name, const char *id,
	int (*move_in)(int images, const struct image_work *w, const char *id), const struct image_work *w, struct ak_err *err)
{
	_cleanup_close_ int images = image_dir_open(paths, true, err), lock = -1;
	_cleanup_json_ cJSON *names = NULL;
	int rc;

	if (images < 0)
		return images;
	lock = lock_file(images, ".lock", err);
	if (lock < 0)
		return lock;
	rc = move_in ? move_in(images, w, id) : faccessat(images, id, F_OK, 0) < 0 ? -errno : 0;
	if (rc < 0)
		return ak_fail_errno(err, -rc, "images/%.12s…", id);
	rc = read_names(images, &names, err);
	if (rc == 0 && put_name(names, name, id) < 0)
		rc = ak_fail(err, ENOMEM, "out of memory");
	return rc < 0 ? rc : write_names(images, names, err);
}

int image_name_add(const struct ak_paths *paths, const char *name, const char *id, struct ak_err *err)
{
	return image_names_add(paths, name, id, NULL, NULL, err);
}

int image_name_lock(const struct ak_paths *paths, const char *name, uint64_t *ret_us, struct ak_err *err)
{
	_cleanup_close_ int images = image_dir_open(paths, true, err), lock = -1;
	_cleanup_json_ cJSON *names = NULL;
	uint8_t digest[SHA256_SIZE];
	char hex[SHA256_HEX], file[32];
	struct sha256 s;
	int rc;

	if (images < 0)
		return images;
	sha256_init(&s);
	sha256_add(&s, name, strlen(name));
	sha256_done(&s, digest);
	sha256_hex(digest, hex);
	snprintf(file, sizeof(file), ".pull-%.16s", hex);
	lock = lock_file(images, file, err);
	if (lock < 0)
		return lock;
	rc = read_names(images, &names, err);
	if (rc < 0)
		return rc;
	*ret_us = json_number(cJSON_GetObjectItemCaseSensitive(names, name), "us", 0);
	return TAKE_FD(lock);
}

/* ---- list and removal ---- */

static void fill_row(const struct ak_paths *paths, const char *name, const char *id, struct image_row *ret)
{
	struct image img;
	struct ak_err ignored;

	*ret = (struct image_row){ 0 };
	snprintf(ret->name, sizeof(ret->name), "%s", name);
	snprintf(ret->id, sizeof(ret->id), "%s", id);
	if (image_open(paths, id, &img, &ignored) < 0)
		return;
	ret->size_bytes = img.size_bytes;
	ret->created_us = img.created_us;
	image_done(&img);
}

static int compare(const void *a, const void *b)
{
	return strcmp((*(const cJSON *const *)a)->string, (*(const cJSON *const *)b)->string);
}

int image_each(const struct ak_paths *paths, int (*fn)(void *ctx, const struct image_row *row), void *ctx, struct ak_err *err)
{
	_cleanup_close_ int images = image_dir_open(paths, false, err);
	_cleanup_json_ cJSON *names = NULL;
	_cleanup_free_ const cJSON **sorted = NULL;
	const cJSON *item;
	struct image_row row;
	size_t n = 0;
	int rc = images == -ENOENT ? 0 : images < 0 ? images : read_names(images, &names, err);

	if (rc < 0 || images < 0)
		return rc;
	sorted = calloc((size_t)cJSON_GetArraySize(names) + 1, sizeof(*sorted));
	if (!sorted)
		return ak_fail(err, ENOMEM, "out of memory");
	cJSON_ArrayForEach(item, names)
		sorted[n++] = item;
	qsort(sorted, n, sizeof(*sorted), compare);
	for (size_t i = 0; i < n && rc == 0; i++) {
		fill_row(paths, sorted[i]->string, json_text(sorted[i], "id", ""), &row);
		rc = fn(ctx, &row);
	}
	return rc;
}

/* Remove the files of ID, unless a sandbox runs with it (-EBUSY). The rename makes it one step for everybody else. */
static int remove_files(int images, const char *id)
{
	_cleanup_close_ int fd = openat(images, id, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	char fresh[32], gone[40];
	int rc;

	if (fd < 0)
		return errno == ENOENT ? 0 : -errno;
	if (flock(fd, LOCK_EX | LOCK_NB) < 0)
		return -EBUSY;
	rc = ak_fresh_name(fresh);
	snprintf(gone, sizeof(gone), ".new-%s", fresh);
	if (rc == 0 && renameat(images, id, images, gone) < 0)
		rc = -errno;
	return rc < 0 ? rc : image_tree_remove(images, gone);
}

static bool has_other_name(const cJSON *names, const char *id, const char *name)
{
	const cJSON *item;

	cJSON_ArrayForEach(item, names) {
		if (strcmp(item->string, name) != 0 && !strcmp(json_text(item, "id", ""), id))
			return true;
	}
	return false;
}

/* With the lock held. */
static int remove_name(int images, cJSON *names, const char *name, image_used_fn *used, void *ctx, struct ak_err *err)
{
	char id[SHA256_HEX];
	bool last;
	int rc = 0;

	snprintf(id, sizeof(id), "%s", id_of(names, name) ? id_of(names, name) : "");
	last = !has_other_name(names, id, name);
	if (last && used && used(ctx, id))
		return ak_fail(err, EBUSY, "image '%s' is in use by a sandbox", name);
	if (last)
		rc = remove_files(images, id);
	if (rc == -EBUSY)
		return ak_fail(err, EBUSY, "image '%s' is in use by a running sandbox", name);
	cJSON_DeleteItemFromObjectCaseSensitive(names, name);
	if (write_names(images, names, err) < 0)
		return -EIO;
	return rc < 0 ? ak_fail_errno(err, -rc, "image '%s': removing its files", name) : 0;
}

int image_remove(const struct ak_paths *paths, const char *name, image_used_fn *used, void *ctx, struct ak_err *err)
{
	_cleanup_close_ int images = -1, lock = -1;
	_cleanup_json_ cJSON *names = NULL;
	char found[IMAGE_NAME_MAX], id[SHA256_HEX];
	int rc = image_names_find(paths, name, found, id, err);

	if (rc == -ENOENT)
		return ak_fail(err, ENOENT, "image '%s' is not on this machine", name);
	if (rc < 0)
		return rc;
	images = image_dir_open(paths, false, err);
	if (images < 0)
		return images;
	lock = lock_file(images, ".lock", err);
	rc = lock < 0 ? lock : read_names(images, &names, err);
	return rc < 0 ? rc : remove_name(images, names, found, used, ctx, err);
}

/* Folders of images without a name: the name was given to another image. */
static void prune_nameless(int images, const cJSON *names, image_used_fn *used, void *ctx)
{
	_cleanup_(image_names_done) struct image_list list = { 0 };

	(void)image_list_read(images, "", &list);
	for (size_t i = 0; i < list.n; i++) {
		const char *id = list.names[i];

		if (strlen(id) == SHA256_HEX - 1 && !has_other_name(names, id, "") && !(used && used(ctx, id)))
			(void)remove_files(images, id);
	}
}

int image_prune(const struct ak_paths *paths, image_used_fn *used, void *ctx,
	void (*told)(void *ctx, const struct image_row *row), void *told_ctx, struct ak_err *err)
{
	_cleanup_close_ int images = image_dir_open(paths, false, err), lock = -1;
	_cleanup_json_ cJSON *names = NULL;
	struct image_row row;
	int rc;

	if (images < 0)
		return images == -ENOENT ? 0 : images;
	lock = lock_file(images, ".lock", err);
	if (lock < 0)
		return lock;
	rc = read_names(images, &names, err);
	for (cJSON *item = rc < 0 ? NULL : names->child, *next; item; item = next) {
		next = item->next;
		fill_row(paths, item->string, json_text(item, "id", ""), &row);
		if (remove_name(images, names, row.name, used, ctx, err) == 0)
			told(told_ctx, &row);
	}
	if (rc == 0)
		prune_nameless(images, names, used, ctx);
	return rc < 0 ? rc : 0;
}
