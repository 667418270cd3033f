"""a7: overlong names, loops, pointers, truncation; a8: QDCOUNT, opcode, class, QR. FORMERR or silence, nothing upstream, flat memory."""
import json
import struct

from expect import CODEX, allow, ask, dnswire, gateway_pid, holding, policy_env, processes, reply, worked

SEND = """
import select, time
out = {}
messages = [bytes.fromhex(m) for m in json.loads(MESSAGES)]
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.connect((gateway(), 53))
s.setblocking(False)
def gather(wait):
    while select.select([s], [], [], wait)[0]:
        try: data = s.recv(65536)
        except OSError: continue
        if len(data) >= 4: out.setdefault(str(struct.unpack('!H', data[:2])[0]), data.hex())
        if out.get('65000'): return
for i, m in enumerate(messages):
    try: s.send(m)
    except OSError: pass
    if i % 20 == 19: gather(0.02)
s.send(bytes.fromhex(GOOD))
gather(3)
"""
Q = struct.pack("!HH", 1, 1)


def header(ident, flags=0x0100, qd=1, an=0, ns=0, ar=0):
    return struct.pack("!HHHHHH", ident, flags, qd, an, ns, ar)


def overlong():
    name = b"".join(b"\x3f" + bytes([97 + i]) * 63 for i in range(4))
    yield name + b"\0"  # 257 octets
    yield b"\x3f" + b"a" * 63 + b"\x40" + b"b" * 64 + b"\x04test\0"  # a label of 64
    yield (b"\x01a" * 127) + b"\x02ok\x04test\0"  # 263 octets in short labels
    yield b"\x80" + b"a" * 10 + b"\0"
    yield b"\xc0\x0c"  # points at itself
    yield b"\x02ok\xc0\x0c"  # loops through the question
    yield b"\xc0\x0e\xc0\x0c"  # two pointers in a circle
    yield b"\x02ok\xc0\x00"  # into the header
    yield b"\xc0\xff"  # past the end
    yield b"\x02ok\xff\xff"


def a7_messages():
    out = [header(1000 + i) + name + Q for i, name in enumerate(overlong())]
    whole = dnswire.query("ok.test", edns=[(10, b"12345678")])
    out += [struct.pack("!H", 2000 + n) + whole[2:n] for n in range(2, len(whole)) if n not in (25,)]
    out += [b"", b"\0", header(3000)[:11], header(3001, ar=1) + dnswire.encode_name("ok.test") + Q]
    out += [header(3002, ar=1) + dnswire.encode_name("ok.test") + Q + b"\0" + struct.pack("!HHIH", 41, 1232, 0, 400)]
    out += [header(3003, an=65535) + dnswire.encode_name("ok.test") + Q, header(3004, ar=2) + dnswire.encode_name("ok.test") + Q + 2 * (
        b"\0" + struct.pack("!HHIH", 41, 1232, 0, 0))]
    return out


def a8_messages():
    name = dnswire.encode_name("ok.test")
    out = [header(4000, qd=0), header(4001, qd=0) + name + Q, header(4002, qd=2) + name + Q + name + Q,
           header(4003, qd=2) + name + Q + dnswire.encode_name("evil.test") + Q, header(4004, qd=65535) + name + Q,
           header(4005, qd=2) + name + Q]
    out += [header(4100 + op, flags=0x0100 | op << 11) + name + Q for op in range(1, 16)]
    out += [header(4200 + i) + name + struct.pack("!HH", 1, cls) for i, cls in enumerate((0, 2, 3, 4, 254, 255, 65535))]
    out += [header(4300, flags=0x8180) + name + Q, header(4301, flags=0x8580, an=1) + name + Q + dnswire.record("ok.test", "A", "11.66.0.1", 60)]
    out += [header(4400, an=1) + name + Q + dnswire.record("ok.test", "A", "11.66.0.1", 60)]
    return out


def run(lab, messages, answers):
    """Send MESSAGES; so many of them get an answer, none of them with a record, and none is asked of anybody."""
    good = struct.pack("!H", 65000) + dnswire.query("other.test")[2:]
    code = "MESSAGES = %r\nGOOD = %r\n%s" % (json.dumps([m.hex() for m in messages]), good.hex(), SEND)
    got = lab.probe(allow("ok.test", "other.test"), [["eval", code], ["tcp", "11.66.0.1", 443]])[0]["ok"]
    assert dnswire.parse(bytes.fromhex(got.pop("65000")))["answers"], "the proxy stopped answering"
    for ident, text in got.items():
        data = bytes.fromhex(text)
        assert data[3] & 15 in (1, 4, 5) and struct.unpack("!H", data[6:8])[0] == 0, (ident, text)
    assert len(got) == answers, sorted(got)
    assert lab.dns.names() == ["other.test"]
    assert lab.arrived("11.66.0.1") == 0
    return got


def test_a7_malformed_messages_get_formerr_or_silence(lab):
    run(lab, a7_messages(), 49)


def test_a8_only_one_plain_question_is_taken(lab):
    got = run(lab, a8_messages(), 31)
    for ident in ("4002", "4003"):
        assert bytes.fromhex(got[ident])[3] & 15 == 1, "two questions want FORMERR"


def test_a7_a8_same_over_tcp(lab):
    messages = [m for m in a7_messages() + a8_messages() if len(m) >= 12]
    code = ("out = []\nfor m in json.loads(%r):\n m = bytes.fromhex(m)\n try:\n  s = socket.create_connection((gateway(), 53), 2); s.sendall(struct.pack('!H', len(m)) + m)\n"
            "  s.shutdown(socket.SHUT_WR)\n  r = s.recv(65536); out.append(r.hex()); s.close()\n except OSError as e: out.append('')" % json.dumps(
                [m.hex() for m in messages]))
    got = lab.probe(allow("ok.test", "other.test"), [["eval", code], ask("other.test")])
    assert reply(got[1])["answers"]
    answers = worked(got[0])
    assert len(answers) == len(messages) and sum(map(bool, answers)) == 80, answers
    for message, text in zip(messages, answers):
        if text:
            data = bytes.fromhex(text)[2:]
            assert data[3] & 15 in (1, 4, 5), (message.hex(), text)
    assert lab.dns.names() == ["other.test"]


def test_a7_memory_stays_flat_under_malformed_messages(lab):
    env = policy_env(lab, codex={"allow": ["ok.test", "other.test"], "limits": {"dns_qps": 1000000}})
    with holding(lab, CODEX, env=env) as (proc, do):
        pid = gateway_pid(lab, proc)
        code = ("s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.connect((gateway(), 53))\nms = [bytes.fromhex(m) for m in json.loads(%r)]\n"
                "for i in range(100):\n for m in ms:\n  try: s.send(m)\n  except OSError: pass\nout = 1" % json.dumps([m.hex() for m in a7_messages()]))
        do([["eval", code], ask("ok.test")])
        before = processes(lab, proc)[pid]["rss_kib"]
        got = do([["eval", code], ["eval", code], ["eval", code], ask("other.test")])
        assert reply(got[-1])["answers"]
        after = processes(lab, proc)[pid]["rss_kib"]
        assert after - before < 512, (before, after)
