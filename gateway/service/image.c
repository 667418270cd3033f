/*
 * Images: import and pull, and which are in use. See service/service.h.
 *
 * skopeo brings an image as an OCI layout into a folder of the store. For a pull it runs in a sandbox like any other command, with a
 * policy that allows only the registry; for an import in one without network. The layers are unpacked by our own program in a third
 * sandbox (gateway/image). This process reads only the manifest and the configuration, as bounded JSON.
 */
#include "gateway/service/internal.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/spawn.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TO_LAYOUT "oci:" IMAGE_BOX_LAYOUT ":image"

int service_image_tools(char ret[static PATH_MAX], struct ak_err *err)
{
	if (spawn_find("skopeo", ret))
		return 0;
	return ak_fail(err, ENOPKG, "skopeo is not installed; on Debian and Ubuntu: apt-get install skopeo");
}

/* WORK/layout is complete: unpack it, unless the store has the image already, and name it. */
int service_image_finish(
	const struct ak_paths *paths, const struct image_work *w, const char *name, uint64_t max_bytes, struct ak_err *err)
{
	_cleanup_(image_config_done) struct image_config conf = { .n_layers = 0 };
	_cleanup_close_ int layout = openat(w->fd, "layout", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct image_facts facts;
	struct ak_err ignored;
	struct image img;
	int rc = layout < 0 ? ak_fail_errno(err, errno, "%s", w->path) : image_layout_read(layout, &conf, err);

	if (rc < 0)
		return rc;
	if (image_open(paths, conf.id, &img, &ignored) == 0) {
		rc = image_name_add(paths, name, conf.id, err);
		image_done(&img);
		return rc;
	}
	rc = image_unpack(w, &conf, max_bytes ? max_bytes : IMAGE_BYTES_DEFAULT, &facts, err);
	return rc < 0 ? rc : image_work_keep(paths, w, &conf, &facts, name, err);
}

/* ---- import ---- */

struct source {
	const char *transport; /* of skopeo */
	char path[PATH_MAX]; /* resolved */
	char tag[256]; /* "" if none was given */
};

static int resolve(const char *text, size_t len, struct source *s)
{
	char path[PATH_MAX];

	if (len >= sizeof(path))
		return -ENAMETOOLONG;
	memcpy(path, text, len);
	path[len] = '\0';
	return realpath(path, s->path) ? 0 : -errno;
}

/* PATH[:TAG]. A path may have colons of its own: the longest that exists is meant. */
static int split_source(const char *text, struct source *s)
{
	size_t len = strlen(text);
	int rc = resolve(text, len, s);

	while (rc < 0 && len > 1) {
		while (--len && text[len] != ':')
			;
		if (len && resolve(text, len, s) == 0) {
			snprintf(s->tag, sizeof(s->tag), "%s", text + len + 1);
			return 0;
		}
	}
	return rc;
}

static int parse_source(const char *text, struct source *s, struct ak_err *err)
{
	static const char *const transports[] = { "docker-archive", "oci-archive", "oci" };
	struct stat st;
	int rc;

	*s = (struct source){ .transport = "oci" };
	for (size_t i = 0; i < ARRAY_SIZE(transports); i++) {
		size_t len = strlen(transports[i]);

		if (!strncmp(text, transports[i], len) && text[len] == ':') {
			s->transport = transports[i];
			text += len + 1;
			break;
		}
	}
	rc = split_source(text, s);
	if (rc < 0)
		return ak_fail_errno(err, -rc, "'%.200s'", text);
	if (stat(s->path, &st) < 0)
		return ak_fail_errno(err, errno, "'%s'", s->path);
	if (!strcmp(s->transport, "oci") && !S_ISDIR(st.st_mode))
		return ak_fail(err, EINVAL, "'%s' is not a folder; for an archive write docker-archive:%s or oci-archive:%s",
			s->path, text, text);
	if (strcmp(s->transport, "oci") != 0 && !S_ISREG(st.st_mode))
		return ak_fail(err, EINVAL, "'%s' is not a file", s->path);
	return 0;
}

/* The name of an import that was given none: localhost/FOLDER:TAG, in the letters that names may have. */
static void default_name(const struct source *s, char ret[static IMAGE_NAME_MAX])
{
	const char *base = strrchr(s->path, '/') + 1;
	size_t len = strcspn(base, "."), n;

	n = (size_t)snprintf(ret, IMAGE_NAME_MAX, "localhost/%.*s:%.100s", (int)(len ? len > 100 ? 100 : len : 1),
		len ? base : "x", s->tag[0] ? s->tag : "latest");
	for (size_t i = 10; i < n && ret[i] != ':'; i++)
		ret[i] = isalnum((unsigned char)ret[i]) ? (char)tolower(ret[i]) : i == 10 ? 'x' : '-';
}

static int canonical(const char *name, char ret[static IMAGE_NAME_MAX], struct ak_err *err)
{
	struct image_ref ref;
	int rc = image_ref_parse(name, &ref, err);

	if (rc == 0)
		image_ref_print(&ref, ret);
	return rc;
}

/* A tag that is a whole reference, as in archives, is the name. */
static int find_name(const struct source *s, const char *given, char ret[static IMAGE_NAME_MAX], struct ak_err *err)
{
	char made[IMAGE_NAME_MAX];
	struct ak_err ignored;

	if (given)
		return canonical(given, ret, err);
	if (strpbrk(s->tag, ":/") && canonical(s->tag, ret, &ignored) == 0)
		return 0;
	default_name(s, made);
	return canonical(made, ret, err);
}

/* A digest in a name says which content it stands for, and only whoever has fetched the image by that digest has compared it. */
static int import_name(
	const struct source *s, const struct service_image *how, char ret[static IMAGE_NAME_MAX], struct ak_err *err)
{
	int rc = find_name(s, how->name, ret, err);

	if (rc == 0 && strchr(ret, '@') && !how->digest_known)
		return ak_fail(err, EINVAL, "'%s': an import cannot have a name with a digest; give it a tag, or pull it", ret);
	return rc;
}

/* Is NAME in the folder FD a regular file, or absent? Whoever opens a FIFO waits for its writer. */
static int check_regular(int fd, const char *name, struct ak_err *err)
{
	struct stat st;

	if (fstatat(fd, name, &st, 0) < 0)
		return errno == ENOENT ? 0 : ak_fail_errno(err, errno, "'%s'", name);
	return S_ISREG(st.st_mode) ? 0 : ak_fail(err, EINVAL, "'%s' in the layout is not a regular file", name);
}

/* The same for the files in the folder NAME and, above LEVELS, in the folders in it. */
static int check_files(int at, const char *name, unsigned levels, struct ak_err *err)
{
	int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC), rc = 0;
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *e;

	if (!d) {
		rc = errno == ENOENT ? 0 : ak_fail_errno(err, errno, "'%s'", name);
		ak_close(fd);
		return rc;
	}
	while (rc == 0 && (e = readdir(d))) {
		if (e->d_name[0] != '.')
			rc = levels ? check_files(fd, e->d_name, levels - 1, err) : check_regular(fd, e->d_name, err);
	}
	closedir(d);
	return rc;
}

