/*
 * One sandbox on the namespace backend, from an immutable spec to its result.
 *
 * Processes: the caller → a short-lived "setup" child (user and network namespaces, gwns.h) → the sandbox's init (pid
 * 1 of its pid namespace, and a child of the caller through CLONE_PARENT) → the command. init completes the root,
 * confines itself, reports READY and waits for sandbox_go before it runs anything. If one of them dies, the rest
 * follows: init has PDEATHSIG, and its death ends its pid namespace.
 */
#ifndef AK_SANDBOX_H
#define AK_SANDBOX_H

#include "gateway/base/err.h"
#include "vmctl/gwns.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum sandbox_isolation {
	SANDBOX_MODERATE,
	SANDBOX_STRICT, /* tighter system-call filter, never root inside */
	SANDBOX_NESTED, /* MODERATE, but the sandbox may create namespaces; never for the host's root */
	SANDBOX_ISOLATION_NUM
};

struct sandbox_mount {
	const char *source; /* host path, absolute and resolved: no component may be a symbolic link */
	const char *target; /* path inside, absolute */
	bool readonly;
	bool shielded; /* mounted through a read-only overlay: its sockets cannot be connected to */
	bool given; /* for the host's root: its files belong to the sandbox's own ids on disk too, instead of being mapped to root */
	/* Identity of SOURCE when the user named it; anything else is not mounted. 0, 0: unknown. */
	dev_t dev;
	ino_t ino;
};

/* A symbolic link to create inside, unless the name exists. */
struct sandbox_link {
	const char *path; /* inside, absolute */
	const char *target;
};

/* A small text file to create inside, replacing what is there. */
struct sandbox_file {
	const char *path; /* inside, absolute; NULL: none */
	const char *text;
};
#define SANDBOX_FILES_MAX 3

#define SANDBOX_PIDS_DEFAULT 1024u
#define VM_MEMORY_DEFAULT_MB 512u

struct sandbox_limits {
	uint64_t memory_bytes; /* 0: no limit */
	uint32_t cpus_milli; /* 0: no limit; 1500 is one and a half */
	uint32_t pids; /* 0: SANDBOX_PIDS_DEFAULT */
	uint32_t nofile; /* of each command; 0: the default, 4096 */
	uint64_t tmp_bytes; /* 0: the default, 512 MiB */
	uint64_t disk_bytes; /* what upper_dir may hold; 0: no limit. Whoever runs the sandbox measures it: run/disk.h */
};

/* Everything is borrowed and must outlive sandbox_start. */
struct sandbox_spec {
	const char *name; /* also the host name inside */
	/*
	 * The command, exactly as given; argv[0] is looked up in the sandbox's PATH. NULL: init runs only commands
	 * from sandbox_exec and stays until it is stopped.
	 */
	char *const *argv;
	char *const *envp; /* the whole environment, with PATH and HOME */
	const char *workdir; /* inside; NULL is the home */
	enum sandbox_isolation isolation;
	bool root_inside; /* uid 0 inside (never with STRICT); else the invoking uid, or 1000 when that is 0 */
	bool readonly_root;
	/*
	 * Host folder with the unpacked file system of an image, which becomes the root instead of the host's programs. It stays
	 * unchanged: a private overlay takes what the sandbox writes. NULL: the host's programs.
	 */
	const char *image_root;
	/* With image_root: the ids inside of the image's user. They are the invoker's outside; uid 0 wants root_inside. */
	bool has_ids;
	uid_t uid;
	gid_t gid;
	const char *home; /* path of the home inside; a tmpfs unless something is mounted there */
	const struct sandbox_mount *mounts;
	size_t n_mounts;
	const struct sandbox_link *links; /* created after the mounts */
	size_t n_links;
	struct sandbox_file files[SANDBOX_FILES_MAX]; /* created before the mounts */
	const char *upper_dir; /* host folder that keeps the sandbox's changes to its root, home and /tmp; NULL: tmpfs */
	struct sandbox_limits limits;
	bool pids_counted; /* set by sandbox_assign: a control group counts the processes */
	bool tty; /* give the command a pty as controlling terminal; see sandbox_tty_fd */
	int stdio[3]; /* the command's 0, 1, 2 without tty; -1 is the null device, a folder is refused */
	const struct gwns_link *link; /* NULL: loopback only */
	/* With a link: namespaces of the gateway to attach it to. Both -1 or 0: create them. */
	int gw_user_ns, gw_net_ns;
	/*
	 * Become READY before the job is known. sandbox_assign brings name, command, home, mounts, limits, tty and
	 * stdio, which are ignored here.
	 */
	bool parked;
	const char *resolv_conf; /* content of /etc/resolv.conf inside */
	bool kvm; /* show /dev/kvm inside: for the program that boots a guest, and nothing else */
	int debug; /* with vm: lines of the guest's console go here; 0: nowhere */
	const struct sandbox_vm *vm; /* run the commands in a virtual machine inside (vm.h); NULL: do not */
	const struct sandbox_podman *podman; /* run them in a container that podman makes of the root (podman.h); NULL: do not */
};

