/*
 * Anchors of the audit logs: see log/audit_anchor.h. An anchor is one line of fixed length, written in place with one write, so that
 * it is complete even if the writer is killed.
 */
#include "gateway/log/audit_anchor.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/base/json.h"
#include "gateway/base/strbuf.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define LINE 512 /* one sector */
#define SETTLE_US (60ull * 1000000)
#define CLOCKS_APART_US (5ll * 1000000)

static int anchor_path(const char *dir, const char *name, char ret[static PATH_MAX])
{
	int n = snprintf(ret, PATH_MAX, "%s/" AUDIT_ANCHORS "/%s", dir, name);

	return n < 0 || n >= PATH_MAX ? -ENAMETOOLONG : 0;
}

static uint64_t boot_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_BOOTTIME, &t);
	return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

bool audit_anchor_restarted(const struct audit_anchor *a)
{
	int64_t wall = (int64_t)(ak_wall_us() - a->wall_us), boot = (int64_t)(boot_us() - a->boot_us);

	return boot < 0 || wall - boot > CLOCKS_APART_US || boot - wall > CLOCKS_APART_US;
}

static void put_point(struct strbuf *out, const char *name, const struct audit_point *p)
{
	strbuf_printf(out, ",\"%s\":%llu,\"%s_hash\":\"%s\"", name, (unsigned long long)p->seq, name, p->seq ? p->hash : "");
}

static void put_mac(const char *text, size_t len, const char *name, const struct audit_key *key, char ret[static AUDIT_MAC_HEX])
{
	uint8_t digest[SHA256_SIZE];
	struct audit_mac m;
	struct sha256 s;

	ret[0] = '\0';
	if (!key)
		return;
	sha256_init(&s);
	sha256_add(&s, text, len);
	sha256_done(&s, digest);
	audit_mac_init(&m, key, "anchor", name, 0);
	audit_mac_print(&m, 1, digest, ret);
}

static int print_anchor(const struct audit_anchor *a, const char *name, const struct audit_key *key, char ret[static LINE])
{
	_cleanup_strbuf_ struct strbuf out = { 0 };
	char mac[AUDIT_MAC_HEX];

	strbuf_printf(&out, "{\"v\":1,\"wall_us\":%llu,\"boot_us\":%llu", (unsigned long long)a->wall_us,
		(unsigned long long)a->boot_us);
	put_point(&out, "newest", &a->newest);
	put_point(&out, "settled", &a->settled);
	if (out.failed)
		return -ENOMEM;
	put_mac(out.data, out.len, name, key, mac);
	strbuf_printf(&out, ",\"mac\":\"%s\"}", mac);
	if (out.failed || out.len >= LINE)
		return -ENOMEM;
	memset(ret, ' ', LINE);
	memcpy(ret, out.data, out.len);
	ret[LINE - 1] = '\n';
	return 0;
}

static bool get_point(const cJSON *obj, const char *name, struct audit_point *ret)
{
	char key[32];
	const char *hash;
	struct ak_err err;

	snprintf(key, sizeof(key), "%s_hash", name);
	hash = json_text(obj, key, "");
	if (json_get_uint(obj, name, 1ull << 53, &ret->seq, &err) <= 0 || (ret->seq && strlen(hash) != SHA256_HEX - 1))
		return false;
	snprintf(ret->hash, sizeof(ret->hash), "%s", hash);
	return true;
}

static int parse_anchor(const char line[static LINE + 1], const char *name, const struct audit_key *key, struct audit_anchor *ret)
{
	const char *tail = strstr(line, ",\"mac\":\"");
	_cleanup_json_ cJSON *obj = NULL;
	struct audit_anchor a = { 0 };
	char mac[AUDIT_MAC_HEX];
	struct ak_err err;

	if (!tail || json_parse(line, strlen(line), &obj, &err) < 0 ||
		json_get_uint(obj, "wall_us", 1ull << 53, &a.wall_us, &err) <= 0 ||
		json_get_uint(obj, "boot_us", 1ull << 53, &a.boot_us, &err) <= 0 || !get_point(obj, "newest", &a.newest) ||
		!get_point(obj, "settled", &a.settled))
		return -EBADMSG;
	put_mac(line, (size_t)(tail - line), name, key, mac);
	if (key && strcmp(mac, json_text(obj, "mac", "")) != 0)
		return -EBADMSG;
	*ret = a;
	return 0;
}

static int read_anchor(int fd, const char *name, const struct audit_key *key, struct audit_anchor *ret)
{
	char line[LINE + 1];
	ssize_t n = ak_pread_all(fd, line, LINE, 0);

	if (n < 0)
		return (int)n;
	line[n] = '\0';
	return parse_anchor(line, name, key, ret);
}

int audit_anchor_get(const char *dir, const char *name, const struct audit_key *key, struct audit_anchor *ret)
{
	_cleanup_close_ int fd = -1;
	char path[PATH_MAX];

	if (anchor_path(dir, name, path) < 0)
		return -ENAMETOOLONG;
	fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	return fd < 0 ? -errno : read_anchor(fd, name, key, ret);
}

static int open_anchor(const char *dir, const char *name)
{
	const int flags = O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
	char path[PATH_MAX], folder[PATH_MAX];
	int fd;

	if (anchor_path(dir, name, path) < 0 || snprintf(folder, sizeof(folder), "%s/" AUDIT_ANCHORS, dir) >= PATH_MAX)
		return -ENAMETOOLONG;
	fd = open(path, flags, 0600);
	if (fd < 0 && errno == ENOENT && (mkdir(folder, 0700) == 0 || errno == EEXIST))
		fd = open(path, flags, 0600);
	return fd < 0 ? -errno : fd;
}

static int write_anchor(
	int fd, const char *name, const struct audit_key *key, const struct audit_anchor *before, uint64_t seq, const char *hash)
{
	struct audit_anchor now = { .newest.seq = seq, .wall_us = ak_wall_us(), .boot_us = boot_us() };
	char line[LINE];
	int rc;

	now.settled = before->newest.seq && before->wall_us + SETTLE_US <= now.wall_us ? before->newest : before->settled;
	if (now.settled.seq > seq) /* a different log with this name */
		now.settled = (struct audit_point){ 0 };
	snprintf(now.newest.hash, sizeof(now.newest.hash), "%s", hash);
	rc = print_anchor(&now, name, key, line);
	if (rc < 0)
		return rc;
	return pwrite(fd, line, LINE, 0) == LINE ? 0 : -EIO;
}

int audit_anchor_set(const char *dir, const char *name, const struct audit_key *key, uint64_t seq, const char *hash)
{
	_cleanup_close_ int fd = open_anchor(dir, name);
	struct audit_anchor before = { 0 };

	if (fd < 0)
		return fd;
	(void)read_anchor(fd, name, key, &before);
	return write_anchor(fd, name, key, &before, seq, hash);
}

int audit_anchor_move(const char *dir, const char *name, const struct audit_key *key, const struct audit_anchor *before,
	uint64_t seq, const char *hash)
{
	_cleanup_close_ int fd = open_anchor(dir, name);

	return fd < 0 ? fd : write_anchor(fd, name, key, before, seq, hash);
}

void audit_anchor_drop(const char *dir, const char *name)
{
	char path[PATH_MAX];

	if (anchor_path(dir, name, path) == 0)
		(void)unlink(path);
}
