"""Load: a hundred sandboxes in one gateway resolve and connect at once while one more floods. The quiet ones' p99 stays within twice its value without the flood, and the log lacks nothing but what it counts.
Windows with and without the flood take turns, so that what else the machine does falls on both; of the pairs of neighbours the middle one counts. The time in which
client, gateway or server waited for a processor does not: see latency.py."""
import statistics
import time

import pytest
from expect import INSIDE, NOT_LEARNED, compile_c, denied, find
from lab import PYTHON
from latency import inits

QUIET = 100
WINDOWS, WINDOW_S, PERIOD_MS = 19, 1.2, 300  # the first one, in which all of them learn the address, is not counted
UNFELT_MS = 10  # twice that is what a flood next door may cost, see g10

CLIENT = r"""
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static double now(void) { struct timespec t; clock_gettime(CLOCK_REALTIME, &t); return t.tv_sec + t.tv_nsec / 1e9; }
static void until(double t) { double d = t - now(); if (d > 0) usleep(d * 1e6); }

/* How long these processes have waited for a processor, in seconds. */
static int stats[3], n_stats;
static double queued(void)
{
	double sum = 0;

	for (int i = 0; i < n_stats; i++) {
		unsigned long long ran, waited = 0;
		char text[100] = "";
		if (pread(stats[i], text, sizeof(text) - 1, 0) > 0)
			sscanf(text, "%llu %llu", &ran, &waited);
		sum += waited / 1e9;
	}
	return sum;
}

static size_t question(unsigned char *q, unsigned id, const char *name)
{
	static const unsigned char head[] = { 1, 0, 0, 1, 0, 0, 0, 0, 0, 0 };
	size_t n = 12;

	q[0] = id >> 8, q[1] = id;
	memcpy(q + 2, head, 10);
	while (*name) {
		size_t len = strcspn(name, ".");
		q[n++] = len;
		memcpy(q + n, name, len);
		n += len;
		name += len + (name[len] == '.');
	}
	memcpy(q + n, "\0\0\1\0\1", 5);
	return n + 5;
}

/* One question and one connection, as a program would; milliseconds, negative when it failed. */
static double once(int u, unsigned id)
{
	struct sockaddr_in sa = { .sin_family = AF_INET, .sin_port = htons(7) };
	unsigned char q[300], r[600];
	double t = now(), waited = queued();
	ssize_t n;

	if (send(u, q, question(q, id, "ok.test"), 0) < 0)
		return -1;
	do n = recv(u, r, sizeof(r), 0); while (n > 2 && (r[0] << 8 | r[1]) != (id & 0xffff));
	if (n < 16 || (r[3] & 15) || !r[7])
		return -2;
	memcpy(&sa.sin_addr, r + n - 4, 4);
	int s = socket(AF_INET, SOCK_STREAM, 0);
	struct timeval tv = { 5 };
	setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
	setsockopt(s, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv));
	n = connect(s, (void *)&sa, sizeof(sa)) ? -3 : send(s, "x", 1, MSG_NOSIGNAL) != 1 ? -4 : recv(s, r, 1, 0) != 1 ? -5 : 0;
	close(s);
	t = now() - t - (queued() - waited);
	return n < 0 ? n : t < 0 ? 0 : t * 1e3;
}

static void flood(int u, double end)
{
	struct sockaddr_in evil = { .sin_family = AF_INET, .sin_port = htons(443) };
	unsigned char q[300], r[600];
	char name[64];
	static long n;
	long from = n;

	inet_pton(AF_INET, "11.66.0.1", &evil.sin_addr);
	while (now() < end) {
		for (int i = 0; i < 20; i++, n++) {
			snprintf(name, sizeof(name), "d%ld.evil.test", n);
			send(u, q, question(q, n, n % 2 ? name : "ok.test"), MSG_DONTWAIT);
			while (recv(u, r, sizeof(r), MSG_DONTWAIT) > 0)
				;
		}
		int s = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
		evil.sin_port = htons(1 + n % 60000);
		connect(s, (void *)&evil, sizeof(evil));
		close(s);
		s = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);
		sendto(s, "x", 1, 0, (void *)&evil, sizeof(evil));
		close(s);
	}
	printf("%ld\n", n - from);
}

int main(int argc, char **argv)
{
	double start, window = atof(argv[2]), period = atof(argv[3]) / 1e3, phase = atof(argv[4]);
	struct sockaddr_in gw = { .sin_family = AF_INET, .sin_port = htons(53) };
	struct timeval tv = { 5 };
	unsigned id = 0;
	int u = socket(AF_INET, SOCK_DGRAM, 0);

	inet_pton(AF_INET, argv[1], &gw.sin_addr);
	for (int i = 6; i < argc; i++) {
		stats[n_stats] = open(argv[i], O_RDONLY);
		if (stats[n_stats++] < 0)
			return perror(argv[i]), 1;
	}
	puts("up");
	fflush(stdout);
	if (scanf("%lf", &start) != 1)
		return 1;
	connect(u, (void *)&gw, sizeof(gw));
	setsockopt(u, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
	for (int w = 0; w < atoi(argv[5]); w++, start += window) {
		if (phase < 0 && w && w % 2 == 0) {
			until(start);
			flood(u, start + window);
		}
		/* After the first tenth, when the flood has begun or its last packets are gone. */
		for (double at = start + 0.1 * window + phase * period; phase >= 0 && at < start + window - 0.1; at += period) {
			until(at);
			printf("%d %.3f\n", w, once(u, ++id)); /* odd: calm */
		}
	}
	return 0;
}
"""


