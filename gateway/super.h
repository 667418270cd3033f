/*
 * The supervisor of one running persistent sandbox: a small process that outlives the daemon.
 *
 * It owns the sandbox (init is its child), keeps the gateway's user and network namespace open, and serves RUNTIME/sb/NAME.sock:
 *
 *   {"op":"exec","argv":[…],"env":[…],"workdir":…,"tty":bool,"timeout_ms":N} + fds 0,1,2 (none with tty)
 *        → {"event":"started","id":N} [+ the pty's master], later {"event":"exit","id":N,"exit_code":N,"timed_out":bool} or
 *          {"error":…,"code":…,"exit_code":126|127}; the client may send {"op":"signal","sig":N} meanwhile; a client that leaves ends its command
 *   {"op":"root"}        → {} + O_PATH descriptor of the sandbox's root (for openat2 with RESOLVE_IN_ROOT)
 *   {"op":"namespaces"}  → {"name":…,"link_id":N,…} + user ns, gateway net ns, the sandbox's rtnetlink: what a (new) daemon needs to adopt it
 *   {"op":"status"}      → {"execs":N,"init_pid":N,"started_us":N}
 *   {"op":"stop","grace_ms":N} → {} when everything inside has ended (SIGTERM, then SIGKILL)
 *
 * The sandbox's environment, limits, mounts and isolation are those of its state_sandbox.
 */
#ifndef AK_SUPER_H
#define AK_SUPER_H

#include "gateway/base/err.h"
#include "gateway/paths.h"
#include "gateway/state.h"

#include <sys/types.h>

/*
 * Start a supervisor, detached from the caller (own session, reparented, survives it), for S inside the gateway's namespaces USER_NS and NET_NS (-1, -1 when it has
 * no network). Returns when init is READY (not yet running anything): the sandbox's rtnetlink socket is in *RET_PEER_RTNL (-1 without network), so that
 * the gateway can install rules and bring the link up; super_go then lets it serve.
 */
int super_start(const struct ak_paths *paths, const struct state_sandbox *s, int user_ns, int net_ns, int *ret_control, int *ret_peer_rtnl,
	struct ak_err *err);
int super_go(int control, struct ak_err *err); /* takes CONTROL over; the supervisor serves its socket from here on */

/* The supervisor's socket of NAME; -ENOENT/-ECONNREFUSED when it does not run. */
int super_connect(const struct ak_paths *paths, const char *name);

#endif
