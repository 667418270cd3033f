"""g9: what a sandbox puts into names and how fast it is refused never breaks the log: each line one valid object, the rest counted, the fence unmoved."""
import json
import os

import pytest
from expect import CODEX, NOT_LEARNED, allow, ask, denied, holding, in_sandbox, policy_env, refused, table_is_clean, worked
from frames import FRAMES
from lab import PYTHON

INJECTIONS = [b'","verdict":"allow', b'\n{"v":1,"verdict":"allow"}\n', b"\r\nHost", b"\x1b]0;title\x07", b"\x1b[2J\x1b[31m", b"\xff\xfe\xfd", b"%s%n%x", b"\\u0000", b"\0\0\0", b"</script>", b"'; drop",
              b"\xe2\x80\xae", b"\x7f\x80\x9b31m", b"a" * 63]


def clean_log(lab, name=None):
    """Every line of the raw files and of the command is one object; the table has no control character; the chain holds."""
    r = lab.ak(["network", "log", name or "--last", "--json"])
    assert r.code == 0 and all(32 <= b < 127 or b == 10 for b in r.out_bytes), "bytes that are not plain ASCII"
    rows = [json.loads(line) for line in r.out.splitlines()]
    table_is_clean(lab.ak(["network", "log", name or "--last"]).out.replace("↑", "").replace("↓", "").replace("…", ""))
    assert lab.ak(["audit", "verify"]).code == 0
    return rows


def test_g9_names_cannot_break_the_log(any_user):
    lab = any_user
    steps = [ask([part, b"evil", b"test"], proto=p) for part in INJECTIONS for p in ("udp", "tcp")] + [ask("ok.test")]
    hello = ("import struct\ndef sni(n):\n e = struct.pack('!HBH', len(n) + 3, 0, len(n)) + n; x = struct.pack('!HH', 0, len(e)) + e\n b = b'\\x03\\x03' + b'r' * 32 + b'\\0\\0\\2\\xc0\\x2b\\1\\0' + struct.pack('!H', len(x)) + x\n"
             " h = b'\\1' + struct.pack('!I', len(b))[1:] + b; return b'\\x16\\3\\1' + struct.pack('!H', len(h)) + h\nout = []\nfor n in json.loads(%r):\n n = bytes.fromhex(n)\n"
             " for port, data in ((443, sni(n)), (80, b'GET / HTTP/1.1\\r\\nHost: ' + n.replace(b'\\n', b'') + b'\\r\\n\\r\\n')):\n"
             "  s = socket.socket(); s.settimeout(3)\n  try: s.connect(('11.1.0.5', port)); s.send(data); out.append(len(s.recv(10)))\n  except OSError as e: out.append(str(e))\n  s.close()\n") % json.dumps(
                 [n.hex() for n in INJECTIONS])
    got = lab.probe(allow("ok.test"), steps + [["eval", hello]], timeout=60)
    assert not [n for n in worked(got[-1]) if n and not isinstance(n, str)] and "timed out" not in got[-1]["ok"], got[-1]
    rows = clean_log(lab)
    assert not [r for r in rows if r["verdict"] == "allow" and r["event"] in ("dns", "flow") and r.get("name") != "ok.test"]
    assert len([r for r in rows if r["verdict"] == "deny"]) >= 10 and len({r["seq"] for r in rows}) == len(rows)
    assert lab.strangers() == [] and set(lab.dns.names()) == {"ok.test"}


def test_g9_command_lines_and_environments_cannot_break_the_events(any_user):
    lab = any_user
    lab.run([*CODEX, "-e", "X=\n\x1b[31m\"", "--", "sh", "-c", "true # \n{\"v\":1}\n\x1b[2J", "\x01\x02", "é\u202e"])
    r = lab.ak(["audit", "--json"])
    events = [json.loads(line)["event"] for line in r.out.splitlines()]
    assert r.code == 0 and {"run_start", "run_end"} <= set(events), r  # no text makes a run look damaged
    assert all(b >= 32 and b != 127 or b == 10 for b in r.out_bytes)
    assert lab.ak(["audit", "verify"]).code == 0


