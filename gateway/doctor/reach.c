/* Checks of the network outside: the host's resolvers, and whether the hosts that agents and package managers need can be reached. */
#include "gateway/doctor/internal.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/strbuf.h"
#include "gateway/host/resolv.h"

#include <errno.h>
#include <netdb.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define REACH_SECONDS 4

/* One host of each agent's API, and of some package registries. */
static const char *const hosts[] = { "api.anthropic.com", "api.openai.com", "generativelanguage.googleapis.com", "pypi.org",
	"crates.io", "proxy.golang.org" };

void doctor_resolver(struct doctor *d)
{
	struct ak_err err;
	char list[256];

	if (resolv_servers(list, sizeof(list), &err) < 0)
		doctor_add(d, "resolver", DOCTOR_FAIL, "add a line 'nameserver ADDRESS' to /etc/resolv.conf", "%s", err.text);
	else
		doctor_add(d, "resolver", DOCTOR_OK, NULL, "%s%s", list,
			resolv_host_has_ipv6() ? "; IPv6 has a route" : "; no route for IPv6");
}

/* The exit code of the child: 0 reached, 1 no connection, 2 the name has no address. A resolver that hangs ends with the alarm. */
static int try_host(const char *host)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *list = NULL;
	int reached = 1;

	signal(SIGALRM, SIG_DFL);
	alarm(REACH_SECONDS);
	if (getaddrinfo(host, "443", &hints, &list) != 0)
		return 2;
	for (const struct addrinfo *a = list; a && reached; a = a->ai_next) {
		_cleanup_close_ int fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);

		if (fd >= 0 && connect(fd, a->ai_addr, a->ai_addrlen) == 0)
			reached = 0;
	}
	freeaddrinfo(list);
	return reached;
}

void doctor_reach(struct doctor *d)
{
	static const char fix[] =
		"check the resolver, a proxy or VPN that this network requires, and its firewall; agentkernel connects from this host as any program does";
	_cleanup_strbuf_ struct strbuf missing = { 0 };
	pid_t pids[ARRAY_SIZE(hosts)];
	size_t failed = 0;

	if (d->how->offline) {
		doctor_add(d, "reach", DOCTOR_OK, NULL, "not tried (--offline)");
		return;
	}
	for (size_t i = 0; i < ARRAY_SIZE(hosts); i++) {
		pids[i] = fork();
		if (pids[i] == 0)
			_exit(try_host(hosts[i]));
	}
	for (size_t i = 0; i < ARRAY_SIZE(hosts); i++) {
		int status = 1;

		while (pids[i] > 0 && waitpid(pids[i], &status, 0) < 0 && errno == EINTR)
			;
		if (status == 0)
			continue;
		failed++;
		strbuf_printf(&missing, "%s%s (%s)", missing.len ? ", " : "", hosts[i],
			WIFEXITED(status) && WEXITSTATUS(status) == 2 ? "no address" : "no connection");
	}
	if (failed && missing.data)
		doctor_add(d, "reach", DOCTOR_WARN, fix, "%zu of %zu hosts were not reached: %s", failed, ARRAY_SIZE(hosts),
			missing.data);
	else
		doctor_add(d, "reach", DOCTOR_OK, NULL, "APIs of agents and package registries answer on port 443");
}
