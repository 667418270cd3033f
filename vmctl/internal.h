/*
 * Declarations shared by the parts of the namespace backend: the context that the caller prepares before it forks,
 * the messages on the control socket, and one entry point per part. The children are forks of the caller, so plain
 * pointers suffice.
 */
#ifndef AK_VMCTL_INTERNAL_H
#define AK_VMCTL_INTERNAL_H

#include "gateway/base/err.h"
#include "gateway/base/publish.h"
#include "vmctl/cgroup.h"
#include "vmctl/pack.h"
#include "vmctl/sandbox.h"
#include "vmctl/trees.h"

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* A message on the control socket (SEQPACKET), in either direction. */
enum sb_msg_type {
	SB_MSG_NETWORK = 1, /* setup → caller: the sandbox's network namespace is complete */
	SB_MSG_NOTE, /* → caller: something could not be done; TEXT says what */
	SB_MSG_FAILED, /* → caller: start failed; reason in TEXT, exit code in VALUE */
	SB_MSG_READY, /* init → caller, with the sandbox's root and what VALUE names (SB_READY_…); ID: a child of init that is no command, or 0 */
	SB_MSG_EXITED, /* init → caller: exit code in VALUE */
	SB_MSG_TREES, /* caller → parked init: detached mounts for the next job, in the order of its spec */
	SB_MSG_ASSIGN, /* caller → parked init: the packed job, the streams whose bits are set in VALUE, then control groups to join */
	SB_MSG_GO, /* caller → init */
	SB_MSG_SIGNAL, /* caller → init: signal in VALUE */
	SB_MSG_EXEC, /* caller → init: run command ID; with its pack (pack.h) and the streams whose bits are set in VALUE */
	SB_MSG_EXEC_SIGNAL, /* caller → init: send signal VALUE to command ID */
	SB_MSG_EXEC_STARTED, /* init → caller: command ID runs; with the pty's master, if any */
	SB_MSG_EXEC_LEFT, /* init → caller, before ENDED: command ID left VALUE processes running, listed in TEXT */
	SB_MSG_EXEC_ENDED, /* init → caller: command ID ended; exit code in VALUE, reason in TEXT */
	SB_MSG_CHANNEL, /* caller → init: one end of a channel; see channel.c */
	SB_MSG_NUM
};

struct sb_msg {
	uint32_t type;
	uint32_t id;
	int32_t value;
	char text[AK_ERR_MAX];
};
#define SB_FDS_MAX 8 /* file descriptors in one message */
/* Further descriptors of READY, in this order: the pty's master; the list of init's children. */
enum { SB_READY_TTY = 1, SB_READY_CHILDREN = 2 };

/* The sandbox's user and group ids, outside and inside. */
struct sb_ids {
	uid_t uid; /* the invoker's */
	gid_t gid;
	uid_t outer_uid; /* runs the sandbox: the invoker, or for the host's root an id that owns nothing (0: none available) */
	gid_t outer_gid;
	uid_t inner_uid; /* the same id as seen inside */
	gid_t inner_gid;
	uint32_t sub_uid, sub_gid; /* ids 1 to n_sub of the outer namespace map to the ids from here on; only when n_sub > 0 */
	uint32_t n_sub;
	bool lent; /* the invoker is the host's root, and outer_uid is not */
	bool inner_range; /* map the subordinate ids inside the sandbox too */
};

static inline bool sb_maps_range(const struct sb_ids *ids)
{
	return ids->inner_range && ids->n_sub && ids->inner_uid <= ids->n_sub && ids->inner_gid <= ids->n_sub;
}

/* With a virtual machine: mounts of the host for the process that runs it, and its sockets until it is ready. */
struct sb_vm_host {
	int usr, kvm; /* owned; -1 if none */
};
struct sb_vm_run {
	int port[2], monitor[2], console[2], log, state; /* owned */
	int notices; /* owned; see sb_vm_notes */
	pid_t mux; /* the process that routes frames; the guest's end is its end */
	/* Ask the monitor to end; NULL until it was started. Init cannot kill it: Landlock lets a process signal only its own domain, and the monitor has another. */
	void (*end)(int monitor);
	int room[2]; /* owned; of a parked sandbox: the way to the process that mounts its root (vm_room.c) */
};

/* The most that an id map takes. */
#define SB_MAP_MAX 128

