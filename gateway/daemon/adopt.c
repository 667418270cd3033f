/*
 * A new daemon adopts the supervisors that outlived the last one.
 *
 * Theory of operation. All supervisors are asked for their namespaces at once, before the event loop starts. The daemon waits briefly for the replies,
 * because the gateway must join the namespaces that these sandboxes already use. A supervisor that has not replied by then is kept as the supervisor of a
 * running sandbox without network, and adopted when its reply arrives: a busy machine must not cost a sandbox its network. If no supervisor has replied at
 * all, the start of the gateway waits longer for one of them, unless a new sandbox needs it: then the gateway creates namespaces of its own.
 */
#include "gateway/daemon/internal.h"

#include "dnsproxy/dnsproxy.h"
#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/base/say.h"
#include "gateway/log/audit.h"
#include "gateway/log/events.h"
#include "gateway/super/super.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ANSWER_MS 3000
#define TAIL_MAX (2u << 20) /* bytes read of a network log: normally far more than half an hour of DNS replies */
#define LEARNED_MAX 4096
#define GRACE_S 30 /* same as in the gateway: an address stays allowed this long after its TTL */

/* ---- supervisors ---- */

struct found {
	char name[AK_NAME_MAX];
	int fd; /* owned */
};

static bool name_of(const char *file, char ret[static AK_NAME_MAX])
{
	size_t len = strlen(file);

	if (len < 6 || len - 5 >= AK_NAME_MAX || strcmp(file + len - 5, ".sock") != 0)
		return false;
	memcpy(ret, file, len - 5);
	ret[len - 5] = '\0';
	return ak_sandbox_name_ok(ret);
}

/* Connect and ask for the namespaces. Removes a socket that nobody listens on. */
static int ask(struct daemon *d, const char *name)
{
	struct ak_err err;
	_cleanup_close_ int fd = super_connect(d->paths, name, &err);
	_cleanup_json_ cJSON *obj = cJSON_CreateObject();
	char path[PATH_MAX];

	if (fd == -ECONNREFUSED && super_path(d->paths, name, path) == 0)
		(void)ipc_remove_stale(path);
	if (fd == -EPERM)
		ak_say("%s: %s", name, err.text);
	if (fd < 0)
		return fd;
	if (!obj || !cJSON_AddStringToObject(obj, "op", "namespaces") || ipc_send(fd, obj, NULL, 0) < 0)
		return -EPIPE;
	return TAKE_FD(fd);
}

static int ask_all(struct daemon *d, struct found **ret, size_t *ret_n)
{
	struct found *all = NULL;
	size_t n = 0, cap = 0;
	char path[PATH_MAX];
	DIR *dir = ak_path_join(path, d->paths->runtime, "sb", NULL) == 0 ? opendir(path) : NULL;
	struct found f;

	for (struct dirent *e; dir && (e = readdir(dir));) {
		if (!name_of(e->d_name, f.name) || (f.fd = ask(d, f.name)) < 0)
			continue;
		if (n == cap) {
			struct found *grown = realloc(all, (cap = cap ? 2 * cap : 64) * sizeof(*all));

			if (!grown) {
				ak_close(f.fd);
				break;
			}
			all = grown;
		}
		all[n++] = f;
	}
	if (dir)
		closedir(dir);
	*ret = all;
	*ret_n = n;
	return 0;
}