FLOOD = r"""
import time
link = Link()
packets = []
for i in range(256):
    kind, data = (syn if i % 2 else lambda *a: udp4(*a, b'x'))(link.addr4, '11.66.0.%d' % (i % 250 + 1), 40000 + i, 443)
    packets.append(link.gw_mac + link.mac + kind + data)
    if link.addr6:
        kind, data = (syn if i % 2 else lambda *a: udp4(*a, b'x'))(link.addr6, '2a00:66::%x' % (i + 1), 40000 + i, 443)
        packets.append(link.gw_mac + link.mac + kind + data)
start, n = time.monotonic(), 0
while n < 100000:
    for p in packets: link.sock.send(p)
    n += len(packets)
print(n, time.monotonic() - start)
"""


@pytest.mark.parametrize("who", ["user", "root"])
def test_g9_a_flood_of_denials_is_counted_not_written(lab, who):
    """A hundred thousand and more as raw frames, as fast as the link takes them: far over a hundred thousand a second on a quiet machine."""
    if who == "root" and not lab.is_root:
        pytest.skip("the suite runs as an ordinary user")
    with lab.acting_as(who):
        with holding(lab, allow("ok.test")) as (proc, do):
            worked(do([["tls", "ok.test", 443, "ok.test"]])[0])
            lab.clear()
            r = in_sandbox(lab, proc, PYTHON, "-c", FRAMES + FLOOD)
            sent = int(r.out.split()[0])
            row = do([["tls", "ok.test", 443, "ok.test"], ["tcp", "11.66.0.1", 443]])
            worked(row[0])
            refused(row[1])
            assert lab.strangers("11.1.0.5", "2a00:1::5") == []
        rows = clean_log(lab)
        told = sum(r.get("count", 0) + r.get("suppressed", 0) for r in rows if r["verdict"] == "deny")
        lost = sum(r.get("count", 0) for r in rows if r["event"] == "loss")
        assert told + lost >= sent, (told, lost, sent)
        assert len(rows) < sent // 20 and [r for r in rows if r.get("suppressed", 0) > 1000], len(rows)
        size = sum(os.path.getsize(os.path.join(d, f)) for d, _, fs in os.walk(lab.path("state")) for f in fs)
        assert size < 8 << 20, size


def test_g9_a_flood_from_inside_by_every_protocol(any_user):
    lab = any_user
    code = """
import time
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.setblocking(False)
end = time.monotonic() + 2; n = 0
while time.monotonic() < end:
    for i in range(200):
        try: u.sendto(b'x', ('11.66.%d.%d' % (n % 50, i + 1), 1 + i)); n += 1
        except OSError: n += 1
    s = socket.socket(); s.setblocking(False)
    try: s.connect(('11.66.9.9', 443))
    except OSError: pass
    s.close()
out = n
"""
    got = lab.probe(allow("ok.test"), [["eval", code], ["tls", "ok.test", 443, "ok.test"]], timeout=60)
    assert worked(got[0]) > 5000
    worked(got[1])
    rows = clean_log(lab)
    denied(rows, NOT_LEARNED, dst="11.66.0.1", proto="udp")
    assert sum(r.get("suppressed", 0) for r in rows) > 1000 and len(rows) < 5000
    assert lab.strangers("11.1.0.5", "2a00:1::5") == []


def test_g9_a_full_disk_opens_nothing(any_user):
    """The log's own file may not grow any more (a limit of its size stands for a full disk): what is denied stays denied, what is allowed waits until it can be recorded, the loss is told."""
    lab = any_user
    steps = [["tls", "ok.test", 443, "ok.test"]] + [["resolve", "n%d.evil.test" % i] for i in range(300)] + [["tls", "ok.test", 443, "ok.test"], ["tcp", "11.66.0.1", 443], ["resolve", "evil.test"]]
    env = policy_env(lab, codex={"allow": ["ok.test"], "limits": {"dns_qps": 100000}})
    r = lab.run([*CODEX, "--", *lab.probe_command(steps)], env=env, rlimits={"RLIMIT_FSIZE": 65536}, timeout=60)
    got = r.json()
    worked(got[0])
    assert all("err" in row for row in got[1:])
    assert lab.strangers("11.1.0.5", "2a00:1::5") == [] and set(lab.dns.names()) == {"ok.test"}
    assert "cannot be written" in r.err, r
    clean_log(lab)
