"""Servers in a sandbox and clients on the lab's host, for tests of published ports."""
import contextlib
import errno
import socket

from lab import wait_for

# listen(addr, port) echoes what it is sent, half-close kept: the end of the client's bytes is answered by "end" and the server's own end.
SERVER = """
import threading
def talk(c):
    with c:
        while True:
            data = c.recv(65536)
            if not data: break
            c.sendall(data)
        c.sendall(b'end')
def listen(addr, port):
    s = socket.socket(socket.AF_INET6 if ':' in addr else socket.AF_INET)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind((addr, port)); s.listen(512)
    def loop():
        while True: threading.Thread(target=talk, args=(s.accept()[0],), daemon=True).start()
    threading.Thread(target=loop, daemon=True).start()
"""


def serve(*places):
    """SERVER, and a server on each (address, port)."""
    return SERVER + "".join("listen(%r, %d)\n" % p for p in places)


def echo(door, port, host="127.0.0.1", data=b"hello"):
    """What a client on the host gets back for DATA and its end."""
    with contextlib.closing(door.connect(port, host)) as s:
        s.sendall(data)
        s.shutdown(socket.SHUT_WR)
        got = b""
        while piece := s.recv(65536):
            got += piece
        return got


def reset(door, port, host="127.0.0.1"):
    """Whether a client on the host is reset, in the middle of its connect or after it, without a byte."""
    try:
        with contextlib.closing(door.connect(port, host)) as s:
            return bool(s.recv(1)) and None
    except OSError as e:
        return e.errno == errno.ECONNRESET or "Errno %d]" % errno.ECONNRESET in str(e)


def closed(door, port, host="127.0.0.1"):
    """Whether nobody listens on the host's port."""
    try:
        door.connect(port, host).close()
    except OSError as e:
        return "Errno %d]" % errno.ECONNREFUSED in str(e)
    return False


def records(log):
    return [row for row in log if row["event"] == "publish"]


def wait_record(netlog, **want):
    """The first record of a published connection that fits."""
    def look():
        return [r for r in records(netlog()) if all(r.get(k) == v for k, v in want.items())]
    return wait_for(look, every=0.05)[0]
