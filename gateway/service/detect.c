/* Look at a project and name the image that fits: see service/service.h and config/detect.h. */
#include "gateway/service/service.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"

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
