/*
 * The supervisor of one running persistent sandbox: a small process that outlives the daemon.
 *
 * It owns the sandbox (init is its child), keeps the gateway's user and network namespaces open, and serves RUNTIME/sb/NAME.sock:
 *
 *   {"op":"exec","argv":[…],"env":[…],"workdir":…,"tty":bool,"rows":N,"cols":N,"timeout_ms":N} + fds 0,1,2 (none with tty)
 *        → {"event":"started","id":N} [+ the pty's master], later {"event":"exit","id":N,"exit_code":N,"timed_out":bool}, also with
 *          "error" and "code" for 125, 126 and 127, and with "n_left" and "left" ("7 sleep, 9 node") if background processes are left. "oom_limit" is the memory
 *          limit in bytes, if it killed a process of the sandbox meanwhile, "pids_limit" the process limit, if it was reached; "out_of_disk" with "disk_limit" tells that the sandbox is ended.
 *          Meanwhile the client may send {"op":"signal","sig":N}. When the client disconnects or the timeout expires, the command and all
 *          processes that it started are killed. One command at a time per connection.
 *   {"op":"root"}        → {} + O_PATH descriptor of the sandbox's root (for openat2 with RESOLVE_IN_ROOT)
 *   {"op":"namespaces"}  → {"name":…,"uuid":…,"link_id":N,"pid":N,…} + user ns, gateway net ns, the sandbox's rtnetlink socket (none without
 *        network): what a new daemon needs to adopt the sandbox
 *   {"op":"channel"} + one end of a channel → {}: pass it to init, for a published port (base/publish.h)
 *   {"op":"stop","grace_ms":N} → {} once all processes inside have ended (SIGTERM, then SIGKILL); then the supervisor ends
 *
 * Environment, limits, mounts and isolation of the sandbox come from its state_sandbox.
 */
#ifndef AK_SUPER_H
#define AK_SUPER_H

#include "gateway/base/err.h"
#include "gateway/base/paths.h"
#include "gateway/store/state.h"
#include "vmctl/vm.h"

#include <sys/types.h>

#define SUPER_GRACE_MS 5000 /* from SIGTERM to SIGKILL, unless the request gives another time */

/*
 * Start a supervisor for S, detached from the caller (own session, reparented, survives it), inside the gateway's namespaces USER_NS and NET_NS
 * (-1, -1 without network). A virtual machine is restored from VM (borrowed); if that is SANDBOX_VM_NONE, the supervisor opens its own. Returns at once; the start continues with messages on *RET_CONTROL (ipc/ipc.h):
 *
 *   ← {"event":"ready","pid":N,"init_pid":N,"notes":…} [+ the sandbox's rtnetlink socket]: init waits and no command runs yet; the gateway may
 *     install rules and bring the link up. Or {"error":…,"code":N}, and the supervisor ends
 *   → {"op":"go"}
 *   ← {"event":"running"}: it serves its socket, and *RET_CONTROL like any other connection
 *
 * If *RET_CONTROL is closed before "go", the supervisor ends.
 */
int super_spawn(const struct state_sandbox *s, int user_ns, int net_ns, const struct sandbox_vm *vm, int *ret_control,
	struct ak_err *err);

#define SUPER_WORD "supervise" /* hidden command: run as a supervisor */
int super_main(void);

#define HEAL_WORD "heal" /* hidden command: the healer, which restarts a dead daemon; see super/watch.c and daemon/heal.c */

/* Does a process listen on the daemon's socket: a daemon, or a service manager that starts one on the first connection? Never blocks. */
bool super_daemon_served(const struct ak_paths *paths);

/* Connect to the supervisor of sandbox NAME; -ENOENT or -ECONNREFUSED if the sandbox is not running. */
int super_connect(const struct ak_paths *paths, const char *name, struct ak_err *err);
int super_path(const struct ak_paths *paths, const char *name, char ret[static PATH_MAX]);

#endif
