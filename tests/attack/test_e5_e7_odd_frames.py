"""e5: VLAN, QinQ and odd ethertypes; e6: fragments of every cut; e7: IP options and IPv6 extension headers. Nothing of it becomes a connection."""
import pytest
from expect import FRAGMENT, FRAME, NATIVE, PROTOCOL, allow, denied, find, holding, worked
from frames import send_frames

ETHERTYPES = r"""
targets = [syn(link.addr4, '11.1.0.5', 44000, 443), syn(link.addr4, '11.66.0.1', 44000, 443), udp4(link.addr4, '11.66.0.1', 44000, 5000, b'data')]
if link.addr6: targets += [syn(link.addr6, '2a00:1::5', 44000, 443), syn(link.addr6, '2a00:66::1', 44000, 443)]
tags = [b'\x81\0\0\1', b'\x81\0\0\0', b'\x81\0\xe0\0', b'\x88\xa8\0\1', b'\x91\0\0\1', b'\x88\xa8\0\1\x81\0\0\1', b'\x81\0\0\1\x81\0\0\2', b'\x81\0\x0f\xff']
for packet in targets:
    for tag in tags: link.send(packet, tags=tag)
    for kind in (0x88b5, 0x8847, 0x8848, 0x8863, 0x8864, 0x888e, 0x88cc, 0x88e5, 0x22f3, 0x0806, 0x8035, 0x809b, 0x86dd if packet[0] == b'\x08\0' else 0x0800, 0x0000, 0x05dc, 0xffff, 0x6558, 0x894f):
        link.send((struct.pack('!H', kind), packet[1]))
    link.send((struct.pack('!H', len(packet[1]) + 8), b'\xaa\xaa\x03\0\0\0' + packet[0] + packet[1]))  # SNAP
    link.send((b'\x88\x64', b'\x11\0\0\1' + struct.pack('!H', len(packet[1]) + 2) + b'\0\x21' + packet[1]))  # PPPoE
    link.send((b'\x88\x47', b'\0\0\x01\x40' + packet[1]))  # MPLS
"""
FRAGMENTS4 = r"""
def cut(src, dst, proto, whole, sizes, order=None, ident=1):
    at, out = 0, []
    for i, size in enumerate(sizes):
        more = 0x2000 if at + size < len(whole) else 0
        kind, data = ip4(src, dst, proto, whole[at:at + size], flags=more | at // 8)
        out.append((kind, data)); at += size
    for i in order or range(len(out)): link.send(out[i])
for dst, port in (('11.1.0.5', 443), ('11.66.0.1', 443), (link.gw4, 53), ('169.254.169.254', 80)):
    whole = syn6_bytes(link.addr4, dst, 45000, port) + b'x' * 28
    cut(link.addr4, dst, 6, whole, [8, 8, 8, 24]); cut(link.addr4, dst, 6, whole, [16, 32], order=[1, 0]); cut(link.addr4, dst, 6, whole, [24, 24])
    u = udp4(link.addr4, dst, 45000, port, b'x' * 40)[1][20:]
    cut(link.addr4, dst, 17, u, [8, 40]); cut(link.addr4, dst, 17, u, [16, 16, 16], order=[2, 1, 0])
    # Overlaps: the first says an allowed port, the second writes another over it.
    link.send(ip4(link.addr4, dst, 6, syn6_bytes(link.addr4, dst, 45001, 443) + b'y' * 4, flags=0x2000))
    link.send(ip4(link.addr4, dst, 6, syn6_bytes(link.addr4, dst, 45001, 22) + b'y' * 4, flags=0x2000 | 0))
    link.send(ip4(link.addr4, dst, 6, b'z' * 16, flags=1)); link.send(ip4(link.addr4, dst, 6, b'z' * 16, flags=0x2000 | 1))
    # A first fragment without ports; a late one alone; the last possible offset; the reserved bit is not a fragment but odd.
    link.send(ip4(link.addr4, dst, 6, b'', flags=0x2000)); link.send(ip4(link.addr4, dst, 17, b'abcd', flags=0x2000)); link.send(ip4(link.addr4, dst, 6, b'z' * 64, flags=0x1fff))
    link.send(ip4(link.addr4, dst, 17, u, flags=0x2000))
"""
FRAGMENTS6 = r"""
def frag(dst, proto, data, offset, more, ident=9):
    link.send(ip6(link.addr6, dst, 44, struct.pack('!BBHI', proto, 0, offset << 3 | more, ident) + data))
if link.addr6:
    for dst, port in (('2a00:1::5', 443), ('2a00:66::1', 443), (link.gw6, 53), ('fd00:ec2::254', 80)):
        whole = syn6_bytes(link.addr6, dst, 45000, port) + b'x' * 28
        frag(dst, 6, whole[:8], 0, 1); frag(dst, 6, whole[8:], 1, 0)
        frag(dst, 6, whole[24:], 3, 0, 10); frag(dst, 6, whole[:24], 0, 1, 10)
        frag(dst, 6, whole[:24], 0, 1, 11); frag(dst, 6, b'z' * 24, 1, 0, 11)
        frag(dst, 6, whole, 0, 0, 12)  # atomic
        frag(dst, 6, b'', 0, 1, 13); frag(dst, 17, b'abcd', 0, 1, 14); frag(dst, 6, b'z' * 64, 0x1fff, 0, 15)
        # Ports pushed out of the first fragment by padding options.
        pad = struct.pack('!BBBB', 6, 1, 1, 12) + b'\0' * 12
        frag(dst, 60, pad, 0, 1, 16); frag(dst, 60, whole, 2, 0, 16)
"""
OPTIONS4 = r"""
kinds = {'nop': b'\1' * 4, 'end': b'\0' * 4, 'record route': b'\x07\x07\x04\0\0\0\0\0', 'timestamp': b'\x44\x08\x05\0\0\0\0\0', 'security': b'\x82\x0b\0\0\0\0\0\0\0\0\0\0', 'router alert': b'\x94\x04\0\0',
    'loose route': b'\x83\x07\x04\x0b\x42\0\1\0', 'strict route': b'\x89\x07\x04\x0b\x42\0\1\0', 'stream id': b'\x88\x04\0\0', 'lies': b'\x83\xff\x04\0', 'zero length': b'\x83\0\0\0', 'full': b'\1' * 40}
for dst, port in (('11.1.0.5', 443), ('11.66.0.1', 443), (link.gw4, 53), ('169.254.169.254', 80)):
    for options in kinds.values():
        link.send(ip4(link.addr4, dst, 6, syn6_bytes(link.addr4, dst, 46000, port), options=options))
        link.send(ip4(link.addr4, dst, 17, udp4(link.addr4, dst, 46000, port, b'data')[1][20:], options=options))
"""
EXTENSIONS6 = r"""
def ext(after, options=b'\1\4\0\0\0\0'): return bytes([after, (len(options) + 2) // 8 - 1]) + options
six = lambda a: socket.inet_pton(socket.AF_INET6, a)
if link.addr6:
    for dst, port in (('2a00:1::5', 443), ('2a00:66::1', 443), (link.gw6, 53), ('fd00:ec2::254', 80)):
        tcp = syn6_bytes(link.addr6, dst, 46000, port)
        rh0 = bytes([6, 2, 0, 1]) + b'\0' * 4 + six('2a00:66::1')
        for first, chain in ((0, ext(6)), (60, ext(6)), (43, rh0), (43, bytes([6, 2, 2, 1]) + b'\0' * 4 + six(dst)), (43, bytes([6, 2, 4, 0]) + b'\0' * 4 + six(dst)), (51, bytes([6, 4]) + b'\0' * 22),
                             (135, ext(6)), (139, ext(6)), (140, ext(6)), (0, ext(60) + ext(6)), (60, ext(60) * 6 + ext(6)), (60, ext(43) + rh0), (0, ext(0) + ext(6)), (60, ext(0) + ext(6)),
                             (0, ext(6, b'\x05\2\0\0\1\0')), (0, ext(6, b'\xc2\4\0\1\0\0')), (60, ext(6, b'\xff\4\0\0\0\0')), (253, ext(6)), (254, ext(6)), (59, b'')):
            link.send(ip6(link.addr6, dst, first, chain + tcp))
"""
ROWS = {"e5_ethertypes": ETHERTYPES, "e6_fragments_v4": FRAGMENTS4, "e6_fragments_v6": FRAGMENTS6, "e7_options_v4": OPTIONS4, "e7_extensions_v6": EXTENSIONS6}
WHY = {"e5_ethertypes": [FRAME], "e6_fragments_v4": [FRAGMENT], "e6_fragments_v6": [FRAGMENT], "e7_options_v4": [FRAGMENT], "e7_extensions_v6": [FRAGMENT, PROTOCOL]}


