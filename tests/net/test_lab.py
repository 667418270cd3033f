"""The lab itself, with plain tools: what it serves, what it counts, and that it holds no more than it should."""
import os
import pty
import shutil
import signal
import socket
import subprocess

import dnswire
import pytest
from expect import refused
from lab import HERE, PYTHON, Lab, wait_for


def run_probe(lab, steps, **kw):
    r = lab.spawn(lab.probe_command(steps), **kw).wait()
    assert r.code == 0, r
    return r.json()


def test_names_pages_and_echoes_are_served_over_both_families(plain_lab):
    lab = plain_lab
    got = run_probe(lab, [["resolve", "ok.test"], ["tls", "11.1.0.5", 443, "two.test", "/x", lab.ca], ["tls", "2a00:1::5", 443, "ok.test"],
                          ["http", "ok.test", 80, "ok.test"], ["tcp", "11.9.9.9", 7, b"hello".hex()], ["udp", "11.9.9.9", 7, "hi"],
                          ["udp", "2a00:9::9", 7, "six"], ["read", "11.1.0.6", 22], ["tls", "169.254.169.254", 443, "ok.test"]])
    assert got[0]["ok"] == ["11.1.0.5", "2a00:1::5"]
    assert got[1]["ok"]["sni"] == "two.test" and got[1]["ok"]["dst"] == "11.1.0.5"
    assert got[2]["ok"]["dst"] == "2a00:1::5"
    assert got[3]["ok"]["host"] == "ok.test"
    assert [got[i]["ok"] for i in (4, 5, 6)] == ["hello", "hi", "six"]
    assert got[7]["ok"].startswith("SSH-2.0")
    assert got[8]["ok"]["dst"] == "169.254.169.254"
    assert lab.syns("11.1.0.5", 443) == 1
    assert lab.arrived("169.254.169.254:443") > 2
    assert lab.arrived("11.9.9.9", 7, "udp") == 1


def test_a_probe_tells_a_refusal_from_a_packet_that_is_dropped(plain_lab):
    """In a network of its own, where the first SYN is dropped and the second one refused."""
    rules = ("add table inet t; add chain inet t out { type filter hook output priority 0; }; "
             "add rule inet t out tcp dport 9 tcp flags syn quota until 100 bytes drop")
    code = "import subprocess\nsubprocess.run('ip link set lo up; nft \"%s\"', shell=True, check=True)" % rules
    command = ["unshare", "-n", *plain_lab.probe_command([["eval", code], ["tcp", "127.0.0.1", 8], ["tcp", "127.0.0.1", 9]])]
    got = plain_lab.host(command).json()
    assert [row.get("err") for row in got[1:]] == ["ECONNREFUSED"] * 2, got
    refused(got[1])
    assert got[2]["again"] == 1, got
    with pytest.raises(AssertionError, match="nobody answered at once"):
        refused(got[2])


def test_counters_see_what_nobody_answers(plain_lab):
    lab = plain_lab
    got = run_probe(lab, [["tcp", "11.5.5.5", 4444], ["tcp", "10.1.2.3", 4445], ["tcp", "192.168.1.1", 4446], ["udp", "8.8.8.8", 4447, "x", 0.1]])
    assert [row["err"] for row in got[:3]] == ["ECONNREFUSED"] * 3
    assert lab.syns("11.5.5.5", 4444) == 1 and lab.syns("10.1.2.3", 4445) == 1 and lab.syns("192.168.1.1", 4446) == 1
    assert lab.arrived("8.8.8.8", 4447, "udp") == 1
    assert len(lab.strangers()) == 4
    lab.reset()
    assert lab.strangers() == []


