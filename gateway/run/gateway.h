/* The gateway process of one `run`: start it, read its messages, stop it. Its events go to the run's life (run/life.h). */
#ifndef AK_RUN_GATEWAY_H
#define AK_RUN_GATEWAY_H

#include "gateway/host/gw.h"
#include "gateway/host/resolv.h"
#include "gateway/run/life.h"

#define RUN_LINK_ID 1 /* of the only sandbox in this gateway */

struct run_gw {
	struct run_life *life; /* borrowed: outlives us */
	pid_t pid; /* 0 before the start and after the end */
	int control; /* owned */
	struct resolv_stamp resolv;
	uint64_t look_at_ms; /* when to check the resolver file again; 0: never */
	uint64_t stop_by_ms; /* when to stop waiting for its final statistics; 0 unless it was told to stop */
};

void run_gw_init(struct run_gw *g, struct run_life *life);
void run_gw_done(struct run_gw *g); /* kills a gateway that was not stopped; waits for its end */

/* NET_SOCK is borrowed. */
int run_gw_start(struct run_gw *g, const struct gwns_link *link, int net_sock, struct ak_err *err);

/* Pass a published port to it; FD, the listener, is borrowed. The sandbox is READY. */
int run_gw_publish(struct run_gw *g, const struct ak_publish *p, int fd, struct ak_err *err);

void run_gw_unpublish(struct run_gw *g, const struct ak_publish *p); /* and cut its connections */

void run_gw_read(struct run_gw *g); /* g->control is readable */
void run_gw_stop(struct run_gw *g); /* ask for its final statistics; they arrive by life_unhosted */
void run_gw_tick(struct run_gw *g);
uint64_t run_gw_due_ms(const struct run_gw *g); /* 0: never */

#endif
