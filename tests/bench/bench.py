#!/usr/bin/python3
"""What agentkernel costs, next to what people use today, in one run on one machine.

    bench.py [--only WORD] [--json FILE] [--strict] [--rounds N] [--realtime]

Every row alternates between ours and the peer and compares medians, so that a busy machine slows both; on a very busy one
--realtime (root only) keeps others off the processors while something is measured. --only takes a part of a group's name (start,
image, dns, relay, first, memory, policy, warm, crowd, thousand, agents, vm). The exit code is 0 unless --strict is given and a goal was missed.
"""
import argparse
import contextlib
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, HERE)
import rig as rigs  # noqa: E402
from daemon_rows import HANG_PORT, DaemonRows  # noqa: E402
from image_rows import ImageRows  # noqa: E402
from rig import DNS, ROUTER, WEB, RigError  # noqa: E402
from row import Row  # noqa: E402
from vm_rows import VmRows  # noqa: E402

sys.path.insert(0, os.path.join(os.path.dirname(HERE), "lab"))
from npm import AGENTS, NpmError, agents_folder  # noqa: E402

BINARY = os.path.abspath(os.environ.get("AK_BIN") or os.path.join(ROOT, "build", "agentkernel"))
DATA = os.path.abspath(os.environ.get("AGENTKERNEL_DATA_DIR") or ROOT)
BUILD = os.path.dirname(BINARY)
WORK = os.path.join(BUILD, "bench")

UNIQUE_NAMES, CACHED_NAMES, CACHED_REPEATS = 40000, 100, 1500
DNSPERF = ["dnsperf", "-T", "1", "-c", "8", "-q", "100", "-t", "5"]
START_TURNS, IPERF_SECONDS, CONNECTIONS = 3, 2, 300
ECHO_PORT, IPERF_PORT = 7000, 5201
# One table for both jobs of the router; the set is as large and as timed as ours.
NFT_DNS = "table inet bench { set learned { type ipv4_addr; flags timeout; timeout 1h; size 65536; }; }\n"
NFT_NAT = "table ip bench { chain post { type nat hook postrouting priority srcnat; oifname up0 masquerade; }; }\n"


def output_of(*argv):
    try:
        return subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True).stdout.strip()
    except OSError:
        return ""


def version_of(name, *argv):
    found = re.search(r"\d+(\.\d+)+", output_of(*argv))
    return "%s %s" % (name, found.group(0) if found else "?")


def cpu_seconds(pid):
    """Processor time of a process in user and kernel mode: what it cost, however busy the machine."""
    with open("/proc/%d/stat" % pid) as f:
        fields = f.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def expect(p, word):
    """What the program printed before the line WORD."""
    out = ""
    for line in p.stdout:
        if line == word + "\n":
            return out
        out += line
    raise RigError("the sandbox ended early: " + out[-200:])


def answer(p):
    p.stdin.write("\n")
    p.stdin.flush()


# ---- what is needed before the namespaces close ----

def work_folder():
    """build/bench, or a temporary folder where that cannot be written."""
    try:
        os.makedirs(WORK, exist_ok=True)
        if os.access(WORK, os.W_OK):
            return WORK, False
    except OSError:
        pass
    return tempfile.mkdtemp(prefix="akbench-work-"), True


