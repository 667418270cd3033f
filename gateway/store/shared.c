/* Projects that several sandboxes share: see store/shared.h. */
#include "gateway/store/shared.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/base/strbuf.h"
#include "gateway/log/events.h"
#include "gateway/project/project.h"
#include "gateway/project/way.h"
#include "gateway/store/live.h"
#include "gateway/store/state.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

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
	written_done(&p->past);
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
	p->past.paths = p->paths;
	return written_has(&p->past, path);
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

/* ---- who may write what, under which policy ---- */

static void put_kind(struct strbuf *out, const char *mode, bool network)
{
	strbuf_printf(out, "%s\n", network ? mode : "no network");
}

static void put_edit(struct strbuf *out, enum policy_edit_op op, const char *text)
{
	strbuf_printf(out, "%s %s\n", policy_edit_name(op), text);
}

static int digest(const struct strbuf *text, char ret[static SHA256_HEX])
{
	uint8_t sum[SHA256_SIZE];
	struct sha256 s;

	if (text->failed)
		return -ENOMEM;
	sha256_init(&s);
	sha256_add(&s, text->data, text->len);
	sha256_done(&s, sum);
	sha256_hex(sum, ret);
	return 0;
}

static void add_mounts(struct live_entry *e, const struct run_mount *mounts, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (mounts[i].writable)
			live_add_folder(e, mounts[i].source);
	}
}

static int entry_of_state(const struct state_sandbox *s, const char *outside, struct live_entry *ret)
{
	_cleanup_strbuf_ struct strbuf rules = { 0 };

	*ret = (struct live_entry){ .name = s->name, .mode = state_mode(s), .project = s->dir, .agent = "" };
	live_add_folder(ret, s->dir);
	live_add_folder(ret, outside);
	add_mounts(ret, s->mounts, s->n_mounts);
	put_kind(&rules, state_mode(s), state_network(s));
	for (size_t i = 0; i < s->n_edits && state_network(s); i++)
		put_edit(&rules, s->edits[i].op, s->edits[i].text);
	return digest(&rules, ret->rules);
}

static int entry_of_run(const struct run_plan *plan, const struct run_request *o, struct live_entry *ret)
{
	_cleanup_strbuf_ struct strbuf rules = { 0 };
	bool network = ak_profile_network(o->profile) && !o->no_network;

	*ret = (struct live_entry){ .name = plan->name,
		.mode = ak_mode_policy(o->mode, o->own),
		.project = plan->project,
		.agent = plan->agent_state[0].source };
	live_add_folder(ret, plan->project);
	live_add_folder(ret, guard_outside(plan->guard));
	add_mounts(ret, plan->asked, plan->n_asked);
	put_kind(&rules, ret->mode, network);
	for (size_t i = 0; i < o->n_edits && network; i++)
		put_edit(&rules, o->edits[i].op, o->edits[i].text);
	return digest(&rules, ret->rules);
}

static bool share_folder(const struct live_entry *a, const struct live_entry *b)
{
	for (size_t i = 0; i < a->n_folders; i++) {
		for (size_t j = 0; j < b->n_folders; j++) {
			if (overlap(a->folders[i], b->folders[j]))
				return true;
		}
	}
	return false;
}

/* Under one policy, two runs in one project can do no more together than each alone. */
static bool share_policies(const struct live_entry *a, const struct live_entry *b)
{
	return strcmp(a->rules, b->rules) != 0 && share_folder(a, b);
}

/* What one run keeps in the agent's state, the other one reads: the files of another project, or what another policy reaches. */
static bool share_agent(const struct live_entry *a, const struct live_entry *b)
{
	return a->agent[0] && !strcmp(a->agent, b->agent) && (strcmp(a->project, b->project) || strcmp(a->rules, b->rules));
}

/* ---- a note at the start ---- */

struct names {
	struct strbuf text;
	size_t n;
};

static void add_name(struct names *l, const struct live_entry *e, const char *what)
{
	if (l->n++ >= 8)
		return;
	strbuf_printf(&l->text, "%s%s (", l->text.len ? ", " : "", e->name);
	strbuf_shown(&l->text, what, strlen(what));
	strbuf_putc(&l->text, ')');
}

struct seeker {
	const struct ak_paths *paths; /* borrowed, like the next */
	const struct live_entry *self;
	struct names others, agents;
};

static void compare(struct seeker *k, const struct live_entry *e)
{
	if (!strcmp(e->name, k->self->name))
		return;
	if (share_policies(k->self, e))
		add_name(&k->others, e, e->mode);
	if (share_agent(k->self, e))
		add_name(&k->agents, e, e->project[0] ? e->project : "no project");
}

