"""The bench's rows about the daemon: warm runs, commands in a running sandbox, many at once, and many sandboxes in one gateway."""
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import time

from rig import RigError
from row import Row

SANDBOXES = int(os.environ.get("AK_BENCH_SANDBOXES") or 1000)
CROWD, CROWD_WARM = 100, 100
CROWD_BEFORE = 3  # rounds that are not counted: until then each run makes a folder for its records, later they use those of the oldest ones again
STARTS = 8  # times the rounds
# On which core a process wakes the other decides most of how long an answer takes, and lasts for as long as both run; and the machine has better and
# worse moments. So many programs one after the other, in pairs that take turns every few milliseconds, now one and now the other first, and the
# percentile of all.
PAIRS, TURNS, QUESTIONS, CONNECTIONS = 8, 30, 25, 10  # pairs: times the rounds
HANG_PORT = 7001


class Daemon:
    """A daemon of the ordinary user's, with folders of its own, ended with everything in it."""

    def __init__(self, bench, name):
        self.bench, self.rig, self.ak = bench, bench.rig, bench.ak
        self.env = {"AGENTKERNEL_DATA_DIR": bench.data, "XDG_STATE_HOME": self.rig.mkdir("d", name, "state"),
                    "XDG_RUNTIME_DIR": self.rig.mkdir("d", name, "runtime")}
        os.chmod(self.env["XDG_RUNTIME_DIR"], 0o700)

    def __enter__(self):
        self.run("daemon", "start")
        return self

    def __exit__(self, *_):
        names = self.run("list", "-q").split()
        for i in range(0, len(names), 50):
            self.run("remove", "--force", *names[i:i + 50])
        self.run("daemon", "stop")

    def run(self, *args):
        return self.rig.run([self.ak, *args], env=self.env)

    def timed(self, *args):
        """Milliseconds."""
        began = time.monotonic()
        self.run(*args)
        return (time.monotonic() - began) * 1000

    def status(self):
        return json.loads(self.run("daemon", "status", "--json"))

    def pool(self, mode):
        return next(row for row in self.status()["pool"] if row["mode"] == mode)

    def gateway_kib(self):
        """Memory that is the gateway's alone."""
        with open("/proc/%d/smaps_rollup" % self.status()["gateway"]["pid"]) as f:
            rows = dict(line.split(":", 1) for line in f.read().splitlines()[1:])
        return sum(int(rows[key].split()[0]) for key in ("Private_Dirty", "Private_Clean"))

    def make(self, name):
        self.run("create", name, "--compatibility-mode", "codex", "--dir", self.rig.path("project"), "--allow-host", "echo.test:%d" % HANG_PORT)
        return name

    @contextlib.contextmanager
    def talking(self, name, *args):
        """The tool in a sandbox: a call gives it a line, and is the line that it answers."""
        p = self.rig.popen([self.ak, "exec", name, self.rig.path("project", "tool"), *args], env=self.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                           text=True)

        def turn():
            p.stdin.write("\n")
            p.stdin.flush()
            line = p.stdout.readline()
            if not line:
                raise RigError("%s in %s ended early" % (" ".join(args), name))
            return line
        try:
            yield turn
        finally:
            p.stdin.close()
            p.wait()
            p.stdout.close()


