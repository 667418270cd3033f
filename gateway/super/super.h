/*
 * The supervisor of one running persistent sandbox: a small process that outlives the daemon.
 *
 * It owns the sandbox (init is its child), keeps the gateway's user and network namespace open, and serves RUNTIME/sb/NAME.sock:
 *
 *   {"op":"exec","argv":[…],"env":[…],"workdir":…,"tty":bool,"rows":N,"cols":N,"timeout_ms":N} + fds 0,1,2 (none with tty)
 *        → {"event":"started","id":N} [+ the pty's master], later {"event":"exit","id":N,"exit_code":N,"timed_out":bool}, with
 *          "error" and "code" beside it for 125, 126, 127, and "n_left" and "left" ("7 sleep, 9 node") when processes go on; the client may send {"op":"signal","sig":N} meanwhile; a client that leaves
 *          ends its command and all that it started, as a time limit does. One command at a time on one connection.
 *   {"op":"root"}        → {} + O_PATH descriptor of the sandbox's root (for openat2 with RESOLVE_IN_ROOT)
 *   {"op":"namespaces"}  → {"name":…,"uuid":…,"link_id":N,"pid":N,…} + user ns, gateway net ns, the sandbox's rtnetlink (none without
 *        network): what a (new) daemon needs to adopt it
 *   {"op":"stop","grace_ms":N} → {} when everything inside has ended (SIGTERM, then SIGKILL); the supervisor ends after it
 *
 * The sandbox's environment, limits, mounts and isolation are those of its state_sandbox.
 */
#ifndef AK_SUPER_H
#define AK_SUPER_H

#include "gateway/base/err.h"
#include "gateway/base/paths.h"
#include "gateway/store/state.h"

#include <sys/types.h>

#define SUPER_GRACE_MS 5000 /* from SIGTERM to SIGKILL, unless told otherwise */

/*
 * Start a supervisor, detached from the caller (own session, reparented, survives it), for S inside the gateway's namespaces USER_NS and NET_NS
 * (-1, -1 when it has no network). Returns at once; the rest is said on *RET_CONTROL (ipc/ipc.h):
 *
 *   ← {"event":"ready","pid":N,"init_pid":N,"notes":…} [+ the sandbox's rtnetlink]: init waits, nothing runs yet, the gateway may install
 *     rules and bring the link up; or {"error":…,"code":N} and the end
 *   → {"op":"go"}
 *   ← {"event":"running"}: it serves its socket, and *RET_CONTROL like any other connection to it
 *
 * Whoever closes *RET_CONTROL before "go" ends it.
 */
int super_spawn(const struct state_sandbox *s, int user_ns, int net_ns, int *ret_control, struct ak_err *err);

#define SUPER_WORD "supervise" /* hidden command: the supervisor itself */
int super_main(void);

#define HEAL_WORD "heal" /* hidden command: the healer, which restarts a dead daemon; see super/watch.c and daemon/heal.c */

/* Does anyone listen on the daemon's socket: a daemon, or a service manager that starts one on the first connection? Never waits. */
bool super_daemon_served(const struct ak_paths *paths);

/* The supervisor's socket of NAME; -ENOENT/-ECONNREFUSED when it does not run. */
int super_connect(const struct ak_paths *paths, const char *name, struct ak_err *err);
int super_path(const struct ak_paths *paths, const char *name, char ret[static PATH_MAX]);

#endif
