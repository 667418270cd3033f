"""e2: forged senders, gratuitous ARP, ARP for the gateway; e3: rogue routers, neighbours, redirects and DHCP. The gateway's view of its link never changes."""
import pytest
from expect import BROADCAST, FRAME, NATIVE, PROTOCOL, SPOOFED, allow, denied, find, holding, in_gateway, worked
from frames import send_frames

ARP = r"""
bad, all_ = b'\x02\xba\xdb\xad\0\1', b'\xff' * 6
for op in (1, 2):
    for smac in (link.mac, bad, link.gw_mac):
        for sip, tip in ((link.addr4, link.addr4), (link.gw4, link.gw4), (link.addr4, link.gw4), (link.gw4, link.addr4), ('11.1.0.5', link.gw4), ('100.64.0.10', link.gw4),
                         ('0.0.0.0', link.gw4)):
            link.send(arp(op, smac, sip, bad if op == 2 else b'\0' * 6, tip), dst_mac=all_)
            link.send(arp(op, smac, sip, link.gw_mac, tip))
            link.send(arp(op, smac, sip, link.gw_mac, tip), src_mac=smac)
link.send((b'\x80\x35', arp(3, link.mac, link.addr4, link.mac, link.addr4)[1]), dst_mac=all_)  # reverse ARP
"""
SENDERS = r"""
for mac in (b'\x02\0\0\0\0\1', b'\xff' * 6, b'\x01\0\x5e\0\0\1', link.gw_mac, b'\0' * 6, link.mac[:5] + bytes([link.mac[5] ^ 1])):
    for dst in ('11.1.0.5', '11.66.0.1'):
        link.send(syn(link.addr4, dst, 43000, 443), src_mac=mac)
        link.send(udp4(link.addr4, link.gw4, 43000, 53, b'\0' * 12), src_mac=mac)
    if link.addr6:
        link.send(syn(link.addr6, '2a00:1::5', 43000, 443), src_mac=mac)
for mac in (b'\xff' * 6, b'\x33\x33\0\0\0\1', b'\x01\0\x5e\0\0\1', b'\x02\0\0\0\0\x09'):
    link.send(syn(link.addr4, '11.1.0.5', 43001, 443), dst_mac=mac); link.send(syn(link.addr4, '11.66.0.1', 43001, 443), dst_mac=mac)
"""
ROGUE = r"""
lla = socket.inet_pton
six = lambda a: socket.inet_pton(socket.AF_INET6, a)
prefix = struct.pack('!BBBBIII', 3, 4, 64, 0xc0, 86400, 86400, 0) + six('2a00:bad::')
rdnss = struct.pack('!BBHI', 25, 3, 0, 600) + six('2a00:bad::53')
slla, tlla = b'\1\1' + link.mac, b'\2\1\x02\xba\xdb\xad\0\1'
ra = struct.pack('!BBHII', 64, 0, 1800, 0, 0) + prefix + rdnss + slla
for src in ('fe80::1', 'fe80::bad', link.addr6, link.gw6, '::', '2a00:1::5'):
    for dst in ('ff02::1', link.gw6, 'ff02::2'):
        link.send(icmp6(src, dst, 134, 0, ra))
        link.send(icmp6(src, dst, 133, 0, b'\0' * 4 + slla))
        for target in (link.addr6, link.gw6, '2a00:1::5', 'fd61:6b67::a'):
            link.send(icmp6(src, dst, 136, 0, struct.pack('!I', 0x60000000) + six(target) + tlla))
            link.send(icmp6(src, dst, 135, 0, b'\0' * 4 + six(target) + slla))
        link.send(icmp6(src, dst, 137, 0, b'\0' * 4 + six('fe80::bad') + six('2a00:1::5') + tlla))
quote = ip4(link.gw4, link.addr4, 17, struct.pack('!HHHH', 53, 40000, 8, 0))[1]
for code in range(4):
    for src in (link.addr4, link.gw4, '11.1.0.5'):
        link.send(icmp4(src, link.gw4, 5, code, socket.inet_aton(link.addr4) + quote))
        link.send(icmp4(src, link.gw4, 9, 0, struct.pack('!BBH', 1, 2, 1800) + socket.inet_aton(link.addr4) + b'\0' * 4))
offer = struct.pack('!BBBBIHH', 2, 1, 6, 0, 7, 0, 0x8000) + b'\0' * 4 + socket.inet_aton('11.9.9.9') + socket.inet_aton(link.addr4) + b'\0' * 4 + link.gw_mac + b'\0' * 202 + \
    b'\x63\x82\x53\x63\x35\x01\x02\x36\x04' + socket.inet_aton(link.addr4) + b'\x03\x04' + socket.inet_aton(link.addr4) + b'\xff'
for src, dst in ((link.addr4, '255.255.255.255'), (link.addr4, link.gw4), ('0.0.0.0', '255.255.255.255')):
    for ports in ((67, 68), (68, 67)):
        link.send(udp4(src, dst, *ports, offer)); link.send(udp4(src, dst, *ports, offer), dst_mac=b'\xff' * 6)
for ports in ((547, 546), (546, 547)):
    link.send(udp4('fe80::1', 'ff02::1:2', *ports, b'\x02abc' + b'\0' * 40)); link.send(udp4(link.addr6, link.gw6, *ports, b'\x07abc' + b'\0' * 40))
"""
STATE = ["sh", "-c", "ip neigh; ip -6 neigh; ip addr | grep -v valid_lft; ip route show table all; ip -6 route show table all; ip -6 route show cache; ip route show cache"]


