/*
 * The healer: restarts the daemon of running sandboxes after it died. A supervisor starts it (super/watch.c).
 *
 * Theory of operation. The healer holds the lock of store/vitals.h as long as it lives, so there is only one. It records how the last daemon died, waits
 * according to the number of deaths in a row, starts a daemon as its child, and stays its parent until the daemon has lived for VITALS_STEADY_MS. So it learns
 * the signal or exit code of a daemon that dies again. Then it ends. It gives up when a user stopped the daemon, when someone else serves, and,
 * while it waits, when its supervisor ends; a supervisor that still runs starts the next healer.
 *
 * The daemon is the same as one that a command starts: the same function of the same program, with the environment of the first daemon (supervisors
 * inherit it) and none of our descriptors. Until it serves there is no gateway process, hence no network.
 */
#include "gateway/daemon/internal.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/base/say.h"
#include "gateway/ipc/spawn.h"
#include "gateway/log/events.h"
#include "gateway/store/vitals.h"
#include "gateway/super/super.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define LINE_MAX_BYTES 200 /* of the log, in a reason */
#define SAY_PREFIX "agentkernel: " /* of every line in it */
#define REAP_MS 50 /* how long init may take to reap the dead daemon */
#define LOOK_MS 500 /* while waiting: how often to check whether a restart is still wanted */

struct heal {
	struct ak_paths paths;
	int super; /* owned; hangs up when the supervisor that started us ends, or has been adopted */
	int lock; /* owned */
	int gone; /* owned; pidfd of the daemon that died; -1 if unknown */
	uint64_t gone_ms; /* when it died */
	unsigned attempts; /* of ours that failed: limits us even if the record cannot be written */
};

/* ---- why it ended ---- */

/* The text goes into the record, an event and a terminal, and truncation may have split a character. */
static void to_ascii(char *text)
{
	for (; *text; text++) {
		if (*text < ' ' || *text > '~')
			*text = '?';
	}
}

/* The last line of the log from FROM on; "" if there is none. */
static void last_line(const struct heal *h, uint64_t from, char ret[static LINE_MAX_BYTES + 1])
{
	char path[PATH_MAX], tail[LINE_MAX_BYTES + 1], *start;
	_cleanup_close_ int fd = daemon_log_path(&h->paths, path) == 0 ? open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW) : -1;
	struct stat st;
	ssize_t n;

	ret[0] = '\0';
	if (fd < 0 || fstat(fd, &st) < 0 || (uint64_t)st.st_size <= from)
		return;
	if ((uint64_t)st.st_size - from > sizeof(tail) - 1)
		from = (uint64_t)st.st_size - (sizeof(tail) - 1);
	n = ak_pread_all(fd, tail, sizeof(tail) - 1, from);
	while (n > 0 && tail[n - 1] == '\n')
		n--;
	if (n <= 0)
		return;
	tail[n] = '\0';
	start = strrchr(tail, '\n');
	start = start ? start + 1 : tail;
	if (!strncmp(start, SAY_PREFIX, strlen(SAY_PREFIX)))
		start += strlen(SAY_PREFIX);
	memcpy(ret, start, strlen(start) + 1);
}

/* From linux/pidfd.h of Linux 6.15: the exit status of a process that need not be our child, once it was reaped. */
struct exit_info {
	uint64_t mask, cgroup;
	uint32_t ids[11];
	int32_t status;
};
#define EXIT_INFO _IOWR(0xff, 11, struct exit_info)
#define EXIT_INFO_STATUS (1u << 3)
static_assert(sizeof(struct exit_info) == 64, "PIDFD_INFO_SIZE_VER0, which is part of the request number");

/* The wait status of the daemon that died; -1 if the kernel does not tell. */
static int status_of_gone(const struct heal *h)
{
	struct exit_info info = { .mask = EXIT_INFO_STATUS };
	struct pollfd reaped = { .fd = h->gone };

	if (h->gone < 0)
		return -1;
	if (ioctl(h->gone, EXIT_INFO, &info) < 0 && errno != ESRCH)
		return -1;
	if (info.mask & EXIT_INFO_STATUS)
		return info.status;
	(void)poll(&reaped, 1, REAP_MS);
	info = (struct exit_info){ .mask = EXIT_INFO_STATUS };
	return ioctl(h->gone, EXIT_INFO, &info) == 0 && info.mask & EXIT_INFO_STATUS ? info.status : -1;
}

/* A daemon that died. STATUS is its wait status, or -1 if not known; FAILURE is what it reported before it served, or "". */
struct dead {
	pid_t pid;
	int status;
	struct ak_err failure;
	uint64_t log_bytes; /* length of the log when it started */
};

static void record_end(struct heal *h, const struct dead *d, struct vitals *ret)
{
	char line[LINE_MAX_BYTES + 1], how[96], reason[VITALS_REASON_MAX];

	last_line(h, d->log_bytes, line);
	if (d->status >= 0 && WIFSIGNALED(d->status))
		snprintf(how, sizeof(how), "by signal %d (%s)", WTERMSIG(d->status), strsignal(WTERMSIG(d->status)));
	else if (d->status >= 0)
		snprintf(how, sizeof(how), "with exit code %d", WEXITSTATUS(d->status));
	else
		snprintf(how, sizeof(how), "without saying why (killed, or crashed)");
	if (d->status >= 0 && WIFEXITED(d->status) && d->failure.text[0])
		snprintf(reason, sizeof(reason), "before it served: %.250s", d->failure.text);
	else
		snprintf(reason, sizeof(reason), "%s%s%s", how, line[0] ? "; its last message: " : "", line);
	to_ascii(reason);
	vitals_end(&h->paths, d->pid, reason, ret);
	if (ret->state == VITALS_ENDED)
		ak_say("the daemon ended %s", ret->reason);
}

