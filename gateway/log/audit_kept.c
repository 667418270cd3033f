/*
 * NAME.kept: copies that survive rotation. The gateway process selects those of a network log (host/events.c); this file selects
 * those of the events log, by kind.
 *
 * The events log has many writers without shared memory, so each copy ends with how much every origin has used of its share so
 * far.
 */
#include "gateway/log/audit_line.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define TAIL 512 /* end of a record: contains the used shares, the hashes and the MAC */

/* In the order of enum run_origin; events without an origin count as the user's. */
static const char *const origins[] = { "cli", "http", "mcp" };
#define ORIGINS ARRAY_SIZE(origins)
#define SHARE (AUDIT_KEPT_BYTES / ORIGINS)

/* Frequent events may use only half of a share. */
static const struct {
	const char *event;
	bool often;
} kinds[] = {
	{ "log_gap", false },
	{ "log_mark", true },
	{ "project_changed", false },
	{ "run_discard", false },
	{ "run_end", true },
	{ "run_prune", false },
	{ "sandbox_create", false },
	{ "sandbox_denials", false },
	{ "sandbox_fork", false },
	{ "sandbox_policy", false },
	{ "sandbox_publish", false },
	{ "sandbox_remove", false },
	{ "sandbox_restore", false },
	{ "sandbox_snapshot", true },
	{ "sandbox_start", true },
	{ "sandbox_stop", true },
};

int audit_open_kept(const char *path, struct audit_writer *w, struct ak_err *err)
{
	char name[PATH_MAX];
	int rc = audit_file_name(path, AUDIT_NUMBER_KEPT, name, sizeof(name));

	if (rc < 0)
		return ak_fail_errno(err, -rc, "'%s'", path);
	rc = audit_open(name, w, err);
	if (rc == 0)
		w->tight = audit_set_room(w->fd, AUDIT_KEPT_BYTES) < 0;
	return rc;
}

uint64_t audit_kept_stand(const char *path, char ret_hash[static SHA256_HEX])
{
	struct audit_writer w;
	struct ak_err err;
	uint64_t seq;

	ret_hash[0] = '\0';
	if (audit_open_kept(path, &w, &err) < 0)
		return 0;
	seq = w.seq;
	snprintf(ret_hash, SHA256_HEX, "%.*s", SHA256_HEX - 1, w.prev);
	audit_writer_done(&w);
	return seq;
}

/* How much of a share events like FIELDS may use; 0: not kept. */
static uint64_t room_for(const char *fields)
{
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		char mark[64];
		int n = snprintf(mark, sizeof(mark), "\"event\":\"%s\"", kinds[i].event);

		if (strncmp(fields, mark, (size_t)n) == 0)
			return kinds[i].often ? SHARE / 2 : SHARE;
	}
	return 0;
}

/* Quotes in texts are escaped, so only a member of our own matches. */
static size_t origin_of(const char *fields)
{
	for (size_t i = 0; i < ORIGINS; i++) {
		char mark[64];

		snprintf(mark, sizeof(mark), ",\"origin\":\"%s\"", origins[i]);
		if (strstr(fields, mark))
			return i;
	}
	return 0;
}

/* Read the used shares from the last record; if it has none, count all of them as used. */
static void read_used(const struct audit_writer *w, uint64_t used[static ORIGINS])
{
	char tail[TAIL + 1], *at = NULL;
	size_t want = w->size < TAIL ? (size_t)w->size : TAIL;
	ssize_t n = ak_pread_all(w->fd, tail, want, w->size - want);

	tail[n > 0 ? n : 0] = '\0';
	for (char *next = tail; (next = strstr(next, ",\"used_cli\":")); next++)
		at = next;
	for (size_t i = 0; i < ORIGINS; i++) {
		char mark[32];

		snprintf(mark, sizeof(mark), ",\"used_%s\":", origins[i]);
		used[i] = at ? audit_line_number(at, strlen(at), mark) : w->size ? SHARE : 0;
	}
}

static int write_copy(struct audit_writer *w, uint64_t of, const char *fields, uint64_t room)
{
	size_t origin = origin_of(fields);
	uint64_t used[ORIGINS];
	int rc = audit_write_loss(w, NULL);

	if (rc < 0)
		return rc;
	read_used(w, used);
	used[origin] += strlen(fields) + TAIL;
	if (used[origin] > room)
		return 0;
	audit_line_begin(w);
	strbuf_printf(&w->line, ",\"of\":%llu,%s", (unsigned long long)of, fields);
	for (size_t i = 0; i < ORIGINS; i++)
		strbuf_printf(&w->line, ",\"used_%s\":%llu", origins[i], (unsigned long long)used[i]);
	return audit_line_end(w);
}

int audit_keep_event(const char *path, const struct audit_key *key, uint64_t of, const char *fields)
{
	uint64_t room = room_for(fields);
	struct audit_writer w;
	char first[PATH_MAX];
	struct ak_err err;
	int rc;

	if (!room || audit_file_name(path, AUDIT_NUMBER_FIRST, first, sizeof(first)) < 0 || access(first, F_OK) < 0)
		return 0;
	rc = audit_open_kept(path, &w, &err);
	if (rc < 0)
		return rc;
	audit_mac_init(&w.mac, key, "kept", "", w.seq);
	rc = write_copy(&w, of, fields, room);
	audit_writer_done(&w);
	return rc;
}
