/* Shared by the files of gateway/service. */
#ifndef AK_SERVICE_INTERNAL_H
#define AK_SERVICE_INTERNAL_H

#include "gateway/run/front.h"
#include "gateway/service/service.h"
#include "gateway/store/state.h"

/*
 * Fill S, whose name is set, with what `create` fixes; checks the folder, the variables and the rules, and writes nothing. RAN is the plan of a run
 * that has ended and is kept, or NULL.
 */
int service_fill_state(const struct ak_paths *paths, const struct run_request *opts, const struct run_plan *ran,
	struct state_sandbox *s, struct ak_err *err);

/* service/keep.c: before a run whose name the user chose: -EEXIST if a sandbox or a live run has that name. A past run gives its name up. */
int service_claim_name(const struct ak_paths *paths, const char *name, struct ak_err *err);

/* Turn the kept run that PLAN and REPORT describe into a stopped sandbox. */
int service_keep(const struct ak_paths *paths, const struct run_request *opts, const struct run_plan *plan,
	const struct run_report *report, struct ak_err *err);

/* service/settle.c: if the planned run is the first of an agent with its memory, make the memory ready. Best effort; waits for another run that does it. */
void service_settle(struct run_front *f);

/* service/image.c: the path of skopeo, or -ENOPKG; unpack and name the image in WORK/layout. */
int service_image_tools(char ret[static PATH_MAX], struct ak_err *err);
int service_image_finish(
	const struct ak_paths *paths, const struct image_work *w, const char *name, uint64_t max_bytes, struct ak_err *err);

/* service/image_podman.c: with --backend podman, copy the image of O to our store if only podman has it. Not for a call of the MCP server. */
int service_image_from_podman(const struct ak_paths *paths, const struct run_request *o, struct ak_err *err);

/*
 * service/detect.c: the command of O is not on this host. The local image that fits, or NULL; RET_HINT is a line for the user, "" if nothing is missing
 * or nothing fits.
 */
const char *service_missing(
	const struct run_request *o, const struct run_plan *plan, const struct ak_paths *paths, char ret_hint[static AK_ERR_MAX]);

/* Append the line of --explain that says which image is used, and how it was chosen. */
void service_explain_image(const struct run_request *o, const struct config *c, const struct run_plan *plan,
	const struct ak_paths *paths, struct strbuf *out);

#endif
