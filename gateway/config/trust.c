/* Records of trusted content: see config/trust.h. */
#include "gateway/config/trust.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/base/json.h"
#include "gateway/base/sha256.h"
#include "gateway/log/events.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define RECORD_MAX (8 * CONFIG_BYTES_MAX) /* escaped in JSON */
#define RECORDS_MAX 4096

void trust_record_done(struct trust_record *r)
{
	free(r->path);
	free(r->text);
	free(r->mounts);
	*r = (struct trust_record){ 0 };
}

static void hash(const char *data, size_t len, char ret[static SHA256_HEX])
{
	uint8_t sum[SHA256_SIZE];
	struct sha256 s;

	sha256_init(&s);
	sha256_add(&s, data, len);
	sha256_done(&s, sum);
	sha256_hex(sum, ret);
}

static int open_records(const struct ak_paths *paths, bool make, struct ak_err *err)
{
	char dir[PATH_MAX];
	int fd, rc = ak_path_join(dir, paths->state, "trust", NULL);

	if (rc == 0 && make)
		rc = ak_mkdir_p(dir, 0700);
	if (rc < 0)
		return ak_fail_errno(err, -rc, "%s/trust", paths->state);
	fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 && errno == ENOENT)
		return -ENOENT;
	return fd < 0 ? ak_fail_errno(err, errno, "%s", dir) : fd;
}

/* ---- one record ---- */

static int read_record(int dir, const char *name, struct trust_record *ret)
{
	_cleanup_free_ char *data = NULL;
	_cleanup_json_ cJSON *json = NULL;
	char own[SHA256_HEX];
	struct ak_err ignored;
	size_t len;
	int rc = ak_read_file(dir, name, RECORD_MAX, &data, &len);

	if (rc == 0)
		rc = json_parse(data, len, &json, &ignored);
	if (rc < 0)
		return rc;
	ret->path = strdup(json_text(json, "path", ""));
	ret->text = strdup(json_text(json, "text", ""));
	ret->mounts = strdup(json_text(json, "mounts", ""));
	snprintf(ret->sha256, sizeof(ret->sha256), "%.64s", json_text(json, "sha256", ""));
	ret->time_s = json_number(json, "time", 0);
	if (ret->path)
		hash(ret->path, strlen(ret->path), own);
	if (ret->path && ret->text && ret->mounts && !strcmp(own, name))
		return 0;
	trust_record_done(ret);
	return -EBADMSG;
}

/* ---- sources of mounts ---- */

/* Of a source that did not exist: no folder has it, so that the mount is refused until the file is trusted again. */
static const struct project_id nowhere = { .ino = UINT64_MAX };

static struct project_id id_of(const struct config_item *i)
{
	_cleanup_free_ char *source = strndup(i->word, strcspn(i->word, ":")); /* "SRC:DST:MODE" */
	struct project_id id;

	return source && project_id_of(source, &id) == 0 ? id : nowhere;
}

static void put_ids(const struct config *c, struct strbuf *out)
{
	char text[PROJECT_ID_TEXT];

	for (size_t n = 0; n < c->n_items; n++) {
		const struct project_id id = c->items[n].key->kind == CONFIG_MOUNTS ? id_of(&c->items[n]) : nowhere;

		if (c->items[n].key->kind == CONFIG_MOUNTS)
			strbuf_printf(out, " %s", project_id_print(&id, text));
	}
}

/* Copy the identities of a record to the mounts of C; false if it has not one for each. */
static bool take_ids(struct config *c, char *mounts)
{
	char *save = NULL, *word = strtok_r(mounts, " ", &save);

	for (size_t n = 0; n < c->n_items; n++) {
		if (c->items[n].key->kind != CONFIG_MOUNTS)
			continue;
		if (!word || project_id_parse(word, &c->items[n].id) < 0)
			return false;
		word = strtok_r(NULL, " ", &save);
	}
	return true;
}

int trust_check(const struct ak_paths *paths, struct config *c, enum trust_state *ret, struct trust_record *ret_record,
	struct ak_err *err)
{
	_cleanup_(trust_record_done) struct trust_record r = { 0 };
	_cleanup_close_ int dir = open_records(paths, false, err);
	char name[SHA256_HEX], sum[SHA256_HEX];

	*ret = TRUST_NONE;
	if (dir < 0)
		return dir == -ENOENT ? 0 : dir;
	hash(c->path, strlen(c->path), name);
	if (read_record(dir, name, &r) < 0)
		return 0;
	hash(c->text, c->len, sum);
	*ret = strcmp(sum, r.sha256) == 0 && take_ids(c, r.mounts) ? TRUST_SAME : TRUST_CHANGED;
	if (ret_record) {
		*ret_record = r;
		r = (struct trust_record){ 0 };
	}
	return 0;
}

