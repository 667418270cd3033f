/*
 * Projects that several sandboxes share. Through a common folder, running sandboxes can pass each other files and open connections:
 * a sandbox can use what another one with a wider policy may reach. We can only prevent that by denying one of them the project,
 * so we report it. The same is true of an agent's state that runs of several projects have.
 */
#ifndef AK_SHARED_H
#define AK_SHARED_H

#include "gateway/base/json.h"
#include "gateway/base/paths.h"
#include "gateway/store/plan.h"
#include "gateway/store/written.h"

#include <stdbool.h>
#include <stddef.h>

/* Lines for the user; "" if there is nothing to report. */
struct shared_lines {
	char project
		[512]; /* names running sandboxes and commands with another policy that may write where this one may: in its project or a mount */
	char agent[768]; /* names running commands of other projects, or with another policy, that have the same agent's state */
};

/* Register the run of PLAN and OPTS, so that others see it, until the descriptor is closed. Best effort. Call it before shared_note. */
int shared_begin(const struct ak_paths *paths, const struct run_plan *plan, const struct run_request *opts);

void shared_note(
	const struct ak_paths *paths, const struct run_plan *plan, const struct run_request *opts, struct shared_lines *ret);

/*
 * Open a file or folder of the host, with O_PATH, by the path that the user typed. Links that a sandbox may have made are not
 * followed: those in folders that the user may write (see project/way.h), and in what a past or present sandbox could write. -ELOOP.
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

/*
 * Is PATH inside the project of a persistent sandbox, or does it contain one? Then that sandbox may have written it. True if this
 * cannot be determined. A project's .git does not count: it contains the data of the project's worktrees.
 */
bool shared_claims(const struct ak_paths *paths, const char *path);

/* The projects of all persistent sandboxes, and what past ones could write; read once. */
struct shared_projects {
	const struct ak_paths *paths; /* borrowed; set by the caller, the rest is zero */
	char **list; /* owned */
	size_t n;
	bool loaded;
	struct written past; /* owned */
};
void shared_projects_done(struct shared_projects *p);

/*
 * Whether PATH is inside one of PROJECTS (struct shared_projects) or a folder that a past sandbox could write, so that a sandbox may have
 * written it; true also if that cannot be read.
 */
bool shared_wrote(void *projects, const char *path);

/*
 * Register a persistent sandbox, of PLAN, that runs from now on: what it may write and its state does not name. As shared_begin; -ENOENT if that is nothing.
 * Call it before shared_note_state.
 */
int shared_begin_state(const struct ak_paths *paths, const struct run_plan *plan);

struct state_sandbox;
/* Like shared_note, for a persistent sandbox. */
void shared_note_state(
	const struct ak_paths *paths, const struct state_sandbox *s, const char *outside, struct shared_lines *ret);

/*
 * The resolved path of the folder that the user typed to be forgotten, which may be gone. Links that a sandbox may have made are not followed. -ENOENT if no
 * sandbox could write it.
 */
int shared_forget_name(const struct ak_paths *paths, const char *path, char ret[static PATH_MAX], struct ak_err *err);

/*
 * The user has looked at PATH: links, programs and settings in it count as their own again, until the next sandbox can write it. -ENOENT or -EINVAL if it is
 * not recorded, -EBUSY while a sandbox exists, or a command runs, that can write it, or if that is not known. Recorded as an event.
 */
int shared_forget(const struct ak_paths *paths, const char *path, struct ak_err *err);

/*
 * Add "shared_with" (names) to each entry of LIST that shares its project with another policy, and "agent_state_shared_with" to each that shares the
 * agent's state with another project; returns their number.
 */
int shared_mark(const struct ak_paths *paths, cJSON *list, struct ak_err *err);

#endif
