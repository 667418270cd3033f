"""`agentkernel serve` in the lab, and ways to talk to it: whole requests, raw bytes, event streams."""
import contextlib
import json
import os
import re
import select
import socket
import time

import pytest
from lab import PATIENCE_S, PYTHON

# Sockets of the lab's own network, handed out: what connects is the test itself.
DOOR = """
import array, json, socket, sys
def connect(host, port, source):
    if not source:
        return socket.create_connection((host, port), 5)
    s = socket.socket(socket.AF_INET6 if ':' in host else socket.AF_INET)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.settimeout(5)
    s.bind(tuple(source))
    s.connect((host, port))
    return s
me = socket.socket(fileno=50)
while True:
    want = me.recv(4096)
    if not want:
        break
    host, port, source = json.loads(want)
    try:
        s = connect(host, port, source)
        me.sendmsg([b'+'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [s.fileno()]))])
        s.close()
    except OSError as e:
        me.send(str(e).encode())
"""


def as_uid(uid):
    """What comes before a command that root runs as somebody else."""
    return ["setpriv", "--reuid=%d" % uid, "--regid=%d" % uid, "--clear-groups"]


class Door:
    """Connections of the lab's user, of "root" or "user", or of any user id."""

    def __init__(self, lab, who=None):
        self.sock, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        other = isinstance(who, int)
        self.proc = lab.spawn([*(as_uid(who) if other else []), PYTHON, "-c", DOOR], extra_fds=[far.fileno()], who="root" if other else who, cwd="/")
        far.close()

    def connect(self, port, host="127.0.0.1", source=None):
        self.sock.send(json.dumps([host, port, source]).encode())
        data, fds, _, _ = socket.recv_fds(self.sock, 4096, 1)
        if not fds:
            raise OSError(data.decode())
        s = socket.socket(fileno=fds[0])
        s.settimeout(PATIENCE_S)
        return s

    def close(self):
        self.sock.close()
        self.proc.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def data(self):
        """What a request that worked brought."""
        assert self.status in (200, 201), self
        assert self.json["success"] is True and "error" not in self.json, self
        return self.json["data"]

    def refused(self, status, says=""):
        """It failed as it should: JSON, this status, these words."""
        assert self.status == status, self
        assert self.headers["content-type"] == "application/json", self
        assert self.json["success"] is False and "data" not in self.json, self
        assert says.lower() in self.json["error"].lower(), self
        return self

    def __repr__(self):
        return "%s %r %r" % (self.status, self.headers, self.body[:2000])


def read_head(f):
    line = f.readline()
    if not line:
        raise EOFError("no answer")
    status = int(line.split()[1])
    headers = {}
    while True:
        row = f.readline().rstrip(b"\r\n")
        if not row:
            return status, headers
        key, _, value = row.decode().partition(":")
        headers[key.lower()] = value.strip()


def read_answer(f, head_only=False):
    status, headers = read_head(f)
    if status == 100:
        status, headers = read_head(f)
    body = b""
    if head_only:
        pass
    elif "content-length" in headers:
        body = f.read(int(headers["content-length"]))
    elif headers.get("transfer-encoding") == "chunked":
        while True:
            size = int(f.readline(), 16)
            body += f.read(size)
            f.readline()
            if not size:
                break
    else:
        body = f.read()
    return Answer(status, headers, body)


class Stream:
    """A stream of events as they come: (seconds since the request, name, data)."""

    def __init__(self, sock, f):
        self.sock, self.f, self.began = sock, f, time.monotonic()
        self.status, self.headers = read_head(f)
        self.longest = 0

    def __iter__(self):
        buffer = b""
        while True:
            size = int(self.f.readline() or b"0", 16)
            chunk = self.f.read(size)
            self.f.readline()
            if not size:
                return
            buffer += chunk
            while b"\n\n" in buffer:
                block, _, buffer = buffer.partition(b"\n\n")
                lines = block.split(b"\n")
                self.longest = max(self.longest, *map(len, lines))
                row = dict(line.decode().split(": ", 1) for line in lines if not line.startswith(b":"))
                if row:
                    yield time.monotonic() - self.began, row["event"], json.loads(row["data"])

    def close(self):
        self.f.close()
        self.sock.close()


