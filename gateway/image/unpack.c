/*
 * The unpacker: `agentkernel image-unpack BLOBS ROOT MAX_BYTES USER LAYER…`, run in a sandbox without network by box.c.
 *
 * For each layer it starts the decompressor and a child that has ROOT as its root folder and applies what comes through the pipe. The
 * layer counts only if its content has the digest that the image's configuration names. The last child looks up USER in the image. One
 * line on standard output holds the result, one on standard error the reason of a failure.
 */
#include "gateway/image/image.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/base/number.h"
#include "gateway/image/layer.h"
#include "gateway/image/user.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* Shared by the children, one after the other. */
struct shared {
	struct layer_totals totals;
	struct image_user user;
	struct ak_err err;
};

/* ---- one layer ---- */

struct stream {
	int fd;
	struct sha256 sum;
};

static ssize_t read_stream(void *ctx, void *buf, size_t len)
{
	struct stream *s = ctx;
	ssize_t n = ak_read_all(s->fd, buf, len);

	if (n > 0)
		sha256_add(&s->sum, buf, (size_t)n);
	return n;
}

/* What follows the end of the archive belongs to the digest. It is bounded, like the rest. */
static int read_rest(struct stream *s, struct layer_totals *totals, struct ak_err *err)
{
	static char waste[65536];
	ssize_t n;

	while ((n = read_stream(s, waste, sizeof(waste))) > 0) {
		totals->bytes += (uint64_t)n;
		if (totals->bytes > totals->max_bytes)
			return ak_fail(err, EFBIG, "too much after the end of the layer");
	}
	return n < 0 ? ak_fail_errno(err, (int)-n, "reading the layer") : 0;
}

static int enter_root(const char *root, struct ak_err *err)
{
	return chroot(root) < 0 || chdir("/") < 0 ? ak_fail_errno(err, errno, "entering '%s'", root) : 0;
}

static int apply(const char *root, int fd, const char *content, struct shared *sh)
{
	struct stream s = { .fd = fd };
	uint8_t digest[SHA256_SIZE];
	char hex[SHA256_HEX];
	struct tar t;
	int rc = enter_root(root, &sh->err);

	umask(0);
	sha256_init(&s.sum);
	tar_init(&t, read_stream, &s);
	if (rc == 0)
		rc = layer_apply(&t, &sh->totals, &sh->err);
	if (rc == 0)
		rc = read_rest(&s, &sh->totals, &sh->err);
	if (rc < 0)
		return rc;
	sha256_done(&s.sum, digest);
	sha256_hex(digest, hex);
	return strcmp(hex, content) != 0 ? ak_fail(&sh->err, EBADMSG, "its content does not match the image's configuration") : 0;
}

/* The file itself, or what the decompressor makes of it. */
static _Noreturn void decompress(int blob, int out, const char *packing)
{
	const char *tool = !strcmp(packing, "zstd") ? "zstd" : "gzip";

	if (dup2(blob, STDIN_FILENO) < 0 || dup2(out, STDOUT_FILENO) < 0)
		_exit(1);
	if (!strcmp(packing, "plain"))
		execlp("cat", "cat", (char *)NULL);
	else
		execlp(tool, tool, "-dc", (char *)NULL);
	_exit(127);
}

/* The exit status of PID; -1 if it was killed. */
static int wait_for(pid_t pid)
{
	int status;

	while (waitpid(pid, &status, 0) < 0) {
		if (errno != EINTR)
			return -1;
	}
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int run_children(int blob, const char *root, const char *packing, const char *content, struct shared *sh)
{
	int fds[2], applied, tool;
	pid_t source, sink;

	if (pipe2(fds, O_CLOEXEC) < 0)
		return ak_fail_errno(&sh->err, errno, "pipe");
	source = fork();
	if (source == 0)
		decompress(blob, fds[1], packing);
	sink = fork();
	if (sink == 0) {
		ak_close(fds[1]);
		_exit(apply(root, fds[0], content, sh) < 0);
	}
	ak_close(fds[0]);
	ak_close(fds[1]);
	if (source < 0 || sink < 0)
		return ak_fail(&sh->err, EAGAIN, "fork");
	applied = wait_for(sink);
	tool = wait_for(source);
	if (tool == 127)
		return ak_fail(
			&sh->err, ENOENT, "%s is not installed on this machine; it is needed to unpack the layer", packing);
	if (applied != 0)
		return sh->err.text[0] ? -EBADMSG : ak_fail(&sh->err, EIO, "the process that unpacks it was killed");
	return tool != 0 ? ak_fail(&sh->err, EBADMSG, "%s cannot read all of it", packing) : 0;
}

/* LAYER is "PACKING:BLOB:CONTENT". */
static int unpack_layer(const char *blobs, const char *root, char *layer, struct shared *sh)
{
	char *save = NULL, *packing = strtok_r(layer, ":", &save), *name = strtok_r(NULL, ":", &save),
	     *content = strtok_r(NULL, ":", &save);
	_cleanup_close_ int dir = open(blobs, O_PATH | O_DIRECTORY | O_CLOEXEC), blob = -1;
	struct stat st;
	int rc;

	if (!packing || !name || !content)
		return ak_fail(&sh->err, EINVAL, "'%s': not a layer", layer);
	blob = dir < 0 ? -1 : openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (blob < 0 || fstat(blob, &st) < 0)
		return ak_fail_errno(&sh->err, errno, "layer sha256:%.12s…", name);
	rc = S_ISREG(st.st_mode) ? run_children(blob, root, packing, content, sh) : ak_fail(&sh->err, EBADMSG, "not a file");
	return rc < 0 ? ak_err_prefix(&sh->err, rc, "layer sha256:%.12s…", name) : 0;
}

/* ---- the whole image ---- */

static int look_up_user(const char *root, const char *user, struct shared *sh)
{
	pid_t pid = fork();

	if (pid == 0) {
		int rc = enter_root(root, &sh->err);

		if (rc == 0)
			rc = image_user_find(user, &sh->user, &sh->err);
		if (rc == 0 && !sh->totals.one_id)
			rc = image_user_settle(&sh->user, &sh->err);
		_exit(rc < 0);
	}
	if (pid < 0)
		return ak_fail_errno(&sh->err, errno, "fork");
	return wait_for(pid) == 0 ? 0 : sh->err.text[0] ? -EBADMSG : ak_fail(&sh->err, EIO, "looking up the image's user failed");
}

static int unpack(char **argv, struct shared *sh)
{
	unsigned long long max = 0;
	int rc = ak_parse_count(argv[3], 1, INT64_MAX, &max, &sh->err);

	sh->totals.max_bytes = max;
	if (rc == 0 && mkdir(argv[2], 0755) < 0)
		rc = ak_fail_errno(&sh->err, errno, "'%s'", argv[2]);
	for (char **layer = argv + 5; rc == 0 && *layer; layer++)
		rc = unpack_layer(argv[1], argv[2], *layer, sh);
	return rc < 0 ? rc : look_up_user(argv[2], argv[4], sh);
}

int image_unpack_main(int argc, char **argv)
{
	struct shared *sh = mmap(NULL, sizeof(*sh), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (sh == MAP_FAILED || argc < 5)
		return 1;
	if (unpack(argv, sh) < 0) {
		fprintf(stderr, "%s\n", sh->err.text);
		return 1;
	}
	printf("%u %u %llu %d %s\n", sh->user.uid, sh->user.gid, (unsigned long long)sh->totals.bytes, sh->totals.one_id,
		sh->user.home);
	return fflush(stdout) == 0 ? 0 : 1;
}
