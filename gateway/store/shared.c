/* Projects that several sandboxes share: see store/shared.h. */
#include "gateway/store/shared.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/base/strbuf.h"
#include "gateway/project/project.h"
#include "gateway/project/way.h"
#include "gateway/store/state.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define RUNNING_MAX 256 /* sandboxes examined for one note */

/* ---- links in projects ---- */

static int add_folder(struct shared_projects *p, const char *path)
{
	char **grown = reallocarray(p->list, p->n + 1, sizeof(*grown));

	if (!grown)
		return -ENOMEM;
	p->list = grown;
	p->list[p->n] = strdup(path);
	if (!p->list[p->n])
		return -ENOMEM;
	p->n++;
	return 0;
}

/* The project, and what else the sandbox may write. */
static int add_project(void *ctx, struct state_sandbox *s)
{
	int rc = s->dir[0] ? add_folder(ctx, s->dir) : 0;

	for (size_t i = 0; i < s->n_mounts && rc == 0; i++)
		rc = s->mounts[i].writable ? add_folder(ctx, s->mounts[i].source) : 0;
	return rc;
}

void shared_projects_done(struct shared_projects *p)
{
	for (size_t i = 0; i < p->n; i++)
		free(p->list[i]);
	free(p->list);
	*p = (struct shared_projects){ 0 };
}

/* Read the list on first use: most commands never ask. */
static int load_projects(struct shared_projects *p, struct ak_err *err)
{
	int rc = p->loaded ? 0 : state_each(p->paths, add_project, NULL, p, err);

	p->loaded = rc == 0;
	return rc;
}

bool shared_wrote(void *ctx, const char *path)
{
	struct shared_projects *p = ctx;
	struct ak_err ignored;

	if (load_projects(p, &ignored) < 0)
		return true;
	for (size_t i = 0; i < p->n; i++) {
		if (project_inside(path, p->list[i]))
			return true;
	}
	return false;
}

int shared_open(const struct ak_paths *paths, const char *path, struct ak_err *err)
{
	_cleanup_(shared_projects_done) struct shared_projects p = { .paths = paths };

	return way_open(path, shared_wrote, &p, err);
}

int shared_open_folder(const struct ak_paths *paths, const char *path, struct ak_err *err)
{
	_cleanup_close_ int pinned = shared_open(paths, path, err);
	int fd = pinned < 0 ? pinned : ak_reopen(pinned, O_RDONLY | O_DIRECTORY);

	return pinned >= 0 && fd < 0 ? ak_fail_errno(err, -fd, "'%.200s'", path) : fd;
}

int shared_name(const struct ak_paths *paths, const char *path, const char *what, char ret[static PATH_MAX],
	struct project_id *ret_id, mode_t *ret_mode, struct ak_err *err)
{
	_cleanup_close_ int fd = shared_open(paths, path, err);

	return fd < 0 ? ak_err_prefix(err, fd, "%s", what) : project_name_open(fd, what, ret, ret_id, ret_mode, err);
}

int shared_name_folder(
	const struct ak_paths *paths, const char *path, char ret[static PATH_MAX], struct project_id *ret_id, struct ak_err *err)
{
	mode_t mode = 0;
	int rc = shared_name(paths, path, "project folder", ret, ret_id, &mode, err);

	return rc == 0 && !S_ISDIR(mode) ? ak_fail(err, ENOTDIR, "project folder '%s' is not a folder", ret) : rc;
}

int shared_check_way(const struct ak_paths *paths, const char *path, struct ak_err *err)
{
	int fd = shared_open(paths, path, err);

	if (fd == -ELOOP)
		return fd;
	ak_close(fd);
	return 0;
}

/* ---- folders that a sandbox may have written ---- */

static bool overlap(const char *a, const char *b)
{
	return a[0] && b[0] && (project_inside(a, b) || project_inside(b, a));
}

struct claim {
	const char *path; /* borrowed */
	bool taken;
};

static int compare_claim(void *ctx, struct state_sandbox *s)
{
	struct claim *c = ctx;
	char git[PATH_MAX];

	for (size_t i = 0; i < s->n_mounts; i++)
		c->taken |= s->mounts[i].writable && overlap(s->mounts[i].source, c->path);
	if (!s->dir[0])
		return 0;
	if (ak_path_join(git, s->dir, ".git", NULL) < 0)
		return -ENAMETOOLONG;
	c->taken |= project_inside(s->dir, c->path) || (project_inside(c->path, s->dir) && !project_inside(c->path, git));
	return 0;
}

