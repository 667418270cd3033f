/*
 * What a sandbox's own files take on the disk: see sandbox_measure in sandbox.h.
 *
 * Theory of operation. A child walks the tree depth first, with one descriptor per level, follows nothing, and reports one struct on a pipe. The sandbox may change the
 * tree meanwhile: what appears behind the walk is seen by the next one. A file with several names counts once: each name counts its share. A folder that we may not read (the sandbox
 * took its own permissions away, or its files have subordinate ids) is read from a user namespace that maps the ids. Files without a name are found through the descriptors of the
 * sandbox's processes.
 */
#include "vmctl/internal.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#define LEVELS 512 /* no program needs more; a deeper tree hides files from us */
#define INODE_BYTES 256u /* an empty file costs something, too */
#define OVERLAY_MAGIC 0x794c7630
#define SEEN_MAX 16384u /* files without a name that are told apart; the rest may count twice */
#define SEEN_SLOTS (2 * SEEN_MAX)
#define CHILDREN_MAX (8u << 20) /* bytes of pids */
#define DESCRIPTORS_MAX (1u << 18) /* of all processes; looking at more would take seconds, in which we miss what is written */

struct walk {
	const struct sandbox_measure *m; /* borrowed */
	struct sandbox_usage got;
	DIR *levels[LEVELS]; /* owned */
	unsigned depth;
	unsigned descriptors; /* looked at */
	bool denied; /* a folder could not be read */
	bool failed; /* the host lacks what we need */
};

/* ---- files with a name ---- */

static bool enough(const struct walk *w)
{
	return w->m->enough && w->got.bytes > w->m->enough;
}

static void count(struct walk *w, const struct stat *st)
{
	uint64_t links = S_ISDIR(st->st_mode) || st->st_nlink == 0 ? 1 : st->st_nlink;
	uint64_t bytes = ((uint64_t)st->st_blocks * 512 + INODE_BYTES + links - 1) / links;

	w->got.bytes += bytes;
}

/* The sandbox sees when its folders were read, and could move files behind us: leave no trace. Only the owner of a folder may ask for that. */
static int open_folder(int dir, const char *name)
{
	const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
	int fd = openat(dir, name, flags | O_NOATIME);

	return fd < 0 && errno == EPERM ? openat(dir, name, flags) : fd;
}

static int push(struct walk *w, int dir, const char *name)
{
	int fd;

	if (w->depth == LEVELS) {
		w->got.too_deep = true;
		return 0;
	}
	fd = open_folder(dir, name);
	if (fd < 0)
		return -errno;
	w->levels[w->depth] = fdopendir(fd);
	if (!w->levels[w->depth]) {
		ak_close(fd);
		return -ENOMEM;
	}
	w->depth++;
	return 0;
}

static void visit(struct walk *w, const char *name)
{
	int dir = dirfd(w->levels[w->depth - 1]), rc;
	struct stat st;

	if (!strcmp(name, ".") || !strcmp(name, ".."))
		return;
	rc = fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0 ? -errno : 0;
	if (rc == 0) {
		count(w, &st);
		rc = S_ISDIR(st.st_mode) ? push(w, dir, name) : 0;
	}
	w->denied |= rc == -EACCES || rc == -EPERM;
	w->got.too_deep |= rc == -EMFILE; /* not seen is not small */
	w->failed |= rc == -ENFILE || rc == -ENOMEM; /* others may be the cause */
}

static int walk(struct walk *w)
{
	int rc = push(w, AT_FDCWD, w->m->dir);

	while (w->depth > 0) {
		struct dirent *e = enough(w) ? NULL : readdir(w->levels[w->depth - 1]);

		if (e)
			visit(w, e->d_name);
		else
			closedir(w->levels[--w->depth]);
	}
	return rc;
}

/* ---- files without a name, held open ---- */

struct seen {
	struct {
		dev_t dev;
		ino_t ino;
	} slots[SEEN_SLOTS];
	size_t n;
};

/* Remember a file; false if it was known. */
static bool first_time(struct seen *s, const struct stat *st)
{
	size_t i = (size_t)(st->st_ino * 2654435761u ^ st->st_dev) % SEEN_SLOTS;

	for (; s->slots[i].ino; i = (i + 1) % SEEN_SLOTS) {
		if (s->slots[i].ino == st->st_ino && s->slots[i].dev == st->st_dev)
			return false;
	}
	if (s->n < SEEN_MAX) {
		s->slots[i].dev = st->st_dev;
		s->slots[i].ino = st->st_ino;
		s->n++;
	}
	return true;
}

/* Memory files and those of a tmpfs have limits of their own. A folder that is bound into the sandbox has the device of our own, the others are overlays. */
static bool on_disk(int dir, const char *name, const struct stat *st, dev_t own)
{
	_cleanup_close_ int fd = -1;
	struct statfs fs;

	if (st->st_dev == own)
		return true;
	fd = openat(dir, name, O_PATH | O_CLOEXEC);
	return fd >= 0 && fstatfs(fd, &fs) == 0 && (unsigned long)fs.f_type == OVERLAY_MAGIC;
}

