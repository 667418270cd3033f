/*
 * The life of a run (run/life.h): every order of events, with a sandbox, a gateway, records and a clock that are only counted here.
 */
#include "gateway/base/cleanup.h"
#include "gateway/base/say.h"
#include "gateway/run/life.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define START_MS 30000

/* ---- what stands for the world ---- */

static struct {
	enum sandbox_state sandbox;
	struct sandbox_result result;
	int go_rc, build_rc, host_rc, policy_rc, create_rc, start_rc; /* what the next call returns */
	bool answer_at_once; /* unhost is answered before it returns */
	unsigned goes, hosts, unhosts, startings, overs;
	unsigned created, starts, ends, discards, lasts;
	unsigned kills, signals;
	int last_signal;
	bool start_before_go;
	struct run_outcome recorded;
	uint64_t now_ms;
} world;

static void fail_with(struct ak_err *err, int rc)
{
	if (rc < 0)
		ak_fail(err, -rc, "made to fail");
}

enum sandbox_state __wrap_sandbox_poll(struct sandbox *sb);
enum sandbox_state __wrap_sandbox_poll(struct sandbox *sb)
{
	return world.sandbox;
}

int __wrap_sandbox_go(struct sandbox *sb, struct ak_err *err);
int __wrap_sandbox_go(struct sandbox *sb, struct ak_err *err)
{
	assert_int_equal(world.sandbox, SANDBOX_READY);
	fail_with(err, world.go_rc);
	if (world.go_rc == 0) {
		world.goes++;
		world.sandbox = SANDBOX_RUNNING;
	}
	return world.go_rc;
}

int __wrap_sandbox_signal(struct sandbox *sb, int sig);
int __wrap_sandbox_signal(struct sandbox *sb, int sig)
{
	if (world.sandbox == SANDBOX_ENDED)
		return -ESRCH;
	world.kills += sig == SIGKILL;
	world.signals++;
	world.last_signal = sig;
	return 0;
}

const struct sandbox_result *__wrap_sandbox_result(const struct sandbox *sb);
const struct sandbox_result *__wrap_sandbox_result(const struct sandbox *sb)
{
	return world.sandbox == SANDBOX_ENDED ? &world.result : NULL;
}

uint64_t __wrap_ak_now_ms(void);
uint64_t __wrap_ak_now_ms(void)
{
	return world.now_ms;
}

int __wrap_ak_policy_load(const struct ak_paths *p, const char *name, const struct policy_edit *edits, size_t n,
	struct policy **ret, struct ak_err *err);
int __wrap_ak_policy_load(const struct ak_paths *p, const char *name, const struct policy_edit *edits, size_t n,
	struct policy **ret, struct ak_err *err)
{
	fail_with(err, world.policy_rc);
	return world.policy_rc;
}

int __wrap_rundir_create(struct rundir *d, const struct ak_paths *paths, const char *name, bool keep, struct ak_err *err);
int __wrap_rundir_create(struct rundir *d, const struct ak_paths *paths, const char *name, bool keep, struct ak_err *err)
{
	fail_with(err, world.create_rc);
	if (world.create_rc < 0)
		return world.create_rc;
	world.created++;
	d->dir_fd = 1000; /* only a sign that it is there */
	return 0;
}

int __wrap_rundir_record_start(struct rundir *d, const struct run_plan *plan, const struct run_request *opts,
	const struct policy *policy, struct ak_err *err);
int __wrap_rundir_record_start(struct rundir *d, const struct run_plan *plan, const struct run_request *opts,
	const struct policy *policy, struct ak_err *err)
{
	assert_int_equal(d->dir_fd, 1000);
	world.start_before_go = world.goes == 0;
	fail_with(err, world.start_rc);
	world.starts += world.start_rc == 0;
	return world.start_rc;
}

int __wrap_rundir_record_end(struct rundir *d, const struct run_plan *plan, const struct run_request *opts,
	const struct run_outcome *outcome, struct ak_err *err);
