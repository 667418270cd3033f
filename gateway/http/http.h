/*
 * The HTTP API: declarations that the server's files share.
 *
 * Theory of operation. One process, one event loop. A connection (http/conn.c) reads a request, with strict parsing and limits on size and
 * time, and turns it into a call. Calls that only need the server's own memory are answered at once. All others run in a worker
 * (http/job.c, service/worker.h): a process that calls the blocking service verb and returns its typed result. So nothing blocks a short
 * request, a crash affects only its worker, and when a client disconnects, its worker and the sandbox of that worker end.
 *
 * Every call ends exactly once, by http_reply_* or http_stream_end, even when the client has disconnected (conn is NULL then).
 */
#ifndef AK_HTTP_H
#define AK_HTTP_H

#include "gateway/base/err.h"
#include "gateway/base/json.h"
#include "gateway/base/paths.h"
#include "gateway/base/strbuf.h"
#include "gateway/field/field.h"
#include "gateway/http/auth.h"
#include "gateway/http/request.h"
#include "gateway/http/route.h"
#include "gateway/service/worker.h"
#include "gateway/store/plan.h"
#include "gateway/store/report.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>

struct evbuffer;
struct event;
struct event_base;

#define HTTP_PORT 18888
#define HTTP_CONNS_MAX 512
#define HTTP_STRANGERS_MAX                                                                                                       \
	256 /* how many of these may be unauthenticated (no key yet, or another user); fewer when the descriptor limit is low */
#define HTTP_STRANGERS_EACH 32 /* strangers per user or address; no such limit for our own user */
#define HTTP_JOBS_MAX 64 /* concurrent workers */
#define HTTP_QUEUE_MAX 256 /* calls that wait for a worker; more are answered 429 */
#define HTTP_FOLLOWERS_MAX 64 /* streams that last until the client disconnects; not counted as jobs */
#define HTTP_DETACHED_MAX 64 /* running background commands; not counted as jobs */
#define HTTP_LISTENERS_MAX 16
#define HTTP_OUTPUT_MAX FIELD_OUTPUT_MAX /* bytes, JSON-escaped, of stdout, of stderr, and of both together in one answer */
#define HTTP_BATCH_MAX (16u << 20) /* the same, for all commands of a batch */
#define HTTP_HELD_MAX                                                                                                            \
	(256u << 20) /* output and answers in memory, for all clients; beyond it, output is cut or the request answered 429 */
#define HTTP_STREAM_HIGH (256u << 10) /* unsent bytes of a stream at which we stop reading from its worker */
#define HTTP_STREAM_LOW (64u << 10) /* and at which we read again */
#define HTTP_EVENT_MAX (32u << 10) /* limit of a line of an event stream */

/* ---- statistics (http/metrics.c) ---- */

struct http_route_stats {
	uint64_t by_class[6]; /* 1xx … 5xx by their first digit */
	struct net_histogram times;
	uint64_t count;
};

struct http_stats {
	struct http_route_stats *routes; /* owned; http_n_routes + 1 items, the last for requests without a route */
	struct net_counts ours[AK_MODE_NUM]; /* by mode: the runs of this server, plus the totals of daemons that have ended */
	struct net_counts daemons[AK_MODE_NUM]; /* by mode: the sandboxes of the daemon that started at DAEMON_US */
	uint64_t daemon_us, lost, daemon_lost; /* lost records, counted like OURS and DAEMONS */
	uint64_t runs, connections, refused_busy, gave_way;
};

void http_stats_request(struct http_stats *st, const struct http_route *route, unsigned status, uint64_t us);
void http_stats_run(struct http_stats *st, enum ak_mode mode, const struct gw_stats *net);

/* ---- the server (http/server.c) ---- */

TAILQ_HEAD(http_conns, http_conn);
TAILQ_HEAD(http_jobs, http_job);
TAILQ_HEAD(http_detacheds, http_detached);

struct http_conf {
	const struct ak_paths *paths; /* borrowed */
	const char *const *hosts; /* addresses and names to listen on; NULL-terminated; NULL: loopback */
	const char *const *names; /* additional names to accept in the Host header; NULL-terminated */
	uint16_t port; /* 0: any free port */
	struct http_keys keys; /* owned by the caller */
};

struct http_listener {
	struct http_server *s; /* borrowed: outlives us */
	int fd; /* owned */
	struct event *on_accept; /* owned */
};

