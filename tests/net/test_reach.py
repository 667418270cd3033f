"""What a sandbox may do works: names, TLS end to end, both families, half-close, large transfers, UDP by rule, chosen host services."""
import itertools
import os

from expect import CODEX, NATIVE, allow, allowed, ask, denied, holding, refused, reply, worked
from lab import PYTHON, wait_for


def test_tls_is_end_to_end_over_both_families(any_user):
    lab = any_user
    got = lab.probe(allow("ok.test"), [["tls", "ok.test", 443, "ok.test", "/p", lab.ca], ["resolve", "ok.test"], ["tls", "11.1.0.5", 443, "ok.test"],
                                       ["tls", "2a00:1::5", 443, "ok.test"], ["http", "ok.test", 80, "ok.test"]])
    assert worked(got[0])["path"] == "/p"
    assert worked(got[1]) == ["11.1.0.5", "2a00:1::5"]
    assert worked(got[2])["dst"] == "11.1.0.5" and worked(got[3])["dst"] == "2a00:1::5"
    assert worked(got[4])["host"] == "ok.test"
    assert {c["sni"] for c in lab.conns(kind="tls")} == {"ok.test"}


def test_the_modes_own_hosts_and_registries_are_reachable(lab):
    steps = [["tls", "api.openai.com", 443, "api.openai.com"], ["tls", "pypi.org", 443, "pypi.org"],
             ["tls", "files.pythonhosted.org", 443, "files.pythonhosted.org"], ["resolve", "pastebin.com"], ["resolve", "api.anthropic.com"]]
    got = lab.probe(CODEX, steps)
    for row in got[:3]:
        worked(row)
    refused(got[3]), refused(got[4])
    got = lab.probe(["--compatibility-mode", "claude"], [["tls", "api.anthropic.com", 443, "api.anthropic.com"], ["resolve", "api.openai.com"]])
    worked(got[0]), refused(got[1])
    got = lab.probe(["--compatibility-mode", "gemini"], [["tls", "generativelanguage.googleapis.com", 443, "generativelanguage.googleapis.com"],
                                                         ["resolve", "api.openai.com"]])
    worked(got[0]), refused(got[1])


def test_native_reaches_everything_public(any_user):
    lab = any_user
    got = lab.probe(NATIVE, [["tls", "evil.test", 443, "evil.test"], ["tls", "11.66.0.2", 443, "whatever.test"], ["tcp", "11.99.0.1", 7, b"raw".hex()],
                             ["udp", "11.99.0.1", 7, "datagram"], ["read", "11.99.0.1", 22], ["http", "evil.test", 80, "evil.test"],
                             ["tcp", "2a00:99::1", 7, b"six".hex()], ["udp", "2a00:99::1", 7, "six"], ["resolve", "pastebin.com"]])
    for row in got:
        worked(row)
    assert got[3]["ok"] == "datagram" and got[7]["ok"] == "six" and got[4]["ok"].startswith("SSH-2.0")
    log = lab.netlog()
    allowed(log, proto="udp", dst="11.99.0.1", port=7)
    allowed(log, proto="tcp", dst="11.99.0.1", port=22)


def test_ports_and_udp_open_by_rule(lab):
    got = lab.probe(allow("ok.test:22", "other.test:5000/udp", "v4.test:8443"), [
        ["read", "ok.test", 22], ["udp", "other.test", 5000, "ping"], ["tls", "v4.test", 8443, "v4.test"],
        ["tcp", "ok.test", 443], ["udp", "ok.test", 22], ["tcp", "other.test", 5000], ["tcp", "v4.test", 80]])
    assert worked(got[0]).startswith("SSH-2.0") and worked(got[1]) == "ping"
    worked(got[2])
    for row in got[3:]:
        refused(row)
    assert lab.strangers("11.1.0.5", "2a00:1::5", "11.1.0.6", "2a00:1::6", "11.1.0.7") == []


def test_large_transfers_arrive_whole_both_ways(lab):
    up = ("import hashlib\ns = socket.create_connection(('ok.test', 9000), 10)\nfor i in range(200): s.sendall(bytes([i]) * 100000)\ns.shutdown(socket.SHUT_WR)\n"
          "out = s.makefile().read()")
    got = lab.probe(allow("ok.test:9000", "ok.test:443"), [["eval", up], ["tls", "ok.test", 443, "ok.test", "/bytes/30000000"]])
    assert worked(got[0]) == "20000000\n", "half-close lost: %r" % got[0]
    assert worked(got[1])["size"] == 30000000
    flow = allowed(lab.netlog(), event="flow", port=9000)[0]
    assert flow["bytes_out"] == 20000000 and flow["bytes_in"] == 9, flow


def test_a_slow_reader_is_not_flooded_and_gets_everything(lab):
    code = """
import fcntl, termios
ctx = ssl._create_unverified_context()
raw = connect('ok.test', 443); raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
s = ctx.wrap_socket(raw, server_hostname='ok.test')
s.sendall(b'GET /bytes/4000000 HTTP/1.1\\r\\nHost: ok.test\\r\\n\\r\\n')
looks = []
def stuck():
    # What waits to be read no longer becomes more: everybody on the way waits for us.
    looks.append(struct.unpack('i', fcntl.ioctl(s, termios.FIONREAD, bytes(4)))[0])
    return looks[-1] and looks[-20:] == [looks[-1]] * 20
wait_for(stuck)
waiting, n = looks[-1], 0
while n < 4000000: n += len(s.recv(65536))
out = [waiting, n]
"""
    waiting, n = worked(lab.probe(allow("ok.test"), [["eval", code]])[0])
    assert waiting < 100000 and n >= 4000000, (waiting, n)


