"""Faults: too few descriptors, processes, pages or blocks, objects that vanish from the kernel, clocks elsewhere. Each ends in a clear refusal or a closed network; nothing is left, and the next run works."""
import pytest
from expect import allow, gateway_pid, holding, in_gateway, refused, worked

CHECK = [["tls", "ok.test", 443, "ok.test"], ["tcp", "11.66.0.1", 443], ["resolve", "evil.test"]]


def next_run_works(lab):
    lab.clear()
    got = lab.probe(allow("ok.test"), CHECK)
    worked(got[0]), refused(got[1]), refused(got[2])
    assert lab.strangers("11.1.0.5", "2a00:1::5") == []


def told_or_right(lab, r):
    """Either it refused to start and said why, or it ran and was right."""
    if r.out.startswith("["):
        got = r.json()
        if "ok" not in got[0]:
            refused(got[0])
        refused(got[1]), refused(got[2])
    else:
        assert r.code != 0, r  # refused by us, or the program itself could not go on with so little
        assert r.code < 125 or "agentkernel: " in r.err, r
    assert lab.strangers("11.1.0.5", "2a00:1::5") == []
    assert lab.leaks() == "", r


@pytest.mark.xdist_group("descriptors")
@pytest.mark.parametrize("limit", ["RLIMIT_NOFILE", "RLIMIT_AS", "RLIMIT_FSIZE", "RLIMIT_STACK", "RLIMIT_MEMLOCK", "RLIMIT_MSGQUEUE"])
def test_faults_small_limits(any_user, limit):
    lab = any_user
    steps = {"RLIMIT_NOFILE": [3, 4, 5, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30, 34, 40, 64], "RLIMIT_AS": [k << 20 for k in (4, 8, 12, 16, 20, 24, 32, 48, 64, 128, 512)],
             "RLIMIT_FSIZE": [0, 1, 512, 4096, 16384], "RLIMIT_STACK": [16 << 10, 64 << 10, 256 << 10], "RLIMIT_MEMLOCK": [0, 4096], "RLIMIT_MSGQUEUE": [0]}[limit]
    for value in steps:
        r = lab.run([*allow("ok.test"), "--", *lab.probe_command(CHECK)], rlimits={limit: value}, timeout=30)
        if r.code in (-11, -9, -6, -25) or r.code == 125 and "cannot spawn" in r.err or r.code == 127:
            # The loader itself could not start the program with so little: nothing of ours ran.
            assert lab.strangers() == [] and lab.leaks() == "", (value, r)
            continue
        told_or_right(lab, r)
    next_run_works(lab)


@pytest.mark.xdist_group("descriptors")
def test_faults_the_gateway_out_of_descriptors_stays_shut_and_recovers(any_user):
    """More connections than it has descriptors for: some are refused, none hangs, and afterwards all is well."""
    lab = any_user
    code = """
socks = []
for i in range(400):
    try: s = socket.socket(); s.settimeout(2); s.connect(('11.1.0.5', 7)); s.send(b'x'); socks.append(s)
    except OSError: pass
answered = 0
for s in socks:
    try: answered += s.recv(1) == b'x'
    except OSError: pass
for s in socks: s.close()
out = answered
"""
    r = lab.run([*allow("ok.test:7", "ok.test:443"), "--", *lab.probe_command([["resolve", "ok.test", 4], ["eval", code], ["until", CHECK[0]], *CHECK])], rlimits={"RLIMIT_NOFILE": 120},
                timeout=120)
    got = r.json()
    worked(got[0])
    assert 0 < worked(got[1]) <= 400, got[1]
    worked(got[2])
    worked(got[3]), refused(got[4]), refused(got[5])
    assert lab.strangers("11.1.0.5", "2a00:1::5") == []
    next_run_works(lab)


@pytest.mark.parametrize("size", ["4k", "16k", "64k"])
def test_faults_a_full_state_folder(lab, size):
    with lab.acting_as("user"):
        assert lab.host(["mount", "-t", "tmpfs", "-o", "size=%s,mode=777" % size, "tmpfs", lab.path("state")]).code == 0
        try:
            for _ in range(3):
                r = lab.run([*allow("ok.test"), "--", *lab.probe_command(CHECK)], timeout=30)
                told_or_right_on_full_disk(lab, r)
        finally:
            assert lab.host(["umount", lab.path("state")]).code == 0
        next_run_works(lab)


def told_or_right_on_full_disk(lab, r):
    if r.out.startswith("["):
        got = r.json()
        assert "ok" in got[0] or "cannot be written" in r.err, r  # no record, no connection
        refused(got[1]), refused(got[2])
    else:
        assert r.code == 125 and r.err.startswith("agentkernel: "), r
    assert lab.strangers("11.1.0.5", "2a00:1::5") == []


TAKEN = {
    "the table": (["nft", "delete", "table", "inet", "agentkernel"], True),
    "all rules": (["nft", "flush", "ruleset"], True),
    "the link": (["ip", "link", "del", "ak1"], True),
    "the link's state": (["ip", "link", "set", "ak1", "down"], True),
    "the learned set": (["sh", "-c", "for s in tcp4 tcp6 udp4 udp6; do nft flush set inet agentkernel sb1_$s; done"], False),
    "the routes": (["sh", "-c", "ip route flush table all; ip -6 route flush table all"], True),
    "the rules of routing": (["sh", "-c", "ip rule flush; ip -6 rule flush"], True),
}


