/*
 * cp SRC DST: copy files and folders between the host and a sandbox. The sandbox must be running to copy into it.
 *
 * NAME:/path is in a sandbox, everything else is on the host; "./x:y" is a file on the host. If DST is a folder, the copy goes into it under its
 * own name, as with cp -a. "-" is a tar archive on stdin or stdout, as with `docker cp`. On the host, a destination that is a symbolic link is refused: in a project, the sandbox may have created it.
 */
#include "gateway/cli/archive.h"
#include "gateway/cli/cmd.h"

#include "gateway/base/cleanup.h"
#include "gateway/service/service.h"
#include "gateway/store/runs.h"
#include "gateway/store/shared.h"
#include "gateway/store/state.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* One side of the copy. */
struct side {
	const char *text; /* as given */
	char sandbox[AK_NAME_MAX]; /* "" for the host */
	char path[PATH_MAX]; /* on the host or in the sandbox */
	bool stream; /* "-": stdin or stdout */
	bool slash; /* TEXT ended with a slash: the user means a folder */
	int root; /* owned; the root folder of the sandbox */
	int dir; /* owned; the parent folder of PATH */
	char base[NAME_MAX + 1]; /* the name in DIR */
};

static volatile sig_atomic_t stop;

static void on_interrupt(int sig)
{
	stop = sig;
}

/* ---- words ---- */

static int parse_side(struct side *s, const char *text, struct ak_err *err)
{
	const char *colon = strchr(text, ':'), *path = text;

	s->text = text;
	s->stream = !strcmp(text, "-");
	if (colon && !memchr(text, '/', (size_t)(colon - text))) {
		size_t len = (size_t)(colon - text);

		if (len == 0 || len >= sizeof(s->sandbox))
			return ak_fail(err, EINVAL, "'%.80s': must be NAME:/path", text);
		memcpy(s->sandbox, text, len);
		s->sandbox[len] = '\0';
		if (service_check_name(s->sandbox, err) < 0)
			return -EINVAL;
		path = colon + 1;
		if (path[0] != '/')
			return ak_fail(err, EINVAL, "'%.80s': the path in the sandbox must be absolute, as in %s:/tmp/x", text,
				s->sandbox);
	}
	if (!path[0])
		return ak_fail(err, EINVAL, "an empty path");
	if (strlen(path) >= sizeof(s->path))
		return ak_fail(err, ENAMETOOLONG, "'%.60s…': path too long", path);
	memcpy(s->path, path, strlen(path) + 1);
	s->slash = path[strlen(path) - 1] == '/';
	return 0;
}

static int parse(int argc, char **argv, struct side sides[2])
{
	struct cmd_args a;
	struct ak_err err;
	const char *value;
	int i, n = 0, rc = 0;

	cmd_args_init(&a, cmd_row("cp"), argc, argv);
	while (rc == 0 && (i = cmd_next(&a, &value)) != CMD_END) {
		if (i == CMD_BAD || i == CMD_HELP)
			return 1 + (i == CMD_BAD ? AK_EXIT_USAGE : 0);
		if (i >= 0)
			continue; /* --recursive is the default */
		rc = n < 2 ? parse_side(&sides[n++], value, &err) : ak_fail(&err, EINVAL, "unexpected '%.100s'", value);
	}
	if (rc == 0 && n < 2)
		rc = ak_fail(&err, EINVAL, "needs SRC and DST; one of them is NAME:/path");
	if (rc == 0 && !sides[0].sandbox[0] == !sides[1].sandbox[0])
		rc = ak_fail(&err, EINVAL,
			sides[0].sandbox[0] ? "only one side may be in a sandbox" : "one side must be in a sandbox: NAME:/path");
	if (rc < 0) {
		ak_say("cp: %s", err.text);
		return 1 + AK_EXIT_USAGE;
	}
	return 0;
}

/* ---- the two folders ---- */

/* Open the parent folder on the host and split off the name. */
static int open_host(struct side *s, const struct ak_paths *paths, struct ak_err *err)
{
	char head[PATH_MAX];
	size_t len = strlen(s->path), start;

	while (len > 1 && s->path[len - 1] == '/')
		len--;
	for (start = len; start > 0 && s->path[start - 1] != '/';)
		start--;
	if (len - start > NAME_MAX)
		return ak_fail(err, ENAMETOOLONG, "'%.60s…': file name too long", s->path + start);
	snprintf(head, sizeof(head), "%.*s", start ? (int)start : 1, start ? s->path : ".");
	snprintf(s->base, sizeof(s->base), "%.*s", (int)(len - start), s->path + start);
	if (!s->base[0] || !strcmp(s->base, ".") || !strcmp(s->base, "..")) {
		/* "/", "." or "..": a folder without a name of its own. */
		s->dir = shared_open_folder(paths, s->path, err);
		s->base[0] = '\0';
	} else {
		s->dir = shared_open_folder(paths, head, err);
	}
	return s->dir < 0 ? s->dir : 0;
}