enum sandbox_state {
	SANDBOX_STARTING,
	SANDBOX_READY, /* init waits for sandbox_go; the network may be opened */
	SANDBOX_RUNNING,
	SANDBOX_ENDED,
	SANDBOX_STATE_NUM
};

/* How the sandbox ended. */
struct sandbox_result {
	int exit_code; /* the command's own, 128+N, 126, 127, or 125 if it never ran */
	bool out_of_memory; /* the memory limit killed a process */
	bool pids_hit; /* the process limit was hit */
	struct ak_err err; /* reason of 125, 126 and 127 */
};

struct sandbox;

/*
 * Whether we are root on the host, whatever our id in a user namespace. Sandboxes of the host's root get ids of their
 * own.
 */
bool sandbox_is_host_root(void);

/*
 * ak_remove_tree (base/io.h) for what a sandbox with other users left: an ordinary user may remove files of their subordinate ids only
 * from a user namespace that maps them.
 */
int sandbox_remove_tree(int dirfd, const char *name);

/*
 * What the files of a sandbox take on the disk: those below DIR, an upper_dir, and with INIT those without a name that its processes hold open. Not seen are files that
 * are only mapped, or in flight in a socket.
 */
struct sandbox_measure {
	const char *dir;
	pid_t init; /* sandbox_init_pid; 0: no process runs */
	uint64_t enough; /* the walk may stop beyond so many bytes; 0: it may not */
};
struct sandbox_usage {
	uint64_t bytes;
	bool too_deep; /* folders below the depth that we look at, or more descriptors than we look at: the rest is not known */
};

/* Measure in a child. The descriptor is readable when sandbox_measure_end, which closes it, has the result; -EAGAIN before. */
pid_t sandbox_measure_begin(const struct sandbox_measure *m, int *ret_fd);
int sandbox_measure_end(pid_t pid, int fd, struct sandbox_usage *ret);
int sandbox_measure_now(const struct sandbox_measure *m, struct sandbox_usage *ret); /* both, and wait */

/*
 * Fork the setup child and return at once. With a link, the child sends its sockets as one SCM_RIGHTS message on
 * NET_SOCK (borrowed, SEQPACKET): those present, in the order of enum gwns_fd, after a uint32_t bit mask of which are
 * present. The sandbox dies with the calling thread. With a memory or cpu limit, a second child is forked, which
 * removes the control group at the end even if the caller dies.
 */
int sandbox_start(const struct sandbox_spec *spec, int net_sock, struct sandbox **ret, struct ak_err *err);

/* Readable when sandbox_poll has something to do; for poll(2) or an event loop. */
int sandbox_fd(const struct sandbox *sb);

/*
 * Process init's messages without blocking; returns the new state. ENDED means that the command has ended:
 * sandbox_free waits for the rest.
 */
enum sandbox_state sandbox_poll(struct sandbox *sb);

/* READY → RUNNING: tell init to run the command. */
int sandbox_go(struct sandbox *sb, struct ak_err *err);

/*
 * Send a signal to the command's process group, or without a command to every process inside (init forwards it).
 * SIGKILL ends the whole sandbox.
 */
int sandbox_signal(struct sandbox *sb, int sig);

/* The pty's master from READY on, with spec.tty. Blocking; owned by the sandbox. */
int sandbox_tty_fd(const struct sandbox *sb);
pid_t sandbox_init_pid(const struct sandbox *sb);

/* Whether no command is left inside. If the kernel cannot tell, it says no. */
bool sandbox_idle(const struct sandbox *sb);

/* ---- more commands in a running sandbox (spec.argv was NULL) ---- */

struct sandbox_exec {
	char *const *argv;
	char *const *envp;
	const char *workdir; /* NULL: the home */
	bool tty;
	uint16_t rows, cols; /* with tty: its initial size; 0: not set */
	int stdio[3]; /* borrowed; without tty. -1 is the null device, a folder is refused */
};

