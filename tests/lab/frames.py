"""Raw packets from a sandbox's own link, sent by the lab's root who stepped into its network namespace (inside.py).

FRAMES is source text: tests append what to send and run it with `python3 -c` in there.
"""
from expect import in_sandbox, on_tap
from lab import PYTHON

FRAMES = r'''
import errno, fcntl, ipaddress, json, os, socket, struct, subprocess

def checksum(data):
    if len(data) % 2:
        data += b"\0"
    total = sum(struct.unpack("!%dH" % (len(data) // 2), data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF

def ip4(src, dst, proto, payload, options=b"", flags=0, ttl=64):
    head = struct.pack("!BBHHHBBH4s4s", 0x40 | (5 + len(options) // 4), 0, 20 + len(options) + len(payload), 1, flags, ttl, proto, 0,
        socket.inet_aton(src), socket.inet_aton(dst)) + options
    return b"\x08\x00", head[:10] + struct.pack("!H", checksum(head)) + head[12:] + payload

def ip6(src, dst, proto, payload, hops=64):
    return b"\x86\xdd", struct.pack("!IHBB", 6 << 28, len(payload), proto, hops) + socket.inet_pton(socket.AF_INET6, src) + socket.inet_pton(
        socket.AF_INET6, dst) + payload

def pseudo(src, dst, proto, payload):
    fam = socket.AF_INET6 if ":" in src else socket.AF_INET
    return socket.inet_pton(fam, src) + socket.inet_pton(fam, dst) + struct.pack("!II", len(payload), proto)

def l4(src, dst, proto, payload, at):
    payload = bytearray(payload)
    struct.pack_into("!H", payload, at, checksum(pseudo(src, dst, proto, bytes(payload)) + bytes(payload)))
    payload = bytes(payload)
    return ip6(src, dst, proto, payload) if ":" in src else ip4(src, dst, proto, payload)

def udp4(src, dst, sport, dport, data):
    return l4(src, dst, 17, struct.pack("!HHHH", sport, dport, 8 + len(data), 0) + data, 6)

def syn(src, dst, sport, dport):
    return l4(src, dst, 6, struct.pack("!HHIIBBHHH", sport, dport, 1, 0, 0x50, 2, 64240, 0, 0), 16)

def syn6_bytes(src, dst, sport, dport):
    """The SYN alone, checksummed for its IPv6 (or IPv4) ends: what extension headers or fragments carry."""
    return syn(src, dst, sport, dport)[1][40 if ":" in src else 20:]

def icmp4(src, dst, kind, code, rest, **kw):
    body = struct.pack("!BBH", kind, code, 0) + rest
    return ip4(src, dst, 1, body[:2] + struct.pack("!H", checksum(body)) + body[4:], **kw)

def icmp6(src, dst, kind, code, rest, hops=255):
    body = struct.pack("!BBH", kind, code, 0) + rest
    body = body[:2] + struct.pack("!H", checksum(pseudo(src, dst, 58, body) + body)) + body[4:]
    return ip6(src, dst, 58, body, hops)

def arp(op, smac, sip, tmac, tip):
    return b"\x08\x06", struct.pack("!HHBBH", 1, 0x800, 6, 4, op) + smac + socket.inet_aton(sip) + tmac + socket.inet_aton(tip)

def ip(*a):
    return json.loads(subprocess.run(["ip", "-j", *a], capture_output=True, check=True).stdout or "[]")

def mac_bytes(text):
    return bytes.fromhex(text.replace(":", ""))

class Frames:
    """What a link is to the rows: its addresses, and send()."""
    sent = 0
    def send(self, packet, src_mac=None, dst_mac=None, tags=b"", **how):
        kind, data = packet
        self.raw((dst_mac or self.gw_mac) + (src_mac or self.mac) + tags + kind + data, **how)
        self.sent += 1

class Link(Frames):
    """The sandbox's eth0."""
    def __init__(self, name="eth0"):
        self.sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        self.sock.bind((name, 0))
        self.raw = self.sock.send
        self.mac = mac_bytes(ip("link", "show", name)[0]["address"])
        infos = ip("addr", "show", name)[0]["addr_info"]
        self.addr4 = next(i["local"] for i in infos if i["family"] == "inet")
        self.addr6 = next((i["local"] for i in infos if i["family"] == "inet6" and i["scope"] == "global"), None)
        self.gw4 = next(r["gateway"] for r in ip("route") if r["dst"] == "default")
        self.gw6 = next((r["gateway"] for r in ip("-6", "route") if r["dst"] == "default"), None)
        near = ip("neigh", "show", "dev", name)
        self.gw_mac = mac_bytes(next((n["lladdr"] for n in near if "lladdr" in n), "ff:ff:ff:ff:ff:ff"))

class Tap(Frames):
    """A virtual machine's link, as its monitor sees it: frames behind a virtio header, written to the tap. The gateway knows the addresses of both ends."""
    def __init__(self):
        self.fd = int(os.environ["TAP"])
        name = fcntl.ioctl(self.fd, 0x800454D2, bytes(40)).split(b"\0")[0].decode()  # TUNGETIFF
        self.head = struct.unpack("i", fcntl.ioctl(self.fd, 0x800454D7, bytes(4)))[0]  # TUNGETVNETHDRSZ
        self.gw_mac = mac_bytes(ip("link", "show", name)[0]["address"])
        infos = ip("addr", "show", name)[0]["addr_info"]
        self.gw4 = next(i["local"] for i in infos if i["family"] == "inet")
        self.gw6 = next((i["local"] for i in infos if i["family"] == "inet6" and i["scope"] == "global"), None)
        near = {n["dst"]: n["lladdr"] for n in ip("neigh", "show", "dev", name, "nud", "permanent")}
        self.addr4 = next(a for a in near if "." in a)
        self.addr6 = next((a for a in near if ":" in a), None)
        self.mac = mac_bytes(near[self.addr4])
        self.refused = 0

    def raw(self, frame, head=b""):
        """With HEAD, a virtio header of the attacker's choice: the kernel may refuse the frame."""
        try:
            os.write(self.fd, head.ljust(self.head, b"\0") + frame)
        except OSError as e:
            if not head or e.errno != errno.EINVAL:
                raise
            self.refused += 1
'''


def send_frames(lab, proc, code):
    """Run CODE (it has `link`) on the sandbox's own link; how many frames it sent."""
    tail = "\n" + code + "\nprint(link.sent)\n"
    if lab.backend == "vm":
        r = on_tap(lab, proc, PYTHON, "-c", FRAMES + "\nlink = Tap()" + tail).wait()
    else:
        r = in_sandbox(lab, proc, PYTHON, "-c", FRAMES + "\nlink = Link()" + tail)
    assert r.code == 0, r
    return int(r.out)


def frames_of(lab, proc, code):
    """What CODE would send on the tap of a virtual machine: the frames."""
    keep = "\nlink = Tap()\nkept = []\nlink.raw = lambda frame: kept.append(frame.hex())\n"
    r = on_tap(lab, proc, PYTHON, "-c", FRAMES + keep + code + "\nprint(json.dumps(kept))\n").wait()
    assert r.code == 0, r
    return [bytes.fromhex(frame) for frame in r.json()]
