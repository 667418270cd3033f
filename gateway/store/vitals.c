/* The record of the daemon's life: see store/vitals.h. */
#include "gateway/store/vitals.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/base/json.h"
#include "gateway/base/say.h"
#include "gateway/base/strbuf.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#define RECORD "daemon.json"
#define LOCK "daemon.heal"
#define RECORD_MAX 8192
#define FAILURES_MAX 1000000
#define NUMBER_MAX (1ull << 52) /* what a JSON number holds exactly */

static const char *const state_names[] = {
	[VITALS_UNKNOWN] = "unknown",
	[VITALS_SERVES] = "serves",
	[VITALS_ENDED] = "ended",
	[VITALS_STOPPED] = "stopped",
};
static_assert(ARRAY_SIZE(state_names) == VITALS_STATE_NUM, "a name for each state");

/* ---- the record ---- */

static int parse(const cJSON *obj, struct vitals *l, struct ak_err *err)
{
	const char *state = "", *reason = "";
	uint64_t failures = 0, pid = 0;
	int rc = json_get_string(obj, "state", &state, err);

	if (rc >= 0)
		rc = json_get_string(obj, "reason", &reason, err);
	if (rc >= 0)
		rc = json_get_uint(obj, "pid", INT32_MAX, &pid, err);
	if (rc >= 0)
		rc = json_get_uint(obj, "failures", FAILURES_MAX, &failures, err);
	if (rc >= 0)
		rc = json_get_uint(obj, "began_ms", NUMBER_MAX, &l->began_ms, err);
	if (rc >= 0)
		rc = json_get_uint(obj, "retry_ms", NUMBER_MAX, &l->retry_ms, err);
	if (rc >= 0)
		rc = json_get_uint(obj, "log_bytes", NUMBER_MAX, &l->log_bytes, err);
	for (int i = 0; rc >= 0 && i < VITALS_STATE_NUM; i++) {
		if (!strcmp(state_names[i], state))
			l->state = (enum vitals_state)i;
	}
	l->pid = (pid_t)pid;
	l->failures = (unsigned)failures;
	snprintf(l->reason, sizeof(l->reason), "%s", reason);
	return rc;
}

static void read_at(int dir, struct vitals *ret)
{
	_cleanup_json_ cJSON *obj = NULL;
	_cleanup_free_ char *text = NULL;
	struct ak_err err;
	size_t len = 0;

	memset(ret, 0, sizeof(*ret));
	if (ak_read_file(dir, RECORD, RECORD_MAX, &text, &len) < 0)
		return;
	if (json_parse(text, len, &obj, &err) < 0 || parse(obj, ret, &err) < 0)
		memset(ret, 0, sizeof(*ret));
}

static void write_at(int dir, const struct vitals *l)
{
	_cleanup_strbuf_ struct strbuf out = { 0 };
	int rc;

	strbuf_printf(&out, "{\"state\":\"%s\",\"pid\":%d,\"failures\":%u,", state_names[l->state], (int)l->pid, l->failures);
	strbuf_printf(&out, "\"began_ms\":%llu,\"retry_ms\":%llu,\"log_bytes\":%llu,\"reason\":", (unsigned long long)l->began_ms,
		(unsigned long long)l->retry_ms, (unsigned long long)l->log_bytes);
	strbuf_json(&out, l->reason);
	strbuf_puts(&out, "}\n");
	rc = out.failed ? -ENOMEM : ak_replace_file(dir, RECORD, out.data, out.len, false);
	if (rc < 0)
		ak_say("%s cannot be written: %s", RECORD, strerror(-rc));
}

/* Read, change and write in one step, under the lock that ipc_listen takes for this folder; nobody holds it for long. */
static int open_locked(const struct ak_paths *paths)
{
	_cleanup_close_ int dir = -1;
	int rc = ak_mkdir_p(paths->runtime, 0700);

	if (rc < 0)
		return rc;
	dir = open(paths->runtime, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0 || flock(dir, LOCK_EX) < 0)
		return -errno;
	return TAKE_FD(dir);
}

