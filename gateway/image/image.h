/*
 * OCI images on disk.
 *
 *   STATE/images/names.json          the names, and the id that each stands for; replaced atomically
 *   STATE/images/ID/image.json       what the image says about itself; ID is the SHA-256 of its configuration
 *   STATE/images/ID/rootfs/          its layers, unpacked; never changed afterwards
 *   STATE/images/.new-XXXX/          an import or pull under way; locked by its process, removed by the next one if that died
 *   STATE/images/.lock               locked while names.json changes
 *
 * A process that uses an image holds a shared lock on the folder ID, so that nobody removes it meanwhile.
 */
#ifndef AK_IMAGE_H
#define AK_IMAGE_H

#include "gateway/base/err.h"
#include "gateway/base/json.h"
#include "gateway/base/paths.h"
#include "gateway/base/sha256.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define IMAGE_NAME_MAX 256 /* a canonical name with its NUL */

/* ---- references (ref.c) ---- */

/* "registry/repository:tag" or "registry/repository@sha256:…", in parts. */
struct image_ref {
	char registry[IMAGE_NAME_MAX]; /* docker.io, ghcr.io, localhost:5000 */
	char repository[IMAGE_NAME_MAX]; /* library/alpine */
	char tag[129]; /* "" if there is only a digest */
	char digest[72]; /* "sha256:…", or "" */
};

/* Parse what users write: "alpine" is docker.io/library/alpine:latest, as for docker. */
int image_ref_parse(const char *text, struct image_ref *ret, struct ak_err *err);
/* The canonical name, under which it is stored. */
void image_ref_print(const struct image_ref *ref, char ret[static IMAGE_NAME_MAX]);

/* ---- what an image says about itself (config.c) ---- */

#define IMAGE_LAYERS_MAX 128
#define IMAGE_JSON_MAX (1u << 20)

enum image_packing { IMAGE_PLAIN, IMAGE_GZIP, IMAGE_ZSTD, IMAGE_PACKING_NUM };

struct image_layer {
	char blob[SHA256_HEX]; /* SHA-256 of the file */
	char content[SHA256_HEX]; /* SHA-256 of what it unpacks to */
	enum image_packing packing;
};

struct image_config {
	char id[SHA256_HEX];
	char **env, **entrypoint, **cmd; /* owned, NULL-terminated; NULL: none */
	char *user, *workdir; /* owned; NULL: none */
	cJSON *labels; /* owned object, or NULL */
	struct image_layer layers[IMAGE_LAYERS_MAX]; /* lowest first */
	size_t n_layers;
};

/* Parse the text of an image's manifest; RET_CONFIG is the digest of its configuration. Fills in the layers' blobs. */
int image_manifest_parse(
	const char *text, size_t len, struct image_config *ret, char ret_config[static SHA256_HEX], struct ak_err *err);
/* Parse the configuration itself, after the manifest. -ENOEXEC: for another kind of machine. */
int image_config_parse(const char *text, size_t len, struct image_config *ret, struct ak_err *err);
void image_config_done(struct image_config *c);

/* Read and check index.json, manifest and configuration of the OCI layout in DIR_FD, which has one image. Follows no link. */
int image_layout_read(int dir_fd, struct image_config *ret, struct ak_err *err);

/* ---- an unpacked image (store.c) ---- */

struct image {
	char id[SHA256_HEX];
	char **env, **entrypoint, **cmd; /* owned, NULL-terminated; NULL: none */
	char *workdir; /* owned; NULL: none */
	cJSON *labels; /* owned object, or NULL */
	uint32_t uid, gid; /* of its user */
	char *home; /* owned; of its user */
	uint64_t size_bytes, created_us;
	char root[PATH_MAX]; /* the folder with its files */
	int lock; /* owned; a shared lock that keeps it on disk */
};

/*
 * Find the image that users call NAME, and lock it. A short name stands for the one on docker.io, as it does for docker, else for an
 * imported one. -ENOENT: it is not on this machine; ERR names the command that brings it. -EINVAL: not a name.
 */
int image_find(const struct ak_paths *paths, const char *name, struct image *ret, struct ak_err *err);
/* The same by id, for a sandbox that was created with it. */
int image_open(const struct ak_paths *paths, const char *id, struct image *ret, struct ak_err *err);
void image_done(struct image *img);

/* ---- changing the store ---- */

/* A folder for an import under way. */
struct image_work {
	char path[PATH_MAX];
	int fd; /* owned; also the lock */
};
/* Creates PATH/layout and PATH/out; removes what processes that died left. */
int image_work_begin(const struct ak_paths *paths, struct image_work *ret, struct ak_err *err);
void image_work_end(struct image_work *w); /* removes the folder */

/* What the unpacker found out. */
struct image_facts {
	uint32_t uid, gid;
	char home[256];
	uint64_t size_bytes;
};
/* Make WORK/out/rootfs the image CONF, unless the store has it, and give it the NAME. */
int image_work_keep(const struct ak_paths *paths, const struct image_work *w, const struct image_config *conf,
	const struct image_facts *facts, const char *name, struct ak_err *err);

/* Give an image of the store another NAME. */
int image_name_add(const struct ak_paths *paths, const char *name, const char *id, struct ak_err *err);

/* Lock NAME against concurrent pulls; the descriptor is the lock. *RET_US: when NAME was last changed; 0: never. */
int image_name_lock(const struct ak_paths *paths, const char *name, uint64_t *ret_us, struct ak_err *err);

/* One row of the list. */
struct image_row {
	char name[IMAGE_NAME_MAX]; /* "" for an image without a name */
	char id[SHA256_HEX];
	uint64_t size_bytes, created_us;
};
/* Call FN for each name, sorted. Damaged images are listed with size 0. */
int image_each(const struct ak_paths *paths, int (*fn)(void *ctx, const struct image_row *row), void *ctx, struct ak_err *err);

/*
 * Forget NAME and remove its files if no other name has them. USED (may be NULL) says whether a stopped sandbox needs an id. -EBUSY: in
 * use. -ENOENT.
 */
typedef bool image_used_fn(void *ctx, const char *id);
int image_remove(const struct ak_paths *paths, const char *name, image_used_fn *used, void *ctx, struct ak_err *err);
/* Remove every image that nothing uses; TOLD is called for each that went. */
int image_prune(const struct ak_paths *paths, image_used_fn *used, void *ctx,
	void (*told)(void *ctx, const struct image_row *row), void *told_ctx, struct ak_err *err);

/* ---- unpacking, in a sandbox of its own (unpack.c, box.c) ---- */

#define IMAGE_UNPACK_WORD "image-unpack" /* first word of the command line that runs image_unpack_main */
int image_unpack_main(int argc, char **argv);

#define IMAGE_BYTES_DEFAULT (UINT64_C(16) << 30)
/*
 * Unpack the layers of CONF from WORK/layout to WORK/out/rootfs, in a sandbox without network that can write nothing else. More than
 * MAX_BYTES: an error.
 */
int image_unpack(const struct image_work *w, const struct image_config *conf, uint64_t max_bytes, struct image_facts *ret,
	struct ak_err *err);

/*
 * Copy one image to WORK/layout by ARGV, a skopeo command line, in a sandbox without network. SOURCE, a file or folder, is visible at
 * IMAGE_BOX_SOURCE, WORK/layout at IMAGE_BOX_LAYOUT.
 */
#define IMAGE_BOX_SOURCE "/image/source"
#define IMAGE_BOX_LAYOUT "/image/layout"
int image_copy(const struct image_work *w, const char *source, char *const *argv, struct ak_err *err);

#endif
