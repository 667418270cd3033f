/* What the daemon's files share. */
#ifndef AK_DAEMON_INTERNAL_H
#define AK_DAEMON_INTERNAL_H

#include "gateway/base/strbuf.h"
#include "gateway/daemon/daemon.h"
#include "gateway/host/gw.h"
#include "gateway/host/resolv.h"
#include "gateway/ipc/server.h"
#include "gateway/store/request.h"
#include "gateway/store/state.h"

#include <sys/queue.h>

struct event;
struct event_base;
struct daemon;
struct dsb;
struct removal;

/* ---- requests of clients (daemon/request.c) ---- */

struct request {
	TAILQ_ENTRY(request) link; /* in the queue of its sandbox */
	struct daemon *d; /* borrowed: outlives us */
	uint64_t peer_id; /* 0: our own */
	const struct op *op;
	cJSON *obj; /* owned */
	int fds[IPC_FDS_MAX]; /* owned */
	size_t n_fds;
	struct dsb *sb; /* borrowed: its current or future holder; NULL when it is about none */
	bool begun; /* has acted on its sandbox */
	struct state_sandbox change; /* owned: what a policy change will be */
	struct policy *policy; /* owned reference: the same */
};

struct op {
	const char *name;
	void (*run)(struct request *r); /* ends with one of the two below, now or later */
	bool named; /* is about the sandbox in "name", one after the other */
	bool talks; /* its client goes on talking while it lasts */
};
extern const struct op op_expire; /* our own: edits that have run out */
extern const struct op op_orphan; /* our own: the MCP server that made it has ended */

void request_dispatch(struct daemon *d, struct ipc_peer *peer, struct ipc_message *msg);
void request_own(struct daemon *d, const struct op *op, struct dsb *sb);

/* The last word; both free R and let the next one have the sandbox. OBJ is taken over, NULL stands for {}. */
void request_answer(struct request *r, cJSON *obj);
void request_fail(struct request *r, int code, const char *text);
void request_free(struct request *r);

/* ---- the gateway process (daemon/gw.c) ---- */

enum dgw_state { DGW_DOWN, DGW_STARTING, DGW_UP, DGW_STOPPING };

/* RC is 0 (with the ANSWER) or negative with the reason. Always called from the loop, never from dgw_send. */
typedef void (*dgw_done_fn)(void *ctx, int rc, const struct gw_msg *answer, const struct ak_err *err);

struct dgw_request {
	TAILQ_ENTRY(dgw_request) link;
	struct gw_msg msg;
	int fds[GW_FDS_MAX]; /* owned */
	size_t n_fds;
	dgw_done_fn done; /* NULL: nothing answers this message, or nobody cares */
	void *ctx; /* borrowed */
	uint64_t sent_ms;
};
TAILQ_HEAD(dgw_queue, dgw_request);

struct dgw {
	enum dgw_state state;
	int user_ns, net_ns; /* owned; -1 until made or adopted */
	int control; /* owned */
	pid_t pid;
	struct event *on_control, *on_kick, *on_retry, *on_tick; /* owned */
	struct dgw_queue waiting, sent;
	size_t n_sent;
	unsigned failures; /* in a row */
	bool missed; /* a message to it could not be queued */
	bool expected; /* down, but it was up before and its successor is on its way: requests wait for it */
	uint64_t since_ms; /* in this state */
	uint64_t restarts;
	struct resolv_stamp resolv;
	struct ak_err reason; /* why it is down */
};

int dgw_init(struct daemon *d, struct ak_err *err);
void dgw_start(
	struct daemon *d); /* the namespaces are made, or joined when they are known; failure is kept in reason and tried again */
void dgw_stop(struct daemon *d); /* orderly; the loop breaks when it is gone */
void dgw_done(struct daemon *d);

/* 0 when requests will be tried; else the reason why there is no gateway. Tries to start one when none was tried lately. */
int dgw_usable(struct daemon *d, struct ak_err *err);

/*
 * Queue a message; FDS are taken over. Answers come in the order of the questions about one sandbox. -ENOMEM: it was not queued and DONE is not called; a
 * gateway that misses a message cannot be relied on, so the loop starts it again and tells it of everything that runs.
 */
int dgw_send(struct daemon *d, const struct gw_msg *msg, const int *fds, size_t n_fds, dgw_done_fn done, void *ctx);
bool dgw_answered(uint32_t type);

/* ADD or ASSIGN or POLICY: P as the memory file that these messages carry; -errno. */
int dgw_policy_file(const struct policy *p);

/* ---- persistent sandboxes (daemon/sandbox.c) ---- */

enum dsb_status { DSB_STOPPED, DSB_STARTING, DSB_RUNNING, DSB_STOPPING, DSB_STATUS_NUM };

struct dsb {
	TAILQ_ENTRY(dsb) link;
	struct daemon *d; /* borrowed: outlives us */
	struct state_sandbox state;
	enum dsb_status status;
	struct ipc_peer *super; /* borrowed: NULL when it has ended */
	pid_t super_pid;
	int peer_rtnl; /* owned; -1 when it does not run or has no network */
	struct policy *policy; /* owned reference: in force; NULL when stopped or without network */
	bool hosting, hosted; /* the gateway is at it; has it */
	bool awaiting; /* its start waits for the gateway's successor */
	bool removed;
	bool damaged; /* its record cannot be read: it is there to be removed, and forgotten when that fails */
	struct gw_stats stats; /* since it was hosted, as last told */
	uint64_t marked_ms; /* when the events log was last told how far its log goes; 0: never */
	uint64_t started_us;
	struct request *op; /* owned: has the sandbox now */
	TAILQ_HEAD(, request) queue; /* owned: wait for it */
	struct event *on_next, *on_deadline, *on_expire; /* owned */
	struct ak_err failure; /* why its start failed */
	struct removal *removal; /* owned: its files are on their way out */
	char notes[2048]; /* limits that could not be applied, and what else the user should know of its start */
	char *changed; /* owned; what its last stop told of the project; NULL when nothing */
};

