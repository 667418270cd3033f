/* `agentkernel doctor` and `agentkernel setup`: print what was found or done. */
#include "gateway/cli/cmd.h"
#include "gateway/doctor/doctor.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/strbuf.h"
#include "gateway/base/table.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#define FOUND_AT 18 /* the column where findings begin */

static const char *const level_words[] = { [DOCTOR_OK] = "ok", [DOCTOR_WARN] = "warn", [DOCTOR_FAIL] = "fail" };
static_assert(ARRAY_SIZE(level_words) == DOCTOR_LEVEL_NUM, "a word for each level");

static void print_text(const struct doctor_report *r)
{
	static const enum ak_style styles[] = { [DOCTOR_OK] = AK_GOOD, [DOCTOR_WARN] = AK_BOLD, [DOCTOR_FAIL] = AK_BAD };
	struct ak_look look = ak_look_at(stdout);

	for (size_t i = 0; i < r->n; i++) {
		const struct doctor_row *row = &r->rows[i];

		printf("%s%-5s%s %-11s ", ak_style_on(&look, styles[row->level]), level_words[row->level],
			ak_style_off(&look, styles[row->level]), row->id);
		ak_wrap(stdout, row->found, FOUND_AT, FOUND_AT, look.width);
		if (row->fix[0]) {
			printf("\n%*sfix: ", FOUND_AT, "");
			ak_wrap(stdout, row->fix, FOUND_AT + 5, FOUND_AT + 5, look.width);
		}
		putchar('\n');
	}
	printf("\n%s\n", r->works ? "agentkernel run works on this host." : "agentkernel run does not work on this host yet.");
}

static int print_json(const struct doctor_report *r)
{
	_cleanup_json_ cJSON *obj = cJSON_CreateObject();
	cJSON *rows = obj ? cJSON_AddArrayToObject(obj, "checks") : NULL;
	bool ok = rows && cJSON_AddBoolToObject(obj, "ok", r->works);

	for (size_t i = 0; ok && i < r->n; i++) {
		cJSON *row = cJSON_CreateObject();

		ok = row && cJSON_AddItemToArray(rows, row) && cJSON_AddStringToObject(row, "id", r->rows[i].id) &&
			cJSON_AddStringToObject(row, "status", level_words[r->rows[i].level]) &&
			cJSON_AddStringToObject(row, "found", r->rows[i].found) &&
			(r->rows[i].fix[0] ? cJSON_AddStringToObject(row, "fix", r->rows[i].fix)
					   : cJSON_AddNullToObject(row, "fix"));
	}
	if (!ok) {
		ak_say("doctor: out of memory");
		return AK_EXIT_ERROR;
	}
	return cmd_print_json(obj);
}

int cmd_doctor(int argc, char **argv)
{
	static struct doctor_report report; /* large */
	struct doctor_how how = { 0 };
	struct ak_paths paths;
	struct cmd_args a;
	struct ak_err err;
	int rc = cmd_read(&a, "doctor", argc, argv, NULL, 0, NULL);

	if (rc)
		return rc - 1;
	if (ak_paths_init(&paths, &err) < 0) {
		ak_say("doctor: %s", err.text);
		return AK_EXIT_ERROR;
	}
	how.offline = a.seen[FIELD_OFFLINE];
	doctor_run(&paths, &how, &report);
	if (a.seen[FIELD_JSON])
		rc = print_json(&report);
	else
		print_text(&report);
	return rc ? rc : report.works ? 0 : AK_EXIT_ERROR;
}

static void print_line(const char *line)
{
	printf("%s\n", line);
	fflush(stdout);
}

int cmd_setup(int argc, char **argv)
{
	struct setup_how how = { .say = print_line };
	struct ak_paths paths;
	struct cmd_args a;
	struct ak_err err;
	unsigned left = 0;
	int rc = cmd_read(&a, "setup", argc, argv, NULL, 0, NULL);

	if (rc)
		return rc - 1;
	how.dry_run = a.seen[FIELD_DRY_RUN];
	how.yes = a.seen[FIELD_YES];
	how.vm = a.seen[FIELD_VM];
	rc = ak_paths_init(&paths, &err);
	if (rc == 0)
		rc = setup_run(&paths, &how, &left, &err);
	if (rc < 0) {
		ak_say("setup: %s", err.text);
		return AK_EXIT_ERROR;
	}
	if (left && !how.dry_run)
		ak_say("setup: %u step%s left to you, see above%s", left, left == 1 ? " is" : "s are",
			how.yes ? "" : "; as root, --yes applies them");
	return 0;
}
