"""Invariant 12: caps per sandbox hold, and one sandbox does not starve another."""
from expect import allow, denied, find, holding, policy_env, worked


def test_connections_are_capped_by_the_policy(lab):
    env = policy_env(lab, codex={"allow": ["ok.test:7"], "limits": {"connections": 4}})
    code = ("addr = socket.getaddrinfo('ok.test', 7, socket.AF_INET)[0][4]\nheld, out = [], []\nfor i in range(8):\n s = socket.socket(); s.settimeout(3)\n"
            " try:\n  s.connect(addr); s.send(b'x'); out.append(s.recv(1).decode()); held.append(s)\n except OSError as e: out.append('no')")
    got = lab.probe(["--compatibility-mode", "codex"], [["eval", code]], env=env)
    results = worked(got[0])
    assert results[:4] == ["x"] * 4 and set(results[4:]) <= {"no", ""}, results
    assert lab.syns("11.1.0.5", 7) == 4
    assert find(lab.netlog(), verdict=("deny", "error"), port=7, dst="11.1.0.5")


def test_questions_are_capped_per_second(lab):
    env = policy_env(lab, codex={"allow": ["ok.test"], "limits": {"dns_qps": 20}})
    code = ("out = 0\nfor i in range(400):\n try: socket.getaddrinfo('n%d.evil.test' % i, 1, socket.AF_INET); \n except socket.gaierror: out += 1")
    got = lab.probe(["--compatibility-mode", "codex"], [["eval", code], ["resolve", "ok.test", 4]], env=env)
    assert got[0]["ok"] == 400 and lab.dns.log("n1.evil.test") == []


def test_egress_bytes_are_capped(lab):
    env = policy_env(lab, codex={"allow": ["ok.test:9000"], "limits": {"egress_bytes": "100K"}})
    code = ("s = socket.create_connection(('ok.test', 9000), 5)\nsent = 0\ntry:\n while sent < 8000000:\n  sent += s.send(b'x' * 65536)\n s.shutdown(1); out = s.recv(100).decode()\n"
            "except OSError as e: out = 'cut'")
    got = lab.probe(["--compatibility-mode", "codex"], [["eval", code]], env=env)
    assert got[0].get("ok") in ("cut", ""), got
    far = [c for c in lab.conns(kind="count")]
    assert far and far[0]["bytes"] <= 200 * 1024, far


def test_one_sandbox_flooding_does_not_slow_the_other(lab):
    flood = ("import socket\ns=socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\nprint('up', flush=True)\nimport time\nend=time.monotonic()+20\n"
             "q=bytes.fromhex('123401000001000000000000046576696c04746573740000010001')\n"
             "while time.monotonic() < end:\n s.sendto(q, ('11.0.0.53', 53))")
    noisy = lab.start([*allow("ok.test"), "--", "/usr/bin/python3", "-c", flood])
    noisy.wait_output(b"up\n")
    got = lab.probe(allow("ok.test"), [["resolve", "ok.test", 4] for _ in range(50)])
    noisy.signal(15)
    noisy.wait(15)
    slow = sorted(row["ms"] for row in got)
    assert all("ok" in row for row in got) and slow[25] < 100, slow