TAILQ_HEAD(dsb_list, dsb);

struct dsb *dsb_find(struct daemon *d, const char *name);
struct dsb *dsb_by_link(struct daemon *d, uint32_t link_id);
int dsb_get(struct daemon *d, const char *name, struct dsb **ret, struct ak_err *err); /* looks on the disk, too */
int dsb_new(struct daemon *d, struct state_sandbox *s, struct dsb **ret); /* takes the contents of S over */
void dsb_free(struct dsb *sb);
void dsb_begin(struct dsb *sb, struct request *r); /* now, or when those before it are done */
void dsb_end(struct dsb *sb, struct request *r); /* R has had its last word */

void dsb_super_message(struct daemon *d, struct ipc_peer *peer, struct ipc_message *msg);
void dsb_super_gone(struct daemon *d, struct ipc_peer *peer);
void dsb_adopted(struct dsb *sb); /* super, rtnetlink and pid are set: it runs */

/* Bring it (back) to the gateway: rules, log, then what it had learned. */
void dsb_host(struct dsb *sb, dgw_done_fn done);
void dsb_rehost_all(struct daemon *d); /* after a gateway's start */
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

/* daemon/remove.c: the sandbox is gone; whoever has it (op) is answered when its files are, too, or with what is left of them. */
void removal_begin(struct dsb *sb);
void removal_free(struct removal *rm);
void removal_sweep(const struct ak_paths *paths); /* what an earlier daemon did not finish, in a process of its own */

/* daemon/discard.c: a sandbox to be removed whose record cannot be read, with its supervisor, should one still run. */
int dsb_get_damaged(struct daemon *d, const char *name, struct dsb **ret, struct ak_err *err);

/* daemon/adopt.c */
int adopt_all(struct daemon *d, struct ak_err *err);
int adopt_learned(const char *log_path, uint64_t now_us, struct strbuf *out); /* the JSON of GW_MSG_LEARNED; how many */

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
	enum warm_status status;
	struct gwns_link net;
	struct run_plan *plan; /* owned: what it was parked with */
	struct sandbox *sandbox; /* owned */
	struct event *on_sandbox, *on_late; /* owned */
	unsigned looks; /* whether its processes have ended */
	int net_sock, peer_rtnl; /* owned */
	bool hosted, hosting; /* the gateway has it; is at it */
	uint64_t born_ms;
	struct job *job; /* owned, or NULL */
};

struct pool_mode {
	uint64_t min, max;
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
void pool_refill_later(struct daemon *d); /* soon, when the job that made the hole has begun */
struct warm *pool_take(struct daemon *d, enum ak_mode mode, const struct run_plan *plan);
void pool_gateway_lost(struct daemon *d);
size_t pool_count(const struct daemon *d, enum ak_mode mode, enum warm_status from, enum warm_status to);
void warm_destroy(struct warm *w); /* link and rules away, then the rest */
void warm_free(struct warm *w);
void op_prewarm(struct request *r);

void op_run(struct request *r);
void job_sandbox_event(struct warm *w);
void job_gateway_lost(struct warm *w);
void job_peer_gone(struct daemon *d, struct ipc_peer *peer);
void job_peer_message(struct daemon *d, struct ipc_peer *peer, const cJSON *obj);
int job_log_path(struct daemon *d, uint32_t link_id, char ret[static PATH_MAX]);
void job_free(struct job *j);

/* ---- the whole ---- */

/* ---- policies kept once (daemon/share.c) ---- */

#define SHARED_MAX 8

struct shared_policy {
	struct policy *policy; /* owned reference */
	struct strbuf text; /* owned: how it prints */
};

struct policy *policy_share(
	struct daemon *d, struct policy *p); /* P, taken over, or an equal one; either a reference for the caller */
void policy_share_done(struct daemon *d);

struct daemon {
	const struct ak_paths *paths; /* borrowed: outlives us */
	struct event_base *base; /* owned */
	struct ipc_server *clients, *supers; /* owned */
	struct dgw gw;
	struct dsb_list sandboxes; /* owned; in order of name */
	struct pool pool;
	struct shared_policy shared[SHARED_MAX];
	unsigned next_shared;
	int signal_fd; /* owned */
	struct event *on_signal, *on_stopped; /* owned */
	uint64_t started_us;
	struct net_counts counted[AK_MODE_NUM]; /* of sandboxes that have stopped, or lost their gateway */
	uint64_t lost; /* records, the same */
	bool stopping;
};

void daemon_shutdown(struct daemon *d);

/* ---- starting one (daemon/spawn.c) ---- */

/* Make RUNTIME/daemon.log our stderr; a log that has grown too large is truncated first. */
void daemon_log_open(const struct ak_paths *paths);
uint64_t daemon_log_bytes(void); /* how long it is, if it is our stderr; else 0 */
int daemon_log_path(const struct ak_paths *paths, char ret[static PATH_MAX]);

/* As daemon_spawn, but as a child that the caller must wait for. *RET_PID is set on failure too; it is negative if there is no child. */
int daemon_spawn_child(const struct ak_paths *paths, const struct daemon_conf *conf, pid_t *ret_pid, struct ak_err *err);

#endif
