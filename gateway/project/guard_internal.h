/* Declarations shared by the parts of the guard: see project/guard.h. */
#ifndef AK_GUARD_INTERNAL_H
#define AK_GUARD_INTERNAL_H

#include "gateway/project/guard.h"

#include <stdint.h>
#include <sys/stat.h>

/*
 * A folder that is mounted writable: the project, and perhaps a git folder outside it. Everything else is named by its root
 * and a path below that.
 */
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

/* A git folder, which contains hooks and config. */
struct guard_place {
	size_t root;
	char *rel; /* owned; "" is the root itself */
	bool nested; /* also covers the git folders of submodules and worktrees in it */
};
#define GUARD_PLACES_MAX 4
#define GUARD_FAR_MAX 16 /* mounts that pin folders on the way to what links and .git files of the project lead to */
#define GUARD_INCLUDED_MAX 32
#define GUARD_FOLDERS_MAX 4 /* room for hooks folders after that many files */

/* The state of one file at the time of a check. */
struct guard_row {
	size_t root;
	char *rel; /* owned; a trailing slash means that not everything below it was checked */
	size_t watch; /* length of the part of REL that is the watched name */
	dev_t dev;
	ino_t ino;
	mode_t mode;
	nlink_t nlink;
	int64_t size, ctime_ns;
};

struct guard_look {
	struct guard_row *rows; /* owned */
	size_t n, cap;
	bool failed; /* out of memory */
};

/* The names in the project's top folder, cached for one check. */
#define GUARD_TOP_BITS 4096
#define GUARD_MATCHES_MAX 64
struct guard_top {
	bool known;
	uint64_t bits[GUARD_TOP_BITS / 64]; /* indexed by hash */
	char *matches[GUARD_MATCHES_MAX]; /* owned; names that end with one of guard_suffixes */
	size_t n_matches;
	bool cut; /* there may be more */
};

struct guard {
	struct guard_root roots[GUARD_ROOTS];
	size_t n_roots;
	bool protect;
	guard_claimed *claimed;
	struct guard_mount mounts[GUARD_MOUNTS_MAX];
	size_t n_mounts;
	size_t n_far; /* of GUARD_FAR_MAX, used */
	bool too_far; /* more were needed, and that was told */
	struct guard_place places[GUARD_PLACES_MAX];
	size_t n_places;
	struct guard_top top;
	struct {
		size_t root;
		char *rel; /* owned */
		bool link; /* on the way to such a file: what else it leads to is not checked */
	} included[GUARD_INCLUDED_MAX +
		GUARD_FOLDERS_MAX]; /* files that git's configuration includes or runs, and hooks folders */
	size_t n_included;
	bool too_many; /* there are more, and that was told */
	size_t n_followed; /* included files that were read, in the project or not */
	bool has_nested; /* a place contains further git folders */
	struct guard_look before;
	char note[768]; /* lines for the user */
};

/*
 * project/guard.c: open REL with O_PATH without following links; a link at its end is opened itself. Returns -errno on
 * failure.
 */
int guard_open(const struct guard *g, size_t root, const char *rel, struct stat *ret);
/* Open REL below FD; links that stay below FD are followed. */
int guard_open_beneath(int fd, const char *rel);
char *guard_join(const char *dir, const char *name); /* NULL: out of memory */
/* The target of a link in or at the end of REL, as a path below its root without links; NULL if it is missing or outside. */
char *guard_behind_link(const struct guard *g, size_t root, const char *rel);
/*
 * The nearest folder above REL that can be opened ("": the root) and its stat, which is untouched if not even the root can be
 * opened. NULL: out of memory.
 */
char *guard_seen_above(const struct guard *g, size_t root, const char *rel, struct stat *ret);
/*
 * Mount REL on itself, so that it cannot be moved. A read-only mount removes all mounts below it; below a read-only mount
 * nothing needs a pin.
 */
