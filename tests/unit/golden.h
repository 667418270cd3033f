/* Compare output with the files in tests/unit/golden; with AK_UPDATE_GOLDEN=1 write them instead, to be looked at and committed. */
#ifndef AK_TESTS_GOLDEN_H
#define AK_TESTS_GOLDEN_H

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static const int golden_widths[] = { 60, 80, 120, 200, 0 }; /* 0: a pipe */

static void golden_check(const char *name, int width, const char *got)
{
	_cleanup_free_ char *want = NULL;
	char path[256], number[16];

	snprintf(number, sizeof(number), "%d", width);
	snprintf(path, sizeof(path), AK_SOURCE_DIR "/tests/unit/golden/%s_%s.txt", name, width ? number : "pipe");
	if (getenv("AK_UPDATE_GOLDEN")) {
		FILE *f = fopen(path, "w");

		fputs(got, f);
		fclose(f);
	}
	assert_true(ak_read_file(AT_FDCWD, path, 1 << 20, &want, NULL) >= 0);
	if (strcmp(got, want) != 0)
		fail_msg("%s at %d columns:\n%swanted:\n%s", name, width, got, want);
}

#endif
