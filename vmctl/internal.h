/*
 * What the parts of the namespace backend share: the context that the caller prepares before it forks, the messages on
 * the control socket, and one entry point per part. The children are forks of the caller, so plain pointers suffice.
 */
#ifndef AK_VMCTL_INTERNAL_H
#define AK_VMCTL_INTERNAL_H

#include "gateway/base/err.h"
#include "vmctl/cgroup.h"
#include "vmctl/pack.h"
#include "vmctl/sandbox.h"
#include "vmctl/trees.h"

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* One message on the control socket (SEQPACKET), either way. */
enum sb_msg_type {
	SB_MSG_NETWORK = 1, /* setup → caller: the sandbox's network namespace is complete */
	SB_MSG_NOTE, /* → caller: something could not be done, in TEXT */
	SB_MSG_FAILED, /* → caller: reason in TEXT, exit code in VALUE */
	SB_MSG_READY, /* init → caller; with its root and, when there is one, the pty's master */
	SB_MSG_EXITED, /* init → caller: exit code in VALUE */
	SB_MSG_TREES, /* caller → init, parked: detached mounts for the job to come, in its order */
	SB_MSG_ASSIGN, /* caller → init, parked: the pack of a job, streams by the bits of VALUE, then control groups to join */
	SB_MSG_GO, /* caller → init */
	SB_MSG_SIGNAL, /* caller → init: signal in VALUE */
	SB_MSG_EXEC, /* caller → init: command ID; the pack (pack.h), then the streams whose bits are set in VALUE */
	SB_MSG_EXEC_SIGNAL, /* caller → init: for ID, signal in VALUE */
	SB_MSG_EXEC_STARTED, /* init → caller: ID; with the pty's master when there is one */
	SB_MSG_EXEC_LEFT, /* init → caller, before ENDED: ID left VALUE processes running, listed in TEXT */
	SB_MSG_EXEC_ENDED, /* init → caller: ID, exit code in VALUE, reason in TEXT */
	SB_MSG_NUM
};

struct sb_msg {
	uint32_t type;
	uint32_t id;
	int32_t value;
	char text[AK_ERR_MAX];
};
#define SB_FDS_MAX 8 /* descriptors of one message */

/* Who the sandbox is, outside and inside. */
struct sb_ids {
	uid_t uid; /* the invoker's */
	gid_t gid;
	uid_t outer_uid; /* what runs the sandbox: the invoker, or for the host's root an id that owns nothing; 0 then: there is none */
	gid_t outer_gid;
	uid_t inner_uid; /* what it is called inside */
	gid_t inner_gid;
	uint32_t sub_uid, sub_gid; /* first subordinate id for ids 1 … n_sub of the outer namespace; only when n_sub > 0 */
	uint32_t n_sub;
	bool lent; /* the invoker is the host's root, and outer_uid is another */
	bool inner_range; /* the sandbox itself has the subordinate ids, too */
};

static inline bool sb_maps_range(const struct sb_ids *ids)
{
	return ids->inner_range && ids->n_sub;
}

struct sb_ctx {
	const struct sandbox_spec *spec; /* borrowed: outlives us */
	struct sb_trees trees; /* owned; with ids.lent */
	bool was_parked; /* the job came after the root was begun */
	struct sb_ids ids;
	int ctl; /* the child's end */
	int net_sock; /* borrowed */
	pid_t caller;
	pid_t *init_slot; /* borrowed: shared with the caller; the kernel writes init's pid there before init first runs */
	struct cgroup cgroup;
	int exec_fence; /* owned; what keeps commands that come later apart (confine.c); -1 where there is none */
	bool kernel_pid_max; /* pid_max belongs to the pid namespace (Linux 6.14) */
};

/* msg.c: both sides of the control socket. */
int sb_send(int ctl, enum sb_msg_type type, int value, const char *text, int fd);
int sb_send_fds(int ctl, enum sb_msg_type type, uint32_t id, int value, const char *text, const int *fds, size_t n_fds);
/* 1 a message, 0 end of file, -errno. -EMSGSIZE: the message is there, but its descriptors found no room. */
int sb_recv(int ctl, struct sb_msg *ret, int fds[static SB_FDS_MAX], size_t *n_fds);

/* child.c */
_Noreturn void sb_child_fail(int ctl, int exit_code, const struct ak_err *err);
/* Close every descriptor but the N given ones (negative ones and repetitions are fine). */
int sb_keep_fds(const int *fds, size_t n);

