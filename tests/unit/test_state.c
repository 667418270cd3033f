/* Persistent sandboxes on disk: whole or not at all, whatever happens around them; and what their edits mean. */
#include "gateway/store/state.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "tests/unit/state_world.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

static struct state_sandbox named(const char *name)
{
	struct state_sandbox s = { .mode = AK_MODE_CODEX, .profile = AK_PROFILE_MODERATE };

	snprintf(s.name, sizeof(s.name), "%s", name);
	return s;
}

static void create(struct world *w, const char *name)
{
	struct state_sandbox s = named(name);
	struct ak_err err;

	if (state_create(&w->paths, &s, &err) < 0)
		fail_msg("%s", err.text);
	state_done(&s);
}

static void file_of(struct world *w, const char *name, const char *file, char path[PATH_MAX])
{
	assert_int_equal(state_path(&w->paths, name, file, path), 0);
}

static void put_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
}

static void everything_comes_back_as_it_was(void **state)
{
	struct world *w = *state;
	struct state_sandbox s = named("a"), t;
	struct ak_err err;

	strcpy(s.dir, "/srv/project \"x\"\n");
	s.dir_id = (struct project_id){ .dev = 77, .ino = UINT64_MAX, .born_ns = UINT64_MAX - 1 };
	s.no_network = true;
	s.limits = (struct sandbox_limits){ 1ull << 40, 1500, 77, 88, 99, 1ull << 41 };
	s.env = calloc(3, sizeof(*s.env));
	s.env[0] = strdup("A=1");
	s.env[1] = strdup("B=\xff\xfe weird \"\\\n");
	assert_int_equal(state_edit_add(&w->paths, &s, POLICY_EDIT_ALLOW_HOST, "x.example.com:443", 123456789012345, &err), 0);
	assert_int_equal(state_create(&w->paths, &s, &err), 0);
	assert_int_equal(strlen(s.uuid), 36);
	assert_true(s.link_id >= 1);
	assert_int_equal(state_load(&w->paths, "a", &t, &err), 0);
	assert_string_equal(t.uuid, s.uuid);
	assert_string_equal(t.dir, s.dir);
	assert_memory_equal(&t.dir_id, &s.dir_id, sizeof(s.dir_id));
	assert_memory_equal(&t.limits, &s.limits, sizeof(s.limits));
	assert_string_equal(t.env[1], s.env[1]);
	assert_null(t.env[2]);
	assert_true(t.no_network);
	assert_int_equal(t.generation, 1);
	assert_int_equal(t.created_us, s.created_us);
	assert_int_equal(t.n_edits, 1);
	assert_int_equal(t.edits[0].until_us, 123456789012345);
	assert_string_equal(t.edits[0].text, "x.example.com:443");
	state_done(&s);
	state_done(&t);
}

static void a_taken_or_bad_name_is_refused(void **state)
{
	static const char *const bad[] = { "", "-a", "a-", "a.b", "a/b", "..", "a b", "\xc3\xa4" };
	struct world *w = *state;
	struct state_sandbox s = named("a"), t;
	char longest[AK_NAME_MAX];
	struct ak_err err;

	create(w, "a");
	assert_int_equal(state_create(&w->paths, &s, &err), -EEXIST);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		s = named(bad[i]);
		assert_int_equal(state_create(&w->paths, &s, &err), -EINVAL);
		assert_int_equal(state_load(&w->paths, bad[i], &t, &err), -ENOENT);
	}
	memset(longest, 'x', 63);
	longest[63] = '\0';
	create(w, longest);
	assert_int_equal(state_load(&w->paths, longest, &t, &err), 0);
	state_done(&t);
}

static int count_one(void *ctx, struct state_sandbox *s)
{
	unsigned char *links = ctx;

	assert_true(s->link_id >= 1 && s->link_id <= STATE_LINK_MAX);
	assert_int_equal(links[s->link_id]++, 0);
	links[0]++;
	return 0;
}

