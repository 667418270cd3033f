/*
 * The podman backend: the command runs in a container that podman makes, behind the same sandbox.h.
 *
 * A sandbox of this kind has the same namespaces, links, root and mounts as any other. But its init stays where it still sees the host's programs, and starts podman
 * there, in the sandbox's own user, pid, mount and network namespace: podman makes a container of the assembled root, and leaves the network as it
 * is. The container's first process is a small static program of ours, with the control socket among its descriptors. It moves on to a user namespace that has no power over
 * the container, confines itself as the init of any sandbox does, and serves the caller from then on.
 *
 * podman and its monitor are ended when the container is ready: they could only tidy up what ends with the sandbox's namespaces anyway, however the sandbox ends. Nothing of podman's own network or
 * storage is used.
 */
#ifndef AK_VMCTL_PODMAN_H
#define AK_VMCTL_PODMAN_H

#include "gateway/base/err.h"

#include <limits.h>
#include <stdbool.h>

struct sandbox_podman {
	char program[PATH_MAX]; /* podman */
	char runtime[PATH_MAX]; /* runc or crun */
	bool no_cgroups; /* the runtime can leave control groups alone; those of the sandbox apply */
};

/* Find podman and a runtime that works with this host's control groups. -ENOENT and what to install. */
int podman_find(struct sandbox_podman *ret, struct ak_err *err);

/* Describe what there is of docker here, without asking its engine for anything; false if nothing is. */
#define PODMAN_DOCKER_MAX 256
bool podman_find_docker(char ret[static PODMAN_DOCKER_MAX]);

/* Why docker is not a backend, with what was found of it here. Returns -EINVAL. */
int podman_instead(struct ak_err *err);

/* Main function of the container's first process. */
_Noreturn void podman_init_main(void);

#endif
