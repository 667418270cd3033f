"""D, E and F on the link of a virtual machine: the same rows as on a veth, sent by programs in a guest and, as raw frames, through the descriptor of the tap, where a guest that is root with
a kernel of its own can put anything: also virtio headers that ask the host to cut, or to sum, what is not so."""
import re
import signal
import struct

import pytest
import test_d1_d2_blocked_answers as d1
import test_d3_raw_addresses as d3
import test_d4_host_services as d4
import test_e1_e8_raw_frames as e1
import test_e2_e3_neighbours as e2
import test_e5_e7_odd_frames as e5
import test_e9_icmp as e9
import test_f1_f5_tls as f1
import test_f6_f7_other_protocols as f6
from bare import initramfs, qemu
from expect import FRAGMENT, FRAME, NATIVE, SPOOFED, allow, denied, holding, on_tap, vmm_pid, worked
from frames import frames_of, send_frames
from guests import every_run

pytestmark = pytest.mark.xdist_group("vm")
PROGRAMS = [(row,) for row in (
    d1.test_d1_d2_blocked_answers_are_dropped_and_not_learned, d1.test_d1_mixed_answers_keep_the_public_part, d3.test_d3_raw_addresses_and_number_names_are_refused,
    d4.test_d4_the_hosts_services_are_refused_in_every_mode, e2.test_e2_a_quiet_sandbox_has_no_such_record, f1.test_f1_an_allowed_name_at_an_address_of_another,
    f1.test_f2_http_hosts_are_held_to_the_same_rule, f1.test_f3_odd_first_bytes_on_443_are_reset_with_a_reason, f1.test_f4_hellos_in_pieces_get_the_right_verdict,
    f1.test_f4_a_stalled_hello_is_bounded, f1.test_f5_quic_is_refused_at_once, f6.test_f6_tls_and_http_on_other_ports_pass_by_binding,
    f6.test_f6_a_tunnel_through_an_allowed_port_of_443_needs_its_name, f6.test_f7_a_long_connection_is_cut_at_the_request_that_is_wrong)]
PROGRAMS += [(f6.test_f6_other_protocols_pass_by_binding_and_port, "AAAA"), (f6.test_f7_every_request_of_a_connection_is_judged, "11.1.0.5")]
RAW = [(e1.test_e1_spoofed_sources_are_dropped_and_logged,), (e1.test_e8_other_protocols_are_refused,), (e9.test_e9_icmp_is_no_channel,)]
RAW += [(e2.test_e2_e3_the_gateways_view_of_its_link_never_changes, what) for what in ("arp", "senders", "rogue")] + [(e5.test_e5_e6_e7_odd_frames_become_no_connection, row) for row in e5.ROWS]


@pytest.fixture
def guests(lab):
    """The lab as an ordinary user, every run in a virtual machine."""
    with lab.acting_as("user"), every_run(lab):
        yield lab


def name_of(row):
    return "-".join([row[0].__name__[5:], *row[1:]])


@pytest.mark.parametrize("row", PROGRAMS, ids=name_of)
def test_vm_programs_in_a_guest_get_the_same_verdicts(guests, row):
    row[0](guests, *row[1:])


@pytest.mark.parametrize("row", RAW, ids=name_of)
def test_vm_raw_frames_get_the_same_verdicts(guests, row):
    row[0](guests, *row[1:])


# flags, gso_type, hdr_len, gso_size, csum_start, csum_offset of a virtio header. What the kernel does not refuse at the tap, it must judge as any other frame.
OFFLOADS = r"""
import itertools
big = b'x' * 4000
frames = [syn(link.addr4, '11.66.0.1', 48000, 443), syn('11.9.9.9', '11.1.0.5', 48000, 443), udp4(link.addr4, '11.66.0.1', 48000, 5000, big), udp4('11.9.9.9', '11.66.0.1', 48000, 5000, big),
    l4(link.addr4, '11.66.0.1', 6, struct.pack('!HHIIBBHHH', 48000, 443, 1, 0, 0x50, 0x10, 64240, 0, 0) + big, 16), ip4(link.addr4, '11.66.0.1', 17, big, flags=0x2000),
    ip4(link.addr4, '11.66.0.1', 6, syn6_bytes(link.addr4, '11.66.0.1', 48000, 443), options=b'\1' * 40), (b'\x81\0', b'\0\1\x08\0' + syn(link.addr4, '11.66.0.1', 1, 443)[1]),
    ip4(link.addr4, '11.1.0.5', 47, b'\0\0\x08\0' + big), icmp4(link.addr4, '11.66.0.1', 8, 0, big), (b'\x08\0', b''), (b'\x86\xdd', b'\x60'), (b'\x08\x06', b'x')]
if link.addr6:
    frames += [syn(link.addr6, '2a00:66::1', 48000, 443), syn('2a00:9::9', '2a00:1::5', 48000, 443), udp4(link.addr6, '2a00:66::1', 48000, 5000, big),
        ip6(link.addr6, '2a00:66::1', 60, b'\x06\0\1\4\0\0\0\0' + syn6_bytes(link.addr6, '2a00:66::1', 48000, 443))]
heads = list(itertools.product((0, 1, 2, 7), (0, 1, 3, 4, 5, 0x81, 0xff), ((0, 0), (14, 1), (54, 1448), (54, 65535), (65535, 8)), ((0, 0), (34, 16), (34, 6), (65535, 65535), (14, 10))))
for i, (flags, gso, (hdr, size), (start, offset)) in enumerate(heads):
    for packet in frames:
        link.send(packet, head=struct.pack('<BBHHHH', flags, gso, hdr, size, start, offset))
assert 0 < link.refused < link.sent, (link.refused, link.sent)
"""


