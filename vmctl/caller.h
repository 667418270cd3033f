/* The caller's side of a sandbox: declarations shared by sandbox.c, sandbox_exec.c and sandbox_park.c. */
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
	size_t notes_at_go; /* length of NOTES when the command was started */
	pid_t setup_pid, init_pid; /* 0: not started yet, or already reaped */
	pid_t *init_slot; /* owned shared mapping; kept until init's pid is known or init can no longer start */
	int setup_pidfd, init_pidfd; /* owned, like every descriptor below */
	int ctl;
	int epoll; /* returned by sandbox_fd */
	int tty;
	int root; /* O_PATH; open from READY until ENDED */
	int children; /* the list of init's children, from READY on; -1 if the kernel has none */
	uint32_t helper; /* the one of them that is no command, by its pid inside; 0: none */
	bool network_done, init_done; /* the state becomes READY when both are set */
	bool parked; /* waiting for a job */
	int mounts; /* parked: reports changes of the host's mounts; -1 after a change */
	enum sandbox_isolation isolation;
	struct sb_ids ids;
	bool readonly_root, root_inside, vm; /* as given to sandbox_start */
	bool killed; /* sandbox_signal sent SIGKILL */
	bool serves; /* started without a command; runs those of sandbox_exec */
	struct exec_list running, told; /* owned; commands without and with an event to fetch */
};

/* sandbox.c: check that no standard stream is a folder. */
int sandbox_check_streams(const int stdio[3], struct ak_err *err);

/* Check the parts of a spec that every job needs. */
int sandbox_check_job(const struct sandbox_spec *spec, struct ak_err *err);

/* sandbox_park.c: open a descriptor that reports changes of the host's mounts. */
int sandbox_watch_mounts(void);

/* sandbox_exec.c: handle init's message about a command. Takes ownership of FD unless it is -1. */
void sandbox_on_exec(struct sandbox *sb, const struct sb_msg *msg, int fd);
/* Report every command as ended, because the sandbox has ended. */
void sandbox_end_execs(struct sandbox *sb);

/* sandbox.c: make the control group of SPEC's limits. */
void sandbox_group(struct sandbox *sb, const struct sandbox_spec *spec);
void sandbox_free_execs(struct sandbox *sb);

#endif
