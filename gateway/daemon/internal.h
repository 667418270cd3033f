/* Declarations shared by the files of the daemon. */
#ifndef AK_DAEMON_INTERNAL_H
#define AK_DAEMON_INTERNAL_H

#include "gateway/base/strbuf.h"
#include "gateway/daemon/daemon.h"
#include "gateway/host/gw.h"
#include "gateway/host/resolv.h"
#include "gateway/ipc/server.h"
#include "gateway/run/vm.h"
#include "gateway/store/request.h"
#include "gateway/store/state.h"

#include <sys/queue.h>

struct event;
struct event_base;
struct daemon;
struct dsb;
struct removal;

/* ---- client requests (daemon/request.c) ---- */

struct request {
	TAILQ_ENTRY(request) link; /* in the queue of its sandbox */
	struct daemon *d; /* borrowed: outlives us */
	uint64_t peer_id; /* 0: made by the daemon itself */
	const struct op *op;
	cJSON *obj; /* owned */
	int fds[IPC_FDS_MAX]; /* owned */
	size_t n_fds;
	struct dsb *sb; /* borrowed: the sandbox it acts on or is queued at; NULL when it names none */
	bool begun; /* it has started to act on its sandbox */
	uint64_t disk_before; /* a start: the limit of its files until then */
	struct state_sandbox change; /* owned: a policy change: the new edits */
	struct policy *policy; /* owned reference: a policy change: the new policy */
};

struct op {
	const char *name;
	void (*run)(struct request *r); /* calls request_answer or request_fail, now or later */
	bool named; /* acts on the sandbox in "name"; such requests run one after the other */
	bool talks; /* the client may send more messages before the reply */
};
extern const struct op op_expire; /* made by the daemon: drop expired edits */
extern const struct op op_orphan; /* made by the daemon: remove a sandbox whose MCP server has ended */

void request_dispatch(struct daemon *d, struct ipc_peer *peer, struct ipc_message *msg);
void request_own(struct daemon *d, const struct op *op, struct dsb *sb);

/* Send the reply, free R and let the next request use the sandbox. Takes ownership of OBJ; NULL stands for {}. */
void request_answer(struct request *r, cJSON *obj);
void request_fail(struct request *r, int code, const char *text);
void request_free(struct request *r);

/* ---- the gateway process (daemon/gw.c) ---- */

enum dgw_state { DGW_DOWN, DGW_STARTING, DGW_UP, DGW_STOPPING };

/* RC is 0 with the ANSWER, or negative with the reason in ERR. Called from the event loop, never from inside dgw_send. */
typedef void (*dgw_done_fn)(void *ctx, int rc, const struct gw_msg *answer, const struct ak_err *err);

struct dgw_request {
	TAILQ_ENTRY(dgw_request) link;
	struct gw_msg msg;
	int fds[GW_FDS_MAX]; /* owned */
	size_t n_fds;
	dgw_done_fn done; /* NULL: this message has no reply, or the sender ignores it */
	void *ctx; /* borrowed */
	uint64_t sent_ms;
};
TAILQ_HEAD(dgw_queue, dgw_request);

struct dgw {
	enum dgw_state state;
	int user_ns, net_ns; /* owned; -1 until created or adopted */
	int control; /* owned */
	pid_t pid;
	struct event *on_control, *on_kick, *on_retry, *on_tick, *on_rehost; /* owned */
	unsigned rehosts; /* attempts in a row to add running sandboxes again that the gateway refused */
	struct dgw_queue waiting, sent;
	size_t n_sent;
	unsigned failures; /* in a row */
	bool missed; /* a message to it could not be queued */
	bool expected; /* down after it was up, and being restarted: requests wait for it */
	uint64_t since_ms; /* when it entered this state */
	uint64_t restarts;
	struct resolv_stamp resolv;
	struct ak_err reason; /* why it is down */
};

int dgw_init(struct daemon *d, struct ak_err *err);
/* Create the namespaces, or join them if they are known. A failure is stored in reason and retried. */
void dgw_start(struct daemon *d);
void dgw_start_later(struct daemon *d); /* the same, unless something needs it sooner */
void dgw_rehost_later(struct daemon *d); /* the gateway refused a running sandbox: try again, less and less often */
void dgw_stop(struct daemon *d); /* orderly; breaks the event loop once the process has ended */
void dgw_done(struct daemon *d);

