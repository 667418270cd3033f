/* The user's mounts: see store/mounts.h. */
#include "gateway/store/mounts.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/strbuf.h"
#include "gateway/log/events.h"
#include "gateway/project/mount.h"
#include "gateway/store/shared.h"
#include "vmctl/source.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct plan_mounts {
	struct run_mount list[RUN_MOUNTS_MAX]; /* resolved; outer targets before inner ones */
	struct {
		char source[PATH_MAX], target[PATH_MAX];
		bool folder;
		struct guard *guard; /* owned; of a writable folder */
	} own[RUN_MOUNTS_MAX]; /* in the order of the request */
	size_t n;
	char *texts[PLAN_INNER_MAX]; /* owned; targets of the mounts on top */
	size_t n_texts;
};

/* ---- text and JSON ---- */

const char *run_mount_mode_name(bool writable)
{
	return writable ? "rw" : "ro";
}

int run_mount_mode(const char *text, bool *ret_writable, struct ak_err *err)
{
	if (strcmp(text, "ro") != 0 && strcmp(text, "rw") != 0)
		return ak_fail(err, EINVAL, "'%.100s' is not one of: ro, rw", text);
	*ret_writable = text[1] == 'w';
	return 0;
}

int run_mount_parse(char *text, struct run_mount *ret, struct ak_err *err)
{
	struct run_mount m = { .source = text };
	struct ak_err ignored;
	char *last = strrchr(text, ':'), *first;

	if (last && run_mount_mode(last + 1, &m.writable, &ignored) == 0)
		*last = '\0';
	first = strchr(text, ':');
	if (first) {
		*first = '\0';
		m.target = first + 1;
	}
	if (!m.source[0])
		return ak_fail(err, EINVAL, "the source is missing: SRC[:DST][:ro|rw]");
	if (first && (m.target[0] != '/' || strchr(m.target, ':')))
		return ak_fail(err, EINVAL,
			"'%.100s' is neither an absolute path inside the sandbox nor ro or rw: SRC[:DST][:ro|rw]", m.target);
	*ret = m;
	return 0;
}

void run_mounts_free(struct run_mount *list, size_t n)
{
	for (size_t i = 0; list && i < n; i++) {
		free((char *)list[i].source);
		free((char *)list[i].target);
	}
	free(list);
}

struct run_mount *run_mounts_copy(const struct run_mount *list, size_t n)
{
	struct run_mount *copy = calloc(n + 1, sizeof(*copy));

	for (size_t i = 0; copy && i < n; i++) {
		copy[i] = list[i];
		copy[i].source = strdup(list[i].source);
		copy[i].target = list[i].target ? strdup(list[i].target) : NULL;
		if (!copy[i].source || (list[i].target && !copy[i].target)) {
			run_mounts_free(copy, i + 1);
			return NULL;
		}
	}
	return copy;
}

bool run_mounts_put(cJSON *obj, const char *key, const struct run_mount *list, size_t n)
{
	cJSON *array = n ? cJSON_AddArrayToObject(obj, key) : NULL;
	bool ok = !n || array;

	for (size_t i = 0; ok && i < n; i++) {
		cJSON *item = cJSON_CreateObject();
		char id[PROJECT_ID_TEXT];

		ok = item && cJSON_AddItemToArray(array, item) && cJSON_AddStringToObject(item, "source", list[i].source) &&
			cJSON_AddStringToObject(item, "target", list[i].target) &&
			cJSON_AddStringToObject(item, "mode", run_mount_mode_name(list[i].writable)) &&
			cJSON_AddStringToObject(item, "id", project_id_print(&list[i].id, id));
	}
	return ok;
}

static int get_mount(const cJSON *item, struct run_mount *ret, struct ak_err *err)
{
	static const char *const known[] = { "source", "target", "mode", "id", NULL };
	const char *mode = "", *id = "";
	int rc = cJSON_IsObject(item) ? json_check_keys(item, known, err) : ak_fail(err, EINVAL, "must be an object");

	*ret = (struct run_mount){ .source = "", .target = "" };
	if (rc == 0)
		rc = json_get_string(item, "source", &ret->source, err);
	if (rc >= 0)
		rc = json_get_string(item, "target", &ret->target, err);
	if (rc >= 0)
		rc = json_get_string(item, "mode", &mode, err);
	if (rc >= 0)
		rc = json_get_string(item, "id", &id, err);
	if (rc >= 0)
		rc = run_mount_mode(mode, &ret->writable, err);
	if (rc == 0 && (ret->source[0] != '/' || ret->target[0] != '/' || project_id_parse(id, &ret->id) < 0))
		return ak_fail(err, EINVAL, "must have absolute paths and the identity of the source");
	return rc;
}