/* Eight processes, twenty names, each wanted by two of them: every name once, every link once. */
static void eight_who_create_at_once_make_each_name_and_link_once(void **state)
{
	struct world *w = *state;
	unsigned char *links = calloc(1, STATE_LINK_MAX + 1);
	struct ak_err err;
	int made = 0;

	for (int p = 0; p < 8; p++) {
		if (fork() == 0) {
			int mine = 0;

			for (int i = 0; i < 20; i++) {
				char name[32];
				struct state_sandbox s;
				int rc;

				snprintf(name, sizeof(name), "s-%d-%d", p / 2, i);
				s = named(name);
				rc = state_create(&w->paths, &s, &err);
				if (rc < 0 && rc != -EEXIST)
					_exit(255);
				mine += rc == 0;
			}
			_exit(mine);
		}
	}
	for (int status; wait(&status) > 0;) {
		assert_int_not_equal(WEXITSTATUS(status), 255);
		made += WEXITSTATUS(status);
	}
	assert_int_equal(made, 80);
	assert_int_equal(state_each(&w->paths, count_one, NULL, links, &err), 0);
	assert_int_equal(links[0], 80);
	free(links);
}

/* What kill -9 leaves: a temporary file that was not renamed, folders half made and half removed. */
static void leftovers_of_a_crash_change_nothing_and_are_swept(void **state)
{
	struct world *w = *state;
	struct state_sandbox s;
	char path[PATH_MAX];
	struct ak_err err;

	create(w, "a");
	file_of(w, "a", ".sandbox.json.tmp", path);
	put_file(path, "{\"version\":1,\"na");
	file_of(w, ".new-b", "upper", path);
	assert_int_equal(ak_mkdir_p(path, 0700), 0);
	file_of(w, ".gone-c-1", "upper", path);
	assert_int_equal(ak_mkdir_p(path, 0700), 0);
	assert_int_equal(state_load(&w->paths, "a", &s, &err), 0);
	s.generation = 7;
	assert_int_equal(state_save(&w->paths, &s, &err), 0);
	state_done(&s);
	create(w, "b");
	state_sweep(&w->paths, NULL, NULL);
	file_of(w, ".gone-c-1", NULL, path);
	assert_int_equal(access(path, F_OK), -1);
	assert_int_equal(state_load(&w->paths, "a", &s, &err), 0);
	assert_int_equal(s.generation, 7);
	state_done(&s);
	assert_int_equal(state_load(&w->paths, "b", &s, &err), 0);
	state_done(&s);
}

/* Many writers, and readers that at every moment see a whole file. */
static void readers_never_see_half_a_file(void **state)
{
	struct world *w = *state;
	struct ak_err err;

	create(w, "a");
	for (int p = 0; p < 4; p++) {
		if (fork() == 0) {
			for (int i = 0; i < 40; i++) {
				struct state_sandbox s;

				if (state_load(&w->paths, "a", &s, &err) < 0)
					_exit(1);
				if (p < 2) {
					s.generation++;
					if (state_save(&w->paths, &s, &err) < 0)
						_exit(2);
				}
				state_done(&s);
			}
			_exit(0);
		}
	}
	for (int status; wait(&status) > 0;)
		assert_int_equal(status, 0);
}

static void a_newer_format_is_left_alone(void **state)
{
	static const char text[] = "{\"version\":99,\"name\":\"a\",\"colour\":\"blue\"}";
	struct world *w = *state;
	struct state_sandbox s;
	char path[PATH_MAX];
	_cleanup_free_ char *after = NULL;
	struct ak_err err;

	create(w, "a");
	file_of(w, "a", "sandbox.json", path);
	put_file(path, text);
	assert_int_equal(state_load(&w->paths, "a", &s, &err), -EPROTONOSUPPORT);
	assert_non_null(strstr(err.text, "newer"));
	assert_int_equal(ak_read_file(AT_FDCWD, path, 4096, &after, NULL), 0);
	assert_string_equal(after, text);
}

static void remember(void *ctx, const char *name, const char *reason)
{
	char *out = ctx;

	strcat(strcat(strcat(strcat(out, name), ": "), reason), "\n");
}

static int ignore(void *ctx, struct state_sandbox *s)
{
	strcat(strcat(ctx, s->name), "\n");
	return 0;
}

