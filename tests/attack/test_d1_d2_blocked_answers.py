"""d1: an allowed name that points at private, loopback, link-local, CGNAT or metadata space; d2: the same, hidden in IPv6 forms."""
from expect import BLOCKED_ANSWERS, addresses, allow, ask, at_once, denied, holding, refused, reply, worked
from lab import wait_for

V4 = ["10.0.0.1", "10.255.255.255", "172.16.0.1", "172.31.255.254", "192.168.1.1", "127.0.0.1", "127.1.2.3", "169.254.1.1", "169.254.169.254", "169.254.170.2",
      "100.64.0.1", "100.100.100.200", "168.63.129.16", "192.0.0.192", "0.0.0.0", "0.1.2.3", "224.0.0.1", "239.255.255.250", "255.255.255.255", "240.0.0.1",
      "192.0.2.1", "198.18.0.1", "198.51.100.1", "203.0.113.1"]
V6 = ["::1", "::", "fe80::1", "fc00::1", "fd00:ec2::254", "fd12:3456::1", "ff02::1", "2001:db8::1", "fec0::1"]
HIDDEN = ["::ffff:10.0.0.1", "::ffff:169.254.169.254", "::ffff:127.0.0.1", "64:ff9b::a00:1", "64:ff9b::a9fe:a9fe", "2002:a00:1::1", "2002:a9fe:a9fe::1",
          "2002:7f00:1::", "2001:0:4136:e378:8000:63bf:f5ff:fffe", "::10.0.0.1", "::169.254.169.254", "::7f00:1", "64:ff9b:1::a9fe:a9fe"]


def names(lab, kind, addrs, prefix):
    out = []
    for i, addr in enumerate(addrs):
        name = "%s%d.wild.test" % (prefix, i)
        lab.dns.set(name, **{kind: addr})
        out.append(name)
    return out


def check(lab, mode):
    v4, v6, hidden = names(lab, "A", V4, "a"), names(lab, "AAAA", V6, "b"), names(lab, "AAAA", HIDDEN, "c")
    steps = [ask(n) for n in v4] + [ask(n, "AAAA") for n in v6 + hidden]
    steps += [["tcp", a, 443] for a in V4 + V6 + HIDDEN if a not in ("0.0.0.0", "::")] + [["udp", a, 5000, "x", 1.0] for a in V4[:14] + ["fd00:ec2::254"]]
    got = lab.probe(allow("*.wild.test", mode=mode), steps, timeout=120)
    addrs = V4 + V6 + HIDDEN
    wrong = [(addr, reply(row)) for addr, row in zip(addrs, got) if addresses(reply(row))]
    assert not wrong, wrong
    for step, row in zip(steps[len(addrs):], got[len(addrs):]):
        assert "err" in row, (step, row)
        at_once(row)
    assert lab.strangers() == [], lab.strangers()


def test_d1_d2_blocked_answers_are_dropped_and_not_learned(lab):
    check(lab, "codex")
    log = lab.netlog()
    for prefix, addrs in (("a", V4), ("b", V6), ("c", HIDDEN)):
        for i in range(len(addrs)):
            denied(log, ("flags: *.wild.test", BLOCKED_ANSWERS), event="dns", name="%s%d.wild.test" % (prefix, i))


def test_d1_d2_native_mode_is_no_different(lab):
    check(lab, "native")


def test_d1_mixed_answers_keep_the_public_part(lab):
    lab.dns.set("ok.test", A=["10.0.0.1", "11.1.0.5", "169.254.169.254"], AAAA=["fd00::1", "2a00:1::5", "::ffff:10.0.0.1"])
    got = lab.probe(allow("ok.test"), [ask("ok.test"), ask("ok.test", "AAAA"), ["tls", "ok.test", 443, "ok.test"], ["tls", "10.0.0.1", 443, "ok.test"]])
    assert addresses(reply(got[0])) == ["11.1.0.5"] and addresses(reply(got[1])) == ["2a00:1::5"]
    worked(got[2]), refused(got[3])
    assert lab.arrived("10.0.0.1") == 0


def test_d1_a_name_that_rebinds_reaches_nothing(lab):
    lab.dns.set("ok.test", A="11.1.0.5", ttl=1)
    connect = ["tcp", "ok.test", 80]
    with holding(lab, allow("ok.test")) as (proc, do):
        worked(do([connect])[0])
        lab.dns.set("ok.test", A="169.254.169.254", ttl=1)
        # The old answer serves for as long as it was told; from the new one on there is nothing to reach.
        wait_for(lambda: "err" in do([connect])[0])
        for row in do([connect] * 20):
            refused(row)
    assert lab.arrived("169.254.169.254") == 0
    denied(lab.netlog(), ("flags: ok.test", BLOCKED_ANSWERS), event="dns", name="ok.test")
