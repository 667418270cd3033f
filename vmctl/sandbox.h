/*
 * One sandbox on the namespace backend: from an immutable spec to a process tree and back.
 *
 * Processes: the caller → a short-lived "setup" child (user and network namespaces, gwns.h) → the sandbox's
 * init (pid 1 of its own pid namespace, a child of the caller through CLONE_PARENT) → the command. init finishes
 * the root, confines itself, reports READY and waits for sandbox_go before it runs anything.
 * Whoever dies, the rest follows: init has PDEATHSIG, and its death ends its pid namespace.
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
	SANDBOX_NESTED, /* MODERATE, but the sandbox may make namespaces of its own; never for the host's root */
	SANDBOX_ISOLATION_NUM
};

struct sandbox_mount {
	const char *source; /* host path, absolute, resolved: no part of it may be a symbolic link */
	const char *target; /* path inside, absolute */
	bool readonly;
	bool shielded; /* seen through a read-only overlay: sockets in it lead nowhere */
	/* What SOURCE was when it was named: something else is not mounted. 0, 0: not known. */
	dev_t dev;
	ino_t ino;
};

/* A symbolic link that is made inside, unless something has that name. */
struct sandbox_link {
	const char *path; /* inside, absolute */
	const char *target;
};

struct sandbox_limits {
	uint64_t memory_bytes; /* 0: no limit */
	uint32_t cpus_milli; /* 0: no limit; 1500 is one and a half */
	uint32_t pids; /* 0: the default, 1024 */
	uint32_t nofile; /* of each command; 0: the default, 4096 */
	uint64_t tmp_bytes; /* 0: the default, 512 MiB */
};

/* Everything is borrowed and outlives sandbox_start. */
struct sandbox_spec {
	const char *name; /* also the host name inside */
	/* NULL: nothing runs after GO but what sandbox_exec brings; init stays until it is told. Else exactly as given; argv[0] is looked up
	 * in the sandbox's PATH, inside. */
	char *const *argv;
	char *const *envp; /* the whole environment, with PATH and HOME */
	const char *workdir; /* inside; NULL is the home */
	enum sandbox_isolation isolation;
	bool root_inside; /* uid 0 inside (never with STRICT); else the invoking uid, or 1000 when that is 0 */
	bool readonly_root;
	const char *home; /* path of the home inside; a tmpfs unless mounted over */
	const struct sandbox_mount *mounts;
	size_t n_mounts;
	const struct sandbox_link *links; /* made after the mounts */
	size_t n_links;
	const char *upper_dir; /* host folder that keeps what the sandbox writes to its root, home and /tmp; NULL: tmpfs */
	struct sandbox_limits limits;
	bool tty; /* the command gets a pty as controlling terminal; see sandbox_tty_fd */
	int stdio[3]; /* what the command gets as 0, 1, 2 when not tty; -1 is the null device, a folder is refused */
	const struct gwns_link *link; /* NULL: loopback only */
	/* With a link: attach it to the gateway that lives in these; both -1 (or 0): make new ones for it. */
	int gw_user_ns, gw_net_ns;
	/* READY before the job is known; sandbox_assign brings name, command, home, mounts, limits, tty and stdio, which are not looked at here. */
	bool parked;
	const char *resolv_conf; /* text of /etc/resolv.conf inside */
};

enum sandbox_state {
	SANDBOX_STARTING,
	SANDBOX_READY, /* init waits; the network may be opened */
	SANDBOX_RUNNING,
	SANDBOX_ENDED,
	SANDBOX_STATE_NUM
};

/* How it ended. */
struct sandbox_result {
	int exit_code; /* the command's own, 128+N, 126, 127, or 125 when it never ran */
	bool out_of_memory; /* the memory limit killed something */
	bool pids_hit; /* the process limit was hit */
	struct ak_err err; /* reason for 125, 126 and 127 */
};

struct sandbox;

/* Whether we are root on the host, whatever a user namespace calls us; its sandboxes get ids of their own. */
bool sandbox_is_host_root(void);

/*
 * Fork the setup child and return at once. With a link, the child sends its sockets (enum gwns_fd order, those
 * present, preceded by a uint32_t bit mask of which) as one SCM_RIGHTS message on NET_SOCK (borrowed, SEQPACKET).
 * The sandbox dies with the calling thread. With a memory or cpu limit a second child is forked that removes the control
 * group in the end, whatever becomes of the caller.
 */
int sandbox_start(const struct sandbox_spec *spec, int net_sock, struct sandbox **ret, struct ak_err *err);

/* Readable when sandbox_poll has something to do; for poll(2) or an event loop. */
int sandbox_fd(const struct sandbox *sb);