static void bad_files_are_named_and_the_others_still_listed(void **state)
{
	static const char *const bad[] = {
		"{",
		"[]",
		"{\"version\":1}",
		"{\"version\":1,\"name\":\"b\",\"mode\":\"x.y\"}",
		"{\"version\":1,\"name\":\"b\",\"edits\":[{\"op\":\"policy\",\"text\":\"/a/file.json\"}]}",
		"{\"version\":1,\"name\":\"b\",\"link_id\":-1}",
		"{\"version\":1,\"name\":\"b\",\"edits\":[{\"op\":\"allow-host\"}]}",
		"{\"version\":1,\"name\":\"b\",\"env\":[\"=x\"]}",
		"{\"version\":1,\"name\":\"b\",\"extra\":1}",
		"{\"version\":1,\"name\":\"a\"}",
		"",
	};
	struct world *w = *state;
	struct state_sandbox s;
	char path[PATH_MAX], out[4096];
	struct ak_err err;

	create(w, "a");
	create(w, "b");
	create(w, "c");
	file_of(w, "b", "sandbox.json", path);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		put_file(path, bad[i]);
		assert_int_equal(state_load(&w->paths, "b", &s, &err), -EBADMSG);
		assert_non_null(strstr(err.text, "sandbox.json"));
		out[0] = '\0';
		assert_int_equal(state_each(&w->paths, ignore, remember, out, &err), 0);
		assert_non_null(strstr(out, "a\n"));
		assert_non_null(strstr(out, "b: "));
		assert_non_null(strstr(out, "c\n"));
	}
	/* A folder without the file is no sandbox that never was: its name is taken. */
	assert_int_equal(unlink(path), 0);
	assert_int_equal(state_load(&w->paths, "b", &s, &err), -EBADMSG);
	assert_non_null(strstr(err.text, "sandbox.json"));
	assert_true(state_damaged(-EBADMSG) && state_damaged(-EPROTONOSUPPORT));
	assert_false(state_damaged(-ENOENT) || state_damaged(-ENOMEM) || state_damaged(0));
}

static void what_is_damaged_can_be_removed(void **state)
{
	struct world *w = *state;
	char path[PATH_MAX], gone[PATH_MAX];
	struct state_sandbox s;
	struct ak_err err;

	create(w, "a");
	file_of(w, "a", "sandbox.json", path);
	put_file(path, "{");
	assert_int_equal(state_remove(&w->paths, "a", gone, &err), 0);
	assert_int_equal(state_load(&w->paths, "a", &s, &err), -ENOENT);
	create(w, "a");
}

static void being_short_of_descriptors_is_no_damage(void **state)
{
	struct world *w = *state;
	struct rlimit was, none;
	struct state_sandbox s;
	char out[64] = "";
	struct ak_err err;
	int rc, each;

	create(w, "a");
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
	none = (struct rlimit){ 0, was.rlim_max };
	setrlimit(RLIMIT_NOFILE, &none);
	rc = state_load(&w->paths, "a", &s, &err);
	each = state_each(&w->paths, ignore, remember, out, &err);
	setrlimit(RLIMIT_NOFILE, &was);
	assert_int_equal(rc, -EMFILE);
	assert_int_equal(each, -EMFILE);
	assert_string_equal(out, "");
}

static void removal_frees_the_name_at_once(void **state)
{
	struct world *w = *state;
	struct state_sandbox s;
	char gone[PATH_MAX];
	struct ak_err err;

	create(w, "a");
	assert_int_equal(state_remove(&w->paths, "a", gone, &err), 0);
	assert_int_equal(access(gone, F_OK), 0);
	assert_int_equal(state_load(&w->paths, "a", &s, &err), -ENOENT);
	assert_string_equal(err.text, "no sandbox named 'a'");
	assert_int_equal(state_remove(&w->paths, "a", gone, &err), -ENOENT);
	create(w, "a");
}

static void link_ids_are_given_out_in_order_and_found_again_when_the_note_is_lost(void **state)
{
	struct world *w = *state;
	struct state_sandbox s;
	char gone[PATH_MAX], note[PATH_MAX];
	struct ak_err err;

	create(w, "a");
	create(w, "b");
	assert_int_equal(state_remove(&w->paths, "b", gone, &err), 0);
	create(w, "c");
	assert_int_equal(state_load(&w->paths, "c", &s, &err), 0);
	assert_int_equal(s.link_id, 3); /* not b's: its address is not soon someone else's */
	file_of(w, ".links", NULL, note);
	put_file(note, "rubbish");
	create(w, "d");
	assert_int_equal(state_load(&w->paths, "d", &s, &err), 0);
	assert_int_equal(s.link_id, 4);
}

