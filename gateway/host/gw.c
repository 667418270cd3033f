/*
 * The gateway process: see host/gw.h.
 *
 * Start (invariant 1): sockets arrive → rules acknowledged → DNS and relay listen → confined → link up → READY.
 * End: processes dead → flows ended → pending kernel log messages read → last record → STATS → exit.
 * On any failure it sends FAILED with the reason and exits: the namespace and the link end with it.
 */
#include "gateway/host/internal.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/base/sabotage.h"
#include "gateway/base/title.h"
#include "gateway/host/confine.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define TICK_MS 1000
#define SLICE_NS 100000 /* the minimum that the kernel accepts */
#define KEEP_POLICY 0x08 /* SCHED_FLAG_KEEP_POLICY; its header conflicts with the C library's */
#define LOG_BUDGET 256

static void arm_tick(struct gw *gw)
{
	static const struct timeval delay = { TICK_MS / 1000, TICK_MS % 1000 * 1000 };

	if (!evtimer_pending(gw->on_tick, NULL))
		evtimer_add(gw->on_tick, &delay);
}

/* Call after each record: schedules an anchor, and requests a new file once the current one is large enough. */
static void check_log_size(struct gw_sandbox *sb)
{
	struct gw_msg msg = { .type = GW_MSG_LOG_FULL, .id = sb->link.id };

	arm_tick(sb->gw);
	if (sb->log_wanted || !audit_writer_full(&sb->log))
		return;
	sb->log_wanted = true;
	gw_send(sb->gw, &msg);
}

/* ---- hooks of the DNS proxy ---- */

static struct dns_client *client_of(void *ctx, unsigned ifindex, const struct ak_addr *src)
{
	struct gw_sandbox *sb = gw_sandbox_by_addr(ctx, src);

	(void)ifindex; /* the rules bind the source address to the link */
	return sb ? sb->dns : NULL;
}

static int learn(void *ctx, uint32_t id, const struct dns_answer *answer)
{
	struct gw_sandbox *sb = gw_sandbox_find(ctx, id);

	return sb ? gw_sandbox_learn(sb, answer) : -ENOENT;
}

static void on_dns_event(void *ctx, uint32_t id, const struct dns_event *event)
{
	struct gw_sandbox *sb = gw_sandbox_find(ctx, id);

	if (!sb)
		return;
	gw_record_dns(sb, event);
	check_log_size(sb);
}

static bool dns_ready(void *ctx, uint32_t id)
{
	struct gw_sandbox *sb = gw_sandbox_find(ctx, id);

	return sb && gw_log_ready(sb);
}

/* ---- hooks of the relay ---- */

static struct relay_sandbox *sandbox_of(void *ctx, const struct ak_addr *src)
{
	struct gw_sandbox *sb = gw_sandbox_by_addr(ctx, src);

	return sb ? &sb->relay : NULL;
}

static void on_flow_event(void *ctx, struct relay_sandbox *rs, const struct relay_event *event)
{
	struct gw_sandbox *sb = gw_sandbox_find(ctx, rs->id);

	if (!sb)
		return;
	gw_record_flow(sb, event);
	check_log_size(sb);
}

static bool flow_ready(void *ctx, struct relay_sandbox *rs)
{
	return dns_ready(ctx, rs->id);
}

static void keep_element(void *ctx, struct relay_sandbox *rs, const struct ak_addr *dst, uint16_t port, uint32_t life_s)
{
	struct fw_elem elem = { .addr = *dst, .proto = POLICY_UDP, .port = port, .timeout_s = life_s };
	struct gw_sandbox *sb = gw_sandbox_find(ctx, rs->id);
	struct ak_err err;

	/* Only if the policy's set admits it; a default-allow policy has no element to extend. */
	if (!sb || policy_default_allow(rs->policy))
		return;
	sb->kept_ms = ak_now_ms() + life_s * 1000ull;
	(void)fw_learn(sb->gw->fw, rs->id, &elem, 1, false, &err);
}

/* ---- denials by the kernel ---- */

static void on_denial(void *ctx, const struct fw_denial *denial)
{
	struct gw_sandbox *sb = gw_sandbox_find(ctx, denial->id);

	if (!sb)
		return;
	gw_record_denial(sb, denial);
	check_log_size(sb);
}

static void on_loss(void *ctx)
{
	struct gw *gw = ctx;

	/* The kernel does not say whose messages were lost: check the counters of all sandboxes. */
	for (size_t id = 0; id < gw->n_ids; id++) {
		if (gw->by_id[id])
			gw->by_id[id]->noisy = true;
	}
	arm_tick(gw);
}

static void on_log_readable(evutil_socket_t fd, short what, void *ctx)
{
	struct gw *gw = ctx;

	fw_log_read(gw->fw_log, LOG_BUDGET);
}

/* Write pending sums. */
static void write_sums(struct gw_sandbox *sb)
{
	struct fw_counts counts;
	struct ak_err err;

	if (!sb->noisy || fw_sandbox_counts(sb->gw->fw, sb->link.id, &counts, &err) < 0)
		return;
	sb->noisy = false;
	dns_client_flush(sb->dns);
	gw_record_repeats(sb);
	gw_record_evicted(sb);
	gw_record_suppressed(sb, &counts);
}

