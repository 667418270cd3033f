"""Invariant 4: who asks is told by the link and its one address, never by what a packet says."""
import dnswire
from expect import SPOOFED, allow, denied, holding, in_sandbox, worked
from frames import FRAMES
from lab import PYTHON

ASK = """
link = Link()
link.send(udp4(%s, link.gw4, 40000, 53, bytes.fromhex('%s')))
"""


def test_a_question_from_another_address_is_not_answered(lab):
    """The same question goes out from addresses that are not the sandbox's, then from its own: only the last one is asked of anybody."""
    def frame(proc, source, name):
        r = in_sandbox(lab, proc, PYTHON, "-c", FRAMES + ASK % (source, dnswire.query(name).hex()))
        assert r.code == 0, r

    with holding(lab, allow("ok.test", "other.test", "v4.test")) as (proc, do):
        gateway = worked(do([["eval", "out = gateway()"]])[0])
        for source in ("100.64.9.9", "11.9.9.9", "127.0.0.1", gateway):
            frame(proc, repr(source), "other.test")
        frame(proc, "link.addr4", "v4.test")
        worked(do([["resolve", "ok.test", 4]])[0])  # and by then the frames have been judged
    assert lab.dns.names() == ["ok.test", "v4.test"]
    rows = denied(lab.netlog(), SPOOFED, proto="udp", dst=gateway, port=53)
    assert sum(row["count"] for row in rows) == 4, rows