bool shared_claims(const struct ak_paths *paths, const char *path)
{
	struct claim c = { .path = path };
	struct ak_err ignored;

	return state_each(paths, compare_claim, NULL, &c, &ignored) < 0 || c.taken;
}

/* ---- comparing policies ---- */

static void put_kind(struct strbuf *out, const char *mode, enum ak_profile profile, bool no_network)
{
	bool network = ak_profile_network(profile) && !no_network;

	strbuf_printf(out, "%s\n", network ? mode : "no network");
}

static void put_edit(struct strbuf *out, enum policy_edit_op op, const char *text)
{
	strbuf_printf(out, "%s %s\n", policy_edit_name(op), text);
}

static char *rules_of_state(const struct state_sandbox *s)
{
	_cleanup_strbuf_ struct strbuf out = { 0 };

	put_kind(&out, state_mode(s), s->profile, s->no_network);
	for (size_t i = 0; i < s->n_edits && state_network(s); i++)
		put_edit(&out, s->edits[i].op, s->edits[i].text);
	return strbuf_take(&out);
}

static char *rules_of_run(const struct run_request *o)
{
	_cleanup_strbuf_ struct strbuf out = { 0 };

	put_kind(&out, ak_mode_policy(o->mode, o->own), o->profile, o->no_network);
	for (size_t i = 0; i < o->n_edits && ak_profile_network(o->profile) && !o->no_network; i++)
		put_edit(&out, o->edits[i].op, o->edits[i].text);
	return strbuf_take(&out);
}

/* ---- a note at the start ---- */

struct seeker {
	const struct ak_paths *paths; /* borrowed, like all of these */
	const char *self, *project, *outside, *rules;
	const struct run_mount *mounts;
	size_t n_mounts;
	struct strbuf names;
	size_t n;
};

/* Whether S may write in PATH, or in a folder around it. */
static bool writes_in(const struct state_sandbox *s, const char *path)
{
	bool yes = overlap(s->dir, path);

	for (size_t i = 0; i < s->n_mounts && !yes; i++)
		yes = s->mounts[i].writable && overlap(s->mounts[i].source, path);
	return yes;
}

static bool meet(const struct seeker *k, const struct state_sandbox *s)
{
	bool yes = writes_in(s, k->project) || writes_in(s, k->outside);

	for (size_t i = 0; i < k->n_mounts && !yes; i++)
		yes = k->mounts[i].writable && writes_in(s, k->mounts[i].source);
	return yes;
}

static void compare(struct seeker *k, const char *name)
{
	_cleanup_(state_done) struct state_sandbox s = { 0 };
	_cleanup_free_ char *rules = NULL;
	struct ak_err ignored;

	if (!strcmp(name, k->self) || state_load(k->paths, name, &s, &ignored) < 0)
		return;
	rules = rules_of_state(&s);
	if (!rules || !strcmp(rules, k->rules) || !meet(k, &s))
		return;
	if (k->n++ < 8)
		strbuf_printf(&k->names, "%s%s (%s)", k->names.len ? ", " : "", name, state_mode(&s));
}

/* Only running sandboxes have a socket, far fewer than there are sandboxes. */
static void each_running(struct seeker *k)
{
	char path[PATH_MAX];
	DIR *dir = ak_path_join(path, k->paths->runtime, "sb", NULL) < 0 ? NULL : opendir(path);
	size_t left = RUNNING_MAX;

	for (struct dirent *e; dir && left > 0 && (e = readdir(dir));) {
		size_t len = strlen(e->d_name);

		if (len <= 5 || strcmp(e->d_name + len - 5, ".sock") != 0)
			continue;
		e->d_name[len - 5] = '\0';
		compare(k, e->d_name);
		left--;
	}
	if (dir)
		closedir(dir);
}

static void write_note(struct seeker *k, char *ret, size_t size)
{
	ret[0] = '\0';
	if ((k->project[0] || k->n_mounts) && k->rules)
		each_running(k);
	if (k->n && !k->names.failed)
		snprintf(ret, size,
			"the project%s is shared with %s%s under another policy: each can use what the other may reach",
			k->n_mounts ? " or a mount" : "", k->names.data, k->n > 8 ? " and more" : "");
	strbuf_done(&k->names);
}

void shared_note(
	const struct ak_paths *paths, const struct run_plan *plan, const struct run_request *opts, char *ret, size_t size)
{
	_cleanup_free_ char *rules = rules_of_run(opts);
	struct seeker k = { .paths = paths,
		.self = plan->name,
		.project = plan->project,
		.outside = guard_outside(plan->guard),
		.rules = rules,
		.mounts = plan->asked,
		.n_mounts = plan->n_asked };

	write_note(&k, ret, size);
}

