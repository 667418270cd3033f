"""d4: services of the host: by the gateway's address, the host's own addresses, loopback, abstract and path sockets."""
import contextlib
import os

from expect import NATIVE, allow, allowed, at_once, worked
from lab import PYTHON

SERVICE = """
import os, selectors, socket, sys
sel = selectors.DefaultSelector()
def serve(s): s.listen(16); sel.register(s, 1)
for addr in ('127.0.0.1', '11.200.0.2', '10.77.0.1'):
    s = socket.socket(); s.setsockopt(1, 2, 1); s.bind((addr, 8000)); serve(s)
for addr in ('::1', '2a00:ffff::2'):
    s = socket.socket(socket.AF_INET6); s.setsockopt(1, 2, 1); s.bind((addr, 8000)); serve(s)
s = socket.socket(); s.setsockopt(1, 2, 1); s.bind(('127.0.0.1', 8001)); serve(s)
a = socket.socket(socket.AF_UNIX); a.bind('\\0ak-lab-abstract'); serve(a)
p = socket.socket(socket.AF_UNIX); p.bind(sys.argv[1]); os.chmod(sys.argv[1], 0o777); serve(p)
print('up', flush=True)
while True:
    for key, _ in sel.select():
        c, _ = key.fileobj.accept(); print('hit', key.fileobj.getsockname(), flush=True); c.sendall(b'host service\\n'); c.close()
"""


@contextlib.contextmanager
def services(lab):
    proc = lab.spawn([PYTHON, "-c", SERVICE, lab.path("tmp", "sock")], who="root")
    proc.wait_output(b"up\n")
    try:
        yield proc
    finally:
        proc.signal(9)
        proc.result = proc.wait()
        os.unlink(lab.path("tmp", "sock"))


def attempts(lab):
    unix = "s = socket.socket(socket.AF_UNIX); s.connect(%r); out = s.recv(100).decode()"
    steps = [["read", a, 8000] for a in ("127.0.0.1", "11.200.0.2", "10.77.0.1", "::1", "2a00:ffff::2", "100.64.0.1", "100.64.0.5")]
    steps += [["eval", "s = socket.create_connection((gateway(), 8000), 3); out = s.recv(100).decode()"],
              ["eval", "s = socket.create_connection((gateway(), 22), 3); out = 'in'"],
              ["eval", "s = socket.create_connection((gateway(), 15001), 3); s.send(b'x'); out = 'in' if s.recv(10) else 1/0"],
              ["eval", unix % "\0ak-lab-abstract"], ["eval", unix % lab.path("tmp", "sock")], ["resolve", "host.agentkernel.internal"],
              ["resolve", "host.docker.internal"]]
    return steps


def test_d4_the_hosts_services_are_refused_in_every_mode(lab):
    for args in (allow("ok.test"), NATIVE):
        with services(lab) as server:
            got = lab.probe(args, attempts(lab))
            for step, row in zip(attempts(lab), got):
                assert "err" in row, (args, step, row)
                at_once(row)
        assert b"hit" not in server.output[1], server.output
    assert lab.strangers() == []


def test_d4_one_chosen_service_opens_and_only_it(lab):
    for mode in ("codex", "native"):
        with services(lab) as server:
            got = lab.probe(allow("host.agentkernel.internal:8000", mode=mode), [["read", "host.agentkernel.internal", 8000],
                                                                            ["tcp", "host.agentkernel.internal", 8001, b"x".hex()], ["tcp", "11.200.0.2", 8000, b"x".hex()],
                                                                            ["tcp", "10.77.0.1", 8000, b"x".hex()]])
            assert worked(got[0]) == "host service\n", (mode, got)
            for row in got[1:]:
                assert "err" in row, (mode, row)
        assert server.output[1].count(b"hit") == 1 and b"'127.0.0.1', 8000" in server.output[1], server.output
        allowed(lab.netlog(), event="flow", rule="flags: host.agentkernel.internal:8000", port=8000)
