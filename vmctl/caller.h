/* The caller's half of a sandbox: what sandbox.c and sandbox_exec.c share. */
#ifndef AK_VMCTL_CALLER_H
#define AK_VMCTL_CALLER_H

#include "gateway/base/strbuf.h"
#include "vmctl/cgroup.h"
#include "vmctl/internal.h"
#include "vmctl/sandbox.h"

#include <sys/queue.h>

struct exec;
TAILQ_HEAD(exec_list, exec);

struct sandbox {
	enum sandbox_state state;
	struct sandbox_result result;
	struct cgroup cgroup;
	struct strbuf notes;
	pid_t setup_pid, init_pid; /* 0 when there is none, or it was reaped */
	pid_t *init_slot; /* owned mapping, until init is known or can no longer come */
	int setup_pidfd, init_pidfd; /* owned, like all below */
	int ctl;
	int epoll; /* what sandbox_fd gives out */
	int tty;
	int root; /* O_PATH, from READY to ENDED */
	bool network_done, init_done; /* READY is when both are */
	bool parked; /* and no job yet */
	int mounts; /* parked: tells when the host's mounts change; -1 when they have */
	enum sandbox_isolation isolation;
	struct sb_ids ids;
	bool readonly_root, root_inside; /* what it was started with */
	bool killed; /* by sandbox_signal */
	bool serves; /* has no command of its own */
	struct exec_list running, told; /* owned; those without and those with an event to fetch */
};

/* sandbox.c: no folder may be handed in as a stream. */
int sandbox_check_streams(const int stdio[3], struct ak_err *err);

/* What every job must have right. */
int sandbox_check_job(const struct sandbox_spec *spec, struct ak_err *err);

/* sandbox_park.c: a descriptor that tells when the host's mounts change. */
int sandbox_watch_mounts(void);

/* sandbox_exec.c: what init says of a command; FD, when there is one, is taken. */
void sandbox_on_exec(struct sandbox *sb, const struct sb_msg *msg, int fd);
/* The sandbox has ended, and all commands with it. */
void sandbox_end_execs(struct sandbox *sb);
void sandbox_free_execs(struct sandbox *sb);

#endif