@pytest.mark.parametrize("what", TAKEN)
def test_faults_what_vanishes_from_the_kernel_closes_and_never_opens(any_user, what):
    """Someone with power over the gateway's namespace takes objects away: questions get SERVFAIL or nothing, and nothing that was denied passes."""
    lab = any_user
    cmd, way_is_gone = TAKEN[what]
    short = lambda addr, port: ["eval", "s = socket.socket(socket.AF_INET6 if ':' in %r else socket.AF_INET); s.settimeout(0.5); s.connect((%r, %d)); s.send(b'x'); out = s.recv(1).decode()" % (addr, addr, port)]
    with holding(lab, allow("ok.test", "other.test:7")) as (proc, do):
        worked(do([["tls", "ok.test", 443, "ok.test"]])[0])
        lab.clear()
        in_gateway(lab, proc, *cmd)
        got = do([short("11.66.0.1", 443), short("2a00:66::1", 443), short("169.254.169.254", 80), short("10.0.0.1", 80), short("11.1.0.6", 443),
                  ["eval", "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(0.3); s.sendto(b'x', ('11.66.0.1', 5000)); out = s.recv(1).decode()"]])
        for row in got:
            assert "err" in row, (what, row)
        # A name not yet known: what the kernel did not acknowledge is not answered.
        row = do([["dns", "123401000001000000000000056f74686572047465737400" + "0001" + "0001", None, "udp", 53, 1.0]])[0]
        answered = "ok" in row and int(row["ok"][12:16], 16) > 0
        if answered and not way_is_gone:
            # Told an address: then it works at once.
            worked(do([["tcp", "11.1.0.6", 7, b"x".hex()]])[0])
        assert lab.strangers("11.1.0.5", "2a00:1::5", "11.1.0.6") == [], (what, lab.strangers())
        assert lab.arrived("11.1.0.6", 443) == 0
    assert lab.leaks() == ""
    next_run_works(lab)


def test_faults_netlink_messages_lost_are_counted(any_user):
    """ENOBUFS: the gateway is stopped while the kernel logs more than its socket holds; the sums still come out."""
    lab = any_user
    flood = "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.setblocking(False)\nn = 0\nfor i in range(6000):\n try: s.sendto(b'x', ('11.66.%d.%d' % (i % 200, i % 250 + 1), 5000)); n += 1\n except OSError: n += 1\nout = n"
    with holding(lab, allow("ok.test")) as (proc, do):
        worked(do([["tls", "ok.test", 443, "ok.test"]])[0])
        pid = gateway_pid(lab, proc)
        lab.host(["kill", "-STOP", str(pid)])
        sent = worked(do([["eval", flood]])[0])
        lab.host(["kill", "-CONT", str(pid)])
        worked(do([["tls", "ok.test", 443, "ok.test"]])[0])
    rows = lab.netlog()
    told = sum(r.get("count", 0) + r.get("suppressed", 0) for r in rows if r["verdict"] == "deny")
    assert told >= sent // 2, (told, sent)  # (the sandbox's kernel may refuse some by itself after the first ICMP errors)
    assert lab.arrived(proto="udp", port=5000) == 0


@pytest.mark.parametrize("offset", [10 ** 8, 10 ** 9])
def test_faults_another_monotonic_clock(lab, offset):
    """A host that has been up for years; test_faults_clock.py has the wall clock."""
    r = lab.host(["unshare", "-T", "--monotonic", str(offset), "--boottime", str(offset), "--fork", "--kill-child", "true"])
    if r.code:
        pytest.skip("no time namespaces here: %s" % r.err)
    with lab.acting_as("root" if lab.is_root else "user"):
        r = lab.spawn(["unshare", "-T", "--monotonic", str(offset), "--boottime", str(offset), "--fork", "--kill-child", lab.binary, "run", *allow("ok.test"), "--", *lab.probe_command(CHECK)], env=lab.env(),
                      who="root").wait(30)
        got = r.json()
        worked(got[0]), refused(got[1]), refused(got[2])


def test_faults_a_gateway_that_is_stopped_and_goes_on(any_user):
    """Frozen for a while, as by a debugger or a suspended laptop: closed meanwhile, all well afterwards, no deadline fires wrongly."""
    lab = any_user
    with holding(lab, allow("ok.test")) as (proc, do):
        worked(do(CHECK)[0])
        pid = gateway_pid(lab, proc)
        lab.host(["kill", "-STOP", str(pid)])
        lab.clear()
        row = do([["eval", "s = socket.socket(); s.settimeout(0.5); s.connect(('11.66.0.1', 443)); out = 1"], ["eval", "s = socket.socket(); s.settimeout(0.7); s.connect(('11.1.0.5', 443)); s.send(b'x'); out = s.recv(1)"]])
        assert "err" in row[0] and "err" in row[1] and lab.strangers() == []
        lab.host(["kill", "-CONT", str(pid)])
        got = do(CHECK)
        worked(got[0]), refused(got[1]), refused(got[2])
