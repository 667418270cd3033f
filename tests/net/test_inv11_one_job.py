"""Invariant 11: a sandbox serves one job; nothing of it is found by the next. (Exactness of argv: test_run_exit.)"""
from expect import CODEX, allow, refused, worked


def test_nothing_written_or_learned_is_found_by_the_next_run(lab):
    r = lab.run([*CODEX, "sh", "-ec", "for f in /tmp/mark ~/mark /dev/shm/mark; do echo mark > $f; test -s $f; done; hostname"])
    assert r.code == 0 and r.out.strip(), r
    worked(lab.probe(allow("ok.test"), [["tls", "ok.test", 443, "ok.test"]])[0])
    lab.clear()
    got = lab.probe(allow("ok.test"), [["tcp", "11.1.0.5", 443], ["eval", "out = [p for p in ('/tmp/mark', os.path.expanduser('~/mark'), '/dev/shm/mark') "
                                                                     "if os.path.exists(p)]"]])
    refused(got[0])
    assert got[1]["ok"] == [] and lab.arrived("11.1.0.5") == 0
    assert lab.run([*CODEX, "hostname"]).out != r.out
