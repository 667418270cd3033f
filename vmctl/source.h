/*
 * The host's side of a mount. Others may write to the folders on the way to it, another sandbox with an enclosing project for example: it is opened
 * without following links in any part, and compared with what the user named.
 */
#ifndef AK_VMCTL_SOURCE_H
#define AK_VMCTL_SOURCE_H

#include "gateway/base/err.h"
#include "vmctl/sandbox.h"

/* An O_PATH descriptor of M's source, owned by the caller. -ELOOP: a symbolic link is on the way; -ESTALE: it is not what M's dev and ino name. */
int mnt_source_open(const struct sandbox_mount *m, struct ak_err *err);

#endif