static int check_layout(const struct source *s, struct ak_err *err)
{
	_cleanup_close_ int fd = -1;
	int rc;

	if (strcmp(s->transport, "oci") != 0)
		return 0;
	fd = open(s->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return ak_fail_errno(err, errno, "'%s'", s->path);
	rc = check_regular(fd, "oci-layout", err);
	if (rc == 0)
		rc = check_regular(fd, "index.json", err);
	if (rc == 0)
		rc = check_files(fd, "blobs", 1, err); /* blobs/ALGORITHM/DIGEST */
	return rc < 0 ? ak_err_prefix(err, rc, "'%s'", s->path) : 0;
}

static int copy_in(const struct image_work *w, const struct source *s, struct ak_err *err)
{
	static char skopeo[] = "skopeo", policy[] = "--insecure-policy", copy[] = "copy", quiet[] = "--quiet", to[] = TO_LAYOUT;
	char from[sizeof(IMAGE_BOX_SOURCE) + 300];
	char *const argv[] = { skopeo, policy, copy, quiet, from, to, NULL };
	int rc;

	snprintf(from, sizeof(from), "%s:%s%s%s", s->transport, IMAGE_BOX_SOURCE, s->tag[0] ? ":" : "", s->tag);
	rc = image_copy(w, s->path, argv, err);
	return rc < 0 ? ak_err_prefix(err, rc, "'%s'", s->path) : 0;
}

int service_image_import(const struct ak_paths *paths, const char *source, const struct service_image *how,
	char ret[static IMAGE_NAME_MAX], struct ak_err *err)
{
	char skopeo[PATH_MAX];
	struct image_work w;
	struct source s;
	int rc = parse_source(source, &s, err);

	if (rc == 0)
		rc = check_layout(&s, err);
	if (rc == 0)
		rc = import_name(&s, how, ret, err);
	if (rc == 0)
		rc = service_image_tools(skopeo, err);
	if (rc == 0)
		rc = image_work_begin(paths, &w, err);
	if (rc < 0)
		return rc;
	rc = copy_in(&w, &s, err);
	if (rc == 0)
		rc = service_image_finish(paths, &w, ret, how->max_bytes, err);
	image_work_end(&w);
	return rc;
}

/* ---- removal ---- */

struct using
{
	const char *id;
	bool found;
};

static int compare_id(void *ctx, struct state_sandbox *s)
{
	struct using *u = ctx;

	u->found |= !strcmp(s->image_id, u->id);
	return u->found;
}

/* If the sandboxes cannot be read, the image stays. */
static bool is_used(void *ctx, const char *id)
{
	struct using u = { .id = id };
	struct ak_err ignored;

	return state_each(ctx, compare_id, NULL, &u, &ignored) < 0 || u.found;
}

int service_image_remove(const struct ak_paths *paths, const char *name, struct ak_err *err)
{
	return image_remove(paths, name, is_used, (void *)(uintptr_t)paths, err);
}

int service_image_prune(
	const struct ak_paths *paths, void (*told)(void *ctx, const struct image_row *row), void *ctx, struct ak_err *err)
{
	return image_prune(paths, is_used, (void *)(uintptr_t)paths, told, ctx, err);
}
