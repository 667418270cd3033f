"""Invariant 8: a policy change is one atomic batch with a new generation; live flows are judged again, those no longer allowed are cut
within 100 ms, the others never stall; learned addresses survive.

Times are judged on two scales. What the gateway does by itself is measured by its own clock, in the records that it writes, without the time in which it
waited for a processor. What a program in the sandbox sees also depends on when this machine lets it run, so it is compared with an echo of the same server
that does not pass the gateway.
"""
import json
import os
from datetime import datetime

from expect import CUT, INSIDE, allowed, denied, find, probe_server, refused, talking, worked
from lab import PYTHON, wait_for
from latency import queued
from persist import FLOW, TELL, open_flow

ECHO = ["tcp", "ok.test", 7, b"x".hex()]


def up(b, *allow, **policy):
    """A running sandbox `x` that may reach ALLOW and asks as often as it likes."""
    folder = b.lab.path("config", "agentkernel", "policies")
    os.makedirs(folder)
    with open(os.path.join(folder, "codex.json"), "w") as f:
        json.dump(dict({"version": 1, "name": "codex", "default": "deny", "allow": list(allow), "limits": {"dns_qps": 100000}}, **policy), f)
    b.up("x", "--compatibility-mode", "codex")


def change(b, *options):
    """Change the policy of `x`; the generation, which is the next one."""
    before = b.policy("x")["generation"]
    b.ak("network", "policy", "x", *options)
    after = b.policy("x")["generation"]
    assert after == before + 1, (before, after, options)
    return after


def when(record):
    return datetime.fromisoformat(record["time"].replace("Z", "+00:00")).timestamp()


# ---- one atomic batch with a new generation ----

# Every kind of object that a change touches: the learned sets, the ranges, the chains, the rate.
WHOLE = [["--allow-host", "ok.test:22", "--allow-host", "other.test:7", "--allow-cidr", "11.99.0.0/16", "--block-cidr", "11.66.0.0/16"],
         ["--default", "allow", "--block-host", "ok.test:22"],
         ["--reset"]]


# The kernel numbers the transactions of a network namespace; NFT_MSG_GETGEN (16 of subsystem 10) tells the number of the last one, its attribute 1.
GENERATION = """
import socket, struct
s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12)
s.send(struct.pack('=IHHIIBBH', 20, 10 << 8 | 16, 1, 1, 0, 0, 0, 0))
size, kind, number = struct.unpack_from('=HH', data := s.recv(4096), 20) + struct.unpack_from('!I', data, 24)
assert kind & 0x3fff == 1 and size == 8, data
print(number)
"""


def test_a_change_is_one_transaction_of_the_kernel_and_one_generation(boxes):
    b = boxes
    up(b, "ok.test:7", "other.test:22")
    for row in b.probe("x", [["resolve", "ok.test"], ["resolve", "other.test"]]):
        worked(row)
    gateway = b.status()["gateway"]["pid"]

    def transactions():
        return int(b.lab.host([PYTHON, INSIDE, "gateway", str(gateway), PYTHON, "-c", GENERATION]).out)
    for options in WHOLE:
        before = transactions()
        change(b, *options)
        assert transactions() == before + 1, options
    told = [row["generation"] for row in find(b.netlog("x"), event="policy")]
    assert told == [2, 3, 4], told


# Two policies that allow ok.test and refuse denied.test, for reasons that have nothing in common: who applies a part of one sees the other wrong.
BY_LIST = ["--reset", "--allow-host", "ok.test:7"]
BY_BLOCK = ["--reset", "--default", "allow", "--block-host", "denied.test", "--block-cidr", "11.66.0.1/32"]

PROBES = """
import threading
seen = {'kept': 0, 'refused': [], 'denied': 0, 'opened': []}
stop = threading.Event()
def attempt(step):
    try: return globals()['do_' + step[0]](*step[1:])
    except (OSError, EOFError) as e: return e
def every(key, wrong, steps, good):
    while not stop.is_set():
        for step in steps:
            got = attempt(step)
            seen[key] += 1
            if not good(got): seen[wrong].append([step, repr(got)])
for args in (('kept', 'refused', [['tcp', 'ok.test', 7, '78'], ['tcp', '11.1.0.5', 7, '78'], ['resolve', 'ok.test', 4]], lambda got: got in ('x', ['11.1.0.5'])),
             ('denied', 'opened', [['tcp', '11.66.0.1', 7, '78'], ['resolve', 'denied.test', 4]], lambda got: isinstance(got, OSError))):
    threading.Thread(target=every, args=args, daemon=True).start()
"""