/* A killed supervisor leaves its socket behind. The type is another one on purpose: then the kernel answers alone, and nobody has to accept. */
static bool listens(int dir, const char *file)
{
	_cleanup_close_ int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct sockaddr_un sun = { .sun_family = AF_UNIX };

	if (fd < 0 || snprintf(sun.sun_path, sizeof(sun.sun_path), "/proc/self/fd/%d/%s", dir, file) >= (int)sizeof(sun.sun_path))
		return true;
	return connect(fd, (const struct sockaddr *)&sun, sizeof(sun)) == 0 || (errno != ECONNREFUSED && errno != ENOENT);
}

/* The entry of the sandbox NAME, which borrows from *S. */
static bool load_entry(const struct ak_paths *paths, const char *name, struct state_sandbox *s, struct live_entry *ret)
{
	struct ak_err ignored;

	return state_load(paths, name, s, &ignored) == 0 && entry_of_state(s, "", ret) == 0;
}

static void compare_state(struct seeker *k, const char *name)
{
	_cleanup_(state_done) struct state_sandbox s = { 0 };
	struct live_entry e;

	if (strcmp(name, k->self->name) != 0 && load_entry(k->paths, name, &s, &e))
		compare(k, &e);
}

/* A supervisor's entry: one with no rules of its own. */
static bool of_sandbox(const struct live_entry *e)
{
	return !e->rules[0];
}

static void take_folders(struct live_entry *e, const struct live_entry *from)
{
	e->n_folders = 0;
	for (size_t i = 0; i < from->n_folders; i++)
		live_add_folder(e, from->folders[i]);
}

static void compare_outside(struct seeker *k, const struct live_entry *outside)
{
	_cleanup_(state_done) struct state_sandbox s = { 0 };
	struct live_entry e;

	if (!load_entry(k->paths, outside->name, &s, &e) || share_folder(k->self, &e)) /* each_running has named that one */
		return;
	take_folders(&e, outside);
	compare(k, &e);
}

static void compare_run(void *ctx, const struct live_entry *e)
{
	if (of_sandbox(e))
		compare_outside(ctx, e);
	else
		compare(ctx, e);
}

/* Only running sandboxes have a socket, far fewer than there are sandboxes. */
static void each_running(struct seeker *k)
{
	char path[PATH_MAX];
	DIR *dir = ak_path_join(path, k->paths->runtime, "sb", NULL) < 0 ? NULL : opendir(path);
	size_t left = RUNNING_MAX;

	for (struct dirent *e; dir && left > 0 && (e = readdir(dir));) {
		size_t len = strlen(e->d_name);

		if (len <= 5 || strcmp(e->d_name + len - 5, ".sock") != 0 || !listens(dirfd(dir), e->d_name))
			continue;
		e->d_name[len - 5] = '\0';
		compare_state(k, e->d_name);
		left--;
	}
	if (dir)
		closedir(dir);
}

static void write_note(const struct ak_paths *paths, const struct live_entry *self, struct shared_lines *ret)
{
	struct seeker k = { .paths = paths, .self = self };

	ret->project[0] = ret->agent[0] = '\0';
	if (!self->n_folders && !self->agent[0])
		return;
	if (self->n_folders)
		each_running(&k);
	(void)live_each(paths, compare_run, &k); /* the note is best effort */
	if (k.others.n && !k.others.text.failed)
		snprintf(ret->project, sizeof(ret->project),
			"the project%s is shared with %s%s under another policy: each can use what the other may reach",
			self->n_folders > 1 ? " or a mount" : "", k.others.text.data, k.others.n > 8 ? " and more" : "");
	if (k.agents.n && !k.agents.text.failed)
		snprintf(ret->agent, sizeof(ret->agent),
			"the agent's state is shared with %s%s: each can read and change what the other keeps there; --agent-state project keeps them apart",
			k.agents.text.data, k.agents.n > 8 ? " and more" : "");
	strbuf_done(&k.others.text);
	strbuf_done(&k.agents.text);
}

int shared_begin(const struct ak_paths *paths, const struct run_plan *plan, const struct run_request *opts)
{
	struct live_entry self;
	struct ak_err ignored;
	int rc = entry_of_run(plan, opts, &self);

	if (rc == 0 && !self.n_folders && !self.agent[0])
		return -ENOENT;
	if (rc == 0)
		rc = live_register(paths, &self);
	(void)written_add_plan(paths, plan, &ignored); /* the user may have had it forgotten before we were registered */
	return rc;
}