static bool same_file(int a, int b)
{
	struct stat x, y;

	return fstat(a, &x) == 0 && fstat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* All sandboxes of one daemon share one pair of namespaces: take it from the first reply. */
static bool take_namespaces(struct daemon *d, int *fds)
{
	if (d->gw.net_ns < 0) {
		d->gw.user_ns = TAKE_FD(fds[0]);
		d->gw.net_ns = TAKE_FD(fds[1]);
		return true;
	}
	return same_file(d->gw.net_ns, fds[1]);
}

/* Take what the supervisor of SB has sent. Its connection is served already. */
static void take_answer(struct dsb *sb, const cJSON *answer, int *fds, size_t n_fds)
{
	uint64_t pid = 0, started = 0;
	struct ak_err err;

	(void)json_get_uint(answer, "pid", INT32_MAX, &pid, &err);
	(void)json_get_uint(answer, "started_us", 1ull << 52, &started, &err);
	sb->super_pid = (pid_t)pid;
	sb->started_us = started;
	if (n_fds == 3 && take_namespaces(sb->d, fds))
		sb->peer_rtnl = TAKE_FD(fds[2]);
	else if (n_fds == 3)
		ak_say("%s: no network until you restart it, because it belongs to another gateway", sb->state.name);
	dsb_adopted(sb);
}

static bool is_answer_of(const struct dsb *sb, const char *name, const cJSON *answer)
{
	const char *uuid = "";
	struct ak_err err;

	if (ipc_error_parse(answer, &err) < 0) {
		ak_say("%s: %s", name, err.text);
		return false;
	}
	if (!sb || json_get_string(answer, "uuid", &uuid, &err) < 0 || strcmp(uuid, sb->state.uuid) != 0) {
		ak_say("%s: ignoring a supervisor that runs an unknown sandbox", name);
		return false;
	}
	return true;
}

/* No reply yet: the sandbox runs, and adopt_answer does the rest. */
static void adopt_later(struct daemon *d, struct found *f)
{
	struct dsb *sb = dsb_find(d, f->name);

	if (!sb || ipc_server_adopt(d->supers, TAKE_FD(f->fd), sb, &sb->super) < 0)
		return;
	ak_say("%s: no network yet, because its supervisor has not answered", f->name);
	sb->super_pid = ipc_peer_pid(sb->super);
	sb->status = DSB_RUNNING;
	sb->state.running = true;
	sb->asked = true;
}

static void read_answer(struct daemon *d, struct found *f, uint64_t until_ms)
{
	struct pollfd p = { .fd = f->fd, .events = POLLIN };
	struct dsb *sb = dsb_find(d, f->name);
	uint64_t now = ak_now_ms();
	_cleanup_json_ cJSON *answer = NULL;
	int fds[3] = { -1, -1, -1 };
	size_t n_fds = 3;

	if (poll(&p, 1, now < until_ms ? (int)(until_ms - now) : 0) <= 0) {
		adopt_later(d, f);
		return;
	}
	if (ipc_recv(f->fd, &answer, fds, &n_fds) <= 0)
		return;
	if (is_answer_of(sb, f->name, answer) && ipc_server_adopt(d->supers, TAKE_FD(f->fd), sb, &sb->super) == 0)
		take_answer(sb, answer, fds, n_fds);
	for (int i = 0; i < 3; i++)
		ak_close(fds[i]);
}

/* Sandboxes with a network whose supervisors have not answered yet. */
static size_t count_late(const struct daemon *d)
{
	const struct dsb *sb;
	size_t n = 0;

	TAILQ_FOREACH(sb, &d->sandboxes, link)
		n += sb->asked && state_network(&sb->state);
	return n;
}

void adopt_answer(struct dsb *sb, struct ipc_message *msg)
{
	struct daemon *d = sb->d;

	sb->asked = false;
	if (sb->status != DSB_RUNNING)
		return; /* it is being stopped */
	if (!is_answer_of(sb, sb->state.name, msg->obj)) {
		ipc_peer_end(sb->super);
		return;
	}
	take_answer(sb, msg->obj, msg->fds, msg->n_fds);
	if (d->gw.state == DGW_UP)
		dsb_rehost_all(d);
	else if (d->gw.state == DGW_DOWN && (d->gw.net_ns >= 0 || !count_late(d)))
		dgw_start(d);
}

/* A sandbox that is recorded as running but has no supervisor ended while no daemon was running. */
static void correct_states(struct daemon *d)
{
	struct dsb *sb;
	struct ak_err err;

	TAILQ_FOREACH(sb, &d->sandboxes, link) {
		_cleanup_strbuf_ struct strbuf more = { 0 };

		if (!sb->state.running || sb->status == DSB_RUNNING)
			continue;
		sb->state.running = false;
		if (state_save(d->paths, &sb->state, &err) < 0)
			ak_say("%s", err.text);
		event_put_text(&more, "reason", "it had ended when the daemon started");
		event_put_text(&more, "origin", state_origin(&sb->state));
		event_write(d->paths, "sandbox_stop", sb->state.name, &more);
	}
}

int adopt_all(struct daemon *d, bool *ret_wait, struct ak_err *err)
{
	_cleanup_free_ struct found *all = NULL;
	uint64_t until = ak_now_ms() + ANSWER_MS;
	size_t n = 0;
	int rc = ask_all(d, &all, &n);

	for (size_t i = 0; i < n; i++) {
		read_answer(d, &all[i], until);
		ak_close(all[i].fd);
	}
	correct_states(d);
	*ret_wait = d->gw.net_ns < 0 && count_late(d);
	return rc;
}

/* ---- learned addresses ---- */

static int read_tail(const char *path, char **ret, size_t *ret_len)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	_cleanup_free_ char *text = NULL;
	struct stat st;
	size_t want;
	ssize_t n;

	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return -ENOENT;
	want = st.st_size < (off_t)TAIL_MAX ? (size_t)st.st_size : TAIL_MAX;
	text = malloc(want + 1);
	if (!text)
		return -ENOMEM;
	n = ak_pread_all(fd, text, want, (uint64_t)st.st_size - want);
	if (n < 0)
		return (int)n;
	text[n] = '\0';
	*ret = TAKE(text);
	*ret_len = (size_t)n;
	return 0;
}

/*
 * How many seconds the addresses of a DNS record stay allowed, grace included; 0 if they have expired or REC is no such record. What was learned before
 * SINCE_US, when the sandbox was started, belongs to programs that have ended, or to files that were replaced since.
 */
