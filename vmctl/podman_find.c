/* Which podman and which runtime: see podman.h. */
#include "vmctl/podman.h"

#include "gateway/base/spawn.h"

#include <errno.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/vfs.h>
#include <unistd.h>

/* crun refuses to start beside cgroup v1, even if it is told to leave control groups alone. */
static bool has_unified_cgroups(void)
{
	struct statfs fs;

	return statfs("/sys/fs/cgroup", &fs) == 0 && (unsigned long)fs.f_type == CGROUP2_SUPER_MAGIC;
}

static int ask_engine(const char *path)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), rc = 0;

	snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", path);
	if (fd < 0 || connect(fd, (const struct sockaddr *)&addr, sizeof(addr)) < 0)
		rc = -errno;
	if (fd >= 0)
		close(fd);
	return rc;
}

bool podman_find_docker(char ret[static PODMAN_DOCKER_MAX])
{
	static const char engine[] = "/var/run/docker.sock";
	char client[PATH_MAX];
	int rc;

	if (!spawn_find("docker", client)) {
		snprintf(ret, PODMAN_DOCKER_MAX, "docker is not installed");
		return false;
	}
	rc = ask_engine(engine);
	if (rc < 0)
		snprintf(ret, PODMAN_DOCKER_MAX, "the client %.100s is here, no engine answers at %s: %s", client, engine,
			strerror(-rc));
	else
		snprintf(ret, PODMAN_DOCKER_MAX, "the client %.100s is here, and an engine answers at %s", client, engine);
	return true;
}

int podman_instead(struct ak_err *err)
{
	char found[PODMAN_DOCKER_MAX];

	podman_find_docker(found);
	return ak_fail(err, EINVAL,
		"docker cannot be put behind the gateway, because its engine makes containers in namespaces of its own and joins no other network (%s); "
		"use --backend podman, and bring images over with 'docker save' and 'agentkernel image import'",
		found);
}

int podman_find(struct sandbox_podman *ret, struct ak_err *err)
{
	if (!spawn_find("podman", ret->program))
		return ak_fail(err, ENOENT,
			"podman is not installed in the system's folders; install it (Debian, Ubuntu: apt install podman runc; Fedora: dnf install podman), or use --backend ns");
	ret->no_cgroups = has_unified_cgroups() && spawn_find("crun", ret->runtime);
	if (ret->no_cgroups || spawn_find("runc", ret->runtime))
		return 0;
	if (spawn_find("crun", ret->runtime))
		return ak_fail(err, ENOENT,
			"podman has only crun here, which does not work with this host's control groups (version 1); install runc (Debian, Ubuntu: apt install runc)");
	return ak_fail(err, ENOENT, "podman finds no runtime; install runc or crun (Debian, Ubuntu: apt install runc)");
}
