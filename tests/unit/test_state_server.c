/* Sandboxes of MCP servers: what is kept of them, how many there may be, and when their server counts as gone. */
#include "gateway/store/state_server.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/service/service.h"
#include "tests/unit/state_world.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

static int make(struct world *w, const char *name, const char *server, const char *project, bool keep)
{
	struct state_sandbox s = { .mode = AK_MODE_CODEX, .profile = AK_PROFILE_MODERATE, .mcp.keep = keep };
	struct ak_err err;
	int rc;

	snprintf(s.name, sizeof(s.name), "%s", name);
	snprintf(s.mcp.server, sizeof(s.mcp.server), "%s", server);
	snprintf(s.mcp.project, sizeof(s.mcp.project), "%s", project);
	rc = state_create(&w->paths, &s, &err);
	state_done(&s);
	return rc;
}

static void what_was_opened_comes_back_as_it_was(void **state)
{
	struct world *w = *state;
	struct state_sandbox s = { 0 };
	struct ak_err err;

	assert_int_equal(make(w, "a", "0123", "/project", true), 0);
	assert_int_equal(make(w, "b", "", "/project", false), 0);
	assert_int_equal(make(w, "c", "", "", false), 0);
	assert_int_equal(state_load(&w->paths, "a", &s, &err), 0);
	assert_string_equal(s.mcp.server, "0123");
	assert_string_equal(s.mcp.project, "/project");
	assert_true(s.mcp.keep && s.mcp.generation == 1 && s.generation == 1);
	state_done(&s);
	assert_int_equal(state_load(&w->paths, "b", &s, &err), 0);
	assert_true(s.mcp.project[0] && !s.mcp.server[0] && !s.mcp.keep);
	state_done(&s);
	assert_int_equal(state_load(&w->paths, "c", &s, &err), 0);
	assert_true(!s.mcp.project[0] && !s.mcp.server[0]);
	state_done(&s);
}

static void a_server_makes_so_many_and_those_kept_in_its_project_count(void **state)
{
	struct world *w = *state;
	char name[16];

	for (int i = 0; i < STATE_MCP_MAX; i++) {
		snprintf(name, sizeof(name), "s%d", i);
		assert_int_equal(make(w, name, i < 4 ? "kept" : "mine", "/project", i < 4), 0);
	}
	assert_int_equal(make(w, "more", "mine", "/project", false), -EDQUOT);
	assert_int_equal(make(w, "users", "", "/project", false), 0);
	assert_int_equal(make(w, "plain", "", "", false), 0);
	assert_int_equal(make(w, "elsewhere", "other", "/else", false), 0);
}

static void a_server_lives_as_long_as_any_of_its_processes(void **state)
{
	struct world *w = *state;
	struct state_sandbox s = { .mcp.project = "/p" };
	char id[STATE_SERVER_MAX], other[STATE_SERVER_MAX];
	struct ak_err err;
	int fd, to_child[2];
	pid_t pid;

	assert_int_equal(state_server_id(id, &err), 0);
	assert_int_equal(state_server_id(other, &err), 0);
	assert_string_not_equal(id, other);
	snprintf(s.mcp.server, sizeof(s.mcp.server), "%s", id);
	assert_false(state_server_lives(&w->paths, id));
	fd = state_server_hold(&w->paths, id, &err);
	assert_true(fd >= 0 && state_server_lives(&w->paths, id) && !state_orphaned(&w->paths, &s));
	assert_int_equal(pipe(to_child), 0);
	pid = fork();
	if (pid == 0) {
		close(to_child[1]);
		_exit((int)read(to_child[0], &(char){ 0 }, 1));
	}
	close(to_child[0]);
	close(fd);
	assert_true(state_server_lives(&w->paths, id)); /* the child has the lock */
	close(to_child[1]);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	assert_true(!state_server_lives(&w->paths, id) && state_orphaned(&w->paths, &s));
	s.mcp.keep = true;
	assert_false(state_orphaned(&w->paths, &s));
}

static void a_name_that_was_given_anew_is_another_sandbox(void **state)
{
	struct world *w = *state;
	struct state_sandbox s = { 0 };
	char gone[PATH_MAX], uuid[37];
	struct ak_err err;

	assert_int_equal(make(w, "a", "0123", "/project", false), 0);
	assert_int_equal(state_load(&w->paths, "a", &s, &err), 0);
	memcpy(uuid, s.uuid, sizeof(uuid));
	state_done(&s);
	assert_int_equal(service_same(&w->paths, "a", uuid, &err), 0);
	assert_int_equal(state_remove(&w->paths, "a", gone, &err), 0);
	assert_int_equal(service_same(&w->paths, "a", uuid, &err), -ENOENT);
	assert_int_equal(make(w, "a", "0123", "/project", false), 0);
	assert_int_equal(service_same(&w->paths, "a", uuid, &err), -ENOENT);
}

static void count_dead(void *ctx, const char *id)
{
	assert_int_equal(strlen(id), STATE_SERVER_MAX - 1);
	++*(int *)ctx;
}

static void the_dead_are_found_once_and_their_successor_is_not_one_of_them(void **state)
{
	struct world *w = *state;
	char id[STATE_SERVER_MAX];
	struct ak_err err;
	int n = 0, fd;

	state_server_each_dead(&w->paths, count_dead, &n);
	assert_int_equal(state_server_id(id, &err), 0);
	assert_int_equal(state_server_succeed(&w->paths, id), -ENOENT);
	fd = state_server_hold(&w->paths, id, &err);
	state_server_each_dead(&w->paths, count_dead, &n);
	assert_int_equal(n, 0);
	close(fd);
	state_server_each_dead(&w->paths, count_dead, &n);
	assert_int_equal(n, 1);
	fd = state_server_succeed(&w->paths, id);
	assert_true(fd >= 0);
	state_server_each_dead(&w->paths, count_dead, &n);
	assert_int_equal(n, 1);
	state_server_forget(&w->paths, id);
	close(fd);
	state_server_each_dead(&w->paths, count_dead, &n);
	assert_int_equal(n, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(what_was_opened_comes_back_as_it_was, setup, teardown),
		cmocka_unit_test_setup_teardown(a_server_makes_so_many_and_those_kept_in_its_project_count, setup, teardown),
		cmocka_unit_test_setup_teardown(a_server_lives_as_long_as_any_of_its_processes, setup, teardown),
		cmocka_unit_test_setup_teardown(a_name_that_was_given_anew_is_another_sandbox, setup, teardown),
		cmocka_unit_test_setup_teardown(the_dead_are_found_once_and_their_successor_is_not_one_of_them, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
