/* Local ports: each sandbox has its own half of them, and a kernel that cannot be told chooses itself. */
#include "gateway/relay/ports.h"

#include "gateway/base/cleanup.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/un.h>
#include <unistd.h>
#include <cmocka.h>

#define DRAWS 300
#define LOW 40000
#define WINDOWS 64
#define WINDOW_PORTS 16

static int listener(struct sockaddr_storage *at, socklen_t *len)
{
	struct sockaddr_in any = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&any, sizeof(any)), 0);
	assert_int_equal(listen(fd, 8), 0);
	*len = sizeof(*at);
	assert_int_equal(getsockname(fd, (struct sockaddr *)at, len), 0);
	return fd;
}

/* The port that sandbox ID leaves from; it is free again afterwards. */
static unsigned drawn(struct relay_ports *p, uint32_t id, int server, const struct sockaddr_storage *to, socklen_t len)
{
	const struct linger now = { .l_onoff = 1 };
	struct sockaddr_in self;
	socklen_t self_len = sizeof(self);
	_cleanup_close_ int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), peer = -1;

	assert_int_equal(relay_ports_connect(p, id, fd, to, len), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&self, &self_len), 0);
	peer = accept4(server, NULL, NULL, SOCK_CLOEXEC);
	assert_true(peer >= 0);
	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now)), 0);
	return ntohs(self.sin_port);
}

static bool can_be_told(void)
{
	uint32_t range = (LOW + 1u) << 16 | LOW;
	_cleanup_close_ int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	return setsockopt(fd, IPPROTO_IP, 51, &range, sizeof(range)) == 0;
}

static void halves_differ(void **state)
{
	struct relay_ports p = { .low = LOW, .n_windows = WINDOWS, .salt = 7 };
	bool used[2][WINDOWS] = { 0 };
	unsigned n[2] = { 0 }, common = 0;
	struct sockaddr_storage to;
	socklen_t len;
	_cleanup_close_ int server = listener(&to, &len);

	(void)state;
	if (!can_be_told())
		skip();
	for (unsigned i = 0; i < 2 * DRAWS; i++) {
		unsigned port = drawn(&p, 1 + i % 2, server, &to, len);

		assert_in_range(port, LOW, LOW + WINDOWS * WINDOW_PORTS - 1);
		used[i % 2][(port - LOW) / WINDOW_PORTS] = true;
	}
	for (unsigned w = 0; w < WINDOWS; w++) {
		n[0] += used[0][w];
		n[1] += used[1][w];
		common += used[0][w] && used[1][w];
	}
	for (unsigned i = 0; i < 2; i++) {
		assert_in_range(n[i], WINDOWS / 4, WINDOWS * 3 / 4);
		assert_true(n[i] - common >= WINDOWS / 8);
	}
}

/* A socket of another kind refuses the option as an older kernel does. */
static void kernel_that_cannot_be_told_chooses_itself(void **state)
{
	struct relay_ports p = { .low = LOW, .n_windows = WINDOWS, .salt = 7 };
	struct sockaddr_storage to = { .ss_family = AF_UNIX };
	socklen_t len = sizeof(sa_family_t);
	_cleanup_close_ int server = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0),
			    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	(void)state;
	assert_int_equal(bind(server, (struct sockaddr *)&to, len), 0); /* a name of the kernel's choosing */
	assert_int_equal(listen(server, 1), 0);
	len = sizeof(to);
	assert_int_equal(getsockname(server, (struct sockaddr *)&to, &len), 0);
	assert_int_equal(relay_ports_connect(&p, 1, fd, &to, len), 0);
	assert_int_equal(p.n_windows, 0);
}

static void range_of_the_host_is_read(void **state)
{
	struct relay_ports p;

	(void)state;
	relay_ports_init(&p);
	assert_int_equal(p.low, 32768); /* a new namespace's: 32768–60999 */
	assert_int_equal(p.n_windows, (60999 - 32768 + 1) / WINDOW_PORTS);
}

/* A network of our own, with loopback up. */
static int setup(void **state)
{
	struct ifreq lo = { .ifr_name = "lo", .ifr_flags = IFF_UP };
	_cleanup_close_ int fd = -1;

	(void)state;
	if (unshare(geteuid() == 0 ? CLONE_NEWNET : CLONE_NEWUSER | CLONE_NEWNET) < 0)
		return -1;
	fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	return ioctl(fd, SIOCSIFFLAGS, &lo);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(halves_differ),
		cmocka_unit_test(kernel_that_cannot_be_told_chooses_itself),
		cmocka_unit_test(range_of_the_host_is_read),
	};

	return cmocka_run_group_tests(tests, setup, NULL);
}