def test_vm_virtio_headers_that_lie_change_no_verdict(guests):
    lab = guests
    for args in (allow("ok.test"), NATIVE):
        with holding(lab, args) as (proc, do):
            worked(do([["tls", "ok.test", 443, "ok.test"]])[0])
            lab.clear()
            assert send_frames(lab, proc, OFFLOADS) > 5000
            worked(do([["tls", "ok.test", 443, "ok.test"]])[0])
            allowed_here = ("11.66.0.1", "2a00:66::1") if args == NATIVE else ()
            assert lab.strangers("11.1.0.5", "2a00:1::5", *allowed_here) == [], lab.strangers()
            assert lab.syns("11.1.0.5") + lab.syns("2a00:1::5") == 1
        log = lab.netlog()
        denied(log, SPOOFED, proto="tcp", dst="11.1.0.5", port=443)
        denied(log, FRAGMENT, event="packet")
        denied(log, FRAME, proto="link")


# The init of a guest that the test makes: it is root, its kernel is its own, and it sends what lies in /frames (a length of two bytes before each).
HOSTILE = r"""
#include <net/if.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
struct link_address { unsigned short family, protocol; int index; unsigned short type; unsigned char kind, len, addr[8]; };
int main(void)
{
	struct ifreq r = { .ifr_name = "eth0", .ifr_flags = IFF_UP };
	struct link_address to = { .family = AF_PACKET };
	unsigned char len[2], frame[65536];
	int all = 0, sent = 0, left = 1, fd, sock;
	begin();
	sock = socket(AF_PACKET, SOCK_RAW, 0);
	for (int i = 0; i < 1000 && ioctl(sock, SIOCGIFINDEX, &r) < 0; i++)
		usleep(10000);
	to.index = r.ifr_ifindex;
	r.ifr_flags = IFF_UP;
	if (sock < 0 || ioctl(sock, SIOCSIFFLAGS, &r) < 0)
		printf("no link: %s\n", strerror(errno));
	fd = open("/frames", O_RDONLY);
	while (read(fd, len, 2) == 2 && read(fd, frame, len[0] << 8 | len[1]) == (len[0] << 8 | len[1])) {
		sent += sendto(sock, frame, len[0] << 8 | len[1], 0, (void *)&to, sizeof(to)) > 0;
		all++;
	}
	/* A frame belongs to the socket until the device has taken it. */
	while (ioctl(sock, TIOCOUTQ, &left) == 0 && left > 0)
		usleep(1000);
	printf("sent %d of %d\n", sent, all);
	fflush(stdout);
	for (;;)
		pause();
}
"""


def test_vm_a_guest_that_is_root_with_its_own_kernel_is_no_different(guests, tmp_path):
    """Another guest takes over the sandbox's tap, from the very descriptor that its QEMU has."""
    lab = guests
    rows = [e1.SPOOFS, e1.PROTOCOLS, e2.ARP, e2.SENDERS, e5.ETHERTYPES, e5.FRAGMENTS4, e5.OPTIONS4]
    with holding(lab, allow("ok.test")) as (proc, do):
        worked(do([["tls", "ok.test", 443, "ok.test"]])[0])
        frames = [frame for row in rows for frame in frames_of(lab, proc, row)]
        initrd = initramfs(str(tmp_path), HOSTILE, ["virtio_mmio", "virtio_net", "af_packet"], {"frames": b"".join(struct.pack("!H", len(f)) + f for f in frames)})
        lab.clear()
        lab.host(["kill", "-STOP", str(vmm_pid(lab, proc))])
        evil = on_tap(lab, proc, "sh", "-c", 'exec "$@" -netdev tap,id=net,fd=$TAP,vhost=off', "sh", *qemu(initrd, "-device", "virtio-net-device,netdev=net"))
        try:
            said = evil.wait_output(b" of %d\r\n" % len(frames))
        finally:
            evil.signal(signal.SIGKILL)
            evil.wait()
        assert int(re.search(rb"sent (\d+) of", said).group(1)) > len(frames) * 9 // 10, said
        lab.host(["kill", "-CONT", str(vmm_pid(lab, proc))])
        worked(do([["tls", "ok.test", 443, "ok.test"]])[0])
        assert lab.strangers("11.1.0.5", "2a00:1::5") == [], lab.strangers()
        assert lab.syns("11.1.0.5") + lab.syns("2a00:1::5") == 1 and len(lab.conns()) == 1, lab.conns()
    log = lab.netlog()
    for proto, dst, port in (("tcp", "11.1.0.5", 443), ("udp", "11.1.0.5", 5000), ("tcp", "2a00:66::1", 443)):
        denied(log, SPOOFED, proto=proto, dst=dst, port=port)
    denied(log, FRAGMENT, event="packet")
    assert sum(row["count"] + row.get("suppressed", 0) for row in denied(log, FRAME, proto="link")) > 100
