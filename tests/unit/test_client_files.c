/*
 * Files of a sandbox through its root: a folder stands for the root, beside it lies what must never be touched, and in it lies what a hostile
 * sandbox would plant.
 */
#include "gateway/service/service.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "tests/unit/tmp_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <unistd.h>
#include <cmocka.h>

struct rig {
	char dir[64];
	int top; /* of it all */
	int root; /* the sandbox's, O_PATH */
	int host; /* a folder of the host's */
};

static void put(int dir, const char *name, const char *text)
{
	_cleanup_close_ int fd = openat(dir, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	assert_true(fd >= 0);
	assert_int_equal(ak_write_all(fd, text, strlen(text)), 0);
}

static void get(int dir, const char *name, const char *want)
{
	_cleanup_free_ char *text = NULL;

	assert_int_equal(ak_read_file(dir, name, 1 << 20, &text, NULL), 0);
	assert_string_equal(text, want);
}

static int setup(void **state)
{
	struct rig *r = calloc(1, sizeof(*r));

	strcpy(r->dir, "/tmp/ak-files-XXXXXX");
	assert_non_null(tmp_dir(r->dir));
	r->top = open(r->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_int_equal(mkdirat(r->top, "root", 0755), 0);
	assert_int_equal(mkdirat(r->top, "host", 0755), 0);
	put(r->top, "secret", "the host's");
	r->root = openat(r->top, "root", O_PATH | O_DIRECTORY | O_CLOEXEC);
	r->host = openat(r->top, "host", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(r->root >= 0 && r->host >= 0);
	assert_int_equal(mkdirat(r->root, "srv", 0755), 0);
	*state = r;
	return 0;
}

static int teardown(void **state)
{
	struct rig *r = *state;

	get(r->top, "secret", "the host's");
	ak_close(r->top);
	ak_close(r->root);
	ak_close(r->host);
	ak_remove_tree(AT_FDCWD, r->dir);
	free(r);
	return 0;
}

static int read_text(struct rig *r, const char *path, char *buf, size_t size, struct ak_err *err)
{
	_cleanup_free_ char *data = NULL;
	size_t len;
	int rc = service_file_read(r->root, path, 1 << 20, &data, &len, err);

	if (rc == 0)
		snprintf(buf, size, "%s", data);
	return rc;
}

static void what_is_written_is_read(void **state)
{
	struct rig *r = *state;
	struct ak_err err = { "" };
	_cleanup_free_ char *data = NULL;
	static const char bytes[] = { 0, 1, 2, '\n', (char)0xff, 0, 'x' };
	struct stat st;
	size_t len;

	assert_int_equal(service_file_write(r->root, "/srv/a", bytes, sizeof(bytes), 0640, false, &err), 0);
	assert_int_equal(service_file_read(r->root, "/srv/a", 100, &data, &len, &err), 0);
	assert_int_equal(len, sizeof(bytes));
	assert_memory_equal(data, bytes, len);
	assert_int_equal(fstatat(r->root, "srv/a", &st, 0), 0);
	assert_int_equal(st.st_mode & 07777, 0640);
	assert_int_equal(service_file_read(r->root, "/srv/a", 3, &data, &len, &err), -EFBIG);
	assert_int_equal(service_file_write(r->root, "/no/such/place", "x", 1, 0600, false, &err), -ENOENT);
	assert_int_equal(service_file_write(r->root, "/no//such/./place/f", "x", 1, 0600, true, &err), 0);
	get(r->root, "no/such/place/f", "x");
}

static void set_id_bits_are_dropped(void **state)
{
	struct rig *r = *state;
	struct service_copy c = { .files = 0 };
	struct ak_err err;
	struct stat st;

	assert_int_equal(service_file_write(r->root, "/srv/s", "x", 1, 06755, false, &err), 0);
	assert_int_equal(fstatat(r->root, "srv/s", &st, 0), 0);
	assert_int_equal(st.st_mode & 07777, 0755);
	assert_int_equal(fchmodat(r->root, "srv/s", 06711, 0), 0);
	assert_int_equal(service_copy_tree(r->root, "srv", r->host, "out", &c, &err), 0);
	assert_int_equal(fstatat(r->host, "out/s", &st, 0), 0);
	assert_int_equal(st.st_mode & 07777, 0711);
}

static void dots_and_links_stay_inside(void **state)
{
	struct rig *r = *state;
	struct ak_err err;
	char text[64], outside[128];
	static const char *const ways[] = { "/../secret", "/srv/../../secret", "/up/secret", "/abs/secret", "/direct" };

	snprintf(outside, sizeof(outside), "%s/secret", r->dir);
	assert_int_equal(symlinkat("../..", r->root, "up"), 0);
	assert_int_equal(symlinkat(r->dir, r->root, "abs"), 0);
	assert_int_equal(symlinkat(outside, r->root, "direct"), 0);
	for (size_t i = 0; i < ARRAY_SIZE(ways); i++)
		assert_true(read_text(r, ways[i], text, sizeof(text), &err) < 0);
	/* The same paths for writing end inside, or nowhere. */
	for (size_t i = 0; i < ARRAY_SIZE(ways); i++)
		(void)service_file_write(r->root, ways[i], "evil", 4, 0644, true, &err);
	get(r->top, "secret", "the host's");
	put(r->root, "secret", "the sandbox's");
	assert_int_equal(read_text(r, "/up/secret", text, sizeof(text), &err), 0);
	assert_string_equal(text, "the sandbox's");
	assert_int_equal(service_file_delete(r->root, "/../secret", false, &err), 0);
	assert_int_equal(service_file_delete(r->root, "/..", true, &err), -EINVAL);
	assert_int_equal(service_file_delete(r->root, "/", true, &err), -EINVAL);
	assert_int_equal(service_file_delete(r->root, "/srv/..", true, &err), -EINVAL);
}

static void a_link_is_replaced_not_followed(void **state)
{
	struct rig *r = *state;
	struct ak_err err;
	struct stat st;
	char text[64];

	put(r->root, "target", "kept");
	assert_int_equal(symlinkat("/target", r->root, "link"), 0);
	assert_int_equal(read_text(r, "/link", text, sizeof(text), &err), -EINVAL);
	assert_non_null(strstr(err.text, "symbolic link"));
	assert_int_equal(service_file_write(r->root, "/link", "new", 3, 0644, false, &err), 0);
	get(r->root, "target", "kept");
	assert_int_equal(fstatat(r->root, "link", &st, AT_SYMLINK_NOFOLLOW), 0);
	assert_true(S_ISREG(st.st_mode));
}

static void fifos_devices_sockets_and_folders_are_refused_at_once(void **state)
{
	struct rig *r = *state;
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	struct service_copy c = { .files = 0 };
	struct ak_err err;
	struct stat st;
	char text[64];
	_cleanup_close_ int sock = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_int_equal(mkfifoat(r->root, "srv/fifo", 0666), 0);
	snprintf(addr.sun_path, sizeof(addr.sun_path), "%s/root/srv/sock", r->dir);
	assert_int_equal(bind(sock, (struct sockaddr *)&addr, sizeof(addr)), 0);
	put(r->root, "srv/file", "f");
	assert_int_equal(read_text(r, "/srv/fifo", text, sizeof(text), &err), -EINVAL);
	assert_non_null(strstr(err.text, "FIFO"));
	assert_int_equal(read_text(r, "/srv/sock", text, sizeof(text), &err), -EINVAL);
	assert_non_null(strstr(err.text, "socket"));
	assert_int_equal(read_text(r, "/srv", text, sizeof(text), &err), -EISDIR);
	/* Neither replaced nor waited for. */
	assert_int_equal(service_copy_tree(r->root, "srv", r->host, "out", &c, &err), 0);
	assert_int_equal(c.left_out, 2);
	assert_int_equal(c.files, 1);
	get(r->host, "out/file", "f");
	assert_int_equal(fstatat(r->host, "out/fifo", &st, AT_SYMLINK_NOFOLLOW), -1);
	assert_int_equal(service_file_write(r->root, "/srv/fifo", "x", 1, 0644, false, &err), -EINVAL);
	assert_int_equal(service_file_write(r->root, "/srv", "x", 1, 0644, false, &err), -EISDIR);
	assert_int_equal(service_copy_tree(r->host, "out/file", r->root, "srv/fifo", &c, &err), -EINVAL);
	assert_int_equal(fstatat(r->root, "srv/fifo", &st, AT_SYMLINK_NOFOLLOW), 0);
	assert_true(S_ISFIFO(st.st_mode));
	if (mknodat(r->root, "zero", S_IFCHR | 0666, makedev(1, 5)) == 0) {
		assert_int_equal(read_text(r, "/zero", text, sizeof(text), &err), -EINVAL);
		assert_non_null(strstr(err.text, "device"));
	}
}

static void the_kernels_own_files_are_refused(void **state)
{
	_cleanup_close_ int slash = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	struct rig *r = *state;
	struct service_copy c = { .files = 0 };
	struct ak_err err;
	_cleanup_free_ char *data = NULL;
	size_t len;

	assert_int_equal(service_file_read(slash, "/proc/version", 4096, &data, &len, &err), -EPERM);
	assert_int_equal(service_file_write(slash, "/proc/sys/kernel/none", "x", 1, 0644, false, &err), -EPERM);
	assert_int_equal(service_file_write(slash, "/proc/self/cwd/x", "x", 1, 0644, false, &err), -ELOOP);
	assert_int_equal(service_copy_tree(slash, "proc", r->host, "proc", &c, &err), 0);
	assert_int_equal(c.left_out, 1);
}

static void huge_names_are_told(void **state)
{
	struct rig *r = *state;
	struct ak_err err;
	char text[64], name[400] = "/srv/", path[PATH_MAX + 100];
	char *last = name + strlen(name);

	memset(last, 'n', 300);
	assert_int_equal(service_file_write(r->root, name, "x", 1, 0644, false, &err), -ENAMETOOLONG);
	memset(path, '/', sizeof(path) - 1);
	path[sizeof(path) - 2] = 'x';
	path[sizeof(path) - 1] = '\0';
	assert_int_equal(read_text(r, path, text, sizeof(text), &err), -ENAMETOOLONG);
	assert_int_equal(read_text(r, "srv/x", text, sizeof(text), &err), -EINVAL);
	assert_int_equal(read_text(r, "", text, sizeof(text), &err), -EINVAL);
	/* 255 is a name. */
	last[255] = '\0';
	assert_int_equal(service_file_write(r->root, name, "x", 1, 0644, false, &err), 0);
}

static int add_name(void *ctx, const struct service_entry *e)
{
	strcat(ctx, e->name);
	strcat(ctx, S_ISDIR(e->mode) ? "/ " : S_ISLNK(e->mode) ? "@ " : " ");
	return 0;
}

static void a_folder_is_listed_in_order_and_removed_as_a_tree(void **state)
{
	struct rig *r = *state;
	struct ak_err err;
	char names[256] = "";

	put(r->root, "srv/b", "");
	put(r->root, "srv/a", "");
	assert_int_equal(mkdirat(r->root, "srv/c", 0755), 0);
	assert_int_equal(symlinkat("../..", r->root, "srv/d"), 0);
	assert_int_equal(service_file_list(r->root, "/srv", add_name, names, &err), 0);
	assert_string_equal(names, "a b c/ d@ ");
	assert_int_equal(service_file_delete(r->root, "/srv", false, &err), -ENOTEMPTY);
	assert_int_equal(service_file_delete(r->root, "/srv", true, &err), 0);
	assert_int_equal(faccessat(r->root, "srv", F_OK, 0), -1);
}

/* ---- copying ---- */

static void trees_are_copied_with_modes_links_and_times(void **state)
{
	struct rig *r = *state;
	struct service_copy c = { .files = 0 };
	struct timespec times[2] = { { .tv_sec = 1000000 }, { .tv_sec = 1234567, .tv_nsec = 5 } };
	struct ak_err err;
	struct stat st;
	char target[16] = "";

	assert_int_equal(mkdirat(r->root, "srv/sub", 0750), 0);
	put(r->root, "srv/sub/f", "text");
	assert_int_equal(fchmodat(r->root, "srv/sub/f", 0751, 0), 0);
	assert_int_equal(utimensat(r->root, "srv/sub/f", times, 0), 0);
	assert_int_equal(symlinkat("/etc/passwd", r->root, "srv/link"), 0);
	assert_int_equal(service_copy_tree(r->root, "srv", r->host, "out", &c, &err), 0);
	get(r->host, "out/sub/f", "text");
	assert_int_equal(fstatat(r->host, "out/sub/f", &st, 0), 0);
	assert_int_equal(st.st_mode & 07777, 0751);
	assert_int_equal(st.st_mtim.tv_sec, 1234567);
	assert_int_equal(fstatat(r->host, "out/sub", &st, 0), 0);
	assert_int_equal(st.st_mode & 07777, 0750);
	assert_int_equal(readlinkat(r->host, "out/link", target, sizeof(target) - 1), 11);
	assert_string_equal(target, "/etc/passwd");
	assert_int_equal(c.files, 1);
	assert_int_equal(c.folders, 2);
	assert_int_equal(c.links, 1);
}

static void a_planted_link_at_the_destination_is_never_written_through(void **state)
{
	struct rig *r = *state;
	struct service_copy c = { .files = 0 };
	struct ak_err err;
	struct stat st;

	/* The host's folder is the project that the sandbox writes to as well. */
	assert_int_equal(mkdirat(r->host, "out", 0755), 0);
	assert_int_equal(symlinkat("../../secret", r->host, "out/f"), 0);
	put(r->root, "srv/f", "evil");
	assert_int_equal(service_copy_tree(r->root, "srv", r->host, "out", &c, &err), 0);
	get(r->top, "secret", "the host's");
	get(r->host, "out/f", "evil");
	/* A folder in place of which a link was put is refused. */
	assert_int_equal(mkdirat(r->root, "srv/sub", 0755), 0);
	put(r->root, "srv/sub/secret", "evil");
	assert_int_equal(symlinkat("../..", r->host, "out/sub"), 0);
	assert_int_equal(service_copy_tree(r->root, "srv", r->host, "out", &c, &err), -ENOTDIR);
	get(r->top, "secret", "the host's");
	assert_int_equal(fstatat(r->host, "out/sub", &st, AT_SYMLINK_NOFOLLOW), 0);
	assert_true(S_ISLNK(st.st_mode));
}

static void holes_stay_holes(void **state)
{
	struct rig *r = *state;
	struct service_copy c = { .files = 0 };
	struct ak_err err;
	struct stat st;
	_cleanup_close_ int fd = openat(r->root, "srv/sparse", O_RDWR | O_CREAT | O_CLOEXEC, 0644);

	if (ftruncate(fd, 1ll << 40) < 0)
		skip();
	assert_int_equal(pwrite(fd, "x", 1, 1 << 20), 1);
	assert_int_equal(service_copy_tree(r->root, "srv", r->host, "out", &c, &err), 0);
	assert_int_equal(fstatat(r->host, "out/sparse", &st, 0), 0);
	assert_true(st.st_size == 1ll << 40);
	assert_true(st.st_blocks < 4096);
	assert_true(c.bytes < 1 << 21);
}

static void note_why(void *ctx, const char *path, const char *why)
{
	snprintf(ctx, 128, "%s", why);
}

static void depth_is_bounded_and_told(void **state)
{
	struct rig *r = *state;
	char why[128] = "";
	struct service_copy c = { .skipped = note_why, .ctx = why };
	struct ak_err err;
	int dir = openat(r->root, "srv", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	for (int i = 0; i < 300; i++) {
		int next;

		assert_int_equal(mkdirat(dir, "d", 0755), 0);
		next = openat(dir, "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		close(dir);
		dir = next;
	}
	close(dir);
	assert_int_equal(service_copy_tree(r->root, "srv", r->host, "out", &c, &err), 0);
	assert_int_equal(c.left_out, 1);
	assert_non_null(strstr(why, "deep"));
}

static void a_stop_leaves_no_half_file(void **state)
{
	struct rig *r = *state;
	volatile sig_atomic_t stop = 1;
	struct service_copy c = { .stop = &stop };
	struct ak_err err;
	char names[256] = "";

	put(r->root, "srv/f", "text");
	assert_int_equal(service_copy_tree(r->root, "srv", r->host, "out", &c, &err), -EINTR);
	assert_int_equal(service_file_list(r->host, "/out", add_name, names, &err), 0);
	assert_string_equal(names, "");
}

/* ---- a sandbox that swaps things while we look ---- */

struct swapper {
	int root;
	volatile bool stop;
};

/* "srv/x" is by turns a folder, a link to the host, and a FIFO. */
static void *swap(void *arg)
{
	struct swapper *s = arg;

	while (!s->stop) {
		(void)!renameat(s->root, "srv/x", s->root, "srv/y");
		(void)!symlinkat("../../..", s->root, "srv/x");
		(void)!unlinkat(s->root, "srv/x", 0);
		(void)!mkfifoat(s->root, "srv/x", 0666);
		(void)!unlinkat(s->root, "srv/x", 0);
		(void)!renameat(s->root, "srv/y", s->root, "srv/x");
	}
	return NULL;
}

static void swapping_while_copying_gains_nothing(void **state)
{
	struct rig *r = *state;
	struct swapper s = { .root = openat(r->top, "root", O_RDONLY | O_DIRECTORY | O_CLOEXEC) };
	struct ak_err err;
	struct stat st;
	pthread_t thread;
	char text[64];

	assert_int_equal(mkdirat(r->root, "srv/x", 0755), 0);
	put(r->root, "srv/x/secret", "the sandbox's");
	assert_int_equal(pthread_create(&thread, NULL, swap, &s), 0);
	for (int i = 0; i < 150; i++) {
		struct service_copy c = { .files = 0 };
		int rc = service_copy_tree(r->root, "srv", r->host, "out", &c, &err);

		/* What lay outside never arrives, whatever it is called. */
		if (faccessat(r->host, "out/x/host", F_OK, 0) == 0 || faccessat(r->host, "out/x/root", F_OK, 0) == 0)
			assert_true(fstatat(r->host, "out/x", &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(st.st_mode));
		if (read_text(r, "/srv/x/secret", text, sizeof(text), &err) == 0)
			assert_string_equal(text, "the sandbox's");
		(void)service_file_write(r->root, "/srv/x/new", "evil", 4, 0644, false, &err);
		(void)rc;
		(void)ak_remove_tree(r->host, "out");
	}
	s.stop = true;
	pthread_join(thread, NULL);
	close(s.root);
	assert_int_equal(faccessat(r->top, "new", F_OK, 0), -1);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(what_is_written_is_read),
		T(set_id_bits_are_dropped),
		T(dots_and_links_stay_inside),
		T(a_link_is_replaced_not_followed),
		T(fifos_devices_sockets_and_folders_are_refused_at_once),
		T(the_kernels_own_files_are_refused),
		T(huge_names_are_told),
		T(a_folder_is_listed_in_order_and_removed_as_a_tree),
		T(trees_are_copied_with_modes_links_and_times),
		T(a_planted_link_at_the_destination_is_never_written_through),
		T(holes_stay_holes),
		T(depth_is_bounded_and_told),
		T(a_stop_leaves_no_half_file),
		T(swapping_while_copying_gains_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
