/* Temporary folders of a test program. They go when it ends, so that a test that fails leaves nothing either. */
#ifndef AK_TEST_TMP_DIR_H
#define AK_TEST_TMP_DIR_H

#include "gateway/base/io.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct tmp_made {
	struct tmp_made *next;
	char path[256];
};

static struct tmp_made *tmp_made;
static pid_t tmp_owner;

static void tmp_remove_all(void)
{
	while (tmp_owner == getpid() && tmp_made) {
		struct tmp_made *one = tmp_made;

		tmp_made = one->next;
		ak_remove_tree(AT_FDCWD, one->path);
		free(one);
	}
}

/* mkdtemp(3), and remember to remove it: NULL when it cannot be made. */
static inline char *tmp_dir(char *template)
{
	struct tmp_made *one = calloc(1, sizeof(*one));

	if (!one || strlen(template) >= sizeof(one->path) || !mkdtemp(template)) {
		free(one);
		return NULL;
	}
	if (!tmp_owner)
		atexit(tmp_remove_all);
	tmp_owner = getpid();
	strcpy(one->path, template);
	one->next = tmp_made;
	tmp_made = one;
	return template;
}

#endif
