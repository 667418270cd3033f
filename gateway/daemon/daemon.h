/*
 * The daemon: one a user. Hosts the gateway of all persistent sandboxes, their live policies and logs, and the warm pool.
 *
 * RUNTIME/daemon.sock takes requests (ipc/ipc.h); each answers once unless said otherwise, with {"error":…,"code":errno} when it fails:
 *   {"op":"ping"} → {"pid":N,"version":…}
 *   {"op":"start","name":…,"accept_dir":bool} → SandboxInfo (EALREADY) · {"op":"stop","name":…,"grace_ms":N} → SandboxInfo (EALREADY when it is stopped)
 *   {"op":"remove","name":…,"force":bool} → {} (EBUSY when it runs)
 *   {"op":"list"} → {"sandboxes":[SandboxInfo…]} · {"op":"get","name":…} → SandboxInfo
 *        SandboxInfo: store/info.h, with status stopped|starting|running|stopping, and notes, changed? of its last start and stop
 *   {"op":"counts"} → {"started_us","lost","modes":{MODE:counts}}: log/stats.h, of all sandboxes since the daemon started
 *   {"op":"policy","name":…,"edits":[{"op":"allow-host"|"block-host"|"allow-cidr"|"block-cidr"|"default"|"remove","text":…,"for_ms":N}],
 *        "reset":bool,"mcp":bool} → what is in force now: sandbox_policy_json of store/info.h
 *   {"op":"status"} → {"pid","version","started_us","gateway":{"state","pid","restarts","reason"?},"sandboxes":{"total","running"},
 *        "pool":[{"mode","min","max","warm","building","in_use","hits","misses","failed","reason"?}]}
 *   {"op":"prewarm","mode":…,"count":N,"wait":bool} → {"mode","warm","min"}; keeps N warm from here on; waits for them unless told not to
 *   {"op":"run",…} + fds 0,1,2 (daemon_run_send) → {"event":"started","name":…} [+ the pty's master], then
 *        {"event":"exit"} with the members of run_report_to_json; the
 *        client may send {"op":"signal","sig":N} meanwhile, and ends the job by leaving. EAGAIN when no warm sandbox fits: the
 *        caller then takes the cold path without a word
 *   {"op":"shutdown"} → {}
 */
#ifndef AK_DAEMON_H
#define AK_DAEMON_H

#include "gateway/base/err.h"
#include "gateway/base/paths.h"
#include "gateway/store/plan.h"

#include <stdbool.h>

#define DAEMON_CLIENTS_MAX 256
#define DAEMON_WARM_MAX 128 /* of one mode */
#define DAEMON_WARM_DEFAULT_MAX 8

/* How many warm sandboxes to keep; zero is none, and a max of zero is the default. */
struct daemon_conf {
	unsigned min_warm[AK_MODE_NUM], max_warm[AK_MODE_NUM];
	bool healing; /* it replaces a dead one, no user asked for it: give up if a user has stopped the daemon meanwhile */
};

/* Run it in this process until it is told to end. LISTENER is -1, or a socket passed by a service manager. */
int daemon_main(const struct ak_paths *paths, int listener, struct ak_err *err);

/* The same with CONF (may be NULL); READY_FD (may be -1) gets the int 0 and is closed once it serves, and is still the caller's when that fails. */
int daemon_serve(const struct ak_paths *paths, const struct daemon_conf *conf, int listener, int ready_fd, struct ak_err *err);

/* Connect; with START, start a detached daemon first when none is there and wait until it answers. */
int daemon_connect(const struct ak_paths *paths, bool start, struct ak_err *err);

/* Start a detached daemon and wait until it serves: 0, or -EADDRINUSE when there is one already. CONF may be NULL. */
int daemon_spawn(const struct ak_paths *paths, const struct daemon_conf *conf, struct ak_err *err);

/* The hidden command HEAL_WORD (super/super.h): brings back the daemon of running sandboxes. See daemon/heal.c. */
int daemon_heal_main(void);

int daemon_socket_path(const struct ak_paths *paths, char ret[static PATH_MAX]);

/* Send {"op":"run"} for OPTS with its PLAN. The caller reads the events from SOCK. */
int daemon_run_send(
	int sock, const struct run_request *opts, const struct run_plan *plan, const int stdio[3], struct ak_err *err);

#endif
