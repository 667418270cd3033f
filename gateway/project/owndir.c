/*
 * Our own folders and what a sandbox sees: see project/owndir.h.
 *
 * A place is a file system and a path in it. /proc/self/mountinfo lists for every mount which part of which file system it
 * shows. So a folder's place is the root of its mount plus the rest of its path, wherever it is mounted. Two folders overlap
 * if one place is a prefix of the other.
 */
#include "gateway/project/owndir.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/project/walk.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MOUNTS_TEXT_MAX (64u << 20)

/* One row of mountinfo; its strings point into the table's text. */
struct mount {
	uint64_t id;
	const char *device, *root, *point;
};

struct table {
	char *text; /* owned */
	struct mount *list; /* owned */
	size_t n;
};

struct place {
	const char *device; /* borrowed from the table */
	char path[PATH_MAX];
};

/* Our folders. The first ones are covered where a sandbox would see them. */
enum { OWN_STATE, OWN_RUNTIME, OWN_CONFIG, OWN_COVERED, OWN_POLICIES = OWN_COVERED, OWN_NUM };

/* One of our folders. */
struct own {
	const char *path, *variable; /* VARIABLE is the environment variable that moves it */
	bool placed; /* PLACE is known */
	struct place place;
};

struct owndir {
	struct own own[OWN_NUM];
	char policies[PATH_MAX];
	struct table table; /* read on first use */
};

/* ---- the table of mounts ---- */

static void table_done(struct table *t)
{
	free(t->text);
	free(t->list);
}

/* mountinfo writes a space, tab, newline or backslash as a backslash and three octal digits. */
static void unescape(char *s)
{
	char *out = s;

	for (; *s; s++) {
		if (s[0] == '\\' && s[1] >= '0' && s[1] <= '3' && s[2] >= '0' && s[2] <= '7' && s[3] >= '0' && s[3] <= '7') {
			*out++ = (char)((s[1] - '0') * 64 + (s[2] - '0') * 8 + (s[3] - '0'));
			s += 3;
		} else {
			*out++ = *s;
		}
	}
	*out = '\0';
}

/* "36 35 98:0 /root /point options …" */
static bool parse_row(char *line, struct mount *ret)
{
	char *field[5], *save = NULL;

	for (size_t i = 0; i < ARRAY_SIZE(field); i++) {
		field[i] = strtok_r(i ? NULL : line, " ", &save);
		if (!field[i])
			return false;
	}
	unescape(field[3]);
	unescape(field[4]);
	*ret = (struct mount){ strtoull(field[0], NULL, 10), field[2], field[3], field[4] };
	return true;
}

static int table_read(struct table *t, struct ak_err *err)
{
	size_t cap = 0;
	char *save = NULL;
	int rc = ak_read_file(AT_FDCWD, "/proc/self/mountinfo", MOUNTS_TEXT_MAX, &t->text, NULL);

	if (rc < 0)
		return ak_fail_errno(err, -rc, "/proc/self/mountinfo");
	for (char *line = strtok_r(t->text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		if (t->n == cap) {
			struct mount *grown = reallocarray(t->list, cap = cap ? cap * 2 : 64, sizeof(*grown));

			if (!grown)
				return ak_fail(err, ENOMEM, "out of memory");
			t->list = grown;
		}
		t->n += parse_row(line, &t->list[t->n]);
	}
	return 0;
}

/* ---- places ---- */

/* Whether A is B or below it. */
static bool inside(const char *a, const char *b)
{
	size_t n = strlen(b);

	return (n == 1 && b[0] == '/') || (!strncmp(a, b, n) && (a[n] == '\0' || a[n] == '/'));
}

/* The rest of A after its prefix B: "" or "/…". */
static const char *beyond(const char *a, const char *b)
{
	return strcmp(b, "/") != 0 ? a + strlen(b) : strcmp(a, "/") != 0 ? a : "";
}

/* BASE/MORE, where MORE is "" or begins with a slash. */
static int extend(char ret[static PATH_MAX], const char *base, const char *more)
{
	int n = snprintf(ret, PATH_MAX, "%s%s", *more && !strcmp(base, "/") ? "" : base, more);

	return n >= PATH_MAX ? -ENAMETOOLONG : 0;
}

static int real_path(int fd, char ret[static PATH_MAX])
{
	char link[40];
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, ret, PATH_MAX);
	if (n < 0 || n == PATH_MAX)
		return n < 0 ? -errno : -ENAMETOOLONG;
	ret[n] = '\0';
	return 0;
}