/* setup.c: the body of the short-lived child. Never returns. */
_Noreturn void sb_setup_main(struct sb_ctx *ctx);

/* idmap.c */
void sb_ids_plan(const struct sandbox_spec *spec, struct sb_ids *ret);
/* Whether there is an id that the sandbox can run under. */
int sb_ids_check(const struct sb_ids *ids, struct ak_err *err);
/* Let the lent id open pipes among FDS again by their names in /proc, as their maker could. */
void sb_ids_give_pipes(const struct sb_ids *ids, const int fds[3]);
/* New user and network namespace for the calling process, with its id map written; n_sub is 0 after it when ranges were refused. */
int sb_enter_outer(struct sb_ctx *ctx, struct ak_err *err);
/* The same where a gateway lives already (spec's gw_user_ns): its user namespace, and a new network namespace in it. */
int sb_join_outer(struct sb_ctx *ctx, struct ak_err *err);
/* Write the inner namespace's map: as init itself for one id, as its parent (PID) for ranges. */
int sb_map_inner(const struct sb_ids *ids, pid_t pid, struct ak_err *err);
/* Turn a failure that a host setting explains into one that names the setting; returns RC. */
int sb_explain_userns(struct ak_err *err, int rc);
/* Whether the gateway's namespaces are given and not to be made. */
static inline bool sb_joins(const struct sandbox_spec *spec)
{
	return spec->link && spec->gw_user_ns > 0 && spec->gw_net_ns > 0;
}

/*
 * root.c and its parts, for a process alone in a new mount namespace. After the base everything that does not depend on the job is there, and the
 * host's tree is still in sight; after the job the process is inside.
 */
struct sb_root {
	const struct sb_ctx *ctx;
	int store; /* owned; mount whose folders back the root; its own mount only while building */
	int fd; /* owned; the new root */
	int pid_max; /* owned; the pid namespace's own limit, -1 where it has none */
	bool private_usr; /* /usr gets a writable overlay */
};
int sb_root_base(struct sb_root *r, const struct sb_ctx *ctx, struct ak_err *err);
int sb_root_job(const struct sb_root *r, struct ak_err *err);
void sb_root_done(struct sb_root *r);
bool sb_root_read_only(const struct sandbox_spec *spec);
int sb_root_failed(struct ak_err *err, int rc, const char *what);
/* A name in the root, whose parent exists: a folder, a link or a file with TEXT in it. What a sandbox left in a kept root leads nowhere. */
int sb_root_folder(const struct sb_root *r, const char *path, mode_t mode);
int sb_root_link(const struct sb_root *r, const char *path, const char *target);
int sb_root_write(const struct sb_root *r, const char *path, const char *text);
/* A mount of a folder of the store, made when missing. */
int sb_root_store(const struct sb_root *r, const char *name, mode_t mode);
/* A read-only overlay of FOLDER_FD, detached: its files by other inodes, so that sockets among them lead nowhere. */
int sb_root_overlay(const struct sb_root *r, int folder_fd);
/* The same over the folder itself, in our own mount namespace, for what is mounted from there afterwards. */
int sb_root_shield(const struct sb_root *r, int folder_fd);
void sb_root_note_open(const struct sb_root *r, const char *folder, int rc);
/* rootcopy.c: the host's folder PATH, which ends in a slash, at the same place in a root of this start. An error leaves a part: the folder is large, cannot
 * be read, or holds what cannot be copied. */
int sb_root_copy(const struct sb_root *r, const char *path);
bool sb_root_is_empty(const char *path); /* false when that cannot be told */
int sb_root_etc(const struct sb_root *r, struct ak_err *err);
int sb_root_names(const struct sb_root *r, struct ak_err *err);
int sb_root_dev(const struct sb_root *r, struct ak_err *err);
int sb_root_proc(struct sb_root *r, struct ak_err *err);

/*
 * job.c: what travels to init in a memory file, read and nothing more. The streams are those whose bits are set in the message's VALUE, in the
 * order of their numbers after the pack.
 */
struct sb_job {
	struct sandbox_spec spec; /* its strings are the pack's, its streams owned */
	struct pack pack; /* owned */
	struct sandbox_mount mounts[SB_MOUNTS_MAX];
	struct sandbox_link links[SB_LINKS_MAX];
};
/* SB_MSG_ASSIGN over what the sandbox was PARKED with. FDS from *RET_GROUPS on are control groups; what is taken of FDS becomes -1. RET is to be freed
 * by sb_job_done, also after a failure. */
