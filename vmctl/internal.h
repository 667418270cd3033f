/*
 * What the parts of the namespace backend share: the context that the caller prepares before it forks, the messages on
 * the control socket, and one entry point per part. The children are forks of the caller, so plain pointers suffice.
 */
#ifndef AK_VMCTL_INTERNAL_H
#define AK_VMCTL_INTERNAL_H

#include "gateway/base/err.h"
#include "vmctl/cgroup.h"
#include "vmctl/sandbox.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* One message on the control socket (SEQPACKET), either way. */
enum sb_msg_type {
	SB_MSG_INIT_PID, /* setup → caller: init's pid in VALUE */
	SB_MSG_NOTE, /* → caller: something could not be done, in TEXT */
	SB_MSG_FAILED, /* → caller: reason in TEXT, exit code in VALUE */
	SB_MSG_READY, /* init → caller; with the pty's master when there is one */
	SB_MSG_EXITED, /* init → caller: exit code in VALUE */
	SB_MSG_GO, /* caller → init */
	SB_MSG_SIGNAL, /* caller → init: signal in VALUE */
	SB_MSG_NUM
};

struct sb_msg {
	uint32_t type;
	int32_t value;
	char text[AK_ERR_MAX];
};

/* Who the sandbox is, outside and inside. */
struct sb_ids {
	uid_t uid; /* the invoker's */
	gid_t gid;
	uid_t inner_uid; /* what it is called inside */
	gid_t inner_gid;
	uint32_t sub_uid, sub_gid; /* first subordinate id for inner ids 1 … n_sub; only when n_sub > 0 */
	uint32_t n_sub;
};

struct sb_ctx {
	const struct sandbox_spec *spec; /* borrowed: outlives us */
	struct sb_ids ids;
	int ctl; /* the child's end */
	int net_sock; /* borrowed */
	pid_t caller;
	struct cgroup cgroup;
	bool kernel_pid_max; /* pid_max belongs to the pid namespace (Linux 6.14) */
};

/* sandbox.c: both sides of the control socket. */
int sb_send(int ctl, enum sb_msg_type type, int value, const char *text, int fd);
int sb_recv(int ctl, struct sb_msg *ret, int *ret_fd); /* 1 a message, 0 end of file, -errno */
_Noreturn void sb_child_fail(int ctl, int exit_code, const struct ak_err *err);

/* Close every descriptor but the N given ones (negative ones and repetitions are fine). */
int sb_keep_fds(const int *fds, size_t n);

/* setup.c: the body of the short-lived child. Never returns. */
_Noreturn void sb_setup_main(struct sb_ctx *ctx);

/* idmap.c */
void sb_ids_plan(const struct sandbox_spec *spec, struct sb_ids *ret);
/* New user and network namespace for the calling process, with its id map written; n_sub is 0 after it when ranges were refused. */
int sb_enter_outer(struct sb_ctx *ctx, struct ak_err *err);
/* Write the inner namespace's map: as init itself for one id, as its parent (PID) for ranges. */
int sb_map_inner(const struct sb_ids *ids, pid_t pid, struct ak_err *err);
/* Turn a failure that a host setting explains into one that names the setting; returns RC. */
int sb_explain_userns(struct ak_err *err, int rc);

/* root.c and its parts: the calling process (alone in a new mount namespace) ends up inside the assembled root. */
struct sb_root {
	const struct sb_ctx *ctx;
	int store; /* mount whose folders back the root; its own mount only while building */
	int fd; /* the new root */
	bool private_usr; /* /usr gets a writable overlay */
};
int sb_root_build(const struct sb_ctx *ctx, struct ak_err *err);
int sb_root_etc(const struct sb_root *r, struct ak_err *err);
int sb_root_dev(const struct sb_root *r, struct ak_err *err);
int sb_root_proc(const struct sb_root *r, struct ak_err *err);

/* confine.c: give up everything that is not needed any more; in this order. */
int sb_confine_limits(const struct sb_ctx *ctx, struct ak_err *err);
int sb_confine_caps(const struct sb_ctx *ctx, struct ak_err *err);
int sb_confine_landlock(const int stdio[3], struct ak_err *err);
int sb_confine_seccomp(const struct sb_ctx *ctx, struct ak_err *err);

/* init.c: pid 1. Never returns. */
_Noreturn void sb_init_main(struct sb_ctx *ctx, int map_ready_fd);

/* exec.c: the command's own process, between fork and exec. Never returns. */
_Noreturn void sb_exec_command(const struct sb_ctx *ctx, int tty_slave);

#endif
