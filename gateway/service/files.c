/*
 * Files of a running sandbox, accessed through a descriptor of its root: see service/service.h.
 *
 * The sandbox owns everything below that root and may change it at any time. Therefore the kernel resolves paths inside the root
 * (RESOLVE_IN_ROOT). We first pin a file with O_PATH, which does not open it, then check its type and file system, and only then
 * open the pinned inode. So a FIFO or device is never opened, and a planted symbolic link to files of the kernel in /proc
 * is refused. Writes go to a new temporary name, which is then renamed.
 */
#include "gateway/service/service.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/base/make.h"
#include "gateway/ipc/ipc.h"
#include "gateway/log/events.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#define ENTRIES_MAX 1000000 /* per folder: a sandbox may add entries as fast as we read them */
#define CHURN_MIN 256
#define ROOT_WAIT_MS 10000

bool service_fs_forbidden(int fd)
{
	static const unsigned long kernel_own[] = { PROC_SUPER_MAGIC, SYSFS_MAGIC, CGROUP_SUPER_MAGIC, CGROUP2_SUPER_MAGIC,
		DEVPTS_SUPER_MAGIC, DEBUGFS_MAGIC, TRACEFS_MAGIC, SECURITYFS_MAGIC, BPF_FS_MAGIC, BINFMTFS_MAGIC, NSFS_MAGIC,
		SELINUX_MAGIC, EFIVARFS_MAGIC, PSTOREFS_MAGIC, 0x19800202 /* mqueue */, 0x62656570 /* configfs */,
		0x65735543 /* fusectl */ };
	struct statfs fs;

	if (fstatfs(fd, &fs) < 0)
		return true;
	for (size_t i = 0; i < ARRAY_SIZE(kernel_own); i++) {
		if ((unsigned long)fs.f_type == kernel_own[i])
			return true;
	}
	return false;
}

static const char *kind_of(mode_t mode)
{
	switch (mode & S_IFMT) {
	case S_IFDIR:
		return "a folder";
	case S_IFLNK:
		return "a symbolic link";
	case S_IFIFO:
		return "a FIFO";
	case S_IFSOCK:
		return "a socket";
	case S_IFCHR:
	case S_IFBLK:
		return "a device";
	default:
		return "not a regular file";
	}
}

static int check_path(const char *path, struct ak_err *err)
{
	if (path[0] != '/')
		return ak_fail(err, EINVAL, "'%.200s': must be an absolute path inside the sandbox", path);
	if (strlen(path) >= PATH_MAX)
		return ak_fail(err, ENAMETOOLONG, "'%.60s…': path too long", path);
	return 0;
}

/* Pin PATH below ROOT; -errno. */
static int resolve(int root, const char *path, uint64_t flags)
{
	struct open_how how = {
		.flags = flags | O_PATH | O_CLOEXEC,
		.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS,
	};

	for (int tries = 0; tries < 16; tries++) {
		long fd = syscall(SYS_openat2, root, path, &how, sizeof(how));

		if (fd >= 0)
			return (int)fd;
		/* A concurrent rename anywhere may have moved ".." outside the root; the kernel returns EAGAIN: retry. */
		if (errno != EAGAIN)
			return -errno;
	}
	return -EAGAIN;
}

int service_file_open(int root, const char *path, struct stat *ret_st, struct ak_err *err)
{
	_cleanup_close_ int pinned = -1;
	struct stat st;
	int fd, rc = check_path(path, err);

	if (rc < 0)
		return rc;
	pinned = resolve(root, path, O_NOFOLLOW);
	if (pinned < 0)
		return ak_fail_errno(err, -pinned, "'%.200s'", path);
	if (fstat(pinned, &st) < 0)
		return ak_fail_errno(err, errno, "'%.200s'", path);
	if (!S_ISREG(st.st_mode))
		return ak_fail(err, S_ISDIR(st.st_mode) ? EISDIR : EINVAL, "'%.200s' is %s", path, kind_of(st.st_mode));
	if (service_fs_forbidden(pinned))
		return ak_fail(err, EPERM, "'%.200s' is one of the kernel's own files", path);
	fd = ak_reopen(pinned, O_RDONLY | O_NONBLOCK);
	if (fd < 0)
		return ak_fail_errno(err, -fd, "'%.200s'", path);
	*ret_st = st;
	return fd;
}

