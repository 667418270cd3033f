/*
 * More commands in a running sandbox, on the caller's side.
 *
 * A command is on one of two lists: "running" while it has no event, "told" while an event waits to be fetched. It is removed
 * after its end, which is reported exactly once: by init, or because the sandbox ended.
 */
#include "vmctl/caller.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "vmctl/pack.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>

#define SEND_PATIENCE_MS 5000 /* init may be busy starting other commands */

struct exec {
	TAILQ_ENTRY(exec) link;
	uint32_t id;
	bool begun; /* its start was reported */
	bool started, ended; /* events to fetch */
	bool over; /* has ended, whether or not the event was fetched */
	int tty; /* owned until it is fetched */
	int exit_code;
	unsigned n_left; /* its processes that are still running; reported before its end */
	char left[AK_ERR_MAX];
	struct ak_err err;
};

static struct exec *find_in(const struct exec_list *list, uint32_t id)
{
	struct exec *e;

	TAILQ_FOREACH(e, list, link) {
		if (e->id == id)
			return e;
	}
	return NULL;
}

static struct exec *find(const struct sandbox *sb, uint32_t id)
{
	struct exec *e = find_in(&sb->running, id);

	return e ? e : find_in(&sb->told, id);
}

/* ---- start and signal ---- */

/*
 * A full socket, or too many descriptors in flight, means that init is busy. Read its messages meanwhile, or both sides would
 * wait forever.
 */
static int send_patiently(struct sandbox *sb, const struct sb_msg *msg, const int *fds, size_t n_fds)
{
	uint64_t deadline = ak_now_ms() + SEND_PATIENCE_MS;

	for (;;) {
		struct pollfd p = { .fd = sb->ctl, .events = POLLOUT };
		int rc;

		if (sb->ctl < 0)
			return -EPIPE;
		rc = sb_send_fds(sb->ctl, msg->type, msg->id, msg->value, NULL, fds, n_fds);
		if ((rc != -EAGAIN && rc != -ETOOMANYREFS) || ak_now_ms() >= deadline)
			return rc;
		if (rc == -ETOOMANYREFS)
			p.events = POLLIN; /* init reports every command that starts */
		sandbox_poll(sb);
		if (sb->ctl >= 0)
			poll(&p, 1, 10);
	}
}

static int seal(const struct sandbox_exec *ex)
{
	_cleanup_strbuf_ struct strbuf pack = { 0 };

	pack_list(&pack, ex->argv);
	pack_list(&pack, ex->envp);
	pack_str(&pack, ex->workdir);
	pack_u64(&pack, ex->tty);
	pack_u64(&pack, ex->rows);
	pack_u64(&pack, ex->cols);
	return pack_seal(&pack);
}

static int send_exec(struct sandbox *sb, uint32_t id, const struct sandbox_exec *ex, struct ak_err *err)
{
	struct sb_msg msg = { .type = SB_MSG_EXEC, .id = id };
	_cleanup_close_ int pack = seal(ex);
	int fds[4] = { pack }, rc;
	size_t n = 1;

	if (pack < 0)
		return ak_fail_errno(err, -pack, "arguments and environment of the command");
	for (int i = 0; i < 3 && !ex->tty; i++) {
		if (ex->stdio[i] < 0)
			continue;
		msg.value |= 1 << i;
		fds[n++] = ex->stdio[i];
	}
	if (sb->ids.lent && !ex->tty)
		sb_ids_give_pipes(&sb->ids, ex->stdio);
	rc = send_patiently(sb, &msg, fds, n);
	return rc < 0 ? ak_fail_errno(err, -rc, "passing the command to the sandbox") : 0;
}

static int check(const struct sandbox *sb, uint32_t id, const struct sandbox_exec *ex, struct ak_err *err)
{
	if (sb->state != SANDBOX_RUNNING || !sb->serves)
		return ak_fail(err, EBUSY, "the sandbox does not accept commands now");
	if (!ex->argv || !ex->argv[0] || !ex->envp)
		return ak_fail(err, EINVAL, "command and environment are needed");
	if (find(sb, id))
		return ak_fail(err, EEXIST, "command %u runs already", id);
	return ex->tty ? 0 : sandbox_check_streams(ex->stdio, err);
}

int sandbox_exec(struct sandbox *sb, uint32_t id, const struct sandbox_exec *ex, struct ak_err *err)
{
	struct exec *e;
	int rc = check(sb, id, ex, err);

	if (rc < 0)
		return rc;
	e = calloc(1, sizeof(*e));
	if (!e)
		return ak_fail(err, ENOMEM, "out of memory");
	e->id = id;
	e->tty = -1;
	rc = send_exec(sb, id, ex, err);
	if (rc < 0) {
		free(e);
		return rc;
	}
	TAILQ_INSERT_TAIL(&sb->running, e, link);
	return 0;
}