struct sb_ctx {
	const struct sandbox_spec *spec; /* borrowed: outlives us */
	struct sb_trees trees; /* owned; only when ids.lent */
	bool was_parked; /* the job arrived after part of the root was built */
	struct sb_ids ids;
	int ctl; /* the child's end */
	int net_sock; /* borrowed */
	pid_t caller;
	pid_t *init_slot; /* borrowed: shared with the caller; the kernel stores init's pid here before init runs */
	struct cgroup cgroup;
	int exec_fence; /* owned; ruleset that isolates later commands from each other (confine.c); -1 if none */
	int tap_pair[2]; /* owned; with a virtual machine: setup sends the tap to init */
	struct sb_vm_host vm_host;
	struct sb_vm_run vm_run;
	int dial; /* owned, in init: the way to the virtual machine's commands; 0 if there is none */
	pid_t setid_helper; /* in init: the process that removes set-id bits; 0 if there is none */
	bool kernel_pid_max; /* each pid namespace has its own pid_max (Linux 6.14) */
};

/* msg.c: both sides of the control socket. */
int sb_send(int ctl, enum sb_msg_type type, int value, const char *text, int fd);
int sb_send_fds(int ctl, enum sb_msg_type type, uint32_t id, int value, const char *text, const int *fds, size_t n_fds);
/*
 * Returns 1 for a message, 0 at end of file, or -errno. -EMSGSIZE: the message was read, but its descriptors did not
 * fit.
 */
int sb_recv(int ctl, struct sb_msg *ret, int fds[static SB_FDS_MAX], size_t *n_fds);

/* child.c */
_Noreturn void sb_child_fail(int ctl, int exit_code, const struct ak_err *err);
/* Close every descriptor except the N given ones. Negative and repeated ones are allowed. */
int sb_keep_fds(const int *fds, size_t n);

/* Whether an image's root has no other user to change to, so that changing only seems to work. */
static inline bool sb_one_id(const struct sb_ctx *ctx)
{
	return ctx->spec->image_root && ctx->spec->root_inside && !sb_maps_range(&ctx->ids);
}

/* Whether calls of an image's root that ask for set-id bits succeed without them (setid.c), instead of being refused. */
static inline bool sb_removes_set_ids(const struct sandbox_spec *spec)
{
	return spec->image_root && spec->root_inside && spec->isolation != SANDBOX_STRICT && !spec->vm;
}

/* setup.c: main function of the short-lived setup child. */
_Noreturn void sb_setup_main(struct sb_ctx *ctx);

/* idmap.c */
void sb_ids_plan(const struct sandbox_spec *spec, struct sb_ids *ret);
/* Check that there is an id under which the sandbox can run. */
int sb_ids_check(const struct sb_ids *ids, struct ak_err *err);
/*
 * A user namespace in which the ids UID and GID are the lent ones, and no other id exists: for mounts in which nobody else may
 * come to own a file. Returns a descriptor, or -errno.
 */
int sb_ids_owner_ns(const struct sb_ids *ids, uid_t uid, gid_t gid);
/*
 * Give the lent id ownership of the pipes among FDS, so that it can reopen them through /proc as their creator could.
 */
void sb_ids_give_pipes(const struct sb_ids *ids, const int fds[3]);
/*
 * Move the calling process into a new user and network namespace and write its id map. Sets n_sub to 0 when ranges
 * were refused.
 */
int sb_enter_outer(struct sb_ctx *ctx, struct ak_err *err);
/*
 * The same for a gateway that already runs (spec's gw_user_ns): join its user namespace and create a network
 * namespace in it.
 */
int sb_join_outer(struct sb_ctx *ctx, struct ak_err *err);
/* Write the inner namespace's id map: by init itself for a single id, by its parent (for PID) for ranges. */
int sb_map_inner(const struct sb_ids *ids, pid_t pid, struct ak_err *err);
/* The text of that map, without writing it. */
void sb_print_maps(const struct sb_ids *ids, char ret_uid[static SB_MAP_MAX], char ret_gid[static SB_MAP_MAX]);
/* The ids in the namespace of init itself: podman must be root there, and the sandbox's user gets its id in the container. */
static inline struct sb_ids sb_init_ids(const struct sb_ctx *ctx)
{
	struct sb_ids ids = ctx->ids;

	if (ctx->spec->podman)
		ids.inner_uid = ids.inner_gid = 0;
	return ids;
}
/* If a host setting explains the failure, name the setting in ERR. Returns RC. */
int sb_explain_userns(struct ak_err *err, int rc);
/* Whether to join the gateway's namespaces instead of creating them. */
static inline bool sb_joins(const struct sandbox_spec *spec)
{
	return spec->link && spec->gw_user_ns > 0 && spec->gw_net_ns > 0;
}

