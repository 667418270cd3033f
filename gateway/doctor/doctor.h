/*
 * `doctor`: what works on this host, found out by trying it, with the reason and the fix for what does not; and `setup`, which
 * applies the fixes that a program can apply.
 */
#ifndef AK_DOCTOR_H
#define AK_DOCTOR_H

#include "gateway/base/err.h"
#include "gateway/base/paths.h"

#include <stdbool.h>
#include <stddef.h>

enum doctor_level {
	DOCTOR_OK,
	DOCTOR_WARN, /* `run` works, but something optional does not */
	DOCTOR_FAIL, /* `run` does not work */
	DOCTOR_LEVEL_NUM
};

struct doctor_row {
	const char *id; /* static: "kernel" */
	enum doctor_level level;
	char found[320]; /* what was found, one line */
	char fix[480]; /* what to do about it; "" if nothing */
};

#define DOCTOR_ROWS_MAX 24

struct doctor_report {
	struct doctor_row rows[DOCTOR_ROWS_MAX];
	size_t n;
	bool works; /* no row is DOCTOR_FAIL */
};

struct doctor_how {
	bool offline; /* send nothing to the network */
};

/* Try everything. Takes seconds at most; leaves nothing behind. */
void doctor_run(const struct ak_paths *paths, const struct doctor_how *how, struct doctor_report *ret);

/* ---- setup ---- */

struct setup_how {
	bool dry_run; /* only say what would be done */
	bool vm; /* also save a guest for --backend vm */
	bool yes; /* also do what changes the system: install packages, write to /etc */
	void (*say)(const char *line); /* progress, one line each, without a newline */
};

/* Apply what can be applied. *RET_LEFT counts the steps that are left for the user. -errno if a step failed. */
int setup_run(const struct ak_paths *paths, const struct setup_how *how, unsigned *ret_left, struct ak_err *err);

#endif
