/* Removing trees whose files belong to subordinate ids: see sandbox_remove_tree. */
#include "vmctl/internal.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"

#include <errno.h>
#include <sys/wait.h>
#include <unistd.h>

/* In a child: become root of a user namespace that maps these ids. */
static _Noreturn void remove_inside(struct sb_ctx *ctx, int dirfd, const char *name)
{
	struct ak_err ignored;
	int rc = sb_enter_outer(ctx, &ignored);

	if (rc == 0)
		rc = ctx->ids.n_sub ? ak_remove_tree(dirfd, name) : -EACCES;
	_exit(rc < 0 ? -rc & 0xff : 0);
}

int sandbox_remove_tree(int dirfd, const char *name)
{
	static const struct sandbox_spec plain = { .name = "remove", .root_inside = true };
	struct sb_ctx ctx = { .spec = &plain, .ctl = -1, .net_sock = -1 };
	int rc = ak_remove_tree(dirfd, name), status;
	pid_t pid;

	if (rc == 0 || sandbox_is_host_root())
		return rc;
	sb_trees_init(&ctx.trees);
	sb_ids_plan(&plain, &ctx.ids);
	if (!ctx.ids.n_sub)
		return rc;
	pid = fork();
	if (pid == 0)
		remove_inside(&ctx, dirfd, name);
	if (pid < 0)
		return -errno;
	while (waitpid(pid, &status, 0) < 0) {
		if (errno != EINTR)
			return -errno;
	}
	return WIFEXITED(status) ? -WEXITSTATUS(status) : rc;
}
