/*
 * The daemon: each user has one. It hosts the gateway of all persistent sandboxes, their live policies and logs, and the warm pool.
 *
 * RUNTIME/daemon.sock takes requests (ipc/ipc.h). Each gets one reply unless noted otherwise; a failure replies {"error":…,"code":errno}:
 *   {"op":"ping"} → {"pid":N,"version":…}
 *   {"op":"start","name":…,"accept_dir":bool,"disk_bytes":N} → SandboxInfo (EALREADY if running) · {"op":"stop","name":…,"grace_ms":N} → SandboxInfo (EALREADY if stopped)
 *   {"op":"remove","name":…,"force":bool} → {"changed"?} of its last stop (EBUSY if running)
 *   {"op":"list"} → {"sandboxes":[SandboxInfo…]} · {"op":"get","name":…} → SandboxInfo
 *        SandboxInfo: store/info.h, with status stopped|starting|running|stopping, the notes of the last start and changed? of the last stop
 *   {"op":"counts"} → {"started_us","lost","modes":{MODE:counts}}: log/stats.h, summed over all sandboxes since the daemon started
 *   {"op":"policy","name":…,"edits":[{"op":"allow-host"|"block-host"|"allow-cidr"|"block-cidr"|"default"|"remove","text":…,"for_ms":N}],
 *        "reset":bool,"mcp":bool} → the policy now in force: sandbox_policy_json of store/info.h
 *   {"op":"publish","name":…,"publish":[port…],"remove":[port…]} → SandboxInfo; a port is a text as of --publish; kept for the next start
 *   {"op":"snapshot","name":…,"tag":…} → {"tag","bytes","files","created_at"} · {"op":"snapshot_remove","name":…,"tag":…} → {}
 *   {"op":"restore","name":…,"tag":…} → SandboxInfo · {"op":"fork","name":…,"new":…,"tag":…} → SandboxInfo of the new one; EBUSY if it is running
 *   {"op":"status"} → {"pid","version","started_us","gateway":{"state","pid","restarts","reason"?},"sandboxes":{"total","running"},
 *        "pool":[{"mode","min","max","warm","building","in_use","hits","misses","failed","reason"?}]}
 *   {"op":"prewarm","mode":…,"count":N,"backend":"ns"|"vm","wait":bool} → {"mode","warm","min"}; keeps N warm from now on; waits until they are, unless wait is false
 *   {"op":"run",…} + fds 0,1,2, listeners (daemon_run_send) → {"event":"started","name":…} [+ the pty's master], then
 *        {"event":"exit"} with the members of run_report_to_json. Meanwhile the client may send {"op":"signal","sig":N}; disconnecting
 *        ends the job. EAGAIN when no warm sandbox fits: the caller then silently takes the cold path
 *   {"op":"shutdown"} → {}
 */
#ifndef AK_DAEMON_H
#define AK_DAEMON_H

#include "gateway/base/err.h"
#include "gateway/base/paths.h"
#include "gateway/store/plan.h"

#include <stdbool.h>

#define DAEMON_CLIENTS_MAX 256
#define DAEMON_WARM_MAX 128 /* per mode */
#define DAEMON_WARM_DEFAULT_MAX 8

/* How many warm sandboxes to keep per mode. A min of 0 keeps none; a max of 0 means DAEMON_WARM_DEFAULT_MAX. */
struct daemon_conf {
	unsigned min_warm[AK_MODE_NUM], max_warm[AK_MODE_NUM];
	bool vm[AK_MODE_NUM]; /* in virtual machines */
	bool healing; /* started by the healer, not by a user: give up if a user has stopped the daemon in the meantime */
};

/*
 * Run the daemon in this process until it is told to end. LISTENER is -1, or a socket passed by a service manager; CONF may be NULL. Once the daemon
 * serves, it writes the int 0 to READY_FD (may be -1) and closes it. If it fails before that, READY_FD still belongs to the caller.
 */
int daemon_serve(const struct ak_paths *paths, const struct daemon_conf *conf, int listener, int ready_fd, struct ak_err *err);

/* Connect. If no daemon is running and START is set, start a detached one first and wait until it serves. */
int daemon_connect(const struct ak_paths *paths, bool start, struct ak_err *err);

/* Start a detached daemon and wait until it serves: 0, or -EADDRINUSE if one is already running. CONF may be NULL. */
int daemon_spawn(const struct ak_paths *paths, const struct daemon_conf *conf, struct ak_err *err);

/* The hidden command HEAL_WORD (super/super.h): restarts the daemon of running sandboxes. See daemon/heal.c. */
int daemon_heal_main(void);

int daemon_socket_path(const struct ak_paths *paths, char ret[static PATH_MAX]);

/* Send {"op":"run"} for OPTS and its PLAN, with the streams and the listeners of its published ports. The caller reads the events from SOCK. */
int daemon_run_send(
	int sock, const struct run_request *opts, const struct run_plan *plan, const int *fds, size_t n_fds, struct ak_err *err);

#endif
