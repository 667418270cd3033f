/* The part of a plan that an image determines. Private to this folder. */
#ifndef AK_PLAN_IMAGE_H
#define AK_PLAN_IMAGE_H

#include "gateway/store/plan.h"

/* Open the image of OPTS; sets the plan's image, command and home. -ENOENT: it is not on this machine. */
int plan_image(struct run_plan *plan, const struct run_request *opts, const struct ak_paths *paths, struct ak_err *err);
const char *plan_image_workdir(const struct run_plan *plan);
void plan_image_spec(const struct run_plan *plan, struct sandbox_spec *spec);
void plan_image_done(struct run_plan *plan);

#endif
