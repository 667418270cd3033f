/* Local ports: see relay/ports.h. Linux 6.3 and later support a port range per socket (IP_LOCAL_PORT_RANGE). */
#include "gateway/relay/ports.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/random.h>

#ifndef IP_LOCAL_PORT_RANGE
#define IP_LOCAL_PORT_RANGE 51
#endif
#define WINDOW 16u /* number of ports that the kernel searches at once */
#define TRIES 32u /* windows tried per connection: the chance that another sandbox has taken all is 2^-32 */
#define WINDOWS_MIN 64u

void relay_ports_init(struct relay_ports *p)
{
	_cleanup_free_ char *text = NULL;
	unsigned low, high;
	size_t len;

	*p = (struct relay_ports){ 0 };
	if (ak_read_file(AT_FDCWD, "/proc/sys/net/ipv4/ip_local_port_range", 64, &text, &len) < 0)
		return;
	if (sscanf(text, "%u %u", &low, &high) != 2 || low == 0 || high > UINT16_MAX || high < low)
		return;
	if ((high - low + 1) / WINDOW < WINDOWS_MIN || getrandom(&p->salt, sizeof(p->salt), 0) != sizeof(p->salt))
		return;
	p->low = (uint16_t)low;
	p->n_windows = (high - low + 1) / WINDOW;
}

/* Assigns a pseudo-random half of the windows to each sandbox (the finaliser of MurmurHash3). */
static bool is_ours(const struct relay_ports *p, uint32_t id, unsigned window)
{
	uint64_t h = p->salt ^ ((uint64_t)id << 32 | window);

	h = (h ^ h >> 33) * 0xff51afd7ed558ccdu;
	h = (h ^ h >> 33) * 0xc4ceb9fe1a85ec53u;
	return (h ^ h >> 33) & 1;
}

static int do_connect(int fd, const struct sockaddr_storage *to, socklen_t len)
{
	return connect(fd, (const struct sockaddr *)to, len) == 0 || errno == EINPROGRESS ? 0 : -errno;
}

static int set_window(const struct relay_ports *p, int fd, unsigned window)
{
	uint32_t low = p->low + window * WINDOW, range = (low + WINDOW - 1) << 16 | low;

	return setsockopt(fd, IPPROTO_IP, IP_LOCAL_PORT_RANGE, &range, sizeof(range)) < 0 ? -errno : 0;
}

int relay_ports_connect(struct relay_ports *p, uint32_t id, int fd, const struct sockaddr_storage *to, socklen_t len)
{
	unsigned first = 0, tried = 0;
	int rc;

	if (p->n_windows == 0 || getrandom(&first, sizeof(first), 0) != sizeof(first))
		return do_connect(fd, to, len);
	first %= p->n_windows;
	for (unsigned i = 0; i < p->n_windows && tried < TRIES; i++) {
		unsigned window = (first + i) % p->n_windows;

		if (!is_ours(p, id, window))
			continue;
		if (set_window(p, fd, window) < 0) {
			p->n_windows = 0;
			break;
		}
		tried++;
		rc = do_connect(fd, to, len);
		if (rc != -EADDRNOTAVAIL)
			return rc;
	}
	return tried ? -EADDRNOTAVAIL : do_connect(fd, to, len);
}