def test_no_moment_of_a_change_refuses_what_stays_allowed_or_opens_what_stays_denied(boxes):
    b, lab = boxes, boxes.lab
    lab.dns.set("ok.test", A="11.1.0.5", ttl=3600)
    up(b, "ok.test:7")
    worked(b.probe("x", [ECHO])[0])
    lab.clear()
    again = ["eval", "out = sent_again()"]
    with b.holding("x", PROBES) as (proc, do):
        before_all = worked(do([again])[0])

        def seen():
            return worked(do([["eval", "out = seen"]])[0])
        for _ in range(20):
            for options in (BY_BLOCK, BY_LIST):
                before = seen()
                change(b, *options)
                wait_for(lambda: all(seen()[k] > before[k] for k in ("kept", "denied")))
        do([["eval", "stop.set()"]])
        got = seen()
        # A packet that no rule judges is dropped in silence, and the program sees only that it waits: after a second its kernel sends another SYN, and counts it.
        assert worked(do([again])[0]) == before_all, "a SYN was lost"
    assert got["refused"] == [] and got["opened"] == [], got
    assert lab.arrived("11.66.0.1") == 0 and lab.dns.log("denied.test") == []
    assert lab.conns("11.1.0.5"), "nothing arrived where everything had to"
    assert not find(b.netlog("x"), verdict="deny", name="ok.test") and not find(b.netlog("x"), verdict="deny", dst="11.1.0.5")


# ---- live flows are judged again ----

def test_flows_no_longer_allowed_are_cut_and_only_these(boxes):
    """Each flow was let in by another kind of rule; each change takes away what one of them needs."""
    b, lab = boxes, boxes.lab
    lab.dns.set("a.wild.test", A="11.1.1.10")
    lab.dns.set("b.wild.test", A="11.1.1.11")
    up(b, "ok.test:7", "*.wild.test:7", "other.test:7", allow_cidr=["11.99.0.0/16"])
    flows = {"name": "ok.test", "wild": "a.wild.test", "range": "11.99.0.1", "stays": "b.wild.test"}
    with b.holding("x", FLOW) as (proc, do):
        for key, host in flows.items():
            worked(do([open_flow(key, host)])[0])
        changes = [(["--block-host", "ok.test:7"], "name", ("flags: ok.test:7", CUT), dict(name="ok.test", dst="11.1.0.5")),
                   (["--block-cidr", "11.99.0.1/32"], "range", ("flags: 11.99.0.1/32", CUT), dict(dst="11.99.0.1")),
                   # The wildcard that let both in goes; a rule of its own keeps one of them.
                   (["--block-host", "*.wild.test:7", "--allow-host", "b.wild.test:7"], "wild", ("flags: *.wild.test:7", CUT), dict(name="a.wild.test", dst="11.1.1.10"))]
        live = set(flows)
        for options, key, why, record in changes:
            wait_for(lambda: all(worked(do([TELL])[0])[k]["echoes"] > 3 for k in live))
            generation = change(b, *options)
            wait_for(lambda: worked(do([TELL])[0])[key]["dead"])
            live.remove(key)
            refused(do([["tcp", flows[key], 7]])[0])
            now = worked(do([TELL])[0])
            assert all(now[k]["dead"] is None for k in live), now
            wait_for(lambda: all(worked(do([TELL])[0])[k]["echoes"] > now[k]["echoes"] for k in live))
            cut = denied(b.netlog("x"), why, event="flow", port=7, **record)
            assert len(cut) == 1 and cut[0]["generation"] == generation and cut[0]["bytes_out"] > 3, cut
        assert live == {"stays"}
        assert len(find(b.netlog("x"), event="flow", verdict="deny")) == len(changes)


def test_a_datagram_flow_no_longer_allowed_is_cut_too(boxes):
    b, lab = boxes, boxes.lab
    up(b, "ok.test:7/udp", "other.test:7/udp")
    script = ("s = {n: socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for n in ('ok.test', 'other.test')}\n"
              "def say(name):\n s[name].settimeout(3); s[name].send(b'x'); return s[name].recv(9).decode()\n"
              "for n in s: s[n].connect((n, 7))\n")
    both = [["eval", "out = say('ok.test')"], ["eval", "out = say('other.test')"]]
    with b.holding("x", script) as (proc, do):
        assert [worked(row) for row in do(both)] == ["x", "x"]
        change(b, "--block-host", "ok.test:7/udp")
        lab.clear()
        got = do(both)
        refused(got[0])
        assert worked(got[1]) == "x"
        assert lab.arrived("11.1.0.5") == 0 and lab.arrived("11.1.0.6", 7, "udp") == 1
    denied(b.netlog("x"), ("flags: ok.test:7/udp", CUT), event="flow", name="ok.test", dst="11.1.0.5", port=7)


# ---- cut at once, and no stall ----

# A download that never ends, over a rule that stays; the longest time between two pieces of it.
DOWNLOAD = FLOW + """
load = {'bytes': 0, 'longest': 0.0, 'error': None}
def download(host):
    try:
        s = connect(host, 80)
        s.sendall(b'GET /bytes/%d HTTP/1.1\\r\\nHost: %s\\r\\n\\r\\n' % (1 << 40, host.encode()))
        last = time.monotonic()
        while True:
            n = len(s.recv(65536))
            if not n: raise OSError('eof')
            now = time.monotonic(); load['longest'] = max(load['longest'], now - last); last = now
            load['bytes'] += n
            let_pass(0.001, 'a steady stream tells enough, and leaves the processors to others')
    except OSError as e: load['error'] = str(e)
def begin():
    for row in [load, *flows.values()]: row['longest'] = 0.0
"""