int __wrap_rundir_record_end(struct rundir *d, const struct run_plan *plan, const struct run_request *opts,
	const struct run_outcome *outcome, struct ak_err *err)
{
	assert_int_equal(d->dir_fd, 1000);
	world.ends++;
	world.recorded = *outcome;
	return 0;
}

void __wrap_rundir_discard(struct rundir *d);
void __wrap_rundir_discard(struct rundir *d)
{
	assert_int_equal(d->dir_fd, 1000);
	world.discards++;
}

void __wrap_rundir_done(struct rundir *d);
void __wrap_rundir_done(struct rundir *d)
{
	d->dir_fd = -1;
}

void __wrap_rundir_point_last(const struct ak_paths *paths, const char *name);
void __wrap_rundir_point_last(const struct ak_paths *paths, const char *name)
{
	world.lasts++;
}

/* ---- a driver ---- */

static int build(struct run_life *l, struct ak_err *err)
{
	fail_with(err, world.build_rc);
	if (world.build_rc == 0)
		l->sandbox = (struct sandbox *)&world;
	return world.build_rc;
}

static int host(struct run_life *l, struct ak_err *err)
{
	assert_int_equal(l->state, LIFE_BUILDING);
	world.hosts++;
	fail_with(err, world.host_rc);
	return world.host_rc;
}

static void started(struct run_life *l)
{
	assert_int_equal(l->state, LIFE_RUNNING);
	world.startings++;
}

static void unhost(struct run_life *l)
{
	assert_int_equal(l->state, LIFE_ENDING);
	world.unhosts++;
	if (world.answer_at_once)
		life_unhosted(l, NULL);
}

static void over(struct run_life *l)
{
	assert_int_equal(l->state, LIFE_OVER);
	world.overs++;
}

static const struct life_ops ops = { .build = build, .host = host, .started = started, .unhost = unhost, .over = over };

static const struct ak_paths paths = { .state = "/nowhere" };
static struct run_request request;
static struct run_plan plan;
static struct run_life life;

/* A run with a network, as `run` drives it; begun unless the caller changes it first. */
static void fresh(void)
{
	memset(&world, 0, sizeof(world));
	world.now_ms = 1000;
	request = (struct run_request){ .timeout_ms = 0 };
	plan.network = true;
	plan.policy = "native";
	life_init(&life, &ops, NULL);
	life.paths = &paths;
	life.opts = &request;
	life.plan = &plan;
	life.needs_host = true;
	life.start_max_ms = START_MS;
}

static void begun(void)
{
	fresh();
	life_begin(&life);
	assert_int_equal(life.state, LIFE_BUILDING);
}

static void sandbox_is(enum sandbox_state state)
{
	world.sandbox = state;
	life_poll(&life);
}

static void ends_with(int code, const char *reason)
{
	world.result.exit_code = code;
	snprintf(world.result.err.text, sizeof(world.result.err.text), "%s", reason);
	sandbox_is(SANDBOX_ENDED);
}

static void running(void)
{
	begun();
	sandbox_is(SANDBOX_READY);
	life_hosted(&life);
	assert_int_equal(life.state, LIFE_RUNNING);
}

static void after_ms(uint64_t ms)
{
	world.now_ms += ms;
	life_tick(&life);
}

static void must_have_given_up(int rc, const char *reason)
{
	assert_int_equal(life.state, LIFE_OVER);
	assert_false(life.ran);
	assert_int_equal(life.rc, rc);
	assert_string_equal(life.failure.text, reason);
	assert_int_equal(world.goes, 0);
	assert_int_equal(world.overs, 1);
	assert_int_equal(world.ends, 0);
	assert_int_equal(world.discards, world.created);
	assert_int_equal(life_due_ms(&life), 0);
}

/* ---- start ---- */

