/* The user of an image: see user.h. */
#include "gateway/image/user.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/base/number.h"
#include "gateway/image/inodes.h"

#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define FILE_MAX (1u << 20)

/* "" if there is none. */
static char *read_file(const char *path)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	char *text = malloc(FILE_MAX + 1);
	struct stat st;
	ssize_t n = 0;

	if (text && fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
		n = ak_pread_all(fd, text, FILE_MAX, 0);
	if (text)
		text[n < 0 ? 0 : n] = '\0';
	return text;
}

/* Split LINE at its colons; returns how many fields there are, at most MAX. */
static size_t split(char *line, char **fields, size_t max)
{
	size_t n = 0;

	while (line && n < max)
		fields[n++] = strsep(&line, ":");
	return n;
}

static bool is_id(const char *text, uint32_t *ret)
{
	unsigned long long value;
	struct ak_err ignored;

	if (ak_parse_count(text, 0, INT32_MAX, &value, &ignored) < 0)
		return false;
	*ret = (uint32_t)value;
	return true;
}

/* A home that is no plain path is ignored. */
static void take_home(const char *home, struct image_user *ret)
{
	bool plain = home[0] == '/' && strlen(home) < sizeof(ret->home) && !strstr(home, "/../") && !strstr(home, "//");

	for (const char *p = home; plain && *p; p++)
		plain = (unsigned char)*p > ' ' && *p != 127;
	snprintf(ret->home, sizeof(ret->home), "%s", plain ? home : "/");
}

/* The line of /etc/passwd with this name, or with this id if NAME is NULL. */
static bool find_user(const char *name, uint32_t id, struct image_user *ret)
{
	_cleanup_free_ char *text = read_file("/etc/passwd");
	char *save = NULL, *f[7];
	uint32_t uid, gid;

	for (char *line = text ? strtok_r(text, "\n", &save) : NULL; line; line = strtok_r(NULL, "\n", &save)) {
		if (split(line, f, ARRAY_SIZE(f)) < 6 || !is_id(f[2], &uid) || !is_id(f[3], &gid))
			continue;
		if (name ? strcmp(f[0], name) != 0 : uid != id)
			continue;
		ret->uid = uid;
		ret->gid = gid;
		take_home(f[5], ret);
		return true;
	}
	return false;
}

static bool find_group(const char *name, uint32_t *ret)
{
	_cleanup_free_ char *text = read_file("/etc/group");
	char *save = NULL, *f[4];

	for (char *line = text ? strtok_r(text, "\n", &save) : NULL; line; line = strtok_r(NULL, "\n", &save)) {
		if (split(line, f, ARRAY_SIZE(f)) >= 3 && !strcmp(f[0], name) && is_id(f[2], ret))
			return true;
	}
	return false;
}

int image_user_find(const char *text, struct image_user *ret, struct ak_err *err)
{
	char user[256], *group;
	uint32_t id = 0;

	snprintf(user, sizeof(user), "%s", text[0] ? text : "0");
	group = strchr(user, ':');
	if (group)
		*group++ = '\0';
	*ret = (struct image_user){ .home = "/" };
	if (is_id(user, &id)) {
		if (!find_user(NULL, id, ret)) {
			ret->uid = id;
			snprintf(ret->home, sizeof(ret->home), id ? "/" : "/root");
		}
	} else if (!find_user(user, 0, ret)) {
		return ak_fail(err, EBADMSG, "the image's user '%.100s' is not in its /etc/passwd", user);
	}
	if (group && *group && !is_id(group, &ret->gid) && !find_group(group, &ret->gid))
		return ak_fail(err, EBADMSG, "the image's group '%.100s' is not in its /etc/group", group);
	return 0;
}

static uint32_t exchange(uint32_t id, uint32_t with)
{
	return id == 0 ? with : id == with ? 0 : id;
}

int image_user_settle(const struct image_user *user, struct ak_err *err)
{
	static char slash[] = "/";
	char *paths[] = { slash, NULL };
	struct inodes done = { 0 }; /* a file with several names is exchanged once */
	FTS *tree;
	FTSENT *e;
	int rc = 0;

	if (!user->uid && !user->gid)
		return 0;
	tree = fts_open(paths, FTS_PHYSICAL | FTS_XDEV, NULL);
	if (!tree)
		return ak_fail_errno(err, errno, "owners");
	while (rc == 0 && (e = fts_read(tree))) {
		const struct stat *st = e->fts_statp;

		if (e->fts_info == FTS_DP)
			continue;
		if (e->fts_info == FTS_DNR || e->fts_info == FTS_ERR || e->fts_info == FTS_NS || e->fts_info == FTS_DC)
			rc = ak_fail(err, EBADMSG, "'%.200s' cannot be read", e->fts_path);
		else if (inodes_has(&done, st->st_ino))
			continue;
		else if (lchown(e->fts_accpath, exchange(st->st_uid, user->uid), exchange(st->st_gid, user->gid)) < 0 &&
			errno != EINVAL)
			rc = ak_fail_errno(err, errno, "owner of '%.200s'", e->fts_path);
		else if (st->st_nlink > 1 && !S_ISDIR(st->st_mode) && inodes_add(&done, st->st_ino) < 0)
			rc = ak_fail(err, ENOMEM, "out of memory");
	}
	fts_close(tree);
	inodes_done(&done);
	return rc;
}
