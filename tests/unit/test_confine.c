/* Invariant 6: untrusted bytes meet no power. What a taken-over gateway would try, tried from inside the confinement. */
#include "gateway/base/addr.h"
#include "gateway/base/cleanup.h"
#include "gateway/host/confine.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/ethtool.h>
#include <linux/rtnetlink.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static int rtnl = -1; /* opened before the confinement, as the relay's is */

/* Run TRY in a confined child, after BEFORE: its exit code, or 128 + the signal that ended it. */
static int confined_after(void (*before)(void), int (*try)(void))
{
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		struct ak_err err;

		if (before)
			before();
		if (confine_apply(&err) < 0)
			_exit(99);
		_exit(try());
	}
	assert_true(pid > 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static int confined(int (*try)(void))
{
	return confined_after(NULL, try);
}

static int try_open(void)
{
	return open("/etc/passwd", O_RDONLY) < 0 && (errno == EPERM || errno == EACCES) ? 0 : 1;
}

static int try_create(void)
{
	return open("/tmp/agentkernel-confine-test", O_WRONLY | O_CREAT, 0600) < 0 ? 0 : 1;
}

static int try_stat(void)
{
	struct stat st;

	return stat("/etc", &st) < 0 ? 0 : 1;
}

static int try_exec(void)
{
	execl("/bin/true", "true", (char *)NULL);
	return 1;
}

static int try_fork(void)
{
	return fork() < 0 ? 0 : 1;
}

static int try_ptrace(void)
{
	return ptrace(PTRACE_TRACEME, 0, 0, 0) < 0 ? 1 : 2;
}

static int try_unix_socket(void)
{
	return socket(AF_UNIX, SOCK_STREAM, 0) < 0 ? 0 : 1;
}

static int try_netlink_socket(void)
{
	return socket(AF_NETLINK, SOCK_RAW, 0) < 0 ? 0 : 1;
}

static int try_listen(void)
{
	struct sockaddr_in any = { .sin_family = AF_INET };
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	if (fd < 0)
		return 2;
	(void)!bind(fd, (struct sockaddr *)&any, sizeof(any));
	return listen(fd, 1) < 0 ? 0 : 1;
}

static int try_executable_memory(void)
{
	return mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED ? 0 : 1;
}

static int try_kill_parent(void)
{
	return kill(getppid(), 0) < 0 ? 0 : 1;
}

static int try_namespace(void)
{
	return unshare(CLONE_NEWUSER) < 0 ? 1 : 2;
}

/* What the gateway lives from still works. */
static int try_its_work(void)
{
	_cleanup_free_ char *memory = malloc(1 << 20);
	int fds[2], sock = socket(AF_INET, SOCK_DGRAM, 0);

	if (!memory || sock < 0 || pipe2(fds, O_CLOEXEC) < 0)
		return 1;
	memset(memory, 1, 1 << 20);
	return write(fds[1], memory, 100) == 100 && read(fds[0], memory, 100) == 100 ? 0 : 1;
}

/* Asking for a link's state settles it (gwns_link_up); every other request to a device is refused. */
static int try_link_state(void)
{
	struct ethtool_value value = { .cmd = ETHTOOL_GLINK };
	struct ifreq ifr = { .ifr_name = "lo", .ifr_data = (void *)&value };
	int sock = socket(AF_INET, SOCK_DGRAM, 0);

	if (ioctl(sock, SIOCETHTOOL, &ifr) < 0 && errno == EPERM)
		return 1;
	return ioctl(sock, SIOCGIFFLAGS, &ifr) < 0 && errno == EPERM ? 0 : 2;
}

static void open_rtnl(void)
{
	if (unshare(CLONE_NEWUSER | CLONE_NEWNET) < 0)
		_exit(77);
	rtnl = socket(AF_NETLINK, SOCK_RAW | SOCK_NONBLOCK, NETLINK_ROUTE);
}

/* The error that the kernel answers a message with; 0 also for an answer that is none. */
static int rtnl_error(void *message, size_t len)
{
	_Alignas(8) char buf[8192];
	const struct nlmsghdr *nlh = (const void *)buf;
	int code = 0;

	if (send(rtnl, message, len, 0) < 0 || recv(rtnl, buf, sizeof(buf), 0) < (ssize_t)sizeof(*nlh))
		return -1;
	if (nlh->nlmsg_type == NLMSG_ERROR)
		memcpy(&code, NLMSG_DATA(nlh), sizeof(code));
	return -code;
}

/* Questions about the host's network are answered; it cannot be changed. */
static int try_rtnl(void)
{
	struct {
		struct nlmsghdr nlh;
		struct ifaddrmsg ifa;
		struct rtattr attr;
		struct in_addr addr;
	} add = { { sizeof(add), RTM_NEWADDR, NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE, 1, 0 }, { AF_INET, 32, 0, 0, 1 },
		{ RTA_LENGTH(4), IFA_LOCAL }, { htonl(0x0b000001) } };
	struct {
		struct nlmsghdr nlh;
		struct rtgenmsg any;
	} ask = { { sizeof(ask), RTM_GETADDR, NLM_F_REQUEST | NLM_F_DUMP, 1, 0 }, { AF_UNSPEC } };

	if (rtnl_error(&ask, sizeof(ask)) != 0)
		return 1;
	return rtnl_error(&add, sizeof(add)) == EPERM ? 0 : 2;
}

static void host_network_can_be_asked_about_and_not_changed(void **state)
{
	int rc = confined_after(open_rtnl, try_rtnl);

	if (rc == 77 && !getenv("AK_MUST_WORK"))
		skip();
	assert_int_equal(rc, 0);
}

static void paths_cannot_be_opened(void **state)
{
	(void)state;
	assert_int_equal(confined(try_open), 0);
	assert_int_equal(confined(try_create), 0);
	assert_int_equal(confined(try_stat), 0);
	assert_int_equal(access("/tmp/agentkernel-confine-test", F_OK), -1);
}

static void exec_fork_ptrace_and_namespaces_end_the_process(void **state)
{
	(void)state;
	assert_int_equal(confined(try_exec), 128 + SIGSYS);
	assert_int_equal(confined(try_ptrace), 128 + SIGSYS);
	assert_int_equal(confined(try_namespace), 128 + SIGSYS);
	assert_int_not_equal(confined(try_fork), 1); /* glibc's fork is clone: refused; the bare call is deadly */
}

static void only_internet_sockets_and_no_listening(void **state)
{
	(void)state;
	assert_int_equal(confined(try_unix_socket), 0);
	assert_int_equal(confined(try_netlink_socket), 0);
	assert_int_equal(confined(try_listen), 0);
}

static void no_executable_memory_and_no_signals(void **state)
{
	(void)state;
	assert_int_equal(confined(try_executable_memory), 0);
	assert_int_equal(confined(try_kill_parent), 0);
}

static void its_work_goes_on(void **state)
{
	(void)state;
	assert_int_equal(confined(try_its_work), 0);
	assert_int_equal(confined(try_link_state), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(paths_cannot_be_opened),
		cmocka_unit_test(exec_fork_ptrace_and_namespaces_end_the_process),
		cmocka_unit_test(only_internet_sockets_and_no_listening),
		cmocka_unit_test(no_executable_memory_and_no_signals),
		cmocka_unit_test(host_network_can_be_asked_about_and_not_changed),
		cmocka_unit_test(its_work_goes_on),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
