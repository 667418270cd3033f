/* Shared by the two ends of a container: podman.c outside, podman_init.c inside. */
#ifndef AK_VMCTL_PODMAN_INTERNAL_H
#define AK_VMCTL_PODMAN_INTERNAL_H

#include "vmctl/internal.h"
#include "vmctl/podman.h"

/* Descriptors of the container's first process, from the first one that podman passes on. The streams that the job names follow. */
enum podman_fd {
	PODMAN_FD_CTL = 3, /* the control socket */
	PODMAN_FD_JOB, /* a pack: see podman_job_read */
	PODMAN_FD_INIT, /* the program of the container's first process */
	PODMAN_FD_READY, /* a pipe that gets a byte when the container is about to report READY */
	PODMAN_FD_STREAMS,
};

#endif
