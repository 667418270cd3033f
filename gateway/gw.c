/*
 * The gateway process: see gw.h.
 *
 * Order of a start (invariant 1): sockets arrive → rules acknowledged → DNS and relay listen → confined → link up → READY.
 * Order of an end: processes dead → flows ended → what the kernel still has to say → last record → STATS → exit.
 * Any failure on the way says FAILED with its reason and exits: the namespace goes, and the link with it.
 */
#include "gateway/gw_internal.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/confine.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define LEARN_GRACE_S 30 /* a client may connect this much later than its DNS reply expires */
#define LEARN_PORTS_MAX 32
#define TICK_MS 1000
#define LOG_BUDGET 256

static struct gw_sandbox *sandbox_by_addr(struct gw *gw, const struct ak_addr *src)
{
	struct gw_sandbox *sb = gw->sandbox;

	if (sb && (ak_addr_eq(src, &sb->link.addr4) || ak_addr_eq(src, &sb->link.addr6)))
		return sb;
	return NULL;
}

static struct gw_sandbox *sandbox_by_id(struct gw *gw, uint32_t id)
{
	return gw->sandbox && gw->sandbox->link.id == id ? gw->sandbox : NULL;
}

static void send_msg(struct gw *gw, struct gw_msg *msg)
{
	(void)ak_send_fds(gw->control, msg, sizeof(*msg), NULL, 0);
}

/* After any record: ask for a fresh file once the present one has grown enough. */
static void check_log_size(struct gw_sandbox *sb)
{
	struct gw_msg msg = { .type = GW_MSG_LOG_FULL };

	if (sb->log_wanted || !audit_writer_full(&sb->log))
		return;
	sb->log_wanted = true;
	send_msg(sb->gw, &msg);
}

static void arm_tick(struct gw *gw)
{
	static const struct timeval delay = { TICK_MS / 1000, TICK_MS % 1000 * 1000 };

	if (!evtimer_pending(gw->on_tick, NULL))
		evtimer_add(gw->on_tick, &delay);
}

/* ---- hooks of the DNS proxy ---- */

static struct dns_client *client_of(void *ctx, unsigned ifindex, const struct ak_addr *src)
{
	struct gw_sandbox *sb = sandbox_by_addr(ctx, src);

	(void)ifindex; /* the rules have tied the source address to the link */
	return sb ? sb->dns : NULL;
}

/* Elements for every address and port of the answer; nothing in a default-allow policy. */
static size_t learn_elems(const struct gw_sandbox *sb, const struct dns_answer *answer, struct fw_elem *elems)
{
	struct policy_port ports[LEARN_PORTS_MAX];
	size_t n_ports = policy_name_ports(sb->policy, answer->name, ports, LEARN_PORTS_MAX), n = 0;

	for (size_t i = 0; i < answer->n_addrs; i++) {
		for (size_t j = 0; j < n_ports; j++) {
			elems[n++] = (struct fw_elem){
				.addr = answer->addrs[i],
				.proto = ports[j].proto,
				.port = ports[j].port,
				.timeout_s = answer->ttl_s + LEARN_GRACE_S,
			};
		}
	}
	return n;
}

static int learn(void *ctx, uint32_t id, const struct dns_answer *answer)
{
	struct gw *gw = ctx;
	struct gw_sandbox *sb = sandbox_by_id(gw, id);
	struct fw_elem elems[DNS_ANSWER_MAX * LEARN_PORTS_MAX];
	struct learned_name *name;
	struct ak_err err;
	size_t n;
	int rc;

	if (!sb || answer->n_addrs > DNS_ANSWER_MAX)
		return -EINVAL;
	n = learn_elems(sb, answer, elems);
	rc = n > 0 ? fw_learn(gw->fw, id, elems, n, &err) : 0;
	if (rc < 0)
		return rc;
	name = learned_name_new(answer->name, answer->cname, answer->n_cname, answer->addrs, answer->n_addrs, answer->ttl_s);
	if (!name)
		return -ENOMEM;
	rc = learned_add(sb->learned, name, ak_now_ms(), (answer->ttl_s + LEARN_GRACE_S) * 1000ull);
	learned_name_unref(name);
	return rc;
}

static void on_dns_event(void *ctx, uint32_t id, const struct dns_event *event)
{
	struct gw_sandbox *sb = sandbox_by_id(ctx, id);

	if (!sb)
		return;
	gw_record_dns(sb, event);
	check_log_size(sb);
}

/* ---- hooks of the relay ---- */

