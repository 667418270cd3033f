/*
 * Which image fits a run: by its options, the command, the settings and the files of the project. A pure function of what it is given; whether the
 * image is used, and whether it is there, is decided elsewhere.
 */
#ifndef AK_DETECT_H
#define AK_DETECT_H

#include <stdbool.h>
#include <stddef.h>

#define DETECT_DEFAULT "alpine:3.20"
#define DETECT_WHY_MAX 256

/* In the order in which they count. */
enum detect_clue {
	DETECT_OPTION, /* --image */
	DETECT_CONFIG, /* base_image of the file that --config names */
	DETECT_COMMAND,
	DETECT_SETTINGS, /* base_image of the project's agentkernel.toml */
	DETECT_FILE,
	DETECT_PROCFILE,
	DETECT_NOTHING, /* DETECT_DEFAULT */
	DETECT_CLUE_NUM
};

/* Everything is borrowed; NULL: there is none. */
struct detect_ask {
	const char *option, *config, *command, *settings;
	const char *const *names; /* what the project folder holds */
	size_t n_names;
	const char *procfile; /* its text */
};

struct detect_answer {
	const char *image; /* borrowed from the request or static */
	const char *language; /* "Python"; NULL: unknown */
	enum detect_clue clue;
	char why[DETECT_WHY_MAX]; /* "the project has package.json" */
};
void detect_image(const struct detect_ask *ask, struct detect_answer *ret);

#endif