@pytest.mark.parametrize("row", ROWS)
def test_e5_e6_e7_odd_frames_become_no_connection(any_user, row):
    lab = any_user
    for args in (allow("ok.test"), NATIVE):
        with holding(lab, args) as (proc, do):
            worked(do([["tls", "ok.test", 443, "ok.test"]])[0])
            lab.clear()
            sent = send_frames(lab, proc, ROWS[row])
            assert sent > 20
            worked(do([["tls", "ok.test", 443, "ok.test"]])[0])  # and by then the frames have been judged
            assert lab.strangers("11.1.0.5", "2a00:1::5") == [], lab.strangers()
            assert lab.syns("11.1.0.5") + lab.syns("2a00:1::5") == 1 and len(lab.conns()) == 1, lab.conns()
            assert {q["name"] for q in lab.dns.log()} <= {"ok.test"}
        log, whys = lab.netlog(), WHY[row]
        for why in whys:
            denied(log, why, event="packet")
        # Told one by one with the rule, and summed with the name of the kernel's counter.
        counted = sum(r["count"] + r.get("suppressed", 0) for r in find(log, verdict="deny", rule=(whys[0][0], "builtin: proto")))
        assert counted >= sent * 9 // 10, (sent, counted)


def test_e6_a_datagram_too_large_for_the_link_is_told(lab):
    """The sandbox's own kernel cuts it: dropped in pieces, and the log says so."""
    got = lab.probe(NATIVE, [["udp", "11.1.0.6", 7, "x" * 1400], ["eval", "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); out = s.sendto(b'x' * 5000, ('11.1.0.6', 7))"],
                             ["eval", "s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM); out = s.sendto(b'x' * 5000, ('2a00:1::6', 7))"], ["tls", "ok.test", 443, "ok.test"]])
    worked(got[0]), worked(got[3])
    assert [c["bytes"] for c in lab.conns(kind="udp")] == [1400]
    log = lab.netlog()
    denied(log, FRAGMENT, dst="11.1.0.6", port=7, proto="udp")
    denied(log, FRAGMENT, dst="2a00:1::6", port=7, proto="udp")