/* 0 if requests can be queued, else the reason why there is no gateway. Starts one unless that was tried a moment ago. */
int dgw_usable(struct daemon *d, struct ak_err *err);

/*
 * Queue a message; takes ownership of FDS. Replies about one sandbox come in the order of the messages. -ENOMEM: not queued, and DONE is not called. A
 * gateway that misses a message has the wrong state, so the event loop then restarts it and adds all running sandboxes again.
 */
int dgw_send(struct daemon *d, const struct gw_msg *msg, const int *fds, size_t n_fds, dgw_done_fn done, void *ctx);
bool dgw_answered(uint32_t type);

/* P as a memory file, as ADD, ASSIGN and POLICY carry it; or -errno. */
int dgw_policy_file(const struct policy *p);

/* ---- persistent sandboxes (daemon/sandbox.c) ---- */

enum dsb_status { DSB_STOPPED, DSB_STARTING, DSB_RUNNING, DSB_STOPPING, DSB_STATUS_NUM };

struct dsb {
	TAILQ_ENTRY(dsb) link;
	struct daemon *d; /* borrowed: outlives us */
	struct state_sandbox state;
	enum dsb_status status;
	struct ipc_peer *super; /* borrowed; NULL once it has ended */
	pid_t super_pid;
	int peer_rtnl; /* owned; -1 when stopped or without network */
	struct policy *policy; /* owned reference: in force; NULL when stopped or without network */
	bool hosting, hosted; /* ADD was sent to the gateway; the gateway has it */
	bool awaiting; /* its start waits for the gateway to be restarted */
	bool asked; /* adopted without network until its supervisor answers: see daemon/adopt.c */
	bool removed;
	bool damaged; /* its record cannot be read: exists only to be removed; dropped if that fails */
	struct gw_stats stats; /* since it was hosted, as last reported */
	uint64_t marked_ms; /* when a log_mark event last recorded the length of its log; 0: never */
	uint64_t started_us;
	struct request *op; /* owned: the request that is acting on it */
	TAILQ_HEAD(, request) queue; /* owned: the requests that wait for op to end */
	struct event *on_next, *on_deadline, *on_expire; /* owned */
	struct ak_err failure; /* why its start failed, or why it could not be added to the gateway */
	struct ak_err no_network; /* why a running sandbox has none, as last told; "" if it has */
	struct ak_err over; /* a limit that ended it, as its supervisor said; else "" */
	struct removal *removal; /* owned: set while its files are being removed */
	struct copying *copying; /* owned: set while they are being copied */
	char notes[2048]; /* for the user, from its start: limits that could not be applied and the like */
	struct ak_publish ports[AK_PUBLISH_MAX]; /* its published ports with the host's ports in use, in the order of its state */
	int listeners[AK_PUBLISH_MAX]; /* owned: of each; -1 if it could not be opened */
	size_t n_ports; /* 0 when stopped */
	char *changed; /* owned: what its last stop reported about the project; NULL if nothing */
};

TAILQ_HEAD(dsb_list, dsb);

struct dsb *dsb_find(struct daemon *d, const char *name);
struct dsb *dsb_by_link(struct daemon *d, uint32_t link_id);
int dsb_get(struct daemon *d, const char *name, struct dsb **ret, struct ak_err *err); /* also loads it from disk */
int dsb_new(struct daemon *d, struct state_sandbox *s, struct dsb **ret); /* takes ownership of the contents of S */
void dsb_free(struct dsb *sb);
void dsb_begin(struct dsb *sb, struct request *r); /* run R now, or after the requests before it */
void dsb_end(struct dsb *sb, struct request *r); /* R was answered */

void dsb_super_message(struct daemon *d, struct ipc_peer *peer, struct ipc_message *msg);
void dsb_super_gone(struct daemon *d, struct ipc_peer *peer);
void dsb_adopted(struct dsb *sb); /* it is running; super, peer_rtnl and super_pid are set */

