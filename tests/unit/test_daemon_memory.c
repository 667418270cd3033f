/* A daemon without memory for a message to its gateway: the sender is told, nothing is called or freed under it, and the loop starts the gateway again. */
#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/daemon/internal.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <cmocka.h>

static bool no_memory;
static unsigned answers, failures;

void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size)
{
	return no_memory ? NULL : __real_calloc(n, size);
}

int __wrap_sandbox_signal(struct sandbox *sb, int sig);
int __wrap_sandbox_signal(struct sandbox *sb, int sig)
{
	return 0;
}

static void on_done(void *ctx, int rc, const struct gw_msg *answer, const struct ak_err *err)
{
	answers++;
	failures += rc == -EPIPE;
}

/* A daemon whose gateway is up: the far end of its socket is *RET_FAR. */
static struct daemon *daemon_up(int *ret_far)
{
	struct daemon *d = __real_calloc(1, sizeof(*d));
	struct ak_err err;
	int pair[2];

	assert_non_null(d);
	no_memory = false;
	answers = failures = 0;
	d->base = event_base_new();
	TAILQ_INIT(&d->sandboxes);
	TAILQ_INIT(&d->pool.all);
	TAILQ_INIT(&d->pool.waiting);
	assert_int_equal(dgw_init(d, &err), 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
	d->gw.control = pair[0];
	d->gw.state = DGW_UP;
	d->gw.failures = 6; /* the next try comes long after this test */
	*ret_far = pair[1];
	return d;
}

static void daemon_down(struct daemon *d, int far)
{
	dgw_done(d);
	event_base_free(d->base);
	ak_close(far);
	free(d);
}

static void a_message_without_memory_fails_and_restarts_the_gateway_from_the_loop(void **state)
{
	struct gw_msg msg = { .type = GW_MSG_COUNTS, .id = 7 };
	int far, fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	struct daemon *d = daemon_up(&far);

	assert_int_equal(dgw_send(d, &msg, NULL, 0, on_done, NULL), 0);
	no_memory = true;
	assert_int_equal(dgw_send(d, &msg, &fd, 1, on_done, NULL), -ENOMEM);
	no_memory = false;
	assert_int_equal(fcntl(fd, F_GETFD), -1); /* it was taken over all the same */
	assert_int_equal(d->gw.state, DGW_UP);
	assert_int_equal(answers, 0);

	event_base_loop(d->base, EVLOOP_ONCE | EVLOOP_NONBLOCK);
	assert_int_equal(d->gw.state, DGW_DOWN);
	assert_true(d->gw.expected && strstr(d->gw.reason.text, "out of memory"));
	assert_int_equal(answers, 1); /* the first: it was sent, and is not answered any more */
	assert_int_equal(failures, 1);
	assert_true(evtimer_pending(d->gw.on_retry, NULL));
	daemon_down(d, far);
}

static void what_is_missed_while_no_gateway_runs_ends_nothing(void **state)
{
	struct gw_msg msg = { .type = GW_MSG_UPSTREAM };
	int far;
	struct daemon *d = daemon_up(&far);

	d->gw.state = DGW_DOWN;
	d->gw.expected = true;
	no_memory = true;
	assert_int_equal(dgw_send(d, &msg, NULL, 0, NULL, NULL), -ENOMEM);
	no_memory = false;
	event_base_loop(d->base, EVLOOP_ONCE | EVLOOP_NONBLOCK);
	assert_false(evtimer_pending(d->gw.on_retry, NULL));
	assert_int_equal(d->gw.state, DGW_DOWN);
	daemon_down(d, far);
}

static void on_free(evutil_socket_t fd, short what, void *ctx)
{
	answers++;
}

static void a_warm_sandbox_outlives_the_call_that_destroys_it(void **state)
{
	int far;
	struct daemon *d = daemon_up(&far);
	struct warm *w = __real_calloc(1, sizeof(*w));

	assert_non_null(w);
	w->d = d;
	w->hosted = true;
	w->on_late = evtimer_new(d->base, on_free, w);
	no_memory = true;
	warm_destroy(w);
	no_memory = false;
	assert_int_equal(w->status, WARM_ENDING);
	assert_false(w->hosted);
	assert_true(evtimer_pending(w->on_late, NULL));
	assert_int_equal(answers, 0);
	event_free(w->on_late);
	free(w);
	daemon_down(d, far);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_message_without_memory_fails_and_restarts_the_gateway_from_the_loop),
		cmocka_unit_test(what_is_missed_while_no_gateway_runs_ends_nothing),
		cmocka_unit_test(a_warm_sandbox_outlives_the_call_that_destroys_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