/* Open the root of a running sandbox. Of a stopped one, open the folder that keeps its files, for reading only. */
static int open_root(struct side *s, bool read_only, const struct ak_paths *paths, const char **path, struct ak_err *err)
{
	struct ak_err other;
	int rc;

	s->root = service_root(paths, s->sandbox, err);
	if (s->root >= 0 || !read_only || s->root == -EPERM)
		return s->root;
	rc = service_kept(paths, s->sandbox, path, &other);
	if (rc < 0 && rc != -ENOENT)
		*err = other;
	s->root = rc < 0 ? -1 : rc;
	return rc;
}

static int open_inside(struct side *s, bool read_only, const struct ak_paths *paths, struct ak_err *err)
{
	const char *path = s->path;
	int rc = open_root(s, read_only, paths, &path, err);

	if (rc < 0)
		return rc;
	if (path[strspn(path, "/.")] == '\0') { /* the root folder itself */
		s->dir = fcntl(s->root, F_DUPFD_CLOEXEC, 3);
		s->base[0] = '\0';
		return s->dir < 0 ? ak_fail_errno(err, errno, "'%.200s'", s->text) : 0;
	}
	rc = service_file_parent(s->root, path, false, s->base, err);
	if (rc < 0)
		return ak_err_prefix(err, rc, "%s", s->sandbox);
	s->dir = rc;
	return 0;
}

static int open_side(struct side *s, bool read_only, const struct ak_paths *paths, struct ak_err *err)
{
	const char *name = s->sandbox;
	char whole[AK_NAME_MAX];
	int rc = s->stream ? 0 : runs_resolve(paths, &name, whole, err);

	if (s->stream)
		return 0;

	if (rc < 0)
		return rc;
	if (name == whole)
		memcpy(s->sandbox, whole, sizeof(whole));
	return s->sandbox[0] ? open_inside(s, read_only, paths, err) : open_host(s, paths, err);
}

/* Make the folder S the parent, and NAME the name in it. */
static int enter(struct side *s, const struct ak_paths *paths, const char *name, struct ak_err *err)
{
	int fd = s->dir;

	if (s->base[0] && s->slash)
		fd = shared_open_folder(paths, s->path, err);
	else if (s->base[0] && (fd = openat(s->dir, s->base, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)) < 0)
		fd = ak_fail_errno(err, errno, "'%.200s'", s->text);
	if (fd < 0)
		return fd;
	if (service_fs_forbidden(fd)) {
		if (fd != s->dir)
			ak_close(fd);
		return ak_fail(err, EPERM, "'%.200s' is one of the kernel's own folders", s->text);
	}
	if (fd != s->dir) {
		ak_close(s->dir);
		s->dir = fd;
	}
	if (!name[0])
		return ak_fail(err, EINVAL, "'%.200s': the copy needs a name; add one to the destination path", s->text);
	memcpy(s->base, name, strlen(name) + 1);
	return 0;
}

/* Choose the parent folder and name of the copy by what exists at DST. A symbolic link is followed only on the host and with a trailing slash. */
static int aim(const struct side *src, struct side *dst, const struct ak_paths *paths, struct ak_err *err)
{
	struct stat st;

	if (!dst->base[0])
		return enter(dst, paths, src->base, err);
	if (dst->slash && dst->sandbox[0])
		dst->slash = false; /* in a sandbox a trailing slash never follows a link: the sandbox controls its links */
	if (fstatat(dst->dir, dst->base, &st, dst->slash ? 0 : AT_SYMLINK_NOFOLLOW) < 0) {
		if (errno == ENOENT && dst->path[strlen(dst->path) - 1] != '/')
			return 0;
		return ak_fail_errno(err, errno, "'%.200s'", dst->text);
	}
	if (S_ISLNK(st.st_mode))
		return ak_fail(err, ELOOP, "'%.200s' is a symbolic link; give the path it points to, or remove it", dst->text);
	if (S_ISDIR(st.st_mode))
		return enter(dst, paths, src->base, err);
	if (dst->path[strlen(dst->path) - 1] == '/')
		return ak_fail(err, ENOTDIR, "'%.200s' is not a folder", dst->text);
	return 0;
}

static void say_skipped(void *ctx, const char *path, const char *why)
{
	ak_say("cp: '%s' %s; skipped", path, why);
}

/* ---- copying ---- */