/* Add it to the gateway, with its policy and log. */
void dsb_host(struct dsb *sb, dgw_done_fn done);
void dsb_rehost_all(struct daemon *d); /* after the gateway has started */
void dsb_gateway_lost(struct daemon *d);
void dsb_arm_expiry(struct dsb *sb);
int dsb_log_path(const struct dsb *sb, char ret[static PATH_MAX]);

void op_start(struct request *r);
void op_stop(struct request *r);
void op_remove(struct request *r);
void op_orphan_run(struct request *r);

/* daemon/policy.c */
void op_policy(struct request *r);
int policy_edits_read(const struct ak_paths *paths, const cJSON *obj, struct state_sandbox *s, struct ak_err *err);
void op_expire_run(struct request *r);

/* daemon/remove.c: remove a stopped sandbox. sb->op is answered once its files are removed, or with an error that names what is left. */
void removal_begin(struct dsb *sb);
void removal_free(struct removal *rm);
void removal_sweep(const struct ak_paths *paths); /* fork a process that finishes the removals of an earlier daemon */

void removal_later(struct daemon *d, const char *path); /* remove files that nobody waits for, in a forked process */

/* daemon/snapshot.c: copies of a stopped sandbox's files */
struct copying;
void copying_free(struct copying *c);
void op_snapshot(struct request *r);
void op_snapshot_remove(struct request *r);
void op_restore(struct request *r);
void op_fork(struct request *r);

/* daemon/discard.c: get a sandbox whose record cannot be read, in order to remove it. Connects to its supervisor if one is running. */
int dsb_get_damaged(struct daemon *d, const char *name, struct dsb **ret, struct ak_err *err);

/* daemon/adopt.c: *RET_WAIT: sandboxes run whose namespaces the gateway must join, but none of their supervisors has answered yet. */
int adopt_all(struct daemon *d, bool *ret_wait, struct ak_err *err);
void adopt_answer(struct dsb *sb, struct ipc_message *msg); /* the late reply of its supervisor */
/* What the log says was learned since SINCE_US, as JSON of GW_MSG_LEARNED; returns how many. */
int adopt_learned(const char *log_path, uint64_t since_us, uint64_t now_us, struct strbuf *out);

/* daemon/status.c */
void op_ping(struct request *r);
void op_list(struct request *r);
void op_get(struct request *r);
void op_counts(struct request *r);
void op_status(struct request *r);
void op_shutdown(struct request *r);
cJSON *dsb_info(const struct dsb *sb);

/* ---- the pool (daemon/pool.c) and its jobs (daemon/job.c) ---- */

enum warm_status { WARM_BUILDING, WARM_ADDING, WARM_READY, WARM_JOB, WARM_ENDING };

struct job;
struct warm {
	TAILQ_ENTRY(warm) link;
	struct daemon *d; /* borrowed: outlives us */
	enum ak_mode mode;
	bool vm;
	enum warm_status status;
	struct gwns_link net;
	struct run_plan *plan; /* owned: the plan it was parked with */
	struct sandbox *sandbox; /* owned */
	struct event *on_sandbox, *on_late; /* owned */
	unsigned looks; /* how often we checked whether its processes have ended */
	int net_sock, peer_rtnl; /* owned */
	bool hosted, hosting; /* the gateway has it; ADD or ASSIGN was sent */
	uint64_t born_ms;
	struct job *job; /* owned, or NULL */
};

struct pool_mode {
	uint64_t min, max;
	bool vm; /* its sandboxes run in virtual machines */
	uint64_t hits, misses, built, failed;
	uint64_t retry_at_ms; /* after a failure */
	struct ak_err failure;
};

struct pool {
	struct pool_mode modes[AK_MODE_NUM];
	TAILQ_HEAD(, warm) all;
	uint32_t next_link;
	struct event *on_tick, *on_refill; /* owned */
	TAILQ_HEAD(, request) waiting; /* owned: prewarm requests */
};

