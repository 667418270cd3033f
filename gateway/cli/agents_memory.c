/* `agentkernel agents import` and `agents reset`: list what is copied or removed, ask, and do it. */
#include "gateway/cli/cmd.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/strbuf.h"
#include "gateway/log/netlog.h"
#include "gateway/service/service.h"
#include "gateway/store/agent.h"

#include <errno.h>
#include <string.h>

#define LINES_MAX 12 /* entries that are listed of each folder */
#define NAME_SHOWN 60

/* ---- the list ---- */

/* A file, or a folder with the sum of what is in it. */
struct entry {
	char name[NAME_SHOWN + 8]; /* with "/" for a folder */
	uint64_t files, bytes;
};

struct listing {
	struct strbuf out; /* owned */
	bool open; /* a file or folder of the home was named, and its sum is not known yet */
	char title[PATH_MAX + 64];
	struct entry list[LINES_MAX + 1]; /* the last: all others */
	size_t n;
	char last[NAME_MAX + 1]; /* the name of the newest entry in full */
	struct entry sum; /* of the folder */
};

static void put_line(struct listing *l, const char *indent, const char *name, size_t width, const struct entry *e)
{
	char size[16];
	size_t from;

	strbuf_puts(&l->out, indent);
	from = l->out.len;
	strbuf_shown(&l->out, name, strlen(name));
	do
		strbuf_putc(&l->out, ' ');
	while (!l->out.failed && l->out.len - from < width);
	if (e->files != 1)
		strbuf_printf(&l->out, "%llu files, ", (unsigned long long)e->files);
	strbuf_printf(&l->out, "%s%s\n", netlog_bytes(e->bytes, size, sizeof(size)),
		e->bytes >= 1000	? ""
			: e->bytes == 1 ? " byte"
					: " bytes");
}

static void close_folder(struct listing *l)
{
	if (!l->open)
		return;
	put_line(l, "  ", l->title, 36, &l->sum);
	for (size_t i = 0; i < l->n; i++)
		put_line(l, "    ", l->list[i].name, 34, &l->list[i]);
	l->open = false;
	l->n = 0;
	l->sum = (struct entry){ 0 };
	l->last[0] = '\0';
}

static void open_folder(void *ctx, const char *path, const char *real)
{
	struct listing *l = ctx;

	close_folder(l);
	snprintf(l->title, sizeof(l->title), real ? "~/%s, a link to %s" : "~/%s", path, real);
	l->open = true;
}

static void add(struct entry *e, uint64_t size)
{
	e->files++;
	e->bytes += size;
}

/* Begin the entry of NAME, LEN bytes; the last one stands for all further names. */
static void open_entry(struct listing *l, const char *name, size_t len)
{
	struct entry *e;

	memcpy(l->last, name, len);
	l->last[len] = '\0';
	if (l->n > LINES_MAX)
		return;
	e = &l->list[l->n];
	*e = (struct entry){ .files = 0 };
	if (l->n++ == LINES_MAX)
		snprintf(e->name, sizeof(e->name), "others");
	else
		snprintf(e->name, sizeof(e->name), "%.*s%s%s", len > NAME_SHOWN ? NAME_SHOWN : (int)len, name,
			len > NAME_SHOWN ? "..." : "", name[len] ? "/" : "");
}

/* PATH is "FOLDER/NAME", "FOLDER/NAME/…", or the name of a file of the home itself. */
static void add_file(void *ctx, const char *path, uint64_t size)
{
	struct listing *l = ctx;
	const char *name = strchr(path, '/');
	size_t len = name ? strcspn(++name, "/") : 0;

	add(&l->sum, size);
	if (!len || len > NAME_MAX)
		return;
	if (strlen(l->last) != len || memcmp(l->last, name, len) != 0)
		open_entry(l, name, len);
	add(&l->list[l->n - 1], size);
}

static void say_skipped(void *ctx, const char *path, const char *why)
{
	(void)ctx;
	ak_say("'%s' %s; left out", path, why);
}

/* Print the list below HEAD. False if there is no memory for it. */
static bool print_list(struct listing *l, const struct agent *a, const char *head)
{
	close_folder(l);
	if (l->out.failed)
		return false;
	printf("%s: %s\n", a->title, head);
	if (l->out.len)
		fwrite(l->out.data, 1, l->out.len, stdout);
	return true;
}

/* ---- the commands ---- */

/* The agent that a command line names; NULL after an error, or --help, with the exit code in *RET. */
static const struct agent *named(const char *command, int argc, char **argv, bool *ret_yes, int *ret)
{
	const struct agent *a;
	struct cmd_args args;
	const char *name = NULL;
	size_t n = 0;
	int rc = cmd_read(&args, command, argc, argv, &name, 1, &n);

	*ret = rc ? rc - 1 : AK_EXIT_USAGE;
	if (rc)
		return NULL;
	*ret_yes = args.seen[FIELD_ASSENT];
	a = n ? agent_named(name) : NULL;
	if (!a)
		ak_say("%s: %s%.64s%s: one of claude, codex, gemini, opencode", command, n ? "unknown agent '" : "no agent given",
			n ? name : "", n ? "'" : "");
	return a;
}

static int fail(const char *command, const struct ak_err *err)
{
	ak_say("%s: %s", command, err->text);
	return AK_EXIT_ERROR;
}

/* List what the command is about, unless RC says that it cannot be read; the exit code. */
static int show(const char *command, struct listing *l, const struct agent *a, const char *what, int rc, struct ak_err *err)
{
	if (rc == 0 && !print_list(l, a, what))
		rc = ak_fail(err, ENOMEM, "out of memory");
	strbuf_done(&l->out);
	return rc < 0 ? fail(command, err) : 0;
}

int cmd_agents_import(int argc, char **argv)
{
	static const char command[] = "agents import";
	static struct listing l; /* large */
	struct ak_paths paths;
	struct ak_err err;
	uint64_t files = 0;
	bool yes;
	int rc, code;
	const struct agent *a = named(command, argc, argv, &yes, &code);

	if (!a)
		return code;
	rc = ak_paths_init(&paths, &err);
	if (rc == 0)
		rc = service_agent_look(&paths, a, &(struct service_memory){ open_folder, add_file, say_skipped, &l }, &err);
	code = show(command, &l, a, "to be copied from your home, for use in sandboxes", rc, &err);
	if (code == 0)
		code = cmd_agree(command, yes, "copy these?", "copies what is listed");
	if (code)
		return code;
	rc = service_agent_import(&paths, a, &files, &err);
	if (rc < 0)
		return fail(command, &err);
	ak_say("%s: %llu file%s copied; your own stay as they are", a->title, (unsigned long long)files, files == 1 ? "" : "s");
	return 0;
}

int cmd_agents_reset(int argc, char **argv)
{
	static const char command[] = "agents reset";
	static struct listing l = { .open = true, .title = "sign-in, settings and sessions" };
	struct ak_paths paths;
	struct ak_err err;
	bool yes;
	int rc, code;
	const struct agent *a = named(command, argc, argv, &yes, &code);

	if (!a)
		return code;
	rc = ak_paths_init(&paths, &err);
	if (rc == 0)
		rc = service_agent_memory(&paths, a, &(struct service_memory){ NULL, add_file, NULL, &l }, &err);
	code = show(command, &l, a, "kept for its sandboxes, to be removed; your own files stay as they are", rc, &err);
	if (code == 0)
		code = cmd_agree(command, yes, "remove these?", "removes what is listed");
	if (code)
		return code;
	rc = service_agent_reset(&paths, a, &err);
	return rc < 0 ? fail(command, &err) : 0;
}
