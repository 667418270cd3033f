/*
 * A supervisor between clients and the init of its sandbox, each of which may say anything at any time, hang up, or send what is none of its business. Nobody is
 * signalled but init, a command that is recorded is JSON and reaches init as it was asked for, every answer is one, and no descriptor stays behind.
 *
 * Input: how the sandbox begins, then frames: who says it and how, and its bytes.
 */
#include "tests/fuzz/fuzz.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/base/jsonscan.h"
#include "gateway/ipc/spawn.h"
#include "gateway/log/events.h"
#include "gateway/store/vitals.h"
#include "gateway/super/internal.h"
#include "vmctl/caller.h"

#include <errno.h>
#include <event2/event.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum {
	CLIENTS = 3,
	INIT = 3,
	WHO = 3,
	HOW_FDS = 4 /* the two bits from here on */,
	HOW_MEMORY = 16,
	HOW_HANG_UP = 32,
	HOW_QUIET = 64,
	HOW_DEAF = 128
};
enum { BEGIN_STATE = 3, BEGIN_PARKED = 4, BEGIN_NETWORK = 8, BEGIN_FOLDERS = 16 /* descriptors are folders */ };
#define INIT_PID INT32_MAX /* no process has it */

static struct super v;
static int clients[CLIENTS], init_end;
static const char *handed; /* what descriptors are of */
static enum { UNTOLD, STARTED, ENDED } told[512]; /* of each command, to its client */

/* ---- what a supervisor may do to others ---- */

int __wrap_kill(pid_t pid, int sig);
pid_t __wrap_waitpid(pid_t pid, int *status, int options);
long __wrap_syscall(long number, ...);
void __wrap_event_write(const struct ak_paths *paths, const char *event, const char *sandbox, const struct strbuf *more);

int __wrap_kill(pid_t pid, int sig)
{
	must(sig == SIGKILL && pid == INIT_PID);
	return 0;
}

pid_t __wrap_waitpid(pid_t pid, int *status, int options)
{
	(void)status;
	(void)options;
	must(pid > 1);
	return errno = ECHILD, -1;
}

long __wrap_syscall(long number, ...)
{
	must(number == SYS_pidfd_open);
	return errno = ESRCH, -1;
}

void __wrap_event_write(const struct ak_paths *paths, const char *event, const char *sandbox, const struct strbuf *more)
{
	static const struct json_bounds bounds = { .depth = 8, .members = 8, .values = 1u << 20 };
	_cleanup_strbuf_ struct strbuf out = { 0 };
	struct ak_err err;
	bool nul;

	(void)paths;
	strbuf_printf(&out, "{\"event\":\"%s\",\"sandbox\":\"%s\"", event, sandbox);
	strbuf_add(&out, more->data, more->len);
	strbuf_putc(&out, '}');
	must(!out.failed && !memchr(out.data, '\n', out.len) && json_scan(out.data, out.len, &bounds, &nul, &err) == 0);
}

/* ---- what it does when its daemon leaves ---- */

void __wrap_vitals_read(const struct ak_paths *paths, struct vitals *ret);
int __wrap_vitals_lock(const struct ak_paths *paths);
bool __wrap_ipc_listens(const char *path);
int __wrap_spawn_detached(char *const argv[], int fd, struct ak_err *err);

void __wrap_vitals_read(const struct ak_paths *paths, struct vitals *ret)
{
	(void)paths;
	*ret = (struct vitals){ .state = VITALS_SERVES };
}

int __wrap_vitals_lock(const struct ak_paths *paths)
{
	(void)paths;
	return open("/dev/null", O_RDWR | O_CLOEXEC);
}

bool __wrap_ipc_listens(const char *path)
{
	(void)path;
	return false;
}

/* Only when it has no daemon, and with no word that anyone said. */
int __wrap_spawn_detached(char *const argv[], int fd, struct ak_err *err)
{
	(void)fd;
	(void)err;
	must(!v.daemon_id && !strcmp(argv[0], "agentkernel") && !strcmp(argv[1], HEAL_WORD) && !strcmp(argv[2], "daemon") &&
		!argv[3]);
	return 0;
}

/* ---- the supervisor ---- */

static struct sandbox *make_sandbox(uint8_t begin, int ctl)
{
	static const struct sandbox_limits none;
	struct sandbox *sb = calloc(1, sizeof(*sb));
	struct epoll_event ev = { .events = EPOLLIN };

	cgroup_init(&sb->cgroup, "fuzz", &none, &sb->notes);
	sb->setup_pidfd = sb->init_pidfd = sb->tty = sb->root = sb->children = sb->mounts = -1;
	sb->ctl = ctl;
	sb->epoll = epoll_create1(EPOLL_CLOEXEC);
	must(sb->epoll >= 0 && epoll_ctl(sb->epoll, EPOLL_CTL_ADD, ctl, &ev) == 0);
	sb->serves = true;
	sb->state = (begin & BEGIN_STATE) == 0 ? SANDBOX_RUNNING : (begin & BEGIN_STATE) == 1 ? SANDBOX_STARTING : SANDBOX_READY;
	sb->parked = sb->state != SANDBOX_RUNNING && begin & BEGIN_PARKED;
	sb->init_pid = INIT_PID;
	TAILQ_INIT(&sb->running);
	TAILQ_INIT(&sb->told);
	return sb;
}

/* The first end takes few messages before someone has to read. */
static void open_pair(int ret[2])
{
	int little = 1;

	must(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ret) == 0);
	must(setsockopt(ret[0], SOL_SOCKET, SO_SNDBUF, &little, sizeof(little)) == 0);
}

