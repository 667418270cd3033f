/*
 * The project: the one folder of the host that a sandbox may write to.
 *
 * It is named once. From then on it is known by what it is and not only by its path: another sandbox, whose project encloses this one, could put a
 * link or another folder there.
 */
#ifndef AK_PROJECT_H
#define AK_PROJECT_H

#include "gateway/base/err.h"
#include "gateway/base/paths.h"

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* What a folder is, whatever its path. Numbers of devices change with a reboot or a remount, times of birth do not: where both sides have one
 * it counts instead of the device. */
struct project_id {
	dev_t dev;
	ino_t ino; /* 0: not known */
	uint64_t born_ns; /* 0: the file system does not tell */
};

#define PROJECT_ID_TEXT 80
const char *project_id_print(const struct project_id *id, char ret[static PROJECT_ID_TEXT]);
int project_id_parse(const char *text, struct project_id *ret); /* -EINVAL */

/* Is A the folder B or inside it? Both absolute and resolved. */
bool project_inside(const char *a, const char *b);

/* The folder that the user calls PATH, with all links followed, and what it is. WHAT is for the reason: "project folder". */
int project_name(const char *path, const char *what, char ret[static PATH_MAX], struct project_id *ret_id, struct ak_err *err);

/* The folder at PATH, which project_name gave, some time later: -ELOOP or -ESTALE when it is not WAS any more (whose ino may be 0). */
int project_again(const char *path, const struct project_id *was, struct project_id *ret_now, struct ak_err *err);

struct owndir;

/* How much the user has said about the folder. */
enum project_word {
	PROJECT_STOOD_IN, /* it is the current one */
	PROJECT_NAMED, /* by --dir */
	PROJECT_CONFIRMED, /* and by --allow-broad-dir */
	PROJECT_WORD_NUM
};

/* Whether PROJECT may be one, given that WORD; OWN is a look of this moment. */
int project_check(const char *project, enum project_word word, struct owndir *own, struct ak_err *err);

/* Is PATH one of the folders of HOME (without links; "": none) that hold keys and sessions, or in one of them? */
bool project_is_private(const char *path, const char *home);

/* The line that tells of sockets in PROJECT, as far as a short look finds any; "" when there are none. */
void project_sockets(const char *project, char *ret, size_t size);

#endif
