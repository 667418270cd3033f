/*
 * The root of a sandbox that runs an image: an overlay with the unpacked image below and the sandbox's store above.
 *
 * Strangers wrote the image. Nothing here follows a link in it: paths are walked part by part (path.h), and files are opened without
 * following links and read only if they are small regular files.
 */
#include "vmctl/internal.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/base/strbuf.h"
#include "vmctl/mnt.h"
#include "vmctl/path.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define USERS_MAX (256u << 10) /* bytes of /etc/passwd and /etc/group */

/* Mount the image on a folder of the store: an overlay takes only layers that are mounted in its own mount namespace. */
static int mount_lower(const struct sb_root *r)
{
	const struct sb_ctx *ctx = r->ctx;
	_cleanup_close_ int tree = -1;
	int rc = path_folder(r->store, "image", 0755);

	if (rc < 0)
		return rc;
	tree = ctx->trees.image >= 0 ? fcntl(ctx->trees.image, F_DUPFD_CLOEXEC, 3)
				     : mnt_clone(AT_FDCWD, ctx->spec->image_root, false);
	rc = tree < 0 ? tree : mnt_attr(tree, false, MNT_SAFE | MOUNT_ATTR_RDONLY, 0);
	return rc < 0 ? rc : mnt_attach(tree, r->store, "image");
}

static int open_folder(int dir, const char *name)
{
	int fd = openat(dir, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

/* Returns the overlay, detached. Layers are named by descriptor: the store has no path, because a mount covers it. */
static int make_overlay(const struct sb_root *r)
{
	_cleanup_close_ int lower_fd = open_folder(r->store, "image"), upper_fd = open_folder(r->store, "root"),
			    work_fd = open_folder(r->store, "work");
	char lower[64], upper[64], work[64];
	const char *const opts[][2] = { { "lowerdir", lower }, { "upperdir", upper }, { "workdir", work }, { "userxattr", NULL },
		{ NULL, NULL } };

	if (lower_fd < 0 || upper_fd < 0 || work_fd < 0)
		return -ENOENT;
	snprintf(lower, sizeof(lower), "/proc/self/fd/%d", lower_fd);
	snprintf(upper, sizeof(upper), "/proc/self/fd/%d", upper_fd);
	snprintf(work, sizeof(work), "/proc/self/fd/%d", work_fd);
	return mnt_new("overlay", opts, MNT_SAFE);
}

int sb_root_image(struct sb_root *r, struct ak_err *err)
{
	int rc = mount_lower(r);

	if (rc < 0)
		return sb_root_failed(err, rc, "the image");
	rc = path_folder(r->store, "root", 0755);
	if (rc == 0)
		rc = path_folder(r->store, "work", 0755);
	r->fd = rc < 0 ? rc : make_overlay(r);
	if (r->fd < 0)
		return sb_root_failed(err, r->fd, "overlay of the image");
	rc = mnt_attach(r->fd, r->store, "");
	return rc < 0 ? sb_root_failed(err, rc, "mounting it") : 0;
}

/* ---- the user's name ---- */

/* Whether TEXT, in the form of /etc/passwd and /etc/group, has a line with this id. */
static bool has_id(const char *text, unsigned id)
{
	for (const char *line = text; line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
		const char *end = line + strcspn(line, "\n"), *p = memchr(line, ':', (size_t)(end - line));

		p = p ? memchr(p + 1, ':', (size_t)(end - p - 1)) : NULL;
		if (p && p + 1 < end && strtoul(p + 1, NULL, 10) == id && p[1] >= '0' && p[1] <= '9')
			return true;
	}
	return false;
}

/* "" if it is no small regular file. */
static int read_file(const struct sb_root *r, const char *path, char **ret)
{
	struct open_how how = { .flags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS };
	_cleanup_close_ int fd = (int)syscall(SYS_openat2, r->fd, path, &how, sizeof(how));
	struct stat st;
	ssize_t n = 0;

	*ret = malloc(USERS_MAX + 1);
	if (!*ret)
		return -ENOMEM;
	if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size <= USERS_MAX)
		n = ak_pread_all(fd, *ret, USERS_MAX, 0);
	(*ret)[n < 0 ? 0 : n] = '\0';
	return 0;
}

/* Append LINE to the image's file PATH unless it names ID already. */
static int add_name(const struct sb_root *r, const char *path, unsigned id, const char *line)
{
	_cleanup_free_ char *text = NULL;
	_cleanup_strbuf_ struct strbuf all = { 0 };
	int rc = read_file(r, path, &text);

	if (rc < 0 || has_id(text, id))
		return rc;
	strbuf_printf(&all, "%s%s%s", text, text[0] && text[strlen(text) - 1] != '\n' ? "\n" : "", line);
	return all.failed ? -ENOMEM : sb_root_write(r, path, all.data);
}

/* apt checks that its change of user has worked: tell it not to change. An image without apt has no such folder. */
static void tell_one_id(const struct sb_root *r)
{
	(void)sb_root_write(r, "etc/apt/apt.conf.d/00agentkernel", "APT::Sandbox::User \"root\";\n");
	sb_send(r->ctx->ctl, SB_MSG_NOTE, 0,
		"the image has one user inside, and chown and su only seem to work: /etc/subuid and /etc/subgid grant you no ids, or newuidmap is "
		"missing",
		-1);
}

/* Many programs fail when their user has no name, for example one that strict isolation chose. */
int sb_root_image_users(const struct sb_root *r, struct ak_err *err)
{
	const struct sb_ids *ids = &r->ctx->ids;
	const struct sandbox_spec *spec = r->ctx->spec;
	_cleanup_strbuf_ struct strbuf user = { 0 }, group = { 0 };
	int rc;

	if (sb_one_id(r->ctx))
		tell_one_id(r);
	strbuf_printf(&user, "agent:x:%u:%u:agent:%s:/bin/sh\n", (unsigned)ids->inner_uid, (unsigned)ids->inner_gid,
		spec->home ? spec->home : "/");
	strbuf_printf(&group, "agent:x:%u:\n", (unsigned)ids->inner_gid);
	if (user.failed || group.failed)
		return ak_fail(err, ENOMEM, "out of memory");
	rc = add_name(r, "etc/passwd", ids->inner_uid, user.data);
	if (rc == 0)
		rc = add_name(r, "etc/group", ids->inner_gid, group.data);
	return rc < 0 ? ak_fail_errno(err, -rc, "naming the user in the image") : 0;
}