int service_file_read(int root, const char *path, size_t max, char **ret, size_t *ret_len, struct ak_err *err)
{
	_cleanup_free_ char *data = NULL;
	struct stat st;
	size_t len = 0;
	_cleanup_close_ int fd = service_file_open(root, path, &st, err);

	if (fd < 0)
		return fd;
	if ((uint64_t)st.st_size > max)
		return ak_fail(err, EFBIG, "'%.200s' has %lld bytes, more than the %zu that can be read at once", path,
			(long long)st.st_size, max);
	data = malloc((size_t)st.st_size + 1);
	if (!data)
		return ak_fail(err, ENOMEM, "out of memory");
	/* Ignore what is appended while we read. */
	while (len < (size_t)st.st_size) {
		ssize_t n = read(fd, data + len, (size_t)st.st_size - len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return ak_fail_errno(err, errno, "'%.200s'", path);
		if (n == 0)
			break;
		len += (size_t)n;
	}
	data[len] = '\0';
	*ret = TAKE(data);
	*ret_len = len;
	return 0;
}

/* ---- folders ---- */

/* Split PATH into its parent HEAD (at least "/") and its last component BASE. */
static int split(const char *path, char head[PATH_MAX], char base[static NAME_MAX + 1], struct ak_err *err)
{
	size_t len = strlen(path), start;

	while (len > 1 && path[len - 1] == '/')
		len--;
	for (start = len; start > 0 && path[start - 1] != '/';)
		start--;
	if (start == len)
		return ak_fail(err, EINVAL, "'%.200s' is the root folder; name something in it", path);
	if (len - start > NAME_MAX)
		return ak_fail(err, ENAMETOOLONG, "'%.60s…': file name too long", path + start);
	memcpy(base, path + start, len - start);
	base[len - start] = '\0';
	if (!strcmp(base, ".") || !strcmp(base, ".."))
		return ak_fail(err, EINVAL, "'%.200s' does not end with a name", path);
	memcpy(head, path, start);
	head[start] = '\0';
	return 0;
}

/* mkdir -p below the root: the kernel resolves each step anew, inside the root. */
static int make_folders(int root, const char *path, struct ak_err *err)
{
	char head[PATH_MAX];

	for (const char *p = path; *p;) {
		char part[NAME_MAX + 1], above[PATH_MAX];
		size_t end = (size_t)(p - path) + strcspn(p, "/");
		_cleanup_close_ int dir = -1;
		int rc;

		p = path + end + (path[end] == '/');
		memcpy(head, path, end);
		head[end] = '\0';
		if (end == 0 || path[end - 1] == '/')
			continue;
		if (split(head, above, part, err) < 0)
			continue; /* ".." and ".": nothing to create */
		dir = resolve(root, above, O_DIRECTORY);
		if (dir < 0)
			return ak_fail_errno(err, -dir, "'%.200s'", above);
		if (service_fs_forbidden(dir))
			return ak_fail(err, EPERM, "'%.200s' is one of the kernel's own folders", above);
		rc = ak_make_folder(dir, part, 0755);
		if (rc < 0 && rc != -EEXIST)
			return ak_fail_errno(err, -rc, "'%.200s'", head);
	}
	return 0;
}

int service_file_parent(int root, const char *path, bool make, char ret_base[static NAME_MAX + 1], struct ak_err *err)
{
	char head[PATH_MAX];
	int dir, rc = check_path(path, err);

	if (rc == 0)
		rc = split(path, head, ret_base, err);
	if (rc == 0 && make)
		rc = make_folders(root, head, err);
	if (rc < 0)
		return rc;
	dir = resolve(root, head, O_DIRECTORY);
	if (dir < 0)
		return ak_fail_errno(err, -dir, "'%.200s'", head);
	if (service_fs_forbidden(dir)) {
		ak_close(dir);
		return ak_fail(err, EPERM, "'%.200s' is one of the kernel's own folders", head);
	}
	return dir;
}

/* ---- writing and deleting ---- */

/* Mounts protect project files. From outside the sandbox the kernel lets us rename over a mount point, which would remove the mount. */
static bool is_mounted(int dir, const char *name)
{
	struct statx x;

	return statx(dir, name, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT, STATX_BASIC_STATS, &x) == 0 &&
		(x.stx_attributes & STATX_ATTR_MOUNT_ROOT);
}

int service_file_replaceable(int dir, const char *name, struct ak_err *err)
{
	struct stat st;

	if (is_mounted(dir, name))
		return ak_fail(err, EPERM, "'%.200s' is protected or mounted here", name);

	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || S_ISREG(st.st_mode) || S_ISLNK(st.st_mode))
		return 0;
	return ak_fail(
		err, S_ISDIR(st.st_mode) ? EISDIR : EINVAL, "'%.200s' already exists and is %s", name, kind_of(st.st_mode));
}

