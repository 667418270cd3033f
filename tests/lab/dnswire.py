"""DNS messages for the lab: the server writes them, the tests take them apart.

Deliberately literal: no validation, so that a test can also build what no sane library would.
"""
import ipaddress
import struct

TYPES = {"A": 1, "NS": 2, "CNAME": 5, "SOA": 6, "NULL": 10, "PTR": 12, "MX": 15, "TXT": 16, "AAAA": 28, "SRV": 33,
         "OPT": 41, "SVCB": 64, "HTTPS": 65, "ANY": 255}
TYPE_NAMES = {v: k for k, v in TYPES.items()}


def qtype_number(qtype):
    return TYPES[qtype] if isinstance(qtype, str) else qtype


def encode_name(name):
    """Dotted text, a list of labels (bytes, taken as they are), or ready wire bytes."""
    if isinstance(name, bytes):
        return name
    labels = name if isinstance(name, list) else [part.encode("latin-1") for part in name.rstrip(".").split(".") if part]
    return b"".join(bytes([len(label)]) + label for label in labels) + b"\0"


def decode_name(msg, off):
    """The labels at OFF and the offset after them; follows pointers, gives up on loops."""
    labels, end, hops = [], None, 0
    while True:
        length = msg[off]
        if length & 0xC0 == 0xC0:
            if end is None:
                end = off + 2
            off = struct.unpack_from("!H", msg, off)[0] & 0x3FFF
            hops += 1
            if hops > 64:
                raise ValueError("compression loop")
            continue
        off += 1
        if length == 0:
            return labels, end if end is not None else off
        labels.append(msg[off:off + length])
        off += length


def text(labels):
    return ".".join(label.decode("latin-1") for label in labels)


def query(name, qtype="A", ident=0x1234, flags=0x0100, qclass=1, edns=None, qdcount=1, extra=b""):
    """A question; EDNS is None or a list of (code, bytes) options, [] for a bare OPT."""
    body = encode_name(name) + struct.pack("!HH", qtype_number(qtype), qclass)
    tail, arcount = extra, 0
    if edns is not None:
        options = b"".join(struct.pack("!HH", code, len(data)) + data for code, data in edns)
        tail += b"\0" + struct.pack("!HHIH", 41, 1232, 0, len(options)) + options
        arcount = 1
    return struct.pack("!HHHHHH", ident, flags, qdcount, 0, 0, arcount) + body + tail


def rdata(rtype, value):
    if isinstance(value, bytes):
        return value
    if rtype == "A":
        return ipaddress.IPv4Address(value).packed
    if rtype == "AAAA":
        return ipaddress.IPv6Address(value).packed
    if rtype in ("CNAME", "NS", "PTR"):
        return encode_name(value)
    if rtype == "TXT":
        return bytes([len(value)]) + value.encode()
    if rtype == "MX":
        return struct.pack("!H", 10) + encode_name(value)
    if rtype == "SRV":
        return struct.pack("!HHH", 0, 0, 443) + encode_name(value)
    if rtype in ("HTTPS", "SVCB"):
        # Priority 1, target ".", an ipv4hint (key 4) and an ECH key (key 5): all that must never be believed.
        hint = ipaddress.IPv4Address(value).packed
        ech = b"\x00\x08" + b"\xfe\x0d\x00\x04" + b"ECHK"
        return struct.pack("!H", 1) + b"\0" + struct.pack("!HH", 4, 4) + hint + struct.pack("!HH", 5, len(ech)) + ech
    raise ValueError(rtype)


def record(owner, rtype, value, ttl):
    data = rdata(rtype, value)
    return encode_name(owner) + struct.pack("!HHIH", qtype_number(rtype), 1, ttl & 0xFFFFFFFF, len(data)) + data


def parse(msg):
    """A reply or question as a dict; raises on what cannot be read."""
    ident, flags, qd, an, ns, ar = struct.unpack_from("!HHHHHH", msg)
    out = {"id": ident, "flags": flags, "rcode": flags & 15, "tc": bool(flags & 0x0200), "questions": [], "answers": [],
           "authority": [], "additional": [], "ede": None, "options": []}
    off = 12
    for _ in range(qd):
        labels, off = decode_name(msg, off)
        qtype, qclass = struct.unpack_from("!HH", msg, off)
        off += 4
        out["questions"].append({"name": text(labels), "qtype": qtype, "qclass": qclass})
    for count, section in ((an, "answers"), (ns, "authority"), (ar, "additional")):
        for _ in range(count):
            labels, off = decode_name(msg, off)
            rtype, rclass, ttl, rdlen = struct.unpack_from("!HHIH", msg, off)
            off += 10
            data = msg[off:off + rdlen]
            off += rdlen
            if rtype == 41:
                _read_options(out, data, rclass)
                continue
            out[section].append({"name": text(labels), "type": TYPE_NAMES.get(rtype, rtype), "ttl": ttl,
                                 "data": _show(msg, rtype, data, off - rdlen)})
    return out


def _read_options(out, data, udp_size):
    out["udp_size"] = udp_size
    at = 0
    while at + 4 <= len(data):
        code, length = struct.unpack_from("!HH", data, at)
        value = data[at + 4:at + 4 + length]
        at += 4 + length
        out["options"].append([code, value.hex()])
        if code == 15 and length >= 2:
            out["ede"] = [struct.unpack("!H", value[:2])[0], value[2:].decode("utf-8", "replace")]


def _show(msg, rtype, data, off):
    if rtype in (1, 28):
        return str(ipaddress.ip_address(data))
    if rtype in (5, 2, 12):
        return text(decode_name(msg, off)[0])
    return data.hex()