static uint64_t seconds_left(const cJSON *rec, uint64_t since_us, uint64_t now_us)
{
	const char *event = "", *verdict = "", *time = "", *name = NULL;
	const cJSON *answers = NULL;
	uint64_t ttl = 0, when_us, end_us;
	struct ak_err err;

	if (json_get_string(rec, "event", &event, &err) <= 0 || strcmp(event, "dns") != 0 ||
		json_get_string(rec, "verdict", &verdict, &err) <= 0 || strcmp(verdict, "allow") != 0)
		return 0;
	if (json_get_string(rec, "name", &name, &err) <= 0 || json_get_array(rec, "answers", &answers, &err) <= 0 ||
		!answers->child || json_get_uint(rec, "ttl", DNS_TTL_MAX_S, &ttl, &err) < 0 ||
		json_get_string(rec, "time", &time, &err) <= 0 || audit_time_parse(time, &when_us) < 0)
		return 0;
	end_us = when_us + (ttl + GRACE_S) * 1000000;
	return when_us >= since_us && when_us <= now_us && end_us > now_us ? (end_us - now_us) / 1000000 : 0;
}

static void put(const cJSON *rec, uint64_t left_s, struct strbuf *out)
{
	const char *name = cJSON_GetObjectItemCaseSensitive(rec, "name")->valuestring;
	const cJSON *a;
	bool first = true;

	strbuf_puts(out, out->len > 1 ? ",{\"name\":" : "{\"name\":");
	strbuf_json(out, name);
	strbuf_puts(out, ",\"addrs\":[");
	cJSON_ArrayForEach(a, cJSON_GetObjectItemCaseSensitive(rec, "answers")) {
		if (!cJSON_IsString(a))
			continue;
		if (!first)
			strbuf_putc(out, ',');
		strbuf_json(out, a->valuestring);
		first = false;
	}
	/* The gateway adds the grace itself. */
	strbuf_printf(out, "],\"ttl\":%llu}", (unsigned long long)(left_s > GRACE_S ? left_s - GRACE_S : 1));
}

/* Queries whose newest reply was seen, by hash. A collision is harmless: the older of the two is resolved again. */
struct seen {
	uint64_t slots[2 * LEARNED_MAX];
};

static bool seen_before(struct seen *s, const cJSON *rec)
{
	const char *parts[2] = { "", "" };
	uint64_t h = 14695981039346656037ull;
	struct ak_err err;
	size_t i;

	(void)json_get_string(rec, "name", &parts[0], &err);
	(void)json_get_string(rec, "qtype", &parts[1], &err);
	for (int k = 0; k < 2; k++) {
		for (const char *c = parts[k]; *c; c++)
			h = (h ^ (uint8_t)*c) * 1099511628211ull;
		h = (h ^ 0xff) * 1099511628211ull;
	}
	h |= 1; /* 0 is an empty slot */
	for (i = h % ARRAY_SIZE(s->slots); s->slots[i]; i = (i + 1) % ARRAY_SIZE(s->slots)) {
		if (s->slots[i] == h)
			return true;
	}
	s->slots[i] = h;
	return false;
}

/* Return the last line before offset LEN, NUL-terminated in place, and move LEN to its start. */
static char *previous_line(char *text, size_t *len)
{
	char *end = *len ? memrchr(text, '\n', *len) : NULL, *start;

	if (!end)
		return NULL;
	*end = '\0';
	start = end > text ? memrchr(text, '\n', (size_t)(end - text)) : NULL;
	start = start ? start + 1 : text;
	*len = (size_t)(start - text);
	return start;
}

/* So old that every address in an earlier record has expired. */
static bool too_old(const cJSON *rec, uint64_t now_us)
{
	const char *time = NULL;
	uint64_t when_us;
	struct ak_err err;

	return json_get_string(rec, "time", &time, &err) > 0 && audit_time_parse(time, &when_us) == 0 &&
		when_us + (DNS_TTL_MAX_S + GRACE_S) * 1000000ull < now_us;
}

/* Reads from the newest line back and writes the oldest first, so that the newer of two replies wins. */
int adopt_learned(const char *log_path, uint64_t since_us, uint64_t now_us, struct strbuf *out)
{
	_cleanup_free_ struct seen *seen = calloc(1, sizeof(*seen));
	_cleanup_free_ cJSON **found = calloc(LEARNED_MAX, sizeof(*found));
	_cleanup_free_ char *text = NULL;
	size_t len = 0, n = 0;
	int rc = seen && found ? read_tail(log_path, &text, &len) : -ENOMEM;

	if (rc < 0)
		return rc;
	for (char *line; n < LEARNED_MAX && (line = previous_line(text, &len));) {
		cJSON *rec = strstr(line, "\"event\":\"dns\"") ? cJSON_Parse(line) : NULL;
		bool old = rec && too_old(rec, now_us);

		if (rec && !old && seconds_left(rec, since_us, now_us) > 0 && !seen_before(seen, rec))
			found[n++] = rec;
		else
			cJSON_Delete(rec);
		if (old)
			break;
	}
	strbuf_putc(out, '[');
	for (size_t i = n; i-- > 0;) {
		put(found[i], seconds_left(found[i], since_us, now_us), out);
		cJSON_Delete(found[i]);
	}
	strbuf_putc(out, ']');
	return (int)n;
}
