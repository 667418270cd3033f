/* A process for one blocking service call: see service/worker.h. */
#include "gateway/service/worker.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

struct head {
	uint64_t len; /* of the payload */
	int32_t rc;
	uint32_t zero;
};
static_assert(sizeof(struct head) == WORKER_HEAD, "the head of a frame");

/* ---- in the worker ---- */

static void write_result(struct work *w, int rc, const char *data, size_t len)
{
	const struct head head = { .len = len, .rc = rc };

	assert(!w->said);
	w->said = true;
	if (ak_write_all(w->fd, &head, sizeof(head)) == 0)
		(void)ak_write_all(w->fd, data, len); /* an incomplete frame counts as a failure */
}

void work_fail(struct work *w, int rc, const struct ak_err *err)
{
	write_result(w, rc, err->text, strlen(err->text));
}

void work_end_buf(struct work *w, int rc, const struct strbuf *json, const struct ak_err *err)
{
	struct ak_err full;

	if (rc < 0)
		work_fail(w, rc, err);
	else if (json->failed)
		work_fail(w, ak_fail(&full, ENOMEM, "out of memory"), &full);
	else
		write_result(w, 0, json->data, json->len);
}

void work_end_text(struct work *w, int rc, const char *text, const struct ak_err *err)
{
	_cleanup_strbuf_ struct strbuf out = { 0 };

	strbuf_json_utf8(&out, text, strlen(text));
	work_end_buf(w, rc, &out, err);
}

/* File names may contain any bytes, but JSON must be UTF-8: replace invalid bytes with U+FFFD. */
static void put_clean(struct strbuf *out, const char *text, size_t len)
{
	size_t start = 0;

	for (size_t i = 0, n; i < len; i += n ? n : 1) {
		n = ak_utf8_length((const unsigned char *)text + i, len - i);
		if (n)
			continue;
		strbuf_add(out, text + start, i - start);
		strbuf_puts(out, "\xef\xbf\xbd");
		start = i + 1;
	}
	strbuf_add(out, text + start, len - start);
}

void work_end_json(struct work *w, int rc, const cJSON *json, const struct ak_err *err)
{
	_cleanup_free_ char *text = json ? cJSON_PrintUnformatted(json) : NULL;
	_cleanup_strbuf_ struct strbuf clean = { 0 };

	if (text)
		put_clean(&clean, text, strlen(text));
	clean.failed = clean.failed || !text;
	work_end_buf(w, rc, &clean, err);
}

static void default_signals(void)
{
	sigset_t none;

	for (int sig = 1; sig < NSIG; sig++)
		signal(sig, SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

/* Runs in the child. Closes the descriptors of other calls, which it must not keep open. */
_Noreturn static void worker_main(const struct worker_spec *spec, int fd, pid_t parent)
{
	const int keep[] = { fd, spec->out, spec->err, spec->keep };
	struct work w = { .fd = fd };

	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (getppid() != parent)
		_exit(1);
	ak_close_others(keep, ARRAY_SIZE(keep));
	if ((spec->out >= 0 && dup2(spec->out, 1) < 0) || (spec->err >= 0 && dup2(spec->err, 2) < 0))
		_exit(1);
	ak_close(spec->out);
	ak_close(spec->err);
	default_signals();
	spec->work(spec->ctx, &w);
	_exit(w.said ? 0 : 1);
}

/* ---- in the parent ---- */

int worker_start(struct worker *w, const struct worker_spec *spec, struct ak_err *err)
{
	pid_t parent = getpid(), pid;
	int fds[2], code;

	if (pipe2(fds, O_CLOEXEC) < 0)
		return ak_fail_errno(err, errno, "pipe");
	ak_set_nonblock(fds[0], true);
	pid = fork();
	code = errno;
	if (pid == 0)
		worker_main(spec, fds[1], parent);
	ak_close(fds[1]);
	if (pid < 0) {
		ak_close(fds[0]);
		return ak_fail_errno(err, code, "fork");
	}
	*w = (struct worker){ .pid = pid, .fd = fds[0] };
	return 0;
}

void worker_take(struct worker *w, const char *data, size_t len, size_t max)
{
	w->too_large = w->too_large || w->frame.len + len > max;
	if (!w->too_large)
		strbuf_add(&w->frame, data, len);
}

int worker_result(const struct worker *w, const char **ret, size_t *ret_len)
{
	static const char large[] = "the answer is too large", none[] = "the worker ended without an answer";
	bool whole = !w->frame.failed && !w->too_large && w->frame.len >= WORKER_HEAD;
	struct head head;

	if (whole)
		memcpy(&head, w->frame.data, WORKER_HEAD);
	if (whole && head.len == w->frame.len - WORKER_HEAD && head.rc <= 0) {
		*ret = w->frame.data + WORKER_HEAD;
		*ret_len = head.len;
		return head.rc;
	}
	*ret = w->too_large ? large : none;
	*ret_len = strlen(*ret);
	return w->too_large ? -EFBIG : -EIO;
}

void worker_end(struct worker *w, uint64_t now_ms)
{
	static const struct {
		int sig;
		unsigned wait_ms; /* until the next step */
	} steps[] = { { SIGTERM, 250 }, { SIGINT, 50 }, { SIGINT, 500 }, { SIGKILL, 1000 } };
	unsigned step = w->step < ARRAY_SIZE(steps) ? w->step : ARRAY_SIZE(steps) - 1;

	if (w->pid <= 0 || (w->step && now_ms < w->next_ms))
		return;
	kill(w->pid, steps[step].sig);
	w->next_ms = now_ms + steps[step].wait_ms;
	w->step++;
}

void worker_done(struct worker *w)
{
	if (w->pid > 0) {
		kill(w->pid, SIGKILL);
		while (waitpid(w->pid, NULL, 0) < 0 && errno == EINTR)
			;
	}
	ak_close(w->fd);
	strbuf_done(&w->frame);
	*w = (struct worker){ .fd = -1 };
}
