/* Do podman and docker work as backends? See doctor/internal.h. */
#include "gateway/doctor/internal.h"

#include "vmctl/podman.h"

#include <stdio.h>
#include <string.h>

static void check_podman(struct doctor *d)
{
	char *options[] = { (char[]){ "--backend" }, (char[]){ "podman" }, (char[]){ "--no-network" }, NULL };
	static struct sandbox_podman podman; /* large */
	char out[DOCTOR_OUT_MAX];
	struct ak_err err;

	if (podman_find(&podman, &err) < 0)
		doctor_add(d, "podman", DOCTOR_WARN, "install podman and runc (Debian, Ubuntu: apt install podman runc)",
			"--backend podman: %s", err.text);
	else if (!doctor_try(options, out))
		doctor_add(d, "podman", DOCTOR_WARN, "use --backend ns, or make podman work: try 'podman info'",
			"--backend podman: %s", out);
	else
		doctor_add(d, "podman", DOCTOR_OK, NULL, "--backend podman: a container runs, with %s", podman.runtime);
}

void doctor_containers(struct doctor *d)
{
	char found[PODMAN_DOCKER_MAX];

	check_podman(d);
	if (podman_find_docker(found))
		doctor_add(d, "docker", DOCTOR_WARN,
			"use --backend podman, and bring images over with 'docker save' and 'agentkernel image import'",
			"not a backend: %s", found);
}
