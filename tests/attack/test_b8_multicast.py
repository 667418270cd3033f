"""b8: mDNS, LLMNR, SSDP, NetBIOS, WS-Discovery, broadcast and multicast never leave the link, are recorded, and nobody answers."""
import pytest
from expect import BROADCAST, MULTICAST, NATIVE, allow, ask, at_once, denied, holding, refused, reply, worked
from frames import send_frames

GROUPS = [("224.0.0.251", 5353), ("224.0.0.252", 5355), ("239.255.255.250", 1900), ("239.255.255.250", 3702), ("255.255.255.255", 67), ("255.255.255.255", 137), ("224.0.0.1", 5000),
          ("232.1.1.1", 5000), ("239.1.2.3", 53000), ("ff02::fb", 5353), ("ff02::1:3", 5355), ("ff02::c", 1900), ("ff05::c", 1900), ("ff0e::1", 5000), ("ff02::1", 5000), ("ff05::2", 5000)]
# Through every interface choice a program has; the errors that the sandbox's own kernel gives are as good as ours.
SEND = """
import select
out = {'answers': 0, 'sent': 0}
socks = []
for dst, port in %r:
    six = ':' in dst
    for how in range(3):
        s = socket.socket(socket.AF_INET6 if six else socket.AF_INET, socket.SOCK_DGRAM); socks.append(s)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        try:
            if how == 1: s.setsockopt(*((41, socket.IPV6_MULTICAST_IF, socket.if_nametoindex('eth0')) if six else (0, socket.IP_MULTICAST_TTL, 32)))
            if how == 2 and not six: s.setsockopt(0, socket.IP_ADD_MEMBERSHIP, socket.inet_aton(dst) + socket.inet_aton('0.0.0.0'))
            if how == 2 and six: s.setsockopt(41, socket.IPV6_JOIN_GROUP, socket.inet_pton(socket.AF_INET6, dst) + struct.pack('I', socket.if_nametoindex('eth0')))
        except OSError: pass
        try: s.sendto(b'secret ' * 10, (dst, port)); out['sent'] += 1
        except OSError: pass
        try: s.connect((dst, port)); s.send(b'secret'); out['sent'] += 1
        except OSError: pass
ready = select.select(socks, [], [], 0.5)[0]
for s in ready:
    try: s.recv(100); out['answers'] += 1
    except OSError: pass
""" % GROUPS
FRAMES_OUT = r"""
for dst, port in %r:
    six = ':' in dst
    if six and not link.addr6: continue
    src = link.addr6 if six else link.addr4
    macs = [link.gw_mac, b'\xff' * 6, (b'\x33\x33' + socket.inet_pton(socket.AF_INET6, dst)[-4:]) if six else b'\x01\0\x5e' + bytes([socket.inet_aton(dst)[1] & 127]) + socket.inet_aton(dst)[2:]]
    for mac in macs:
        link.send(udp4(src, dst, 47000, port, b'secret ' * 10), dst_mac=mac); link.send(syn(src, dst, 47000, port), dst_mac=mac)
for dst in ('100.64.0.7', '100.64.0.255', '192.168.1.255', '172.31.255.255', '10.255.255.255'):  # directed broadcasts
    for port in (137, 138, 9, 5000): link.send(udp4(link.addr4, dst, 47000, port, b'wake'), dst_mac=b'\xff' * 6)
for kind in (0x11, 0x12, 0x16, 0x17, 0x22):  # IGMP
    for dst in ('224.0.0.1', '224.0.0.22', '239.255.255.250'): link.send(ip4(link.addr4, dst, 2, struct.pack('!BBH', kind, 0, 0) + socket.inet_aton('239.255.255.250'), options=b'\x94\x04\0\0'))
""" % GROUPS


@pytest.mark.parametrize("mode", ["codex", "native"])
def test_b8_nothing_leaves_the_link(any_user, mode):
    lab = any_user
    with holding(lab, allow("ok.test", mode=mode)) as (proc, do):
        got = do([["tls", "ok.test", 443, "ok.test"], ["eval", SEND]])
        worked(got[0])
        assert worked(got[1])["answers"] == 0 and got[1]["ok"]["sent"] > 10, got[1]
        lab.clear()
        assert send_frames(lab, proc, FRAMES_OUT) > 60
        worked(do([["tls", "ok.test", 443, "ok.test"]])[0])
        assert lab.strangers("11.1.0.5", "2a00:1::5") == [], lab.strangers()
    log = lab.netlog()
    for dst, port in (("224.0.0.251", 5353), ("239.255.255.250", 1900), ("255.255.255.255", 67), ("ff05::c", 1900)):
        denied(log, BROADCAST if dst == "255.255.255.255" else MULTICAST, dst=dst, port=port, proto="udp")


def test_b8_local_names_are_answered_at_once_and_not_asked(any_user):
    """Programs that would ask the link by multicast ask the proxy instead, and fail fast."""
    lab = any_user
    names = ["printer.local", "wpad", "isatap", "_http._tcp.local", "my-host", "x.y.local"]
    got = lab.probe(NATIVE, [["resolve", n] for n in names] + [ask(n, t) for n in names for t in ("A", "AAAA", "PTR", "ANY")])
    for row in got[:len(names)]:
        refused(row)
    for row in got[len(names):]:
        assert not reply(row)["answers"]
        at_once(row)
    assert lab.dns.log() == [] and lab.strangers() == []


def test_b8_connecting_to_a_group_fails_at_once(any_user):
    lab = any_user
    for row in lab.probe(NATIVE, [["tcp", a, 5353] for a in ("224.0.0.251", "255.255.255.255", "ff02::fb", "ff0e::1")]):
        refused(row)
    assert lab.strangers() == []