def test_what_is_cut_is_cut_within_100_ms_and_the_rest_does_not_stall(boxes):
    b, lab = boxes, boxes.lab
    up(b, "other.test:7", "other.test:80", *["h%d.test:7" % i for i in range(10)])
    for i in range(10):
        lab.dns.set("h%d.test" % i, A="11.1.2.%d" % i)
    outside = talking(lab.spawn(probe_server(FLOW), stdin="pipe"))
    with b.holding("x", DOWNLOAD) as (proc, do), outside as (_, do_outside):
        worked(do_outside([open_flow("yardstick", "11.1.0.6")])[0])
        for key, host in [("stays", "other.test")] + [("h%d" % i, "h%d.test" % i) for i in range(10)]:
            worked(do([open_flow(key, host)])[0])
        worked(do([["eval", "threading.Thread(target=download, args=('other.test',), daemon=True).start(); out = 1"]])[0])
        wait_for(lambda: worked(do([["eval", "out = load['bytes']"]])[0]) > 1 << 20)
        begin = [["eval", "begin(); out = 1"]]
        do(begin), do_outside([["eval", "flows['yardstick']['longest'] = 0.0"]])
        gateway, waited = b.status()["gateway"]["pid"], []
        for i in range(10):
            loaded, before = worked(do([["eval", "out = load['bytes']"]])[0]), queued(lab, gateway)
            change(b, "--block-host", "h%d.test:7" % i)
            wait_for(lambda: worked(do([TELL])[0])["h%d" % i]["dead"])
            wait_for(lambda: worked(do([["eval", "out = load['bytes']"]])[0]) > loaded)
            waited.append(queued(lab, gateway) - before)
        now, load = worked(do([TELL])[0]), worked(do([["eval", "out = load"]])[0])
        yardstick = worked(do_outside([TELL])[0])["yardstick"]["longest"]
    log = b.netlog("x")
    changed = {row["generation"]: when(row) for row in find(log, event="policy")}
    for i in range(10):
        row = denied(log, ("flags: h%d.test:7" % i, CUT), event="flow", name="h%d.test" % i)[0]
        # Flows are cut before the record of the change is written, so the difference is small and of either sign.
        assert abs(when(row) - changed[row["generation"]]) < 0.1 + waited[i], (i, row, changed, waited)
        late = now["h%d" % i]["dead"] - changed[row["generation"]]
        assert late < 0.1 + waited[i] + 3 * yardstick, "seen %.3f s after the change; an echo beside the gateway waited up to %.3f s" % (late, yardstick)
    assert now["stays"]["dead"] is None and load["error"] is None, (now, load)
    for name, longest in (("echo", now["stays"]["longest"]), ("download", load["longest"])):
        assert longest < 0.1 + max(waited) + 3 * yardstick, "the %s stood still for %.3f s; an echo beside the gateway for %.3f s" % (name, longest, yardstick)


# ---- learned addresses survive ----

def test_learned_addresses_survive_and_need_no_new_question(boxes):
    b, lab = boxes, boxes.lab
    lab.dns.set("ok.test", A="11.1.0.5", AAAA="2a00:1::5", ttl=3600)
    up(b, "ok.test:7")
    with b.holding("x") as (proc, do):
        worked(do([["resolve", "ok.test"]])[0])
        lab.clear()
        by_address = [["tcp", "11.1.0.5", 7, b"x".hex()], ["tcp", "2a00:1::5", 7, b"x".hex()]]
        for options in (["--allow-host", "other.test:7"], ["--block-cidr", "11.66.0.0/16"], ["--default", "allow"], ["--default", "deny"], ["--reset"]):
            change(b, *options)
            for row in do(by_address):
                assert worked(row) == "x", options
        # What was learned for the name opens at a port that a later rule adds, and at no other.
        refused(do([["tcp", "11.1.0.5", 22]])[0])
        change(b, "--allow-host", "ok.test:22")
        assert worked(do([["read", "11.1.0.5", 22]])[0]).startswith("SSH-2.0-lab")
        # Revoked and allowed again: the name still owns its address.
        change(b, "--block-host", "ok.test:7", "--block-host", "ok.test:22")
        for row in do(by_address):
            refused(row)
        change(b, "--reset")
        for row in do(by_address):
            assert worked(row) == "x"
        # An address that nobody asked for was never learned.
        refused(do([["tcp", "11.1.0.6", 7]])[0])
    assert lab.dns.log() == [] and lab.arrived("11.1.0.6") == 0
    allowed(b.netlog("x"), event="flow", name="ok.test", dst="2a00:1::5", port=7, rule="codex: ok.test:7")
