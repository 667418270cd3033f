/* What an image changes in a plan: see store/plan_image.h. Its settings mean what they mean to docker. */
#include "gateway/store/plan_image.h"

#include "gateway/base/cleanup.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static size_t count(char *const *list)
{
	size_t n = 0;

	while (list && list[n])
		n++;
	return n;
}

/* The entry point, then the command of the request or else of the image. A persistent sandbox runs what `exec` brings. */
static int plan_command(struct run_plan *plan, const struct run_request *opts, struct ak_err *err)
{
	const struct image *img = plan->image;
	char *const *rest = count(opts->argv) ? opts->argv : img->cmd;
	size_t n = count(img->entrypoint), more = count(rest);

	if (opts->fixed_env || !opts->argv)
		return 0;
	if (n + more == 0)
		return ak_fail(err, EINVAL, "image '%s' has no command of its own; give one", opts->image);
	plan->argv = calloc(n + more + 1, sizeof(*plan->argv));
	if (!plan->argv)
		return ak_fail(err, ENOMEM, "out of memory");
	for (size_t i = 0; i < n; i++)
		plan->argv[i] = img->entrypoint[i];
	for (size_t i = 0; i < more; i++)
		plan->argv[n + i] = rest[i];
	return 0;
}

/* The image's own HOME, or the home of its user. */
static void plan_home(struct run_plan *plan)
{
	const char *home = plan->image->home;

	for (char *const *e = plan->image->env; e && *e; e++) {
		if (!strncmp(*e, "HOME=/", 6))
			home = *e + 5;
	}
	snprintf(plan->home, sizeof(plan->home), "%s", home);
}

int plan_image(struct run_plan *plan, const struct run_request *opts, const struct ak_paths *paths, struct ak_err *err)
{
	struct image *img = calloc(1, sizeof(*img));
	int rc = img ? 0 : ak_fail(err, ENOMEM, "out of memory");

	if (rc == 0)
		rc = opts->image_id && opts->image_id[0] ? image_open(paths, opts->image_id, img, err)
							 : image_find(paths, opts->image, img, err);
	if (rc < 0) {
		free(img);
		return rc;
	}
	plan->image = img;
	plan_home(plan);
	rc = plan_command(plan, opts, err);
	if (rc < 0)
		plan_image_done(plan);
	return rc;
}

const char *plan_image_workdir(const struct run_plan *plan)
{
	return plan->image->workdir ? plan->image->workdir : "/";
}

/* Strict isolation has no root inside: an image for root then runs as the user that every strict sandbox has. */
void plan_image_spec(const struct run_plan *plan, struct sandbox_spec *spec)
{
	const struct image *img = plan->image;
	const bool strict_root = plan->isolation == SANDBOX_STRICT && img->uid == 0;

	spec->image_root = img->root;
	spec->has_ids = !strict_root;
	spec->root_inside = img->uid == 0 && !strict_root;
	spec->uid = img->uid;
	spec->gid = img->gid;
	if (strict_root)
		spec->uid = spec->gid = 0;
}

void plan_image_done(struct run_plan *plan)
{
	free(TAKE(plan->argv));
	if (plan->image)
		image_done(plan->image);
	free(TAKE(plan->image));
}
