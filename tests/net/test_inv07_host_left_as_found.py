"""Invariant 7: no rule, route, sysctl, interface, resolver or file of the host changes, while running or after."""
import os

from expect import CODEX, NATIVE, allow, holding, refused, worked

LOOK = ("nft list ruleset; ip -o link | sed 's/ qlen.*//'; ip -o addr; ip rule; ip route show table all; ip -6 route show table all | sed 's/ expires.*//'; "
        "cat /proc/sys/net/ipv4/ip_forward /proc/sys/net/ipv4/conf/*/rp_filter /proc/sys/net/ipv4/conf/*/route_localnet "
        "/proc/sys/net/ipv6/conf/*/forwarding /etc/resolv.conf /etc/hosts; ip netns; ls -la /dev/shm /etc/netns 2>/dev/null | grep -v total")


def look(lab):
    r = lab.host(["sh", "-c", LOOK])
    assert "127.0.0.1" in r.out and "nameserver" in r.out, r
    return r.out + "\n".join(lab.snapshot()["mounts"])


def files(lab):
    out = {}
    for top in (lab.path(),):
        for folder, _, names in os.walk(top):
            for name in names:
                out[os.path.join(folder, name)] = os.stat(os.path.join(folder, name), follow_symlinks=False).st_mtime_ns
    return out


def test_nothing_of_the_host_changes_while_or_after_it_runs(any_user):
    lab = any_user
    before = look(lab)
    with holding(lab, allow("ok.test")) as (proc, do):
        with holding(lab, NATIVE) as (proc2, do2):
            worked(do([["tls", "ok.test", 443, "ok.test"]])[0])
            worked(do2([["tcp", "11.66.0.1", 7, b"x".hex()]])[0])
            assert look(lab) == before
    assert look(lab) == before


def test_files_appear_only_in_the_state_folder(any_user):
    lab = any_user
    before = files(lab)
    lab.run([*CODEX, "true"])
    new = [f for f in files(lab) if f not in before]
    assert new and all(f.startswith(lab.path("state", "agentkernel")) for f in new), new


def test_two_users_do_not_notice_each_other(lab):
    if not lab.is_root:
        import pytest
        pytest.skip("the suite runs as an ordinary user")
    with lab.acting_as("user"), holding(lab, allow("ok.test")) as (proc, do):
        home, who = lab.home, lab.who
        lab.who, lab.home = "root", os.path.dirname(lab.home) + "/root-too"
        for sub in ("", "home", "state", "config", "runtime", "project", "tmp"):
            os.mkdir(lab.path(sub))
        try:
            with holding(lab, allow("other.test")) as (proc2, do2):
                worked(do([["tls", "ok.test", 443, "ok.test"]])[0])
                worked(do2([["tls", "other.test", 443, "other.test"]])[0])
                refused(do([["tls", "other.test", 443, "other.test"]])[0])
        finally:
            lab.who, lab.home = who, home
        worked(do([["tls", "ok.test", 443, "ok.test"]])[0])


def test_the_hosts_own_firewall_may_be_flushed(lab):
    with holding(lab, allow("ok.test")) as (proc, do):
        assert lab.host(["nft", "flush", "ruleset"]).code == 0
        worked(do([["tls", "ok.test", 443, "ok.test"]])[0])
        refused(do([["tcp", "11.66.0.1", 443]])[0])
    assert lab.arrived("11.66.0.1") == 0
