/* A worker says one typed result; without a whole one it has failed. One that does not listen is asked harder, and ends. */
#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/service/worker.h"

#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define MAX (1u << 20)

static void start(struct worker *w, void (*work)(void *, struct work *), void *ctx)
{
	const struct worker_spec spec = { .work = work, .ctx = ctx, .out = -1, .err = -1, .keep = -1 };
	struct ak_err err;

	assert_int_equal(worker_start(w, &spec, &err), 0);
}

/* Until its pipe ends. */
static void finish(struct worker *w)
{
	struct pollfd p = { .fd = w->fd, .events = POLLIN };
	char buf[4096];
	ssize_t n;

	do {
		assert_int_equal(poll(&p, 1, 30000), 1);
		n = read(w->fd, buf, sizeof(buf));
		if (n > 0)
			worker_take(w, buf, (size_t)n, MAX);
	} while (n > 0);
	assert_int_equal(waitpid(w->pid, NULL, 0), w->pid);
	w->pid = 0;
}

static void expect(struct worker *w, int rc, const char *payload)
{
	const char *got;
	size_t len;

	finish(w);
	assert_int_equal(worker_result(w, &got, &len), rc);
	assert_int_equal(len, strlen(payload));
	assert_memory_equal(got, payload, len);
	worker_done(w);
}

static void say_text(void *ctx, struct work *w)
{
	work_end_text(w, 0, ctx, NULL);
}

static void say_error(void *ctx, struct work *w)
{
	struct ak_err err;

	work_fail(w, ak_fail(&err, ENOENT, "no %s", (char *)ctx), &err);
}

static void say_nothing(void *ctx, struct work *w)
{
}

static void say_half(void *ctx, struct work *w)
{
	w->said = true;
	(void)ak_write_all(w->fd, "half", 4);
}

static void say_much(void *ctx, struct work *w)
{
	static char much[MAX + 1];

	memset(much, 'x', MAX);
	work_end_text(w, 0, much, NULL);
}

static void the_result_is_typed(void **state)
{
	char word[] = "a\"b", name[] = "such file";
	struct worker w;

	start(&w, say_text, word);
	expect(&w, 0, "\"a\\\"b\"");
	start(&w, say_error, name);
	expect(&w, -ENOENT, "no such file");
}

static void a_result_that_is_not_whole_is_a_failure(void **state)
{
	struct worker w;

	start(&w, say_nothing, NULL);
	expect(&w, -EIO, "the worker ended without an answer");
	start(&w, say_half, NULL);
	expect(&w, -EIO, "the worker ended without an answer");
	start(&w, say_much, NULL);
	expect(&w, -EFBIG, "the answer is too large");
}

static void listen_to_nothing(void *ctx, struct work *w)
{
	signal(SIGTERM, SIG_IGN);
	signal(SIGINT, SIG_IGN);
	(void)ak_write_all(w->fd, "x", 1);
	for (;;)
		pause();
}

static void one_that_does_not_listen_is_ended_in_four_steps(void **state)
{
	struct worker w;
	struct pollfd p;
	uint64_t now = 1000;
	int status;

	start(&w, listen_to_nothing, NULL);
	p = (struct pollfd){ .fd = w.fd, .events = POLLIN };
	assert_int_equal(poll(&p, 1, 30000), 1);
	for (unsigned step = 1; step <= 3; step++) {
		worker_end(&w, now);
		assert_int_equal(w.step, step);
		worker_end(&w, w.next_ms - 1); /* too early */
		assert_int_equal(w.step, step);
		now = w.next_ms;
	}
	assert_int_equal(now, 1000 + 250 + 50 + 500);
	assert_int_equal(waitpid(w.pid, &status, WNOHANG), 0);
	worker_end(&w, now);
	assert_int_equal(waitpid(w.pid, &status, 0), w.pid);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	w.pid = 0;
	worker_done(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_result_is_typed),
		cmocka_unit_test(a_result_that_is_not_whole_is_a_failure),
		cmocka_unit_test(one_that_does_not_listen_is_ended_in_four_steps),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
