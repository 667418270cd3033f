/* Talk between our own processes: objects, descriptors, sizes, strangers, stale sockets, and peers that do not read. */
#include "gateway/ipc/server.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "tests/unit/tmp_dir.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

struct world {
	char dir[64];
	char path[256];
};

static int setup(void **state)
{
	struct world *w = calloc(1, sizeof(*w));

	strcpy(w->dir, "/tmp/ak-ipc-XXXXXX");
	if (!tmp_dir(w->dir))
		return -1;
	snprintf(w->path, sizeof(w->path), "%s/a.sock", w->dir);
	*state = w;
	return 0;
}

static int teardown(void **state)
{
	struct world *w = *state;

	ak_remove_tree(AT_FDCWD, w->dir);
	free(w);
	return 0;
}

static void pair(int fds[2])
{
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds), 0);
}

static size_t open_count(void)
{
	size_t n = 0;

	for (int fd = 0; fd < 256; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static void objects_and_descriptors_arrive_together(void **state)
{
	int s[2], sent[2], got[4];
	size_t n = 4;
	cJSON *obj = cJSON_Parse("{\"op\":\"x\",\"list\":[1,2,3]}"), *in = NULL;

	pair(s);
	assert_int_equal(pipe(sent), 0);
	assert_int_equal(ipc_send(s[0], obj, sent, 2), 0);
	assert_int_equal(ipc_recv(s[1], &in, got, &n), 1);
	assert_int_equal(n, 2);
	assert_true(cJSON_Compare(obj, in, true));
	assert_int_equal(write(got[1], "q", 1), 1);
	assert_int_equal(read(sent[0], (char[1]){ 0 }, 1), 1);
	assert_true(fcntl(got[0], F_GETFD) & FD_CLOEXEC);
	cJSON_Delete(obj);
	cJSON_Delete(in);
	for (int i = 0; i < 2; i++) {
		close(sent[i]);
		close(got[i]);
		close(s[i]);
	}
}

/* Larger than a packet: in a memory file; larger than the bound: refused. */
static void large_objects_travel_and_too_large_ones_do_not(void **state)
{
	static const size_t sizes[] = { 1000, 40000, 3u << 20 };
	size_t before = open_count();
	int s[2], got[1];
	char *text = malloc(IPC_MESSAGE_MAX + 64);

	pair(s);
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		cJSON *obj = cJSON_CreateObject(), *in = NULL;
		int extra = s[0];
		size_t n = 1;

		memset(text, 'a', sizes[i]);
		text[sizes[i]] = '\0';
		cJSON_AddStringToObject(obj, "text", text);
		assert_int_equal(ipc_send(s[0], obj, &extra, 1), 0);
		assert_int_equal(ipc_recv(s[1], &in, got, &n), 1);
		assert_int_equal(n, 1);
		assert_string_equal(cJSON_GetObjectItem(in, "text")->valuestring, text);
		close(got[0]);
		cJSON_Delete(obj);
		cJSON_Delete(in);
	}
	memset(text, 'a', IPC_MESSAGE_MAX);
	text[IPC_MESSAGE_MAX] = '\0';
	cJSON *huge = cJSON_CreateObject();
	cJSON_AddStringToObject(huge, "text", text);
	assert_int_equal(ipc_send(s[0], huge, NULL, 0), -EMSGSIZE);
	cJSON_Delete(huge);
	free(text);
	close(s[0]);
	close(s[1]);
	assert_int_equal(open_count(), before);
}

static void a_memory_file_that_may_still_change_is_refused(void **state)
{
	int s[2], fd = open("/tmp", O_TMPFILE | O_RDWR, 0600);
	size_t n = 0;
	cJSON *in = NULL;

	pair(s);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, "{}", 2), 2);
	assert_int_equal(ak_send_fds(s[0], "@", 1, &fd, 1), 0);
	assert_true(ipc_recv(s[1], &in, NULL, &n) < 0);
	assert_null(in);
	close(fd);
	close(s[0]);
	close(s[1]);
}

