/*
 * Resource limits by control group, where the caller may write below its own group: version 2 (delegated, or in a scope that the user's service manager
 * makes) or version 1.
 *
 * Joining a version-1 group can take an RCU grace period (tens of milliseconds), so a group is created only when a
 * limit needs one. A small child of the caller, the janitor, removes the groups: it survives a caller that is killed,
 * and it keeps its access when the caller gives up the file system. Groups are named agentkernel-NAME-PID after the
 * caller's pid. If the janitor is killed too, the next start removes groups whose caller no longer exists.
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
		[CGROUP_KIND_NUM]; /* owned; the group's folder for each controller, NULL if none; version 2: the same path for all */
	int join_fds[CGROUP_KIND_NUM]; /* version 1: cgroup.procs, open for writing; -1 if none */
	int events_fds[CGROUP_KIND_NUM]; /* event counters, opened early because the caller cannot open paths later; -1 if none */
	int v2_fd; /* version 2: the group's folder, for clone3; -1 if none */
	int janitor_fd; /* closing it tells the janitor to remove the groups; -1 if none */
	pid_t janitor; /* 0: not running */
};

/*
 * Create and configure groups for the limits that need one. Adds a line to NOTES for each limit that could not be
 * applied.
 */
void cgroup_init(struct cgroup *cg, const char *name, const struct sandbox_limits *limits, struct strbuf *notes);

/* Version 1: move the calling process into the groups. Version 2 is joined by clone3 with v2_fd. */
int cgroup_join(const struct cgroup *cg);

/* Version 2: open cgroup.procs, so that a running process can join. -1 without a group. The caller owns the result. */
int cgroup_open_procs(const struct cgroup *cg);

/*
 * vmctl/scope.c: ask the user's service manager, if one runs, for a scope of its own for this process, with control over the groups below it. True once
 * the process is in it. Asks only once.
 */
bool scope_enter(void);

uint64_t cgroup_oom_kills(const struct cgroup *cg); /* processes that the memory limit has killed */
uint64_t cgroup_pids_refused(const struct cgroup *cg); /* processes that the process limit has refused */

/* Remove the groups' folders. Their processes must have ended. */
void cgroup_done(struct cgroup *cg);

#endif