int sandbox_exec_signal(struct sandbox *sb, uint32_t id, int sig)
{
	struct sb_msg msg = { .type = SB_MSG_EXEC_SIGNAL, .id = id, .value = sig };
	const struct exec *e;

	if (sig < 0 || sig > SIGRTMAX)
		return -EINVAL;
	sandbox_poll(sb);
	e = find(sb, id);
	if (!e || e->over || sb->state != SANDBOX_RUNNING)
		return -ESRCH;
	return send_patiently(sb, &msg, NULL, 0);
}

/* ---- published ports ---- */

int sandbox_channel(struct sandbox *sb, int fd, struct ak_err *err)
{
	struct sb_msg msg = { .type = SB_MSG_CHANNEL };
	int rc;

	if (sb->state != SANDBOX_READY && sb->state != SANDBOX_RUNNING)
		return ak_fail(err, ENOENT, "the sandbox is not running");
	rc = send_patiently(sb, &msg, &fd, 1);
	return rc < 0 ? ak_fail_errno(err, -rc, "passing a channel to the sandbox") : 0;
}

/* ---- events ---- */

static void tell(struct sandbox *sb, struct exec *e)
{
	if (e->started || e->ended)
		return;
	TAILQ_REMOVE(&sb->running, e, link);
	TAILQ_INSERT_TAIL(&sb->told, e, link);
}

void sandbox_on_exec(struct sandbox *sb, const struct sb_msg *msg, int fd)
{
	struct exec *e = find(sb, msg->id);

	if (!e || e->over || (msg->type == SB_MSG_EXEC_STARTED && e->begun)) {
		ak_close(fd);
		return;
	}
	if (msg->type == SB_MSG_EXEC_LEFT) {
		ak_close(fd);
		e->n_left = msg->value > 0 ? (unsigned)msg->value : 0;
		memcpy(e->left, msg->text, sizeof(e->left));
		return;
	}
	tell(sb, e);
	if (msg->type == SB_MSG_EXEC_STARTED) {
		e->begun = e->started = true;
		e->tty = fd;
		return;
	}
	ak_close(fd);
	e->ended = e->over = true;
	e->exit_code = msg->value;
	memcpy(e->err.text, msg->text, sizeof(e->err.text));
}

/* A virtual machine's last note, if it came after the start, tells why it has ended. */
static const char *reason_of_end(const struct sandbox *sb)
{
	const char *late = sb->vm && sb->notes.len > sb->notes_at_go ? sb->notes.data + sb->notes_at_go : "", *last = late;

	for (const char *line = late; line[0]; line += strcspn(line, "\n") + 1)
		last = line;
	return last[0] ? last : "the sandbox has ended\n";
}

void sandbox_end_execs(struct sandbox *sb)
{
	const char *why = reason_of_end(sb);
	struct exec *e;

	TAILQ_CONCAT(&sb->told, &sb->running, link);
	TAILQ_FOREACH(e, &sb->told, link) {
		if (e->over)
			continue;
		e->ended = e->over = true;
		e->exit_code = 128 + SIGKILL;
		ak_fail(&e->err, ESRCH, "%.*s", (int)strcspn(why, "\n"), why);
	}
}

static void free_exec(struct exec *e)
{
	ak_close(e->tty);
	free(e);
}

bool sandbox_exec_next(struct sandbox *sb, struct sandbox_exec_event *ret)
{
	struct exec *e = TAILQ_FIRST(&sb->told);

	if (!e)
		return false;
	*ret = (struct sandbox_exec_event){ .id = e->id, .state = SANDBOX_EXEC_STARTED, .tty_fd = -1 };
	if (e->started) {
		e->started = false;
		ret->tty_fd = TAKE_FD(e->tty);
		if (e->ended)
			return true;
		TAILQ_REMOVE(&sb->told, e, link);
		TAILQ_INSERT_TAIL(&sb->running, e, link);
		return true;
	}
	ret->state = SANDBOX_EXEC_ENDED;
	ret->exit_code = e->exit_code;
	ret->err = e->err;
	ret->n_left = e->n_left;
	memcpy(ret->left, e->left, sizeof(ret->left));
	TAILQ_REMOVE(&sb->told, e, link);
	free_exec(e);
	return true;
}

void sandbox_free_execs(struct sandbox *sb)
{
	struct exec *e;

	TAILQ_CONCAT(&sb->told, &sb->running, link);
	while ((e = TAILQ_FIRST(&sb->told))) {
		TAILQ_REMOVE(&sb->told, e, link);
		free_exec(e);
	}
}
