/*
 * A supervisor watches its daemon. When the daemon dies, one supervisor starts the healer, the process that restarts it (daemon/heal.c).
 *
 * Theory of operation. Our daemon is the peer that gave us our task, or that last asked for our namespaces. When its connection closes, a timer
 * checks for a successor until one adopts us: first after a few milliseconds, then less and less often. Each check first takes the healer's lock
 * (store/vitals.h). The kernel grants it to one supervisor, however many try at the same time, and the healer inherits it. So at most one healer exists, and the
 * other supervisors merely try the lock again later. The supervisor itself cannot start the daemon and wait: a new daemon asks us for our namespaces
 * before it serves.
 *
 * Power. Invariant 6 holds: bytes that a sandbox sends over its network reach only the gateway process, which still cannot execute anything. A supervisor could
 * execute programs before (it starts the sandbox), so it gains no power here, and no byte chosen by a sandbox influences what is executed. The
 * trigger is the end of a connection that only processes of our own user outside any sandbox can make (ipc_trust). The program is our own image,
 * /proc/self/exe, its arguments are constants, its environment is the one that the daemon gave us. The program is deliberately not looked up by its
 * path: a sandbox whose project contains that file could replace it and wait for the daemon to die.
 */
#include "gateway/super/internal.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/ipc/spawn.h"
#include "gateway/store/vitals.h"

#include <errno.h>
#include <event2/event.h>
#include <sys/socket.h>
#include <unistd.h>

#define LOOK_FIRST_MS 250
#define LOOK_MAX_MS 8000
#define STAGGER_MS 16 /* a thousand supervisors lose their daemon at the same moment: spread their first check */

static void arm(struct super *v, unsigned ms)
{
	const struct timeval delay = { ms / 1000, (suseconds_t)(ms % 1000) * 1000 };

	evtimer_add(v->on_look, &delay);
}

static void look_later(struct super *v)
{
	unsigned ms = LOOK_FIRST_MS << (v->n_looks < 8 ? v->n_looks : 8);

	v->n_looks++;
	ms = ms > LOOK_MAX_MS ? LOOK_MAX_MS : ms;
	arm(v, ms + (unsigned)getpid() % (ms / 4));
}

/*
 * The healer's task: the lock, the daemon that died, and when. While the healer waits for the next attempt it ends with us; another supervisor then
 * starts the next healer.
 */
static int hand_over(struct super *v, int sock, int lock)
{
	_cleanup_json_ cJSON *obj = cJSON_CreateObject();
	const int fds[] = { lock, v->daemon_pidfd };

	if (!obj || !cJSON_AddNumberToObject(obj, "gone_ms", (double)v->gone_ms))
		return -ENOMEM;
	return ipc_send(sock, obj, fds, v->daemon_pidfd >= 0 ? 2 : 1);
}

static void start_healer(struct super *v, int lock)
{
	static char name[] = "agentkernel", word[] = HEAL_WORD,
		    whom[] = "daemon"; /* room for the title of the daemon, its child */
	char *const argv[] = { name, word, whom, NULL };
	_cleanup_close_ int ours = -1, theirs = -1;
	struct ak_err ignored;
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return;
	ours = pair[0];
	theirs = pair[1];
	if (hand_over(v, ours, lock) < 0 || spawn_detached(argv, theirs, &ignored) < 0)
		return; /* the next check tries again */
	ak_close(v->healer);
	v->healer = TAKE_FD(ours);
}

bool super_daemon_served(const struct ak_paths *paths)
{
	char path[PATH_MAX];

	return ak_path_join(path, paths->runtime, "daemon.sock", NULL) == 0 && ipc_listens(path);
}

static void on_look(evutil_socket_t fd, short what, void *ctx)
{
	struct super *v = ctx;
	_cleanup_close_ int lock = -1;
	struct vitals l;

	vitals_read(v->paths, &l);
	if (l.state == VITALS_STOPPED || v->stopping)
		return; /* a user stopped it; the daemon that a user starts next adopts us */
	lock = vitals_lock(v->paths);
	/* If a service manager holds the socket, this connection makes it start the daemon. */
	if (lock >= 0 && !super_daemon_served(v->paths))
		start_healer(v, lock);
	look_later(v);
}

int super_watch_open(struct super *v)
{
	v->on_look = evtimer_new(v->base, on_look, v);
	return v->on_look ? 0 : -ENOMEM;
}

void super_watch_daemon(struct super *v, const struct ipc_peer *peer)
{
	ak_close(v->daemon_pidfd);
	v->daemon_pidfd = ipc_peer_pidfd(peer);
	v->daemon_id = ipc_peer_id(peer);
	v->n_looks = 0;
	v->healer = ak_close(v->healer);
	evtimer_del(v->on_look);
}

void super_watch_gone(struct super *v, const struct ipc_peer *peer)
{
	if (ipc_peer_id(peer) != v->daemon_id)
		return;
	v->daemon_id = 0;
	v->gone_ms = ak_now_ms();
	arm(v, (unsigned)getpid() % STAGGER_MS);
}
