/* Declarations shared by the parts that find tools: see project/tools.h. */
#ifndef AK_TOOLS_INTERNAL_H
#define AK_TOOLS_INTERNAL_H

#include "gateway/project/tools.h"

#define TOOLS_LINKS_MAX 24 /* links on the way to one file */
#define TOOLS_OBJECTS_MAX 256 /* programs and libraries whose libraries are looked for */

struct finder {
	const struct tools_ask *ask; /* borrowed */
	struct tools *tools; /* borrowed */
	char home[PATH_MAX]; /* resolved; "" if there is none */
	struct ak_err why; /* why the last file or folder was refused */
	struct {
		dev_t dev;
		ino_t ino;
	} seen[TOOLS_OBJECTS_MAX]; /* their libraries have been looked for */
	size_t n_seen;
};

/* A path, resolved one link at a time, because the links must exist inside as well. */
struct way {
	struct {
		char *path, *target; /* owned */
	} links[TOOLS_LINKS_MAX];
	size_t n;
	char real[PATH_MAX];
};
void way_done(struct way *w);

/* tools.c: resolve PATH, which is absolute. W, which is zero before, receives the links on the way and the resolved path. */
int tools_walk(const char *path, struct way *w);
const char *tools_laid_by_sandbox(
	const struct finder *f, const struct way *w); /* the part of the path that a sandbox may have created; NULL: none */
int tools_add_links(struct finder *f, const struct way *w, const char *why);

/*
 * Add one entry; 1 if the file or folder must not be mounted, with the reason in F. Everything that is mounted passes here.
 * A file must be a regular one: a folder that was added as a file would be mounted with its sockets.
 */
int tools_add(struct finder *f, enum tool_kind kind, const char *path, size_t len, const char *target, const char *why);
int tools_add_file(struct finder *f, const char *real, const char *why, bool library); /* or the folder that it needs around it */
int tools_refuse(struct finder *f, const char *reason); /* record why something is not mounted */
int tools_add_program(struct finder *f, const char *path, const char *why, unsigned depth); /* with all that it needs */

/* tools_shim.c: add the programs that SCRIPT, which no sandbox may have written, hands over to; INTERPRETER runs it. */
int tools_add_targets(struct finder *f, const char *script, const char *interpreter, unsigned depth);

/* tools_elf.c: what an ELF file asks the dynamic linker for. */
#define ELF_NEEDED_MAX 128
struct elf_needs {
	char interpreter[PATH_MAX]; /* "" if none */
	char path[2][PATH_MAX]; /* DT_RPATH and DT_RUNPATH, as written; "" if missing */
	char needed[ELF_NEEDED_MAX][NAME_MAX + 1];
	size_t n_needed;
};
enum { ELF_RPATH, ELF_RUNPATH };

bool elf_is_library(const char *path); /* whether the dynamic linker would take it: a regular ELF file of this machine's kind */

/* Read the file FD; false if it is no ELF file of this machine's kind, or makes no sense. */
bool elf_needs_read(int fd, struct elf_needs *ret);

/*
 * tools_libs.c: add the shared libraries that REAL, a program outside the system folders, finds outside them by the search path in it, and
 * theirs. *RET_INTERPRETER is the program's own dynamic linker; "" if it has none.
 */
int tools_add_libraries(struct finder *f, const char *real, char ret_interpreter[static PATH_MAX]);

#endif