class Description:
    """What /openapi.json says, against every answer that a test gets: a route answers with no status that its description does not name."""
    doc, seen = None, []

    @classmethod
    def operation(cls, method, path):
        for template, operations in cls.doc["paths"].items():
            pattern = re.sub(r"{(\w+)}", lambda m: {"path": ".+", "by": "by-uuid"}.get(m.group(1), "[^/]+"), template)
            # /sandboxes/by-uuid/… is the uuid's, whatever else it looks like.
            if re.fullmatch(pattern, path) and ("{by}" in template or not re.fullmatch("/sandboxes/by-uuid/[^/]+", path)):
                return operations.get("get" if method == "HEAD" else method.lower())
        return None

    @classmethod
    def check(cls, api):
        answer = api.get("/openapi.json") if cls.doc is None else None
        if answer and answer.status == 200:
            cls.doc = answer.json
        while cls.doc and cls.seen:
            method, path, status = cls.seen.pop()
            op = cls.operation(method, path.partition("?")[0])
            assert not op or str(status) in op["responses"] or status in (405, 431, 505), "%s %s: %d is not described" % (method, path, status)


class Api:
    def __init__(self, lab, *options, env=None, key=None, port="0", **kw):
        """PORT None: the one that every client knows."""
        self.lab, self.key = lab, key
        where = ["--port", port] if port else []
        self.proc = lab.spawn([lab.binary, "serve", *where, *options], env=lab.env(**(env or {})), **kw)
        text = self.proc.wait_output(b"serving on", stream=2).decode()
        self.port = int(re.search(r"serving on http://\S+:(\d+)", text).group(1))
        self.door = Door(lab)

    def connect(self, host="127.0.0.1"):
        return self.door.connect(self.port, host)

    def head(self, method, path, headers=(), length=None):
        rows = {"Host": "127.0.0.1:%d" % self.port}
        if self.key:
            rows["Authorization"] = "Bearer " + self.key
        if length is not None:
            rows["Content-Length"] = length
        rows.update(headers)
        text = "%s %s HTTP/1.1\r\n" % (method, path)
        text += "".join("%s: %s\r\n" % kv for kv in rows.items() if kv[1] is not None)
        return text.encode() + b"\r\n"

    @staticmethod
    def encode(body):
        return body if isinstance(body, bytes) else json.dumps(body).encode()

    def __call__(self, method, path, body=None, headers=(), host="127.0.0.1"):
        data = b"" if body is None else self.encode(body)
        with self.connect(host) as s:
            s.sendall(self.head(method, path, headers, len(data) if body is not None else None) + data)
            with s.makefile("rb") as f:
                answer = read_answer(f, method == "HEAD")
        Description.seen.append((method, path, answer.status))
        return answer

    def get(self, path, **kw):
        return self("GET", path, **kw)

    def post(self, path, body=None, **kw):
        return self("POST", path, body, **kw)

    def run(self, *command, **fields):
        return self.post("/run", dict(fields, command=list(command))).data

    def raw(self, data, timeout=PATIENCE_S):
        """Whatever comes back for these bytes until the server closes, or says nothing more."""
        out = b""
        with self.connect() as s:
            with contextlib.suppress(OSError):
                s.sendall(data)
            while select.select([s], [], [], timeout)[0]:
                try:
                    got = s.recv(65536)
                except OSError:
                    break
                if not got:
                    break
                out += got
                if out.endswith(b"}\n"):
                    timeout = 0.1
        return out

    def stream(self, method, path, body=None):
        s = self.connect()
        data = b"" if body is None else self.encode(body)
        s.sendall(self.head(method, path, (), len(data) if body is not None else None) + data)
        return Stream(s, s.makefile("rb"))

    @contextlib.contextmanager
    def calls_of(self, who):
        """Whatever is asked meanwhile, this user asks."""
        mine, self.door = self.door, Door(self.lab, who)
        try:
            yield self.door
        finally:
            self.door.close()
            self.door = mine

    def alive(self):
        assert self.get("/health").data == "ok"

    def close(self, code=0):
        self.door.close()
        self.proc.signal(15)
        r = self.proc.wait(20)
        assert r.code == code, r
        return r


@contextlib.contextmanager
def serving(lab, *options, **kw):
    a = Api(lab, *options, **kw)
    try:
        yield a
        a.alive()
        Description.check(a)
    finally:
        a.close()


@pytest.fixture
def api(lab):
    """A server without persistent sandboxes."""
    with serving(lab) as a:
        yield a


@pytest.fixture
def box_api(boxes):
    """A server with them; they and the daemon go when the test ends."""
    with serving(boxes.lab) as a:
        a.boxes = boxes
        yield a


def children(lab, pid):
    """Processes below PID, on the lab's host."""
    r = lab.host(["sh", "-c", "cat /proc/%d/task/*/children 2>/dev/null" % pid])
    return [int(x) for x in r.out.split()]


def cpu_seconds(lab, pid):
    """Processor time that PID and its ended children have used."""
    r = lab.host(["cat", "/proc/%d/stat" % pid])
    return sum(map(int, r.out.rpartition(")")[2].split()[11:15])) / os.sysconf("SC_CLK_TCK")
