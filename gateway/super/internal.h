/* Declarations shared by the files of the supervisor. */
#ifndef AK_SUPER_INTERNAL_H
#define AK_SUPER_INTERNAL_H

#include "gateway/ipc/server.h"
#include "gateway/run/life.h"
#include "gateway/super/super.h"

#include <sys/queue.h>

struct event;
struct event_base;

#define SUPER_WAITERS_MAX 16

/* One command in the sandbox. */
struct super_exec {
	LIST_ENTRY(super_exec) link;
	struct super *super; /* borrowed: outlives us */
	uint32_t id;
	uint64_t peer_id; /* 0 once the client has disconnected */
	struct event *on_timeout; /* owned; NULL without a timeout */
	bool timed_out;
	uint64_t oom_before, pids_before; /* sandbox_oom_kills and sandbox_pids_refused when it started */
};

struct super {
	const struct ak_paths *paths; /* borrowed, like state: both live as long as the process */
	const struct state_sandbox *state;
	int user_ns, net_ns, peer_rtnl; /* owned; -1 without network */
	struct sandbox_vm vm; /* owned until the sandbox has it; what the daemon has lent, if anything */
	int control; /* owned until the server has it */
	int listener; /* owned until the server has it */
	char path[PATH_MAX]; /* of the socket */
	struct run_plan plan;
	struct gwns_link net_link;
	struct sandbox *sandbox; /* owned */
	struct run_life life; /* used until it runs */
	int live; /* owned; our entry among what runs (store/shared.h); negative if there is none */
	int net_sock; /* owned: the sandbox's setup sends its sockets for the gateway here */
	uint64_t started_us;
	struct event_base *base; /* owned */
	struct ipc_server *server; /* owned */
	struct event *on_sandbox, *on_stop, *on_look, *on_disk; /* owned */
	char upper[PATH_MAX]; /* where its files are */
	struct disk_watch disk;
	struct run_outcome over; /* with out_of_disk: why the sandbox was ended */
	uint64_t daemon_id; /* peer id of the daemon; 0 while there is none */
	int daemon_pidfd; /* owned; for its exit status, if the kernel supports that; else negative */
	uint64_t gone_ms; /* when the daemon disconnected */
	unsigned n_looks; /* how often we have checked for a new daemon since */
	int healer; /* owned; socket to the healer that we started: it closes when we end */
	LIST_HEAD(, super_exec) execs;
	size_t n_execs;
	uint32_t last_id;
	bool stopping;
	uint64_t kill_at_ms;
	uint64_t waiters[SUPER_WAITERS_MAX]; /* peers that asked to stop */
	size_t n_waiters;
};

/* super/serve.c: everything after "go": super_open, the event loop until all processes inside have ended, super_finish. */
int super_serve(struct super *v, struct ak_err *err);
int super_open(struct super *v, struct ak_err *err);
void super_finish(struct super *v);

/* super/watch.c */
int super_watch_open(struct super *v);
void super_watch_daemon(struct super *v, const struct ipc_peer *peer); /* PEER is our daemon from now on */
void super_watch_gone(struct super *v, const struct ipc_peer *peer); /* PEER, any client, has disconnected */

/* super/exec.c */
void super_exec_request(struct super *v, struct ipc_peer *peer, struct ipc_message *msg);
void super_exec_signal(struct super *v, struct ipc_peer *peer, const cJSON *obj);
void super_exec_peer_gone(struct super *v, struct ipc_peer *peer);
void super_exec_events(struct super *v); /* handle the events that sandbox_poll read */

#endif