void shared_note_state(const struct ak_paths *paths, const struct state_sandbox *s, const char *outside, char *ret, size_t size)
{
	_cleanup_free_ char *rules = rules_of_state(s);
	struct seeker k = { .paths = paths,
		.self = s->name,
		.project = s->dir,
		.outside = outside,
		.rules = rules,
		.mounts = s->mounts,
		.n_mounts = s->n_mounts };

	write_note(&k, ret, size);
}

/* ---- all sandboxes ---- */

struct owner {
	char *dir, *rules; /* owned */
	char name[AK_NAME_MAX];
};

struct owners {
	struct owner *list; /* owned */
	size_t n, cap;
};

static void owners_done(struct owners *o)
{
	for (size_t i = 0; i < o->n; i++) {
		free(o->list[i].dir);
		free(o->list[i].rules);
	}
	free(o->list);
}

static int add_owner_of(struct owners *o, const struct state_sandbox *s, const char *dir)
{
	struct owner *new;

	if (o->n == o->cap) {
		size_t cap = o->cap ? o->cap * 2 : 16;
		void *grown = realloc(o->list, cap * sizeof(*o->list));

		if (!grown)
			return -ENOMEM;
		o->list = grown;
		o->cap = cap;
	}
	new = &o->list[o->n++];
	*new = (struct owner){ .dir = strdup(dir), .rules = rules_of_state(s) };
	memcpy(new->name, s->name, sizeof(new->name));
	return new->dir &&new->rules ? 0 : -ENOMEM;
}

static int add_owner(void *ctx, struct state_sandbox *s)
{
	int rc = s->dir[0] ? add_owner_of(ctx, s, s->dir) : 0;

	for (size_t i = 0; i < s->n_mounts && rc == 0; i++)
		rc = s->mounts[i].writable ? add_owner_of(ctx, s, s->mounts[i].source) : 0;
	return rc;
}

static int by_dir(const void *a, const void *b)
{
	const struct owner *x = a, *y = b;
	int order = strcmp(x->dir, y->dir);

	return order ? order : strcmp(x->name, y->name);
}

static cJSON *info_of(cJSON *list, const char *name)
{
	cJSON *item;

	cJSON_ArrayForEach(item, list) {
		if (!strcmp(json_text(item, "name", ""), name))
			return item;
	}
	return NULL;
}

/* Record that NAME shares its project with OTHER. */
static int mark(cJSON *list, const char *name, const char *other)
{
	cJSON *info = info_of(list, name), *names = cJSON_GetObjectItemCaseSensitive(info, "shared_with"), *text;

	if (!info)
		return 0;
	cJSON_ArrayForEach(text, names) {
		if (!strcmp(text->valuestring, other)) /* they share several folders */
			return 0;
	}
	if (!names)
		names = cJSON_AddArrayToObject(info, "shared_with");
	text = names ? cJSON_CreateString(other) : NULL;
	return text && cJSON_AddItemToArray(names, text) ? 0 : -ENOMEM;
}

/* In sorted order, nested folders follow their parent, possibly with others between them that have the same prefix. */
static int mark_all(const struct owners *o, cJSON *list)
{
	int rc = 0, pairs = 0;

	for (size_t i = 0; i < o->n; i++) {
		const struct owner *a = &o->list[i];

		for (size_t j = i + 1; j < o->n && !strncmp(o->list[j].dir, a->dir, strlen(a->dir)); j++) {
			const struct owner *b = &o->list[j];

			if (!overlap(a->dir, b->dir) || !strcmp(a->rules, b->rules))
				continue;
			rc = mark(list, a->name, b->name);
			if (rc == 0)
				rc = mark(list, b->name, a->name);
			if (rc < 0)
				return rc;
			pairs++;
		}
	}
	return pairs;
}

int shared_mark(const struct ak_paths *paths, cJSON *list, struct ak_err *err)
{
	_cleanup_(owners_done) struct owners o = { .n = 0 };
	int rc = state_each(paths, add_owner, NULL, &o, err);

	if (rc == -ENOMEM)
		return ak_fail(err, ENOMEM, "out of memory");
	if (rc < 0)
		return rc;
	if (o.n)
		qsort(o.list, o.n, sizeof(*o.list), by_dir);
	rc = mark_all(&o, list);
	return rc < 0 ? ak_fail_errno(err, -rc, "list") : rc;
}