def test_a_refusing_far_side_looks_refused(lab):
    got = lab.probe(allow("ok.test:4444"), [["tcp", "ok.test", 4444, b"x".hex()]])
    refused(got[0])
    assert lab.syns("11.1.0.5", 4444) + lab.syns("2a00:1::5", 4444) >= 1


def test_a_private_range_opens_by_cidr_and_only_it(lab):
    got = lab.probe([*CODEX, "--allow-cidr", "10.20.0.0/16", "--block-cidr", "10.20.30.0/24"], [
        ["tcp", "10.20.1.1", 7, b"in".hex()], ["udp", "10.20.1.1", 7, "in"], ["tcp", "10.21.0.1", 7], ["tcp", "10.20.30.1", 7],
        ["tcp", "169.254.169.254", 80]])
    assert worked(got[0]) == "in" and worked(got[1]) == "in"
    for row in got[2:]:
        refused(row)
    assert lab.strangers("10.20.1.1") == []


def test_a_blocked_host_beats_native(lab):
    got = lab.probe([*NATIVE, "--block-host", "evil.test", "--block-host", "*.wild.test", "--block-cidr", "11.80.0.0/16"], [
        ["resolve", "evil.test"], ["resolve", "a.wild.test"], ["tls", "11.66.0.2", 443, "evil.test"], ["tcp", "11.80.1.1", 7], ["resolve", "ok.test"]])
    for row in got[:4]:
        refused(row)
    worked(got[4])
    assert lab.arrived("11.66.0.2") == 0 and lab.arrived("11.80.1.1") == 0


def test_an_alias_is_reached_by_its_own_name(lab):
    got = lab.probe(allow("alias.test"), [["tls", "alias.test", 443, "alias.test"], ["tls", "11.1.0.5", 443, "ok.test"]])
    worked(got[0]), refused(got[1])
    rows = allowed(lab.netlog(), event="dns", name="alias.test")
    assert rows[0]["cname"] == ["ok.test"], rows


def test_a_resolver_on_loopback_works_and_changes_are_followed(lab):
    """The host's resolver is a forwarder on 127.0.0.53, as systemd's is; then resolv.conf names another."""
    forwarder = ("import socket,select\na=socket.socket(socket.AF_INET,socket.SOCK_DGRAM); a.bind(('127.0.0.53',53)); print('up',flush=True)\n"
            "while True:\n q,p=a.recvfrom(4096)\n b=socket.socket(socket.AF_INET,socket.SOCK_DGRAM); b.settimeout(2); b.sendto(q,('11.0.0.99',53)); a.sendto(b.recv(4096),p); b.close()")
    server = lab.spawn([PYTHON, "-c", forwarder], who="root")
    server.wait_output(b"up")
    try:
        lab.resolv("nameserver 127.0.0.53\n")
        with holding(lab, allow("ok.test", "*.wild.test")) as (proc, do):
            assert worked(do([["resolve", "ok.test", 4]])[0]) == ["11.1.0.5"]
            assert {row["dst"] for row in lab.dns.log()} == {"11.0.0.99"}
            lab.resolv("nameserver 11.0.0.77\n")
            lab.clear()
            names = itertools.count()  # a new one each time, so that no answer is remembered

            def taken_up():
                do([["resolve", "n%d.wild.test" % next(names), 4]])
                return "11.0.0.77" in {row["dst"] for row in lab.dns.log()}
            wait_for(taken_up, timeout=20, every=0.1)
    finally:
        server.signal(9)
        server.wait()


def test_a_dead_resolver_is_an_error_in_time(lab):
    lab.dns.behave("*", drop=True)
    got = lab.probe(allow("ok.test"), [["resolve", "ok.test", 4]])
    assert got[0]["err"] in ("EAI_AGAIN", "EAI_NONAME") and got[0]["ms"] < 15000, got


def test_truncated_answers_are_asked_again_over_tcp(lab):
    lab.dns.behave("ok.test", truncate=True)
    got = lab.probe(allow("ok.test"), [["resolve", "ok.test", 4]])
    assert worked(got[0]) == ["11.1.0.5"]
    assert "tcp" in {row["proto"] for row in lab.dns.log("ok.test")}


def test_v4_only_hosts_work_without_ipv6(lab):
    lab.host(["ip", "-6", "route", "del", "default"])
    lab.host(["ip", "addr", "del", "2a00:ffff::2/64", "dev", "eth0"])
    try:
        got = lab.probe(allow("ok.test"), [["tls", "ok.test", 443, "ok.test"], ask("ok.test", "AAAA")])
        assert worked(got[0])["dst"] == "11.1.0.5"
        assert not reply(got[1])["answers"]
    finally:
        lab.host(["ip", "addr", "add", "2a00:ffff::2/64", "dev", "eth0", "nodad"])
        lab.host(["ip", "route", "add", "default", "via", "2a00:ffff::1"])