static struct relay_sandbox *sandbox_of(void *ctx, const struct ak_addr *src)
{
	struct gw_sandbox *sb = sandbox_by_addr(ctx, src);

	return sb ? &sb->relay : NULL;
}

static void on_flow_event(void *ctx, struct relay_sandbox *rs, const struct relay_event *event)
{
	struct gw_sandbox *sb = sandbox_by_id(ctx, rs->id);

	if (!sb)
		return;
	gw_record_flow(sb, event);
	check_log_size(sb);
}

/* ---- what the kernel refused ---- */

static void on_denial(void *ctx, const struct fw_denial *denial)
{
	struct gw *gw = ctx;
	struct gw_sandbox *sb = sandbox_by_id(gw, denial->id);

	if (!sb)
		return;
	gw_record_denial(sb, denial);
	check_log_size(sb);
	arm_tick(gw);
}

static void on_loss(void *ctx)
{
	arm_tick(ctx); /* the counters know how many there were */
}

static void on_log_readable(evutil_socket_t fd, short what, void *ctx)
{
	struct gw *gw = ctx;

	(void)fd;
	(void)what;
	fw_log_read(gw->fw_log, LOG_BUDGET);
}

static void write_suppressed(struct gw *gw)
{
	struct gw_sandbox *sb = gw->sandbox;
	struct fw_counts counts;
	struct ak_err err;

	if (sb && fw_sandbox_counts(gw->fw, sb->link.id, &counts, &err) == 0)
		gw_record_suppressed(sb, &counts);
}

static void on_tick(evutil_socket_t fd, short what, void *ctx)
{
	struct gw *gw = ctx;

	(void)fd;
	(void)what;
	fw_log_read(gw->fw_log, LOG_BUDGET); /* first what came one by one, then what is missing */
	write_suppressed(gw);
}

/* ---- talk with the supervisor ---- */

static void stop(struct gw *gw)
{
	struct gw_sandbox *sb = gw->sandbox;
	struct gw_msg msg = { .type = GW_MSG_STATS };

	/* The sandbox's processes are dead; its link goes with the namespaces. Deleting it by hand would wait 20 ms for the kernel. */
	relay_sandbox_close(gw->relay, &sb->relay);
	while (fw_log_read(gw->fw_log, LOG_BUDGET) == LOG_BUDGET)
		continue;
	write_suppressed(gw);
	gw_record_edge(sb, "end");
	msg.stats.allowed = sb->allowed;
	msg.stats.denied = sb->denied;
	msg.stats.records = sb->log.seq;
	msg.stats.lost = sb->log.lost_total;
	memcpy(msg.stats.hash, sb->log.prev, sizeof(msg.stats.hash));
	send_msg(gw, &msg);
	event_base_loopbreak(gw->base);
}

static void set_upstream(struct gw *gw, const struct gw_msg *msg)
{
	struct dns_upstream_conf conf = { .servers_csv = msg->text, .ipv6 = msg->ipv6 != 0 };
	struct ak_err err;

	(void)dns_proxy_set_upstream(gw->dns, &conf, &err);
}

static void on_control(evutil_socket_t fd, short what, void *ctx)
{
	struct gw *gw = ctx;
	struct gw_msg msg;
	int log_fd = -1;
	size_t n_fds = 1;
	ssize_t n = ak_recv_fds(fd, &msg, sizeof(msg), &log_fd, &n_fds);

	(void)what;
	if (n == -EAGAIN)
		return;
	if (n != sizeof(msg)) { /* the supervisor is gone, so must we be */
		event_base_loopbreak(gw->base);
		return;
	}
	msg.text[GW_TEXT_MAX - 1] = '\0';
	if (msg.type == GW_MSG_UPSTREAM) {
		set_upstream(gw, &msg);
	} else if (msg.type == GW_MSG_LOG_FD && n_fds == 1) {
		audit_writer_swap(&gw->sandbox->log, log_fd);
		gw->sandbox->log_wanted = false;
		log_fd = -1;
	} else if (msg.type == GW_MSG_STOP) {
		stop(gw);
	}
	if (n_fds == 1)
		ak_close(log_fd);
}

/* ---- start ---- */

