#!/usr/bin/python3
"""The HTTP API under wrk with 64 connections: /health, and /run with warm sandboxes, next to a plain exec of the same command.

    http_bench.py [--seconds N] [--connections N] [--json]

Starts a server and a daemon of its own, in folders of its own, on loopback; leaves nothing behind.
"""
import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BINARY = os.path.abspath(os.environ.get("AK_BIN") or os.path.join(ROOT, "build", "agentkernel"))
COMMAND = ["true"]
WARM = 8
POST = """wrk.method = "POST"
wrk.body = %s
done = function(summary, latency, requests)
  io.write(string.format("errors %%d\\n", summary.errors.status + summary.errors.connect + summary.errors.read + summary.errors.timeout))
end
"""


@contextlib.contextmanager
def world():
    """The environment of an agentkernel that nobody else uses."""
    folder = tempfile.mkdtemp(prefix="ak-http-bench-")
    env = dict(os.environ, XDG_STATE_HOME=folder + "/state", XDG_RUNTIME_DIR=folder + "/run", XDG_CONFIG_HOME=folder + "/config")
    env.setdefault("AGENTKERNEL_DATA_DIR", ROOT)
    env.pop("AGENTKERNEL_API_KEY", None)
    os.mkdir(folder + "/run", 0o700)
    try:
        yield folder, env
    finally:
        subprocess.run([BINARY, "daemon", "stop"], env=env, capture_output=True)
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def server(env):
    p = subprocess.Popen([BINARY, "serve", "--port", "0"], env=env, stderr=subprocess.PIPE, text=True)
    try:
        yield p, re.search(r"http://\S+", p.stderr.readline()).group(0)
    finally:
        p.send_signal(signal.SIGTERM)
        p.wait(20)
        p.stderr.close()


def wrk(url, seconds, connections, script=None):
    argv = ["wrk", "-t", "1", "-c", str(connections), "-d", "%ds" % seconds, "--timeout", "30s", "--latency", *(["-s", script] if script else []), url]
    out = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    amount, unit = re.search(r"99%\s+([\d.]+)(us|ms|s)", out).groups()
    bad = sum(map(int, re.findall(r"errors (\d+)", out))) + sum(map(int, re.findall(r"Non-2xx or 3xx responses: (\d+)", out)))
    return {"per_second": float(re.search(r"Requests/sec:\s+([\d.]+)", out).group(1)), "p99_ms": float(amount) * {"us": 0.001, "ms": 1, "s": 1000}[unit],
            "errors": bad}


def plain(seconds, at_once):
    """The same command without any sandbox, as many at once."""
    path, running, times, end = shutil.which(COMMAND[0]), {}, [], time.monotonic() + seconds
    while time.monotonic() < end or running:
        while len(running) < at_once and time.monotonic() < end:
            running[os.posix_spawn(path, COMMAND, os.environ)] = time.monotonic()
        pid, _ = os.wait()
        times.append(time.monotonic() - running.pop(pid))
    times.sort()
    return {"per_second": len(times) / seconds, "p99_ms": times[int(len(times) * 0.99)] * 1000, "errors": 0}


def measure(seconds, connections):
    with world() as (folder, env), server(env) as (proc, url):
        subprocess.run([BINARY, "daemon", "prewarm", "--mode", "native", "--count", str(WARM)], env=env, check=True, capture_output=True)
        script = os.path.join(folder, "post.lua")
        with open(script, "w") as f:
            f.write(POST % json.dumps(json.dumps({"command": COMMAND})))
        rows = {"health": wrk(url + "/health", seconds, connections), "run, %d at once" % connections: wrk(url + "/run", seconds, connections, script),
                "run, one at a time": wrk(url + "/run", seconds, 1, script)}
        status = json.loads(subprocess.run([BINARY, "daemon", "status", "--json"], env=env, capture_output=True, check=True).stdout)
        with urllib.request.urlopen(url + "/health") as r:
            assert r.status == 200
        with open("/proc/%d/status" % proc.pid) as f:
            rss = int(re.search(r"VmRSS:\s+(\d+)", f.read()).group(1))
    rows["plain exec, %d at once" % connections] = plain(seconds, connections)
    rows["plain exec, one at a time"] = plain(seconds, 1)
    native = next(m for m in status["pool"] if m["mode"] == "native")
    return {"rows": rows, "pool": {"hits": native["hits"], "misses": native["misses"]}, "server_rss_kb": rss}


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--seconds", type=int, default=5)
    p.add_argument("--connections", type=int, default=64)
    p.add_argument("--json", action="store_true")
    args = p.parse_args()
    if not shutil.which("wrk"):
        sys.exit("wrk is not there (Debian package wrk)")
    result = measure(args.seconds, args.connections)
    if args.json:
        print(json.dumps(result))
        return
    print("%-28s %12s %10s %8s" % ("", "requests/s", "p99 ms", "errors"))
    for name, row in result["rows"].items():
        print("%-28s %12.0f %10.2f %8d" % (name, row["per_second"], row["p99_ms"], row["errors"]))
    print("warm sandboxes: %(hits)d hits, %(misses)d misses" % result["pool"])
    print("server: %d kB resident" % result["server_rss_kb"])


if __name__ == "__main__":
    main()
