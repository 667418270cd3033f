/*
 * Images that podman has and our store does not: copied over when --backend podman asks for one. See service/internal.h.
 *
 * podman runs as the user, outside of any sandbox, as it does for the user's own commands; what it saves goes through the same unpacker as every image.
 */
#include "gateway/service/internal.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/say.h"
#include "gateway/base/spawn.h"
#include "vmctl/podman.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Run podman without streams; its exit code, or -errno. podman finds its helpers on PATH, so it gets the system's and not the caller's. */
static int run_podman(char *const argv[])
{
	_cleanup_free_ char **env = spawn_env();
	posix_spawn_file_actions_t actions;
	int status, rc;
	pid_t pid;

	if (!env)
		return -ENOMEM;
	posix_spawn_file_actions_init(&actions);
	for (int fd = 0; fd < 3; fd++)
		posix_spawn_file_actions_addopen(&actions, fd, "/dev/null", O_RDWR, 0);
	rc = -posix_spawn(&pid, argv[0], &actions, NULL, argv, env);
	posix_spawn_file_actions_destroy(&actions);
	if (rc < 0)
		return rc;
	while (waitpid(pid, &status, 0) < 0) {
		if (errno != EINTR)
			return -errno;
	}
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static bool podman_has(struct sandbox_podman *p, const char *name)
{
	char *const argv[] = { p->program, (char[]){ "image" }, (char[]){ "exists" }, (char *)(uintptr_t)name, NULL };

	return run_podman(argv) == 0;
}

static int save(struct sandbox_podman *p, const char *name, const char *file, struct ak_err *err)
{
	char *const argv[] = { p->program, (char[]){ "save" }, (char[]){ "--quiet" }, (char[]){ "--format=oci-archive" },
		(char[]){ "--output" }, (char *)(uintptr_t)file, (char *)(uintptr_t)name, NULL };
	int rc = run_podman(argv);

	return rc ? ak_fail(err, EIO, "'podman save %s' ended with exit code %d", name, rc) : 0;
}

static int copy_over(const struct ak_paths *paths, struct sandbox_podman *p, const char *name, struct ak_err *err)
{
	const struct service_image how = { .name = name, .digest_known = true };
	char file[PATH_MAX], source[PATH_MAX + 16], kept[IMAGE_NAME_MAX];
	struct image_work w;
	int rc = image_work_begin(paths, &w, err);

	if (rc < 0)
		return rc;
	rc = ak_path_join(file, w.path, "archive.tar", NULL);
	rc = rc < 0 ? ak_fail_errno(err, -rc, "%s", w.path) : save(p, name, file, err);
	snprintf(source, sizeof(source), "oci-archive:%s", file);
	if (rc == 0)
		rc = service_image_import(paths, source, &how, kept, err);
	image_work_end(&w);
	return rc;
}

int service_image_from_podman(const struct ak_paths *paths, const struct run_request *o, struct ak_err *err)
{
	static struct sandbox_podman p; /* large */
	struct ak_err ignored;
	struct image img;
	int rc;

	/* A model may name only images that the user has brought to our store. */
	if (o->origin == RUN_ORIGIN_MCP || o->mcp_server)
		return 0;
	if (!o->podman || !o->image || (o->image_id && o->image_id[0]))
		return 0;
	rc = image_find(paths, o->image, &img, &ignored);
	if (rc == 0)
		image_done(&img);
	/* All other errors are reported where they are reported without podman. */
	if (rc != -ENOENT || podman_find(&p, &ignored) < 0 || !podman_has(&p, o->image))
		return 0;
	if (!o->quiet)
		ak_say("copying the image %s from podman's storage; 'agentkernel image remove %s' makes the next use copy it again",
			o->image, o->image);
	return copy_over(paths, &p, o->image, err);
}