struct http_server {
	const struct http_conf *conf; /* borrowed */
	const struct ak_paths *paths; /* borrowed */
	const char **names; /* owned: accepted in the Host header */
	struct event_base *base; /* owned */
	struct http_listener listeners[HTTP_LISTENERS_MAX];
	size_t n_listeners;
	int signal_fd; /* owned */
	int peer_fd; /* owned: see http/peer.h; -1 when sock_diag is not available */
	struct event *on_signal, *on_tick, *on_stop; /* owned */
	struct http_conns conns; /* oldest first */
	size_t n_conns, n_strangers, strangers_max;
	struct http_jobs jobs, waiting;
	size_t n_jobs, n_waiting, n_followers, n_resting;
	size_t held; /* bytes of kept output and of unsent answers */
	struct http_detacheds detached;
	struct http_stats stats;
	uint64_t started_us;
	bool stopping;
	char date[32]; /* cached Date header, for the second DATE_S */
	uint64_t date_s;
};

/* Listen and serve until a signal arrives. Calls READY for each URL once all sockets are open. */
int http_serve(const struct http_conf *conf, void (*ready)(void *ctx, const char *url), void *ctx, struct ak_err *err);

/* ---- connections (http/conn.c) ---- */

void http_conn_accept(struct http_server *s, int fd); /* takes FD over */
bool http_room_drop(struct http_server *s); /* end one stranger's connection; false when there is none (http/room.c) */
void http_conn_free(struct http_conn *conn);
void http_conns_finish(struct http_server *s, bool all); /* close idle connections; with ALL, every one */
void http_conns_ping(struct http_server *s); /* send a comment on every event stream */

/* ---- calls: a call is one request until it is answered ---- */

struct http_call {
	struct http_server *s; /* borrowed: outlives us */
	struct http_conn *conn; /* borrowed; NULL once the client has disconnected */
	const struct http_route *route; /* NULL when no route matches */
	struct http_request req;
	struct http_params params;
	cJSON *body; /* owned; NULL when the route takes none */
	uint64_t began_us;
	bool streaming;
	/* For the handler. */
	void *ctx;
	void (*gone)(struct http_call *c); /* the client has disconnected; the handler must still end the call */
	void (*drained)(struct http_call *c); /* the reader of a stream has caught up */
};

void http_call_free(struct http_call *c);

/* Count the bytes of BUFFER in S->held. The owner must drain BUFFER before freeing it. */
void http_hold(struct http_server *s, struct evbuffer *buffer);

