/* `agentkernel image …`: pull, import, list, remove, prune. */
#include "gateway/cli/cmd.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/log/audit.h"
#include "gateway/service/service.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define NAMES_MAX 256

static int fail(const char *command, int rc, const struct ak_err *err)
{
	ak_say("%s: %s", command, err->text);
	return rc == -EINVAL ? AK_EXIT_USAGE : AK_EXIT_ERROR;
}

/* ---- pull and import ---- */

typedef int bring_fn(const struct ak_paths *paths, const char *what, const struct service_image *how,
	char ret[static IMAGE_NAME_MAX], struct ak_err *err);

static int bring(const char *command, bring_fn *fn, int argc, char **argv)
{
	struct run_request rules = { .mode = AK_MODE_NATIVE };
	struct service_image how = { .edits = rules.edits };
	const char *value, *what = NULL;
	char name[IMAGE_NAME_MAX];
	struct cmd_args a;
	struct ak_paths paths;
	struct ak_err err;
	int i, rc = 0;

	cmd_args_init(&a, cmd_row(command), argc, argv);
	while ((i = cmd_next(&a, &value)) != CMD_END && rc == 0) {
		if (i == CMD_BAD || i == CMD_HELP)
			return i == CMD_BAD ? AK_EXIT_USAGE : 0;
		if (i == CMD_ARG && what)
			rc = ak_fail(&err, EINVAL, "unexpected '%.100s'; it takes one image", value);
		else if (i == CMD_ARG)
			what = value;
		else
			rc = field_set(&rules, &field_table[i], FIELD_CLI, &a.given[i], &err);
	}
	if (rc == 0 && !what)
		rc = ak_fail(&err, EINVAL, "no image given; for example: agentkernel %s %s", command,
			fn == service_image_pull ? "alpine:3.20" : "./layout:latest");
	how.name = a.seen[FIELD_IMAGE_NAME] ? a.given[FIELD_IMAGE_NAME].text : NULL;
	how.ca_file = a.seen[FIELD_CA_FILE] ? a.given[FIELD_CA_FILE].text : NULL;
	how.auth_file = a.seen[FIELD_AUTH_FILE] ? a.given[FIELD_AUTH_FILE].text : NULL;
	how.max_bytes = a.seen[FIELD_MAX_SIZE] ? a.given[FIELD_MAX_SIZE].number : 0;
	how.n_edits = rules.n_edits;
	if (rc == 0)
		rc = ak_paths_init(&paths, &err);
	if (rc == 0)
		rc = fn(&paths, what, &how, name, &err);
	if (rc < 0)
		return fail(command, rc, &err);
	puts(name);
	return 0;
}

int cmd_image_pull(int argc, char **argv)
{
	return bring("image pull", service_image_pull, argc, argv);
}

int cmd_image_import(int argc, char **argv)
{
	return bring("image import", service_image_import, argc, argv);
}

/* ---- list ---- */

struct list {
	const struct ak_paths *paths;
	cJSON *rows;
	size_t n; /* printed */
};

static int print_row(void *ctx, const struct image_row *row)
{
	struct list *list = ctx;
	char when[AUDIT_TIME_MAX];

	if (list->n++ == 0)
		printf("%-44s  %-12s  %11s  %s\n", "NAME", "ID", "SIZE", "CREATED");
	printf("%-44s  %.12s  %8.1f MB  %.16s\n", row->name, row->id, (double)row->size_bytes / 1e6,
		row->created_us ? audit_time_print(row->created_us, when) : "damaged");
	return 0;
}

/* The labels that the image's author gave it; none if it is damaged. */
static bool add_labels(const struct ak_paths *paths, const char *id, cJSON *obj)
{
	struct image img;
	struct ak_err ignored;
	bool ok = true;

	if (image_open(paths, id, &img, &ignored) < 0)
		return true;
	if (img.labels)
		ok = cJSON_AddItemToObject(obj, "labels", TAKE(img.labels));
	image_done(&img);
	return ok;
}

static int add_row(void *ctx, const struct image_row *row)
{
	const struct list *list = ctx;
	cJSON *obj = cJSON_CreateObject();
	char when[AUDIT_TIME_MAX];

	if (!obj || !cJSON_AddItemToArray(list->rows, obj) || !add_labels(list->paths, row->id, obj))
		return -ENOMEM;
	return cJSON_AddStringToObject(obj, "name", row->name) && cJSON_AddStringToObject(obj, "id", row->id) &&
			cJSON_AddNumberToObject(obj, "size_bytes", (double)row->size_bytes) &&
			cJSON_AddStringToObject(obj, "created_at", audit_time_print(row->created_us, when))
		? 0
		: -ENOMEM;
}

int cmd_image_list(int argc, char **argv)
{
	_cleanup_json_ cJSON *rows = cJSON_CreateArray();
	struct cmd_args a;
	struct ak_paths paths;
	struct list list = { &paths, rows, 0 };
	struct ak_err err;
	int rc = cmd_read(&a, "image list", argc, argv, NULL, 0, NULL);

	if (rc)
		return rc - 1;
	rc = ak_paths_init(&paths, &err);
	if (rc == 0)
		rc = image_each(&paths, a.seen[FIELD_JSON] ? add_row : print_row, &list, &err);
	if (rc < 0)
		return fail("image list", rc, &err);
	if (a.seen[FIELD_JSON])
		return cmd_print_json(rows);
	if (list.n == 0)
		ak_say("no images; for example: agentkernel image pull alpine:3.20");
	return 0;
}

/* ---- remove and prune ---- */

int cmd_image_remove(int argc, char **argv)
{
	const char *names[NAMES_MAX];
	struct cmd_args a;
	struct ak_paths paths;
	struct ak_err err;
	size_t n = 0;
	int rc = cmd_read(&a, "image remove", argc, argv, names, NAMES_MAX, &n), code = 0;

	if (rc)
		return rc - 1;
	if (n == 0) {
		ak_say("image remove: no image given; see 'agentkernel image list'");
		return AK_EXIT_USAGE;
	}
	rc = ak_paths_init(&paths, &err);
	if (rc < 0)
		return fail("image remove", rc, &err);
	for (size_t i = 0; i < n; i++) {
		rc = service_image_remove(&paths, names[i], &err);
		if (rc < 0)
			code = fail("image remove", rc, &err);
		else
			puts(names[i]);
	}
	return code;
}

static void print_gone(void *ctx, const struct image_row *row)
{
	(void)ctx;
	puts(row->name);
}

int cmd_image_prune(int argc, char **argv)
{
	struct cmd_args a;
	struct ak_paths paths;
	struct ak_err err;
	int rc = cmd_read(&a, "image prune", argc, argv, NULL, 0, NULL);

	if (rc)
		return rc - 1;
	rc = ak_paths_init(&paths, &err);
	if (rc == 0)
		rc = service_image_prune(&paths, print_gone, NULL, &err);
	return rc < 0 ? fail("image prune", rc, &err) : 0;
}
