/* The supervisor's side of a network log: what the gateway process, which can open nothing, needs to write it. */
#ifndef AK_GW_LOG_H
#define AK_GW_LOG_H

#include "gateway/base/paths.h"
#include "gateway/base/strbuf.h"
#include "gateway/host/gw.h"

/* A log and its copies of what rotation takes away. */
enum { GW_LOG_OWN, GW_LOG_KEPT, GW_LOG_FDS };

/* The state of a new log of NAME. */
int gw_log_begin(const struct ak_paths *paths, const char *name, struct gw_log_state *ret, struct ak_err *err);

/* Go on with the log at PATH. The descriptors can only append; that of the copies is -1 as long as there are none. */
int gw_log_open(const struct ak_paths *paths, const char *name, const char *path, struct gw_log_state *ret,
	int fds[static GW_LOG_FDS], struct ak_err *err);

/* A fresh file in its place. */
int gw_log_rotate(const struct ak_paths *paths, const char *name, const char *path, struct gw_log_state *ret,
	int fds[static GW_LOG_FDS], struct ak_err *err);

/* The log of NAME stands where STATS says. */
void gw_log_anchor(const struct ak_paths *paths, const char *name, const struct gw_stats *stats);

/* The same as members of an event; nothing when there are no records. */
void gw_log_put_mark(struct strbuf *out, const struct gw_stats *stats);

#endif