/* Write the records before anchoring them: the anchor must never be ahead of the file. */
static void anchor(struct gw_sandbox *sb)
{
	struct gw_msg msg = { .type = GW_MSG_ANCHOR, .id = sb->link.id };

	if (sb->anchored == sb->log.seq)
		return;
	sb->anchored = sb->log.seq;
	gw_sandbox_stats(sb, &msg.stats);
	gw_send(sb->gw, &msg);
}

static void on_tick(evutil_socket_t fd, short what, void *ctx)
{
	struct gw *gw = ctx;

	fw_log_read(gw->fw_log, LOG_BUDGET); /* read individual denials before computing how many are missing */
	for (size_t id = 0; id < gw->n_ids; id++) {
		if (!gw->by_id[id])
			continue;
		write_sums(gw->by_id[id]);
		anchor(gw->by_id[id]);
	}
}

static void on_control(evutil_socket_t fd, short what, void *ctx)
{
	gw_control_readable(ctx);
}

/* ---- start ---- */

static int start_rules(struct gw *gw, const struct gw_first *first, int fds[static GWNS_FD_NUM], struct ak_err *err)
{
	struct fw_log_hooks hooks = { .ctx = gw, .on_denial = on_denial, .on_loss = on_loss };
	struct fw_link link;
	int rc;

	rc = fw_new(TAKE_FD(fds[GWNS_NFNL]), &gw->fw, err);
	if (rc == 0)
		rc = fw_log_new(TAKE_FD(fds[GWNS_NFLOG]), &hooks, &gw->fw_log, err);
	if (rc == 0 && first) {
		gw_fw_link(&first->link, gw->ipv6_link, &link);
		rc = fw_install_one(gw->fw, &link, first->policy, err);
	} else if (rc == 0) {
		rc = fw_base_install(gw->fw, err);
	}
	return rc < 0 ? ak_err_prefix(err, rc, "nftables") : 0;
}

static int start_dns(struct gw *gw, const struct gw_conf *conf, int fds[static GWNS_FD_NUM], struct ak_err *err)
{
	struct dns_hooks hooks = { .ctx = gw, .client_of = client_of, .learn = learn, .event = on_dns_event, .ready = dns_ready };
	struct dns_upstream_conf upstream = { .servers_csv = conf->servers, .ipv6 = conf->ipv6 };
	struct dns_sockets socks = {
		.udp4 = TAKE_FD(fds[GWNS_DNS_UDP4]),
		.tcp4 = TAKE_FD(fds[GWNS_DNS_TCP4]),
		.udp6 = TAKE_FD(fds[GWNS_DNS_UDP6]),
		.tcp6 = TAKE_FD(fds[GWNS_DNS_TCP6]),
	};
	int rc = dns_proxy_new(gw->base, &socks, &hooks, &upstream, &gw->dns, err);

	return rc < 0 ? ak_err_prefix(err, rc, "DNS proxy") : 0;
}

static int start_relay(struct gw *gw, int fds[static GWNS_FD_NUM], struct ak_err *err)
{
	struct relay_hooks hooks = {
		.ctx = gw, .sandbox_of = sandbox_of, .event = on_flow_event, .keep = keep_element, .ready = flow_ready
	};
	struct relay_conf conf = { 0 };
	struct relay_sockets socks = {
		.tcp4 = TAKE_FD(fds[GWNS_RELAY_TCP4]),
		.tcp6 = TAKE_FD(fds[GWNS_RELAY_TCP6]),
		.udp4 = TAKE_FD(fds[GWNS_RELAY_UDP4]),
		.udp6 = TAKE_FD(fds[GWNS_RELAY_UDP6]),
		.raw4 = TAKE_FD(fds[GWNS_RAW4]),
		.raw6 = TAKE_FD(fds[GWNS_RAW6]),
	};
	int rc = relay_new(gw->base, &socks, &hooks, &conf, &gw->relay, err);

	return rc < 0 ? ak_err_prefix(err, rc, "relay") : 0;
}

static int start_events(struct gw *gw, struct ak_err *err)
{
	gw->on_control = event_new(gw->base, gw->control, EV_READ | EV_PERSIST, on_control, gw);
	gw->on_log = event_new(gw->base, fw_log_fd(gw->fw_log), EV_READ | EV_PERSIST, on_log_readable, gw);
	gw->on_tick = evtimer_new(gw->base, on_tick, gw);
	if (!gw->on_control || !gw->on_log || !gw->on_tick || event_add(gw->on_control, NULL) < 0 ||
		event_add(gw->on_log, NULL) < 0)
		return ak_fail(err, ENOMEM, "event loop: out of memory");
	return 0;
}

/* One thread, and descriptors that live longer than one loop iteration: skip the system calls that are only needed otherwise. */
static struct event_base *new_base(void)
{
	struct event_config *cfg = event_config_new();
	struct event_base *base;

