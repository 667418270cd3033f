/* Look at a project and name the image that fits: see service/service.h and config/detect.h. */
#include "gateway/service/internal.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/image/image.h"
#include "gateway/store/agent.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NAMES_MAX 1024 /* of a project folder that are looked at */
#define PROCFILE_MAX (16u << 10)

struct names {
	char *list[NAMES_MAX]; /* owned */
	size_t n;
};

static void names_done(struct names *l)
{
	for (size_t i = 0; i < l->n; i++)
		free(l->list[i]);
}

static int compare(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* What cannot be read is not there: detection is a guess. */
static void read_names(int dir, struct names *ret)
{
	int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *e;

	if (!d) {
		ak_close(fd);
		return;
	}
	while (ret->n < NAMES_MAX && (e = readdir(d))) {
		char *copy = strdup(e->d_name);

		if (copy)
			ret->list[ret->n++] = copy;
	}
	closedir(d);
	qsort(ret->list, ret->n, sizeof(ret->list[0]), compare); /* the same answer for the same names */
}

/* A sandbox may have written it: follow no link, wait for no FIFO. */
static char *read_procfile(int dir)
{
	_cleanup_close_ int fd = openat(dir, "Procfile", O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	_cleanup_free_ char *text = malloc(PROCFILE_MAX + 1);
	struct stat st;
	ssize_t n;

	if (fd < 0 || !text || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return NULL;
	n = ak_pread_all(fd, text, PROCFILE_MAX, 0);
	if (n < 0)
		return NULL;
	text[n] = '\0';
	return TAKE(text);
}

void service_detect(const struct run_request *o, const struct config *c, const char *dir, struct detect_answer *ret)
{
	const char *base = config_word(c, "sandbox", "base_image");
	_cleanup_(names_done) struct names names = { .n = 0 };
	_cleanup_close_ int at = dir ? open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
	_cleanup_free_ char *procfile = at < 0 ? NULL : read_procfile(at);
	struct detect_ask ask = {
		.config = o->config ? base : NULL,
		.command = o->argv ? o->argv[0] : NULL,
		.settings = o->config ? NULL : base,
		.procfile = procfile,
	};

	if (at >= 0)
		read_names(at, &names);
	ask.names = (const char *const *)names.list;
	ask.n_names = names.n;
	detect_image(&ask, ret);
}

/* ---- a command that the host does not have ---- */

static bool is_missing(const struct run_request *o, const struct run_plan *plan)
{
	const char *name = o->argv ? o->argv[0] : NULL;
	char found[PATH_MAX];

	return name && name[0] && !strchr(name, '/') && !plan->image && !plan->tools.program &&
		!tools_look_up(TOOLS_SYSTEM_PATH, name, found);
}

static void detect_for(const struct run_request *o, const struct run_plan *plan, struct detect_answer *ret)
{
	service_detect(o, NULL, plan->project[0] ? plan->project : o->origin == RUN_ORIGIN_CLI ? "." : NULL, ret);
}

const char *service_missing(
	const struct run_request *o, const struct run_plan *plan, const struct ak_paths *paths, char ret_hint[static AK_ERR_MAX])
{
	const struct agent *agent;
	struct detect_answer fits;
	struct ak_err ignored;
	struct image img;

	ret_hint[0] = '\0';
	if (!is_missing(o, plan))
		return NULL;
	agent = agent_named(o->argv[0]);
	if (agent) { /* the image of a language does not have it */
		snprintf(ret_hint, AK_ERR_MAX, "%s is not on your PATH; install it with: %s", agent->title, agent->install);
		return NULL;
	}
	detect_for(o, plan, &fits);
	if (fits.clue == DETECT_NOTHING)
		return NULL;
	if (image_find(paths, fits.image, &img, &ignored) == 0) {
		image_done(&img);
		snprintf(ret_hint, AK_ERR_MAX, "'%.64s' is not on this host; using the image %s (%s)", o->argv[0], fits.image,
			fits.why);
		return fits.image;
	}
	if (fits.clue == DETECT_COMMAND)
		snprintf(ret_hint, AK_ERR_MAX,
			"'%.64s' is not on this host; an image has it, bring it with: agentkernel image pull %s", o->argv[0],
			fits.image);
	else
		snprintf(ret_hint, AK_ERR_MAX,
			"'%.64s' is not on this host; the image for this project may have it (%s), bring it with: agentkernel image pull %s",
			o->argv[0], fits.why, fits.image);
	return NULL;
}

void service_explain_image(const struct run_request *o, const struct config *c, const struct run_plan *plan,
	const struct ak_paths *paths, struct strbuf *out)
{
	char hint[AK_ERR_MAX];
	struct detect_answer fits;

	strbuf_puts(out, "  image      ");
	if (o->image) {
		strbuf_puts(out, o->image);
		config_explain_source(c, o, FIELD_IMAGE, "default", out);
		return;
	}
	(void)service_missing(o, plan, paths, hint);
	detect_for(o, plan, &fits);
	if (hint[0])
		strbuf_printf(out, "%s\n", hint);
	else
		strbuf_printf(out, "none, the host's own programs; %s would fit  (%s)\n", fits.image, fits.why);
}
