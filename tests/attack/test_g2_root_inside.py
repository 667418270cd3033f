"""g2: whoever is root inside (or makes itself root in one more namespace) flushes rules, sets marks, adds routes: no effect."""
import pytest
from expect import NATIVE, allow, refused, worked

TRY = r"""
import ctypes, subprocess
libc = ctypes.CDLL(None, use_errno=True)
out = {'uid': os.getuid()}
def attempt(name, fn):
    try: out[name] = repr(fn())
    except Exception as e: out[name] = 'failed: %s' % e
def mark():
    s = socket.socket(); s.setsockopt(1, 36, 0x616b0001); s.settimeout(2); return s.connect_ex(('11.66.0.1', 443))
def transparent():
    s = socket.socket(); s.setsockopt(0, 19, 1); s.bind(('11.9.9.9', 0)); s.settimeout(2); return s.connect_ex(('11.66.0.1', 443))
def device():
    s = socket.socket(); s.setsockopt(1, 25, b'eth0'); s.settimeout(2); return s.connect_ex(('11.66.0.1', 443))
attempt('mark', mark); attempt('transparent', transparent); attempt('device', device)
for cmd in ('nft flush ruleset', 'nft delete table inet agentkernel', 'ip route add 11.66.0.0/16 dev eth0', 'ip addr add 11.9.9.9/32 dev eth0', 'ip link set eth0 down',
            'ip link set eth0 address 02:00:00:00:00:01', 'sysctl -w net.ipv4.ip_forward=1', 'ip neigh replace 100.64.0.5 lladdr 02:00:00:00:00:02 dev eth0'):
    for prefix in ([], ['unshare', '-Ur'], ['unshare', '-Urn']):
        try: rc = subprocess.run(prefix + cmd.split(), capture_output=True, timeout=5).returncode
        except Exception as e: rc = str(e)
        if not prefix or prefix[-1] == '-Ur': out[' '.join(prefix + [cmd])] = rc
"""


@pytest.mark.parametrize("mode", ["codex", "claude", "native"])
def test_g2_power_inside_has_no_effect_on_the_fence(any_user, mode):
    lab = any_user
    args = [*allow("ok.test", mode=mode), "--block-cidr", "11.66.0.0/16"]
    got = lab.probe(args, [["eval", TRY], ["tls", "ok.test", 443, "ok.test"], ["tcp", "11.66.0.1", 443], ["udp", "11.66.0.1", 5000], ["tcp", "169.254.169.254", 80]], timeout=60)
    out = worked(got[0])
    done = {k: v for k, v in out.items() if k.split()[-1:] != [] and v == 0 and k not in ("uid",) and not k.startswith(("mark", "transp", "device")) and "nft" not in k}
    assert not done, "changed its own link: %r" % done
    worked(got[1])
    for row in got[2:]:
        refused(row)
    assert lab.strangers("11.1.0.5", "2a00:1::5") == []