/*
 * root.c and its parts, for a process that is alone in a new mount namespace. sb_root_base builds everything that
 * does not depend on the job; the host's tree is still visible then. sb_root_job completes the root and moves the
 * process into it, except for podman, which does so in the container.
 */
struct sb_root {
	const struct sb_ctx *ctx;
	int store; /* owned; mount that holds the root's folders; a separate mount only while the root is built */
	int fd; /* owned; the new root */
	int pid_max; /* owned; the pid namespace's own pid_max file, -1 if none */
	bool private_usr; /* /usr gets a writable overlay */
};
int sb_root_base(struct sb_root *r, const struct sb_ctx *ctx, struct ak_err *err);
int sb_root_job(const struct sb_root *r, struct ak_err *err);
void sb_root_done(struct sb_root *r);
bool sb_root_read_only(const struct sandbox_spec *spec);
/* Whether others have written to the root, so that its links must not be followed. */
bool sb_root_guarded(const struct sb_root *r);
int sb_root_failed(struct ak_err *err, int rc, const char *what);
/*
 * Create a folder, a link or a file with TEXT in the root. The parent must exist. Links that a sandbox left in a kept
 * root are not followed.
 */
int sb_root_folder(const struct sb_root *r, const char *path, mode_t mode);
int sb_root_link(const struct sb_root *r, const char *path, const char *target);
int sb_root_write(const struct sb_root *r, const char *path, const char *text);
/* Mount a folder of the store; creates it when missing. */
int sb_root_store(const struct sb_root *r, const char *name, mode_t mode);
/*
 * Create a detached read-only overlay of FOLDER_FD. Its files have other inodes, so its sockets cannot be connected
 * to.
 */
int sb_root_overlay(const struct sb_root *r, int folder_fd);
/*
 * Mount such an overlay over the folder itself in our mount namespace, so that later mounts from there use the
 * overlay.
 */
int sb_root_shield(const struct sb_root *r, int folder_fd);
void sb_root_note_open(const struct sb_root *r, const char *folder, int rc);
/*
 * rootcopy.c: copy the host's folder PATH (with a trailing slash) to the same path in a newly created root. Fails
 * when the folder is large, cannot be read, or holds special files; part of the copy may then remain.
 */
int sb_root_copy(const struct sb_root *r, const char *path);
bool sb_root_is_empty(const char *path); /* false if unknown */
/* rootimage.c: mount an image, below an overlay, as the root; and the user's entry in its /etc/passwd. */
int sb_root_image(struct sb_root *r, struct ak_err *err);
int sb_root_image_users(const struct sb_root *r, struct ak_err *err);
int sb_root_etc(const struct sb_root *r, struct ak_err *err);
int sb_root_resolver(const struct sb_root *r, struct ak_err *err);
int sb_root_names(const struct sb_root *r, struct ak_err *err);
int sb_root_dev(const struct sb_root *r, struct ak_err *err);
int sb_root_proc(struct sb_root *r, struct ak_err *err);

/*
 * job.c: decode a job that arrives in a memory file. The descriptors are the pack, then the streams whose bits are
 * set in the message's VALUE, in ascending order.
 */
struct sb_job {
	struct sandbox_spec spec; /* its strings point into the pack; its streams are owned */
	struct pack pack; /* owned */
	struct sandbox_mount mounts[SB_MOUNTS_MAX];
	struct sandbox_link links[SB_LINKS_MAX];
};
/*
 * Decode SB_MSG_ASSIGN on top of PARKED, the spec that the sandbox was parked with. FDS from *RET_GROUPS on are
 * control groups; entries of FDS that are taken over become -1. Free RET with sb_job_done, also after a failure.
 */
int sb_spec_read(struct sb_job *job); /* only the pack, which is open */
int sb_job_read(const struct sandbox_spec *parked, const struct sb_msg *msg, int *fds, size_t n_fds, struct sb_job *ret,
	size_t *ret_groups);