static const struct mount *mount_of(const struct table *t, int fd)
{
	struct statx st;

	if (statx(fd, "", AT_EMPTY_PATH, STATX_MNT_ID, &st) < 0 || !(st.stx_mask & STATX_MNT_ID))
		return NULL;
	for (size_t i = 0; i < t->n; i++) {
		if (t->list[i].id == st.stx_mnt_id)
			return &t->list[i];
	}
	return NULL;
}

/* The place of the folder FD. TAIL ("" or "/…") is the part of its path that does not exist yet. */
static int place_of(const struct table *t, int fd, const char *tail, struct place *ret)
{
	const struct mount *m = mount_of(t, fd);
	char real[PATH_MAX], whole[PATH_MAX];
	int rc = real_path(fd, real);

	if (rc == 0)
		rc = extend(whole, real, tail);
	if (rc < 0)
		return rc;
	if (!m || !inside(real, m->point))
		return -ESTALE; /* mounted or unmounted just now */
	ret->device = m->device;
	return extend(ret->path, m->root, beyond(whole, m->point));
}

/* ---- walking the path to a folder ---- */

enum turn { TURN_LINK, TURN_UP, TURN_END };

/* Called for every folder in which the path turns (a link is read there, or ".." goes up), and for its end. */
typedef int (*way_fn)(void *ctx, int dir, const char *tail, enum turn turn);

struct way {
	struct walk walk;
	way_fn fn;
	void *ctx;
};

/* Follow the component NAME; returns 1 if it does not exist. */
static int step(struct way *w, const char *name)
{
	_cleanup_close_ int next = openat(w->walk.dir, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	struct stat st;
	int rc;

	if (next < 0)
		return errno == ENOENT ? 1 : -errno;
	if (fstat(next, &st) < 0)
		return -errno;
	if (S_ISLNK(st.st_mode) || !strcmp(name, "..")) {
		rc = w->fn(w->ctx, w->walk.dir, "", S_ISLNK(st.st_mode) ? TURN_LINK : TURN_UP);
		if (rc)
			return rc < 0 ? rc : -ECANCELED;
	}
	if (S_ISLNK(st.st_mode))
		return walk_follow(&w->walk, next);
	ak_close(w->walk.dir);
	w->walk.dir = TAKE_FD(next);
	return 0;
}

/* Walk a path with links component by component. -ECANCELED if FN stopped the walk. */
static int walk_way(struct way *w)
{
	char name[NAME_MAX + 1], tail[sizeof(w->walk.rest) + NAME_MAX + 2];
	int rc;

	while ((rc = walk_next(&w->walk, name)) > 0) {
		if (!strcmp(name, "."))
			continue;
		rc = step(w, name);
		if (rc < 0)
			return rc;
		if (rc > 0) {
			snprintf(tail, sizeof(tail), "/%s%s", name, w->walk.rest);
			return w->fn(w->ctx, w->walk.dir, tail, TURN_END);
		}
	}
	return rc < 0 ? rc : w->fn(w->ctx, w->walk.dir, "", TURN_END);
}

/* Open PATH in one call if it exists and has neither links nor "..", which is nearly always the case. */
static int open_plain(const char *path)
{
	struct open_how how = { .flags = O_PATH | O_DIRECTORY | O_CLOEXEC, .resolve = RESOLVE_NO_SYMLINKS };

	return strstr(path, "..") ? -1 : (int)syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof(how));
}

