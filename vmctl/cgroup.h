/*
 * Limits by control group, where the caller may write below its own: version 2 (delegated) or version 1.
 *
 * Joining a version-1 group can take a grace period of the kernel (tens of milliseconds), so a group is made only when a limit
 * needs one. A small child of the caller, the janitor, removes the groups: it outlives a caller that is killed, and it keeps its rights
 * when the caller gives up the file system. Groups are named agentkernel-NAME-PID after the caller; should the janitor
 * be killed too, the next start removes those whose caller is gone.
 */
#ifndef AK_VMCTL_CGROUP_H
#define AK_VMCTL_CGROUP_H

#include "gateway/base/strbuf.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct sandbox_limits;

enum cgroup_kind { CGROUP_MEMORY, CGROUP_PIDS, CGROUP_CPU, CGROUP_KIND_NUM };

struct cgroup {
	char *dirs
		[CGROUP_KIND_NUM]; /* owned; the group's folder by controller, NULL where there is none; equal text in version 2 */
	int join_fds[CGROUP_KIND_NUM]; /* version 1: cgroup.procs, open for writing; -1 where there is none */
	int events_fds
		[CGROUP_KIND_NUM]; /* the controller's event counts, open because they are read when paths are out of reach; -1 */
	int v2_fd; /* version 2: the folder, for clone3; -1 */
	int janitor_fd; /* closing it lets the janitor go to work; -1 */
	pid_t janitor; /* 0 when there is none */
};

/* Make groups for the limits that need one and set them; what could not be limited is noted, a line each. */
void cgroup_init(struct cgroup *cg, const char *name, const struct sandbox_limits *limits, struct strbuf *notes);

/* Version 1: move the calling process in. Version 2 is joined by clone3 with v2_fd. */
int cgroup_join(const struct cgroup *cg);

/* Version 2: what a process that is there already joins by; -1 where there is none. Owned by the caller. */
int cgroup_open_procs(const struct cgroup *cg);

bool cgroup_oom_killed(const struct cgroup *cg);
bool cgroup_pids_hit(const struct cgroup *cg);

/* Remove the folders; what ran in them has ended. */
void cgroup_done(struct cgroup *cg);

#endif
