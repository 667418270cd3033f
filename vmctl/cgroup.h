/*
 * Limits by control group, where the caller may write below its own: version 2 (delegated) or version 1.
 *
 * Joining a version-1 group can take a grace period of the kernel (tens of milliseconds), so a group is made only when a limit
 * needs one. Groups are named agentkernel-NAME-PID after the caller; those whose caller is gone are removed by the next start.
 */
#ifndef AK_VMCTL_CGROUP_H
#define AK_VMCTL_CGROUP_H

#include "gateway/base/strbuf.h"

#include <stdbool.h>
#include <stdint.h>

struct sandbox_limits;

enum cgroup_kind { CGROUP_MEMORY, CGROUP_PIDS, CGROUP_CPU, CGROUP_KIND_NUM };

struct cgroup {
	char *dirs[CGROUP_KIND_NUM]; /* owned; the group's folder by controller, NULL where there is none; equal text in version 2 */
	int join_fds[CGROUP_KIND_NUM]; /* version 1: cgroup.procs, open for writing; -1 where there is none */
	int v2_fd; /* version 2: the folder, for clone3; -1 */
};

/* Make groups for the limits that need one and set them; what could not be limited is noted, a line each. */
void cgroup_init(struct cgroup *cg, const char *name, const struct sandbox_limits *limits, bool want_pids, struct strbuf *notes);

/* Version 1: move the calling process in. Version 2 is joined by clone3 with v2_fd. */
int cgroup_join(const struct cgroup *cg);

bool cgroup_oom_killed(const struct cgroup *cg);
bool cgroup_pids_hit(const struct cgroup *cg);

/* Kill what is left inside, remove the folders. */
void cgroup_done(struct cgroup *cg);

#endif
