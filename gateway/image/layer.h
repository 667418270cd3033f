/*
 * Apply layers to a folder (OCI image specification, layer.md). The process has made the folder its root, so the kernel resolves every
 * path and link inside of it.
 */
#ifndef AK_IMAGE_LAYER_H
#define AK_IMAGE_LAYER_H

#include "gateway/base/err.h"
#include "gateway/image/tar.h"

#include <stdbool.h>
#include <stdint.h>

#define LAYER_DEPTH_MAX 256 /* folders in a path */
#define LAYER_INODES_MAX 2000000 /* files and folders of all layers of an image, also those that a later layer replaces */

struct layer_totals {
	uint64_t max_bytes; /* of all layers */
	uint64_t bytes, inodes; /* so far */
	uint64_t skipped; /* device nodes, which a sandbox cannot use */
	bool one_id; /* owners cannot be changed: there is one user only */
};

int layer_apply(struct tar *t, struct layer_totals *totals, struct ak_err *err);

#endif
