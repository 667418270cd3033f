"""e9: ICMP echo with a payload, redirects and other errors are refused; the path-MTU errors that the network sends still work."""
import pytest
from expect import NATIVE, PROTOCOL, allow, denied, holding, worked
from frames import FRAMES, send_frames
from lab import PYTHON, wait_for

ECHO = r"""
secret = b'secret payload' * 20
for dst in ('11.1.0.5', '11.66.0.1', link.gw4, '169.254.169.254', '255.255.255.255'):
    for kind, code in ((8, 0), (0, 0), (13, 0), (17, 0), (15, 0), (42, 0), (3, 4), (3, 0), (3, 3), (4, 0), (11, 0), (12, 0), (5, 1), (40, 0), (253, 0)):
        link.send(icmp4(link.addr4, dst, kind, code, struct.pack('!HH', 7, 1) + secret))
if link.addr6:
    for dst in ('2a00:1::5', '2a00:66::1', link.gw6, 'fd00:ec2::254', 'ff02::1'):
        for kind in (128, 129, 1, 2, 3, 4, 130, 131, 138, 139, 140, 144, 160, 200, 255):
            link.send(icmp6(link.addr6, dst, kind, 0, struct.pack('!HH', 7, 1) + secret))
"""
PING = """
out = {}
for fam, proto, head, dst in ((socket.AF_INET, 1, b'\\x08\\0', '11.1.0.5'), (socket.AF_INET, 1, b'\\x08\\0', '11.66.0.1'), (socket.AF_INET6, 58, b'\\x80\\0', '2a00:1::5')):
    try:
        s = socket.socket(fam, socket.SOCK_DGRAM, proto); s.settimeout(2); s.setsockopt(*((0, 11, 1) if fam == 2 else (41, 25, 1)))
        s.connect((dst, 0)); s.send(head + b'\\0\\0\\0\\1\\0\\1' + b'secret' * 30); s.recv(2000); out[dst] = 'answered'
    except OSError as e: out[dst] = errno.errorcode.get(e.errno, str(e))
"""


def test_e9_icmp_is_no_channel(any_user):
    lab = any_user
    for args in (allow("ok.test"), NATIVE):
        with holding(lab, args) as (proc, do):
            got = do([["tls", "ok.test", 443, "ok.test"], ["eval", PING]])
            worked(got[0])
            # Whether a program may make a ping socket at all is the host's choice (ping_group_range): the reply is ours.
            assert "answered" not in worked(got[1]).values() and "timeout" not in str(got[1]["ok"]) and got[1]["ms"] < 1000, got[1]
            lab.clear()
            assert send_frames(lab, proc, ECHO) > 100
            worked(do([["tls", "ok.test", 443, "ok.test"]])[0])
            assert lab.strangers("11.1.0.5", "2a00:1::5") == [], lab.strangers()
            for dst, proto in (("11.1.0.5", "1"), ("2a00:1::5", "58")):
                assert lab.arrived(dst, 0, proto) == 0
        log = lab.netlog()
        denied(log, PROTOCOL, proto="icmp", dst="11.66.0.1")
        denied(log, PROTOCOL, proto="icmp6", dst="2a00:66::1")


# On the Internet's side: see one datagram, and say that it was too large.
TOO_LARGE = FRAMES.split("class Link")[0] + r"""
ear = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)); ear.bind(('inet0', 0)); ear.settimeout(60)
print('up', flush=True)
while True:
    frame, where = ear.recvfrom(65536)
    if where[2] == 4 or len(frame) < 1400: continue
    if frame[12:14] == b'\x08\0' and frame[23] == 17:
        s = socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)
        body = b'\x03\x04\0\0' + struct.pack('!HH', 0, 1300) + frame[14:14 + 28]
        s.sendto(body[:2] + struct.pack('!H', checksum(body)) + body[4:], (socket.inet_ntoa(frame[26:30]), 0))
        break
    if frame[12:14] == b'\x86\xdd' and frame[20] == 17:
        s = socket.socket(socket.AF_INET6, socket.SOCK_RAW, 58)
        s.sendto(b'\x02\0\0\0' + struct.pack('!I', 1300) + frame[14:14 + 1200], (socket.inet_ntop(socket.AF_INET6, frame[22:38]), 0))
        break
print('said', flush=True)
"""
# Ten replies of full size in a row on one socket, whatever was lost before them.
FLOW = """
s = None
def flow(name):
    global s
    s = socket.socket(*socket.getaddrinfo(name, 5000, 0, socket.SOCK_DGRAM)[0][:3]); s.settimeout(5); s.connect((name, 5000))
def echo(times):
    got = []
    while len(got) < 30 and got[-times:] != [1402] * times:
        s.send(b'%02d' % len(got) + b'x' * 1400)
        try: got.append(len(s.recv(4000)))
        except OSError as e: got.append(str(e))
    return got
"""


@pytest.fixture
def no_known_paths(lab):
    """The lab outlives the test: no path MTU that is known already, and none that stays."""
    forget = [["ip", *family, "route", "flush", "cache"] for family in ([], ["-6"])]
    for command in forget:
        lab.host(command)
    yield
    for command in forget:
        lab.host(command)


def test_e9_path_mtu_errors_work(lab, no_known_paths):
    lab.dns.set("up4.test", A="11.1.9.4")
    lab.dns.set("up6.test", AAAA="2a00:1:9::6")
    for name, address in (("up4.test", "11.1.9.4"), ("up6.test", "2a00:1:9::6")):
        voice = lab.spawn([PYTHON, "-c", TOO_LARGE], who="root", internet=True)
        voice.wait_output(b"up\n")
        with holding(lab, allow("up4.test:5000/udp", "up6.test:5000/udp"), FLOW) as (_, do):
            worked(do([["eval", "flow(%r); out = echo(1)" % name]])[0])
            # The kernel takes the error only while the flow's socket is open.
            voice.wait_output(b"said\n")
            voice.wait()
            wait_for(lambda: "mtu 1300" in lab.host(["ip", "route", "get", address]).out)
            # The host knows the path now, and datagrams pass in pieces: the flow was not cut.
            got = worked(do([["eval", "out = echo(10)"]])[0])
            assert got[-10:] == [1402] * 10, got