/* Open the parent of PATH, which does not exist yet, in one call. *RET_TAIL is its name with the slash before it. */
static int open_plain_parent(const char *path, const char **ret_tail)
{
	const char *slash = strrchr(path, '/');
	char parent[PATH_MAX];
	struct stat st;
	int fd;

	if (!slash || slash == path || !slash[1] || (size_t)(slash - path) >= sizeof(parent))
		return -1;
	memcpy(parent, path, (size_t)(slash - path));
	parent[slash - path] = '\0';
	fd = open_plain(parent);
	/* It may have been created meanwhile, or be a dangling link. */
	if (fd < 0 || fstatat(fd, slash + 1, &st, AT_SYMLINK_NOFOLLOW) == 0 || errno != ENOENT)
		return ak_close(fd);
	*ret_tail = slash;
	return fd;
}

static int each_turn(const char *path, way_fn fn, void *ctx)
{
	struct way w = { .walk.dir = open_plain(path), .fn = fn, .ctx = ctx };
	const char *tail = "";
	int rc;

	if (w.walk.dir < 0 && errno == ENOENT && !strstr(path, ".."))
		w.walk.dir = open_plain_parent(path, &tail);
	if (w.walk.dir >= 0) {
		rc = fn(ctx, w.walk.dir, tail, TURN_END);
	} else {
		if (strlen(path) >= PATH_MAX)
			return -ENAMETOOLONG;
		memcpy(w.walk.rest, path, strlen(path) + 1);
		w.walk.dir = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
		rc = w.walk.dir < 0 ? -errno : walk_way(&w);
	}
	ak_close(w.walk.dir);
	return rc;
}

/* ---- visible folders ---- */

/* Iterates over a folder and the mounts below it. */
struct shown {
	const struct table *t; /* borrowed */
	const char *path; /* borrowed; resolved */
	struct place first; /* the folder's own place */
	size_t next;
};

static int shown_open(struct shown *s, const struct table *t, const char *path)
{
	_cleanup_close_ int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);

	*s = (struct shown){ .t = t, .path = path };
	return fd < 0 ? -errno : place_of(t, fd, "", &s->first);
}

/* The next part: its path, and its place. */
static bool shown_next(struct shown *s, const char **ret_point, const char **ret_device, const char **ret_path)
{
	if (s->next == 0) {
		s->next++;
		*ret_point = s->path;
		*ret_device = s->first.device;
		*ret_path = s->first.path;
		return true;
	}
	while (s->next <= s->t->n) {
		const struct mount *m = &s->t->list[s->next++ - 1];

		if (!inside(m->point, s->path) || !strcmp(m->point, s->path))
			continue;
		*ret_point = m->point;
		*ret_device = m->device;
		*ret_path = m->root;
		return true;
	}
	return false;
}

/* ---- the snapshot ---- */

static void own_init(struct own *own, const char *path, const char *variable)
{
	own->path = path;
	own->variable = variable;
	own->placed = false;
}

int owndir_new(const struct ak_paths *paths, struct owndir **ret, struct ak_err *err)
{
	struct owndir *o = malloc(sizeof(*o)); /* not cleared: its buffers take five pages */
	int rc = o ? ak_path_join(o->policies, paths->data, "policies", NULL) : -ENOMEM;

	if (rc < 0) {
		free(o);
		return ak_fail_errno(err, -rc, "%s", paths->data);
	}
	own_init(&o->own[OWN_STATE], paths->state, "XDG_STATE_HOME");
	own_init(&o->own[OWN_RUNTIME], paths->runtime, "XDG_RUNTIME_DIR");
	own_init(&o->own[OWN_CONFIG], paths->config, "XDG_CONFIG_HOME");
	own_init(&o->own[OWN_POLICIES], o->policies, "AGENTKERNEL_DATA_DIR");
	o->table = (struct table){ 0 };
	*ret = o;
	return 0;
}

void owndir_free(struct owndir *o)
{
	if (o)
		table_done(&o->table);
	free(o);
}

void owndir_freep(struct owndir **o)
{
	owndir_free(*o);
}

static int look(struct owndir *o, struct ak_err *err)
{
	int rc = o->table.text ? 0 : table_read(&o->table, err);

	if (rc < 0) {
		table_done(&o->table);
		o->table = (struct table){ 0 };
	}
	return rc;
}

/* ---- writable folders ---- */

