/* What the parts of the guard share: see project/guard.h. */
#ifndef AK_GUARD_INTERNAL_H
#define AK_GUARD_INTERNAL_H

#include "gateway/project/guard.h"

#include <stdint.h>
#include <sys/stat.h>

/* A folder that is mounted writable: the project, and perhaps a git folder outside it. Everything else is named by its root and a path below it. */
struct guard_root {
	char *path; /* owned */
	int fd; /* owned; O_PATH */
};
enum { GUARD_PROJECT, GUARD_OUTSIDE, GUARD_ROOTS };

struct guard_mount {
	char *path; /* owned */
	bool readonly;
	dev_t dev;
	ino_t ino;
};

/* A git folder: where hooks and config are. */
struct guard_place {
	size_t root;
	char *rel; /* owned; "" is the root itself */
	bool nested; /* with the git folders of submodules and worktrees in it */
};
#define GUARD_PLACES_MAX 4

/* One file as it was when it was looked at. */
struct guard_row {
	size_t root;
	char *rel; /* owned; one that ends with a slash says that not all below it was looked at */
	size_t watch; /* so much of REL is the name that is watched */
	dev_t dev;
	ino_t ino;
	mode_t mode;
	int64_t size, ctime_ns;
};

struct guard_look {
	struct guard_row *rows; /* owned */
	size_t n, cap;
	bool failed; /* out of memory */
};

/* The names in the project's top folder, for as long as one look takes. */
#define GUARD_TOP_BITS 1024
struct guard_top {
	bool known;
	uint64_t bits[GUARD_TOP_BITS / 64]; /* by hash */
};

struct guard {
	struct guard_root roots[GUARD_ROOTS];
	size_t n_roots;
	bool protect;
	guard_claimed *claimed;
	struct guard_mount mounts[GUARD_MOUNTS_MAX];
	size_t n_mounts;
	struct guard_place places[GUARD_PLACES_MAX];
	size_t n_places;
	struct guard_top top;
	char *hooks; /* owned; the project's folder that git has for its hooks, NULL when it is not in the project */
	struct guard_look before;
	char note[768]; /* lines */
};

/* project/guard.c: O_PATH descriptor of REL, no link in any part followed; a link at its end is opened itself. -errno. */
int guard_open(const struct guard *g, size_t root, const char *rel, struct stat *ret);
/* The same for a part below FD, which may be a link that stays below. */
int guard_open_beneath(int fd, const char *rel);
char *guard_join(const char *dir, const char *name); /* NULL: out of memory */
/* Where a link in or at the end of REL leads, as a path below its root without links: NULL when that is elsewhere, or nowhere. */
char *guard_behind_link(const struct guard *g, size_t root, const char *rel);
/* The nearest folder above REL that can be opened, "" for the root, and what it is (untouched when not even that can). NULL: out of memory. */
char *guard_seen_above(const struct guard *g, size_t root, const char *rel, struct stat *ret);
/* Mount REL on itself, so that it cannot be moved. Read-only takes away all mounts below it; in what is read-only already there is nothing to pin. */
int guard_pin(struct guard *g, size_t root, const char *rel, bool readonly);
/* Mount REL writable although what is above it is not. -E2BIG leaves some mounts for others. */
int guard_except(struct guard *g, size_t root, const char *rel);
/* Change the mount of REL; read-only takes away all mounts below it. -ENOENT without one. */
int guard_reset(struct guard *g, size_t root, const char *rel, bool readonly);
bool guard_closed(const struct guard *g, size_t root, const char *rel); /* read-only, by itself or by what is above it */
bool guard_holds(const struct guard *g, size_t root, const char *rel); /* is there a mount at or below it? */
/* Make REL read-only, when it is there, or the folder in which that cannot be seen. */
int guard_protect(struct guard *g, size_t root, const char *rel);

void guard_say(struct guard *g, const char *fmt, ...) __attribute__((format(printf, 2, 3))); /* a line for the note */
int guard_failed(const struct guard *g, int rc, struct ak_err *err);

extern const char *const guard_names[]; /* in a project; NULL at the end */
extern const char *const guard_git_names[]; /* in a git folder */
extern const char *const guard_git_watched[]; /* in a git folder, which git must be able to write */

extern const char *const guard_git_inner[]; /* folders of a git folder with more of them */

/* project/guard_git.c: find the project's git folders and protect what is in them. */
int guard_git(struct guard *g, const struct ak_paths *paths, struct ak_err *err);
/* The file .git of the submodule whose git folder is REL, below the project; NULL when it is not there. */
char *guard_module_file(const struct guard *g, size_t root, const char *rel);

/* project/guard_nested.c: what is found in modules and worktrees. */
enum guard_kind {
	GUARD_INNER, /* modules or worktrees itself, before what is in it */
	GUARD_GIT, /* a git folder */
	GUARD_LIKE, /* has something of a git folder */
	GUARD_LINK,
};
struct guard_walk {
	const struct guard *g; /* borrowed */
	size_t root;
	int (*fn)(void *ctx, size_t root, const char *rel, enum guard_kind kind);
	void *ctx;
	size_t found, entries, links; /* so far */
};
/* All in INNER (of guard_git_inner) of the git folder REL. Not all could be visited: -E2BIG, or -EACCES and other errors of opening. */
int guard_nested(struct guard_walk *w, const char *rel, const char *inner);
int guard_protect_nested(struct guard *g, size_t root, const char *rel);
int guard_protect_folder(struct guard *g, size_t root, const char *rel); /* the names in one git folder */

/* project/guard_top.c: from here until it is forgotten, what the top folder did not have is not looked for. */
void guard_top_look(struct guard *g);
void guard_top_forget(struct guard *g);
bool guard_top_lacks(const struct guard *g, const char *rel); /* REL, or the first part of it */

/* project/guard_look.c */
void guard_look(const struct guard *g, struct guard_look *ret);
void guard_look_done(struct guard_look *l);

#endif