void vitals_read(const struct ak_paths *paths, struct vitals *ret)
{
	_cleanup_close_ int dir = open(paths->runtime, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	memset(ret, 0, sizeof(*ret));
	if (dir >= 0)
		read_at(dir, ret);
}

/* ---- what happens to it ---- */

int vitals_begin(const struct ak_paths *paths, bool healing, uint64_t log_bytes, struct ak_err *err)
{
	_cleanup_close_ int dir = open_locked(paths);
	struct vitals l;

	if (dir < 0)
		return 0;
	read_at(dir, &l);
	if (healing && l.state == VITALS_STOPPED)
		return ak_fail(err, ECANCELED, "the daemon was stopped meanwhile");
	l.state = VITALS_SERVES;
	l.pid = getpid();
	l.began_ms = ak_now_ms();
	l.log_bytes = log_bytes;
	write_at(dir, &l);
	ak_close(openat(dir, LOCK, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600)); /* so that no file appears later */
	return 0;
}

bool vitals_stop(const struct ak_paths *paths)
{
	_cleanup_close_ int dir = open_locked(paths);
	struct vitals l;
	bool news;

	if (dir < 0)
		return false;
	read_at(dir, &l);
	news = l.state == VITALS_SERVES || l.state == VITALS_ENDED;
	l = (struct vitals){ .state = VITALS_STOPPED };
	write_at(dir, &l);
	return news;
}

uint64_t vitals_delay_ms(unsigned failures)
{
	unsigned doublings = failures < 2 ? 0 : failures - 2;

	if (failures < 2)
		return 0;
	if (doublings > 16 || (uint64_t)VITALS_RETRY_FIRST_MS << doublings > VITALS_RETRY_MAX_MS)
		return VITALS_RETRY_MAX_MS;
	return (uint64_t)VITALS_RETRY_FIRST_MS << doublings;
}

void vitals_end(const struct ak_paths *paths, pid_t pid, const char *reason, struct vitals *ret)
{
	_cleanup_close_ int dir = open_locked(paths);
	uint64_t now = ak_now_ms();

	memset(ret, 0, sizeof(*ret));
	if (dir < 0)
		return;
	read_at(dir, ret);
	if (ret->state == VITALS_STOPPED || (ret->state == VITALS_SERVES && ret->pid != pid))
		return;
	/* A start in the future dates from before a reboot. */
	if (ret->state != VITALS_ENDED && (ret->began_ms > now || now - ret->began_ms >= VITALS_STEADY_MS))
		ret->failures = 0;
	if (ret->failures < FAILURES_MAX)
		ret->failures++;
	ret->state = VITALS_ENDED;
	ret->retry_ms = now + vitals_delay_ms(ret->failures);
	snprintf(ret->reason, sizeof(ret->reason), "%s", reason);
	write_at(dir, ret);
}

uint64_t vitals_wait_ms(const struct vitals *l, uint64_t now_ms)
{
	if (l->state != VITALS_ENDED || l->retry_ms <= now_ms || l->retry_ms - now_ms > VITALS_RETRY_MAX_MS)
		return 0;
	return l->retry_ms - now_ms;
}

/* ---- who may act on it ---- */

int vitals_lock(const struct ak_paths *paths)
{
	_cleanup_close_ int fd = -1;
	char path[PATH_MAX];

	if (ak_path_join(path, paths->runtime, LOCK, NULL) < 0)
		return -ENAMETOOLONG;
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0)
		return -errno;
	return TAKE_FD(fd);
}

void vitals_tell(const struct vitals *l, uint64_t now_ms, struct ak_err *ret)
{
	char times[64] = "it ended", next[64] = "";
	uint64_t wait = vitals_wait_ms(l, now_ms);

	if (l->failures > 1)
		snprintf(times, sizeof(times), "it ended %u times in a row, the last time", l->failures);
	if (wait)
		snprintf(next, sizeof(next), "; next attempt in %llu s", (unsigned long long)(wait + 999) / 1000);
	(void)ak_fail(ret, EAGAIN, "%s %s%s", times, l->reason[0] ? l->reason : "for a reason that is not known", next);
}
