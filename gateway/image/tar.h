/*
 * A strict reader of tar streams: ustar, pax and GNU long names. It allocates a bounded amount, reads each byte once and refuses what
 * it does not know. It runs in a sandbox, on bytes that strangers wrote.
 */
#ifndef AK_IMAGE_TAR_H
#define AK_IMAGE_TAR_H

#include "gateway/base/err.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define TAR_PATH_MAX 4096
#define TAR_BLOCK 512

enum tar_kind { TAR_FILE, TAR_FOLDER, TAR_LINK, TAR_HARD_LINK, TAR_FIFO, TAR_DEVICE, TAR_KIND_NUM };

struct tar_entry {
	enum tar_kind kind;
	char name[TAR_PATH_MAX], target[TAR_PATH_MAX]; /* as written */
	uint32_t mode, uid, gid;
	uint64_t size; /* of a file's content, which follows */
	int64_t mtime_s;
};

struct tar {
	/* Fill BUF completely, or return what there is before the end; -errno. */
	ssize_t (*read)(void *ctx, void *buf, size_t len);
	void *ctx;
	uint64_t left; /* bytes of the current entry that were not read yet, with their padding */
	uint64_t content; /* of these, the entry's own */
};

void tar_init(struct tar *t, ssize_t (*read)(void *ctx, void *buf, size_t len), void *ctx);

/* 1: RET is the next entry; what was not read of the one before is skipped. 0: the end. -EBADMSG: not a tar, or truncated. */
int tar_next(struct tar *t, struct tar_entry *ret, struct ak_err *err);

/* Read the content of the current entry; 0 at its end. */
ssize_t tar_read(struct tar *t, void *buf, size_t len, struct ak_err *err);

#endif