/* Take what init reported, without blocking; the state now. ENDED is the command's end: sandbox_free waits for the rest. */
enum sandbox_state sandbox_poll(struct sandbox *sb);

/* READY → RUNNING: let init run the command. */
int sandbox_go(struct sandbox *sb, struct ak_err *err);

/* Send a signal to the command's process group, or without a command to every process inside (init forwards it); SIGKILL ends the whole sandbox. */
int sandbox_signal(struct sandbox *sb, int sig);

/* The pty's master side from READY on, when spec.tty; blocking; owned by the sandbox. */
int sandbox_tty_fd(const struct sandbox *sb);
pid_t sandbox_init_pid(const struct sandbox *sb);

/* ---- more commands in a running sandbox (spec.argv was NULL) ---- */

struct sandbox_exec {
	char *const *argv;
	char *const *envp;
	const char *workdir; /* NULL: the home */
	bool tty;
	uint16_t rows, cols; /* with tty: its first size; 0 leaves it open */
	int stdio[3]; /* borrowed; without tty. -1 is the null device, a folder is refused */
};

enum sandbox_exec_state { SANDBOX_EXEC_STARTED, SANDBOX_EXEC_ENDED, SANDBOX_EXEC_STATE_NUM };

struct sandbox_exec_event {
	uint32_t id; /* the caller's own */
	enum sandbox_exec_state state;
	int tty_fd; /* STARTED with tty: the pty's master, blocking, now the receiver's; else -1 */
	int exit_code; /* ENDED: the command's own, 128+N, 125, 126 or 127 */
	struct ak_err err; /* ENDED with 125–127, or because the sandbox did: why */
	unsigned n_left; /* ENDED: processes that it started and that go on */
	char left[AK_ERR_MAX]; /* which, as far as they fit: "7 sleep, 9 node" */
};

/*
 * Run one more, confined exactly as the first would be. Any number at once up to the process limit. ID is unique among those whose end was
 * not fetched yet. -E2BIG past 4 MiB of arguments and environment. Streams that are the host's files can be used, but not opened again by path
 * (/dev/stdout): the sandbox's fence around files was closed before they came. Pipes, sockets and the pty can.
 */
int sandbox_exec(struct sandbox *sb, uint32_t id, const struct sandbox_exec *ex, struct ak_err *err);

/*
 * A signal for the command's process group. SIGKILL ends everything that the command has started, whatever sessions and groups that has made; ENDED comes
 * after it. -ESRCH when the command has ended.
 */
int sandbox_exec_signal(struct sandbox *sb, uint32_t id, int sig);

/*
 * The next event after sandbox_poll, or false. STARTED comes when the program runs, and not at all for one that could not start; ENDED comes
 * exactly once for every command, also when the sandbox ends under it. What a command that ended by itself left in the background goes on, and is told.
 */
bool sandbox_exec_next(struct sandbox *sb, struct sandbox_exec_event *ret);

/* O_PATH descriptor of the sandbox's root, for openat2 with RESOLVE_IN_ROOT; owned by the caller. In READY and RUNNING; -ENOENT otherwise. */
int sandbox_root_fd(const struct sandbox *sb);

/* ---- a parked sandbox becomes a job ---- */

/*
 * Give a READY parked sandbox what it lacks: argv, envp, workdir, mounts, home, name, limits, tty and stdio of SPEC (its isolation, readonly_root and
 * root_inside must be those it was parked with, and it keeps nothing: -EINVAL otherwise; link and resolv_conf stay). It is STARTING again, then READY
 * when the root is complete, or ENDED. Its mounts need dev and ino as the caller sees them: where init sees something else it ends, because a mount
 * that was made after parking is not visible to it. For the same reason -ESTALE when any mount of the host has changed since. Whatever fails here, a
 * cold start would not; the sandbox is good for nothing then.
 */
int sandbox_assign(struct sandbox *sb, const struct sandbox_spec *spec, struct ak_err *err);

/* Whether a parked sandbox cannot take a job any more because the host's mounts have changed. */
bool sandbox_stale(struct sandbox *sb);

/* Only in state ENDED. */
const struct sandbox_result *sandbox_result(const struct sandbox *sb);

/* Limits that could not be applied on this host, one line each, "" when all are ("no writable cgroup: memory limit off"). */
const char *sandbox_notes(const struct sandbox *sb);

/* Its processes have ended, so that sandbox_free does not wait. They take a moment after they were killed: the kernel unmounts what they saw. */
bool sandbox_gone(const struct sandbox *sb);

/* Kill what is left, reap, remove cgroup. NULL is fine. */
void sandbox_free(struct sandbox *sb);

#endif
