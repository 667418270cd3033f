/*
 * Deliberately broken builds (-DAK_SABOTAGE=… at build time), which show that the self-test can fail. Such a program refuses
 * to run anything, unless the user confirms it.
 */
#ifndef AK_SABOTAGE_H
#define AK_SABOTAGE_H

#include "gateway/base/err.h"

/* The switches of a deliberately broken build, or NULL for a normal one. */
const char *sabotage_switches(void);

/* Returns 0, or -EPERM with the reason. Call it before running a command or opening a network. */
int sabotage_check(struct ak_err *err);

#endif