void sb_job_done(struct sb_job *job);
/* sandbox_park.c: append SPEC to a pack, as sb_spec_read reads it. */
void sb_job_pack(struct strbuf *pack, const struct sandbox_spec *spec);

/* park.c: wait for the job and make its spec the context's. The job's memory is never freed. */
int sb_await_job(struct sb_ctx *ctx, struct ak_err *err);

/* init_loop.c: all of confine.c, for a process that is in its final root. *RET_LISTENER as in sb_confine_seccomp. */
int sb_confine(const struct sb_ctx *ctx, int *ret_listener, struct ak_err *err);

/* confine.c: drop privileges; call in this order. */
/* A keyring of its own, and the bounding set. A parked init calls it while it waits for a job; otherwise sb_confine_caps does. */
int sb_confine_early(const struct sb_ctx *ctx, struct ak_err *err);
int sb_confine_limits(const struct sb_ctx *ctx, struct ak_err *err);
int sb_confine_caps(const struct sb_ctx *ctx, struct ak_err *err);
int sb_confine_landlock(const int stdio[3], struct ak_err *err);
/* *RET_LISTENER: owned by the caller, for sb_setid_start; -1 if there is none. */
int sb_confine_seccomp(const struct sb_ctx *ctx, int *ret_listener, struct ak_err *err);
/* Give up the capability that sb_confine_caps keeps for sb_setid_start; in init, after that. */
int sb_confine_last(const struct sb_ctx *ctx, struct ak_err *err);
/* For the helper of setid.c: keep only that capability and the calls that it needs. */
int sb_confine_helper(void);
/* The index of the file mode among the arguments of the call NR; -1 if it sets none. */
int sb_mode_argument(int nr);
/*
 * Create a ruleset that allows everything: each process that enters it with sb_enter_fence gets a Landlock domain of
 * its own. -1 on a kernel without Landlock.
 */
int sb_make_fence(void);
int sb_enter_fence(int fence);

/* setid.c: start the helper that removes set-id bits. Returns its pid, or -errno. Takes LISTENER over. */
pid_t sb_setid_start(int listener);

/* init.c: main function of pid 1. */
_Noreturn void sb_init_main(struct sb_ctx *ctx, int map_ready_fd);
/* init_loop.c: drop all privileges; then report READY and serve the caller. */
int sb_init_confine(struct sb_ctx *ctx, struct ak_err *err);
_Noreturn void sb_init_serve(struct sb_ctx *ctx);
/* podman.c: instead of both, with podman: give it the root and wait for it. Takes ROOT over. */
_Noreturn void sb_podman_main(struct sb_ctx *ctx, struct sb_root *root);

/* exec.c: run one command in its own process. */
struct sb_command {
	char *const *argv, *const *envp;
	const char *workdir; /* NULL: the home */
	const char *home;
	int tty_slave; /* controlling terminal and all three streams; -1: use STREAMS */
	int streams[3]; /* borrowed; -1: the null device */
	uint32_t nofile; /* limit of open files; 0: the default */
	bool tty; /* wants a terminal; rows and cols are its size, if known */
	uint16_t rows, cols;
	int fence; /* borrowed; -1: none */
	uint32_t mark; /* 0: none */
	int dial; /* borrowed; the way to the virtual machine that runs the command; 0: it runs here */
};
/*
 * leader.c: lead a new session on TTY, with every signal blocked, and return in a child of the leader, the first process of the terminal's foreground.
 * The leader itself forwards signals to that process's group, ends as it ends, and never returns. Without SIGCONT a stopped command stays stopped.
 */
int sb_lead_session(int tty, struct ak_err *err);
/*
 * job.c: decode SB_MSG_EXEC. Strings point into P, which the caller frees. Sets everything except home, tty_slave,
 * nofile, fence and mark.
 */
int sb_command_read(const struct sb_msg *msg, const int *fds, size_t n_fds, struct pack *p, struct sb_command *ret);
struct sb_failure {
	int exit_code; /* 125, 126 or 127 */
	struct ak_err err;
};
/*
 * Start the process without waiting for exec to finish: the program's file can be leased or on a slow file system.
 * *RET_FAILURE (owned by the caller, non-blocking) reaches end of file when the program runs, and delivers a struct
 * sb_failure when it cannot. The command's strings are in P, which is taken over (NULL: they outlive the process).
 * Keep *RET_BIRTH until *RET_FAILURE or the process has ended.
 */
