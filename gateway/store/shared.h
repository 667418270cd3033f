/*
 * Projects that several sandboxes share. Through a common folder they can pass each other files, and open connections while both run: what one may
 * not reach, it can be handed by another whose policy is wider. That cannot be prevented without taking the project from one of them, so it is told.
 */
#ifndef AK_SHARED_H
#define AK_SHARED_H

#include "gateway/base/json.h"
#include "gateway/base/paths.h"
#include "gateway/store/plan.h"

#include <stdbool.h>
#include <stddef.h>

/* For SELF, with PROJECT, OUTSIDE (guard_outside) and the rules of OPTS: the line that names the running sandboxes of another policy with that project, one around it or one in
 * it; "" when there are none. */
void shared_note(const struct ak_paths *paths, const char *self, const char *project, const char *outside,
	const struct run_request *opts, char *ret, size_t size);

/* Open a folder of the host by the path that the user typed. Links in it are the user's, but those in a persistent sandbox's project may be the sandbox's:
 * -ELOOP. */
int shared_open_folder(const struct ak_paths *paths, const char *path, struct ak_err *err);

/* Does PATH lie in, or hold, the project of a persistent sandbox? Then that sandbox may have written it. True also when that cannot be told. A project's
 * .git is no such place: worktrees of the project belong there. */
bool shared_claims(const struct ak_paths *paths, const char *path);

struct state_sandbox;
/* The same for a persistent one. */
void shared_note_state(const struct ak_paths *paths, const struct state_sandbox *s, const char *outside, char *ret, size_t size);

/* Add "shared_with", names, to each of LIST (SandboxInfo) that shares its project with one of another policy; how many do. */
int shared_mark(const struct ak_paths *paths, cJSON *list, struct ak_err *err);

#endif
