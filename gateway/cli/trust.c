/* `agentkernel trust`, and applying agentkernel.toml to a request of the command line. */
#include "gateway/cli/cmd.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/strbuf.h"
#include "gateway/service/service.h"
#include "gateway/store/shared.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static void print_path(const char *before, const char *path, const char *after)
{
	_cleanup_strbuf_ struct strbuf out = { 0 };

	strbuf_shown(&out, path, strlen(path));
	printf("%s%s%s\n", before, out.data ? out.data : "", after);
}

/* Print the lines on stderr; they contain only printable ASCII and the path, which ak_say escapes. */
static void say_lines(const char *text)
{
	for (; *text; text += strcspn(text, "\n"), text += *text == '\n')
		ak_say("%.*s", (int)strcspn(text, "\n"), text);
}

/* ---- settings of a request ---- */

/* Show what C asks for. Returns 0 after the user agreed, else the exit code. */
static int agree(struct config *c, const struct ak_paths *paths)
{
	_cleanup_strbuf_ struct strbuf lines = { 0 };
	struct ak_err err;

	if (service_config_tell(paths, c, &lines, &err) < 0) {
		ak_say("%s", err.text);
		return AK_EXIT_FAILED;
	}
	say_lines(lines.data ? lines.data : "");
	if (!cmd_on_terminal()) {
		ak_say("a sandbox may have written this file. Check it, then run: agentkernel trust '%s'", c->path);
		return AK_EXIT_USAGE;
	}
	if (!cmd_ask("a sandbox may have written this file. Trust it as it is now?"))
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
		int code = agree(*ret, paths);

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
		printf("%-8s %-16s ", json_text(item, "status", "-"), text);
		print_path("", json_text(item, "path", "-"), "");
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

static int trust(const struct ak_paths *paths, const char *path, bool yes)
{
	_cleanup_(config_freep) struct config *c = NULL;
	_cleanup_strbuf_ struct strbuf lines = { 0 };
	struct ak_err err;
	int rc = service_config_file(path, &c, &err);

	if (rc == 0)
		rc = service_config_tell(paths, c, &lines, &err);
	if (rc < 0)
		return fail(rc, &err);
	if (lines.len)
		cmd_print_lines(lines.data);
	else
		print_path("", c->path, " asks for nothing that needs trust");
	rc = cmd_agree("trust", yes, "trust this file as it is now?", "trusts the file as it is now");
	if (rc)
		return rc;
	rc = service_trust(paths, c, &err);
	if (rc < 0)
		return fail(rc, &err);
	print_path("trusted ", c->path, "");
	return 0;
}

static int distrust(const struct ak_paths *paths, const char *asked)
{
	char path[PATH_MAX];
	struct ak_err err;
	int rc = service_trust_revoke(paths, asked, path, &err);

	if (rc < 0)
		return fail(rc, &err);
	print_path("no longer trusted: ", path, "");
	return 0;
}

/* ---- folders that a sandbox could write ---- */

static int list_written(const struct ak_paths *paths, bool json)
{
	_cleanup_(written_done) struct written w = { 0 };
	_cleanup_strbuf_ struct strbuf out = { 0 };
	struct ak_err err;
	int rc = written_list(paths, &w, &err);

	if (rc < 0)
		return fail(rc, &err);
	strbuf_putc(&out, '[');
	for (size_t i = 0; i < w.n; i++) {
		const char *path = w.list[i].path;

		strbuf_puts(&out, i ? "," : "");
		strbuf_json_utf8(&out, path, strlen(path));
		if (!json)
			print_path("", path, "");
	}
	strbuf_putc(&out, ']');
	if (json)
		puts(out.failed ? "[]" : out.data);
	else if (!w.n)
		ak_say("no sandbox could write a folder of yours yet");
	return 0;
}

static int forget(const struct ak_paths *paths, const char *asked, bool yes)
{
	char path[PATH_MAX];
	struct ak_err err;
	int rc = shared_forget_name(paths, asked, path, &err);

	if (rc < 0)
		return fail(rc, &err);
	print_path("a sandbox could write in ", path, "");
	rc = cmd_agree("trust", yes, "do links, programs and files of variables in it count as your own again?",
		"lets links, programs and files of variables in it count as your own again");
	if (rc)
		return rc;
	rc = shared_forget(paths, path, &err);
	if (rc < 0)
		return fail(rc, &err);
	print_path("forgot ", path, "");
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
	if (a.seen[FIELD_WRITTEN])
		return list_written(&paths, a.seen[FIELD_JSON]);
	if (a.seen[FIELD_FORGET] && !n) {
		ak_say("trust: --forget needs a folder; 'agentkernel trust --written' lists those that a sandbox could write");
		return AK_EXIT_USAGE;
	}
	if (a.seen[FIELD_FORGET])
		return forget(&paths, path, a.seen[FIELD_ASSENT]);
	if (!a.seen[FIELD_REVOKE])
		return trust(&paths, path, a.seen[FIELD_ASSENT]);
	return distrust(&paths, path);
}