class DaemonRows:
    """What Bench gains."""

    BWRAP = ["bwrap", "--unshare-all", "--ro-bind", "/", "/", "true"]

    def warm(self):
        with contextlib.ExitStack() as stack:
            began = time.monotonic()
            d = stack.enter_context(Daemon(self, "warm"))
            d.run("daemon", "prewarm", "--mode", "codex")
            d.run("run", "--compatibility-mode", "codex", "true")
            first = (time.monotonic() - began) * 1000
            if d.pool("codex")["hits"] != 1:
                raise RigError("the first run was not a warm one")
            yield Row("daemon start, prewarm, first warm run", None, "-", first, None, "", "ms", note="three commands in a row")
            # Each run finds one that waits, and nothing is being built or taken down while it is timed.
            prepare = " ".join([self.ak, "daemon", "prewarm", "--mode", "codex", "--count", "2"])
            ours = ([self.ak, "run", "--compatibility-mode", "codex", "true"], 12, d.env, prepare)
            a, b = self.hyperfine_alternate(ours, (self.BWRAP, 12, {}))
            row = d.pool("codex")
            if row["misses"]:
                raise RigError("%d of %d runs found no warm sandbox" % (row["misses"], row["hits"] + row["misses"]))
            yield Row("warm run, codex mode", lambda r: r <= 1.3, "≤ 1.3×", a, b, "bwrap, no network", "ms", a / b, "%.2f×" % (a / b))
            d.make("x")
            d.run("start", "x")
            a, b = self.hyperfine_alternate(([self.ak, "exec", "x", "true"], 12, d.env), (self.BWRAP, 12, {}))
            yield Row("exec in a running sandbox", lambda r: r <= 0.6, "≤ 0.6×", a, b, "bwrap, no network", "ms", a / b, "%.2f×" % (a / b))

    def crowd(self):
        def row(what, env, before=lambda: None, note=lambda: "", goal=True):
            rates = []
            for i in range(CROWD_BEFORE + self.rounds):
                before()
                failed, seconds = map(float, self.rig.run([self.tool, "crowd", str(CROWD), self.ak, "run", "true"], env=env).split())
                if failed:
                    raise RigError("%s: %d of %d failed" % (what, failed, CROWD))
                if i >= CROWD_BEFORE:
                    rates.append(CROWD / seconds)
            rate = statistics.median(rates)
            return Row("%d runs at once, %s" % (CROWD, what), (lambda r: r >= 100) if goal else None, "≥ 100/s" if goal else "-", rate, None, "", "/s", rate,
                       "-", note())

        yield row("no daemon", {"AGENTKERNEL_DATA_DIR": self.data})
        with Daemon(self, "crowd") as d:
            hits = lambda: "hits {hits}, misses {misses}".format(**d.pool("native"))
            yield row("pool of 8", d.env, lambda: d.run("daemon", "prewarm", "--mode", "native", "--count", "8"), hits)
        with Daemon(self, "crowd") as d:
            yield row("pool of %d" % CROWD_WARM, d.env, lambda: d.run("daemon", "prewarm", "--mode", "native", "--count", str(CROWD_WARM)), hits)

    def thousand(self):
        self.dns_policy(["echo.test"])
        try:
            with Daemon(self, "one") as one, Daemon(self, "many") as many:
                yield from self._thousand(one, many)
        finally:
            shutil.rmtree(self.rig.path("config", "agentkernel"), ignore_errors=True)

    def p99_in_turns(self, a, b, args):
        """Microseconds, of what the tool does with ARGS in the two (daemon, sandbox)."""
        times = [], []
        for _ in range(PAIRS * self.rounds):
            with a[0].talking(a[1], *args) as turn_a, b[0].talking(b[1], *args) as turn_b:
                both = [(times[0], turn_a), (times[1], turn_b)]
                for _ in range(TURNS):
                    both.reverse()
                    for took, turn in both:
                        took += [int(ns) / 1000 for ns in turn().split()]
        return [sorted(took)[len(took) * 99 // 100] for took in times]

    def _thousand(self, one, many):
        for d in (one, many):
            d.run("start", d.make("s0"))
        idle = many.gateway_kib()
        n, why = 1, ""
        for n in range(1, SANDBOXES):
            try:
                many.run("start", many.make("s%d" % n))
            except RigError as e:
                n, why = n - 1, "; the machine gave no more: " + str(e)[-80:]
                break
        n += 1
        kib = (many.gateway_kib() - idle) / max(1, n - 1)
        for what, unit, args in (("DNS, p99", "µs", ("dnslat", str(QUESTIONS), "echo.test")),
                                 ("connect, p99", "µs", ("connect", "echo.test", str(HANG_PORT), str(CONNECTIONS)))):
            a, b = self.p99_in_turns((many, "s%d" % (n - 1)), (one, "s0"), args)
            yield Row("%s, %d sandboxes" % (what, n), lambda r: r <= 1.2, "≤ 1.2×", a, b, "one sandbox", unit, a / b, "%.2f×" % (a / b), "by turns" + why)
        yield Row("gateway memory a sandbox, of %d" % n, lambda r: r < 200, "< 200 KiB", kib, None, "", "KiB", kib, "-")
        times = {one: [], many: []}
        for d in times:
            d.make("probe")
        order = [one, many]
        for _ in range(STARTS * self.rounds):
            order.reverse()
            for d in order:
                times[d].append(d.timed("start", "probe"))
                d.run("stop", "probe")
        a, b = (statistics.median(times[d]) for d in (many, one))
        yield Row("start beside %d others" % n, lambda r: r <= 1.5, "≤ 1.5×", a, b, "beside one", "ms", a / b, "%.2f×" % (a / b), "by turns")