def p99(values):
    values = sorted(values)
    return values[max(0, int(len(values) * 0.99) - 1)]


def start_all(boxes, names):
    """Defined and started a few at a time: starting is not what is measured."""
    def one(name):
        boxes.create(name, "--compatibility-mode", "codex", "--dir", boxes.lab.path("project"), "--allow-host", "ok.test:7")
        boxes.ak("start", name)
    for name in names:
        one(name)


def measure(boxes, names, tool):
    """The quiet ones' programs are not in the sandboxes but in their networks, where they see how long the gateway and the server waited for a processor."""
    lab = boxes.lab
    lab.clear()
    stats = ["/proc/%s/schedstat" % who for who in (boxes.status()["gateway"]["pid"], lab.info["inet_pid"], "self")]
    procs, pids = [], inits(lab)
    for i, name in enumerate(names):
        namespace, server = boxes.sh(name, "readlink /proc/self/ns/net; sed -n 's/^nameserver //p' /etc/resolv.conf").split()[:2]
        args = [tool, server, str(WINDOW_S), str(PERIOD_MS), "-1" if name == "loud" else "%.4f" % (i / QUIET), str(WINDOWS)]
        if name == "loud":
            procs.append(lab.spawn([lab.binary, "exec", name, *args], env=lab.env(), stdin="pipe"))
        else:
            procs.append(lab.spawn([PYTHON, INSIDE, "sandbox", pids[namespace], *args, *stats], who="root", cwd="/", stdin="pipe"))
    for proc in procs:
        proc.wait_output(b"up\n")
    begin = time.time() + 0.1
    for proc in procs:
        proc.write(b"%.3f\n" % begin)
    results = [proc.wait(60) for proc in procs]
    for proc in procs:
        proc.close_stdin()
    flood = results[names.index("loud")]
    rows = [line.split() for name, r in zip(names, results) if name != "loud" for line in r.out.splitlines()[1:]]
    times = [[float(ms) for w, ms in rows if int(w) == window] for window in range(1, WINDOWS)]
    return times, sum(map(int, flood.out.split()[1:])), results


@pytest.mark.xdist_group("load")
def test_load_a_hundred_sandboxes_beside_a_flood(boxes):
    lab = boxes.lab
    lab.dns.set("ok.test", A="11.1.0.5", ttl=300)
    tool = compile_c(lab, CLIENT, "load", static=True)
    names = ["q%d" % i for i in range(QUIET)] + ["loud"]
    start_all(boxes, names)
    windows, flooded, results = measure(boxes, names, tool)
    assert all(len(window) > QUIET for window in windows), [len(window) for window in windows]
    failed = [t for window in windows for t in window if t < 0]
    assert not failed, (len(failed), failed[:10])
    assert flooded > 5000, flooded
    pairs = [(p99(calm), p99(loud)) for calm, loud in zip(windows[::2], windows[1::2])]
    print("p99 in ms without the flood and beside it:", *["%.1f %.1f," % pair for pair in pairs], flooded, "questions flooded")
    assert statistics.median(loud / max(calm, UNFELT_MS) for calm, loud in pairs) <= 2, pairs
    assert lab.arrived("11.66.0.1") == 0
    check_logs(boxes, {name: len(r.out.splitlines()) - 1 for name, r in zip(names, results)})


def check_logs(boxes, made):
    """Each quiet one's log has its connections, one by one; the flood's has its refusals, in sums; the chains hold."""
    for name in ("q0", "q17", "q50", "q99"):
        log = boxes.netlog(name)
        flows = sum(r["count"] for r in find(log, event="flow", verdict="allow", port=7))
        lost = sum(r.get("count", 0) for r in find(log, event="loss"))
        assert flows + lost >= made[name], (name, flows, lost, made[name])
    log = boxes.netlog("loud")
    told = sum(r.get("count", 0) + r.get("suppressed", 0) for r in log if r["verdict"] == "deny")
    assert told > 1000, told
    denied(log, NOT_LEARNED, dst="11.66.0.1")
    assert boxes.lab.ak(["audit", "verify"]).code == 0


def test_load_fifty_runs_at_once(any_user):
    """`run` has a gateway each: all work, none disturbs another, nothing is left."""
    lab = any_user
    procs = [lab.start(["--compatibility-mode", "codex", "--allow-host", "ok.test", "--", "bash", "-c",
                        "getent ahostsv4 ok.test >/dev/null && echo resolved; : 2>/dev/null >/dev/tcp/11.1.0.5/443 && echo reached; : 2>/dev/null >/dev/tcp/11.66.0.1/443 && echo LEAK; true"]) for _ in range(50)]
    results = [proc.wait(90) for proc in procs]
    assert all(r.code == 0 and r.out == "resolved\nreached\n" for r in results), [r for r in results if r.out != "resolved\nreached\n"][:2]
    assert lab.arrived("11.66.0.1") == 0
    rows = lab.ak(["audit", "verify"])
    assert rows.code == 0, rows
