/* For tests of commands in a sandbox that has none of its own: start one, follow its events, expect its end. */
#ifndef AK_TEST_SANDBOX_SERVE_H
#define AK_TEST_SANDBOX_SERVE_H

#include "test_sandbox_util.h"

/* ---- a sandbox that serves ---- */

static inline void serve(struct trial *t, enum sandbox_isolation isolation)
{
	trial_init(t, isolation);
	trial_start(t, NULL);
	trial_go(t);
}

static inline int try_exec(
	struct trial *t, uint32_t id, const struct sandbox_exec *change, const char *const *argv, struct ak_err *err)
{
	struct sandbox_exec ex = { .stdio = { -1, t->out, t->out } };

	if (change)
		ex = *change;
	ex.argv = (char *const *)(uintptr_t)argv;
	if (!ex.envp)
		ex.envp = default_env;
	return sandbox_exec(t->sb, id, &ex, err);
}

#define EXEC(t, id, change, ...)                                                                                                 \
	do {                                                                                                                     \
		struct ak_err err_ = { "" };                                                                                     \
		if (try_exec(t, id, change, (const char *const[]){ __VA_ARGS__, NULL }, &err_) < 0)                              \
			fail_msg("sandbox_exec: %s", err_.text);                                                                 \
	} while (0)

static inline struct sandbox_exec_event next_event(struct trial *t)
{
	uint64_t deadline = ak_now_ms() + TIMEOUT_MS;
	struct sandbox_exec_event ev;

	for (;;) {
		struct pollfd p = { .fd = sandbox_fd(t->sb), .events = POLLIN };

		sandbox_poll(t->sb);
		if (sandbox_exec_next(t->sb, &ev))
			return ev;
		if (ak_now_ms() >= deadline)
			fail_msg("no event");
		poll(&p, 1, 1000);
	}
}

static inline void expect_started(struct trial *t, uint32_t id, int *ret_tty)
{
	struct sandbox_exec_event ev = next_event(t);

	if (ev.state != SANDBOX_EXEC_STARTED)
		fail_msg("exit %d: %s", ev.exit_code, ev.err.text);
	assert_int_equal(ev.id, id);
	if (ret_tty)
		*ret_tty = ev.tty_fd;
	else
		assert_int_equal(ev.tty_fd, -1);
}

static inline void expect_end(struct trial *t, uint32_t id, int exit_code)
{
	struct sandbox_exec_event ev = next_event(t);

	assert_int_equal(ev.state, SANDBOX_EXEC_ENDED);
	assert_int_equal(ev.id, id);
	if (ev.exit_code != exit_code)
		fail_msg("exit %d, not %d: %s", ev.exit_code, exit_code, ev.err.text);
}

#define EXEC_OK(t, id, ...)                                                                                                      \
	do {                                                                                                                     \
		EXEC(t, id, NULL, __VA_ARGS__);                                                                                  \
		expect_started(t, id, NULL);                                                                                     \
		expect_end(t, id, 0);                                                                                            \
	} while (0)

/* Wait until the sandbox's process list, seen from inside, has no line with WORD. */
static inline void wait_until_gone(struct trial *t, const char *word)
{
	char script[256];

	snprintf(script, sizeof(script), "while grep -qs '^%s$' /proc/[0-9]*/comm; do :; done", word);
	EXEC_OK(t, 9999, "sh", "-c", script);
}

#endif