/* ---- a new one ---- */

static void note_restart(struct heal *h, const struct vitals *l)
{
	_cleanup_strbuf_ struct strbuf more = { 0 };

	event_put_text(&more, "reason", l->reason);
	strbuf_printf(&more, ",\"failures\":%u,\"down_ms\":%llu", l->failures, (unsigned long long)(ak_now_ms() - h->gone_ms));
	(void)event_write(&h->paths, "daemon_restart", "-", &more);
}

/* Wait until it has lived long enough, or died: true if it died, with its wait status. */
static bool ended_early(pid_t pid, int *ret_status)
{
	_cleanup_close_ int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	uint64_t until = ak_now_ms() + VITALS_STEADY_MS, now;
	struct pollfd p = { .fd = pidfd, .events = POLLIN };

	if (pidfd < 0)
		return false;
	while ((now = ak_now_ms()) < until && poll(&p, 1, (int)(until - now)) <= 0)
		;
	return waitpid(pid, ret_status, WNOHANG) == pid;
}

/* One attempt. True if there is nothing left to do: the daemon is steady, another one serves, or a user stopped it. */
static bool try_once(struct heal *h, struct vitals *l)
{
	static const struct daemon_conf conf = { .healing = true };
	struct dead d = { .pid = -1 };
	int rc;

	/* Before it starts: everything after this in the log comes from the new daemon. */
	ak_say("restarting the daemon; connections that sandboxes had open are cut");
	d.log_bytes = daemon_log_bytes();
	rc = daemon_spawn_child(&h->paths, &conf, &d.pid, &d.failure);
	if (rc == 0) {
		note_restart(h, l);
		if (!ended_early(d.pid, &d.status))
			return true;
		h->gone_ms = ak_now_ms();
	} else if (d.pid < 0) {
		d.status = -1;
	} else {
		while (waitpid(d.pid, &d.status, 0) < 0 && errno == EINTR)
			;
	}
	if (rc == -EADDRINUSE || rc == -ECANCELED)
		return true;
	h->attempts++;
	record_end(h, &d, l);
	return l->state != VITALS_ENDED;
}

/* ---- whether and when ---- */

static bool wanted(const struct heal *h, struct vitals *l)
{
	vitals_read(&h->paths, l);
	return l->state != VITALS_STOPPED && !super_daemon_served(&h->paths);
}

/* Wait until the next attempt is due. False to give up: a user stopped the daemon, another one serves, or our supervisor ended. */
static bool wait_turn(struct heal *h, struct vitals *l)
{
	uint64_t now = ak_now_ms(), first = vitals_wait_ms(l, now), own = vitals_delay_ms(h->attempts), until;
	struct pollfd p = { .fd = h->super, .events = POLLRDHUP };

	until = now + (first > own ? first : own);
	for (;;) {
		if (!wanted(h, l))
			return false;
		now = ak_now_ms();
		if (now >= until)
			return true;
		if (poll(&p, 1, until - now < LOOK_MS ? (int)(until - now) : LOOK_MS) > 0)
			return false;
	}
}

static void heal(struct heal *h)
{
	struct vitals l;

	if (!wanted(h, &l))
		return;
	if (l.state != VITALS_ENDED)
		record_end(h, &(struct dead){ .pid = l.pid, .status = status_of_gone(h), .log_bytes = l.log_bytes }, &l);
	while (l.state == VITALS_ENDED && wait_turn(h, &l) && !try_once(h, &l))
		;
}

static int receive_task(struct heal *h)
{
	_cleanup_json_ cJSON *obj = NULL;
	struct ak_err err;
	int fds[2] = { -1, -1 };
	size_t n = ARRAY_SIZE(fds);

	if (ipc_recv(h->super, &obj, fds, &n) <= 0 || n < 1)
		return -EPROTO;
	h->lock = fds[0];
	h->gone = fds[1];
	return json_get_uint(obj, "gone_ms", 1ull << 52, &h->gone_ms, &err);
}

static bool started_by_supervisor(void)
{
	int type = 0;
	socklen_t len = sizeof(type);

	return getsockopt(SPAWN_FD, SOL_SOCKET, SO_TYPE, &type, &len) == 0 && type == SOCK_SEQPACKET;
}

int daemon_heal_main(void)
{
	static struct heal h = { .super = SPAWN_FD, .lock = -1, .gone = -1 }; /* too large for a stack */
	struct ak_err err;

	if (!started_by_supervisor()) {
		ak_say("%s is an internal command that only a supervisor can start", HEAL_WORD);
		return AK_EXIT_USAGE;
	}
	spawn_settle();
	prctl(PR_SET_NAME, "ak-heal");
	if (ak_paths_init(&h.paths, &err) < 0 || receive_task(&h) < 0)
		return AK_EXIT_ERROR;
	daemon_log_open(&h.paths);
	heal(&h);
	return 0;
}
