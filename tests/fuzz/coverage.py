#!/usr/bin/python3
"""What the tests reach, from gcov's own counters: coverage.py BUILD [PARSER…]

First each parser by its fuzz corpus alone (an edge is a branch that was taken), then all of the sources by every unit test and corpus together. With names of
parsers: only those, and every line of them that is not reached or has an edge that is not taken.
"""
import glob
import gzip
import json
import os
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# harness → what reads the input: whole sources, or those functions of a source that does more
PARSERS = {
    "audit": ["gateway/log/audit_read.c", "gateway/log/audit_time.c", "gateway/log/netlog.c", "gateway/log/netlog_print.c",
              "gateway/log/audit_file.c:last_record,read_tail_window,read_tail,read_predecessor,continue_chain,audit_open",
              "gateway/daemon/adopt.c:read_tail,seconds_left,put,seen_before,previous_line,too_old,adopt_learned",
              "gateway/http/stats.c:tally_reason,tally_time,http_tally_line,http_tally_put,number_at,http_stats_add"],
    "daemon_ask": ["gateway/daemon/ask.c", "gateway/store/state_json.c:state_edit_parse,get_text,get_words,get_number,state_limits_get,get_numbers,get_edit,get_edits,"
                   "get_env,check_version,state_from_json"],
    "dns": ["dnsproxy/wire_name.c", "dnsproxy/wire_query.c", "dnsproxy/wire_reply.c"],
    "gw_control": ["gateway/host/control.c"],
    "gw_msg": ["gateway/host/msg.c"],
    "hello": ["gateway/wire/tls_hello.c"],
    "http_api": ["gateway/http/request.c", "gateway/http/auth.c:digest,http_keys_ok,http_is_loopback,split_host,http_host_ok,http_origin_ok",
                 "gateway/http/route.c"],
    "http_head": ["gateway/wire/http_head.c"],
    "ipc": ["gateway/ipc/ipc.c", "gateway/service/exec.c:number_of,text_of,take_message,service_exec_poll", "vmctl/gwns_msg.c", "vmctl/job.c", "vmctl/msg.c",
            "vmctl/pack.c"],
    "json": ["gateway/base/json.c", "gateway/base/jsonscan.c", "gateway/base/base64.c"],
    "mcp": ["gateway/mcp/session.c", "gateway/mcp/tools.c"],
    "netlink_ack": ["nft/batch.c:fw_acks_parse,fw_acks_result,batch_read_acks,batch_write,fw_batch_send", "nft/counts.c",
                    "vmctl/rtnl.c:take_acks,read_acks,rtnl_send"],
    "nflog": ["nft/nflog.c"],
    "policy": ["policies/parse.c", "policies/pattern.c", "policies/edit.c", "policies/compile.c", "policies/match.c", "policies/print.c"],
    "resolv": ["gateway/host/resolv.c:nameserver_of,server_ok,resolv_parse"],
    "super": ["gateway/super/exec.c", "vmctl/sandbox_exec.c",
              "gateway/super/serve.c:answer_empty,on_root,on_namespaces,on_signal_op,look_again,on_stop,on_message,on_gone,on_sandbox,super_finish",
              "gateway/ipc/server.c:peer_free,peer_kill,on_dead,message_done,on_readable,on_writable,ipc_server_find,ipc_peer_send,ipc_peer_fail",
              "vmctl/sandbox.c:end,on_silence,on_init_pid,on_ready,on_message,take_message,sandbox_poll,sandbox_signal"],
    "target": ["policies/pattern.c:is_name_char,ends_in_number,name_fault,policy_name_ok,parse_port,shown,about,parse_proto,check_text,lower_host,split,"
               "target_read,policy_target_parse",
               "gateway/base/addr.c:ak_addr_parse,ak_addr_print,ak_addr_cmp,ak_addr_eq,ak_addr_embedded_v4"],
}


def forget(build):
    for path in glob.glob(build + "/**/*.gcda", recursive=True):
        os.unlink(path)


def reached(build):
    """source → its lines as gcov tells them"""
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
                        out.setdefault(name, []).extend(source["lines"])
    return out


def edges(line):
    return [b["count"] > 0 for b in line["branches"] if not b.get("throw")]


def show(name, lines, note=""):
    taken = [taken for line in lines for taken in edges(line)]
    if lines:
        print("%-28s %5.1f%% of %5d lines   %5.1f%% of %5d edges   %s" % (
            name, 100 * sum(line["count"] > 0 for line in lines) / len(lines), len(lines), 100 * sum(taken) / max(len(taken), 1), len(taken), note))


def parser_lines(seen, name):
    """source → the lines that count; what is listed and not there is an error, not a smaller sum"""
    out = {}
    for entry in PARSERS[name]:
        source, _, functions = entry.partition(":")
        wanted = set(functions.split(",")) if functions else {line.get("function_name") for line in seen[source]}
        missing = wanted - {line.get("function_name") for line in seen[source]}
        assert not missing, "%s has no %s" % (source, missing)
        out[source] = [line for line in seen[source] if line.get("function_name") in wanted]
    return out


def show_rest(lines):
    for source, rows in lines.items():
        with open(os.path.join(ROOT, source), encoding="utf-8") as f:
            text = f.read().split("\n")
        for row in sorted(rows, key=lambda row: row["line_number"]):
            open_edges = edges(row).count(False)
            if row["count"] == 0 or open_edges:
                what = "%d of %d edges" % (open_edges, len(edges(row))) if row["count"] else "never"
                print("    %s:%d: %-14s %s" % (source, row["line_number"], what, text[row["line_number"] - 1].strip()))


def show_parser(build, name, detail):
    corpus = os.path.join(build, "tests/corpus", name)
    forget(build)
    subprocess.run([os.path.join(build, "tests/fuzz_" + name), corpus], check=True, stdout=subprocess.DEVNULL)
    lines = parser_lines(reached(build), name)
    show(name, [line for rows in lines.values() for line in rows], "%d inputs" % len(os.listdir(corpus)))
    if detail:
        show_rest(lines)


def main(build, *names):
    harnesses = sorted(os.path.basename(p)[5:-2] for p in glob.glob(os.path.join(ROOT, "tests/fuzz/fuzz_*.c")))
    assert harnesses == sorted(PARSERS), "harnesses and parsers differ: %s" % sorted(set(harnesses) ^ set(PARSERS))
    print("parsers, each by its corpus alone")
    for name in names or harnesses:
        show_parser(build, name, bool(names))
    if names:
        return
    forget(build)
    print("\nall sources, by every unit test and corpus")
    subprocess.run(["ctest", "-j", str(os.cpu_count()), "--output-on-failure"], cwd=build, stdout=subprocess.DEVNULL)
    seen = reached(build)
    for folder in sorted({os.path.dirname(name) for name in seen}):
        show(folder, [line for name, lines in seen.items() if os.path.dirname(name) == folder for line in lines])
    show("together", [line for lines in seen.values() for line in lines])


if __name__ == "__main__":
    main(os.path.abspath(sys.argv[1]), *sys.argv[2:])
