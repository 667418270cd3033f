/*
 * Programs that were broken on purpose, by -DAK_SABOTAGE=… at build time and by nothing else, to show that the self-test can fail. Such
 * a program says so and runs nothing, unless whoever runs it knows what it is.
 */
#ifndef AK_SABOTAGE_H
#define AK_SABOTAGE_H

#include "gateway/base/err.h"

/* The switches this program was built with, or NULL for one that is meant to be used. */
const char *sabotage_switches(void);

/* 0, or -EPERM with the reason: before anything that would run a command or open a network. */
int sabotage_check(struct ak_err *err);

#endif