int run_mounts_get(
	const cJSON *obj, const char *key, struct run_mount ret[static RUN_MOUNTS_MAX], size_t *ret_n, struct ak_err *err)
{
	const cJSON *list = NULL, *item;
	int rc = json_get_array(obj, key, &list, err);
	size_t n = 0;

	if (rc < 0)
		return rc;
	cJSON_ArrayForEach(item, list) {
		rc = n < RUN_MOUNTS_MAX ? get_mount(item, &ret[n], err) : ak_fail(err, E2BIG, "more than %d", RUN_MOUNTS_MAX);
		if (rc < 0)
			return ak_err_prefix(err, rc, "%s[%zu]", key, n);
		n++;
	}
	*ret_n = n;
	return 0;
}

void run_mounts_event(struct strbuf *out, char *const *first, size_t n_first, const struct run_mount *list, size_t n)
{
	char *all[TOOLS_MAX + RUN_MOUNTS_MAX + 1], *own[RUN_MOUNTS_MAX] = { NULL };
	bool ok = n_first <= TOOLS_MAX && n <= RUN_MOUNTS_MAX;

	for (size_t i = 0; ok && i < n_first; i++)
		all[i] = first[i];
	for (size_t i = 0; ok && i < n; i++) {
		ok = asprintf(&own[i], "%s:%s:%s", list[i].source, list[i].target, run_mount_mode_name(list[i].writable)) >= 0;
		all[n_first + i] = own[i] = ok ? own[i] : NULL;
	}
	if (ok && n_first + n) {
		all[n_first + n] = NULL;
		event_put_list(out, "mounts", all);
	}
	out->failed |= !ok;
	for (size_t i = 0; i < n && i < RUN_MOUNTS_MAX; i++)
		free(own[i]);
}

/* ---- naming and checking ---- */

void plan_mounts_free(struct plan_mounts *m)
{
	for (size_t i = 0; m && i < m->n; i++)
		guard_free(m->own[i].guard);
	for (size_t i = 0; m && i < m->n_texts; i++)
		free(m->texts[i]);
	free(m);
}

/* "~/x" is the home also where no shell expands it, as after --mount=. */
static int expand(const char *source, char ret[static PATH_MAX])
{
	const char *home = getenv("HOME");
	bool own = source[0] == '~' && (source[1] == '/' || source[1] == '\0') && home;

	return snprintf(ret, PATH_MAX, "%s%s", own ? home : "", source + own) >= PATH_MAX ? -ENAMETOOLONG : 0;
}

static int name_source(const struct run_request *opts, const struct ak_paths *paths, const struct run_mount *in,
	char ret[static PATH_MAX], struct project_id *ret_id, mode_t *ret_mode, struct ak_err *err)
{
	char typed[PATH_MAX];
	int rc;

	if (opts->fixed_env) { /* resolved when the sandbox was created; newer links are not followed */
		snprintf(ret, PATH_MAX, "%s", in->source);
		return project_again_any(ret, "mount", &in->id, ret_id, ret_mode, err);
	}
	rc = expand(in->source, typed);
	if (rc < 0)
		return ak_fail_errno(err, -rc, "mount '%.200s'", in->source);
	rc = shared_name(paths, typed, "mount", ret, ret_id, ret_mode, err);
	if (rc == 0 && in->id.ino && S_ISDIR(*ret_mode) && !project_id_same(&in->id, ret_id))
		return ak_fail(err, ESTALE,
			"mount '%s': it is not the folder that was there when you trusted agentkernel.toml; nothing was mounted. "
			"If you have replaced it, run: agentkernel trust",
			ret);
	return rc;
}

/* A place in the project is the host's too: nothing is created there. */
static int check_in_project(const char *target, bool folder, struct ak_err *err)
{
	struct ak_err why;
	struct stat st;
	_cleanup_close_ int fd = mnt_source_open(&(struct sandbox_mount){ .source = target }, &why);

	if (fd == -ELOOP)
		return ak_fail(err, EINVAL, "the target '%s' leads through a symbolic link in the project", target);
	if (fd < 0 || fstat(fd, &st) < 0 || (S_ISDIR(st.st_mode) != 0) != folder)
		return ak_fail(err, EINVAL, "the target '%s' lies in the project, where there is no such %s; create it first",
			target, folder ? "folder" : "file");
	return 0;
}

