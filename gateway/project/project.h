/*
 * The project: the one folder of the host that a sandbox may write.
 *
 * The user names it once. Afterwards it is identified by its inode and not only by its path: another sandbox, whose project
 * encloses this one, could put a link or another folder there.
 */
#ifndef AK_PROJECT_H
#define AK_PROJECT_H

#include "gateway/base/err.h"
#include "gateway/base/paths.h"

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/*
 * The identity of a folder, independent of its path. Device numbers change with a reboot or a remount, birth times do not: if
 * both sides have a birth time, it is compared instead of the device.
 */
struct project_id {
	dev_t dev;
	ino_t ino; /* 0: unknown */
	uint64_t born_ns; /* 0: the file system does not provide it */
};

#define PROJECT_ID_TEXT 80
const char *project_id_print(const struct project_id *id, char ret[static PROJECT_ID_TEXT]);
int project_id_parse(const char *text, struct project_id *ret); /* -EINVAL */
bool project_id_same(const struct project_id *a, const struct project_id *b);
int project_id_of(const char *path, struct project_id *ret); /* of a file or folder; PATH is resolved */

/* Whether A is the folder B or inside it. Both are absolute and resolved. */
bool project_inside(const char *a, const char *b);

/* Resolve the folder PATH that the user named and return its identity. WHAT names it in errors: "project folder". */
int project_name(const char *path, const char *what, char ret[static PATH_MAX], struct project_id *ret_id, struct ak_err *err);

/* The same for a file or a folder that is open as FD; *RET_MODE says which. */
int project_name_open(
	int fd, const char *what, char ret[static PATH_MAX], struct project_id *ret_id, mode_t *ret_mode, struct ak_err *err);

/* Check PATH, a result of project_name, again later: -ELOOP or -ESTALE if it is no longer WAS (whose ino may be 0). */
int project_again(const char *path, const struct project_id *was, struct project_id *ret_now, struct ak_err *err);
int project_again_any(const char *path, const char *what, const struct project_id *was, struct project_id *ret_now,
	mode_t *ret_mode, struct ak_err *err);

struct owndir;

/* How explicitly the user chose the folder. */
enum project_word {
	PROJECT_STOOD_IN, /* it is the current folder */
	PROJECT_NAMED, /* named by --dir */
	PROJECT_CONFIRMED, /* also confirmed by --allow-broad-dir */
	PROJECT_WORD_NUM
};

/* Whether PATH is a folder in which programs of the whole machine, or all programs of a user, keep files and sockets. */
bool project_is_broad(const char *path, const char *home);

/* Whether PATH is, or lies in, a folder of the system itself, whatever its user confirms. */
bool project_is_system(const char *path);

/* The caller's home, resolved; "" if there is none. */
void project_home(char ret[static PATH_MAX]);

/* Whether PROJECT may be a project, given how the user chose it. OWN must be current. */
int project_check(const char *project, enum project_word word, struct owndir *own, struct ak_err *err);

/* Folders of a home that hold keys or sessions; ends with NULL. */
extern const char *const project_private_names[];

/* Whether PATH is, or lies in, a folder of HOME that holds keys or sessions. HOME is resolved; "": none. */
bool project_is_private(const char *path, const char *home);

/* Describe the sockets in PROJECT, which WHAT names, that a short search finds, in one line; "" if none. */
void project_sockets(const char *project, const char *what, char *ret, size_t size);

#endif
