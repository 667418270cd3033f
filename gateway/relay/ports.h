/*
 * Chooses the local port of a connection to a server.
 *
 * A connection that the sandbox closes occupies its port for a minute (TIME-WAIT). Once half of the ports towards one address
 * and port are occupied, each connect() makes the kernel search thousands of ports, which takes milliseconds and stalls the
 * gateway. So we offer the kernel a few ports at a time and give up soon. Each sandbox gets a different half of the ports: one
 * that exhausts its half leaves ports for the others and the host.
 */
#ifndef AK_RELAY_PORTS_H
#define AK_RELAY_PORTS_H

#include <stdint.h>
#include <sys/socket.h>

struct relay_ports {
	uint16_t low; /* first port of the host's range */
	unsigned n_windows; /* 0: the kernel chooses from all ports (before Linux 6.3, or range too small to share) */
	uint64_t salt;
};

/* Call while /proc is readable. */
void relay_ports_init(struct relay_ports *p);

/* connect() for sandbox ID: 0 if connected or in progress, or -errno; -EADDRNOTAVAIL if no free port was found. */
int relay_ports_connect(struct relay_ports *p, uint32_t id, int fd, const struct sockaddr_storage *to, socklen_t len);

#endif
