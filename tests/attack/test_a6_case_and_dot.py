"""a6: mixed case and a trailing dot are the same name; upstream does not see the client's spelling, its reply echoes it."""
from expect import allow, ask, reply, worked


def test_a6_upstream_sees_another_case_and_the_client_its_own(lab):
    got = lab.probe(allow("ok.test", "*.wild.test"), [ask("oK.TeSt", ident=7), ask("OK.TEST", "AAAA"), ask("DaTa.In.CaSe.WILD.test"), ["resolve", "OK.test.", 4],
                                       ["tls", "Ok.Test", 443, "OK.tEST"], ["http", "OK.test", 80, "oK.test."]])
    first = reply(got[0])
    assert first["questions"][0]["name"] == "oK.TeSt" and first["id"] == 7 and first["answers"][0]["data"] == "11.1.0.5"
    assert first["answers"][0]["name"].lower() == "ok.test"
    assert reply(got[2])["questions"][0]["name"] == "DaTa.In.CaSe.WILD.test" and reply(got[2])["answers"]
    assert worked(got[3]) == ["11.1.0.5"]
    worked(got[4]), worked(got[5])
    assert lab.dns.names() == ["data.in.case.wild.test", "ok.test"]
    assert not {row["name"] for row in lab.dns.log()} & {"DaTa.In.CaSe.WILD.test"}, "the client's case went up"
