#!/usr/bin/python3
"""What the tests reach, from gcov's own counters: coverage.py BUILD

First each parser by its fuzz corpus alone (an edge is a branch that was taken), then all of the sources by every unit test and corpus together.
"""
import glob
import gzip
import json
import os
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# harness → the sources that read what it is given
PARSERS = {
    "audit": ["gateway/audit_read.c", "gateway/audit_time.c", "gateway/netlog.c", "gateway/netlog_print.c"],
    "dns": ["dnsproxy/wire_name.c", "dnsproxy/wire_query.c", "dnsproxy/wire_reply.c"],
    "hello": ["gateway/tls_hello.c"],
    "http_api": ["gateway/http_request.c", "gateway/http_auth.c", "gateway/http_route.c"],
    "http_head": ["gateway/http_head.c"],
    "ipc": ["gateway/ipc.c", "vmctl/msg.c", "vmctl/pack.c"],
    "json": ["gateway/base/json.c", "gateway/base/jsonscan.c", "gateway/base/base64.c"],
    "mcp": ["gateway/mcp_session.c", "gateway/mcp_tools.c"],
    "netlink_ack": ["nft/batch.c", "nft/counts.c"],
    "nflog": ["nft/nflog.c"],
    "policy": ["policies/parse.c", "policies/pattern.c", "policies/edit.c", "policies/compile.c", "policies/match.c", "policies/print.c"],
    "resolv": ["gateway/resolv.c"],
    "target": ["policies/pattern.c", "gateway/base/addr.c"],
}


def forget(build):
    for path in glob.glob(build + "/**/*.gcda", recursive=True):
        os.unlink(path)


def counts(build):
    """source → [lines reached, lines, edges taken, edges]"""
    out = {}
    data = [p for p in glob.glob(build + "/**/*.gcda", recursive=True) if "/tests/CMakeFiles/" not in p]
    with tempfile.TemporaryDirectory() as folder:
        for i in range(0, len(data), 50):
            subprocess.run(["gcov", "-b", "-j", *[os.path.abspath(p) for p in data[i:i + 50]]], cwd=folder, check=True, capture_output=True)
        for path in glob.glob(folder + "/*.gcov.json.gz"):
            with gzip.open(path) as f:
                for source in json.load(f)["files"]:
                    name = os.path.relpath(os.path.join(ROOT, source["file"]), ROOT)
                    if name.endswith(".c") and not name.startswith(("..", "tests/")):
                        add(out.setdefault(name, [0, 0, 0, 0]), source["lines"])
    return out


def add(row, lines):
    row[0] += sum(line["count"] > 0 for line in lines)
    row[1] += len(lines)
    branches = [b for line in lines for b in line["branches"] if not b.get("throw")]
    row[2] += sum(b["count"] > 0 for b in branches)
    row[3] += len(branches)


def show(name, rows, note=""):
    a, b, c, d = [sum(row[i] for row in rows) for i in range(4)]
    if b:
        print("%-28s %5.1f%% of %5d lines   %5.1f%% of %5d edges   %s" % (name, 100 * a / b, b, 100 * c / max(d, 1), d, note))


def main(build):
    print("parsers, each by its corpus alone")
    for source in sorted(glob.glob(os.path.join(ROOT, "tests/fuzz/fuzz_*.c"))):
        name = os.path.basename(source)[5:-2]
        forget(build)
        corpus = os.path.join(ROOT, "tests/fuzz/corpus", name)
        subprocess.run([os.path.join(build, "tests/fuzz_" + name), corpus], check=True, stdout=subprocess.DEVNULL)
        seen = counts(build)
        files = PARSERS.get(name) or sorted(seen)
        show(name, [seen[f] for f in files if f in seen], "%d inputs" % len(os.listdir(corpus)))
    forget(build)
    print("\nall sources, by every unit test and corpus")
    subprocess.run(["ctest", "-j", str(os.cpu_count()), "--output-on-failure"], cwd=build, stdout=subprocess.DEVNULL)
    seen = counts(build)
    for folder in ("gateway/base", "policies", "nft", "dnsproxy", "vmctl", "gateway"):
        show(folder, [row for name, row in seen.items() if os.path.dirname(name) == folder])
    show("together", list(seen.values()))


if __name__ == "__main__":
    main(os.path.abspath(sys.argv[1]))