static int receive_sockets(int sock, int fds[static GWNS_FD_NUM], struct ak_err *err)
{
	uint32_t mask = 0;
	int got[AK_FDS_MAX];
	size_t n_got = AK_FDS_MAX, at = 0;
	ssize_t n = ak_recv_fds(sock, &mask, sizeof(mask), got, &n_got);

	if (n == 0)
		return ak_fail(err, EPIPE, "the setup process ended before it sent the gateway's sockets");
	if (n != sizeof(mask) || (size_t)__builtin_popcount(mask) != n_got)
		return ak_fail(err, EPROTO, "bad message from the setup process");
	for (int i = 0; i < GWNS_FD_NUM; i++)
		fds[i] = mask & 1u << i ? got[at++] : -1;
	return 0;
}

static void fw_link_of(const struct gwns_link *l, bool ipv6, struct fw_link *ret)
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

static int start_rules(struct gw *gw, const struct gw_conf *conf, int fds[static GWNS_FD_NUM], struct ak_err *err)
{
	struct fw_log_hooks hooks = { .ctx = gw, .on_denial = on_denial, .on_loss = on_loss };
	struct fw_link link;
	int rc;

	fw_link_of(&conf->link, gw->ipv6_link, &link);
	rc = fw_new(TAKE_FD(fds[GWNS_NFNL]), &gw->fw, err);
	if (rc == 0)
		rc = fw_log_new(TAKE_FD(fds[GWNS_NFLOG]), &hooks, &gw->fw_log, err);
	if (rc == 0)
		rc = fw_install_one(gw->fw, &link, conf->policy, err);
	return rc < 0 ? ak_err_prefix(err, rc, "nftables") : 0;
}

static int start_dns(struct gw *gw, const struct gw_conf *conf, int fds[static GWNS_FD_NUM], struct ak_err *err)
{
	struct dns_hooks hooks = { .ctx = gw, .client_of = client_of, .learn = learn, .event = on_dns_event };
	struct dns_upstream_conf upstream = { .servers_csv = conf->servers, .ipv6 = conf->ipv6 };
	struct dns_sockets socks = {
		.udp4 = TAKE_FD(fds[GWNS_DNS_UDP4]),
		.tcp4 = TAKE_FD(fds[GWNS_DNS_TCP4]),
		.udp6 = TAKE_FD(fds[GWNS_DNS_UDP6]),
		.tcp6 = TAKE_FD(fds[GWNS_DNS_TCP6]),
	};
	struct ak_addr none = { 0 };
	struct gw_sandbox *sb = gw->sandbox;
	int rc = dns_proxy_new(gw->base, &socks, &hooks, &upstream, &gw->dns, err);

	if (rc < 0)
		return ak_err_prefix(err, rc, "DNS proxy");
	rc = dns_client_new(gw->dns, sb->link.id, sb->policy, &sb->link.gw4, gw->ipv6_link ? &sb->link.gw6 : &none, &sb->dns);
	return rc < 0 ? ak_fail_errno(err, -rc, "DNS proxy") : 0;
}

static int start_relay(struct gw *gw, int fds[static GWNS_FD_NUM], struct ak_err *err)
{
	struct relay_hooks hooks = { .ctx = gw, .sandbox_of = sandbox_of, .event = on_flow_event };
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

	if (rc < 0)
		return ak_err_prefix(err, rc, "relay");
	relay_sandbox_open(gw->relay, &gw->sandbox->relay);
	return 0;
}

static int start_sandbox(struct gw *gw, const struct gw_conf *conf, struct ak_err *err)
{
	struct gw_sandbox *sb = calloc(1, sizeof(*sb));
	int rc;

	if (!sb)
		return ak_fail(err, ENOMEM, "out of memory");
	gw->sandbox = sb;
	sb->gw = gw;
	sb->name = conf->sandbox;
	sb->link = conf->link;
	sb->policy = policy_ref(conf->policy);
	sb->generation = 1;
	audit_writer_init(&sb->log, conf->log_fd, 0, NULL, 0);
	rc = learned_new(&sb->learned);
	if (rc < 0)
		return ak_fail_errno(err, -rc, "learned addresses");
	sb->relay = (struct relay_sandbox){
		.id = sb->link.id,
		.policy = sb->policy,
		.generation = sb->generation,
		.learned = sb->learned,
		.addr4 = sb->link.addr4,
		.addr6 = sb->link.addr6,
		.gw4 = sb->link.gw4,
		.gw6 = sb->link.gw6,
	};
	return 0;
}

static int start_events(struct gw *gw, struct ak_err *err)
{
	gw->on_control = event_new(gw->base, gw->control, EV_READ | EV_PERSIST, on_control, gw);
	gw->on_log = event_new(gw->base, fw_log_fd(gw->fw_log), EV_READ | EV_PERSIST, on_log_readable, gw);
	gw->on_tick = evtimer_new(gw->base, on_tick, gw);
	if (!gw->on_control || !gw->on_log || !gw->on_tick || event_add(gw->on_control, NULL) < 0 || event_add(gw->on_log, NULL) < 0)
		return ak_fail(err, ENOMEM, "event loop: out of memory");
	return 0;
}