int shared_begin_state(const struct ak_paths *paths, const struct run_plan *plan)
{
	struct live_entry self = { .name = plan->name, .mode = "", .project = "", .agent = "" };
	struct ak_err ignored;
	int rc;

	live_add_folder(&self, guard_outside(plan->guard));
	if (!self.n_folders)
		return -ENOENT;
	rc = live_register(paths, &self);
	(void)written_add_plan(paths, plan, &ignored); /* as above */
	return rc;
}

void shared_note(
	const struct ak_paths *paths, const struct run_plan *plan, const struct run_request *opts, struct shared_lines *ret)
{
	struct live_entry self;

	*ret = (struct shared_lines){ 0 };
	if (entry_of_run(plan, opts, &self) == 0)
		write_note(paths, &self, ret);
}

void shared_note_state(const struct ak_paths *paths, const struct state_sandbox *s, const char *outside, struct shared_lines *ret)
{
	struct live_entry self;

	*ret = (struct shared_lines){ 0 };
	if (entry_of_state(s, outside, &self) == 0)
		write_note(paths, &self, ret);
}

/* ---- a folder that is the user's own again ---- */

struct user_of {
	const struct ak_paths *paths; /* borrowed, like the next */
	const char *path;
	char name[AK_NAME_MAX]; /* of one that can write PATH, or something in it or around it */
	const char *kind, *until; /* static */
};

static void compare_folders(struct user_of *u, const struct live_entry *e, const char *kind, const char *until)
{
	for (size_t i = 0; i < e->n_folders && !u->name[0]; i++) {
		if (overlap(e->folders[i], u->path)) {
			snprintf(u->name, sizeof(u->name), "%s", e->name);
			u->kind = kind;
			u->until = until;
		}
	}
}

static int state_uses(void *ctx, struct state_sandbox *s)
{
	struct live_entry e;
	int rc = entry_of_state(s, "", &e);

	if (rc == 0)
		compare_folders(ctx, &e, "sandbox", "is removed");
	return rc;
}

static void run_uses(void *ctx, const struct live_entry *e)
{
	if (of_sandbox(e))
		compare_folders(ctx, e, "sandbox", "is stopped");
	else
		compare_folders(ctx, e, "run", "ends");
}

static int in_use(void *ctx, struct ak_err *err)
{
	struct user_of *u = ctx;
	int rc = state_each(u->paths, state_uses, NULL, u, err);

	if (rc < 0)
		return rc == -ENOMEM ? ak_fail(err, ENOMEM, "out of memory") : rc;
	rc = live_each(u->paths, run_uses, u);
	if (u->name[0])
		return ak_fail(err, EBUSY, "%s '%s' can write in '%.200s' until it %s", u->kind, u->name, u->path, u->until);
	if (rc == -EUSERS)
		return ak_fail(err, EBUSY, "%d commands run now, and more may that are not known; try again when some have ended",
			LIVE_MAX);
	return rc < 0 ? ak_fail(err, EBUSY, "what runs now is not known: %.200s/live: %s", u->paths->state, strerror(-rc)) : 0;
}

int shared_forget_name(const struct ak_paths *paths, const char *path, char ret[static PATH_MAX], struct ak_err *err)
{
	_cleanup_(written_done) struct written w = { .paths = paths };
	struct project_id id;
	mode_t mode = 0;
	int rc = shared_name(paths, path, "--forget", ret, &id, &mode, err);

	if (rc == -ENOENT && path[0] == '/') /* what is recorded may be gone */
		rc = snprintf(ret, PATH_MAX, "%s", path) < PATH_MAX ? 0 : ak_fail(err, ENAMETOOLONG, "--forget: path too long");
	if (rc == 0 && !written_touches(&w, ret))
		rc = ak_fail(
			err, ENOENT, "no sandbox could write '%.200s'; 'agentkernel trust --written' lists the folders", ret);
	return rc;
}

int shared_forget(const struct ak_paths *paths, const char *path, struct ak_err *err)
{
	_cleanup_strbuf_ struct strbuf more = { 0 };
	struct user_of u = { .paths = paths, .path = path };
	int rc = written_forget(paths, path, in_use, &u, err);

	if (rc < 0)
		return rc;
	event_put_text(&more, "path", path);
	event_write(paths, "written_forget", "-", &more);
	return 0;
}

/* ---- all sandboxes and running commands ---- */

