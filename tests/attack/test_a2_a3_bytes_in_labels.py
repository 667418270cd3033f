"""a2: NUL, control, space and high bytes in a label; a3: a dot inside one wire label. Refused before upstream, the log stays clean."""
import json

from expect import allow, ask, dnswire, reply, table_is_clean

A2 = [[b"ok\0", b"test"], [b"\0ok", b"test"], [b"ok", b"test\0"], [b"a\0b", b"wild", b"test"], [b"a b", b"wild", b"test"], [b"\x1b[31m", b"wild", b"test"],
      [b"\n", b"wild", b"test"], [b'"', b"wild", b"test"], [b"\\", b"wild", b"test"], [b"\xff\xfe", b"wild", b"test"], [b"\x7f", b"wild", b"test"],
      [b"\xc3\xa9", b"wild", b"test"], [b"a\r\nx", b"wild", b"test"], [b"%0a", b"wild", b"test"], [b"a/b", b"wild", b"test"], [b"*", b"wild", b"test"],
      [b"a@b", b"wild", b"test"], [b"\x01" * 63, b"wild", b"test"]]
A3 = [[b"ok.test"], [b"a.wild", b"test"], [b"a.wild.test"], [b"a", b"wild.test"], [b"a.b", b"wild", b"test"], [b".", b"wild", b"test"],
      [b"ok.", b"test"], [b".ok", b"test"], [b"api.openai", b"com"]]


def refuse_all(lab, names, mode="codex"):
    steps = [ask(name, ident=100 + i, proto=proto) for i, name in enumerate(names) for proto in ("udp", "tcp")] + [ask("ok.test")]
    got = lab.probe(allow("ok.test", "*.wild.test", mode=mode), steps)
    for name, row in zip([n for n in names for _ in (1, 2)], got):
        message = reply(row)
        assert message["rcode"] == 3 and not message["answers"], (name, message)
    assert reply(got[-1])["answers"]
    assert lab.dns.names() == ["ok.test"]
    r = lab.ak(["network", "log", "--last"])
    table_is_clean(r.out.replace("↑", "").replace("↓", ""))
    raw = lab.ak(["network", "log", "--last", "--json"]).out
    for line in raw.splitlines():
        json.loads(line)
    assert all(32 <= ord(c) < 127 for c in raw.replace("\n", "") if ord(c) < 160), "unescaped bytes in the log"


def test_a2_bytes_that_no_host_name_has(lab):
    refuse_all(lab, A2)
    assert len([row for row in lab.netlog("--denied")]) >= 1


def test_a2_bytes_that_no_host_name_has_in_native_mode(lab):
    refuse_all(lab, A2[:8] + A2[12:13], mode="native")


def test_a3_a_dot_in_a_label_is_no_separator(lab):
    refuse_all(lab, A3)


def test_a3_a_dot_in_a_label_in_native_mode(lab):
    refuse_all(lab, A3, mode="native")