def gateway_state(lab, proc):
    out = in_gateway(lab, proc, *STATE).out
    assert "PERMANENT" in out, out
    return sorted(line.split(" expires ")[0].strip() for line in out.splitlines())


@pytest.mark.parametrize("what", ["arp", "senders", "rogue"])
def test_e2_e3_the_gateways_view_of_its_link_never_changes(any_user, what):
    lab = any_user
    for args in (allow("ok.test"), NATIVE):
        with holding(lab, args) as (proc, do):
            worked(do([["tls", "ok.test", 443, "ok.test"]])[0])
            before, gw = gateway_state(lab, proc), worked(do([["eval", "out = gateway()"]])[0])
            lab.clear()
            assert send_frames(lab, proc, {"arp": ARP, "senders": SENDERS, "rogue": ROGUE}[what]) > 10
            worked(do([["tls", "ok.test", 443, "ok.test"]])[0])  # and by then the frames have been judged
            assert gateway_state(lab, proc) == before
            assert lab.strangers("11.1.0.5", "2a00:1::5") == [], lab.strangers()
            assert lab.syns("11.1.0.5") + lab.syns("2a00:1::5") == 1
        log = lab.netlog()
        if what == "rogue":
            denied(log, SPOOFED, proto="icmp6")
            denied(log, PROTOCOL, proto="icmp", dst=gw)
            denied(log, BROADCAST, proto="udp", dst="255.255.255.255", port=67)
            denied(log, SPOOFED, proto="udp", dst="255.255.255.255", port=67)
            denied(log, ("builtin: sandbox links", "private address"), proto="udp", dst=gw, port=67)
        else:
            # Frames have no address to log; one record counts them.
            assert sum(row["count"] + row.get("suppressed", 0) for row in denied(log, FRAME, proto="link")) > 10


def test_e2_the_gateway_answers_no_arp_and_no_neighbour_question(lab):
    """What it would say about itself is known to the sandbox from the start."""
    listen = r"""
import select
ear = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)); ear.bind(('eth0', 0))
""" + ARP.replace("link.send((b'\\x80", "#") + r"""
link.send(icmp6(link.addr6, link.gw6, 135, 0, b'\0' * 4 + socket.inet_pton(socket.AF_INET6, link.gw6) + b'\1\1' + link.mac))
heard = 0
while select.select([ear], [], [], 0.3)[0]:
    frame, where = ear.recvfrom(2048)
    heard += where[2] != 4 and (frame[12:14] == b'\x08\x06' or frame[12:14] == b'\x86\xdd' and frame[20] == 58 and frame[54] in (134, 136, 137))
assert heard == 0, heard
"""
    with holding(lab, allow("ok.test")) as (proc, do):
        assert send_frames(lab, proc, listen) > 10
        worked(do([["tls", "ok.test", 443, "ok.test"]])[0])


def test_e2_a_quiet_sandbox_has_no_such_record(lab):
    worked(lab.probe(allow("ok.test"), [["tls", "ok.test", 443, "ok.test"]])[0])
    assert not find(lab.netlog(), rule="builtin: link") and not find(lab.netlog(), verdict="deny")
