/* `agentkernel trust`, and applying agentkernel.toml to a request of the command line. */
#include "gateway/cli/cmd.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/strbuf.h"
#include "gateway/service/service.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Print the lines on stderr; they contain only printable ASCII and the path, which ak_say escapes. */
static void say_lines(const char *text)
{
	for (; *text; text += strcspn(text, "\n"), text += *text == '\n')
		ak_say("%.*s", (int)strcspn(text, "\n"), text);
}

/* Ask on the terminal; anything but "y" or "yes" means no. */
static bool ask(const char *question)
{
	char answer[16] = "";

	fflush(stdout);
	fprintf(stderr, "agentkernel: %s [y/N] ", question);
	fflush(stderr);
	if (!fgets(answer, sizeof(answer), stdin))
		return false;
	answer[strcspn(answer, "\r\n")] = '\0';
	return !strcmp(answer, "y") || !strcmp(answer, "yes") || !strcmp(answer, "Y");
}

static bool on_terminal(void)
{
	return isatty(STDIN_FILENO) && isatty(STDERR_FILENO);
}

/* ---- settings of a request ---- */

/* Show what C asks for. Returns 0 after the user agreed, else the exit code. */
static int agree(const struct config *c, const struct run_request *o, const struct ak_paths *paths)
{
	_cleanup_strbuf_ struct strbuf lines = { 0 };
	struct ak_err err;

	if (service_config_tell(paths, c, o, &lines, &err) < 0) {
		ak_say("%s", err.text);
		return AK_EXIT_FAILED;
	}
	say_lines(lines.data ? lines.data : "");
	if (!on_terminal()) {
		ak_say("a sandbox may have written this file. Check it, then run: agentkernel trust '%s'", c->path);
		return AK_EXIT_USAGE;
	}
	if (!ask("a sandbox may have written this file. Trust it as it is now?"))
		return AK_EXIT_USAGE;
	if (service_trust(paths, c, &err) < 0) {
		ak_say("%s", err.text);
		return AK_EXIT_FAILED;
	}
	return 0;
}

int cmd_settings(const char *command, struct run_request *o, const struct ak_paths *paths, struct config **ret)
{
	struct ak_err err;
	int rc;

	/* After the user agreed the file is read again: what changed meanwhile is asked about again. */
	while ((rc = service_config(o, o->dir ? o->dir : ".", paths, ret, &err)) == -EKEYREJECTED) {
		int code = agree(*ret, o, paths);

		config_free(TAKE(*ret));
		if (code)
			return code;
	}
	if (rc == 0)
		return 0;
	ak_say("%s: %s", command, err.text);
	return rc == -EINVAL ? AK_EXIT_USAGE : AK_EXIT_FAILED;
}

/* ---- the command ---- */

static int fail(int rc, const struct ak_err *err)
{
	ak_say("trust: %s", err->text);
	return rc == -EINVAL ? AK_EXIT_USAGE : AK_EXIT_ERROR;
}

static void print_table(const cJSON *list)
{
	const cJSON *item;

	printf("%-8s %-16s %s\n", "STATUS", "SINCE", "FILE");
	cJSON_ArrayForEach(item, list) {
		time_t when = (time_t)json_number(item, "time", 0);
		char text[32] = "-";
		struct tm tm;

		if (localtime_r(&when, &tm))
			strftime(text, sizeof(text), "%Y-%m-%d %H:%M", &tm);
		printf("%-8s %-16s %s\n", json_text(item, "status", "-"), text, json_text(item, "path", "-"));
	}
}

static int list(const struct ak_paths *paths, bool json)
{
	_cleanup_json_ cJSON *all = NULL;
	struct ak_err err;
	int rc = service_trust_list(paths, &all, &err);

	if (rc < 0)
		return fail(rc, &err);
	if (json)
		return cmd_print_json(all);
	if (cJSON_GetArraySize(all) == 0)
		ak_say("no file is trusted; 'agentkernel trust' in a project trusts its agentkernel.toml");
	else
		print_table(all);
	return 0;
}

/* What the file asks for is shown against a run without any option. */
static int trust(const struct ak_paths *paths, const char *path, bool yes)
{
	const struct run_request plain = { .mode = AK_MODE_NATIVE, .profile = AK_PROFILE_MODERATE };
	_cleanup_(config_freep) struct config *c = NULL;
	_cleanup_strbuf_ struct strbuf lines = { 0 };
	struct ak_err err;
	int rc = service_config_file(path, &c, &err);

	if (rc == 0)
		rc = service_config_tell(paths, c, &plain, &lines, &err);
	if (rc < 0)
		return fail(rc, &err);
	if (lines.len)
		fputs(lines.data, stdout);
	else
		printf("%s asks for nothing that needs trust\n", c->path);
	if (!yes && !on_terminal()) {
		ak_say("trust: there is no terminal to ask on; --yes trusts the file as it is now");
		return AK_EXIT_USAGE;
	}
	if (!yes && !ask("trust this file as it is now?"))
		return AK_EXIT_ERROR;
	rc = service_trust(paths, c, &err);
	if (rc < 0)
		return fail(rc, &err);
	printf("trusted %s\n", c->path);
	return 0;
}

int cmd_trust(int argc, char **argv)
{
	const char *path = ".";
	struct ak_paths paths;
	struct cmd_args a;
	struct ak_err err;
	size_t n = 0;
	int rc = cmd_read(&a, "trust", argc, argv, &path, 1, &n);

	if (rc)
		return rc - 1;
	if (ak_paths_init(&paths, &err) < 0)
		return fail(-EIO, &err);
	if (a.seen[FIELD_TRUST_LIST])
		return list(&paths, a.seen[FIELD_JSON]);
	if (!a.seen[FIELD_REVOKE])
		return trust(&paths, path, a.seen[FIELD_TRUST_YES]);
	rc = service_trust_revoke(&paths, path, &err);
	return rc < 0 ? fail(rc, &err) : 0;
}