/* Answer with DATA, which is JSON, in the {"success":true,"data":…} envelope. */
void http_reply_data(struct http_call *c, unsigned status, const char *data, size_t len);
void http_reply_buffer(struct http_call *c, unsigned status, struct evbuffer *data); /* takes DATA over; NULL: out of memory */
/* Answer with the result of J, without copying it. */
void http_reply_result(struct http_call *c, int rc, const char *payload, size_t len, struct http_job *j);
void http_reply_failure(struct http_call *c, int rc, const char *why, size_t len);
void http_reply_error(struct http_call *c, unsigned status, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
void http_reply_raw(struct http_call *c, unsigned status, const char *type, const char *text, size_t len);

void http_stream_begin(struct http_call *c);
void http_stream_event(struct http_call *c, const char *event, const char *data, size_t len); /* DATA is one line */
bool http_stream_behind(const struct http_call *c); /* true: stop sending until drained is called */
void http_stream_end(struct http_call *c);

/* A string member of the body, or NULL. */
const char *http_body_text(const struct http_call *c, const char *key);

/* ---- workers (http/job.c) ---- */

enum http_pipe { HTTP_PIPE_OUT, HTTP_PIPE_ERR, HTTP_PIPE_RESULT, HTTP_PIPE_NUM };
enum http_job_kind { HTTP_JOB, HTTP_JOB_FOLLOW, HTTP_JOB_DETACHED };

struct http_job_ops {
	enum http_job_kind kind;
	/* Runs in the worker, whose stdout and stderr are the job's pipes. The worker exits when this returns. */
	void (*work)(void *ctx, struct work *w);
	void (*started)(struct http_job *j); /* the job has left the queue; may be NULL */
	/* Never splits a UTF-8 character. NULL: output is discarded. */
	void (*output)(struct http_job *j, enum http_pipe pipe, const char *data, size_t len);
	/* See worker_result; RC is -ECANCELED after http_job_cancel. PAYLOAD is freed with the job after this returns. */
	void (*end)(struct http_job *j, int rc, const char *payload, size_t len);
};

struct http_job {
	TAILQ_ENTRY(http_job) link;
	struct http_server *s; /* borrowed: outlives us */
	const struct http_job_ops *ops;
	void *ctx; /* borrowed: outlives us */
	struct worker worker; /* its pid is 0 while the job is queued; its descriptor is one of PIPES */
	struct {
		int fd; /* owned; -1 at the end of file */
		struct event *on_read; /* owned */
		char carry[4]; /* the first bytes of an incomplete UTF-8 character */
		size_t n_carry;
		size_t rest; /* bytes still to read after the worker has exited */
	} pipes[HTTP_PIPE_NUM];
	bool paused, exited, cancelled, resting;
	struct event *on_rest; /* owned */
	uint64_t window_us, spent_us; /* start of the current window, and time spent on the job's output in it */
	struct event *on_kill; /* owned */
};

/* Create a job; http_job_go starts it. NULL when too many jobs wait already: ops->end is not called then. */
struct http_job *http_job_new(struct http_server *s, const struct http_job_ops *ops, void *ctx);
void http_job_go(struct http_job *j); /* start J now or when a worker is free. J may have ended when this returns */
void http_job_cancel(struct http_job *j); /* end the worker and all that it runs within a second, then call ops->end */
void http_job_pause(struct http_job *j, bool paused); /* stop or resume reading the output of J */
void http_jobs_reap(struct http_server *s);
void http_jobs_kill(struct http_server *s);

/* Start a job whose context is the call; answers 429 when too many jobs wait. */
void http_call_job(struct http_call *c, const struct http_job_ops *ops);

/* Run the route's work function in a worker and reply with its result. The worker finishes even when the client disconnects. */
void http_call_work(struct http_call *c);

unsigned http_status_of(int rc); /* map the result of a service verb to a status (http/reply.c) */

/* ---- handlers, by file ---- */

void http_handle_health(struct http_call *c); /* http/handle.c */
void http_handle_openapi(struct http_call *c);
void http_handle_run(struct http_call *c); /* http/run.c */
void http_handle_run_stream(struct http_call *c);
void http_handle_batch(struct http_call *c);
void http_handle_exec(struct http_call *c);
void http_handle_detach(struct http_call *c); /* http/detach.c */
void http_handle_detached_list(struct http_call *c);
void http_handle_detached_get(struct http_call *c);
void http_work_detached_logs(struct http_call *c, struct work *w);
void http_handle_detached_kill(struct http_call *c);
void http_detached_end(struct http_server *s); /* end all background commands */
void http_detached_forget(struct http_server *s, const char *sandbox); /* drop the ended ones of SANDBOX */
void http_work_list(struct http_call *c, struct work *w); /* http/sandbox.c */
void http_work_create(struct http_call *c, struct work *w);
void http_work_get(struct http_call *c, struct work *w);
void http_work_get_uuid(struct http_call *c, struct work *w);
void http_work_remove(struct http_call *c, struct work *w);
void http_work_start(struct http_call *c, struct work *w);
void http_work_stop(struct http_call *c, struct work *w);
void http_work_file_read(struct http_call *c, struct work *w); /* http/files.c */
void http_work_file_write(struct http_call *c, struct work *w);
void http_work_file_delete(struct http_call *c, struct work *w);
void http_work_files_write(struct http_call *c, struct work *w);
void http_work_logs(struct http_call *c, struct work *w); /* http/log.c */
void http_handle_network_log(struct http_call *c);
void http_handle_events(struct http_call *c);
void http_work_policy_get(struct http_call *c, struct work *w); /* http/policy.c */
void http_work_policy_put(struct http_call *c, struct work *w);
void http_work_policy_patch(struct http_call *c, struct work *w);
void http_work_check(struct http_call *c, struct work *w);
void http_work_publish(struct http_call *c, struct work *w);
void http_work_snapshots(struct http_call *c, struct work *w);
void http_work_snapshot(struct http_call *c, struct work *w);
void http_work_snapshot_remove(struct http_call *c, struct work *w);
void http_work_restore(struct http_call *c, struct work *w);
void http_work_fork(struct http_call *c, struct work *w);
void http_work_policies(struct http_call *c, struct work *w);
void http_work_policy_named(struct http_call *c, struct work *w);
void http_handle_metrics(struct http_call *c); /* http/metrics.c */

/* ---- shared by the handlers that run commands (http/task.c) ---- */

/* In a worker: run the command of SPEC, a body of exec, in the sandbox NAME. The job's pipes get its output; the result is a report. */
void http_exec_work(const struct ak_paths *paths, const char *name, const cJSON *spec, struct work *w);

/* Decode the report in a worker's payload. A negative RC, the worker's own error, is returned unchanged. */
int http_report_take(int rc, const char *payload, size_t len, struct run_report *ret, struct ak_err *err);

#endif