static void begin(uint8_t how)
{
	static struct state_sandbox state = { .name = "box", .uuid = "u", .link_id = 7 };
	static const struct ak_paths paths = { .runtime = "/nonexistent" };
	static char path[] = "PATH=/bin";
	struct ak_err err;
	int pair[2];

	open_pair(pair);
	init_end = pair[1];
	memset(told, 0, sizeof(told));
	v = (struct super){ .paths = &paths,
		.state = &state,
		.user_ns = -1,
		.net_ns = -1,
		.peer_rtnl = -1,
		.listener = -1,
		.live = -1,
		.healer = -1,
		.daemon_pidfd = -1,
		.sandbox = make_sandbox(how, pair[0]) };
	if (how & BEGIN_NETWORK)
		v.user_ns = v.net_ns = v.peer_rtnl = STDIN_FILENO;
	v.plan.env[v.plan.n_env++] = path;
	handed = how & BEGIN_FOLDERS ? "/" : "/dev/null";
	open_pair(pair);
	v.control = pair[0];
	clients[0] = pair[1];
	must(super_open(&v, &err) == 0);
	for (int i = 1; i < CLIENTS; i++) {
		open_pair(pair);
		must(ipc_server_adopt(v.server, pair[0], NULL, NULL) == 0);
		clients[i] = pair[1];
	}
}

/* ---- what it says ---- */

/* A command starts at most once and ends once, in this order. */
static void check_event(const cJSON *obj)
{
	const char *event = "";
	uint64_t id = 0;
	struct ak_err err;

	if (json_get_string(obj, "event", &event, &err) <= 0)
		return;
	must(json_get_uint(obj, "id", ARRAY_SIZE(told) - 1, &id, &err) == 1 && id > 0);
	must(strcmp(event, "started") ? !strcmp(event, "exit") && told[id] < ENDED : told[id] < STARTED);
	told[id] = strcmp(event, "started") ? ENDED : STARTED;
}

static void hear_client(int i)
{
	for (;;) {
		_cleanup_json_ cJSON *obj = NULL;
		int fds[IPC_FDS_MAX];
		size_t n = IPC_FDS_MAX;
		int rc = clients[i] < 0 ? 0 : ipc_recv(clients[i], &obj, fds, &n);

		must(rc >= 0 || rc == -EAGAIN);
		if (rc <= 0)
			return;
		check_event(obj);
		while (n > 0)
			ak_close(fds[--n]);
	}
}

static void hear_init(void)
{
	int fds[SB_FDS_MAX];
	struct sb_msg msg;
	size_t n;

	while (init_end >= 0 && sb_recv(init_end, &msg, fds, &n) == 1) {
		_cleanup_pack_ struct pack p = { .bad = true };
		struct sb_command cmd = { 0 };

		must(msg.type == SB_MSG_EXEC || msg.type == SB_MSG_EXEC_SIGNAL || msg.type == SB_MSG_SIGNAL);
		if (msg.type == SB_MSG_EXEC)
			must(sb_command_read(&msg, fds, n, &p, &cmd) == 0 && cmd.argv[0] && cmd.envp[0] && cmd.tty == (n == 1));
		for (size_t i = 0; cmd.envp && cmd.envp[i]; i++)
			must(cmd.envp[i][0] != '=' && strchr(cmd.envp[i], '='));
		while (n > 0)
			ak_close(fds[--n]);
	}
}

/* False when the sandbox has ended. DEAF: no client reads. */
static bool turn(bool deaf)
{
	bool going;

	event_base_loop(v.base, EVLOOP_NONBLOCK);
	going = !event_base_got_break(v.base);
	for (int i = 0; i < CLIENTS && !deaf; i++)
		hear_client(i);
	hear_init();
	return going;
}

/* ---- what is said to it ---- */

static void say(uint8_t how, const struct input *in)
{
	int *sock = (how & WHO) == INIT ? &init_end : &clients[how & WHO], fds[4];
	size_t n = 0;

	if (how & HOW_MEMORY)
		fds[n++] = ak_memory_file("fuzz", in->data, in->len);
	for (int i = 0; i < (how / HOW_FDS & 3); i++)
		fds[n++] = open(handed, O_RDONLY | O_CLOEXEC);
	if (*sock >= 0)
		(void)(how & HOW_MEMORY ? ak_send_fds(*sock, "@", 1, fds, n) : ak_send_fds(*sock, in->data, in->len, fds, n));
	while (n > 0)
		ak_close(fds[--n]);
	if (how & HOW_HANG_UP)
		*sock = ak_close(*sock);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = { data, size };
	int before = open_fds();
	bool going = true;

	begin(take_byte(&in));
	for (int i = 0; in.len > 0 && going && i < 256; i++) {
		uint8_t how = take_byte(&in);
		struct input part = take_part(&in);

		say(how, &part);
		going = how & HOW_QUIET || turn(how & HOW_DEAF);
	}
	init_end = ak_close(init_end);
	for (int i = 0; going && i < 8; i++)
		going = turn(false);
	must(!going && LIST_EMPTY(&v.execs) && v.n_execs == 0);
	super_finish(&v);
	for (int i = 0; i < CLIENTS; i++)
		ak_close(clients[i]);
	event_free(v.on_sandbox);
	event_free(v.on_stop);
	event_free(v.on_look);
	event_free(v.on_disk);
	ak_close(v.healer);
	ak_close(v.daemon_pidfd);
	ipc_server_free(v.server);
	event_base_free(v.base);
	must(open_fds() == before);
	return 0;
}
