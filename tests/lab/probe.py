"""Runs inside a sandbox: tries what it is told to and prints what happened, as one JSON list.

    probe.py '[["tcp", "11.1.0.5", 443], ["tls", "ok.test", 443, "ok.test"], …]'

Each result has "ms", "again" (how many SYNs had to be sent once more) and either "ok" (what came back) or "err" (an errno or EAI name, "timeout", "eof").
"""
import errno
import json
import os
import re
import socket
import ssl
import struct
import sys
import time

LIMIT_S = 8


PATIENCE_S = 45  # less than that of lab.py: the probe tells what it waited for


def wait_for(what, timeout=PATIENCE_S):
    """Until WHAT() is true; its value."""
    end = time.monotonic() + timeout
    while True:
        got = what()
        if got:
            return got
        if time.monotonic() >= end:
            raise AssertionError("never came true within %ss" % timeout)
        time.sleep(0.01)


def let_pass(seconds, why):
    """For the rare case in which nothing happens that could be waited for; WHY says so."""
    time.sleep(seconds)


def gateway():
    for line in open("/etc/resolv.conf"):
        if line.startswith("nameserver"):
            return line.split()[1]
    return "127.0.0.53"


def family_of(addr):
    return socket.AF_INET6 if ":" in addr else socket.AF_INET


def connect(host, port):
    last = None
    for fam, kind, proto, _, addr in socket.getaddrinfo(host, port, 0, socket.SOCK_STREAM):
        s = socket.socket(fam, kind, proto)
        s.settimeout(LIMIT_S)
        try:
            s.connect(addr)
            return s
        except OSError as e:
            last = e
            s.close()
    raise last


def do_resolve(name, family=0):
    rows = socket.getaddrinfo(name, 80, {0: 0, 4: socket.AF_INET, 6: socket.AF_INET6}[family], socket.SOCK_STREAM)
    return sorted({row[4][0] for row in rows})


def do_tcp(host, port, send=None, read=True):
    """Connect; then send hex bytes and read one answer. Without SEND only the connection counts."""
    with connect(host, port) as s:
        if send is not None:
            s.sendall(bytes.fromhex(send))
        elif not read or read is True:
            return "connected"
        data = s.recv(65536)
        if not data:
            raise EOFError
        return data.decode("latin-1")


def do_read(host, port):
    with connect(host, port) as s:
        return s.recv(4096).decode("latin-1")


def do_tls(host, port, sni, path="/", ca=None):
    ctx = ssl.create_default_context(cadata=ca) if ca else ssl._create_unverified_context()
    with connect(host, port) as raw, ctx.wrap_socket(raw, server_hostname=sni) as s:
        s.sendall(("GET %s HTTP/1.1\r\nHost: %s\r\n\r\n" % (path, sni or "x")).encode())
        return http_answer(s)


def do_http(host, port, name, path="/", version="1.1"):
    with connect(host, port) as s:
        s.sendall(("GET %s HTTP/%s\r\n%s\r\n" % (path, version, "Host: %s\r\n" % name if name is not None else "")).encode())
        return http_answer(s)


def http_answer(s):
    data = b""
    while b"\r\n\r\n" not in data:
        more = s.recv(65536)
        if not more:
            raise EOFError
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    size, parts = int(re.search(rb"Content-Length: (\d+)", head).group(1)), [body]
    left = size - len(body)
    while left > 0:
        more = s.recv(65536)
        if not more:
            raise EOFError
        left -= len(more)
        if size <= 4096:
            parts.append(more)
    return {"size": size} if size > 4096 else json.loads(b"".join(parts))


def do_udp(host, port, text="x", wait=2.0):
    fam, kind, proto, _, addr = socket.getaddrinfo(host, port, 0, socket.SOCK_DGRAM)[0]
    with socket.socket(fam, kind, proto) as s:
        s.settimeout(wait)
        s.connect(addr)  # connected: an ICMP refusal comes back as an error
        s.send(text.encode())
        return s.recv(65536).decode("latin-1")


def do_dns(message, server=None, proto="udp", port=53, wait=4.0):
    """A ready-made message in hex; the reply in hex."""
    server, message = server or gateway(), bytes.fromhex(message)
    if proto == "udp":
        with socket.socket(family_of(server), socket.SOCK_DGRAM) as s:
            s.settimeout(wait)
            s.connect((server, port))
            s.send(message)
            return s.recv(65536).hex()
    with socket.create_connection((server, port), wait) as s:
        s.sendall(struct.pack("!H", len(message)) + message)
        return tcp_frame(s).hex()


def tcp_frame(s):
    def exactly(n):
        data = b""
        while len(data) < n:
            more = s.recv(n - len(data))
            if not more:
                raise EOFError
            data += more
        return data
    return exactly(struct.unpack("!H", exactly(2))[0])


def do_until(step, timeout=PATIENCE_S):
    """Another step, again and again until it works; what came back then."""
    def attempt():
        try:
            return [globals()["do_" + step[0]](*step[1:])]
        except (OSError, EOFError):
            return None
    return wait_for(attempt, timeout)[0]


def do_eval(code):
    """Python; what it leaves in `out`."""
    space = dict(globals(), out=None)
    exec(code, space)
    return space["out"]


def name_of(e):
    if isinstance(e, socket.gaierror):
        return next((n for n in dir(socket) if n.startswith("EAI_") and getattr(socket, n) == e.errno), str(e))
    if isinstance(e, (socket.timeout, TimeoutError)) and e.errno is None:
        return "timeout"
    if isinstance(e, (EOFError, ssl.SSLEOFError, ssl.SSLZeroReturnError)):
        return "eof"
    if isinstance(e, ssl.SSLError):
        return "ssl: " + str(e.reason)
    if isinstance(e, OSError) and e.errno:
        return errno.errorcode.get(e.errno, str(e))
    return repr(e)


def sent_again():
    """SYNs that this network namespace has sent again: one that is dropped in silence is, after a second."""
    with open("/proc/net/netstat") as f:
        head, row = [line.split() for line in f if line.startswith("TcpExt:")]
    return int(dict(zip(head, row))["TCPSynRetrans"])


def main(steps):
    results = []
    for kind, *args in steps:
        start, before = time.monotonic(), sent_again()
        try:
            row = {"ok": globals()["do_" + kind](*args)}
        except Exception as e:
            row = {"err": name_of(e)}
        row.update(ms=round((time.monotonic() - start) * 1000, 2), again=sent_again() - before)
        results.append(row)
    print(json.dumps(results))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
