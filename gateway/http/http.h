/*
 * The HTTP API: what the server's files share.
 *
 * Theory of operation. One process, one event loop. A connection (http/conn.c) reads a request, strictly and within limits of size and
 * time, and makes a call of it. What only looks at the server's own memory is answered at once; everything else runs in a worker
 * (http/job.c, service/worker.h): a process that calls the blocking service verb and says its typed result. So nothing blocks a short request,
 * a crash stays in its worker, and a client that leaves takes its worker, and with it its sandbox, along.
 *
 * Every call ends exactly once, by http_reply_* or http_stream_end, also when its client has left before (conn is NULL then).
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
	256 /* of these, connections that have not shown a key or are of another user; fewer with few descriptors */
#define HTTP_STRANGERS_EACH 32 /* of one user or address; of our own user as many as there may be */
#define HTTP_JOBS_MAX 64 /* workers at once */
#define HTTP_QUEUE_MAX 256 /* calls that wait for one; more are answered 429 */
#define HTTP_FOLLOWERS_MAX 64 /* streams that last until their client leaves: not counted as jobs */
#define HTTP_DETACHED_MAX 64 /* background commands that run; the same */
#define HTTP_LISTENERS_MAX 16
#define HTTP_OUTPUT_MAX (8u << 20) /* of stdout, of stderr, and of both together in one answer, as JSON has it */
#define HTTP_BATCH_MAX (16u << 20) /* of all commands of a batch */
#define HTTP_HELD_MAX                                                                                                            \
	(256u << 20) /* output and answers in memory, of all clients: more is cut, or the client told to come again */
#define HTTP_STREAM_HIGH (256u << 10) /* a stream's reader is behind: stop reading its worker */
#define HTTP_STREAM_LOW (64u << 10)
#define HTTP_EVENT_MAX (32u << 10) /* a line of an event stream stays below this */

/* ---- statistics (http/metrics.c) ---- */

struct http_route_stats {
	uint64_t by_class[6]; /* 1xx … 5xx by their first digit */
	struct net_histogram times;
	uint64_t count;
};

struct http_stats {
	struct http_route_stats *routes; /* owned; http_n_routes + 1: the last is what found no route */
	struct net_counts ours[AK_MODE_NUM]; /* of this server's runs, by mode, and of daemons that have ended */
	struct net_counts daemons[AK_MODE_NUM]; /* of the sandboxes of the daemon that started at DAEMON_US */
	uint64_t daemon_us, lost, daemon_lost; /* records, the same */
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
	const char *const *names; /* further names that a Host header may have; the same */
	uint16_t port; /* 0: any that is free */
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
	const char **names; /* owned: of Host headers */
	struct event_base *base; /* owned */
	struct http_listener listeners[HTTP_LISTENERS_MAX];
	size_t n_listeners;
	int signal_fd; /* owned */
	int peer_fd; /* owned: see http/peer.h; -1 when the kernel cannot be asked */
	struct event *on_signal, *on_tick, *on_stop; /* owned */
	struct http_conns conns; /* oldest first */
	size_t n_conns, n_strangers, strangers_max;
	struct http_jobs jobs, waiting;
	size_t n_jobs, n_waiting, n_followers, n_resting;
	size_t held; /* bytes of output that was kept and of answers that nobody took yet */
	struct http_detacheds detached;
	struct http_stats stats;
	uint64_t started_us;
	bool stopping;
	char date[32]; /* of now, for the Date header */
	uint64_t date_s;
};

/* Listen and serve until a signal ends it. READY is called with each address once all are open. */
int http_serve(const struct http_conf *conf, void (*ready)(void *ctx, const char *url), void *ctx, struct ak_err *err);

/* ---- connections (http/conn.c) ---- */

void http_conn_accept(struct http_server *s, int fd); /* takes FD over */
bool http_room_drop(struct http_server *s); /* end one stranger's connection; false when there is none (http/room.c) */
void http_conn_free(struct http_conn *conn);
void http_conns_finish(struct http_server *s, bool all); /* idle ones now; with ALL every one */
void http_conns_ping(struct http_server *s); /* a comment on every event stream */

/* ---- calls: one request until its answer ---- */

struct http_call {
	struct http_server *s; /* borrowed: outlives us */
	struct http_conn *conn; /* borrowed; NULL once the client has left */
	const struct http_route *route; /* NULL when there is none */
	struct http_request req;
	struct http_params params;
	cJSON *body; /* owned; NULL when the route has none */
	uint64_t began_us;
	bool streaming;
	/* For whoever handles it. */
	void *ctx;
	void (*gone)(struct http_call *c); /* the client has left; the call is still to be ended */
	void (*drained)(struct http_call *c); /* a stream's reader has caught up */
};

