"""d2, once more: blocked IPv4 addresses behind the network's own NAT64 prefix (RFC 7050, every length of RFC 6052) and in ISATAP form, as answers and as raw addresses."""
import ipaddress

import pytest
from expect import NATIVE, PRIVATE, addresses, allow, ask, denied, refused, reply, worked

BLOCKED = ["10.0.0.1", "192.168.1.1", "127.0.0.1", "169.254.169.254", "100.64.0.1", "172.16.3.4"]
PREFIXES = ["2a00:64::/32", "2a00:64:100::/40", "2a00:64:102::/48", "2a00:64:102:300::/56", "2a00:64:102:304::/64", "2a00:64:102:304:0:5::/96"]


def embed(prefix, v4):
    """RFC 6052 section 2.2: after the prefix, around the octet of zeros."""
    net = ipaddress.ip_network(prefix)
    out, at = bytearray(net.network_address.packed), net.prefixlen // 8
    for octet in ipaddress.ip_address(v4).packed:
        at += at == 8
        out[at] = octet
        at += 1
    return str(ipaddress.ip_address(bytes(out)))


def isatap(v4, unique):
    return str(ipaddress.ip_address(int(ipaddress.ip_address("2a00:1:2:3::")) | unique << 57 | 0x5efe << 32 | int(ipaddress.ip_address(v4))))


def closed(lab, mode, addrs):
    """Neither as answers nor raw. The relay may take a connection before it cuts it, so each says something."""
    names = []
    for i, addr in enumerate(addrs):
        names.append("c%d.wild.test" % i)
        lab.dns.set(names[-1], AAAA=addr)
    got = lab.probe(allow("*.wild.test", mode=mode), [["tcp", a, 443, "16"] for a in addrs] + [["udp", addrs[0], 5000, "x", 1.0]] + [ask(n, "AAAA") for n in names] +
                    [["tcp", a, 80, "47"] for a in addrs] + [["tls", "ok.test" if mode == "native" else "n.wild.test", 443, "ok.test"]], timeout=90)
    for row in got[:len(addrs)] + got[-1 - len(addrs):-1]:
        refused(row)
    wrong = [(a, reply(row)) for a, row in zip(addrs, got[len(addrs) + 1:]) if addresses(reply(row))]
    assert not wrong, wrong
    for addr in addrs:
        assert lab.arrived(addr) == 0, addr
    denied(lab.netlog(), PRIVATE, dst=addrs[0], port=443)


@pytest.mark.parametrize("mode", ["codex", "native"])
def test_d2_isatap_forms_of_blocked_addresses_are_blocked(any_user, mode):
    closed(any_user, mode, [isatap(a, u) for a in BLOCKED for u in (False, True)])


@pytest.mark.parametrize("prefix", PREFIXES)
def test_d2_the_networks_own_nat64_hides_nothing(lab, prefix):
    lab.dns.set("ipv4only.arpa", AAAA=[embed(prefix, "192.0.0.170"), embed(prefix, "192.0.0.171")])
    closed(lab, "native", [embed(prefix, a) for a in BLOCKED])


def test_d2_the_networks_own_nat64_hides_nothing_from_an_allowlist(any_user):
    any_user.dns.set("ipv4only.arpa", AAAA=[embed(PREFIXES[5], "192.0.0.170")])
    closed(any_user, "codex", [embed(PREFIXES[5], a) for a in BLOCKED])


def test_d2_public_addresses_behind_nat64_stay_reachable(any_user):
    lab = any_user
    lab.dns.set("ipv4only.arpa", AAAA=[embed(PREFIXES[5], "192.0.0.170")])
    far = embed(PREFIXES[5], "11.1.0.5")
    lab.dns.set("n.wild.test", AAAA=far)
    got = lab.probe(NATIVE, [ask("n.wild.test", "AAAA"), ["tls", far, 443, "n.wild.test"]])
    assert addresses(reply(got[0])) == [far]
    worked(got[1])


def test_d2_where_there_is_no_nat64_nothing_looks_like_it(any_user):
    lab = any_user
    far = [embed(p, "10.0.0.1") for p in PREFIXES]
    lab.dns.set("n.wild.test", AAAA=far)
    got = lab.probe(NATIVE, [ask("ok.test", "AAAA"), ask("n.wild.test", "AAAA")] + [["tls", a, 443, "n.wild.test"] for a in far])
    assert sorted(addresses(reply(got[1]))) == sorted(far)
    for row in got[2:]:
        worked(row)


def test_d2_as_long_as_the_prefix_is_not_known_every_place_is_looked_at(any_user):
    lab = any_user
    lab.dns.behave("ipv4only.arpa", drop=True)
    closed(lab, "native", [embed(p, a) for p in PREFIXES for a in BLOCKED[:2]])