static void look_at_files(struct walk *w, struct seen *seen, const char *pid, dev_t own)
{
	char path[64];
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%s/fd", pid);
	dir = opendir(path);
	for (struct dirent *e; dir && w->descriptors < DESCRIPTORS_MAX && (e = readdir(dir)); w->descriptors++) {
		struct stat st;

		if (e->d_name[0] != '.' && fstatat(dirfd(dir), e->d_name, &st, 0) == 0 && S_ISREG(st.st_mode) &&
			st.st_nlink == 0 && st.st_blocks > 0 && on_disk(dirfd(dir), e->d_name, &st, own) && first_time(seen, &st))
			count(w, &st);
	}
	if (dir)
		closedir(dir);
}

/* Each thread has children of its own. */
static void add_children(struct strbuf *todo, const char *pid)
{
	char path[64];
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%s/task", pid);
	dir = opendir(path);
	for (struct dirent *e; dir && (e = readdir(dir));) {
		_cleanup_free_ char *list = NULL;
		char file[300];

		snprintf(file, sizeof(file), "%s/children", e->d_name);
		if (e->d_name[0] != '.' && ak_read_file(dirfd(dir), file, CHILDREN_MAX, &list, NULL) == 0)
			strbuf_puts(todo, list);
	}
	if (dir)
		closedir(dir);
}

/* All descendants of INIT, each read once. */
static void look_at_processes(struct walk *w, pid_t init)
{
	_cleanup_free_ struct seen *seen = calloc(1, sizeof(*seen));
	_cleanup_strbuf_ struct strbuf todo = { 0 };
	struct stat own;

	if (!seen || init <= 0 || stat(w->m->dir, &own) < 0)
		return;
	strbuf_printf(&todo, "%d ", (int)init);
	for (size_t at = 0; !todo.failed && at < todo.len && todo.len < CHILDREN_MAX && w->descriptors < DESCRIPTORS_MAX;) {
		size_t len = strcspn(todo.data + at, " ");
		char pid[16];

		snprintf(pid, sizeof(pid), "%.*s", (int)len, todo.data + at);
		at += len + 1;
		look_at_files(w, seen, pid, own.st_dev);
		add_children(&todo, pid);
	}
	w->got.too_deep |= w->descriptors == DESCRIPTORS_MAX;
}

/* ---- the child ---- */

/* A fresh walk from a user namespace in which we may read what we could not. */
static void walk_again(struct walk *w, const struct sandbox_usage *held)
{
	static const struct sandbox_spec plain = { .name = "measure", .root_inside = true };
	struct sb_ctx ctx = { .spec = &plain, .ctl = -1, .net_sock = -1 };
	struct ak_err ignored;

	sb_trees_init(&ctx.trees);
	sb_ids_plan(&plain, &ctx.ids);
	if (sandbox_is_host_root() || sb_enter_outer(&ctx, &ignored) < 0)
		return;
	w->got = *held;
	(void)walk(w);
}

static _Noreturn void measure_main(const struct sandbox_measure *m, int out)
{
	static struct walk w;
	struct sandbox_usage held;
	struct rlimit files;

	ak_close_others(&out, 1);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	prctl(PR_SET_NAME, "ak-measure");
	if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
		files.rlim_cur = files.rlim_max;
		(void)setrlimit(RLIMIT_NOFILE, &files);
	}
	w.m = m;
	look_at_processes(&w, m->init);
	held = w.got;
	if (walk(&w) < 0)
		_exit(1);
	if (w.denied && !enough(&w))
		walk_again(&w, &held);
	if (w.failed)
		_exit(1);
	_exit(write(out, &w.got, sizeof(w.got)) == sizeof(w.got) ? 0 : 1);
}

pid_t sandbox_measure_begin(const struct sandbox_measure *m, int *ret_fd)
{
	int fds[2];
	pid_t pid;

	if (pipe2(fds, O_CLOEXEC | O_NONBLOCK) < 0)
		return -errno;
	pid = fork();
	if (pid == 0)
		measure_main(m, fds[1]);
	if (pid < 0)
		pid = -errno;
	ak_close(fds[1]);
	if (pid < 0)
		ak_close(fds[0]);
	else
		*ret_fd = fds[0];
	return pid;
}

int sandbox_measure_end(pid_t pid, int fd, struct sandbox_usage *ret)
{
	ssize_t n = read(fd, ret, sizeof(*ret));

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return -EAGAIN;
	ak_close(fd);
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	return n == sizeof(*ret) ? 0 : -EIO;
}

int sandbox_measure_now(const struct sandbox_measure *m, struct sandbox_usage *ret)
{
	int fd, rc;
	pid_t pid = sandbox_measure_begin(m, &fd);

	if (pid < 0)
		return pid;
	while ((rc = sandbox_measure_end(pid, fd, ret)) == -EAGAIN) {
		struct pollfd p = { .fd = fd, .events = POLLIN };

		poll(&p, 1, -1);
	}
	return rc;
}
