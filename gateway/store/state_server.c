/* MCP servers as owners of sandboxes: see store/state_server.h. */
#include "gateway/store/state_server.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <unistd.h>

int state_server_id(char ret[static STATE_SERVER_MAX], struct ak_err *err)
{
	unsigned char bytes[(STATE_SERVER_MAX - 1) / 2];

	if (getrandom(bytes, sizeof(bytes), 0) != sizeof(bytes))
		return ak_fail_errno(err, errno, "getrandom");
	for (size_t i = 0; i < sizeof(bytes); i++)
		snprintf(ret + 2 * i, 3, "%02x", bytes[i]);
	return 0;
}

/* STATE/mcp/[.]ID */
static int path_of(const struct ak_paths *paths, const char *id, bool hidden, char ret[static PATH_MAX])
{
	char name[STATE_SERVER_MAX + 1];

	snprintf(name, sizeof(name), "%s%s", hidden ? "." : "", id);
	return ak_path_join(ret, paths->state, "mcp", name);
}

/* Lock the file before giving it its real name: an unlocked file belongs to a server that has ended. */
int state_server_hold(const struct ak_paths *paths, const char *id, struct ak_err *err)
{
	char dir[PATH_MAX], path[PATH_MAX], hidden[PATH_MAX];
	_cleanup_close_ int fd = -1;
	int rc = ak_path_join(dir, paths->state, "mcp", NULL);

	if (rc == 0)
		rc = path_of(paths, id, false, path);
	if (rc == 0)
		rc = path_of(paths, id, true, hidden);
	if (rc == 0)
		rc = ak_mkdir_p(dir, 0700);
	if (rc < 0)
		return ak_fail_errno(err, -rc, "%s", paths->state);
	fd = open(hidden, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0 || rename(hidden, path) < 0)
		return ak_fail_errno(err, errno, "%s", path);
	return TAKE_FD(fd);
}

static int open_file(const struct ak_paths *paths, const char *id)
{
	char path[PATH_MAX];
	int rc = path_of(paths, id, false, path), fd;

	if (rc < 0)
		return rc;
	fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	return fd < 0 ? -errno : fd;
}

int state_server_succeed(const struct ak_paths *paths, const char *id)
{
	_cleanup_close_ int fd = open_file(paths, id);

	if (fd < 0)
		return fd;
	while (flock(fd, LOCK_EX) < 0) {
		if (errno != EINTR)
			return -errno;
	}
	return TAKE_FD(fd);
}

bool state_server_lives(const struct ak_paths *paths, const char *id)
{
	_cleanup_close_ int fd = open_file(paths, id);

	if (fd < 0)
		return fd != -ENOENT;
	return flock(fd, LOCK_SH | LOCK_NB) < 0;
}

void state_server_each_dead(const struct ak_paths *paths, void (*fn)(void *ctx, const char *id), void *ctx)
{
	char path[PATH_MAX];
	DIR *dir = ak_path_join(path, paths->state, "mcp", NULL) == 0 ? opendir(path) : NULL;

	for (struct dirent *e; dir && (e = readdir(dir));) {
		if (strlen(e->d_name) == STATE_SERVER_MAX - 1 && e->d_name[0] != '.' && !state_server_lives(paths, e->d_name))
			fn(ctx, e->d_name);
	}
	if (dir)
		closedir(dir);
}

void state_server_forget(const struct ak_paths *paths, const char *id)
{
	char path[PATH_MAX];

	if (path_of(paths, id, false, path) == 0)
		unlink(path);
}

bool state_orphaned(const struct ak_paths *paths, const struct state_sandbox *s)
{
	return s->mcp.server[0] && !s->mcp.keep && !state_server_lives(paths, s->mcp.server);
}
