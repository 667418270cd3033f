/*
 * Commands that run now: see store/live.h.
 *
 * The file has a slot for each command. Two locks belong to slot I, both on octets that are never read or written, and both of the open file, so that
 * they also work between descriptors of one process: CLAIMED + I is taken first, by whoever may write the slot; READY + I once it is written. A slot
 * begins with the SHA-256 of its text, because its owner may end, and another one write it, while it is read.
 */
#include "gateway/store/live.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/base/strbuf.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#define SLOT (32 << 10)
#define CLAIMED ((off_t)LIVE_MAX * SLOT)
#define READY (CLAIMED + LIVE_MAX)

struct head {
	uint8_t sum[SHA256_SIZE];
	uint32_t len;
};

#define TEXT_MAX (SLOT - sizeof(struct head))

void live_add_folder(struct live_entry *e, const char *path)
{
	if (path[0] && e->n_folders < LIVE_FOLDERS_MAX)
		e->folders[e->n_folders++] = path;
}

static int open_file(const struct ak_paths *paths, int flags)
{
	char path[PATH_MAX];
	int rc = ak_path_join(path, paths->state, "live", NULL), fd;

	if (rc < 0)
		return rc;
	fd = open(path, flags | O_NOFOLLOW | O_CLOEXEC, 0600);
	return fd < 0 ? -errno : fd;
}

static void fill_head(struct head *h, const char *text, size_t len)
{
	struct sha256 s;

	sha256_init(&s);
	sha256_add(&s, text, len);
	sha256_done(&s, h->sum);
	h->len = (uint32_t)len;
}

/* ---- writing ---- */

static void put(struct strbuf *out, const char *text)
{
	strbuf_puts(out, text);
	strbuf_putc(out, '\0');
}

/* Folders that do not fit are replaced by "/", which meets every other one. */
static void print(struct strbuf *out, const struct live_entry *e)
{
	put(out, e->name);
	put(out, e->mode);
	put(out, e->rules);
	put(out, e->project);
	put(out, e->agent);
	for (size_t i = 0; i < e->n_folders; i++) {
		if (out->len + strlen(e->folders[i]) + sizeof("/") > TEXT_MAX) {
			put(out, "/");
			break;
		}
		put(out, e->folders[i]);
	}
}

static int lock(int fd, off_t at)
{
	struct flock l = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = at, .l_len = 1 };

	return fcntl(fd, F_OFD_SETLK, &l) < 0 ? -errno : 0;
}

static int claim(int fd)
{
	for (int i = 0; i < LIVE_MAX; i++) {
		int rc = lock(fd, CLAIMED + i);

		if (rc == 0)
			return i;
		if (rc != -EAGAIN && rc != -EACCES)
			return rc;
	}
	return -EUSERS;
}

static int write_slot(int fd, int slot, const struct live_entry *e)
{
	_cleanup_strbuf_ struct strbuf text = { 0 };
	struct head head;
	struct iovec parts[] = { { &head, sizeof(head) }, { 0 } };

	print(&text, e);
	if (text.failed || text.len > TEXT_MAX)
		return -ENOMEM;
	fill_head(&head, text.data, text.len);
	parts[1] = (struct iovec){ text.data, text.len };
	return pwritev(fd, parts, ARRAY_SIZE(parts), (off_t)slot * SLOT) == (ssize_t)(sizeof(head) + text.len) ? 0 : -EIO;
}

int live_register(const struct ak_paths *paths, const struct live_entry *e)
{
	_cleanup_close_ int fd = open_file(paths, O_RDWR | O_CREAT);
	int slot = fd < 0 ? fd : claim(fd), rc = slot < 0 ? slot : write_slot(fd, slot, e);

	if (rc == 0)
		rc = lock(fd, READY + slot);
	return rc < 0 ? rc : TAKE_FD(fd);
}

/* ---- reading ---- */

/* The text that begins at *AT, and *AT moved behind it; NULL if it does not end before END. */
static const char *take(const char **at, const char *end)
{
	const char *text = *at, *nul = memchr(text, '\0', (size_t)(end - text));

	if (!nul)
		return NULL;
	*at = nul + 1;
	return text;
}

static bool parse(const char *at, const char *end, struct live_entry *e)
{
	const char *rules, *folder;

	e->name = take(&at, end);
	e->mode = e->name ? take(&at, end) : NULL;
	rules = e->mode ? take(&at, end) : NULL;
	e->project = rules ? take(&at, end) : NULL;
	e->agent = e->project ? take(&at, end) : NULL;
	if (!e->agent || strlen(rules) >= sizeof(e->rules) || !ak_sandbox_name_ok(e->name))
		return false;
	memcpy(e->rules, rules, strlen(rules) + 1);
	while (at < end && (folder = take(&at, end)))
		live_add_folder(e, folder);
	return true;
}

/* Has somebody else one of the N locks from AT on? Then *AT is one of those. */
static bool locked(int fd, off_t *at, off_t n)
{
	struct flock l = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = *at, .l_len = n };

	if (fcntl(fd, F_OFD_GETLK, &l) < 0 || l.l_type == F_UNLCK)
		return false;
	*at = l.l_start;
	return true;
}

struct reader {
	int fd;
	void (*fn)(void *ctx, const struct live_entry *e);
	void *ctx; /* borrowed */
	char buf[SLOT];
};

static void read_slot(struct reader *r, off_t slot)
{
	struct live_entry e = { .n_folders = 0 };
	const char *text = r->buf + sizeof(struct head);
	ssize_t n = pread(r->fd, r->buf, sizeof(r->buf), slot * SLOT);
	struct head wrote, found;

	if (n < (ssize_t)sizeof(wrote))
		return;
	memcpy(&wrote, r->buf, sizeof(wrote));
	if (wrote.len > (size_t)n - sizeof(wrote))
		return;
	fill_head(&found, text, wrote.len);
	if (!memcmp(found.sum, wrote.sum, sizeof(found.sum)) && parse(text, text + wrote.len, &e))
		r->fn(r->ctx, &e);
}

/* The kernel names any lock in a range, not the first: look on both sides of it. Slots that nobody has cost nothing. */
static void read_range(struct reader *r, off_t from, off_t to)
{
	while (from < to) {
		off_t at = READY + from;

		if (!locked(r->fd, &at, to - from))
			return;
		at -= READY;
		read_slot(r, at);
		read_range(r, from, at);
		from = at + 1;
	}
}

/* From the end, where the last slots to be taken are. */
static bool full(int fd)
{
	for (off_t i = LIVE_MAX; i-- > 0;) {
		off_t at = CLAIMED + i;

		if (!locked(fd, &at, 1))
			return false;
	}
	return true;
}

int live_each(const struct ak_paths *paths, void (*fn)(void *ctx, const struct live_entry *e), void *ctx)
{
	static struct reader r; /* large */
	_cleanup_close_ int fd = open_file(paths, O_RDWR);

	r.fd = fd;
	r.fn = fn;
	r.ctx = ctx;
	if (fd < 0)
		return fd == -ENOENT ? 0 : fd;
	read_range(&r, 0, LIVE_MAX);
	return full(fd) ? -EUSERS : 0;
}
