/*
 * Sandboxes for work on images: skopeo and the unpacker, which read what strangers wrote. They have no network, see the host's
 * programs but no files of the user, and can write only the folder of the import. See image.h.
 */
#include "gateway/image/image.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/base/strbuf.h"
#include "vmctl/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define SELF "/image/unpacker" /* this program, inside */
#define OUTPUT_MAX 16384

/* What the command printed. */
struct output {
	int fd; /* owned */
	struct strbuf text;
};

static void drain(struct output *o)
{
	char buf[4096];
	ssize_t n;

	while ((n = read(o->fd, buf, sizeof(buf))) > 0) {
		if (o->text.len < OUTPUT_MAX)
			strbuf_add(&o->text, buf, (size_t)n);
	}
	if (n == 0)
		o->fd = ak_close(o->fd);
}

static void wait_for_end(struct sandbox *sb, struct output out[2])
{
	struct pollfd p[3] = { { .fd = sandbox_fd(sb), .events = POLLIN } };
	enum sandbox_state state = SANDBOX_STARTING;
	struct ak_err ignored;

	while (state != SANDBOX_ENDED) {
		p[1] = (struct pollfd){ .fd = out[0].fd, .events = POLLIN };
		p[2] = (struct pollfd){ .fd = out[1].fd, .events = POLLIN };
		if (poll(p, 3, -1) < 0 && errno != EINTR)
			return;
		for (int i = 0; i < 2; i++) {
			if (p[1 + i].revents)
				drain(&out[i]);
		}
		state = sandbox_poll(sb);
		if (state == SANDBOX_READY)
			(void)sandbox_go(sb, &ignored);
	}
}

/* The first line on standard error is the reason; the last one for programs that print their progress there. */
static int conclude(const struct sandbox_result *r, const struct output *errors, const char *what, struct ak_err *err)
{
	_cleanup_free_ char *line = strdup(errors->text.data ? errors->text.data : "");
	size_t len = line ? strlen(line) : 0;
	const char *last;

	if (!r)
		return ak_fail(err, EIO, "%s: the sandbox failed", what);
	if (r->exit_code == 0)
		return 0;
	while (len && line[len - 1] == '\n')
		line[--len] = '\0';
	last = line && strrchr(line, '\n') ? strrchr(line, '\n') + 1 : line;
	if (r->exit_code == 125 && r->err.text[0])
		return ak_fail(err, EIO, "%s: %s", what, r->err.text);
	if (r->out_of_memory)
		return ak_fail(err, ENOMEM, "%s: out of memory", what);
	if (!len)
		return ak_fail(err, EIO, "%s: exit code %d", what, r->exit_code);
	return ak_fail(err, EBADMSG, "%s", last);
}

static int run_box(struct sandbox_spec *spec, const char *what, struct output out[2], struct ak_err *err)
{
	static char *const envp[] = { "PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME=/tmp", "TMPDIR=/tmp", NULL };
	struct sandbox *sb = NULL;
	int pipes[2][2] = { { -1, -1 }, { -1, -1 } }, rc = 0;

	for (int i = 0; i < 2 && rc == 0; i++) {
		rc = pipe2(pipes[i], O_CLOEXEC) < 0 ? -errno : ak_set_nonblock(pipes[i][0], true);
		out[i].fd = pipes[i][0];
	}
	if (rc < 0)
		return ak_fail_errno(err, -rc, "pipe");
	spec->name = "image";
	spec->envp = envp;
	spec->workdir = "/tmp";
	spec->home = "/tmp/home";
	spec->isolation = SANDBOX_MODERATE;
	spec->root_inside = true;
	spec->readonly_root = true;
	spec->stdio[0] = -1;
	spec->stdio[1] = pipes[0][1];
	spec->stdio[2] = pipes[1][1];
	rc = sandbox_start(spec, -1, &sb, err);
	ak_close(pipes[0][1]);
	ak_close(pipes[1][1]);
	if (rc < 0)
		return rc;
	wait_for_end(sb, out);
	drain(&out[0]);
	drain(&out[1]);
	rc = conclude(sandbox_result(sb), &out[1], what, err);
	sandbox_free(sb);
	return rc;
}

static void outputs_done(struct output out[2])
{
	for (int i = 0; i < 2; i++) {
		ak_close(out[i].fd);
		strbuf_done(&out[i].text);
	}
}

