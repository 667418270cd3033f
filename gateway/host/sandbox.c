/* One sandbox in the gateway: its life cycle, its policy, its learned addresses. See host/internal.h. */
#include "gateway/host/internal.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/log/stats.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LEARN_PORTS_MAX 32
#define LEARNED_MARGIN_MS 2000 /* how much longer our table keeps an address than the kernel's set */

/* ---- lookup ---- */

struct gw_sandbox *gw_sandbox_find(const struct gw *gw, uint32_t id)
{
	return id < gw->n_ids ? gw->by_id[id] : NULL;
}

/* Addresses are derived from ids (gwns_link_plan), so an address yields an id; the comparison then verifies it. */
struct gw_sandbox *gw_sandbox_by_addr(const struct gw *gw, const struct ak_addr *src)
{
	const uint8_t *b = src->bytes + (src->family == AF_INET ? 0 : 12);
	uint32_t low = (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
	struct gw_sandbox *sb = gw_sandbox_find(gw, (src->family == AF_INET ? low & 0x003fffff : low) / 4);

	if (!sb)
		return NULL;
	return ak_addr_eq(src, src->family == AF_INET ? &sb->link.addr4 : &sb->link.addr6) ? sb : NULL;
}

static int reserve_id(struct gw *gw, uint32_t id)
{
	size_t n = gw->n_ids ? gw->n_ids : 8;
	struct gw_sandbox **grown;

	if (id == 0 || id > GWNS_ID_MAX)
		return -ERANGE;
	while (n <= id)
		n *= 2;
	if (n == gw->n_ids)
		return gw->by_id[id] ? -EEXIST : 0;
	grown = realloc(gw->by_id, n * sizeof(*grown));
	if (!grown)
		return -ENOMEM;
	memset(grown + gw->n_ids, 0, (n - gw->n_ids) * sizeof(*grown));
	gw->by_id = grown;
	gw->n_ids = n;
	return 0;
}

/* ---- eviction of learned addresses ---- */

static size_t elems_of(
	const struct policy *p, const char *name, const struct ak_addr *addr, uint32_t timeout_s, struct fw_elem *ret);

/*
 * The table is full: the kernel must drop the evicted address too, otherwise it would admit addresses that the relay does not
 * know. Cached DNS answers may contain it, so they are learned again before they are served.
 */
static void on_evict(void *ctx, const struct learned_name *n, const struct ak_addr *addr)
{
	struct fw_elem elems[LEARN_PORTS_MAX];
	struct learned_name *names[2];
	struct gw_sandbox *sb = ctx;
	struct ak_err err;
	size_t count;

	sb->evicted++;
	sb->noisy = true;
	if (sb->dns)
		dns_client_forget(sb->dns);
	if (learned_names(sb->learned, addr, ak_now_ms(), names, 2) > 1)
		return; /* another name has the same address */
	count = elems_of(sb->policy, n->name, addr, 1, elems);
	if (count)
		(void)fw_forget(sb->gw->fw, sb->link.id, elems, count, &err);
}

/* ---- create and free ---- */

static void sandbox_free(struct gw_sandbox *sb)
{
	if (!sb)
		return;
	dns_client_free(sb->dns);
	learned_free(sb->learned);
	audit_writer_done(&sb->log);
	audit_writer_done(&sb->kept);
	audit_kinds_done(&sb->kinds);
	gw_sums_free(sb->sums);
	free(sb->repeats);
	free(sb->lookups);
	policy_unref(sb->policy);
	if (gw_sandbox_find(sb->gw, sb->link.id) == sb)
		sb->gw->by_id[sb->link.id] = NULL;
	free(sb);
}

static void open_writer(struct audit_writer *w, int fd, const struct gw_log_at *at)
{
	audit_writer_init(w, fd, at->seq, at->prev[0] ? at->prev : NULL, at->size);
	if (at->keyed)
		audit_mac_take(&w->mac, at->key, at->epoch);
}

void gw_sandbox_set_log(struct gw_sandbox *sb, int fd, const struct gw_log_state *log)
{
	audit_writer_done(&sb->log);
	audit_writer_done(&sb->kept);
	audit_kinds_done(&sb->kinds);
	open_writer(&sb->log, fd, &log->own);
	open_writer(&sb->kept, -1, &log->kept);
	sb->anchored = log->own.seq;
}

void gw_sandbox_rotated(struct gw_sandbox *sb, int kept_fd, const struct gw_log_state *log)
{
	struct audit_gone gone = { .from = log->gone_from, .to = log->gone_to };

	if (sb->kept.fd < 0 && kept_fd >= 0) {
		audit_writer_done(&sb->kept);
		open_writer(&sb->kept, kept_fd, &log->kept);
	} else {
		ak_close(kept_fd);
	}
	gone.kept = sb->kept.fd >= 0 ? sb->kept.seq : 0;
	gone.kept_hash = sb->kept.prev;
	if (sb->log.size == 0 && sb->log.seq > 0)
		audit_write_rotate(&sb->log, sb->name, &gone);
}

int gw_sandbox_new(struct gw *gw, const char *name, const struct gwns_link *link, struct policy *p, uint64_t generation,
	int log_fd, const struct gw_log_state *log, struct gw_sandbox **ret, struct ak_err *err)
{
	static const struct gw_log_state none;
	struct gw_sandbox *sb = calloc(1, sizeof(*sb));
	int rc = sb ? reserve_id(gw, link->id) : -ENOMEM;

	if (rc == 0)
		rc = learned_new(&sb->learned);
	if (rc < 0) {
		free(sb);
		ak_close(log_fd);
		return ak_fail_errno(err, -rc, "sandbox %u", link->id);
	}
	sb->gw = gw;
	snprintf(sb->name, sizeof(sb->name), "%s", name);
	sb->link = *link;
	sb->policy = policy_ref(p);
	sb->generation = generation;
	learned_on_evict(sb->learned, on_evict, sb);
	sb->log.fd = sb->kept.fd = -1;
	gw_sandbox_set_log(sb, log_fd, log ? log : &none);
	sb->relay = (struct relay_sandbox){
		.id = link->id,
		.policy = sb->policy,
		.generation = generation,
		.learned = sb->learned,
		.addr4 = link->addr4,
		.addr6 = link->addr6,
		.gw4 = link->gw4,
		.gw6 = link->gw6,
	};
	gw->by_id[link->id] = sb;
	*ret = sb;
	return 0;
}

int gw_sandbox_serve(struct gw_sandbox *sb, struct ak_err *err)
{
	static const struct ak_addr none;
	const struct ak_addr *gw6 = sb->gw->ipv6_link ? &sb->link.gw6 : &none;
	int rc = dns_client_new(sb->gw->dns, sb->link.id, sb->policy, &sb->link.gw4, gw6, &sb->dns);

	if (rc < 0)
		return ak_fail_errno(err, -rc, "DNS proxy");
	relay_sandbox_open(sb->gw->relay, &sb->relay);
	return 0;
}

void gw_fw_link(const struct gwns_link *l, bool ipv6, struct fw_link *ret)
{
	struct fw_link f = { .id = l->id, .addr4 = l->addr4, .gw4 = l->gw4 };

	memcpy(f.ifname, l->ifname, sizeof(f.ifname));
	memcpy(f.peer_mac, l->peer_mac, sizeof(f.peer_mac));
	if (ipv6) {
		f.addr6 = l->addr6;
		f.gw6 = l->gw6;
	}
	*ret = f;
}

int gw_sandbox_add(struct gw_sandbox *sb, int peer_rtnl, struct ak_err *err)
{
	struct gw *gw = sb->gw;
	struct fw_link link;
	struct ak_err ignored;
	int rc;

	gw_fw_link(&sb->link, gw->ipv6_link, &link);
	rc = fw_sandbox_add(gw->fw, &link, sb->policy, err);
	if (rc < 0) {
		sandbox_free(sb);
		return ak_err_prefix(err, rc, "nftables");
	}
	rc = gw_sandbox_serve(sb, err);
	if (rc < 0)
		goto undo_rules;
	rc = gwns_link_up(gw->rtnl, peer_rtnl, &sb->link, gw->ipv6_link, err);
	if (rc < 0)
		goto undo_serve;
	gw_record_edge(sb, "start");
	return 0;

undo_serve:
	relay_sandbox_close(gw->relay, &sb->relay);
undo_rules:
	(void)fw_sandbox_remove(gw->fw, &link, &ignored);
	sandbox_free(sb);
	return rc;
}

static void write_suppressed(struct gw_sandbox *sb)
{
	struct fw_counts counts;
	struct ak_err err;

	if (fw_sandbox_counts(sb->gw->fw, sb->link.id, &counts, &err) == 0)
		gw_record_suppressed(sb, &counts);
}

void gw_sandbox_stats(const struct gw_sandbox *sb, struct gw_stats *ret)
{
	*ret = (struct gw_stats){
		.allowed = sb->allowed,
		.denied = sb->denied,
		.records = sb->log.seq,
		.lost = sb->log.lost_total,
		.learned = learned_count(sb->learned),
		.flows = sb->relay.n_flows,
		.counts = sb->counts,
	};
	memcpy(ret->hash, sb->log.prev, sizeof(ret->hash));
}

void gw_sandbox_finish(struct gw_sandbox *sb, struct gw_stats *ret)
{
	relay_sandbox_close(sb->gw->relay, &sb->relay);
	while (fw_log_read(sb->gw->fw_log, 256) == 256)
		continue;
	dns_client_flush(sb->dns);
	gw_record_repeats(sb);
	gw_record_evicted(sb);
	write_suppressed(sb);
	gw_record_edge(sb, "end");
	audit_writer_trim(&sb->log);
	sb->kept.reserved = AUDIT_KEPT_BYTES; /* reserved when the file was created: see audit_open_kept */
	audit_writer_trim(&sb->kept);
	gw_sandbox_stats(sb, ret);
}

/*
 * The kernel removes the link with the dead sandbox's network namespace. Deleting it here would block all sandboxes for some
 * milliseconds, while the kernel waits for its own readers. Without an entry in the link map no packet passes meanwhile.
 */
void gw_sandbox_drop(struct gw_sandbox *sb)
{
	struct fw_link link;
	struct ak_err err;

	gw_fw_link(&sb->link, sb->gw->ipv6_link, &link);
	(void)fw_sandbox_remove(sb->gw->fw, &link, &err);
	sandbox_free(sb);
}

/* ---- learning ---- */

/* Collect the elements that NAME's address needs under P; returns the count. */
static size_t elems_of(
	const struct policy *p, const char *name, const struct ak_addr *addr, uint32_t timeout_s, struct fw_elem *ret)
{
	struct policy_port ports[LEARN_PORTS_MAX];
	size_t n = policy_name_ports(p, name, ports, LEARN_PORTS_MAX);

	for (size_t i = 0; i < n; i++)
		ret[i] =
			(struct fw_elem){ .addr = *addr, .proto = ports[i].proto, .port = ports[i].port, .timeout_s = timeout_s };
	return n;
}

/* The kernel has acknowledged the elements when this returns. */
static int open_elems(struct gw_sandbox *sb, const struct fw_elem *elems, size_t n, bool fresh, struct ak_err *err)
{
#ifdef AK_SABOTAGE_NOACKWAIT /* opens the addresses of an answer only with the next answer */
	static struct fw_elem late[DNS_ANSWER_MAX * LEARN_PORTS_MAX];
	static size_t n_late;
	int rc = n_late ? fw_learn(sb->gw->fw, sb->link.id, late, n_late, false, err) : 0;

	memcpy(late, elems, n * sizeof(*elems));
	n_late = n;
	return rc;
#else
	return fw_learn(sb->gw->fw, sb->link.id, elems, n, fresh, err);
#endif
}

int gw_sandbox_learn(struct gw_sandbox *sb, const struct dns_answer *answer)
{
	struct fw_elem elems[DNS_ANSWER_MAX * LEARN_PORTS_MAX];
	struct learned_name *name, *known[1];
	uint64_t now_ms = ak_now_ms();
	struct ak_err err;
	size_t n = 0;
	/* The kernel holds no address that our table lacks: our entries live longer, unless the table is full and evicts. */
	bool fresh = learned_count(sb->learned) + DNS_ANSWER_MAX < LEARNED_CAP && now_ms > sb->kept_ms;
	int rc;

	if (answer->n_addrs > DNS_ANSWER_MAX)
		return -EINVAL;
	for (size_t i = 0; i < answer->n_addrs; i++) {
		n += elems_of(sb->policy, answer->name, &answer->addrs[i], answer->ttl_s + DNS_LEARN_GRACE_S, elems + n);
		fresh = fresh && learned_names(sb->learned, &answer->addrs[i], now_ms, known, 1) == 0;
	}
	rc = n > 0 ? open_elems(sb, elems, n, fresh, &err) : 0;
	if (rc < 0)
		return rc;
	name = learned_name_new(answer->name, answer->cname, answer->n_cname, answer->addrs, answer->n_addrs, answer->ttl_s);
	if (!name)
		return -ENOMEM;
	rc = learned_add(sb->learned, name, now_ms, (answer->ttl_s + DNS_LEARN_GRACE_S) * 1000ull + LEARNED_MARGIN_MS);
	learned_name_unref(name);
	return rc;
}

/* ---- policy change ---- */

/* The elements that the kernel must hold under one policy, collected from the table of learned names. */
struct gather {
	const struct policy *policy;
	struct fw_elem *elems; /* owned by the caller */
	size_t n, cap;
	bool failed;
};

static bool gather_one(void *ctx, const struct learned_name *name, const struct ak_addr *addr)
{
	struct gather *g = ctx;

	if (g->n + LEARN_PORTS_MAX > g->cap) {
		size_t cap = g->cap ? 2 * g->cap : 1024;
		struct fw_elem *grown = realloc(g->elems, cap * sizeof(*grown));

		if (!grown) {
			g->failed = true;
			return false;
		}
		g->elems = grown;
		g->cap = cap;
	}
	/* The table does not store the remaining life of an entry; use the full life of its answer as a bound. */
	g->n += elems_of(g->policy, name->name, addr, name->ttl_s + DNS_LEARN_GRACE_S, g->elems + g->n);
	return false;
}

static int by_key(const void *a, const void *b)
{
	const struct fw_elem *x = a, *y = b;
	int c = ak_addr_cmp(&x->addr, &y->addr);

	if (c == 0 && x->proto != y->proto)
		c = x->proto < y->proto ? -1 : 1;
	if (c == 0 && x->port != y->port)
		c = x->port < y->port ? -1 : 1;
	return c;
}

static int gather(struct gw_sandbox *sb, const struct policy *p, struct gather *g)
{
	size_t n = 0;

	*g = (struct gather){ .policy = p };
	learned_sweep(sb->learned, ak_now_ms(), gather_one, g);
	if (g->failed)
		return -ENOMEM;
	if (g->n)
		qsort(g->elems, g->n, sizeof(*g->elems), by_key);
	for (size_t i = 0; i < g->n; i++) { /* two names of one address may need the same port */
		if (n == 0 || by_key(&g->elems[n - 1], &g->elems[i]) != 0)
			g->elems[n++] = g->elems[i];
	}
	g->n = n;
	return 0;
}

/* Remove from A what is also in B; both are sorted. */
static void subtract(struct gather *a, const struct gather *b)
{
	size_t n = 0, j = 0;

	for (size_t i = 0; i < a->n; i++) {
		while (j < b->n && by_key(&b->elems[j], &a->elems[i]) < 0)
			j++;
		if (j == b->n || by_key(&b->elems[j], &a->elems[i]) != 0)
			a->elems[n++] = a->elems[i];
	}
	a->n = n;
}

static int change_kernel(struct gw_sandbox *sb, struct policy *p, struct ak_err *err)
{
	struct gather before = { 0 }, gone = { 0 }, added = { 0 };
	struct fw_link link;
	int rc = gather(sb, sb->policy, &before);

	if (rc == 0)
		rc = gather(sb, sb->policy, &gone);
	if (rc == 0)
		rc = gather(sb, p, &added);
	if (rc < 0) {
		ak_fail_errno(err, -rc, "learned addresses");
	} else {
		subtract(&gone, &added);
		subtract(&added, &before);
		gw_fw_link(&sb->link, sb->gw->ipv6_link, &link);
		rc = fw_sandbox_change(sb->gw->fw, &link, p, gone.elems, gone.n, added.elems, added.n, err);
	}
	free(before.elems);
	free(gone.elems);
	free(added.elems);
	return rc;
}

int gw_sandbox_set_policy(struct gw_sandbox *sb, struct policy *p, uint64_t generation, struct ak_err *err)
{
	struct policy *old = sb->policy;
	int rc = p == old ? 0 : change_kernel(sb, p, err); /* policies never change: the kernel has the rules of this one */

	if (rc < 0)
		return ak_err_prefix(err, rc, "nftables");
	gw_record_repeats(sb);
	sb->policy = policy_ref(p);
	sb->generation = generation;
	relay_sandbox_set_policy(sb->gw->relay, &sb->relay, p, generation);
	dns_client_set_policy(sb->dns, p);
	policy_unref(old);
	gw_record_edge(sb, "policy");
	return 0;
}