struct sb_birth;
pid_t sb_spawn(const struct sb_command *cmd, struct pack *p, int *ret_failure, struct sb_birth **ret_birth, struct ak_err *err);
void sb_birth_free(struct sb_birth *b);
/*
 * Signal the command's process group, or the process itself before it has created its group; it then takes the signal
 * when it unblocks signals, before exec.
 */
void sb_signal(pid_t pid, int sig);

/* serve.c: commands that arrive later, in init (spec.argv was NULL). */
struct sb_served;
void sb_serve_exec(struct sb_served **list, const struct sb_ctx *ctx, const struct sb_msg *msg, const int *fds, size_t n_fds);
/* Signal the command's process group; SIGKILL ends every process that the command has started. */
void sb_serve_signal(struct sb_served *list, const struct sb_ctx *ctx, uint32_t id, int sig);
/* PID has ended with EXIT_CODE. If it is one of these commands, report that to the caller. */
void sb_serve_reaped(struct sb_served **list, const struct sb_ctx *ctx, pid_t pid, int exit_code);
/* Fill in at most MAX descriptors to poll; returns how many there are in all. Call sb_serve_look after poll. */
size_t sb_serve_poll(const struct sb_served *list, struct pollfd *p, size_t max);
void sb_serve_look(struct sb_served *list, const struct sb_ctx *ctx);

/* channel.c: sockets of the sandbox's network namespace, for the gateway (base/publish.h). */
struct sb_channels {
	int fds[AK_PUBLISH_MAX]; /* owned */
	size_t n;
};
void sb_channel_add(struct sb_channels *c, int fd); /* takes ownership; closes FD when there are too many */
/* Fill in at most MAX descriptors to poll; returns how many there are in all. Call sb_channels_look after poll. */
size_t sb_channels_poll(const struct sb_channels *c, struct pollfd *p, size_t max);
void sb_channels_look(struct sb_channels *c, const struct sb_ctx *ctx);

/* mark.c: mark each command with a number that all its descendants inherit. */
int sb_mark_protect(void); /* call once, in init: afterwards only sb_mark_set can set a mark */
uint32_t sb_mark_next(void);
int sb_mark_set(uint32_t mark);
/* Kill every process with MARK; takes a bounded time. */
void sb_mark_end(uint32_t mark);
/* Count the live processes with MARK and list them: "7 sleep, 9 node", truncated to SIZE. */
unsigned sb_mark_left(uint32_t mark, char *ret_text, size_t size);

/* vm_room.c: open what a virtual machine needs of the host, while the host's tree is visible. */
int sb_vm_open_host(const struct sb_root *r, struct sb_vm_host *ret, struct ak_err *err);
/*
 * vm_host.c: with a virtual machine, start its process, which needs privileges to build its room and then drops them as sb_confine does; and, after init has dropped its own, wait
 * until the guest is ready for commands.
 */
int sb_vm_spawn(struct sb_ctx *ctx, int base, struct ak_err *err);
/* The same for a parked sandbox, whose root BASE is not complete: the guest runs and waits for its job. sb_vm_furnish gives it the root, and sb_vm_start the rest. */
int sb_vm_park(struct sb_ctx *ctx, int base, struct ak_err *err);
int sb_vm_furnish(struct sb_ctx *ctx, struct ak_err *err);
int sb_vm_start(struct sb_ctx *ctx, struct ak_err *err);
/* vm_proxy.c: tell the caller what is known of failures in the guest; whether there was anything. */
bool sb_vm_notes(const struct sb_ctx *ctx);
/* The latest of them, for the command that has ended, instead. */
bool sb_vm_reason(const struct sb_ctx *ctx, struct ak_err *ret);
/* vm_proxy.c: stand for a command in the virtual machine. FAILURE as in sb_spawn. */
_Noreturn void vm_proxy_main(const struct sb_command *cmd, int dial, int failure);
/* Fork a process that connects to a port of the virtual machine's loopback and answers ASK on CHANNEL. 1, or -errno. */
int vm_stream_start(int dial, int channel, const struct ak_socket_ask *ask);

/* init_loop.c: open a new pty in the sandbox. */
int sb_open_pty(int *ret_master, int *ret_slave, struct ak_err *err);

#endif
