/* Open and rotate a network log for the gateway process, which writes the log but cannot open files itself. */
#ifndef AK_GW_LOG_H
#define AK_GW_LOG_H

#include "gateway/base/paths.h"
#include "gateway/base/strbuf.h"
#include "gateway/host/gw.h"

/* Descriptors: the log itself, and the file with copies of records that rotation would drop. */
enum { GW_LOG_OWN, GW_LOG_KEPT, GW_LOG_FDS };

/* The initial state of a new log of NAME. */
int gw_log_begin(const struct ak_paths *paths, const char *name, struct gw_log_state *ret, struct ak_err *err);

/* Continue the log at PATH. The descriptors are append-only; fds[GW_LOG_KEPT] is -1 as long as there are no copies. */
int gw_log_open(const struct ak_paths *paths, const char *name, const char *path, struct gw_log_state *ret,
	int fds[static GW_LOG_FDS], struct ak_err *err);

/* Rotate: continue in a new file. */
int gw_log_rotate(const struct ak_paths *paths, const char *name, const char *path, struct gw_log_state *ret,
	int fds[static GW_LOG_FDS], struct ak_err *err);

/* Write the anchor of the log of NAME: its last record, from STATS. */
void gw_log_anchor(const struct ak_paths *paths, const char *name, const struct gw_stats *stats);

/* Add the same as members of an event; nothing if there are no records. */
void gw_log_put_mark(struct strbuf *out, const struct gw_stats *stats);

#endif
