"""Invariant 4: who asks is told by the link and its one address, never by what a packet says."""
from expect import allow, find, holding, in_sandbox
from frames import FRAMES
from lab import PYTHON


def test_a_question_from_another_address_is_not_answered(lab):
    with holding(lab, allow("ok.test")) as (proc, do):
        do([["resolve", "ok.test", 4]])
        lab.clear()
        r = in_sandbox(lab, proc, PYTHON, "-c", FRAMES + "\nlink = Link()\nfor src in ('100.64.9.9', '11.9.9.9', '127.0.0.1'):\n"
                       "    link.send(udp4(src, link.gw4, 40000, 53, bytes.fromhex('123401000001000000000000016f026b04746573740000010001')))\n"
                       "print('sent')")
        assert r.out == "sent\n", r
        do([["resolve", "ok.test", 4]])
    assert lab.dns.log("o.ok.test") == [] and len(lab.dns.log()) <= 2
    assert find(lab.netlog(), verdict="deny", reason="spoof") or find(lab.netlog(), verdict="deny", rule="spoof")
