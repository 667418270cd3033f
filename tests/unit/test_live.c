/* The register of running commands: entries are read as written, and only as long as their process holds them. */
#include "gateway/store/live.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "tests/unit/state_world.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

struct seen {
	int rc;
	size_t n, n_folders;
	char names[1024], folders[1024], rest[256];
};

static void see(void *ctx, const struct live_entry *e)
{
	struct seen *s = ctx;

	s->n++;
	s->n_folders = e->n_folders;
	snprintf(s->names + strlen(s->names), sizeof(s->names) - strlen(s->names), "%s ", e->name);
	snprintf(s->rest, sizeof(s->rest), "%s|%s|%s|%s", e->mode, e->rules, e->project, e->agent);
	for (size_t i = 0; i < e->n_folders; i++)
		snprintf(s->folders + strlen(s->folders), sizeof(s->folders) - strlen(s->folders), "%.40s ", e->folders[i]);
}

static struct seen look(const struct world *w)
{
	struct seen s = { 0 };

	s.rc = live_each(&w->paths, see, &s);
	return s;
}

static struct live_entry entry(const char *name)
{
	return (struct live_entry){ .name = name, .mode = "codex", .rules = "abc", .project = "/p", .agent = "" };
}

static int add(const struct world *w, const char *name)
{
	struct live_entry e = entry(name);

	assert_int_equal(ak_mkdir_p(w->paths.state, 0700), 0);
	live_add_folder(&e, "/p");
	live_add_folder(&e, "");
	live_add_folder(&e, "/q");
	return live_register(&w->paths, &e);
}

static void an_entry_is_read_as_it_was_written(void **state)
{
	struct world *w = *state;
	int fd = add(w, "one");
	struct seen s = look(w);

	assert_true(fd >= 0);
	assert_string_equal(s.names, "one ");
	assert_string_equal(s.rest, "codex|abc|/p|");
	assert_string_equal(s.folders, "/p /q ");
	ak_close(fd);
	assert_int_equal(look(w).n, 0);
}

static void every_entry_is_seen_and_its_slot_used_again(void **state)
{
	struct world *w = *state;
	int fds[] = { add(w, "a"), add(w, "b"), add(w, "c"), add(w, "d") };

	assert_int_equal(look(w).n, 4);
	fds[1] = ak_close(fds[1]);
	fds[3] = ak_close(fds[3]);
	assert_int_equal(look(w).n, 2);
	fds[1] = add(w, "e");
	assert_int_equal(look(w).n, 3);
	assert_non_null(strstr(look(w).names, "e "));
	assert_null(strstr(look(w).names, "b "));
	for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
		ak_close(fds[i]);
}

static void a_killed_process_leaves_no_entry(void **state)
{
	struct world *w = *state;
	int pipes[2];
	char byte;
	pid_t pid;

	assert_int_equal(pipe(pipes), 0);
	pid = fork();
	if (pid == 0) {
		(void)!write(pipes[1], add(w, "child") >= 0 ? "y" : "n", 1);
		for (;;)
			pause();
	}
	assert_int_equal(read(pipes[0], &byte, 1), 1);
	assert_int_equal(byte, 'y');
	assert_string_equal(look(w).names, "child ");
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	assert_int_equal(look(w).n, 0);
	close(pipes[0]);
	close(pipes[1]);
}

static void a_full_register_refuses_and_the_others_stay(void **state)
{
	struct world *w = *state;
	int fds[LIVE_MAX];

	for (size_t i = 0; i < LIVE_MAX; i++)
		assert_true((fds[i] = add(w, "x")) >= 0);
	assert_int_equal(add(w, "more"), -EUSERS);
	assert_int_equal(look(w).n, LIVE_MAX);
	assert_int_equal(look(w).rc, -EUSERS); /* there may be more */
	fds[7] = ak_close(fds[7]);
	assert_int_equal(look(w).rc, 0);
	for (size_t i = 0; i < LIVE_MAX; i++)
		ak_close(fds[i]);
	assert_int_equal(look(w).n, 0);
}

static void folders_that_do_not_fit_become_the_root(void **state)
{
	struct world *w = *state;
	struct live_entry e = entry("long");
	static char path[4000];
	struct seen s;
	int fd;

	assert_int_equal(ak_mkdir_p(w->paths.state, 0700), 0);
	memset(path, 'a', sizeof(path) - 1);
	path[0] = '/';
	for (size_t i = 0; i < LIVE_FOLDERS_MAX; i++)
		live_add_folder(&e, path);
	fd = live_register(&w->paths, &e);
	s = look(w);
	assert_true(fd >= 0 && s.n == 1 && s.n_folders < LIVE_FOLDERS_MAX);
	assert_non_null(strstr(s.folders, " / "));
	ak_close(fd);
}

static void a_slot_that_is_being_written_is_not_read(void **state)
{
	struct world *w = *state;
	int fd = add(w, "one");

	assert_int_equal(pwrite(fd, "X", 1, 40), 1);
	assert_int_equal(look(w).n, 0);
	assert_int_equal(ftruncate(fd, 20), 0);
	assert_int_equal(look(w).n, 0);
	ak_close(fd);
}

static void a_register_that_cannot_be_read_is_no_empty_one(void **state)
{
	struct world *w = *state;
	char path[PATH_MAX];

	assert_int_equal(look(w).rc, 0); /* nothing has run yet */
	assert_int_equal(ak_path_join(path, w->paths.state, "live", NULL), 0);
	assert_int_equal(ak_mkdir_p(path, 0700), 0);
	assert_int_equal(look(w).rc, -EISDIR);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(an_entry_is_read_as_it_was_written, setup, teardown),
		cmocka_unit_test_setup_teardown(every_entry_is_seen_and_its_slot_used_again, setup, teardown),
		cmocka_unit_test_setup_teardown(a_killed_process_leaves_no_entry, setup, teardown),
		cmocka_unit_test_setup_teardown(a_full_register_refuses_and_the_others_stay, setup, teardown),
		cmocka_unit_test_setup_teardown(folders_that_do_not_fit_become_the_root, setup, teardown),
		cmocka_unit_test_setup_teardown(a_register_that_cannot_be_read_is_no_empty_one, setup, teardown),
		cmocka_unit_test_setup_teardown(a_slot_that_is_being_written_is_not_read, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