static int check_target_of(const struct run_plan *plan, const char *target, bool folder, bool writable, struct ak_err *err)
{
	if (project_inside(plan->home, target))
		return ak_fail(err, EINVAL, "the target '%s' would hide the home inside, '%s'", target, plan->home);
	if (!plan->project[0])
		return 0;
	if (!strcmp(target, plan->project) || (project_inside(plan->project, target) && (writable || !folder)))
		return ak_fail(err, EINVAL, "the target '%s' would hide the project '%s'", target, plan->project);
	return project_inside(target, plan->project) ? check_in_project(target, folder, err) : 0;
}

static int check_against(const struct mount_ask *ask, const char *target, const struct run_mount *other, bool other_folder,
	struct owndir *own, struct ak_err *err)
{
	if (!strcmp(target, other->target))
		return ak_fail(err, EINVAL, "the target '%s' is used twice", target);
	if ((other->writable && project_inside(target, other->target)) ||
		(ask->writable && project_inside(other->target, target)))
		return ak_fail(err, EINVAL, "the targets '%s' and '%s' lie in each other", target, other->target);
	return other->writable && other_folder ? mount_check_apart(ask, other->source, "the mount", own, err) : 0;
}

static int name_one(struct run_plan *plan, const struct run_request *opts, const struct ak_paths *paths, struct owndir *own,
	const struct run_mount *in, struct ak_err *err)
{
	struct plan_mounts *m = plan->brought;
	char *source = m->own[m->n].source, *target = m->own[m->n].target;
	struct mount_ask ask = { .source = source, .writable = in->writable, .word = PROJECT_NAMED };
	struct project_id id;
	int rc = name_source(opts, paths, in, source, &id, &ask.mode, err);

	if (rc < 0)
		return rc;
	if (opts->fixed_env ? in->id.ino != 0 : opts->allow_broad_dir)
		ask.word = PROJECT_CONFIRMED;
	m->own[m->n].folder = S_ISDIR(ask.mode);
	rc = mount_check_source(&ask, own, err);
	if (rc == 0)
		rc = mount_check_target(in->target ? in->target : source, target, err);
	if (rc == 0)
		rc = check_target_of(plan, target, S_ISDIR(ask.mode), in->writable, err);
	if (rc == 0)
		rc = mount_check_apart(&ask, plan->project, "the project", own, err);
	for (size_t i = 0; i < m->n && rc == 0; i++)
		rc = check_against(&ask, target, &m->list[i], m->own[i].folder, own, err);
	if (rc < 0)
		return ak_err_prefix(err, rc, "mount");
	m->list[m->n++] = (struct run_mount){ .source = source, .target = target, .writable = in->writable, .id = id };
	return 0;
}

int plan_mounts_name(struct run_plan *plan, const struct run_request *opts, const struct ak_paths *paths, struct owndir *own,
	struct ak_err *err)
{
	int rc = 0;

	if (!opts->n_mounts)
		return 0;
	plan->brought = calloc(1, sizeof(*plan->brought));
	if (!plan->brought)
		return ak_fail(err, ENOMEM, "out of memory");
	for (size_t i = 0; i < opts->n_mounts && rc == 0; i++)
		rc = name_one(plan, opts, paths, own, &opts->mounts[i], err);
	plan->asked = plan->brought->list;
	plan->n_asked = plan->brought->n;
	return rc;
}

bool plan_mounts_writes(const struct run_plan *plan, const char *path)
{
	for (size_t i = 0; i < plan->n_asked; i++) {
		if (plan->asked[i].writable && project_inside(path, plan->asked[i].source))
			return true;
	}
	return false;
}

bool plan_mounts_covers(const struct run_plan *plan, const char *path)
{
	for (size_t i = 0; i < plan->n_asked; i++) {
		if (project_inside(path, plan->asked[i].target))
			return true;
	}
	return false;
}

/* ---- adding ---- */

/* PATH, which is in the source of M, as a path inside. */
static const char *path_inside(struct plan_mounts *all, const struct run_mount *m, const char *path)
{
	char *text = NULL;

	if (all->n_texts == PLAN_INNER_MAX || asprintf(&text, "%s%s", m->target, path + strlen(m->source)) < 0)
		return NULL;
	return all->texts[all->n_texts++] = text;
}

/* A read-only folder around ours shows an empty one in their place. */
static int add_covers(
	struct run_plan *plan, const struct run_mount *m, struct owndir *own, const char *empty_dir, struct ak_err *err)
{
	char covers[OWNDIR_COVERS_MAX][PATH_MAX];
	int n = empty_dir[0] ? owndir_covers(own, &m->source, 1, covers, err) : 0, rc;
	struct project_id empty;