struct owner {
	char *dir, *with; /* owned; WITH: owners that differ in it share DIR */
	char name[AK_NAME_MAX];
};

struct owners {
	struct owner *list; /* owned */
	size_t n, cap;
	int rc;
};

static void owners_done(struct owners *o)
{
	for (size_t i = 0; i < o->n; i++) {
		free(o->list[i].dir);
		free(o->list[i].with);
	}
	free(o->list);
}

static int add_owner(struct owners *o, const char *name, const char *dir, const char *with, const char *more)
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
	*new = (struct owner){ .dir = strdup(dir) };
	snprintf(new->name, sizeof(new->name), "%s", name);
	if (asprintf(&new->with, "%s%s", with, more) < 0)
		new->with = NULL;
	return new->dir &&new->with ? 0 : -ENOMEM;
}

struct all {
	const struct ak_paths *paths; /* borrowed */
	struct owners projects, agents;
};

static void all_done(struct all *a)
{
	owners_done(&a->projects);
	owners_done(&a->agents);
}

static int add_entry(struct all *a, const struct live_entry *e)
{
	int rc = e->agent[0] ? add_owner(&a->agents, e->name, e->agent, e->rules, e->project) : 0;

	for (size_t i = 0; i < e->n_folders && rc == 0; i++)
		rc = add_owner(&a->projects, e->name, e->folders[i], e->rules, "");
	return rc;
}

static int add_state(void *ctx, struct state_sandbox *s)
{
	struct live_entry e;
	int rc = entry_of_state(s, "", &e);

	return rc < 0 ? rc : add_entry(ctx, &e);
}

static int add_outside(struct all *a, const struct live_entry *outside)
{
	_cleanup_(state_done) struct state_sandbox s = { 0 };
	struct live_entry e;

	if (!load_entry(a->paths, outside->name, &s, &e)) /* removed meanwhile */
		return 0;
	take_folders(&e, outside);
	return add_entry(a, &e);
}

static void add_run(void *ctx, const struct live_entry *e)
{
	struct all *a = ctx;

	if (a->projects.rc == 0)
		a->projects.rc = of_sandbox(e) ? add_outside(a, e) : add_entry(a, e);
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

/* Record under KEY that NAME shares something with OTHER. */
static int mark(cJSON *list, const char *key, const char *name, const char *other)
{
	cJSON *info = info_of(list, name), *names = cJSON_GetObjectItemCaseSensitive(info, key), *text;

	if (!info || !strcmp(name, other))
		return 0;
	cJSON_ArrayForEach(text, names) {
		if (!strcmp(text->valuestring, other)) /* they share several folders */
			return 0;
	}
	if (!names)
		names = cJSON_AddArrayToObject(info, key);
	text = names ? cJSON_CreateString(other) : NULL;
	return text && cJSON_AddItemToArray(names, text) ? 0 : -ENOMEM;
}

/* In sorted order, nested folders follow their parent, possibly with others between them that have the same prefix. */
static int mark_all(struct owners *o, const char *key, cJSON *list)
{
	int rc = 0, pairs = 0;

	if (o->n)
		qsort(o->list, o->n, sizeof(*o->list), by_dir);
	for (size_t i = 0; i < o->n; i++) {
		const struct owner *a = &o->list[i];

		for (size_t j = i + 1; j < o->n && !strncmp(o->list[j].dir, a->dir, strlen(a->dir)); j++) {
			const struct owner *b = &o->list[j];

			if (!overlap(a->dir, b->dir) || !strcmp(a->with, b->with))
				continue;
			rc = mark(list, key, a->name, b->name);
			if (rc == 0)
				rc = mark(list, key, b->name, a->name);
			if (rc < 0)
				return rc;
			pairs++;
		}
	}
	return pairs;
}

int shared_mark(const struct ak_paths *paths, cJSON *list, struct ak_err *err)
{
	_cleanup_(all_done) struct all a = { .paths = paths };
	int rc = state_each(paths, add_state, NULL, &a, err), pairs;

	if (rc == 0) {
		(void)live_each(paths, add_run, &a);
		rc = a.projects.rc;
	}
	if (rc == -ENOMEM)
		return ak_fail(err, ENOMEM, "out of memory");
	if (rc < 0)
		return rc;
	pairs = rc = mark_all(&a.projects, "shared_with", list);
	if (rc >= 0)
		rc = mark_all(&a.agents, "agent_state_shared_with", list);
	return rc < 0 ? ak_fail_errno(err, -rc, "list") : pairs + rc;
}