/* A root folder or "." has no name in a parent folder: copy everything in it. */
static int copy(struct side *src, struct side *dst, const struct ak_paths *paths, struct service_copy *c, struct ak_err *err)
{
	struct stat st;
	int rc;

	if (!src->base[0])
		memcpy(src->base, ".", 2);
	if (fstatat(src->dir, src->base, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return ak_fail_errno(err, errno, "'%.200s'", src->text);
	if (src->slash && !S_ISDIR(st.st_mode))
		return ak_fail(err, ENOTDIR, "'%.200s' is not a folder", src->text);
	if (strcmp(src->base, ".") != 0 || dst->base[0] == '\0') {
		rc = aim(src, dst, paths, err);
		if (rc < 0)
			return rc;
	}
	return service_copy_tree(src->dir, src->base, dst->dir, dst->base, c, err);
}

/* ---- archives ---- */

/* DST must be a folder; what is in the archive goes into it, as if unpacked there. */
static int copy_in(struct side *dst, const struct ak_paths *paths, struct service_copy *c, struct ak_err *err)
{
	_cleanup_(archive_done) struct archive a = { .dir = -1 };
	_cleanup_(service_names_done) struct service_names names = { 0 };
	int rc = archive_open(&a, paths, err);
	DIR *d;

	dst->slash = false;
	if (rc == 0)
		rc = enter(dst, paths, ".", err); /* before reading stdin: a wrong destination is told at once */
	if (rc == 0)
		rc = archive_unpack(&a, err);
	if (rc < 0)
		return rc;
	d = opendir(a.path);
	rc = d ? service_names_read(d, &names) : -errno;
	if (d)
		closedir(d);
	if (rc < 0)
		return ak_fail_errno(err, -rc, "%s", a.path);
	for (size_t i = 0; i < names.n && rc == 0; i++)
		rc = service_copy_tree(a.dir, names.list[i], dst->dir, names.list[i], c, err);
	return rc;
}

static int copy_out(struct side *src, const struct ak_paths *paths, struct service_copy *c, struct ak_err *err)
{
	_cleanup_(archive_done) struct archive a = { .dir = -1 };
	const char *name = src->base[0] ? src->base : ".";
	struct stat st;
	int rc;

	if (isatty(STDOUT_FILENO))
		return ak_fail(err, EINVAL, "stdout is a terminal; pipe the archive on: agentkernel cp NAME:/path - | tar t");
	if (fstatat(src->dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return ak_fail_errno(err, errno, "'%.200s'", src->text);
	rc = archive_open(&a, paths, err);
	if (rc == 0)
		rc = service_copy_tree(src->dir, name, a.dir, src->base[0] ? name : "root", c, err);
	if (rc == 0)
		rc = archive_pack(&a, src->base[0] ? name : "root", err);
	return rc;
}

static int transfer(struct side sides[2], const struct ak_paths *paths, struct service_copy *c, struct ak_err *err)
{
	c->to = sides[1].text;
	if (sides[0].stream)
		return copy_in(&sides[1], paths, c, err);
	if (sides[1].stream)
		return copy_out(&sides[0], paths, c, err);
	return copy(&sides[0], &sides[1], paths, c, err);
}

static void record(const struct ak_paths *paths, const struct side *src, const struct side *dst)
{
	if (src->sandbox[0])
		service_file_event(paths, src->sandbox, "copy_out", src->path);
	else
		service_file_event(paths, dst->sandbox, "copy_in", dst->path);
}

static void side_done(struct side *s)
{
	ak_close(s->root);
	ak_close(s->dir);
}

static void take_signals(void)
{
	struct sigaction sa = { .sa_handler = on_interrupt };

	sigaction(SIGINT, &sa, NULL);
	sigaction(SIGTERM, &sa, NULL);
	sigaction(SIGHUP, &sa, NULL);
}

int cmd_cp(int argc, char **argv)
{
	static struct side sides[2]; /* large */
	struct service_copy c = { .stop = &stop, .skipped = say_skipped };
	struct ak_paths paths;
	struct ak_err err;
	int rc;

	for (int i = 0; i < 2; i++)
		sides[i].root = sides[i].dir = -1;
	rc = parse(argc, argv, sides);
	if (rc)
		return rc - 1;
	take_signals();
	rc = ak_paths_init(&paths, &err);
	for (int i = 0; i < 2 && rc == 0; i++)
		rc = open_side(&sides[i], i == 0, &paths, &err);
	if (rc == 0) {
		rc = transfer(sides, &paths, &c, &err);
		record(&paths, &sides[0], &sides[1]);
	}
	for (int i = 0; i < 2; i++)
		side_done(&sides[i]);
	if (rc < 0 && rc != -EPIPE)
		ak_say("cp: %s", err.text);
	if (rc == -EINTR && stop)
		return 128 + (int)stop;
	if (rc == -EINVAL)
		return AK_EXIT_USAGE;
	return rc < 0 || c.left_out ? AK_EXIT_ERROR : 0;
}
