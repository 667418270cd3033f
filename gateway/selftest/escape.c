/* Self-test vectors for escapes other than the network: files left on the host, and privileges that a sandbox could gain. */
#include "gateway/selftest/selftest.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sched.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define SYS_FCHMODAT2 452 /* Linux 6.6; the same number on all architectures */
#define PLACE "/tmp/selftest-set-id"

/* ---- files that would be set-uid on the host ---- */

static long by_fchmod(int fd)
{
	return syscall(SYS_fchmod, fd, 04755);
}

static long by_fchmodat(int fd)
{
	return syscall(SYS_fchmodat, AT_FDCWD, PLACE, 02755);
}

static long by_fchmodat2(int fd)
{
	return syscall(SYS_FCHMODAT2, fd, "", 06755, AT_EMPTY_PATH);
}

static long by_openat(int fd)
{
	return syscall(SYS_openat, AT_FDCWD, PLACE "-new", O_CREAT | O_WRONLY | O_CLOEXEC, 04755);
}

static long by_openat2(int fd)
{
	struct open_how how = { .flags = O_CREAT | O_WRONLY | O_CLOEXEC, .mode = 04755 };

	return syscall(SYS_openat2, AT_FDCWD, PLACE "-new", &how, sizeof(how));
}

static long by_mknodat(int fd)
{
	return syscall(SYS_mknodat, AT_FDCWD, PLACE "-new", S_IFREG | 06755, 0);
}

void st_call_set_ids(const struct st_vector *v, struct st_outcome *ret)
{
	static const struct {
		const char *name;
		long (*make)(int fd);
	} ways[] = {
		{ "fchmod", by_fchmod },
		{ "fchmodat", by_fchmodat },
		{ "fchmodat2", by_fchmodat2 },
		{ "openat", by_openat },
		{ "openat2", by_openat2 },
		{ "mknodat", by_mknodat },
	};
	_cleanup_close_ int fd = open(PLACE, O_CREAT | O_RDWR | O_CLOEXEC, 0755);

	st_say(ret, fd < 0 ? "error" : "refused", "%s", fd < 0 ? strerror(errno) : "");
	for (size_t i = 0; fd >= 0 && i < ARRAY_SIZE(ways); i++) {
		if (ways[i].make(fd) >= 0) {
			st_say(ret, "made", "%s", ways[i].name);
			return;
		}
	}
}

/* ---- namespaces and sockets ---- */

/* Use a child for each, because a successful call would change this process. */
static bool works_in_child(int flags)
{
	pid_t pid = fork();
	int status = 0;

	if (pid == 0)
		_exit(unshare(flags) == 0);
	return pid < 0 || waitpid(pid, &status, 0) != pid || status != 0;
}

void st_call_nesting(const struct st_vector *v, struct st_outcome *ret)
{
	static const int flags[] = { CLONE_NEWUSER, CLONE_NEWUSER | CLONE_NEWNET, CLONE_NEWUSER | CLONE_NEWNS, CLONE_NEWNET,
		CLONE_NEWNS, CLONE_NEWPID };

	for (size_t i = 0; i < ARRAY_SIZE(flags); i++) {
		if (works_in_child(flags[i])) {
			st_say(ret, "works", "unshare(0x%x)", (unsigned)flags[i]);
			return;
		}
	}
	st_say(ret, "refused", "%s", "");
}

void st_call_odd_sockets(const struct st_vector *v, struct st_outcome *ret)
{
	static const struct {
		const char *name;
		int family, type, protocol;
	} kinds[] = {
		{ "SOCK_PACKET", AF_INET, SOCK_PACKET, 0x300 },
		{ "SCTP by type", AF_INET, SOCK_SEQPACKET, 0 },
		{ "DCCP by type", AF_INET6, SOCK_DCCP, 0 },
		{ "MPTCP", AF_INET, SOCK_STREAM, 262 },
		{ "SMC", AF_INET, SOCK_STREAM, 256 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		_cleanup_close_ int fd = socket(kinds[i].family, kinds[i].type | SOCK_CLOEXEC, kinds[i].protocol);

		if (fd >= 0) {
			st_say(ret, "made", "%s", kinds[i].name);
			return;
		}
	}
	st_say(ret, "refused", "%s", "");
}

/* ---- changes that would remain on the host ---- */

static const char *changes_host(void)
{
	_cleanup_close_ int score = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
	_cleanup_close_ int tty = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);
	_cleanup_close_ int file = open(PLACE, O_CREAT | O_RDWR | O_CLOEXEC, 0755);
	struct rlimit core = { 0 };
	int discipline = 0;

	if (score >= 0)
		return "oom_score_adj can be written";
	if (tty >= 0 && ioctl(tty, TIOCSETD, &discipline) == 0)
		return "a terminal's line discipline can be set";
	if (file >= 0 && fcntl(file, F_SETLEASE, F_WRLCK) == 0)
		return "a lease makes the host wait";
	if (getrlimit(RLIMIT_CORE, &core) < 0 || core.rlim_max > 1)
		return "a core dump starts the host's program";
	return NULL;
}

void st_call_left_behind(const struct st_vector *v, struct st_outcome *ret)
{
	const char *what = changes_host();

	st_say(ret, what ? "changed" : "refused", "%s", what ? what : "");
}

/* The command line that started the sandbox belongs to the host and may contain secrets. */
void st_call_words(const struct st_vector *v, struct st_outcome *ret)
{
	_cleanup_free_ char *text = NULL;
	size_t len = 0;
	int rc = ak_read_file(AT_FDCWD, "/proc/1/cmdline", 65536, &text, &len);
	char name[65] = "", own[96];

	(void)gethostname(name, sizeof(name) - 1); /* the sandbox's name, which everything inside knows */
	snprintf(own, sizeof(own), "agentkernel init %s", name);
	if (rc == 0 && (strcmp(text, own) != 0 || len > strlen(own) + 1))
		st_say(ret, "seen", "%s", text);
	else
		st_say(ret, "none", "%s", "");
}