int guard_pin(struct guard *g, size_t root, const char *rel, bool readonly);
/* Mount REL writable although a folder above it is read-only. -E2BIG: the rest of the mounts is reserved. */
int guard_except(struct guard *g, size_t root, const char *rel);
/* Change the mount of REL; read-only removes all mounts below it. -ENOENT if it has none. */
int guard_reset(struct guard *g, size_t root, const char *rel, bool readonly);
bool guard_closed(const struct guard *g, size_t root, const char *rel); /* read-only, itself or by a mount above it */
bool guard_holds(const struct guard *g, size_t root, const char *rel); /* whether there is a mount at or below it */
/*
 * Files of the project lead to REL. A sandbox may have made them, and the folders on the way: if pinning those would take too many mounts, make the top one
 * read-only instead, with everything in it.
 */
int guard_reach(struct guard *g, size_t root, const char *rel);
/* Make REL read-only if it exists. If that cannot be determined, make the folder that hides it read-only. */
int guard_protect(struct guard *g, size_t root, const char *rel);

void guard_say(struct guard *g, const char *fmt, ...) __attribute__((format(printf, 2, 3))); /* add a line to the note */
int guard_failed(const struct guard *g, int rc, struct ak_err *err);

extern const char *const guard_names[]; /* protected names in a project; ends with NULL */
extern const char *const guard_more_names[]; /* the same, as long as there are mounts left; ends with NULL */
extern const char *const guard_suffixes[]; /* protected, too: names that end with one of these; ends with NULL */
extern const char *const guard_watched[]; /* names in a project whose changes are only reported; ends with NULL */
extern const char *const guard_git_names[]; /* protected names in a git folder */
extern const char *const guard_git_watched[]; /* watched names in a git folder, which git must be able to write */

extern const char *const guard_git_inner[]; /* folders of a git folder that contain further git folders */

/* project/guard_git.c: find the project's git folders and protect the files in them. */
int guard_git(struct guard *g, const struct ak_paths *paths, struct ak_err *err);
/* Whether git takes the project's own folder for a git folder, as it does if there is no valid .git in it. */
bool guard_git_is_top(const struct guard *g);
/* The .git file of the submodule or worktree whose git folder is REL, as a path below the project; NULL if missing. */
char *guard_module_file(const struct guard *g, size_t root, const char *rel);

/* project/guard_config.c */
/* Resolve PATH, which stands in a file of the folder BASE. */
bool guard_resolve(const char *base, const char *path, char ret[static PATH_MAX]);
/*
 * Protect the files that git's configuration includes or runs, its hooks folders, and the .git files of submodules and worktrees, as far as mounts are left;
 * changes are reported.
 */
int guard_protect_named(struct guard *g);

/* project/guard_nested.c: entries found in modules and worktrees. */
enum guard_kind {
	GUARD_INNER, /* modules or worktrees itself, before its entries */
	GUARD_GIT, /* a git folder */
	GUARD_LIKE, /* has some parts of a git folder */
	GUARD_LINK,
};
struct guard_walk {
	const struct guard *g; /* borrowed */
	size_t root;
	int (*fn)(void *ctx, size_t root, const char *rel, enum guard_kind kind);
	void *ctx;
	size_t found, entries, links; /* so far */
};
/*
 * Visit all entries of INNER (one of guard_git_inner) in the git folder REL. If not all could be visited: -E2BIG, or -EACCES
 * and other errors of open.
 */
int guard_nested(struct guard_walk *w, const char *rel, const char *inner);
int guard_protect_nested(struct guard *g, size_t root, const char *rel);
int guard_protect_folder(struct guard *g, size_t root, const char *rel); /* the protected names in one git folder */

/* project/guard_top.c: list the top folder; until guard_top_forget, names that it does not contain are not looked up. */
void guard_top_look(struct guard *g);
void guard_top_forget(struct guard *g);
bool guard_has_suffix(const char *name); /* one of guard_suffixes */
bool guard_top_lacks(const struct guard *g, const char *rel); /* REL, or its first component */

/* project/guard_look.c */
void guard_look(const struct guard *g, struct guard_look *ret);
void guard_look_done(struct guard_look *l);

#endif
