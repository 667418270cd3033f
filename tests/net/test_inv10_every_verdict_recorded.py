"""Invariant 10: every verdict has a record with its rule; a record that could not be written is counted."""
import re

from expect import CODEX, DNS_ELSEWHERE, HOST_NOT_ALLOWED, METADATA, NOT_LEARNED, NOT_LISTED, PRIVATE, SNI_NOT_ALLOWED, allow, allowed, denied, find, refused
from lab import PYTHON


def test_each_kind_of_verdict_has_its_record(lab):
    steps = [["tls", "ok.test", 443, "ok.test"], ["http", "ok.test", 80, "ok.test"], ["resolve", "evil.test"], ["tcp", "11.66.0.1", 443],
             ["udp", "11.66.0.1", 5000], ["tcp", "10.0.0.1", 22], ["tcp", "169.254.169.254", 80], ["tcp", "2a00:66::1", 443],
             ["tls", "11.1.0.5", 443, "evil.test"], ["tcp", "11.1.0.5", 853], ["http", "11.1.0.5", 80, "evil.test"]]
    got = lab.probe(allow("ok.test"), steps)
    for row in got[2:]:
        refused(row)
    log = lab.netlog()
    allowed(log, event="dns", name="ok.test", qtype="A", rule="flags: ok.test")
    allowed(log, event="flow", port=443, name="ok.test", rule="flags: ok.test")
    allowed(log, event="flow", port=80, name="ok.test", rule="flags: ok.test")
    denied(log, NOT_LISTED, event="dns", name="evil.test", qtype="A")
    denied(log, NOT_LEARNED, dst="11.66.0.1", port=443, proto="tcp")
    denied(log, NOT_LEARNED, dst="11.66.0.1", port=5000, proto="udp")
    denied(log, PRIVATE, dst="10.0.0.1", port=22, proto="tcp")
    denied(log, METADATA, dst="169.254.169.254", port=80, proto="tcp")
    denied(log, NOT_LEARNED, dst="2a00:66::1", port=443, proto="tcp")
    denied(log, SNI_NOT_ALLOWED, sni="evil.test", dst="11.1.0.5", port=443, proto="tls")
    denied(log, DNS_ELSEWHERE, dst="11.1.0.5", port=853, proto="tcp")
    denied(log, HOST_NOT_ALLOWED, sni="evil.test", dst="11.1.0.5", port=80, proto="http")


def test_many_equal_denials_are_counted_not_lost(lab):
    code = "import socket\nfor i in range(3000):\n s=socket.socket(); s.settimeout(2); s.connect_ex(('11.66.0.1',443)); s.close()"
    r = lab.run([*CODEX, PYTHON, "-c", code])
    assert r.code == 0, r
    log = lab.netlog()
    rows = denied(log, NOT_LEARNED, dst="11.66.0.1", port=443)
    more = find(log, event="packet", verdict="deny", rule="builtin: default", reason="more of the same than were logged")
    assert sum(row["count"] + row.get("suppressed", 0) for row in rows + more) == 3000, (rows, more)
    assert len(rows + more) < 3000 and rows + more == find(log, verdict="deny")
    assert lab.arrived("11.66.0.1") == 0


def test_questions_over_the_rate_are_counted_too(lab):
    code = ("import socket,struct\ns=socket.socket(socket.AF_INET,socket.SOCK_DGRAM); s.settimeout(2); s.connect((open('/etc/resolv.conf').read().split()[1],53))\n"
            "for i in range(2000):\n s.send(struct.pack('!HHHHHH',i,256,1,0,0,0)+b'\\x06n%05d\\x04evil\\x04test\\0' % i+struct.pack('!HH',1,1))\n"
            " if i % 50 == 49:\n  try:\n   for _ in range(50): s.recv(999)\n  except OSError: pass\n")
    r = lab.run([*CODEX, PYTHON, "-c", code.replace("settimeout(2)", "settimeout(0.05)")])
    assert r.code == 0, r
    log = lab.netlog()
    rows = find(log, event=("dns", "packet"), verdict="deny")
    assert sum(row["count"] + row.get("suppressed", 0) for row in rows) == 2000, rows[-3:]
    denied(log, ("codex: limits.dns_qps", "DNS budget exceeded"), event="dns")
    assert {(row["rule"], row["reason"]) for row in rows} <= {NOT_LISTED, ("codex: limits.dns_qps", "DNS budget exceeded"),
                                                              ("builtin: dns_qps", "far more questions than the policy allows"),
                                                              ("builtin: rate", "more of the same than were logged")}, rows[-3:]
    assert lab.dns.log() == []


def test_a_full_disk_loses_records_and_not_the_fence(lab):
    """The state folder is a file system of 64 KiB that fills up while the sandbox runs."""
    assert lab.host(["mount", "-t", "tmpfs", "-o", "size=64k,mode=777", "tmpfs", lab.path("state")]).code == 0
    try:
        code = ("import socket\nfor i in range(1500):\n try: socket.getaddrinfo('name-%d.evil.test' % i, 443)\n except OSError: pass\n"
                "s=socket.socket(); s.settimeout(2); print('refused' if s.connect_ex(('11.66.0.1',443)) else 'reached')")
        r = lab.run([*CODEX, PYTHON, "-c", code], timeout=60)
        assert r.code == 0 and r.out == "refused\n", r
        lost = re.search(r"agentkernel: (\d+) network records were lost: the log could not be written", r.err)
        assert lost and 0 < int(lost[1]) < 2 * 1500 + 1, r
    finally:
        lab.host(["umount", lab.path("state")])
    assert lab.arrived("11.66.0.1") == 0
    assert not [n for n in lab.dns.names() if n.endswith("evil.test")]


def test_a_full_state_folder_at_the_start_is_told(lab):
    assert lab.host(["mount", "-t", "tmpfs", "-o", "size=16k,mode=777", "tmpfs", lab.path("state")]).code == 0
    try:
        lab.host(["sh", "-c", "cat /dev/zero > %s/filler" % lab.path("state")])
        r = lab.run([*CODEX, "true"])
        assert r.code == 125 and r.out == "" and lab.path("state") in r.err and "No space left on device" in r.err, r
    finally:
        lab.host(["umount", lab.path("state")])