def compile_c(source, target, *libs):
    flags = ["-O2", "-g", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-I" + ROOT]
    subprocess.run(["cc", *flags, "-o", target, os.path.join(HERE, source), *libs], check=True)
    return target


def get_srt(folder):
    """(folder of node modules, version, why not)."""
    tree = os.path.join(WORK, "srt") if os.path.isdir(os.path.join(WORK, "srt", "node_modules")) else os.path.join(folder, "srt")
    package = os.path.join(tree, "node_modules", "@anthropic-ai", "sandbox-runtime", "package.json")
    missing = [p for p in ("node", "bwrap", "socat", "rg") if not shutil.which(p)]
    if missing:
        return None, None, "needs " + ", ".join(missing)
    if not os.path.exists(package):
        if not shutil.which("npm"):
            return None, None, "needs npm"
        r = subprocess.run(["npm", "install", "--prefix", tree, "--no-audit", "--no-fund", "--loglevel=error", "--fetch-retries=1", "--fetch-timeout=20000",
                            "@anthropic-ai/sandbox-runtime"], stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if r.returncode != 0 or not os.path.exists(package):
            return None, None, "npm could not install it: " + (r.stderr.strip().split("\n")[0][:80] or "exit %d" % r.returncode)
    with open(package) as f:
        return tree, json.load(f)["version"], None


def get_agents():
    """(folder of the published agents, why not)."""
    try:
        return agents_folder(), None
    except NpmError as e:
        return None, " ".join(str(e).split())[:80]


# ---- the bench ----

class Bench(DaemonRows, ImageRows, VmRows):
    def __init__(self, rig, rounds, tool, srt, agents):
        self.rig, self.rounds = rig, rounds
        self.agents_tree, self.agents_why = agents
        self.srt_tree, self.srt_version, self.srt_why = srt
        self.tool = rig.bind(tool, "tool")
        self.ak = rig.bind(BINARY, "agentkernel")
        self.data = rig.mkdir("data")
        shutil.copytree(os.path.join(DATA, "policies"), os.path.join(self.data, "policies"))
        # The tool lies in the project too: nothing else of the machine is seen inside.
        shutil.copy(self.tool, rig.path("project", "tool"))
        rig.daemon([self.tool, "dnsd", DNS, "53"], 53, "udp", ns="inet")
        rig.daemon([self.tool, "echod", WEB, str(ECHO_PORT), "80", "443"], ECHO_PORT, ns="inet")
        rig.daemon([self.tool, "hangd", WEB, str(HANG_PORT)], HANG_PORT, ns="inet")

    def codex(self, *more):
        return [self.ak, "run", "--compatibility-mode", "codex", "--quiet", *more]

    def inside(self, *cmd, flags=()):
        return self.rig.run(self.codex(*flags, "--", *cmd), env={"AGENTKERNEL_DATA_DIR": self.data})

    @contextlib.contextmanager
    def talk(self, *cmd, flags=()):
        """A run whose command waits for us on its stdin."""
        p = self.rig.popen(self.codex(*flags, "--", *cmd), env={"AGENTKERNEL_DATA_DIR": self.data}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            yield p
        finally:
            p.stdin.close()
            p.stdout.close()
            p.wait()

    def gateway_pid(self):
        for pid in [p for p in os.listdir("/proc") if p.isdigit()]:
            with contextlib.suppress(OSError), open("/proc/%s/comm" % pid) as f:
                if f.read() == "ak-gateway\n":
                    return int(pid)
        raise RigError("no process named ak-gateway")

    def alternate(self, *measures):
        """Each measure once a round; the medians."""
        values = [[] for _ in measures]
        for _ in range(self.rounds):
            for i, measure in enumerate(measures):
                values[i].append(measure())
        return [statistics.median(v) for v in values]

    # ---- start ----

    def hyperfine(self, argv, runs, env, prepare=None):
        """Milliseconds of each of RUNS runs, with PREPARE before each."""
        out = self.rig.path("tmp", "hyperfine.json")
        more = ["--prepare", prepare] if prepare else []
        self.rig.run(["hyperfine", "-N", "--style", "none", "-w", "1", "-r", str(runs), *more, "--export-json", out, " ".join(argv)], env=env)
        with open(out) as f:
            return [t * 1000 for t in json.load(f)["results"][0]["times"]]

    def hyperfine_alternate(self, *measures):
        times = [[] for _ in measures]
        for _ in range(START_TURNS * self.rounds):
            for i, measure in enumerate(measures):
                times[i] += self.hyperfine(*measure)
        return [statistics.median(t) for t in times]

    def start(self):
        ours = ([self.ak, "run", "--compatibility-mode", "codex", "true"], 12, {"AGENTKERNEL_DATA_DIR": self.data})
        bwrap = (["bwrap", "--unshare-all", "--ro-bind", "/", "/", "true"], 12, {})
        a, b = self.hyperfine_alternate(ours, bwrap)
        yield Row("cold start, codex mode", lambda r: r <= 2.5, "≤ 2.5×", a, b, version_of("bwrap", "bwrap", "--version") + ", no network", "ms", a / b,
                  "%.2f×" % (a / b))
        if self.srt_why:
            yield Row("cold start, codex mode", lambda r: r >= 15, "≥ 15× faster", a, None, "srt not measured: " + self.srt_why, "ms")
            return
        tree = self.rig.bind(self.srt_tree, "srt")
        settings = self.rig.path("srt.json")
        rigs.write(settings, json.dumps({"network": {"allowedDomains": ["example.com"], "deniedDomains": []},
                                         "filesystem": {"denyRead": [], "allowWrite": ["."], "denyWrite": []}}))
        srt = (["node", os.path.join(tree, "node_modules/@anthropic-ai/sandbox-runtime/dist/cli.js"), "--settings", settings, "true"], 2, {})
        a, b = self.hyperfine_alternate(ours, srt)
        yield Row("cold start, codex mode", lambda r: r >= 15, "≥ 15× faster", a, b, "srt %s, one domain" % self.srt_version, "ms", b / a, "%.1f× faster" % (b / a))

    # ---- dns ----

    def dns_policy(self, names):
        folder = self.rig.mkdir("config", "agentkernel", "policies")
        rigs.write(os.path.join(folder, "codex.json"), json.dumps({
            "version": 1, "name": "codex", "description": "bench", "default": "deny", "allow": [n + ":443" for n in names],
            "limits": {"connections": 512, "dns_qps": 1000000}}))

    def dnsperf_result(self, out, want):
        completed, qps = re.search(r"Queries completed:\s+(\d+)", out), re.search(r"Queries per second:\s+([\d.]+)", out)
        good = re.search(r"NOERROR (\d+)", out)
        if not completed or not good or int(good.group(1)) != want:
            raise RigError("dnsperf: not every answer came: " + " ".join(re.findall(r"(?:Queries (?:completed|lost)|Response codes):.*", out)))
        return float(qps.group(1))

    def dns_ours(self, file, repeats, want):
        """(queries a second, seconds of processor time that the gateway took)."""
        script = 's=$(sed -n "s/^nameserver //p" /etc/resolv.conf); echo up; read x; "$@" -s "$s"; echo over; read x'
        with self.talk("sh", "-c", script, "sh", *DNSPERF, "-d", file, "-n", str(repeats)) as p:
            expect(p, "up")
            pid = self.gateway_pid()
            before = cpu_seconds(pid)
            answer(p)
            out = expect(p, "over")
            return self.dnsperf_result(out, want), cpu_seconds(pid) - before

    def dns_peer(self, file, repeats, want, cache, *more):
        self.rig.run(["nft", "-f", "-"], text=NFT_DNS, ns="router", root=True)
        p = self.rig.daemon(["dnsmasq", *(more or ["--no-daemon"]), "--conf-file=/dev/null", "--no-resolv", "--no-hosts", "--server=" + DNS,
                             "--listen-address=" + ROUTER, "--bind-interfaces", "--cache-size=%d" % cache, "--dns-forward-max=1000",
                             "--nftset=/test/4#inet#bench#learned"], 53, "udp", ns="router")
        before = cpu_seconds(p.pid)
        out = self.rig.run([*DNSPERF, "-s", ROUTER, "-d", file, "-n", str(repeats)], ns="client")
        cpu = cpu_seconds(p.pid) - before
        self.rig.stop(p)
        learned = self.rig.run(["nft", "-j", "list", "set", "inet", "bench", "learned"], ns="router", root=True).count('"val"')
        self.rig.run(["nft", "flush", "ruleset"], ns="router", root=True)
        if learned == 0:
            raise RigError("dnsmasq added nothing to the set: it did not do the same work")
        return self.dnsperf_result(out, want), cpu

    def dns_ceiling(self, file, repeats, want):
        """What dnsperf and the upstream do with nothing between them."""
        return self.dnsperf_result(self.rig.run([*DNSPERF, "-s", DNS, "-d", file, "-n", str(repeats)]), want), 0

    def dns_compare(self, file, repeats, cache):
        """Medians of queries a second: ours, the peer's, the ceiling; and microseconds of processor time for each of our and the peer's."""
        with open(file) as f:
            want = repeats * sum(1 for _ in f)
        turns = [[m() for m in (lambda: self.dns_ours(file, repeats, want), lambda: self.dns_peer(file, repeats, want, cache),
                                lambda: self.dns_ceiling(file, repeats, want))] for _ in range(self.rounds)]
        rates = [statistics.median(t[i][0] for t in turns) for i in range(3)]
        costs = [statistics.median(t[i][1] for t in turns) / want * 1e6 for i in range(2)]
        return rates, costs

    def dns(self):
        names = ["n%05d.bench.test" % i for i in range(UNIQUE_NAMES)]
        self.dns_policy(names)
        unique, cached = self.rig.path("project", "unique"), self.rig.path("project", "cached")
        rigs.write(unique, "".join(n + " A\n" for n in names))
        rigs.write(cached, "".join(n + " A\n" for n in names[:CACHED_NAMES]))
        peer = version_of("dnsmasq", "dnsmasq", "--version") + " --nftset"
        note = "processor time a query: %.1f µs, peer %.1f µs (%.1f×); dnsperf's own ceiling %d q/s"
        try:
            (a, b, top), (ca, cb) = self.dns_compare(unique, 1, 0)
            yield Row("DNS, unique names", lambda r: r >= 2, "≥ 2×", a, b, peer, "q/s", a / b, "%.2f×" % (a / b), note % (ca, cb, cb / ca, top))
            (c, d, top), (cc, cd) = self.dns_compare(cached, CACHED_REPEATS, 10000)
            yield Row("DNS, cached names", lambda r: r >= 5, "≥ 5×", c, d, peer, "q/s", c / d, "%.2f×" % (c / d), note % (cc, cd, cd / cc, top))
            yield Row("DNS, cached names", None, "-", c, b, peer + ", no cache", "q/s", c / b, "%.2f×" % (c / b),
                      "the peer adds to its set for every answer; processor time %.1f×" % (cb / cc))
            if self.rig.mapped:
                return  # dnsmasq wants to change its groups when it does not debug
            log = self.rig.path("tmp", "queries.log")
            args = ("--keep-in-foreground", "--user=root", "--pid-file", "--log-queries", "--log-facility=" + log)
            turns = [self.dns_peer(cached, CACHED_REPEATS, CACHED_NAMES * CACHED_REPEATS, 10000, *args) for _ in range(self.rounds)]
            e, ce = (statistics.median(t[i] for t in turns) for i in range(2))
            ce *= 1e6 / (CACHED_NAMES * CACHED_REPEATS)
            yield Row("DNS, cached names", None, "-", c, e, peer + " --log-queries", "q/s", c / e, "%.2f×" % (c / e),
                      "the peer records every answer in a file, as we do; processor time %.1f×" % (ce / cc))
        finally:
            shutil.rmtree(self.rig.path("config", "agentkernel"), ignore_errors=True)

    # ---- relay ----

    def iperf(self, run, host, *more):
        out = json.loads(run("iperf3", "-c", host, "-p", str(IPERF_PORT), "-t", str(IPERF_SECONDS), "-J", *more))
        return out["end"]["sum_received"]["bits_per_second"] / 1e9

    def relay(self):
        server = self.rig.daemon(["iperf3", "-s", "-B", WEB, "-p", str(IPERF_PORT)], IPERF_PORT, ns="inet")
        self.rig.run(["nft", "-f", "-"], text=NFT_NAT, ns="router", root=True)
        through = lambda *cmd: self.inside(*cmd, flags=("--allow-host", "echo.test:%d" % IPERF_PORT))
        routed = lambda *cmd: self.rig.run(list(cmd), ns="client")
        name = "kernel %s, nft masquerade" % os.uname().release.split("-")[0]
        for what, more in (("relay, sending", ()), ("relay, receiving", ("-R",))):
            a, b = self.alternate(lambda: self.iperf(through, "echo.test", *more), lambda: self.iperf(routed, WEB, *more))
            yield Row(what, lambda r: r >= 0.6, "≥ 0.6×", a, b, name, "Gbit/s", a / b, "%.2f×" % (a / b), version_of("iperf3", "iperf3", "--version"))
        self.rig.run(["nft", "flush", "ruleset"], ns="router", root=True)
        self.rig.stop(server)

    # ---- first byte ----

    def first(self):
        for what, port, kind in (("plain TCP", ECHO_PORT, "plain"), ("HTTP", 80, "http"), ("TLS", 443, "tls")):
            args = [str(port), str(CONNECTIONS), kind, "echo.test"]
            ms = lambda out: int(out.split()[0]) / 1e6
            a, b = self.alternate(
                lambda: ms(self.inside(self.rig.path("project", "tool"), "firstbyte", "echo.test", *args, flags=("--allow-host", "echo.test:%d" % port))),
                lambda: ms(self.rig.run([self.tool, "firstbyte", WEB, *args])))
            yield Row("first byte, " + what, lambda r: r <= 0.3, "≤ +0.3 ms", a, b, "direct", "ms", a - b, "%+.3f ms" % (a - b))

    # ---- memory ----

    def gateway_rss(self):
        """MiB of the one gateway that runs, now."""
        with open("/proc/%d/status" % self.gateway_pid()) as f:
            return int(re.search(r"^VmRSS:\s+(\d+)", f.read(), re.M).group(1)) / 1024

    def memory(self):
        script = 'echo up; read x; "$0" firstbyte echo.test %d 200 plain; echo over; read x' % ECHO_PORT
        with self.talk("sh", "-c", script, self.rig.path("project", "tool"), flags=("--allow-host", "echo.test:%d" % ECHO_PORT)) as p:
            expect(p, "up")
            rss = [self.gateway_rss()]
            answer(p)
            expect(p, "over")
            rss.append(self.gateway_rss())
        for what, value in zip(("gateway memory, idle", "gateway memory, after 200 flows"), rss):
            yield Row(what, lambda r: r < 8, "< 8 MiB", value, None, "", "MiB", value, "-")

    # ---- agents ----

    def agents(self):
        """What a published agent's start takes longer inside."""
        if self.agents_why:
            yield Row("agent --version", lambda r: r <= 25, "≤ +25 ms", None, None, "not measured: " + self.agents_why, "ms")
            return
        tree = self.rig.bind(os.path.join(self.agents_tree, "prefix"), "agents")
        # Gemini CLI starts itself once more unless it is told that it is in a sandbox: outside, too, or the comparison would flatter us.
        env = {"AGENTKERNEL_DATA_DIR": self.data, "PATH": os.path.join(tree, "bin") + ":" + rigs.PATH, "SANDBOX": "agentkernel"}
        for agent in AGENTS:
            a, b = self.hyperfine_alternate(([self.ak, agent, "--version"], 3, env), ([os.path.join(tree, "bin", agent), "--version"], 3, env))
            yield Row("%s --version" % agent, lambda r: r <= 25, "≤ +25 ms", a, b, "outside", "ms", a - b, "%+.1f ms" % (a - b))

    # ---- policy ----

    def policy(self):
        libs = [os.path.join(BUILD, "policies", "libak_policies.a"), os.path.join(BUILD, "gateway", "base", "libak_base.a"), "-lcjson"]
        program = compile_c("bench_policy.c", self.rig.path("bench_policy"), *libs)
        _, name, dns, address, load = map(float, self.rig.run([program], codes=(0, 1)).split("\n")[-2].split())
        worst = max(name, dns, address)
        yield Row("policy lookup, 100,000 rules", lambda r: r < 1000, "< 1000 ns", worst, None, "", "ns", worst, "-",
                  "name %d, DNS %d, address %d ns; loaded in %d ms" % (name, dns, address, load))


GROUPS = ("start", "image", "dns", "relay", "first", "memory", "policy", "warm", "crowd", "thousand", "agents", "vm")


def collect(bench, only):
    rows = []
    for name in GROUPS:
        if only and only not in name:
            continue
        print("bench: %s …" % name, file=sys.stderr, flush=True)
        try:
            rows += list(getattr(bench, name)())
        except subprocess.CalledProcessError as e:
            rows.append(Row(name, lambda r: False, "-", peer_name="not measured: %s failed" % e.cmd[0]))
        except (RigError, OSError, KeyError, ValueError) as e:
            rows.append(Row(name, lambda r: False, "-", peer_name="not measured: " + " ".join(str(e).split())[:160]))
    return rows


def table(rows):
    head = ["WHAT", "OURS", "PEER", "RATIO", "GOAL", "STATE", "NOTE"]
    lines = [head] + [r.cells() for r in rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(line, widths)).rstrip() for line in lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", metavar="WORD")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--strict", action="store_true", help="exit 1 when a goal was missed")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--realtime", action="store_true", help="measure at real-time priority (root)")
    args = parser.parse_args()
    if not os.access(BINARY, os.X_OK):
        sys.exit("bench: %s: not there; build first" % BINARY)
    target = os.path.abspath(args.json) if args.json else None
    folder, temporary = work_folder()
    wants_srt = not args.only or args.only in "start"
    srt = get_srt(folder) if wants_srt else (None, None, "not asked for")
    agents = get_agents() if not args.only or args.only in "agents" else (None, "not asked for")
    if args.realtime:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    user, mapped = rigs.enter()
    with rigs.Rig(user, mapped) as rig:
        tool = compile_c("tool.c", rig.path("tool.bin"))
        rows = collect(Bench(rig, max(1, args.rounds), tool, srt, agents), args.only)
    if temporary:
        shutil.rmtree(folder, ignore_errors=True)
    print("as uid %d, %d cores, Linux %s, medians of %d rounds, load average %.1f" % (user[0], os.cpu_count(), os.uname().release, args.rounds,
                                                                                    os.getloadavg()[0]))
    print(table(rows))
    if target:
        with open(target, "w") as f:
            json.dump([r.as_json() for r in rows], f, indent=1)
    if args.strict and any(r.state() == "MISSED" for r in rows):
        sys.exit(1)


if __name__ == "__main__":
    main()
