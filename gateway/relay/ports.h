/*
 * From which local port a connection to the far side leaves.
 *
 * A connection that the sandbox ends keeps its port for a minute, and once half of the ports towards one address and port are kept, the kernel
 * looks at thousands of them in each connect(): milliseconds, during which the gateway serves no one. So we name a few ports at a time and give up
 * soon. Each sandbox is given half of the ports, a different half each: one that uses up its own leaves the others, and the host, a way out.
 */
#ifndef AK_RELAY_PORTS_H
#define AK_RELAY_PORTS_H

#include <stdint.h>
#include <sys/socket.h>

struct relay_ports {
	uint16_t low; /* the first one of the host's range */
	unsigned n_windows; /* 0: the kernel chooses from all (before Linux 6.3, or a range too small to share) */
	uint64_t salt;
};

/* To be called while /proc can be read. */
void relay_ports_init(struct relay_ports *p);

/* connect() for sandbox ID: 0, also when it is under way, or -errno; -EADDRNOTAVAIL when none of its ports was found free. */
int relay_ports_connect(struct relay_ports *p, uint32_t id, int fd, const struct sockaddr_storage *to, socklen_t len);

#endif