enum sandbox_exec_state { SANDBOX_EXEC_STARTED, SANDBOX_EXEC_ENDED, SANDBOX_EXEC_STATE_NUM };

struct sandbox_exec_event {
	uint32_t id; /* chosen by the caller */
	enum sandbox_exec_state state;
	int tty_fd; /* STARTED with tty: the pty's master, blocking, owned by the receiver; else -1 */
	int exit_code; /* ENDED: the command's own, 128+N, 125, 126 or 127 */
	struct ak_err err; /* ENDED with 125–127, or because the sandbox ended: the reason */
	unsigned n_left; /* ENDED: processes of the command that are still running */
	char left[AK_ERR_MAX]; /* a list of them, truncated: "7 sleep, 9 node" */
};

/*
 * Run one more command, confined exactly like the first. Any number can run at once, up to the process limit. ID must
 * be unique among the commands whose end has not been fetched. -E2BIG beyond 4 MiB of arguments and environment.
 * Streams that are files of the host can be used but not reopened by path (/dev/stdout), because the sandbox's
 * Landlock rules were fixed before they arrived. Pipes, sockets and the pty can be reopened.
 */
int sandbox_exec(struct sandbox *sb, uint32_t id, const struct sandbox_exec *ex, struct ak_err *err);

/*
 * Signal the command's process group. SIGKILL ends every process that the command has started, whatever its session
 * and group; ENDED follows. -ESRCH when the command has ended.
 */
int sandbox_exec_signal(struct sandbox *sb, uint32_t id, int sig);

/*
 * Fetch the next event after sandbox_poll; false when there is none. STARTED comes when the program runs, and never
 * for one that could not start. ENDED comes exactly once for every command, also when the sandbox ends first.
 * Processes that a command leaves behind when it exits keep running and are reported.
 */
bool sandbox_exec_next(struct sandbox *sb, struct sandbox_exec_event *ret);

/*
 * O_PATH descriptor of the sandbox's root, for openat2 with RESOLVE_IN_ROOT. The caller owns it. -ENOENT unless READY
 * or RUNNING.
 */
int sandbox_root_fd(const struct sandbox *sb);

/*
 * Give init one end of a channel (FD, borrowed), by which the gateway gets sockets of the sandbox's network namespace (base/publish.h). The channel ends
 * when the other end is closed. READY or RUNNING only; at most AK_PUBLISH_MAX at once.
 */
int sandbox_channel(struct sandbox *sb, int fd, struct ak_err *err);

/* ---- give a parked sandbox a job ---- */

/*
 * Give a READY parked sandbox argv, envp, workdir, mounts, home, name, limits, tty and stdio of SPEC. -EINVAL unless
 * isolation, readonly_root and root_inside are those it was parked with, and upper_dir is NULL; link and resolv_conf
 * do not change. The state becomes STARTING, then READY when the root is complete, or ENDED.
 *
 * The mounts need dev and ino as the caller sees them: init does not see mounts made after it was parked, and ends if
 * it finds something else. For the same reason the call fails with -ESTALE when any mount of the host has changed
 * since. After a failure here the sandbox is unusable, but a cold start can still work.
 */
int sandbox_assign(struct sandbox *sb, const struct sandbox_spec *spec, struct ak_err *err);

/* Whether a parked virtual machine can take the job of SPEC: without limits of memory and processors, and without mounts below /usr. */
bool sandbox_warm_vm(const struct sandbox_spec *spec);

/* Whether a parked sandbox can no longer take a job, because the host's mounts have changed. */
bool sandbox_stale(struct sandbox *sb);

/* Only in state ENDED. */
const struct sandbox_result *sandbox_result(const struct sandbox *sb);

/* How many of its processes the memory limit has killed so far; 0 where nobody counts. */
uint64_t sandbox_oom_kills(const struct sandbox *sb);

/* How many new processes the process limit has refused so far; 0 where nobody counts. */
uint64_t sandbox_pids_refused(const struct sandbox *sb);

/* Limits that could not be applied on this host, one line each ("no writable cgroup: memory limit off"); "" if none. */
const char *sandbox_notes(const struct sandbox *sb);

/*
 * Whether all processes have ended, so that sandbox_free does not wait. After a kill this takes a moment: the kernel
 * unmounts their file systems.
 */
bool sandbox_gone(const struct sandbox *sb);

/* Kill and reap the remaining processes and remove the control group. NULL is allowed. */
void sandbox_free(struct sandbox *sb);

#endif
