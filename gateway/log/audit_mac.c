/* Keys of the audit logs and MACs of their records: see log/audit_mac.h. */
#include "gateway/log/audit_mac.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/log/audit.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#define HEAD "agentkernel audit key 1\n"
#define BLOCK 64

/* ---- HMAC-SHA256 (RFC 2104) ---- */

static void take_pads(struct audit_mac *m)
{
	uint8_t in[BLOCK], out[BLOCK];

	memset(in, 0x36, sizeof(in));
	memset(out, 0x5c, sizeof(out));
	for (size_t i = 0; i < SHA256_SIZE; i++) {
		in[i] ^= m->key[i];
		out[i] ^= m->key[i];
	}
	sha256_init(&m->inner);
	sha256_add(&m->inner, in, sizeof(in));
	sha256_init(&m->outer);
	sha256_add(&m->outer, out, sizeof(out));
}

static void hmac(const struct audit_mac *m, const void *data, size_t len, uint8_t ret[static SHA256_SIZE])
{
	struct sha256 s = m->inner;

	sha256_add(&s, data, len);
	sha256_done(&s, ret);
	s = m->outer;
	sha256_add(&s, ret, SHA256_SIZE);
	sha256_done(&s, ret);
}

/* ---- the key of one log ---- */

static void set_key(struct audit_mac *m, const uint8_t key[static SHA256_SIZE])
{
	memcpy(m->key, key, sizeof(m->key));
	take_pads(m);
}

static void move_on(struct audit_mac *m)
{
	uint8_t next[SHA256_SIZE];

	hmac(m, "next", 4, next);
	set_key(m, next);
	m->epoch++;
}

static void reach(struct audit_mac *m, uint64_t seq)
{
	while (!m->fixed && m->epoch < seq / AUDIT_EPOCH)
		move_on(m);
}

void audit_mac_init(struct audit_mac *m, const struct audit_key *key, const char *kind, const char *name, uint64_t seq)
{
	char label[128];
	uint8_t own[SHA256_SIZE];
	int len = snprintf(label, sizeof(label), "%s %s", kind, name);

	*m = (struct audit_mac){ .on = true, .fixed = !strcmp(kind, AUDIT_EVENTS) };
	set_key(m, key->master);
	hmac(m, label, (size_t)len < sizeof(label) ? (size_t)len : sizeof(label) - 1, own);
	set_key(m, own);
	reach(m, seq + 1);
}

void audit_mac_take(struct audit_mac *m, const uint8_t key[static SHA256_SIZE], uint64_t epoch)
{
	*m = (struct audit_mac){ .on = true, .epoch = epoch };
	set_key(m, key);
}

void audit_mac_print(struct audit_mac *m, uint64_t seq, const uint8_t hash[static SHA256_SIZE], char ret[static AUDIT_MAC_HEX])
{
	uint8_t digest[SHA256_SIZE];
	char hex[SHA256_HEX];

	reach(m, seq);
	hmac(m, hash, SHA256_SIZE, digest);
	sha256_hex(digest, hex);
	memcpy(ret, hex, AUDIT_MAC_HEX - 1);
	ret[AUDIT_MAC_HEX - 1] = '\0';
}

/* ---- the master key ---- */

static int hex_digit(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool parse_key(const char *text, struct audit_key *ret)
{
	char *end;

	if (strncmp(text, HEAD, strlen(HEAD)) != 0)
		return false;
	text += strlen(HEAD);
	for (size_t i = 0; i < SHA256_SIZE; i++, text += 2) {
		int high = hex_digit(text[0]), low = high < 0 ? -1 : hex_digit(text[1]);

		if (low < 0)
			return false;
		ret->master[i] = (uint8_t)(high << 4 | low);
	}
	errno = 0;
	ret->since_us = strtoull(text, &end, 10);
	if (*text != ' ' || errno != 0)
		return false;
	ret->before = 0;
	ret->before_hash[0] = '\0';
	if (*end == ' ') {
		ret->before = strtoull(end, &end, 10);
		snprintf(ret->before_hash, sizeof(ret->before_hash), "%s", *end == ' ' ? end + 1 : "");
		end += *end == ' ' ? SHA256_HEX : 0;
	}
	return *end == '\n' && errno == 0;
}

int audit_key_load(const char *path, struct audit_key *ret, struct ak_err *err)
{
	_cleanup_free_ char *text = NULL;
	int rc = ak_read_file(AT_FDCWD, path, 4096, &text, NULL);

	if (rc < 0)
		return ak_fail_errno(err, -rc, "cannot read '%s'", path);
	return parse_key(text, ret)
		? 0
		: ak_fail(err, EBADMSG, "'%s' is not an audit key; move it away, and the next command creates a new one", path);
}

/* Write the key under a temporary name and link it: a reader never sees a partial key, and of two writers one wins. */
static int make_key(const char *path, const char *events)
{
	char temp[PATH_MAX], hex[SHA256_HEX], hash[SHA256_HEX], text[512];
	uint64_t before;
	uint8_t master[SHA256_SIZE];
	_cleanup_close_ int fd = -1;
	int rc;

	if (getrandom(master, sizeof(master), 0) != sizeof(master))
		return -EIO;
	if (snprintf(temp, sizeof(temp), "%s.%d", path, (int)getpid()) >= (int)sizeof(temp))
		return -ENAMETOOLONG;
	sha256_hex(master, hex);
	audit_stand(events, &before, hash);
	snprintf(text, sizeof(text), HEAD "%s %llu", hex, (unsigned long long)ak_wall_us());
	if (before)
		snprintf(text + strlen(text), sizeof(text) - strlen(text), " %llu %s", (unsigned long long)before, hash);
	strcat(text, "\n");
	(void)unlink(temp); /* left by a killed process with our pid */
	fd = open(temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	rc = ak_write_all(fd, text, strlen(text));
	if (rc == 0 && link(temp, path) < 0 && errno != EEXIST)
		rc = -errno;
	(void)unlink(temp);
	return rc;
}

int audit_key_of(const char *dir, struct audit_key *ret, struct ak_err *err)
{
	char path[PATH_MAX], events[PATH_MAX];
	int rc;

	if (snprintf(path, sizeof(path), "%s/" AUDIT_KEY_FILE, dir) >= (int)sizeof(path) ||
		snprintf(events, sizeof(events), "%s/" AUDIT_EVENTS, dir) >= (int)sizeof(events))
		return ak_fail(err, ENAMETOOLONG, "state folder: path too long");
	rc = audit_key_load(path, ret, err);
	if (rc != -ENOENT)
		return rc;
	rc = make_key(path, events);
	return rc < 0 ? ak_fail_errno(err, -rc, "cannot create '%s'", path) : audit_key_load(path, ret, err);
}