static void note(const struct ak_paths *paths, const char *event, const char *path, const char *sum)
{
	_cleanup_strbuf_ struct strbuf more = { 0 };

	event_put_text(&more, "path", path);
	if (sum)
		event_put_text(&more, "sha256", sum);
	event_write(paths, event, "-", &more);
}

int trust_store(const struct ak_paths *paths, const struct config *c, struct ak_err *err)
{
	_cleanup_strbuf_ struct strbuf out = { 0 };
	_cleanup_close_ int dir = open_records(paths, true, err);
	char name[SHA256_HEX], sum[SHA256_HEX];
	int rc;

	if (dir < 0)
		return dir;
	hash(c->path, strlen(c->path), name);
	hash(c->text, c->len, sum);
	strbuf_printf(&out,
		"{\"version\":1,\"time\":%llu,\"sha256\":\"%s\",\"path\":", (unsigned long long)(ak_wall_us() / 1000000), sum);
	strbuf_json_utf8(&out, c->path, strlen(c->path));
	strbuf_puts(&out, ",\"mounts\":\"");
	put_ids(c, &out);
	strbuf_puts(&out, "\",\"text\":");
	strbuf_json_utf8(&out, c->text, c->len);
	strbuf_puts(&out, "}\n");
	if (out.failed)
		return ak_fail(err, ENOMEM, "out of memory");
	rc = ak_replace_file(dir, name, out.data, out.len, true);
	if (rc < 0)
		return ak_fail_errno(err, -rc, "%s/trust/%s", paths->state, name);
	note(paths, "trust", c->path, sum);
	return 0;
}

int trust_revoke(const struct ak_paths *paths, const char *path, struct ak_err *err)
{
	_cleanup_close_ int dir = open_records(paths, false, err);
	char name[SHA256_HEX];

	hash(path, strlen(path), name);
	if (dir == -ENOENT || (dir >= 0 && unlinkat(dir, name, 0) < 0 && errno == ENOENT))
		return ak_fail(err, ENOENT, "%s was not trusted", path);
	if (dir < 0)
		return dir;
	if (faccessat(dir, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
		return ak_fail(err, EIO, "%s/trust/%s cannot be removed", paths->state, name);
	note(paths, "trust_revoke", path, NULL);
	return 0;
}

int trust_each(const struct ak_paths *paths, void (*fn)(void *ctx, const struct trust_record *r), void *ctx, struct ak_err *err)
{
	int fd = open_records(paths, false, err), n = 0;
	const struct dirent *e;
	DIR *d;

	if (fd < 0)
		return fd == -ENOENT ? 0 : fd;
	d = fdopendir(fd);
	if (!d) {
		ak_close(fd);
		return ak_fail(err, ENOMEM, "out of memory");
	}
	while ((e = readdir(d)) && n < RECORDS_MAX) {
		_cleanup_(trust_record_done) struct trust_record r = { 0 };

		if (e->d_name[0] == '.' || read_record(fd, e->d_name, &r) < 0)
			continue;
		fn(ctx, &r);
		n++;
	}
	closedir(d);
	return n;
}

/* ---- differences ---- */

static size_t line_length(const char *at)
{
	return strcspn(at, "\n");
}

static void put_lines(struct strbuf *out, const char *from, const char *to, char mark)
{
	while (from < to) {
		size_t n = line_length(from);

		strbuf_printf(out, "%c ", mark);
		for (size_t i = 0; i < n; i++) {
			if (from[i] >= 0x20 && from[i] < 0x7f)
				strbuf_putc(out, from[i]);
			else
				strbuf_printf(out, "\\x%02x", (unsigned char)from[i]);
		}
		strbuf_putc(out, '\n');
		from += n + (from[n] == '\n');
	}
}

/* The start of the line before AT. */
static const char *line_before(const char *text, const char *at)
{
	at--;
	while (at > text && at[-1] != '\n')
		at--;
	return at;
}

/* Skip the lines that both begin with and the lines that both end with; everything between counts as changed. */
void trust_diff(const char *old, const char *new, struct strbuf *out)
{
	const char *old_end = old + strlen(old), *new_end = new + strlen(new);

	while (*old && *new) {
		size_t a = line_length(old), b = line_length(new);

		if (a != b || memcmp(old, new, a) != 0 || old[a] != new[b])
			break;
		old += a + (old[a] == '\n');
		new += b + (new[b] == '\n');
	}
	while (old_end > old && new_end > new) {
		const char *a = line_before(old, old_end), *b = line_before(new, new_end);

		if (old_end - a != new_end - b || memcmp(a, b, (size_t)(old_end - a)) != 0)
			break;
		old_end = a;
		new_end = b;
	}
	put_lines(out, old, old_end, '-');
	put_lines(out, new, new_end, '+');
}