static void a_ready_sandbox_waits_for_its_gateway(void **state)
{
	begun();
	assert_int_equal(world.hosts, 1);
	sandbox_is(SANDBOX_READY);
	assert_int_equal(life.state, LIFE_BUILDING);
	life_hosted(&life);
	assert_int_equal(life.state, LIFE_RUNNING);
	assert_int_equal(world.goes, 1);
	assert_int_equal(world.startings, 1);
	assert_int_equal(world.lasts, 1);
}

static void a_gateway_waits_for_the_sandbox(void **state)
{
	begun();
	life_hosted(&life);
	assert_int_equal(life.state, LIFE_BUILDING);
	sandbox_is(SANDBOX_READY);
	assert_int_equal(life.state, LIFE_RUNNING);
	assert_int_equal(world.goes, 1);
}

static void without_a_network_the_sandbox_alone_counts(void **state)
{
	fresh();
	life.needs_host = plan.network = false;
	life_begin(&life);
	sandbox_is(SANDBOX_READY);
	assert_int_equal(life.state, LIFE_RUNNING);
	assert_int_equal(world.hosts, 0);
	ends_with(3, "");
	assert_int_equal(world.unhosts, 0);
	assert_int_equal(life.state, LIFE_OVER);
	assert_int_equal(life.outcome.exit_code, 3);
}

static void a_supervisor_asks_for_its_gateway_when_the_sandbox_is_ready_and_records_nothing(void **state)
{
	fresh();
	life.opts = NULL;
	life.host_when_ready = true;
	life_begin(&life);
	assert_int_equal(world.hosts, 0);
	sandbox_is(SANDBOX_READY);
	life_poll(&life);
	assert_int_equal(world.hosts, 1);
	assert_int_equal(life.state, LIFE_BUILDING);
	life_hosted(&life);
	assert_int_equal(life.state, LIFE_RUNNING);
	assert_int_equal(world.created + world.starts + world.lasts, 0);
	assert_int_equal(life_due_ms(&life), 0);
}

static void a_kept_run_has_its_folder_before_its_sandbox(void **state)
{
	fresh();
	request.keep = true;
	world.build_rc = -EIO;
	life_begin(&life);
	assert_int_equal(world.created, 1);
	must_have_given_up(-EIO, "made to fail");
}

static void what_cannot_begin_gives_up_with_its_own_code(void **state)
{
	int *const calls[] = { &world.build_rc, &world.policy_rc, &world.create_rc, &world.host_rc, &world.start_rc };

	for (size_t i = 0; i < ARRAY_SIZE(calls); i++) {
		fresh();
		*calls[i] = -EINVAL;
		life_begin(&life);
		must_have_given_up(-EINVAL, "made to fail");
		assert_int_equal(world.hosts, i < 3 ? 0 : 1);
		assert_int_equal(world.kills, i == 0 ? 0 : 1);
	}
}

static void a_supervisor_that_cannot_report_gives_up(void **state)
{
	fresh();
	life.host_when_ready = true;
	world.host_rc = -EPIPE;
	life_begin(&life);
	sandbox_is(SANDBOX_READY);
	must_have_given_up(-EIO, "made to fail");
}

static void a_refusal_gives_up_in_either_order(void **state)
{
	begun();
	life_refused(&life, "no rules");
	must_have_given_up(-EIO, "no rules");
	assert_int_equal(world.kills, 1);
	begun();
	sandbox_is(SANDBOX_READY);
	life_refused(&life, "no rules");
	must_have_given_up(-EIO, "no rules");
}

static void the_sandboxes_own_reason_comes_before_its_consequences(void **state)
{
	begun();
	world.sandbox = SANDBOX_ENDED; /* and nobody has looked yet */
	snprintf(world.result.err.text, sizeof(world.result.err.text), "no user namespaces");
	life_refused(&life, "its sockets never came");
	must_have_given_up(-EIO, "no user namespaces");
}

static void a_sandbox_that_dies_first_gives_up(void **state)
{
	begun();
	ends_with(125, "no room");
	must_have_given_up(-EIO, "no room");
	begun();
	sandbox_is(SANDBOX_READY);
	ends_with(137, "");
	must_have_given_up(-EIO, "the sandbox ended before the command ran");
	begun();
	life_hosted(&life);
	ends_with(125, "no room");
	must_have_given_up(-EIO, "no room");
	assert_int_equal(world.unhosts, 0);
}