struct check {
	const struct table *t;
	struct shown shown;
	struct own *own; /* borrowed */
};

/* Returns 1 if the sandbox can change this folder, or if it is part of one of ours. */
static int check_turn(void *ctx, int dir, const char *tail, enum turn turn)
{
	struct check *c = ctx;
	const char *point, *device, *path;
	struct place p;
	int rc = place_of(c->t, dir, tail, &p);

	if (rc < 0)
		return rc;
	for (c->shown.next = 0; shown_next(&c->shown, &point, &device, &path);) {
		if (!strcmp(device, p.device) && (inside(p.path, path) || (turn == TURN_END && inside(path, p.path))))
			return 1;
	}
	if (turn == TURN_END) {
		c->own->place.device = p.device;
		memcpy(c->own->place.path, p.path, strlen(p.path) + 1);
		c->own->placed = true;
	}
	return 0;
}

int owndir_check_writable(struct owndir *o, const char *project, const char *what, const char *instead, struct ak_err *err)
{
	struct check c = { .t = &o->table };
	int rc = look(o, err);

	if (rc < 0)
		return rc;
	rc = shown_open(&c.shown, &o->table, project);
	if (rc < 0)
		return ak_fail_errno(err, -rc, "cannot determine the file system of %s '%s'", what, project);
	for (size_t i = 0; i < OWN_NUM; i++) {
		c.own = &o->own[i];
		rc = each_turn(c.own->path, check_turn, &c);
		if (rc > 0 || rc == -ECANCELED)
			return ak_fail(err, EINVAL,
				"%s '%s' contains agentkernel's own folder '%s' or part of the path to it, which no sandbox may reach; "
				"%s, or set %s to a folder outside of it",
				what, project, c.own->path, instead, c.own->variable);
		if (rc < 0)
			return ak_fail_errno(
				err, -rc, "cannot determine the file system of agentkernel's own folder '%s'", c.own->path);
	}
	return 0;
}

/* ---- single folders ---- */

static int place_of_folder(struct owndir *o, const char *path, struct place *ret, struct ak_err *err)
{
	_cleanup_close_ int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	int rc = look(o, err);

	if (rc < 0)
		return rc;
	rc = fd < 0 ? -errno : place_of(&o->table, fd, "", ret);
	return rc < 0 ? ak_fail_errno(err, -rc, "cannot determine the file system of '%s'", path) : 0;
}

struct outside {
	const struct table *t;
	const struct place *place; /* of the folder */
};

/* Returns 1 if the folder lies in ours. */
static int outside_turn(void *ctx, int dir, const char *tail, enum turn turn)
{
	const struct outside *c = ctx;
	struct place p;
	int rc;

	if (turn != TURN_END)
		return 0;
	rc = place_of(c->t, dir, tail, &p);
	return rc < 0 ? rc : !strcmp(p.device, c->place->device) && inside(c->place->path, p.path);
}

int owndir_check_outside(struct owndir *o, const char *folder, const char *named, bool writable, struct ak_err *err)
{
	struct place place;
	const struct outside c = { .t = &o->table, .place = &place };
	int rc = place_of_folder(o, folder, &place, err);

	if (rc < 0)
		return rc;
	for (size_t i = 0; i < (writable ? OWN_NUM : OWN_COVERED); i++) {
		rc = each_turn(o->own[i].path, outside_turn, (void *)&c);
		if (rc > 0)
			return ak_fail(err, EINVAL, "'%s' lies in agentkernel's own folder '%s', which no sandbox may reach",
				named, o->own[i].path);
		if (rc < 0)
			return ak_fail_errno(
				err, -rc, "cannot determine the file system of agentkernel's own folder '%s'", o->own[i].path);
	}
	return 0;
}

/* Whether B, or a part of it, is seen below A. */
static int is_seen(struct owndir *o, const char *a, const struct place *b)
{
	const char *point, *device, *path;
	struct shown s;
	int rc = shown_open(&s, &o->table, a);

	if (rc < 0)
		return rc;
	while (shown_next(&s, &point, &device, &path)) {
		if (!strcmp(device, b->device) && (inside(b->path, path) || (s.next > 1 && inside(path, b->path))))
			return 1;
	}
	return 0;
}