int image_copy(const struct image_work *w, const char *source, char *const *argv, struct ak_err *err)
{
	struct output out[2] = { { .fd = -1 }, { .fd = -1 } };
	char layout[PATH_MAX];
	struct sandbox_mount mounts[] = { { .source = layout, .target = IMAGE_BOX_LAYOUT },
		{ .source = source, .target = IMAGE_BOX_SOURCE, .readonly = true } };
	struct sandbox_spec spec = { .argv = argv, .mounts = mounts, .n_mounts = ARRAY_SIZE(mounts) };
	int rc = ak_path_join(layout, w->path, "layout", NULL);

	rc = rc < 0 ? ak_fail_errno(err, -rc, "%s", w->path) : run_box(&spec, "skopeo", out, err);
	outputs_done(out);
	return rc;
}

/* ---- unpacking ---- */

static int read_facts(const struct output *out, struct image_facts *ret, struct ak_err *err)
{
	unsigned long long bytes;
	int one_id, at = 0;
	size_t len;

	if (!out->text.data || sscanf(out->text.data, "%u %u %llu %d %n", &ret->uid, &ret->gid, &bytes, &one_id, &at) != 4 || !at)
		return ak_fail(err, EBADMSG, "the unpacker's result cannot be read");
	len = strcspn(out->text.data + at, "\n");
	if (out->text.data[at] != '/' || len >= sizeof(ret->home))
		return ak_fail(err, EBADMSG, "the unpacker's result cannot be read");
	ret->size_bytes = bytes;
	snprintf(ret->home, sizeof(ret->home), "%.*s", (int)len, out->text.data + at);
	return 0;
}

static const char *const packings[] = { [IMAGE_PLAIN] = "plain", [IMAGE_GZIP] = "gzip", [IMAGE_ZSTD] = "zstd" };
_Static_assert(ARRAY_SIZE(packings) == IMAGE_PACKING_NUM, "a word for each");

/* The words of the unpacker's command line: five fixed ones, then one for each layer. */
struct words {
	char layers[IMAGE_LAYERS_MAX][2 * SHA256_HEX + 16], max[24];
	char *argv[6 + IMAGE_LAYERS_MAX + 1];
};

static void fill_words(struct words *w, const struct image_config *conf, uint64_t max_bytes)
{
	static char self[] = SELF, word[] = IMAGE_UNPACK_WORD, blobs[] = IMAGE_BOX_LAYOUT "/blobs/sha256",
		    root[] = "/image/out/rootfs", none[] = "";
	char *const fixed[] = { self, word, blobs, root, w->max, conf->user ? conf->user : none };
	size_t n = 0;

	snprintf(w->max, sizeof(w->max), "%llu", (unsigned long long)max_bytes);
	for (; n < ARRAY_SIZE(fixed); n++)
		w->argv[n] = fixed[n];
	for (size_t i = 0; i < conf->n_layers; i++) {
		snprintf(w->layers[i], sizeof(w->layers[i]), "%s:%s:%s", packings[conf->layers[i].packing], conf->layers[i].blob,
			conf->layers[i].content);
		w->argv[n++] = w->layers[i];
	}
	w->argv[n] = NULL;
}

int image_unpack(const struct image_work *w, const struct image_config *conf, uint64_t max_bytes, struct image_facts *ret,
	struct ak_err *err)
{
	static struct words words; /* large */
	struct output out[2] = { { .fd = -1 }, { .fd = -1 } };
	char layout[PATH_MAX], to[PATH_MAX], self[PATH_MAX];
	struct sandbox_mount mounts[] = { { .source = layout, .target = IMAGE_BOX_LAYOUT, .readonly = true },
		{ .source = to, .target = "/image/out", .given = true }, { .source = self, .target = SELF, .readonly = true } };
	struct sandbox_spec spec = { .argv = words.argv, .mounts = mounts, .n_mounts = ARRAY_SIZE(mounts) };
	ssize_t len = readlink("/proc/self/exe", self, sizeof(self) - 1);
	int rc = len < 0 ? -errno : 0;

	if (rc == 0) {
		self[len] = '\0';
		rc = ak_path_join(layout, w->path, "layout", NULL);
	}
	if (rc == 0)
		rc = ak_path_join(to, w->path, "out", NULL);
	if (rc < 0)
		return ak_fail_errno(err, -rc, "%s", w->path);
	fill_words(&words, conf, max_bytes);
	rc = run_box(&spec, "unpacking", out, err);
	if (rc == 0)
		rc = read_facts(&out[0], ret, err);
	outputs_done(out);
	return rc;
}