	if (n <= 0)
		return n;
	rc = project_name(empty_dir, "empty folder", plan->empty, &empty, err);
	for (int i = 0; i < n && rc == 0; i++) {
		const char *target = path_inside(plan->brought, m, covers[i]);

		if (!target)
			return ak_fail(err, ENOMEM, "mount '%s': cannot be covered", m->source);
		plan_add_mount(plan, plan->empty, target, true, &empty, "an empty folder over our own");
	}
	return rc;
}

/* Nothing outside a mount is mounted with it: a git folder elsewhere always counts as another's. */
static bool claims_all(const struct ak_paths *paths, const char *path)
{
	return true;
}

static int add_guard(
	struct run_plan *plan, size_t i, const struct run_request *opts, const struct ak_paths *paths, struct ak_err *err)
{
	const struct run_mount *m = &plan->asked[i];
	struct sandbox_mount on_top[GUARD_MOUNTS_MAX];
	struct guard **guard = &plan->brought->own[i].guard;
	int rc = guard_new(m->source, &m->id, paths, claims_all, !opts->project_writable, guard, err);
	size_t n = rc < 0 ? 0 : guard_mounts(*guard, on_top);

	for (size_t k = 0; k < n; k++) {
		const struct project_id id = { .dev = on_top[k].dev, .ino = on_top[k].ino };
		const char *target = path_inside(plan->brought, m, on_top[k].target);

		if (!target)
			return ak_fail(err, E2BIG, "mount '%s': it has too many files to protect; mount it read-only", m->source);
		plan_add_mount(plan, on_top[k].source, target, on_top[k].readonly, &id,
			"a file that your own tools run, or a folder that pins it");
	}
	if (rc == 0)
		run_plan_note(plan, guard_note(*guard));
	return rc;
}

static int add_one(struct run_plan *plan, size_t i, const struct run_request *opts, const struct ak_paths *paths,
	struct owndir *own, const char *empty_dir, struct ak_err *err)
{
	const struct run_mount *m = &plan->asked[i];
	bool folder = plan->brought->own[i].folder;

	plan_add_mount(plan, m->source, m->target, !m->writable, &m->id,
		m->writable ? "named by --mount, writable" : "named by --mount, read-only");
	plan->mounts[plan->n_mounts - 1].shielded = folder && !m->writable;
	if (!folder)
		return 0;
	return m->writable ? add_guard(plan, i, opts, paths, err) : add_covers(plan, m, own, empty_dir, err);
}

int plan_mounts_add(struct run_plan *plan, const struct run_request *opts, const struct ak_paths *paths, struct owndir *own,
	const char *empty_dir, enum plan_mounts_part part, struct ak_err *err)
{
	size_t added = 0;
	int rc = 0;

	/* Shorter targets first: one may lie in another. */
	for (size_t len = 1; added < plan->n_asked && len < PATH_MAX && rc == 0; len++) {
		for (size_t i = 0; i < plan->n_asked && rc == 0; i++) {
			const char *target = plan->asked[i].target;
			bool below = plan->project[0] && project_inside(plan->project, target);

			if (strlen(target) != len)
				continue;
			added++;
			if (below == (part == PLAN_MOUNTS_BELOW_PROJECT))
				rc = add_one(plan, i, opts, paths, own, empty_dir, err);
		}
	}
	return rc;
}

void plan_mounts_look(struct run_plan *plan)
{
	char line[512];

	for (size_t i = 0; plan->brought && i < plan->n_asked; i++) {
		if (!plan->asked[i].writable || !plan->brought->own[i].folder)
			continue;
		project_sockets(plan->asked[i].source, plan->asked[i].source, line, sizeof(line));
		run_plan_note(plan, line);
	}
}

char *run_plan_tell(struct run_plan *plan, const struct ak_paths *paths, const char *origin)
{
	char *told = guard_tell(plan->guard, paths, plan->name, origin);

	for (size_t i = 0; plan->brought && i < plan->brought->n; i++) {
		_cleanup_free_ char *more = guard_tell(plan->brought->own[i].guard, paths, plan->name, origin), *first = told;

		if (!more ||
			asprintf(&told, "%s%sin '%s', %s", first ? first : "", first ? "; " : "", plan->brought->own[i].source,
				more) < 0)
			told = TAKE(first);
	}
	return told;
}
