/*
 * Projects that several sandboxes share. Through a common folder, running sandboxes can pass each other files and open connections:
 * a sandbox can use what another one with a wider policy may reach. We can only prevent that by denying one of them the project,
 * so we report it.
 */
#ifndef AK_SHARED_H
#define AK_SHARED_H

#include "gateway/base/json.h"
#include "gateway/base/paths.h"
#include "gateway/store/plan.h"

#include <stdbool.h>
#include <stddef.h>

/*
 * For PLAN and the rules of OPTS: write a line that names the running sandboxes with another policy that may write where this one may,
 * in its project or a writable mount; "" if there are none.
 */
void shared_note(
	const struct ak_paths *paths, const struct run_plan *plan, const struct run_request *opts, char *ret, size_t size);

/*
 * Open a file or folder of the host, with O_PATH, by the path that the user typed. Links that a sandbox may have made are not
 * followed: those in folders that the user may write (see project/way.h), and in the project of a persistent sandbox. -ELOOP.
 */
int shared_open(const struct ak_paths *paths, const char *path, struct ak_err *err);

/* The same for a folder, opened for reading. */
int shared_open_folder(const struct ak_paths *paths, const char *path, struct ak_err *err);

/* The real path, the identity and the kind of what the user typed as PATH, by the same rule. WHAT names it in errors. */
int shared_name(const struct ak_paths *paths, const char *path, const char *what, char ret[static PATH_MAX],
	struct project_id *ret_id, mode_t *ret_mode, struct ak_err *err);

/* The same for a project folder. */
int shared_name_folder(
	const struct ak_paths *paths, const char *path, char ret[static PATH_MAX], struct project_id *ret_id, struct ak_err *err);

/* Refuse PATH by the same rule: -ELOOP. Other errors are not reported here. */
int shared_check_way(const struct ak_paths *paths, const char *path, struct ak_err *err);

/*
 * Is PATH inside the project of a persistent sandbox, or does it contain one? Then that sandbox may have written it. True if this
 * cannot be determined. A project's .git does not count: it contains the data of the project's worktrees.
 */
bool shared_claims(const struct ak_paths *paths, const char *path);

/* The projects of all persistent sandboxes, read once. */
struct shared_projects {
	const struct ak_paths *paths; /* borrowed; set by the caller, the rest is zero */
	char **list; /* owned */
	size_t n;
	bool loaded;
};
void shared_projects_done(struct shared_projects *p);

/* Whether PATH is inside one of PROJECTS (struct shared_projects), so that a sandbox may have written it; true also if they cannot be read. */
bool shared_wrote(void *projects, const char *path);

struct state_sandbox;
/* Like shared_note, for a persistent sandbox. */
void shared_note_state(const struct ak_paths *paths, const struct state_sandbox *s, const char *outside, char *ret, size_t size);

/* Add "shared_with" (names) to each entry of LIST (SandboxInfo) that shares its project with another policy; returns their number. */
int shared_mark(const struct ak_paths *paths, cJSON *list, struct ak_err *err);

#endif