	if (!cfg)
		return NULL;
	event_config_set_flag(cfg, EVENT_BASE_FLAG_NOLOCK | EVENT_BASE_FLAG_IGNORE_ENV | EVENT_BASE_FLAG_EPOLL_USE_CHANGELIST);
	base = event_base_new_with_config(cfg);
	event_config_free(cfg);
	return base;
}

static int start_services(struct gw *gw, const struct gw_conf *conf, int fds[static GWNS_FD_NUM], struct ak_err *err)
{
	int rc = start_rules(gw, conf->first, fds, err);

	if (rc == 0)
		rc = start_dns(gw, conf, fds, err);
	if (rc == 0)
		rc = start_relay(gw, fds, err);
	return rc < 0 ? rc : start_events(gw, err);
}

/* The sandbox of a `run`: its rules were installed with the table, and its link is set up last. */
static int start_first(struct gw *gw, const struct gw_first *first, struct gw_sandbox **ret, struct ak_err *err)
{
	int rc = gw_sandbox_new(gw, first->name, &first->link, first->policy, 1, first->log_fd, &first->log, ret, err);

	return rc < 0 ? rc : gw_sandbox_serve(*ret, err);
}

static int start(struct gw *gw, const struct gw_conf *conf, struct ak_err *err)
{
	int fds[GWNS_FD_NUM], peer_rtnl, rc;
	struct gw_sandbox *sb = NULL;

	/* Do everything that does not need the setup child while it works. */
	gw->base = new_base();
	if (!gw->base)
		return ak_fail(err, ENOMEM, "event loop");
	rc = conf->first ? gwns_sockets_receive(conf->first->net_sock, fds, err) : 0;
	if (rc < 0)
		return rc;
	if (!conf->first)
		memcpy(fds, conf->fds, sizeof(fds));
	gw->ipv6_link = fds[GWNS_RAW6] >= 0;
	gw->rtnl = fds[GWNS_RTNL];
	peer_rtnl = fds[GWNS_PEER_RTNL];
	rc = start_services(gw, conf, fds, err);
	if (rc == 0 && conf->first)
		rc = start_first(gw, conf->first, &sb, err);
	if (rc == 0)
		rc = confine_apply(err);
	if (rc == 0 && sb)
		rc = gwns_link_up(gw->rtnl, peer_rtnl, &sb->link, gw->ipv6_link, err);
	if (rc == 0 && sb)
		gw_record_edge(sb, "start");
	return rc;
}

/* ---- process ---- */

/* Close the supervisor's descriptors, except those passed to the gateway. */
static void close_others(const struct gw_conf *conf)
{
	int keep[GWNS_FD_NUM + 3], n = 0;

	keep[n++] = conf->control;
	if (conf->first) {
		keep[n++] = conf->first->net_sock;
		keep[n++] = conf->first->log_fd;
	}
	for (int i = 0; !conf->first && i < GWNS_FD_NUM; i++)
		keep[n++] = conf->fds[i];
	ak_close_others(keep, (size_t)n);
}

/*
 * The gateway runs briefly and others wait for it. A short time slice lets it run sooner next to busy sandboxes, without
 * giving it more CPU time. Linux 6.12 and later; no effect before.
 */
static void ask_for_short_slices(void)
{
	struct {
		uint32_t size, policy;
		uint64_t flags;
		int32_t nice;
		uint32_t priority;
		uint64_t slice_ns, deadline, period;
	} attr = { .size = sizeof(attr), .flags = KEEP_POLICY, .nice = getpriority(PRIO_PROCESS, 0), .slice_ns = SLICE_NS };

	/* Fails, correctly, if someone gave us a real-time priority. */
	(void)syscall(SYS_sched_setattr, 0, &attr, 0);
}

static int gw_process(const struct gw_conf *conf)
{
	struct gw gw = { .control = conf->control, .rtnl = -1 };
	struct gw_msg msg = { .type = GW_MSG_READY };
	struct ak_err err = { .text = "" };

	close_others(conf);
	ask_for_short_slices();
	if (start(&gw, conf, &err) < 0) {
		msg.type = GW_MSG_FAILED;
		memcpy(msg.text, err.text, sizeof(err.text));
		gw_send(&gw, &msg);
		return 1;
	}
	ak_set_nonblock(gw.control, true);
	gw_send(&gw, &msg);
	event_base_dispatch(gw.base);
	/* The process exits and the kernel frees everything: doing it by hand would only cost time. */
	return 0;
}

int gw_spawn(const struct gw_conf *conf, pid_t *ret, struct ak_err *err)
{
	pid_t parent = getpid(), pid;
	sigset_t none;
	int rc = sabotage_check(err);

	if (rc < 0)
		return rc;
	pid = fork();
	if (pid < 0)
		return ak_fail_errno(err, errno, "gateway process");
	if (pid > 0) {
		*ret = pid;
		return 0;
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	setsid(); /* Ctrl-C is meant for the command */
	prctl(PR_SET_NAME, "ak-gateway");
	ak_title_set("agentkernel gateway%s%s", conf->first ? " " : "", conf->first ? conf->first->name : "");
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN); /* a full log is reported as loss; it must not kill the gateway */
	_exit(gw_process(conf));
}