static void what_is_no_object_is_an_error_and_its_descriptors_are_closed(void **state)
{
	static const char *const bad[] = { "", "[1]", "{", "7", "{\"a\":1,\"a\":2}", "{} x", "\"x\"" };
	size_t before = open_count();
	int s[2];

	pair(s);
	for (size_t i = 1; i < ARRAY_SIZE(bad); i++) {
		int got[2];
		size_t n = 2;
		cJSON *in = NULL;

		assert_int_equal(ak_send_fds(s[0], bad[i], strlen(bad[i]), (int[]){ 0, 1 }, 2), 0);
		assert_int_equal(ipc_recv(s[1], &in, got, &n), -EBADMSG);
		assert_int_equal(n, 0);
		assert_null(in);
	}
	close(s[0]);
	close(s[1]);
	assert_int_equal(open_count(), before);
}

static void more_descriptors_than_there_is_room_for_are_closed(void **state)
{
	size_t before = open_count(), n = 1;
	cJSON *obj = cJSON_CreateObject(), *in = NULL;
	int s[2], got[1];

	pair(s);
	assert_int_equal(ipc_send(s[0], obj, (int[]){ 0, 1, 2 }, 3), 0);
	assert_int_equal(ipc_recv(s[1], &in, got, &n), 1);
	assert_int_equal(n, 1);
	close(got[0]);
	close(s[0]);
	close(s[1]);
	cJSON_Delete(obj);
	cJSON_Delete(in);
	assert_int_equal(open_count(), before);
}

static void a_listener_is_found_without_waking_it(void **state)
{
	struct world *w = *state;
	struct ak_err err;
	int a = ipc_listen(w->path, &err);
	struct pollfd p = { .fd = a, .events = POLLIN };

	assert_true(a >= 0);
	assert_true(ipc_is_bound(w->path));
	assert_int_equal(poll(&p, 1, 0), 0);
	assert_true(ipc_listens(w->path)); /* by a connection */
	assert_int_equal(poll(&p, 1, 0), 1);
	close(a);
	assert_false(ipc_is_bound(w->path)); /* its file is still there */
	assert_true(ipc_remove_stale(w->path));
	assert_false(ipc_is_bound(w->path));
}