int sb_job_read(const struct sandbox_spec *parked, const struct sb_msg *msg, int *fds, size_t n_fds, struct sb_job *ret,
	size_t *ret_groups);
void sb_job_done(struct sb_job *job);

/* park.c: wait for the job and make its spec the context's. Its memory is never given back. */
int sb_await_job(struct sb_ctx *ctx, struct ak_err *err);

/* confine.c: give up everything that is not needed any more; in this order. */
int sb_confine_limits(const struct sb_ctx *ctx, struct ak_err *err);
int sb_confine_caps(const struct sb_ctx *ctx, struct ak_err *err);
int sb_confine_landlock(const int stdio[3], struct ak_err *err);
int sb_confine_seccomp(const struct sb_ctx *ctx, struct ak_err *err);
/* A ruleset that allows everything: each process that enters it by sb_enter_fence gets a domain of its own. -1 on a kernel without Landlock. */
int sb_make_fence(void);
int sb_enter_fence(int fence);

/* init.c: pid 1. Never returns. */
_Noreturn void sb_init_main(struct sb_ctx *ctx, int map_ready_fd);

/* exec.c: one command as a process of its own. */
struct sb_command {
	char *const *argv, *const *envp;
	const char *workdir; /* NULL is the home */
	const char *home;
	int tty_slave; /* its controlling terminal and all three streams; -1: STREAMS */
	int streams[3]; /* -1 is the null device; borrowed */
	uint32_t nofile; /* descriptors; 0: the default */
	bool tty; /* wants a terminal, of this size when there is one */
	uint16_t rows, cols;
	int fence; /* borrowed; -1: none */
	uint32_t mark; /* 0: none */
};
/* job.c: SB_MSG_EXEC. The strings point into P, which the caller frees; all but home, tty_slave, nofile, fence and mark is filled in. */
int sb_command_read(const struct sb_msg *msg, const int *fds, size_t n_fds, struct pack *p, struct sb_command *ret);
struct sb_failure {
	int exit_code; /* 125, 126 or 127 */
	struct ak_err err;
};
/*
 * The process, which is about to become the program, and does not make us wait: a program's file can be leased, or on a slow file system. *RET_FAILURE
 * (owned by the caller, non-blocking) ends when the program runs, and gives a struct sb_failure when it does not.
 * The command's strings are those of P (taken over; NULL when they outlive us). *RET_BIRTH is to be kept until *RET_FAILURE or the process has ended.
 */
struct sb_birth;
pid_t sb_spawn(const struct sb_command *cmd, struct pack *p, int *ret_failure, struct sb_birth **ret_birth, struct ak_err *err);
void sb_birth_free(struct sb_birth *b);
/* To its group; or to a process that is none yet, which takes the signal as soon as it unblocks them, before it is a program. */
void sb_signal(pid_t pid, int sig);

/* serve.c: commands that come later (spec.argv was NULL), in init. */
struct sb_served;
void sb_serve_exec(struct sb_served **list, const struct sb_ctx *ctx, const struct sb_msg *msg, const int *fds, size_t n_fds);
/* For the command's group; SIGKILL ends everything that it has started. */
void sb_serve_signal(struct sb_served *list, const struct sb_ctx *ctx, uint32_t id, int sig);
/* PID has ended with EXIT_CODE; when it is one of ours, tell the caller. */
void sb_serve_reaped(struct sb_served **list, const struct sb_ctx *ctx, pid_t pid, int exit_code);
/* What to wait for besides: how many there are, of which at most MAX are filled in; then sb_serve_look. */
size_t sb_serve_poll(const struct sb_served *list, struct pollfd *p, size_t max);
void sb_serve_look(struct sb_served *list, const struct sb_ctx *ctx);

/* mark.c: a number for each command, which everything that it starts bears. */
int sb_mark_protect(void); /* once, in init: from here on nobody but sb_mark_set can set one */
uint32_t sb_mark_next(void);
int sb_mark_set(uint32_t mark);
/* End everything that bears MARK; bounded in time. */
void sb_mark_end(uint32_t mark);
/* How many live processes bear MARK, and which: "7 sleep, 9 node", cut to SIZE. */
unsigned sb_mark_left(uint32_t mark, char *ret_text, size_t size);

/* init.c: a new pty in the sandbox. */
int sb_open_pty(int *ret_master, int *ret_slave, struct ak_err *err);

#endif
