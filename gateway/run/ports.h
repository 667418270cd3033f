/*
 * Ports that are published while a command runs. `network publish` asks the process that owns the sandbox: the daemon for a warm one, else the `run`
 * itself, which listens on a desk.
 *
 * The desk is an abstract socket, named after the run's folder: it needs no file, ends with its process, and a sandbox, which has a network namespace of
 * its own, cannot name it. Both sides check each other (ipc_trust). It serves one client at a time.
 */
#ifndef AK_RUN_PORTS_H
#define AK_RUN_PORTS_H

#include "gateway/base/json.h"
#include "gateway/run/life.h"

struct run_ports_ops {
	/* Connect what LISTENER (borrowed) accepts to the port inside. */
	int (*open)(void *ctx, const struct ak_publish *p, int listener, struct ak_err *err);
	/* Close a port and cut its connections. */
	void (*close)(void *ctx, const struct ak_publish *p);
};

/*
 * REQUEST is {"publish":[…]} or {"remove":[…]}: change the ports in OPTS, which is also the life's request, open or close them, all or none, and record
 * it. The answer, with all ports of the run, is for the client.
 */
int run_ports_change(struct run_life *l, struct run_request *opts, const cJSON *request, const struct run_ports_ops *ops,
	cJSON **ret, struct ak_err *err);

struct run_desk {
	int listener, client; /* owned, or -1 */
	uint64_t until_ms; /* when a client that has sent nothing is dropped; 0: there is none */
};

void run_desk_init(struct run_desk *d);
void run_desk_done(struct run_desk *d);

/* Listen for the run whose folder DIR_FD is. Best effort: without a desk no further port can be published. */
void run_desk_open(struct run_desk *d, int dir_fd);

int run_desk_fd(const struct run_desk *d); /* wait until it is readable; -1: never */

/* The descriptor was readable, or a timer expired. True: a client sent *RET, and is owed an answer. */
bool run_desk_serve(struct run_desk *d, cJSON **ret);

/* Answer the client and close its connection. OBJ (borrowed) NULL: ERR is the answer. */
void run_desk_answer(struct run_desk *d, int rc, const cJSON *obj, const struct ak_err *err);

/* The client's side: connect to the desk of the run in DIR. -ECONNREFUSED if it has none. */
int run_desk_connect(const char *dir, struct ak_err *err);

#endif