static void a_command_that_cannot_be_let_go_gives_up(void **state)
{
	begun();
	world.go_rc = -EPIPE;
	life_hosted(&life);
	sandbox_is(SANDBOX_READY);
	must_have_given_up(-EIO, "made to fail");
	assert_int_equal(world.startings, 0);
}

static void a_start_has_its_time(void **state)
{
	begun();
	assert_int_equal(life_due_ms(&life), 1000 + START_MS);
	after_ms(START_MS - 1);
	assert_int_equal(life.state, LIFE_BUILDING);
	after_ms(1);
	must_have_given_up(-EIO, "the sandbox was not ready after 30 s");
	life_hosted(&life);
	sandbox_is(SANDBOX_READY);
	must_have_given_up(-EIO, "the sandbox was not ready after 30 s");
}

/* ---- while it runs ---- */

static void the_time_limit_counts_from_the_commands_start(void **state)
{
	fresh();
	request.timeout_ms = 500;
	life_begin(&life);
	after_ms(5000);
	life_hosted(&life);
	sandbox_is(SANDBOX_READY);
	assert_int_equal(life_due_ms(&life), 6500);
	after_ms(499);
	assert_int_equal(world.kills, 0);
	after_ms(1);
	assert_int_equal(world.kills, 1);
	assert_int_equal(life_due_ms(&life), 0);
	after_ms(1000);
	assert_int_equal(world.kills, 1);
	ends_with(137, "the sandbox was killed");
	life_unhosted(&life, NULL);
	assert_int_equal(life.outcome.exit_code, AK_EXIT_TIMEOUT);
	assert_true(life.outcome.timed_out);
	assert_string_equal(life.outcome.why.text, "");
}

static void the_second_interrupt_kills(void **state)
{
	running();
	life_signal(&life, SIGINT);
	assert_int_equal(world.last_signal, SIGINT);
	assert_int_equal(life_due_ms(&life), 0);
	life_signal(&life, SIGUSR1);
	assert_int_equal(world.last_signal, SIGUSR1);
	life_signal(&life, SIGINT);
	assert_int_equal(world.last_signal, SIGKILL);
}

static void a_termination_has_five_seconds(void **state)
{
	const int signals[] = { SIGTERM, SIGHUP };

	for (size_t i = 0; i < ARRAY_SIZE(signals); i++) {
		running();
		life_signal(&life, signals[i]);
		assert_int_equal(world.last_signal, signals[i]);
		world.now_ms += 3000;
		life_signal(&life, SIGTERM); /* does not prolong it */
		assert_int_equal(life_due_ms(&life), 1000 + LIFE_TERM_GRACE_MS);
		after_ms(1999);
		assert_int_equal(world.kills, 0);
		after_ms(1);
		assert_int_equal(world.kills, 1);
		ends_with(137, "the sandbox was killed");
		life_unhosted(&life, NULL);
		assert_int_equal(life.outcome.exit_code, 137);
		assert_false(life.outcome.timed_out);
	}
}

static void a_signal_before_the_start_is_the_end(void **state)
{
	begun();
	life_signal(&life, SIGTERM);
	assert_int_equal(life.outcome.exit_code, 128 + SIGTERM);
	must_have_given_up(-EIO, "interrupted before the command ran");
	assert_int_equal(world.last_signal, SIGKILL);
}

static void who_leaves_takes_the_run_along(void **state)
{
	begun();
	life_left(&life);
	must_have_given_up(-EIO, "the client disconnected before the command ran");
	running();
	life_left(&life);
	assert_int_equal(life.state, LIFE_RUNNING);
	assert_int_equal(world.kills, 1);
	ends_with(137, "");
	assert_int_equal(life.state, LIFE_ENDING);
	life_left(&life);
	assert_int_equal(life.state, LIFE_ENDING);
	life_unhosted(&life, NULL);
	life_left(&life);
	assert_int_equal(world.overs, 1);
	assert_int_equal(world.ends, 1);
}

