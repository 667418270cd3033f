/* The gateway process of one `run`: started, listened to and stopped. It reports to the run's life. */
#ifndef AK_RUN_GATEWAY_H
#define AK_RUN_GATEWAY_H

#include "gateway/host/gw.h"
#include "gateway/host/resolv.h"
#include "gateway/run/life.h"

#define RUN_LINK_ID 1 /* of the only sandbox that it hosts */

struct run_gw {
	struct run_life *life; /* borrowed: outlives us */
	pid_t pid; /* 0 when there is none (any more) */
	int control; /* owned */
	struct resolv_stamp resolv;
	uint64_t look_at_ms; /* when to look at the resolver file again; 0: never */
	uint64_t stop_by_ms; /* when its last numbers are given up; 0 unless it was told to stop */
};

void run_gw_init(struct run_gw *g, struct run_life *life);
void run_gw_done(struct run_gw *g); /* kills one that was not stopped; waits for its end */

/* NET_SOCK is borrowed. */
int run_gw_start(struct run_gw *g, const struct gwns_link *link, int net_sock, struct ak_err *err);

void run_gw_read(struct run_gw *g); /* g->control is readable */
void run_gw_stop(struct run_gw *g); /* ask for its last numbers; life_unhosted answers */
void run_gw_tick(struct run_gw *g);
uint64_t run_gw_due_ms(const struct run_gw *g); /* 0: never */

#endif
