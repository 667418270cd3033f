/*
 * Check protected files before and after a sandbox: see project/guard.h. Whatever a sandbox did to these names, a check is
 * short and follows no link.
 */
#include "gateway/project/guard_internal.h"

#include "gateway/base/cleanup.h"
#include "gateway/log/events.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROWS_MAX 128 /* for one watched name */
#define DEPTH_MAX 6
#define TOLD_MAX 64 /* names in one record */
#define LINE_MAX_BYTES 1500

/* ---- checking ---- */

struct watch {
	const struct guard *g; /* borrowed */
	struct guard_look *look; /* borrowed */
	size_t root;
	size_t name_len;
	size_t rows;
	bool cut;
};

void guard_look_done(struct guard_look *l)
{
	for (size_t i = 0; i < l->n; i++)
		free(l->rows[i].rel);
	free(l->rows);
	*l = (struct guard_look){ .n = 0 };
}

static void add_row(struct watch *w, const char *rel, const struct stat *st)
{
	struct guard_look *l = w->look;
	struct guard_row *r;

	if (l->n == l->cap) {
		size_t cap = l->cap ? l->cap * 2 : 32;
		void *grown = realloc(l->rows, cap * sizeof(*l->rows));

		if (!grown) {
			l->failed = true;
			return;
		}
		l->rows = grown;
		l->cap = cap;
	}
	r = &l->rows[l->n];
	*r = (struct guard_row){ .root = w->root, .rel = strdup(rel), .watch = w->name_len };
	if (st) {
		r->dev = st->st_dev;
		r->ino = st->st_ino;
		r->mode = st->st_mode;
		r->nlink = st->st_nlink;
		r->size = st->st_size;
		r->ctime_ns = (int64_t)st->st_ctim.tv_sec * 1000000000 + st->st_ctim.tv_nsec;
	}
	l->failed |= !r->rel;
	l->n += r->rel != NULL;
}

static void look_at(struct watch *w, int dir, const char *name, const char *rel, unsigned depth);

/* Check the entries of the folder FD; false if they cannot be read. */
static bool look_into(struct watch *w, int fd, const char *rel, unsigned depth)
{
	int list = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = list < 0 ? NULL : fdopendir(list);

	if (!dir) {
		ak_close(list);
		return false;
	}
	for (const struct dirent *e; !w->cut && (e = readdir(dir));) {
		_cleanup_free_ char *path = NULL;

		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
			continue;
		path = guard_join(rel, e->d_name);
		if (path)
			look_at(w, list, e->d_name, path, depth);
		w->look->failed |= !path;
	}
	closedir(dir);
	return true;
}