static void a_lost_gateway_ends_a_start_but_not_a_command(void **state)
{
	begun();
	life_hosted(&life);
	life_host_lost(&life, "the gateway process ended");
	must_have_given_up(-EIO, "the gateway process ended");
	running();
	life_host_lost(&life, "the gateway process ended");
	assert_int_equal(life.state, LIFE_RUNNING);
	ends_with(0, "");
	assert_int_equal(world.unhosts, 0);
	assert_int_equal(life.state, LIFE_OVER);
	assert_false(life.outcome.has_net);
}

/* ---- end ---- */

static void the_end_waits_for_the_last_numbers_and_then_is_recorded(void **state)
{
	const struct gw_stats last = { .allowed = 7, .denied = 2 };

	running();
	world.now_ms += 40;
	world.result.out_of_memory = world.result.pids_hit = true;
	ends_with(5, "");
	assert_int_equal(world.unhosts, 1);
	assert_int_equal(world.ends, 0);
	life_host_lost(&life, "x"); /* its answer comes all the same */
	assert_int_equal(life.state, LIFE_ENDING);
	life_unhosted(&life, &last);
	assert_int_equal(world.overs, 1);
	assert_int_equal(world.ends, 1);
	assert_int_equal(world.recorded.exit_code, 5);
	assert_int_equal(world.recorded.duration_ms, 40);
	assert_true(world.recorded.out_of_memory && world.recorded.pids_hit && world.recorded.has_net);
	assert_int_equal(world.recorded.net.denied, 2);
}

static void numbers_that_come_at_once_end_it_once(void **state)
{
	running();
	world.answer_at_once = true;
	ends_with(0, "");
	assert_int_equal(life.state, LIFE_OVER);
	assert_int_equal(world.overs, 1);
	assert_int_equal(world.ends, 1);
}

static void a_reason_belongs_to_codes_from_125_to_127(void **state)
{
	for (int code = 124; code <= 128; code++) {
		running();
		world.answer_at_once = true;
		ends_with(code, "why");
		assert_int_equal(life.outcome.exit_code, code);
		assert_string_equal(life.outcome.why.text, code >= 125 && code <= 127 ? "why" : "");
		assert_int_equal(world.ends, 1);
	}
}

/* ---- records ---- */

static void a_start_is_recorded_before_the_command_or_right_after(void **state)
{
	running();
	assert_int_equal(world.starts, 1);
	assert_true(world.start_before_go);
	fresh();
	life.record_late = true;
	life_begin(&life);
	assert_int_equal(world.starts, 0);
	life_hosted(&life);
	sandbox_is(SANDBOX_READY);
	assert_int_equal(world.starts, 1);
	assert_false(world.start_before_go);
}

static void what_cannot_be_recorded_does_not_go_on(void **state)
{
	fresh();
	life.record_late = true;
	world.start_rc = -ENOSPC;
	life_begin(&life);
	life_hosted(&life);
	sandbox_is(SANDBOX_READY);
	assert_int_equal(life.state, LIFE_RUNNING);
	assert_int_equal(world.kills, 1);
	world.answer_at_once = true;
	ends_with(137, "the sandbox was killed");
	assert_int_equal(life.outcome.exit_code, AK_EXIT_FAILED);
	assert_string_equal(life.outcome.why.text, "made to fail");
	assert_int_equal(world.ends, 1);
}

/* ---- every order ---- */

enum event { READY, DIES, HOSTED, REFUSED, LOST, UNHOSTED, INT, TERM, LEFT, LATER, EVENT_NUM };