/* The time-stamp counter behind clock_gettime is good enough: one system call less for each event. */
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

static int start(struct gw *gw, const struct gw_conf *conf, struct ak_err *err)
{
	int fds[GWNS_FD_NUM], rc;
	struct confine *confine = NULL;

	/* What needs nothing from the setup child is done while it works. */
	gw->base = new_base();
	if (!gw->base)
		return ak_fail(err, ENOMEM, "event loop");
	rc = confine_prepare(&confine, err);
	if (rc == 0)
		rc = start_sandbox(gw, conf, err);
	if (rc == 0)
		rc = receive_sockets(conf->net_sock, fds, err);
	if (rc < 0)
		return rc;
	gw->ipv6_link = fds[GWNS_RAW6] >= 0;
	gw->rtnl = fds[GWNS_RTNL];
	gw->peer_rtnl = fds[GWNS_PEER_RTNL];
	rc = start_rules(gw, conf, fds, err);
	if (rc == 0)
		rc = start_dns(gw, conf, fds, err);
	if (rc == 0)
		rc = start_relay(gw, fds, err);
	if (rc == 0)
		rc = start_events(gw, err);
	if (rc == 0)
		rc = confine_apply(confine, err);
	if (rc == 0)
		rc = gwns_link_up(gw->rtnl, gw->peer_rtnl, &conf->link, gw->ipv6_link, err);
	return rc;
}

/* Nothing of the supervisor's stays open here but what the gateway was given. */
static void close_others(const struct gw_conf *conf)
{
	int keep[] = { conf->net_sock, conf->control, conf->log_fd };
	int null = open("/dev/null", O_RDWR);

	for (int fd = 0; fd < 3 && null >= 0; fd++)
		dup2(null, fd);
	/* Sort three numbers, then close the gaps. */
	for (int i = 0; i < 2; i++) {
		for (int j = 0; j < 2 - i; j++) {
			if (keep[j] > keep[j + 1]) {
				int t = keep[j];

				keep[j] = keep[j + 1];
				keep[j + 1] = t;
			}
		}
	}
	unsigned from = 3;

	for (size_t i = 0; i < ARRAY_SIZE(keep); i++) {
		if (keep[i] < (int)from)
			continue;
		if (keep[i] > (int)from)
			close_range(from, (unsigned)keep[i] - 1, 0);
		from = (unsigned)keep[i] + 1;
	}
	close_range(from, ~0u, 0);
}

/* Many flows need many descriptors: two sockets and two pipes each. */
static void raise_descriptor_limit(void)
{
	struct rlimit lim;

	if (getrlimit(RLIMIT_NOFILE, &lim) == 0 && lim.rlim_cur < lim.rlim_max) {
		lim.rlim_cur = lim.rlim_max;
		setrlimit(RLIMIT_NOFILE, &lim);
	}
}

static int gw_process(const struct gw_conf *conf)
{
	struct gw gw = { .control = conf->control, .rtnl = -1, .peer_rtnl = -1 };
	struct gw_msg msg = { .type = GW_MSG_READY };
	struct ak_err err = { .text = "" };

	close_others(conf);
	raise_descriptor_limit();
	if (start(&gw, conf, &err) < 0) {
		msg.type = GW_MSG_FAILED;
		memcpy(msg.text, err.text, sizeof(err.text));
		send_msg(&gw, &msg);
		return 1;
	}
	gw_record_edge(gw.sandbox, "start");
	ak_set_nonblock(gw.control, true);
	send_msg(&gw, &msg);
	event_base_dispatch(gw.base);
	/* The process ends here and the kernel frees everything: taking it apart by hand would only take time. */
	return 0;
}

int gw_spawn(const struct gw_conf *conf, pid_t *ret, struct ak_err *err)
{
	pid_t parent = getpid(), pid = fork();
	sigset_t none;

	if (pid < 0)
		return ak_fail_errno(err, errno, "gateway process");
	if (pid > 0) {
		*ret = pid;
		return 0;
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	setsid(); /* Ctrl-C is for the command */
	prctl(PR_SET_NAME, "ak-gateway");
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN); /* a full log is counted loss, not the end */
	_exit(gw_process(conf));
}