/* A mount namespace where we may mount: for an ordinary user inside a user namespace in which the user is the same. */
static int own_mounts(void)
{
	char map[64];
	uid_t uid = geteuid();
	gid_t gid = getegid();

	if (uid == 0)
		return unshare(CLONE_NEWNS);
	if (unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0 || ak_write_file("/proc/self/setgroups", "deny") < 0)
		return -1;
	snprintf(map, sizeof(map), "%u %u 1", uid, uid);
	if (ak_write_file("/proc/self/uid_map", map) < 0)
		return -1;
	snprintf(map, sizeof(map), "%u %u 1", gid, gid);
	return ak_write_file("/proc/self/gid_map", map);
}

/* A full disk, in a user namespace of our own; skipped where there are none. */
static void a_full_disk_loses_nothing(void **state)
{
	struct world *w = *state;
	int status;
	pid_t pid;

	assert_int_equal(ak_mkdir_p(w->paths.state, 0700), 0);
	pid = fork();
	if (pid == 0) {
		struct state_sandbox s = named("a");
		struct ak_err err;
		char filler[PATH_MAX];
		int fd, rc;

		if (own_mounts() < 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
			mount("tmpfs", w->paths.state, "tmpfs", 0, "size=64k") < 0)
			_exit(77);
		if (state_create(&w->paths, &s, &err) < 0)
			_exit(1);
		if (ak_path_join(filler, w->paths.state, "filler", NULL) < 0)
			_exit(5);
		fd = open(filler, O_WRONLY | O_CREAT, 0600);
		while (write(fd, filler, 512) > 0)
			;
		s.generation = 9;
		rc = state_save(&w->paths, &s, &err);
		if (rc != -ENOSPC)
			_exit(2);
		state_done(&s);
		if (state_load(&w->paths, "a", &s, &err) < 0 || s.generation != 1)
			_exit(3);
		close(fd);
		unlink(filler);
		s.generation = 9;
		if (state_save(&w->paths, &s, &err) < 0)
			_exit(4);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (WEXITSTATUS(status) == 77)
		skip();
	assert_int_equal(status, 0);
}

/* ---- edits ---- */

static bool allows(struct world *w, const struct state_sandbox *s, uint64_t now_us, const char *name)
{
	struct policy *p = NULL;
	struct ak_err err;
	bool allow;

	if (state_policy(&w->paths, s, now_us, &p, &err) < 0)
		fail_msg("%s", err.text);
	allow = policy_judge_name(p, name, POLICY_TCP, 443).allow;
	policy_unref(p);
	return allow;
}

static void an_edit_ends_with_its_time(void **state)
{
	struct world *w = *state;
	struct state_sandbox s = named("a");
	struct ak_err err;

	assert_int_equal(state_edit_add(&w->paths, &s, POLICY_EDIT_ALLOW_HOST, "a.example.org", 1000, &err), 0);
	assert_int_equal(state_edit_add(&w->paths, &s, POLICY_EDIT_ALLOW_HOST, "b.example.org", 0, &err), 0);
	assert_int_equal(state_edits_next(&s), 1000);
	assert_true(allows(w, &s, 999, "a.example.org"));
	assert_false(allows(w, &s, 1000, "a.example.org"));
	assert_true(allows(w, &s, 1000, "b.example.org"));
	/* Given again, it has its new end and is there once. */
	assert_int_equal(state_edit_add(&w->paths, &s, POLICY_EDIT_ALLOW_HOST, "a.example.org", 2000, &err), 0);
	assert_int_equal(s.n_edits, 2);
	assert_int_equal(state_edits_expire(&s, 1500), 0);
	assert_int_equal(state_edits_expire(&s, 2000), 1);
	assert_int_equal(state_edits_next(&s), 0);
	state_done(&s);
}

static void removing_takes_back_an_edit_however_it_is_spelled(void **state)
{
	struct world *w = *state;
	struct state_sandbox s = named("a");
	struct ak_err err;

	assert_int_equal(state_edit_add(&w->paths, &s, POLICY_EDIT_ALLOW_HOST, "a.example.org:443", 0, &err), 0);
	assert_int_equal(state_edit_add(&w->paths, &s, POLICY_EDIT_REMOVE, "A.example.org:443/tcp", 0, &err), 0);
	assert_int_equal(s.n_edits, 0);
	assert_int_equal(state_edit_add(&w->paths, &s, POLICY_EDIT_REMOVE, "a.example.org:443", 0, &err), -ENOENT);
	state_done(&s);
}

static void removing_a_rule_of_the_file_is_kept_and_survives_the_files_change(void **state)
{
	struct world *w = *state;
	struct state_sandbox s = named("a");
	char path[PATH_MAX];
	struct ak_err err;

	assert_true(allows(w, &s, 1, "api.openai.com"));
	assert_int_equal(state_edit_add(&w->paths, &s, POLICY_EDIT_REMOVE, "api.openai.com:443", 0, &err), 0);
	assert_int_equal(s.n_edits, 1);
	assert_false(allows(w, &s, 1, "api.openai.com"));
	/* The file does not have the rule any more: there is nothing to remove, and nothing fails. */
	snprintf(path, sizeof(path), "%s/config/policies", w->dir);
	assert_int_equal(ak_mkdir_p(path, 0700), 0);
	strcat(path, "/codex.json");
	put_file(path, "{\"version\":1,\"name\":\"codex\",\"default\":\"deny\",\"allow\":[\"only.example.org\"]}");
	assert_false(allows(w, &s, 1, "api.openai.com"));
	assert_true(allows(w, &s, 1, "only.example.org"));
	state_done(&s);
}

static void a_bad_edit_is_refused_with_the_parsers_reason(void **state)
{
	struct world *w = *state;
	struct state_sandbox s = named("a");
	struct policy *p = NULL;
	struct ak_err err;

	assert_int_equal(state_edit_add(&w->paths, &s, POLICY_EDIT_ALLOW_HOST, "x:99999", 0, &err), 0);
	assert_int_equal(state_policy(&w->paths, &s, 1, &p, &err), -EINVAL);
	assert_non_null(strstr(err.text, "allow-host"));
	state_done(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(everything_comes_back_as_it_was, setup, teardown),
		cmocka_unit_test_setup_teardown(a_taken_or_bad_name_is_refused, setup, teardown),
		cmocka_unit_test_setup_teardown(eight_who_create_at_once_make_each_name_and_link_once, setup, teardown),
		cmocka_unit_test_setup_teardown(leftovers_of_a_crash_change_nothing_and_are_swept, setup, teardown),
		cmocka_unit_test_setup_teardown(readers_never_see_half_a_file, setup, teardown),
		cmocka_unit_test_setup_teardown(a_newer_format_is_left_alone, setup, teardown),
		cmocka_unit_test_setup_teardown(bad_files_are_named_and_the_others_still_listed, setup, teardown),
		cmocka_unit_test_setup_teardown(what_is_damaged_can_be_removed, setup, teardown),
		cmocka_unit_test_setup_teardown(being_short_of_descriptors_is_no_damage, setup, teardown),
		cmocka_unit_test_setup_teardown(removal_frees_the_name_at_once, setup, teardown),
		cmocka_unit_test_setup_teardown(
			link_ids_are_given_out_in_order_and_found_again_when_the_note_is_lost, setup, teardown),
		cmocka_unit_test_setup_teardown(a_full_disk_loses_nothing, setup, teardown),
		cmocka_unit_test_setup_teardown(an_edit_ends_with_its_time, setup, teardown),
		cmocka_unit_test_setup_teardown(removing_takes_back_an_edit_however_it_is_spelled, setup, teardown),
		cmocka_unit_test_setup_teardown(
			removing_a_rule_of_the_file_is_kept_and_survives_the_files_change, setup, teardown),
		cmocka_unit_test_setup_teardown(a_bad_edit_is_refused_with_the_parsers_reason, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
