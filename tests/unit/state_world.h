/* A fixture with folders of its own: state, runtime and configuration in a temporary folder, shipped policies from the source tree. */
#ifndef AK_TEST_STATE_WORLD_H
#define AK_TEST_STATE_WORLD_H

#include "gateway/base/io.h"
#include "gateway/base/paths.h"
#include "tests/unit/tmp_dir.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct world {
	char dir[64];
	struct ak_paths paths;
};

static inline int setup(void **state)
{
	struct world *w = calloc(1, sizeof(*w));

	strcpy(w->dir, "/tmp/ak-state-XXXXXX");
	if (!tmp_dir(w->dir))
		return -1;
	snprintf(w->paths.state, sizeof(w->paths.state), "%s/state", w->dir);
	snprintf(w->paths.runtime, sizeof(w->paths.runtime), "%s/run", w->dir);
	snprintf(w->paths.config, sizeof(w->paths.config), "%s/config", w->dir);
	snprintf(w->paths.data, sizeof(w->paths.data), "%s", AK_SOURCE_DIR);
	*state = w;
	return 0;
}

static inline int teardown(void **state)
{
	struct world *w = *state;

	ak_remove_tree(AT_FDCWD, w->dir);
	free(w);
	return 0;
}

#endif
