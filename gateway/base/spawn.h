/* Starting a program whose output we read. */
#ifndef AK_BASE_SPAWN_H
#define AK_BASE_SPAWN_H

#include <limits.h>
#include <stdbool.h>
#include <sys/types.h>

/*
 * Where the programs are that we start ourselves. The caller's PATH does not count: it may name a folder of a project (an active venv, node_modules/.bin), and a
 * sandbox may have written the programs in it.
 */
#define SPAWN_SYSTEM_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

/* The path of the program NAME there; false if there is none. */
bool spawn_find(const char *name, char ret[static PATH_MAX]);

/* The caller's environment with that PATH, for such a program and what it starts. The list is owned by the caller, its strings are not; NULL: out of memory. */
char **spawn_env(void);

/* Which output of the program is read; the other goes to /dev/null. */
enum spawn_read { SPAWN_OUTPUT, SPAWN_OUTPUT_AND_ERRORS };

/*
 * Start PROGRAM, a path, in a process group of its own, with /dev/null as its input; in DIR and with ENV unless NULL. Returns a descriptor to
 * read from, or -errno.
 */
int spawn_piped(
	const char *program, char *const argv[], const char *dir, char *const env[], enum spawn_read what, pid_t *ret_pid);

#endif
