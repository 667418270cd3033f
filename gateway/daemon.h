/*
 * The daemon: one a user. Hosts the gateway of all persistent sandboxes, their live policies and logs, and the warm pool.
 *
 * RUNTIME/daemon.sock takes requests (ipc.h); each answers once unless said otherwise:
 *   {"op":"ping"} → {"pid":N,"version":…}
 *   {"op":"create",…state fields…} · {"op":"start","name":…} · {"op":"stop","name":…} · {"op":"remove","name":…,"force":bool}
 *   {"op":"list"} → {"sandboxes":[SandboxInfo + allowed, denied, address]} · {"op":"get","name":…}
 *   {"op":"policy","name":…,"edits":[{"op":…,"text":…,"for_ms":N}],"reset":bool} → {"generation":N,"policy":{…}}
 *   {"op":"status"} → pool, gateway health, hits and misses
 *   {"op":"prewarm","mode":…}
 *   {"op":"run",…,} + fds 0,1,2, project → {"event":"started",…}, {"event":"exit",…} as the supervisor's exec; -EAGAIN when no warm sandbox
 *        fits: the caller then takes the cold path without a word
 *   {"op":"shutdown"} → {}
 */
#ifndef AK_DAEMON_H
#define AK_DAEMON_H

#include "gateway/base/err.h"
#include "gateway/paths.h"

#include <stdbool.h>

/* Run it in this process until it is told to end. LISTENER is -1, or a socket passed by a service manager. */
int daemon_main(const struct ak_paths *paths, int listener, struct ak_err *err);

/* Connect; with START, start a detached daemon first when none is there and wait until it answers. */
int daemon_connect(const struct ak_paths *paths, bool start, struct ak_err *err);

#endif