void http_call_free(struct http_call *c);

/* Count what BUFFER holds; it is drained before it is freed. */
void http_hold(struct http_server *s, struct evbuffer *buffer);

/* The envelope: DATA is JSON. */
void http_reply_data(struct http_call *c, unsigned status, const char *data, size_t len);
void http_reply_buffer(struct http_call *c, unsigned status, struct evbuffer *data); /* takes DATA over; NULL: out of memory */
/* What J ended with, without a copy. */
void http_reply_result(struct http_call *c, int rc, const char *payload, size_t len, struct http_job *j);
void http_reply_failure(struct http_call *c, int rc, const char *why, size_t len);
void http_reply_error(struct http_call *c, unsigned status, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
void http_reply_raw(struct http_call *c, unsigned status, const char *type, const char *text, size_t len);

void http_stream_begin(struct http_call *c);
void http_stream_event(struct http_call *c, const char *event, const char *data, size_t len); /* DATA is one line */
bool http_stream_behind(const struct http_call *c); /* stop until drained */
void http_stream_end(struct http_call *c);

/* A text member of the body, or NULL. */
const char *http_body_text(const struct http_call *c, const char *key);

/* ---- workers (http/job.c) ---- */

enum http_pipe { HTTP_PIPE_OUT, HTTP_PIPE_ERR, HTTP_PIPE_RESULT, HTTP_PIPE_NUM };
enum http_job_kind { HTTP_JOB, HTTP_JOB_FOLLOW, HTTP_JOB_DETACHED };

struct http_job_ops {
	enum http_job_kind kind;
	/* In the worker, whose standard output and error are the job's pipes. It ends by returning. */
	void (*work)(void *ctx, struct work *w);
	void (*started)(struct http_job *j); /* it has left the queue; may be NULL */
	/* Whole UTF-8 where the command wrote such; NULL: thrown away. */
	void (*output)(struct http_job *j, enum http_pipe pipe, const char *data, size_t len);
	/* See worker_result; -ECANCELED after http_job_cancel. PAYLOAD is gone with the job afterwards. */
	void (*end)(struct http_job *j, int rc, const char *payload, size_t len);
};

struct http_job {
	TAILQ_ENTRY(http_job) link;
	struct http_server *s; /* borrowed: outlives us */
	const struct http_job_ops *ops;
	void *ctx; /* borrowed: ends after us */
	struct worker worker; /* its pid is 0 while it waits; its descriptor is one of PIPES */
	struct {
		int fd; /* owned; -1 at the end of file */
		struct event *on_read; /* owned */
		char carry[4]; /* the start of a character whose rest has not come */
		size_t n_carry;
		size_t rest; /* bytes to read yet, once the worker has exited */
	} pipes[HTTP_PIPE_NUM];
	bool paused, exited, cancelled, resting;
	struct event *on_rest; /* owned */
	uint64_t window_us, spent_us; /* of our time, on its output */
	struct event *on_kill; /* owned */
};

/* One that waits to go. NULL when too many wait already: ops->end is not called then. */
struct http_job *http_job_new(struct http_server *s, const struct http_job_ops *ops, void *ctx);
void http_job_go(struct http_job *j); /* now, or when a worker is free. It may have ended when this returns */
void http_job_cancel(struct http_job *j); /* the worker and what it runs end within a second; then ops->end */
void http_job_pause(struct http_job *j, bool paused); /* reading of its output */
void http_jobs_reap(struct http_server *s);
void http_jobs_kill(struct http_server *s);

/* A job whose context is the call; 429 when there is no room. */
void http_call_job(struct http_call *c, const struct http_job_ops *ops);

/* The route's work in a worker, its answer as the reply. It is done to its end even when the client leaves. */
void http_call_work(struct http_call *c);

unsigned http_status_of(int rc); /* of a service verb (http/reply.c) */

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
void http_detached_end(struct http_server *s); /* all of them */
void http_detached_forget(struct http_server *s, const char *sandbox); /* those that have ended */
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
void http_work_policies(struct http_call *c, struct work *w);
void http_work_policy_named(struct http_call *c, struct work *w);
void http_handle_metrics(struct http_call *c); /* http/metrics.c */

/* ---- shared by the handlers that run commands (http/task.c) ---- */

/* service_exec_run in NAME of the command in SPEC, a body of exec; the job's pipes are its output, the result is a report. */
void http_exec_work(const struct ak_paths *paths, const char *name, const cJSON *spec, struct work *w);

/* 0 and the report that a worker handed over; a negative RC of its stays. */
int http_report_take(int rc, const char *payload, size_t len, struct run_report *ret, struct ak_err *err);

#endif