@pytest.mark.parametrize("dns", ["11.0.0.53", "2a00::53"])
def test_a_reply_that_nobody_waits_for_is_no_stranger(plain_lab, dns):
    """The host's kernel refuses a late reply of the DNS with an ICMP error; an error that quotes anything else is still one."""
    lab = plain_lab
    lab.dns.behave("ok.test", delay=0.3)
    code = ("s = socket.socket(socket.AF_INET6 if ':' in %r else socket.AF_INET, socket.SOCK_DGRAM)\n"
            "s.sendto(bytes.fromhex(%r), (%r, 53)); s.close()" % (dns, dnswire.query("ok.test").hex(), dns))
    assert "err" not in run_probe(lab, [["eval", code]])[0]
    wait_for(lambda: lab.counters()["packets"].get(dns + " 53 late"))
    assert lab.strangers() == [], lab.strangers()
    error = "(socket.AF_INET6, socket.SOCK_RAW, 58), b'\\1\\4'" if ":" in dns else "(socket.AF_INET, socket.SOCK_RAW, 1), b'\\3\\3'"
    send = "import socket; to, head = %s; socket.socket(*to).sendto(head + bytes(6) + b'my own words' * 10, (%r, 0))" % (error, dns)
    assert lab.spawn([PYTHON, "-c", send], who="root").wait().code == 0
    assert lab.strangers() == [dns + (" 0 58" if ":" in dns else " 0 1")]


def test_dns_follows_the_table_and_keeps_what_it_was_asked(plain_lab):
    lab = plain_lab
    lab.dns.set("chain.test", CNAME="mid.test", ttl=60)
    lab.dns.set("mid.test", CNAME="end.test")
    lab.dns.set("end.test", A=["11.7.0.1", "11.7.0.2"], TXT="words", HTTPS="11.7.0.9", SRV="ok.test")
    lab.dns.behave("trunc.test", truncate=True)
    lab.dns.set("trunc.test", A="11.7.0.3")
    ecs = [(8, bytes.fromhex("00011800c00002"))]
    ask = lambda *a, **k: ["dns", dnswire.query(*a, **k).hex(), "11.0.0.53"]
    got = run_probe(lab, [ask("ChAiN.test", edns=ecs), ask("end.test", "TXT"), ask("end.test", "HTTPS"), ask("nowhere.test"), ask("trunc.test"),
                          ask("trunc.test") + ["tcp"], ["dns", dnswire.query("ok.test", "AAAA").hex(), "2a00::53"], ask("a.b.wild.test")])
    msg = [dnswire.parse(bytes.fromhex(row["ok"])) for row in got]
    assert [r["data"] for r in msg[0]["answers"]] == ["mid.test", "end.test", "11.7.0.1", "11.7.0.2"]
    assert msg[1]["answers"][0]["type"] == "TXT" and msg[2]["answers"][0]["type"] == "HTTPS"
    assert msg[3]["rcode"] == 3 and msg[4]["tc"] and msg[5]["answers"][0]["data"] == "11.7.0.3"
    assert msg[6]["answers"][0]["data"] == "2a00:1::5" and msg[7]["answers"][0]["data"] == "11.1.1.1"
    first = lab.dns.log("chain.test")[0]
    assert first["name"] == "ChAiN.test" and first["options"] == [[8, "00011800c00002"]]
    assert lab.dns.log()[5]["proto"] == "tcp"


def test_forged_and_extra_answers_can_be_served(plain_lab):
    lab = plain_lab
    lab.dns.behave("ok.test", forge=[{"kind": "id", "A": "11.66.1.1"}, {"kind": "question", "A": "11.66.1.2"}],
                   extra=[["evil.test", "A", "11.66.1.3", 60]], delay=0.05)
    code = ("import socket\ns=socket.socket(socket.AF_INET,socket.SOCK_DGRAM)\ns.settimeout(3)\ns.sendto(bytes.fromhex(%r),('11.0.0.53',53))\n"
            "out=[s.recv(4096).hex() for _ in range(3)]" % dnswire.query("ok.test").hex())
    got = run_probe(lab, [["eval", code]])
    replies = [dnswire.parse(bytes.fromhex(x)) for x in got[0]["ok"]]
    assert replies[0]["id"] != 0x1234 and replies[1]["questions"][0]["name"] == "other.test"
    assert [a["name"] for a in replies[2]["answers"]] == ["ok.test", "evil.test"]


