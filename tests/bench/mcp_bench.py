#!/usr/bin/python3
"""sandbox_run through the MCP SDK's client, next to a plain exec of the same command: what a model waits for.

    mcp_bench.py [N]     in the lab; prints median and 95th percentile in milliseconds
"""
import json
import os
import shutil
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
LAB = os.path.join(os.path.dirname(HERE), "lab")
sys.path.insert(0, LAB)
sys.dont_write_bytecode = True

from lab import Lab  # noqa: E402
from npm import npm_folder  # noqa: E402

COMMAND = ["/bin/true"]
CODEX = ["--compatibility-mode", "codex"]
WARM_UP = 5


def row(name, times):
    times = sorted(times)
    print("%-52s %8.2f %8.2f" % (name, statistics.median(times), times[int(len(times) * 0.95)]))
    return statistics.median(times)


def timed(run, n):
    out = []
    for _ in range(n):
        began = time.perf_counter()
        run()
        out.append((time.perf_counter() - began) * 1000)
    return out


def through_sdk(lab, folder, n, network):
    """Milliseconds of each call as the client's own process sees them."""
    steps = [{"tool": "sandbox_run", "args": {"command": COMMAND, "network": network}}] * (n + WARM_UP)
    r = lab.spawn([shutil.which("node"), os.path.join(LAB, "mcp_sdk.mjs"), folder, lab.binary, *CODEX], stdin=json.dumps(steps).encode(),
                  env=lab.env()).wait(300)
    got = [json.loads(line) for line in r.out.splitlines()[1:]]
    assert r.code == 0 and all(g.get("structuredContent", {}).get("exit_code") == 0 for g in got), r
    return [g["ms"] for g in got[WARM_UP:]]


def main(n):
    if not shutil.which("node") or not shutil.which("npm"):
        sys.exit("mcp_bench: no node and npm here")
    folder = npm_folder("npm-mcp", "@modelcontextprotocol/sdk")
    with Lab() as lab:
        print("%-52s %8s %8s" % ("ms of %d calls of %s" % (n, " ".join(COMMAND)), "median", "p95"))
        plain = row("plain fork and exec", timed(lambda: subprocess.run(COMMAND, check=True), n))
        row("agentkernel run --compatibility-mode codex", timed(lambda: lab.ak(["run", *CODEX, "--", *COMMAND]), n))
        row("sandbox_run through the MCP SDK, no network", through_sdk(lab, folder, n, False))
        cold = row("sandbox_run through the MCP SDK, codex", through_sdk(lab, folder, n, True))
        lab.ak(["daemon", "start"])
        try:
            lab.ak(["daemon", "prewarm", "--mode", "codex"])
            warm = row("sandbox_run through the MCP SDK, codex, with daemon", through_sdk(lab, folder, n, True))
        finally:
            lab.ak(["daemon", "stop"])
        print("ratio to plain exec: %.1f cold, %.1f with daemon" % (cold / plain, warm / plain))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 50)