static void the_socket_is_private_and_a_live_one_is_not_taken(void **state)
{
	struct world *w = *state;
	struct ak_err err;
	struct stat st;
	int a = ipc_listen(w->path, &err);

	assert_true(a >= 0);
	assert_int_equal(stat(w->path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	assert_int_equal(ipc_listen(w->path, &err), -EADDRINUSE);
	assert_false(ipc_remove_stale(w->path));
	close(a);
	/* Dead, but its file is there: refused connections, and the next listener takes the name. */
	assert_int_equal(ipc_connect(w->path, &err), -ECONNREFUSED);
	a = ipc_listen(w->path, &err);
	assert_true(a >= 0);
	close(a);
	assert_true(ipc_remove_stale(w->path));
	assert_int_equal(ipc_connect(w->path, &err), -ENOENT);
}

static void a_path_longer_than_a_socket_address_works(void **state)
{
	struct world *w = *state;
	char dir[300], path[400];
	struct ak_err err;
	int a, b;

	snprintf(dir, sizeof(dir), "%s/%0100d/%0100d", w->dir, 1, 2);
	assert_int_equal(ak_mkdir_p(dir, 0700), 0);
	snprintf(path, sizeof(path), "%s/%063d.sock", dir, 3);
	a = ipc_listen(path, &err);
	assert_true(a >= 0);
	b = ipc_connect(path, &err);
	assert_true(b >= 0);
	close(a);
	close(b);
}

/* Of many who start at once, one gets the name and the others learn that someone has it. */
static void of_eight_that_listen_at_once_one_wins(void **state)
{
	struct world *w = *state;
	int go[2], done[2], winners = 0;
	struct ak_err err;
	char byte;

	close(ipc_listen(w->path, &err)); /* a stale file to fight over */
	assert_int_equal(pipe(go), 0);
	assert_int_equal(pipe(done), 0);
	for (int i = 0; i < 8; i++) {
		if (fork() == 0) {
			int fd;

			close(go[1]);
			close(done[1]);
			(void)!read(go[0], &byte, 1);
			fd = ipc_listen(w->path, &err);
			if (fd >= 0)
				(void)!read(done[0], &byte, 1);
			_exit(fd >= 0 ? 1 : fd == -EADDRINUSE ? 0 : 2);
		}
	}
	close(go[0]);
	close(done[0]);
	close(go[1]);
	for (int i = 0; i < 7; i++) { /* the winner is held until the losers are through */
		int status;

		assert_true(wait(&status) > 0);
		assert_int_equal(WEXITSTATUS(status), 0);
	}
	close(done[1]);
	for (int status; wait(&status) > 0;)
		winners += WEXITSTATUS(status);
	assert_int_equal(winners, 1);
}

static void errors_come_back_as_errors(void **state)
{
	cJSON *request = cJSON_CreateObject(), *answer = NULL;
	struct ak_err err;
	int s[2];

	pair(s);
	assert_int_equal(ipc_send_error(s[1], ENOENT, "no sandbox named 'x'"), 0);
	assert_int_equal(ipc_call(s[0], request, NULL, 0, 1000, &answer, NULL, NULL, &err), -ENOENT);
	assert_string_equal(err.text, "no sandbox named 'x'");
	assert_int_equal(ipc_call(s[0], request, NULL, 0, 20, &answer, NULL, NULL, &err), -ETIMEDOUT);
	close(s[1]);
	assert_int_equal(ipc_call(s[0], request, NULL, 0, 1000, &answer, NULL, NULL, &err), -EPIPE);
	cJSON_Delete(request);
	close(s[0]);
}

/* ---- the server ---- */

struct echo {
	struct event_base *base;
	unsigned messages, gone;
	unsigned answers; /* for each message */
	unsigned stop_at; /* messages */
	unsigned stop_gone;
};

static void on_message(void *ctx, struct ipc_peer *peer, struct ipc_message *msg)
{
	struct echo *e = ctx;

	e->messages++;
	for (unsigned i = 0; i < e->answers; i++)
		ipc_peer_send(peer, msg->obj, NULL, 0);
	if (e->stop_at && e->messages >= e->stop_at)
		event_base_loopbreak(e->base);
}

static void on_gone(void *ctx, struct ipc_peer *peer)
{
	struct echo *e = ctx;

	(void)peer;
	e->gone++;
	if (e->stop_gone && e->gone >= e->stop_gone)
		event_base_loopbreak(e->base);
}

static struct ipc_server *serve(struct world *w, struct echo *e, size_t max)
{
	struct ipc_hooks hooks = { .ctx = e, .on_message = on_message, .on_gone = on_gone };
	struct ipc_server *s = NULL;
	struct ak_err err;

	e->base = event_base_new();
	assert_int_equal(ipc_server_new(e->base, ipc_listen(w->path, &err), max, &hooks, &s), 0);
	return s;
}

static void a_peer_that_never_reads_is_dropped(void **state)
{
	struct world *w = *state;
	struct echo e = { .answers = 3, .stop_gone = 1 };
	struct ipc_server *s = serve(w, &e, 8);
	char text[20000];
	cJSON *obj = cJSON_CreateObject();
	struct ak_err err;
	int fd = ipc_connect(w->path, &err);

	memset(text, 'a', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	cJSON_AddStringToObject(obj, "text", text);
	ak_set_nonblock(fd, true);
	for (int i = 0; i < 10000 && e.gone == 0; i++) {
		(void)ipc_send(fd, obj, NULL, 0);
		event_base_loop(e.base, EVLOOP_NONBLOCK);
	}
	assert_int_equal(e.gone, 1);
	assert_int_equal(ipc_server_count(s), 0);
	assert_true(e.messages < 100);
	cJSON_Delete(obj);
	close(fd);
	ipc_server_free(s);
	event_base_free(e.base);
}

static void past_the_cap_a_client_is_told_so(void **state)
{
	struct world *w = *state;
	struct echo e = { .answers = 1 };
	struct ipc_server *s = serve(w, &e, 2);
	cJSON *request = cJSON_CreateObject(), *answer = NULL;
	struct ak_err err;
	int fds[3];

	for (int i = 0; i < 3; i++)
		fds[i] = ipc_connect(w->path, &err);
	event_base_loop(e.base, EVLOOP_NONBLOCK);
	assert_int_equal(ipc_server_count(s), 2);
	assert_true(ipc_call(fds[2], request, NULL, 0, 1000, &answer, NULL, NULL, &err) < 0);
	for (int i = 0; i < 3; i++)
		close(fds[i]);
	while (ipc_server_count(s) > 0)
		event_base_loop(e.base, EVLOOP_ONCE);
	cJSON_Delete(request);
	ipc_server_free(s);
	event_base_free(e.base);
}

static void a_peer_that_talks_nonsense_is_dropped(void **state)
{
	struct world *w = *state;
	struct echo e = { .answers = 1, .stop_gone = 1 };
	struct ipc_server *s = serve(w, &e, 2);
	struct ak_err err;
	int fd = ipc_connect(w->path, &err);

	assert_int_equal(send(fd, "nonsense", 8, 0), 8);
	event_base_dispatch(e.base);
	assert_int_equal(e.messages, 0);
	assert_int_equal(e.gone, 1);
	close(fd);
	ipc_server_free(s);
	event_base_free(e.base);
}

/* ---- a peer and what belongs to it ---- */

struct owner {
	struct event_base *base;
	struct ipc_server *server;
	uint64_t peer;
	void *at_end; /* its data when it was gone */
};

static void drop_it(void *ctx, struct ipc_peer *peer, struct ipc_message *msg)
{
	struct owner *o = ctx;

	(void)msg;
	o->peer = ipc_peer_id(peer);
	ipc_peer_end(peer); /* from here on it is on its way out */
	assert_null(ipc_server_find(o->server, o->peer));
	ipc_server_forget(o->server, o->peer);
}

static void look_at_data(void *ctx, struct ipc_peer *peer)
{
	struct owner *o = ctx;

	o->at_end = ipc_peer_data(peer);
	event_base_loopbreak(o->base);
}

static void a_peer_on_its_way_out_forgets_what_is_no_more(void **state)
{
	struct owner o = { .base = event_base_new(), .at_end = &o };
	struct ipc_hooks hooks = { .ctx = &o, .on_message = drop_it, .on_gone = look_at_data };
	int s[2];

	(void)state;
	pair(s);
	assert_int_equal(ipc_server_new(o.base, -1, 0, &hooks, &o.server), 0);
	assert_int_equal(ipc_server_adopt(o.server, s[0], &o, NULL), 0);
	assert_int_equal(send(s[1], "{}", 2, 0), 2);
	event_base_dispatch(o.base);
	assert_null(o.at_end);
	close(s[1]);
	ipc_server_free(o.server);
	event_base_free(o.base);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(objects_and_descriptors_arrive_together),
		cmocka_unit_test(large_objects_travel_and_too_large_ones_do_not),
		cmocka_unit_test(a_memory_file_that_may_still_change_is_refused),
		cmocka_unit_test(what_is_no_object_is_an_error_and_its_descriptors_are_closed),
		cmocka_unit_test(more_descriptors_than_there_is_room_for_are_closed),
		cmocka_unit_test_setup_teardown(a_listener_is_found_without_waking_it, setup, teardown),
		cmocka_unit_test_setup_teardown(the_socket_is_private_and_a_live_one_is_not_taken, setup, teardown),
		cmocka_unit_test_setup_teardown(a_path_longer_than_a_socket_address_works, setup, teardown),
		cmocka_unit_test_setup_teardown(of_eight_that_listen_at_once_one_wins, setup, teardown),
		cmocka_unit_test(errors_come_back_as_errors),
		cmocka_unit_test_setup_teardown(a_peer_that_never_reads_is_dropped, setup, teardown),
		cmocka_unit_test_setup_teardown(past_the_cap_a_client_is_told_so, setup, teardown),
		cmocka_unit_test_setup_teardown(a_peer_that_talks_nonsense_is_dropped, setup, teardown),
		cmocka_unit_test(a_peer_on_its_way_out_forgets_what_is_no_more),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