int owndir_relation(struct owndir *o, const char *a, const char *b, struct ak_err *err)
{
	struct place pa, pb;
	int rc = place_of_folder(o, a, &pa, err), in, around;

	if (rc == 0)
		rc = place_of_folder(o, b, &pb, err);
	if (rc < 0)
		return rc;
	in = is_seen(o, b, &pa);
	around = is_seen(o, a, &pb);
	if (in < 0 || around < 0)
		return ak_fail_errno(err, in < 0 ? -in : -around, "comparing '%s' and '%s'", a, b);
	return (in ? OWNDIR_INSIDE : 0) | (around ? OWNDIR_AROUND : 0);
}

/* ---- readable folders ---- */

struct cover {
	const struct table *t;
	struct shown *shown; /* borrowed */
	size_t n_shown;
	char (*ret)[PATH_MAX];
	size_t n;
};

static int add_cover(struct cover *c, const char *path)
{
	for (size_t i = 0; i < c->n; i++) {
		if (inside(path, c->ret[i]))
			return 0;
	}
	if (c->n == OWNDIR_COVERS_MAX)
		return -E2BIG;
	memcpy(c->ret[c->n++], path, strlen(path) + 1);
	return 0;
}

/* In each part, P is visible under at most one name. */
static int cover_in(struct cover *c, struct shown *s, const struct place *p)
{
	const char *point, *device, *path;
	char at[PATH_MAX];
	int rc = 0;

	for (s->next = 0; rc == 0 && shown_next(s, &point, &device, &path);) {
		if (strcmp(device, p->device) != 0)
			continue;
		if (inside(p->path, path))
			rc = extend(at, point, beyond(p->path, path));
		else if (inside(path, p->path))
			rc = extend(at, point, "");
		else
			continue;
		if (rc == 0)
			rc = add_cover(c, at);
	}
	return rc;
}

static int cover_place(struct cover *c, const struct place *p)
{
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < c->n_shown; i++)
		rc = cover_in(c, &c->shown[i], p);
	return rc;
}

static int cover_turn(void *ctx, int dir, const char *tail, enum turn turn)
{
	struct cover *c = ctx;
	struct place p;
	int rc;

	if (turn != TURN_END)
		return 0; /* a sandbox cannot change a link that it may only read */
	rc = place_of(c->t, dir, tail, &p);
	return rc < 0 ? rc : cover_place(c, &p);
}

/* A folder must exist to be covered. If it cannot be created, nothing will ever be in it. */
static int cover_own(struct cover *c, const struct own *own)
{
	size_t before = c->n;
	int rc = own->placed ? cover_place(c, &own->place) : each_turn(own->path, cover_turn, c);

	if (rc == 0 && c->n > before && access(own->path, F_OK) < 0 && ak_mkdir_p(own->path, 0700) < 0)
		c->n = before;
	return rc;
}

int owndir_covers(
	struct owndir *o, const char *const *shown, size_t n, char ret[static OWNDIR_COVERS_MAX][PATH_MAX], struct ak_err *err)
{
	_cleanup_free_ struct shown *parts = calloc(n ? n : 1, sizeof(*parts));
	struct cover c = { .t = &o->table, .shown = parts, .ret = ret };
	int rc = parts ? look(o, err) : ak_fail(err, ENOMEM, "out of memory");

	if (rc < 0)
		return rc;
	for (size_t i = 0; i < n; i++) {
		rc = shown_open(&parts[c.n_shown], &o->table, shown[i]);
		if (rc < 0 && rc != -ENOENT)
			return ak_fail_errno(err, -rc, "cannot determine the file system of '%s'", shown[i]);
		c.n_shown += rc == 0;
	}
	for (size_t i = 0; i < OWN_COVERED; i++) {
		rc = cover_own(&c, &o->own[i]);
		if (rc < 0)
			return ak_fail_errno(
				err, -rc, "agentkernel's own folder '%s' cannot be hidden from the sandbox", o->own[i].path);
	}
	return (int)c.n;
}