def test_a_user_in_the_lab_has_no_power_and_can_make_namespaces(plain_lab):
    lab = plain_lab
    code = ("import os,subprocess\nstatus=open('/proc/self/status').read()\n"
            "out=[os.getuid(), 'CapEff:\\t0000000000000000' in status, subprocess.run(['unshare','-Urn','true']).returncode]")
    got = run_probe(lab, [["eval", code]], who="user", env=lab.env(), cwd="/")
    assert got[0]["ok"] == [lab.uid, True, 0]
    assert lab.host(["id", "-u"]).out == "0\n"


def test_input_output_terminal_and_signals_reach_processes(plain_lab):
    lab = plain_lab
    assert lab.spawn(["cat"], stdin=b"through" * 30000).wait().out == "through" * 30000
    p = lab.spawn(["sleep", "100"])
    p.signal(15)
    assert p.wait().code == -15
    master, slave = pty.openpty()
    p = lab.spawn(["sh", "-c", "test -t 0 && tty >/dev/null && echo terminal; read x; echo got $x"], tty=slave)
    os.close(slave)
    p.pipes[1] = os.dup(master)
    p.wait_output(b"terminal")
    os.write(master, b"line\n")
    r = p.wait()
    os.close(master)
    assert r.code == 0 and "got line" in r.out


def test_leftovers_are_noticed_and_then_gone(plain_lab):
    lab = plain_lab
    assert lab.leaks() == ""
    p = lab.spawn(["unshare", "-Urn", "sleep", "100"])
    left = wait_for(lambda: [text for text in [lab.leaks(timeout=0)] if "namespaces: new" in text])[0]
    assert "process" in left, left
    p.signal(9)
    p.wait()
    assert lab.leaks() == ""


def test_a_lab_vanishes_with_its_owner():
    with Lab() as lab:
        outside = lab.info["outside_pid"]
        folder = lab.folder
        lab.spawn(["sleep", "1000"])
        os.kill(outside, 0)
    assert not os.path.exists(folder)
    assert not os.path.exists("/proc/%d" % outside)


OWNER = """
import os, signal, sys
sys.path.insert(0, %r)
from lab import Lab
lab = Lab().__enter__()
lab.spawn(["sleep", "1000"])
os.makedirs(lab.path("state", "work", "work"))
os.chmod(lab.path("state", "work"), 0)  # as overlayfs leaves them
print(lab.folder, lab.info["outside_pid"], flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_lab_vanishes_when_its_owner_is_killed():
    r = subprocess.run([PYTHON, "-c", OWNER % HERE], stdout=subprocess.PIPE, text=True, timeout=60)
    folder, pid = r.stdout.split()
    assert r.returncode == -signal.SIGKILL and os.path.basename(folder).startswith("aklab-")
    wait_for(lambda: not os.path.exists(folder) and not os.path.exists("/proc/" + pid))


def test_labs_do_not_see_each_other(plain_lab):
    with Lab() as second:
        second.dns.set("mine.test", A="11.8.0.1")
        assert run_probe(second, [["resolve", "mine.test"]])[0]["ok"] == ["11.8.0.1"]
        assert run_probe(plain_lab, [["resolve", "mine.test"]])[0]["err"] == "EAI_NONAME"
        assert plain_lab.strangers() == []


@pytest.mark.skipif(os.geteuid() != 0, reason="the tree of an ordinary user is their own")
def test_the_lab_s_user_can_run_what_lies_in_root_s_home(tmp_path):
    tree = tmp_path / "home" / "tree"
    shutil.copytree(os.path.dirname(os.path.dirname(HERE)), tree, ignore=lambda at, names: set(names) - {"tests", "lab"} if "lab" not in at else ())
    os.chmod(tmp_path / "home", 0o700)
    code = ("from lab import HERE, Lab\nwith Lab() as lab:\n    lab.reset()\n"
            "    print(lab.spawn(['/bin/sh', '-c', 'id -u; head -c 3 ' + HERE + '/lab.py'], who='user').wait())")
    r = subprocess.run([PYTHON, "-B", "-c", code], cwd=tree / "tests" / "lab", capture_output=True, text=True, timeout=120)
    assert r.returncode == 0 and "exit 0" in r.stdout and "#!/" in r.stdout, r
