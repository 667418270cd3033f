/* Options that say what a sandbox is: shared by `run` and `create`. */
#ifndef AK_CMD_OPTS_H
#define AK_CMD_OPTS_H

#include "gateway/cli/cmd.h"
#include "gateway/store/plan.h"

/* Take one option into O (VALUE borrowed); the reason names it. An unknown flag means nothing here. */
int run_request_set(struct run_request *o, const struct cmd_opt *opt, const char *value, struct ak_err *err);

#endif