int pool_init(struct daemon *d, const struct daemon_conf *conf, struct ak_err *err);
void pool_done(struct daemon *d);
void pool_refill(struct daemon *d);
void pool_refill_later(struct daemon *d); /* shortly, so that the job that took a sandbox starts first */
struct warm *pool_take(struct daemon *d, enum ak_mode mode, bool vm, const struct run_plan *plan);
void pool_failed(const struct warm *w, const char *reason); /* a sandbox that was taken could not start its job: no hit */
void pool_gateway_lost(struct daemon *d);
size_t pool_count(const struct daemon *d, enum ak_mode mode, enum warm_status from, enum warm_status to);
void warm_destroy(struct warm *w); /* remove its link and rules, then free it */
void warm_free(struct warm *w);
void op_prewarm(struct request *r);

void op_run(struct request *r);
void job_sandbox_event(struct warm *w);
void job_gateway_lost(struct warm *w);
void job_peer_gone(struct daemon *d, struct ipc_peer *peer);
void job_peer_message(struct daemon *d, struct ipc_peer *peer, const cJSON *obj);
int job_log_path(struct daemon *d, uint32_t link_id, char ret[static PATH_MAX]);
bool job_publish(struct request *r, const char *name); /* answer R if the warm sandbox of a run NAME exists; false if none does */
void job_free(struct job *j);

/* ---- published ports (daemon/publish.c) ---- */

/* Hand the port AT of sandbox ID to the gateway; takes ownership of LISTENER and CHANNEL (base/publish.h). */
void port_send(struct daemon *d, uint32_t id, const struct ak_publish *at, int listener, int channel);

/* Open the ports of a persistent sandbox, all or none; or after a daemon's restart, those that are still free. */
int dsb_ports_open(struct dsb *sb, struct ak_err *err);
void dsb_ports_reopen(struct dsb *sb);
void dsb_ports_close(struct dsb *sb);
void dsb_ports_note(struct dsb *sb); /* add to its notes what the user should be told about them */
void dsb_ports_serve(struct dsb *sb); /* hand them to the gateway, which has just begun to host it */
void op_publish(struct request *r);

/* ---- shared policies (daemon/share.c) ---- */

#define SHARED_MAX 8

struct shared_policy {
	struct policy *policy; /* owned reference */
	struct strbuf text; /* owned: its printed form */
};

/* Takes over the reference P; returns a reference to P or to an equal policy. */
struct policy *policy_share(struct daemon *d, struct policy *p);
void policy_share_done(struct daemon *d);

/* ---- the saved guests of virtual machines (daemon/machine.c) ---- */

struct machine;

/* Descriptors of the one copy for all guests with this memory; never boots one: -ENOENT, -EWOULDBLOCK. Free with sandbox_vm_done. */
int machine_lend(struct daemon *d, uint32_t memory_mb, struct sandbox_vm *ret, struct ak_err *err);
void machines_sweep(struct daemon *d); /* free what no virtual machine uses */
void machines_done(struct daemon *d);

/* ---- the daemon (daemon/daemon.c) ---- */

struct daemon {
	const struct ak_paths *paths; /* borrowed: outlives us */
	struct event_base *base; /* owned */
	struct ipc_server *clients, *supers; /* owned */
	struct dgw gw;
	struct dsb_list sandboxes; /* owned; sorted by name */
	struct pool pool;
	LIST_HEAD(, machine) machines; /* owned */
	struct shared_policy shared[SHARED_MAX];
	unsigned next_shared;
	int signal_fd; /* owned */
	struct event *on_signal, *on_stopped; /* owned */
	uint64_t started_us;
	struct net_counts counted[AK_MODE_NUM]; /* of sandboxes that have stopped or lost their gateway */
	uint64_t lost; /* log records lost by the same sandboxes */
	bool stopping;
};

void daemon_shutdown(struct daemon *d);

/* ---- starting a daemon (daemon/spawn.c) ---- */

/* Make RUNTIME/daemon.log our stderr; truncate a log that has grown too large first. */
void daemon_log_open(const struct ak_paths *paths);
uint64_t daemon_log_bytes(void); /* its length if it is our stderr, else 0 */
int daemon_log_path(const struct ak_paths *paths, char ret[static PATH_MAX]);

/* As daemon_spawn, but as a child that the caller must wait for. *RET_PID is set on failure too; it is negative if there is no child. */
int daemon_spawn_child(const struct ak_paths *paths, const struct daemon_conf *conf, pid_t *ret_pid, struct ak_err *err);

#endif