/* A folder is represented by its entries, unless they cannot be read. */
static void look_at(struct watch *w, int dir, const char *name, const char *rel, unsigned depth)
{
	_cleanup_close_ int fd = openat(dir, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return;
	if (++w->rows > ROWS_MAX || depth > DEPTH_MAX) {
		w->cut = true;
		return;
	}
	if (!S_ISDIR(st.st_mode) || !look_into(w, fd, rel, depth + 1))
		add_row(w, rel, &st);
}

/* ST is that of the folder, if known: it shows that names in it have changed. */
static void add_cut(struct watch *w, const char *rel, const struct stat *st)
{
	_cleanup_free_ char *rest = NULL;

	if (asprintf(&rest, "%s/", rel) < 0) {
		rest = NULL;
		w->look->failed = true;
		return;
	}
	add_row(w, rest, st);
}

static void look_path(struct watch *w, int fd, const char *rel, const struct stat *st)
{
	if (!S_ISDIR(st->st_mode) || !look_into(w, fd, rel, 0))
		add_row(w, rel, st);
	if (w->cut)
		add_cut(w, rel, st);
}

/* A link leads to the path REL: check it if it is in the project. */
static void look_behind(const struct guard *g, struct guard_look *l, size_t root, const char *rel)
{
	_cleanup_free_ char *real = guard_behind_link(g, root, rel);
	struct watch w = { .g = g, .look = l, .root = root, .name_len = real ? strlen(real) : 0 };
	struct stat st;
	_cleanup_close_ int fd = real ? guard_open(g, root, real, &st) : -1;

	if (fd >= 0)
		look_path(&w, fd, real, &st);
}

/* REL cannot be opened: record the folder or link that is in the way. */
static void look_above(const struct guard *g, struct guard_look *l, size_t root, const char *rel)
{
	struct stat st = { .st_size = 0 };
	_cleanup_free_ char *seen = guard_seen_above(g, root, rel, &st);
	struct watch w = { .g = g, .look = l, .root = root, .name_len = seen ? strlen(seen) : 0 };

	l->failed |= !seen;
	for (size_t i = 0; seen && i < l->n; i++) {
		if (l->rows[i].root == root && !strcmp(l->rows[i].rel, seen))
			return;
	}
	if (seen)
		add_row(&w, seen, &st);
}

static void look_name(const struct guard *g, struct guard_look *l, size_t root, const char *rel)
{
	struct watch w = { .g = g, .look = l, .root = root, .name_len = strlen(rel) };
	struct stat st;
	_cleanup_close_ int fd = guard_open(g, root, rel, &st);

	if (fd == -EACCES || fd == -ELOOP)
		look_above(g, l, root, rel);
	if (fd == -ELOOP || (fd >= 0 && S_ISLNK(st.st_mode)))
		look_behind(g, l, root, rel);
	if (fd >= 0)
		look_path(&w, fd, rel, &st);
}

/* REL was a link: has it been replaced? */
static void look_link(const struct guard *g, struct guard_look *l, size_t root, const char *rel)
{
	struct watch w = { .g = g, .look = l, .root = root, .name_len = strlen(rel) };
	struct stat st;
	_cleanup_close_ int fd = guard_open(g, root, rel, &st);

	if (fd >= 0)
		add_row(&w, rel, &st);
}

struct looking {
	const struct guard *g; /* borrowed */
	struct guard_look *look; /* borrowed */
};

static int look_git(const struct looking *l, size_t root, const char *rel)
{
	static const char *const *const lists[] = { guard_git_names, guard_git_watched };

	for (size_t i = 0; i < ARRAY_SIZE(lists); i++) {
		for (const char *const *name = lists[i]; *name; name++) {
			_cleanup_free_ char *path = guard_join(rel, *name);

			if (!path)
				return -ENOMEM;
			look_name(l->g, l->look, root, path);
		}
	}
	return 0;
}

static int look_nested(void *ctx, size_t root, const char *rel, enum guard_kind kind)
{
	const struct looking *l = ctx;
	_cleanup_free_ char *file = NULL;

	switch (kind) {
	case GUARD_INNER:
		break;
	case GUARD_GIT:
	case GUARD_LIKE:
		file = guard_module_file(l->g, root, rel); /* it could name another git folder */
		if (file)
			look_name(l->g, l->look, GUARD_PROJECT, file);
		return look_git(l, root, rel);
	case GUARD_LINK:
		look_name(l->g, l->look, root, rel);
		break;
	}
	return 0;
}

/* Check PLACE and the git folders nested in it. Adds a row if not everything could be read. */
static int look_place(struct looking *l, const struct guard_place *place)
{
	struct watch w = { .g = l->g, .look = l->look, .root = place->root };
	int rc = look_git(l, place->root, place->rel);

	for (size_t i = 0; rc == 0 && place->nested && guard_git_inner[i]; i++) {
		struct guard_walk walk = { .g = l->g, .root = place->root, .fn = look_nested, .ctx = l };
		_cleanup_free_ char *rel = guard_join(place->rel, guard_git_inner[i]);

		if (!rel)
			return -ENOMEM;
		rc = guard_nested(&walk, place->rel, guard_git_inner[i]);
		if (rc == 0 || rc == -ENOMEM)
			continue;
		add_cut(&w, rel, NULL);
		rc = 0;
	}
	return rc;
}

/* A row that stands for the rest tells that there is one, unless there was before. */
static void look_matches(const struct guard *g, struct guard_look *l)
{
	struct watch w = { .g = g, .look = l, .root = GUARD_PROJECT };
	char rest[NAME_MAX];

	for (size_t i = 0; i < g->top.n_matches; i++)
		look_name(g, l, GUARD_PROJECT, g->top.matches[i]);
	snprintf(rest, sizeof(rest), "*%s", guard_suffixes[0]);
	if (g->top.cut)
		add_row(&w, rest, NULL);
}

/* The project folder has become a git folder: HEAD is what makes git see it. One that was a git folder at the start is a place. */
static int look_top(const struct looking *l)
{
	for (size_t i = 0; i < l->g->n_places; i++) {
		if (l->g->places[i].root == GUARD_PROJECT && !l->g->places[i].rel[0])
			return 0;
	}
	if (!guard_git_is_top(l->g))
		return 0;
	look_name(l->g, l->look, GUARD_PROJECT, "HEAD");
	return look_git(l, GUARD_PROJECT, "");
}

void guard_look(const struct guard *g, struct guard_look *ret)
{
	struct looking l = { g, ret };
	struct stat st;
	int fd = guard_open(g, GUARD_PROJECT, ".git", &st);

	for (size_t i = 0; guard_names[i]; i++)
		look_name(g, ret, GUARD_PROJECT, guard_names[i]);
	for (size_t i = 0; guard_watched[i]; i++)
		look_name(g, ret, GUARD_PROJECT, guard_watched[i]);
	for (size_t i = 0; guard_more_names[i]; i++)
		look_name(g, ret, GUARD_PROJECT, guard_more_names[i]);
	look_matches(g, ret);
	if (fd >= 0 && !S_ISDIR(st.st_mode))
		look_name(g, ret, GUARD_PROJECT, ".git");
	for (size_t i = 0; i < g->n_included; i++)
		(g->included[i].link ? look_link : look_name)(g, ret, g->included[i].root, g->included[i].rel);
	ak_close(fd);
	for (size_t i = 0; i < g->n_places; i++)
		ret->failed |= look_place(&l, &g->places[i]) == -ENOMEM;
	ret->failed |= look_top(&l) == -ENOMEM;
}

/* ---- comparing ---- */

static int by_path(const void *a, const void *b)
{
	const struct guard_row *x = a, *y = b;

	return x->root != y->root ? (x->root < y->root ? -1 : 1) : strcmp(x->rel, y->rel);
}

static const struct guard_row *find_row(const struct guard_look *l, size_t root, char *rel)
{
	struct guard_row key = { .root = root, .rel = rel };

	return l->n ? bsearch(&key, l->rows, l->n, sizeof(*l->rows), by_path) : NULL;
}

/* Whether the first check left out files below the watched name. */
static bool was_cut(const struct guard_look *before, const struct guard_row *row)
{
	_cleanup_free_ char *name = strdup(row->rel);

	if (!name || row->rel[row->watch] != '/')
		return false;
	name[row->watch + 1] = '\0';
	return find_row(before, row->root, name) != NULL;
}

/* Git creates these and never runs them. */
static bool is_sample(const char *rel)
{
	size_t n = strlen(rel);

	return n > 7 && !strcmp(rel + n - 7, ".sample");
}

static bool is_news(const struct guard_look *before, const struct guard_row *now)
{
	const struct guard_row *was = find_row(before, now->root, now->rel);

	if (is_sample(now->rel))
		return false;
	if (!was)
		return !was_cut(before, now);
	return was->dev != now->dev || was->ino != now->ino || (was->mode & S_IFMT) != (now->mode & S_IFMT) ||
		was->size != now->size || was->ctime_ns != now->ctime_ns;
}

/* ---- reporting ---- */

struct news {
	char *names[TOLD_MAX + 1]; /* owned */
	size_t n, more;
};

static void news_done(struct news *n)
{
	for (size_t i = 0; i < n->n; i++)
		free(n->names[i]);
}

static void collect(const struct guard *g, const struct guard_look *before, const struct guard_look *after, struct news *ret)
{
	for (size_t i = 0; i < after->n; i++) {
		const struct guard_row *row = &after->rows[i];
		char *name;

		if (!is_news(before, row) || (i && by_path(row, row - 1) == 0)) /* two names may lead to one file */
			continue;
		name = ret->n == TOLD_MAX	     ? NULL
			: row->root == GUARD_PROJECT ? strdup(row->rel[0] ? row->rel : ".")
						     : guard_join(g->roots[row->root].path, row->rel);
		if (name)
			ret->names[ret->n++] = name;
		else
			ret->more++;
	}
}

static void record(
	const struct guard *g, const struct ak_paths *paths, const char *sandbox, const char *origin, const struct news *news)
{
	_cleanup_strbuf_ struct strbuf more = { 0 };

	event_put_text(&more, "origin", origin);
	event_put_text(&more, "project", g->roots[GUARD_PROJECT].path);
	event_put_list(&more, "files", news->names);
	if (news->more)
		strbuf_printf(&more, ",\"more\":%zu", news->more);
	event_write(paths, "project_changed", sandbox, &more);
}

static char *line_of(const struct news *news)
{
	_cleanup_strbuf_ struct strbuf line = { 0 };
	size_t told = 0;

	strbuf_puts(&line, "files that your own tools may run later were created or changed: ");
	for (; told < news->n && line.len + strlen(news->names[told]) < LINE_MAX_BYTES; told++)
		strbuf_printf(&line, "%s%s", told ? ", " : "", news->names[told]);
	if (told < news->n || news->more)
		strbuf_printf(&line, " and %zu more", news->n - told + news->more);
	return strbuf_take(&line);
}

static int by_depth(const void *a, const void *b)
{
	const struct guard_row *x = a, *y = b;
	size_t dx = 0, dy = 0;

	for (const char *p = x->rel; *p; p++)
		dx += *p == '/';
	for (const char *p = y->rel; *p; p++)
		dy += *p == '/';
	return dx != dy ? (dx < dy ? -1 : 1) : by_path(a, b);
}

char *guard_tell(struct guard *g, const struct ak_paths *paths, const char *sandbox, const char *origin)
{
	struct guard_look before, after = { .n = 0 };
	_cleanup_(news_done) struct news news = { .n = 0 };
	char *line = NULL;

	if (!g)
		return NULL;
	before = g->before; /* sorted in place: the guard still owns its rows */
	guard_top_look(g);
	guard_look(g, &after);
	guard_top_forget(g);
	if (before.n)
		qsort(before.rows, before.n, sizeof(*before.rows), by_path);
	if (after.n) /* first, so that many deep files cannot crowd it out */
		qsort(after.rows, after.n, sizeof(*after.rows), by_depth);
	collect(g, &before, &after, &news);
	if (news.n) {
		record(g, paths, sandbox, origin, &news);
		line = g->protect ? line_of(&news) : NULL;
	}
	guard_look_done(&after);
	return line;
}
