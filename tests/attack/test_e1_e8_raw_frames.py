"""e1: spoofed source addresses; e8: protocols other than TCP and UDP. Sent as raw frames on the sandbox's own link, by a root the sandbox never has."""
from expect import NATIVE, PROTOCOL, SPOOFED, allow, denied, holding, worked
from frames import send_frames


SPOOFS = r"""
n = 0
for src in ('11.9.9.9', '100.64.0.10', '100.64.0.5', '255.255.255.255', '0.0.0.0', '127.0.0.1', '224.0.0.1', '11.1.0.5', '169.254.169.254'):
    for dst, port in (('11.1.0.5', 443), ('11.66.0.1', 80), (link.gw4, 53)):
        if src != link.addr4:
            link.send(syn(src, dst, 41000 + n, port)); link.send(udp4(src, dst, 41000 + n, 53 if port == 53 else 5000, b'data')); n += 1
if link.addr6:
    for src in ('2a00:9::9', '::1', 'fe80::1', 'ff02::1', 'fd61:6b67::a', '2a00:1::5'):
        for dst in ('2a00:1::5', '2a00:66::1'):
            link.send(syn(src, dst, 42000 + n, 443)); link.send(udp4(src, dst, 42000 + n, 5000, b'data')); n += 1
for mac in (b'\x02\0\0\0\0\1', b'\xff' * 6, b'\x01\0\x5e\0\0\1'):
    link.send(syn(link.addr4, '11.66.0.1', 43000, 443), src_mac=mac)
"""


def test_e1_spoofed_sources_are_dropped_and_logged(any_user):
    lab = any_user
    for args in (allow("ok.test"), NATIVE):
        with holding(lab, args) as (proc, do):
            worked(do([["tls", "ok.test", 443, "ok.test"]])[0])
            lab.clear()
            assert send_frames(lab, proc, SPOOFS) > 50
            worked(do([["tls", "ok.test", 443, "ok.test"]])[0])  # and by then the frames have been judged
            assert lab.strangers("11.1.0.5", "2a00:1::5") == [], lab.strangers()
            assert lab.syns("11.1.0.5") + lab.syns("2a00:1::5") == 1
        log = lab.netlog()
        for proto, dst, port in (("tcp", "11.1.0.5", 443), ("udp", "11.1.0.5", 5000), ("tcp", "11.66.0.1", 80), ("tcp", "2a00:66::1", 443)):
            denied(log, SPOOFED, proto=proto, dst=dst, port=port)


PROTOCOLS = r"""
for proto in (2, 4, 41, 47, 50, 51, 89, 94, 103, 108, 115, 132, 136, 253, 255, 0):
    for dst in ('11.1.0.5', '11.66.0.1', link.gw4):
        link.send(ip4(link.addr4, dst, proto, struct.pack('!HHII', 443, 443, 1, 2) + b'payload' * 8))
    if link.addr6:
        for dst in ('2a00:1::5', '2a00:66::1'):
            link.send(ip6(link.addr6, dst, proto, struct.pack('!HHII', 443, 443, 1, 2) + b'payload' * 8))
inner = ip4(link.addr4, '11.66.0.1', 6, struct.pack('!HHIIBBHHH', 1, 443, 1, 0, 0x50, 2, 64240, 0, 0))[1]
link.send(ip4(link.addr4, '11.1.0.5', 4, inner)); link.send(ip4(link.addr4, '11.1.0.5', 47, b'\0\0\x08\0' + inner))
link.send((b'\x88\xb5', b'odd ethertype' * 5)); link.send((b'\x81\0', b'\0\x01\x08\0' + inner))
"""


def test_e8_other_protocols_are_refused(lab):
    for args in (allow("ok.test"), NATIVE):
        with holding(lab, args) as (proc, do):
            worked(do([["tls", "ok.test", 443, "ok.test"]])[0])
            lab.clear()
            assert send_frames(lab, proc, PROTOCOLS) > 48
            worked(do([["tls", "ok.test", 443, "ok.test"]])[0])
            assert lab.strangers("11.1.0.5", "2a00:1::5") == [], lab.strangers()
            for proto in ("132", "47", "4", "41", "50", "136", "2", "253"):
                assert lab.arrived("11.1.0.5", 0, proto) == 0
        log = lab.netlog()
        for proto in ("sctp", "gre", "ipip", "esp"):
            denied(log, PROTOCOL, proto=proto, dst="11.66.0.1")


def test_e8_sockets_of_other_kinds_fail_inside(lab):
    code = ("out = {}\nfor name, a in {'raw': (2, 3, 1), 'raw6': (10, 3, 58), 'packet': (17, 3, 768), 'sctp': (2, 1, 132), 'udplite': (2, 2, 136), 'vsock': (40, 1, 0), "
            "'alg': (38, 5, 0)}.items():\n try: s = socket.socket(*a); out[name] = 'made'\n except OSError as e: out[name] = errno.errorcode[e.errno]\n"
            "try:\n s = socket.socket(2, 1, 132); s.settimeout(2); s.connect(('11.1.0.5', 443)); out['sctp'] = 'connected'\nexcept OSError as e: pass\n"
            "try:\n s = socket.socket(2, 2, 136); s.sendto(b'x', ('11.1.0.5', 443))\nexcept OSError as e: pass")
    got = lab.probe(allow("ok.test"), [["resolve", "ok.test"], ["eval", code]])
    out = worked(got[1])
    for name in ("raw", "raw6", "packet", "alg"):
        assert out[name] != "made", out
    assert out["sctp"] != "connected" and lab.strangers() == [], (out, lab.strangers())