static void play(enum event e)
{
	switch (e) {
	case READY:
		if (world.sandbox == SANDBOX_STARTING)
			world.sandbox = SANDBOX_READY;
		life_poll(&life);
		break;
	case DIES:
		ends_with(0, "");
		break;
	case HOSTED:
		life_hosted(&life);
		break;
	case REFUSED:
		life_refused(&life, "no");
		break;
	case LOST:
		life_host_lost(&life, "gone");
		break;
	case UNHOSTED:
		life_unhosted(&life, NULL);
		break;
	case INT:
		life_signal(&life, SIGINT);
		break;
	case TERM:
		life_signal(&life, SIGTERM);
		break;
	case LEFT:
		life_left(&life);
		break;
	case LATER:
		after_ms(START_MS);
		break;
	case EVENT_NUM:
		break;
	}
}

static void check(bool was_ready, bool was_hosted)
{
	assert_true(world.goes <= 1 && world.startings == world.goes);
	assert_int_equal(life.ran, world.goes == 1);
	assert_true(!life.ran || (was_ready && was_hosted));
	assert_int_equal(world.overs, life.state == LIFE_OVER);
	assert_int_equal(world.ends, life.state == LIFE_OVER && life.ran);
	assert_int_equal(world.discards, life.state == LIFE_OVER && !life.ran);
	assert_true(world.unhosts <= 1 && (world.unhosts == 0 || life.ran));
	assert_true(life.state != LIFE_ENDING || world.unhosts == 1);
	if (life.state == LIFE_OVER && !life.ran)
		assert_true(life.rc < 0 && life.failure.text[0]);
}

/* All orders of five events: a command is let go once and only with both halves ready, and every life is over once and has one record or none. */
static void no_order_of_events_breaks_it(void **state)
{
	const unsigned length = 5;
	unsigned long n = 1;

	for (unsigned i = 0; i < length; i++)
		n *= EVENT_NUM;
	for (unsigned long order = 0; order < n; order++) {
		bool was_ready = false, was_hosted = false;
		unsigned long rest = order;

		begun();
		request.timeout_ms = 100;
		for (unsigned i = 0; i < length; i++, rest /= EVENT_NUM) {
			enum event e = (enum event)(rest % EVENT_NUM);

			was_ready |= e == READY;
			was_hosted |= e == HOSTED;
			play(e);
			check(was_ready, was_hosted);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_ready_sandbox_waits_for_its_gateway),
		cmocka_unit_test(a_gateway_waits_for_the_sandbox),
		cmocka_unit_test(without_a_network_the_sandbox_alone_counts),
		cmocka_unit_test(a_supervisor_asks_for_its_gateway_when_the_sandbox_is_ready_and_records_nothing),
		cmocka_unit_test(a_kept_run_has_its_folder_before_its_sandbox),
		cmocka_unit_test(what_cannot_begin_gives_up_with_its_own_code),
		cmocka_unit_test(a_supervisor_that_cannot_report_gives_up),
		cmocka_unit_test(a_refusal_gives_up_in_either_order),
		cmocka_unit_test(the_sandboxes_own_reason_comes_before_its_consequences),
		cmocka_unit_test(a_sandbox_that_dies_first_gives_up),
		cmocka_unit_test(a_command_that_cannot_be_let_go_gives_up),
		cmocka_unit_test(a_start_has_its_time),
		cmocka_unit_test(the_time_limit_counts_from_the_commands_start),
		cmocka_unit_test(the_second_interrupt_kills),
		cmocka_unit_test(a_termination_has_five_seconds),
		cmocka_unit_test(a_signal_before_the_start_is_the_end),
		cmocka_unit_test(who_leaves_takes_the_run_along),
		cmocka_unit_test(a_lost_gateway_ends_a_start_but_not_a_command),
		cmocka_unit_test(the_end_waits_for_the_last_numbers_and_then_is_recorded),
		cmocka_unit_test(numbers_that_come_at_once_end_it_once),
		cmocka_unit_test(a_reason_belongs_to_codes_from_125_to_127),
		cmocka_unit_test(a_start_is_recorded_before_the_command_or_right_after),
		cmocka_unit_test(what_cannot_be_recorded_does_not_go_on),
		cmocka_unit_test(no_order_of_events_breaks_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
