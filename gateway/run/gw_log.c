/* Network logs for the gateway process: see run/gw_log.h. */
#include "gateway/run/gw_log.h"

#include "gateway/base/cleanup.h"
#include "gateway/log/audit.h"
#include "gateway/log/audit_anchor.h"
#include "gateway/log/events.h"
#include "gateway/log/stats.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void hand_key(const struct audit_key *key, const char *kind, const char *name, struct gw_log_at *at)
{
	struct audit_mac m;

	audit_mac_init(&m, key, kind, name, at->seq);
	at->keyed = true;
	at->epoch = m.epoch;
	memcpy(at->key, m.key, sizeof(at->key));
}

static int hand_keys(const struct ak_paths *paths, const char *name, struct gw_log_state *ret, struct ak_err *err)
{
	struct audit_key key;
	int rc = audit_key_of(paths->state, &key, err);

	if (rc < 0)
		return rc;
	hand_key(&key, "network", name, &ret->own);
	hand_key(&key, "kept", name, &ret->kept);
	return 0;
}

int gw_log_begin(const struct ak_paths *paths, const char *name, struct gw_log_state *ret, struct ak_err *err)
{
	*ret = (struct gw_log_state){ 0 };
	return hand_keys(paths, name, ret, err);
}

/* Reopen the file of W write-only, store W's position in AT, and close W. */
static int hand_over(struct audit_writer *w, struct gw_log_at *at)
{
	char self[32];
	int fd;

	snprintf(self, sizeof(self), "/proc/self/fd/%d", w->fd);
	fd = open(self, O_WRONLY | O_APPEND | O_CLOEXEC);
	at->seq = w->seq;
	at->size = w->size;
	memcpy(at->prev, w->prev, sizeof(at->prev));
	audit_writer_done(w);
	return fd < 0 ? -errno : fd;
}

/* With SURE, fail unless the disk has room for all that the file may come to hold. */
static int open_kept(const char *path, bool sure, struct gw_log_state *ret, int *ret_fd, struct ak_err *err)
{
	struct audit_writer w;
	int rc = audit_open_kept(path, &w, err);

	if (rc < 0)
		return rc;
	if (sure && w.tight) {
		audit_writer_done(&w);
		return ak_fail(err, ENOSPC, "no room to keep what rotation takes from '%s'", path);
	}
	*ret_fd = hand_over(&w, &ret->kept);
	return *ret_fd < 0 ? ak_fail_errno(err, -*ret_fd, "%s", path) : 0;
}

/* If the log is shorter than its anchor says, record that in the events log now: continuing the log moves the anchor. */
static void tell_gap(const struct ak_paths *paths, const char *name, const struct gw_log_state *log)
{
	_cleanup_strbuf_ struct strbuf more = { 0 };
	struct audit_anchor a;

	if (audit_anchor_get(paths->state, name, NULL, &a) < 0 || a.newest.seq <= log->own.seq)
		return;
	strbuf_printf(&more, ",\"had\":%llu,\"has\":%llu,\"restarted\":%s", (unsigned long long)a.newest.seq,
		(unsigned long long)log->own.seq, audit_anchor_restarted(&a) && a.settled.seq <= log->own.seq ? "true" : "false");
	event_write(paths, "log_gap", name, &more);
	audit_anchor_drop(paths->state, name);
}

/* Every log has an anchor from its first start on, even without records: `audit verify` reports a missing anchor. */
static int anchor_now(const struct ak_paths *paths, const char *name, const struct gw_log_at *at, struct ak_err *err)
{
	struct audit_anchor a;
	struct audit_key key;
	int rc;

	if (audit_anchor_get(paths->state, name, NULL, &a) != -ENOENT)
		return 0;
	rc = audit_key_of(paths->state, &key, err);
	if (rc == 0 && (rc = audit_anchor_set(paths->state, name, &key, at->seq, at->prev)) < 0)
		ak_fail_errno(err, -rc, "cannot anchor the log of '%s'", name);
	return rc;
}

static bool was_rotated(const char *path)
{
	char first[PATH_MAX];

	return snprintf(first, sizeof(first), "%s.first", path) < (int)sizeof(first) && access(first, F_OK) == 0;
}

int gw_log_open(const struct ak_paths *paths, const char *name, const char *path, struct gw_log_state *ret,
	int fds[static GW_LOG_FDS], struct ak_err *err)
{
	struct audit_writer w;
	int rc = audit_open(path, &w, err);

	*ret = (struct gw_log_state){ 0 };
	fds[GW_LOG_OWN] = fds[GW_LOG_KEPT] = -1;
	if (rc < 0)
		return rc;
	fds[GW_LOG_OWN] = hand_over(&w, &ret->own);
	if (fds[GW_LOG_OWN] < 0)
		return ak_fail_errno(err, -fds[GW_LOG_OWN], "%s", path);
	tell_gap(paths, name, ret);
	rc = anchor_now(paths, name, &ret->own, err);
	if (rc < 0)
		return rc;
	if (was_rotated(path)) {
		rc = open_kept(path, false, ret, &fds[GW_LOG_KEPT], err);
		audit_find_gone(path, &ret->gone_from, &ret->gone_to);
	}
	return rc < 0 ? rc : hand_keys(paths, name, ret, err);
}

int gw_log_rotate(const struct ak_paths *paths, const char *name, const char *path, struct gw_log_state *ret,
	int fds[static GW_LOG_FDS], struct ak_err *err)
{
	_cleanup_close_ int kept = -1;
	int rc;

	*ret = (struct gw_log_state){ 0 };
	fds[GW_LOG_OWN] = fds[GW_LOG_KEPT] = -1;
	rc = open_kept(path, true, ret, &kept, err); /* first: rotation must not drop a record that cannot be copied */
	if (rc == 0)
		rc = hand_keys(paths, name, ret, err);
	if (rc == 0)
		rc = audit_rotate(path, err);
	if (rc < 0)
		return rc;
	fds[GW_LOG_OWN] = rc;
	fds[GW_LOG_KEPT] = TAKE_FD(kept);
	audit_find_gone(path, &ret->gone_from, &ret->gone_to);
	return 0;
}

void gw_log_anchor(const struct ak_paths *paths, const char *name, const struct gw_stats *stats)
{
	struct audit_key key;
	struct ak_err err;

	if (stats->records && audit_key_of(paths->state, &key, &err) == 0)
		(void)audit_anchor_set(paths->state, name, &key, stats->records, stats->hash);
}

void gw_log_put_mark(struct strbuf *out, const struct gw_stats *stats)
{
	if (stats->records)
		strbuf_printf(out, ",\"network_records\":%llu,\"network_hash\":\"%s\"", (unsigned long long)stats->records,
			stats->hash);
}
