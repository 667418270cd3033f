/*
 * Open the source of a mount on the host. Others, for example another sandbox with an enclosing project, may write to
 * the folders above it. So no component may be a symbolic link, and the result must be what the user named.
 */
#ifndef AK_VMCTL_SOURCE_H
#define AK_VMCTL_SOURCE_H

#include "gateway/base/err.h"
#include "vmctl/sandbox.h"

/*
 * Open M's source with O_PATH; the caller owns the result. -ELOOP: a component is a symbolic link; -ESTALE: M's dev
 * and ino do not match.
 */
int mnt_source_open(const struct sandbox_mount *m, struct ak_err *err);

#endif