int service_file_write(int root, const char *path, const void *data, size_t len, mode_t mode, bool parents, struct ak_err *err)
{
	char base[NAME_MAX + 1], tmp[32];
	_cleanup_close_ int fd = -1;
	_cleanup_close_ int dir = service_file_parent(root, path, parents, base, err);
	int rc;

	if (dir < 0)
		return dir;
	rc = service_file_replaceable(dir, base, err);
	if (rc < 0)
		return rc;
	rc = ak_fresh_name(tmp);
	if (rc == 0)
		rc = fd = ak_make_file(dir, tmp, 0600);
	if (rc < 0)
		return ak_fail_errno(err, -rc, "'%.200s'", path);
	rc = ak_write_all(fd, data, len);
	if (rc == 0 && fchmod(fd, mode & 0777) < 0)
		rc = -errno;
	if (rc == 0)
		rc = ak_make_renamed(dir, tmp, base);
	if (rc < 0) {
		unlinkat(dir, tmp, 0);
		return ak_fail_errno(err, -rc, "'%.200s'", path);
	}
	return 0;
}

int service_file_delete(int root, const char *path, bool tree, struct ak_err *err)
{
	char base[NAME_MAX + 1];
	struct stat st;
	_cleanup_close_ int dir = service_file_parent(root, path, false, base, err);
	int rc = 0;

	if (dir < 0)
		return dir;
	if (fstatat(dir, base, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return ak_fail_errno(err, errno, "'%.200s'", path);
	if (is_mounted(dir, base))
		return ak_fail(err, EPERM, "'%.200s' is protected or mounted here", path);
	if (S_ISDIR(st.st_mode) && tree) {
		_cleanup_close_ int real = ak_reopen(dir, O_RDONLY | O_DIRECTORY);

		rc = real < 0 ? real : ak_remove_tree(real, base);
	} else if (unlinkat(dir, base, S_ISDIR(st.st_mode) ? AT_REMOVEDIR : 0) < 0) {
		rc = -errno;
	}
	return rc < 0 ? ak_fail_errno(err, -rc, "'%.200s'", path) : 0;
}

/* ---- listing ---- */

static int by_text(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

void service_names_done(struct service_names *l)
{
	for (size_t i = 0; i < l->n; i++)
		free(l->list[i]);
	free(l->list);
	*l = (struct service_names){ 0 };
}

static int add_name(struct service_names *l, const char *name)
{
	if (l->n == ENTRIES_MAX)
		return -E2BIG;
	if (l->n == l->cap) {
		size_t cap = l->cap ? l->cap * 2 : 64;
		char **grown = reallocarray(l->list, cap, sizeof(*grown));

		if (!grown)
			return -ENOMEM;
		l->list = grown;
		l->cap = cap;
	}
	l->list[l->n] = strdup(name);
	if (!l->list[l->n])
		return -ENOMEM;
	l->n++;
	return 0;
}

/* Sort and remove duplicates. */
static void unique_names(struct service_names *l)
{
	size_t kept = 0;

	if (l->n)
		qsort(l->list, l->n, sizeof(*l->list), by_text);
	for (size_t i = 0; i < l->n; i++) {
		if (kept && !strcmp(l->list[kept - 1], l->list[i]))
			free(l->list[i]);
		else
			l->list[kept++] = l->list[i];
	}
	l->n = kept;
}

/*
 * While files are renamed in a folder, readdir may return the same names again and again and never end. So whenever the number of names has doubled,
 * remove duplicates; if more than half were duplicates, the folder has been read.
 */
int service_names_read(DIR *d, struct service_names *ret)
{
	size_t look_at = CHURN_MIN;
	bool churned = false;
	int rc = 0;

	for (struct dirent *e; rc == 0 && !churned && (errno = 0, e = readdir(d));) {
		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
			continue;
		rc = add_name(ret, e->d_name);
		if (rc == 0 && ret->n == look_at) {
			unique_names(ret);
			churned = ret->n < look_at / 2;
			look_at = ret->n * 2 > CHURN_MIN ? ret->n * 2 : CHURN_MIN;
		}
	}
	if (rc == 0 && !churned && errno)
		rc = -errno;
	unique_names(ret);
	return rc;
}

static int tell_entries(int dir, const struct service_names *l, int (*fn)(void *ctx, const struct service_entry *e), void *ctx)
{
	for (size_t i = 0; i < l->n; i++) {
		struct service_entry e = { .name = l->list[i] };
		struct stat st;
		int rc;

		if (fstatat(dir, l->list[i], &st, AT_SYMLINK_NOFOLLOW) < 0)
			continue; /* deleted since */
		e.mode = st.st_mode;
		e.size = (uint64_t)st.st_size;
		e.mtime_s = (uint64_t)st.st_mtim.tv_sec;
		rc = fn(ctx, &e);
		if (rc)
			return rc;
	}
	return 0;
}

int service_file_list(
	int root, const char *path, int (*fn)(void *ctx, const struct service_entry *e), void *ctx, struct ak_err *err)
{
	_cleanup_close_ int pinned = -1;
	_cleanup_(service_names_done) struct service_names names = { 0 };
	DIR *d = NULL;
	int fd, rc = check_path(path, err);

	if (rc < 0)
		return rc;
	pinned = resolve(root, path, O_DIRECTORY);
	if (pinned < 0)
		return ak_fail_errno(err, -pinned, "'%.200s'", path);
	if (service_fs_forbidden(pinned))
		return ak_fail(err, EPERM, "'%.200s' is one of the kernel's own folders", path);
	fd = ak_reopen(pinned, O_RDONLY | O_DIRECTORY);
	if (fd < 0 || !(d = fdopendir(fd))) {
		rc = fd < 0 ? fd : -errno;
		ak_close(fd);
		return ak_fail_errno(err, -rc, "'%.200s'", path);
	}
	rc = service_names_read(d, &names);
	if (rc < 0)
		ak_fail_errno(err, -rc, "'%.200s'", path);
	else
		rc = tell_entries(dirfd(d), &names, fn, ctx);
	closedir(d);
	return rc;
}

/* ---- the root of a sandbox, and the events ---- */

int service_root(const struct ak_paths *paths, const char *name, struct ak_err *err)
{
	_cleanup_json_ cJSON *request = NULL, *answer = NULL;
	_cleanup_close_ int sock = service_super(paths, name, err);
	int fds[IPC_FDS_MAX], rc;
	size_t n = ARRAY_SIZE(fds);

	if (sock < 0)
		return sock;
	request = cJSON_CreateObject();
	if (!request || !cJSON_AddStringToObject(request, "op", "root"))
		return ak_fail(err, ENOMEM, "out of memory");
	rc = ipc_call(sock, request, NULL, 0, ROOT_WAIT_MS, &answer, fds, &n, err);
	if (rc < 0)
		return ak_err_prefix(err, rc, "sandbox '%s'", name);
	for (size_t i = 1; i < n; i++)
		ak_close(fds[i]);
	return n ? fds[0] : ak_fail(err, EPROTO, "sandbox '%s': its supervisor sent no descriptor of the root folder", name);
}

void service_file_event(const struct ak_paths *paths, const char *name, const char *op, const char *path)
{
	_cleanup_strbuf_ struct strbuf more = { 0 };

	event_put_text(&more, "op", op);
	event_put_text(&more, "path", path);
	event_write(paths, "sandbox_file", name, &more);
}
