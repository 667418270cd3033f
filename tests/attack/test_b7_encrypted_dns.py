"""b7: DNS over TLS, QUIC and HTTPS to the well-known resolvers is refused, also where a wildcard would cover them; browsers are told to keep to the resolver they have."""
import pytest
from expect import DNS_ELSEWHERE, RESOLVER, allow, ask, at_once, denied, refused, reply, worked

RESOLVERS = ["dns.google", "dns.quad9.net", "cloudflare-dns.com", "one.one.one.one", "mozilla.cloudflare-dns.com", "dns.nextdns.io", "doh.opendns.com", "dns.adguard.com", "dns.mullvad.net"]
WILDCARDS = ["*.quad9.net", "*.cloudflare-dns.com", "*.nextdns.io", "*.opendns.com", "*.adguard.com", "*.mullvad.net", "*.one.one.one"]
ADDRESSES = ["8.8.8.8", "1.1.1.1", "9.9.9.9", "2a00:4860::8888"]


@pytest.mark.parametrize("mode", ["codex", "native"])
def test_b7_dot_and_doq_are_refused_everywhere(any_user, mode):
    lab = any_user
    steps = [[p, a, 853] for a in ADDRESSES + ["11.1.0.5", "2a00:1::5"] for p in ("tcp", "udp")] + [["tls", "ok.test", 853, "ok.test"], ["tcp", "ok.test", 853], ["udp", "ok.test", 853]]
    steps += [["udp", a, p] for a in ADDRESSES[:3] for p in (784, 8853)] if mode == "codex" else []
    for row in lab.probe([*allow("ok.test", "ok.test:853", "ok.test:853/udp", mode=mode)], steps):
        refused(row)
    assert lab.arrived(port=853) == 0 and lab.strangers() == []
    log = lab.netlog()
    for proto in ("tcp", "udp"):
        denied(log, DNS_ELSEWHERE, dst="8.8.8.8", port=853, proto=proto)
    denied(log, DNS_ELSEWHERE, dst="2a00:1::5", port=853)


def test_b7_doh_resolvers_are_refused_in_allowlist_modes(any_user):
    lab = any_user
    for i, name in enumerate(RESOLVERS):
        lab.dns.set(name, A="11.66.8.%d" % (i + 1), AAAA="2a00:66:8::%d" % (i + 1))
    steps = [["tls", name, 443, name, "/dns-query?dns=AAABAAABAAAAAAAAA3d3dwdleGFtcGxlA2NvbQAAAQAB"] for name in RESOLVERS]
    steps += [["tls", a, 443, n] for a in ADDRESSES for n in ("dns.google", "ok.test")] + [["udp", a, 443] for a in ADDRESSES] + [["tls", "www.quad9.net", 443, "www.quad9.net"]]
    lab.dns.set("www.quad9.net", A="11.1.8.8", AAAA="2a00:1:8::8")
    got = lab.probe(allow("ok.test", *WILDCARDS), steps)
    for row in got[:-1]:
        refused(row)
    worked(got[-1])  # the wildcard itself works
    assert lab.strangers("11.1.8.8", "2a00:1:8::8") == [] and set(lab.dns.names()) == {"www.quad9.net"}
    log = lab.netlog()
    for name in ("dns.quad9.net", "mozilla.cloudflare-dns.com"):
        denied(log, RESOLVER, name=name, event="dns")


def test_b7_a_resolvers_name_at_an_allowed_address_is_refused(lab):
    """An allowed name that points at a resolver's address does not make the resolver's own name pass."""
    lab.dns.set("front.test", A="11.1.0.5", AAAA="2a00:1::5")
    got = lab.probe(allow("front.test"), [["resolve", "front.test"]] + [["tls", a, 443, n] for a in ("11.1.0.5", "2a00:1::5") for n in ("dns.google", "cloudflare-dns.com", None)])
    worked(got[0])
    for row in got[1:]:
        refused(row)
    assert lab.strangers() == []
    denied(lab.netlog(), ("builtin: resolver", "SNI not allowed here"), sni="dns.google", port=443)


@pytest.mark.parametrize("mode", ["codex", "claude", "gemini", "native"])
def test_b7_browsers_are_told_to_keep_their_resolver(any_user, mode):
    lab = any_user
    steps = [ask(n, q, proto=p) for n in ("use-application-dns.net", "USE-application-DNS.net", "x.use-application-dns.net") for q in ("A", "AAAA") for p in ("udp", "tcp")]
    for row in lab.probe(allow("use-application-dns.net", mode=mode) if mode == "codex" else ["--compatibility-mode", mode], steps):
        assert reply(row)["rcode"] == 3 and not reply(row)["answers"]
        at_once(row)
    assert lab.dns.log() == []
    denied(lab.netlog(), RESOLVER, event="dns", name="use-application-dns.net")


def test_b7_a_resolver_that_a_rule_names_is_the_users_choice(lab):
    lab.dns.set("dns.google", A="11.1.8.9")
    r = lab.run([*allow("dns.google"), "--", *lab.probe_command([["tls", "dns.google", 443, "dns.google"], ["tcp", "dns.google", 853]])])
    got = r.json()
    # Either way the choice is explicit, and port 853 stays shut.
    refused(got[1])
    assert lab.arrived(port=853) == 0


def test_b7_discovery_of_designated_resolvers_is_nodata(lab):
    """DDR (RFC 9462) would tell a client of encrypted resolvers."""
    for mode in ("codex", "native"):
        for row in lab.probe(["--compatibility-mode", mode], [ask("_dns.resolver.arpa", t) for t in ("SVCB", "HTTPS", "A")]):
            assert not reply(row)["answers"]
    assert not [n for n in lab.dns.names() if n.endswith("resolver.arpa")]
