"""h6: no namespaces of one's own, no raw or odd sockets in any mode, unless --nested-namespaces asks for them; root's sandboxes never get them."""
import contextlib
import json

import pytest
from expect import compile_c
from persist import Boxes

SOURCE = r"""
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static int first = 1;
#define TRY(name, expr) do { \
	fflush(stdout); \
	pid_t pid = fork(); \
	if (pid == 0) { errno = 0; long rc = (long)(expr); _exit(rc >= 0 ? 0 : errno ? errno : 255); } \
	int st = 0; waitpid(pid, &st, 0); \
	printf("%s\"%s\":%d", first ? "" : ",", name, WIFSIGNALED(st) ? -WTERMSIG(st) : WEXITSTATUS(st)); first = 0; } while (0)

int main(void)
{
	printf("{");
	TRY("ns-user", unshare(CLONE_NEWUSER));
	TRY("ns-user-net", unshare(CLONE_NEWUSER | CLONE_NEWNET));
	TRY("ns-user-mount", unshare(CLONE_NEWUSER | CLONE_NEWNS));
	TRY("ns-time", unshare(0x80));
	TRY("ns-user-time", unshare(CLONE_NEWUSER | 0x80));
	TRY("ns-clone", syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0));
	TRY("ns-clone-thread", syscall(SYS_clone, CLONE_NEWUSER | CLONE_NEWPID | SIGCHLD, 0, 0, 0, 0));
	TRY("ns-clone3", ({ uint64_t a[11] = { CLONE_NEWUSER, 0, 0, 0, SIGCHLD }; syscall(435, a, 88); }));
	TRY("ns-high", syscall(SYS_unshare, 0xffffffff00000000 | CLONE_NEWUSER));
	TRY("raw", socket(AF_INET, SOCK_RAW, 6));
	TRY("raw-flags", socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, 255));
	TRY("raw-high", syscall(SYS_socket, AF_INET, 0x100000000 | SOCK_RAW, 6));
	TRY("packet-type", socket(AF_INET, SOCK_PACKET, 0x0300));
	TRY("packet-type6", socket(AF_INET6, SOCK_PACKET, 0x0300));
	TRY("packet-unix", socket(AF_UNIX, SOCK_PACKET, 0));
	TRY("rdm", socket(AF_INET, SOCK_RDM, 0));
	TRY("dccp-type", socket(AF_INET, SOCK_DCCP, 0));
	TRY("dccp", socket(AF_INET, SOCK_DCCP, 33));
	TRY("sctp-type", socket(AF_INET, SOCK_SEQPACKET, 0));
	TRY("sctp-type6", socket(AF_INET6, SOCK_SEQPACKET, 132));
	TRY("sctp", socket(AF_INET, SOCK_STREAM, 132));
	TRY("mptcp", socket(AF_INET, SOCK_STREAM, 262));
	TRY("smc", socket(AF_INET, SOCK_STREAM, 256));
	TRY("smc-family", socket(43, SOCK_STREAM, 0));
	TRY("udplite", socket(AF_INET, SOCK_DGRAM, 136));
	TRY("l2tp", socket(AF_INET, SOCK_DGRAM, 115));
	TRY("gre", socket(AF_INET, SOCK_DGRAM, 47));
	TRY("vsock", socket(40, SOCK_STREAM, 0));
	TRY("alg", socket(38, SOCK_SEQPACKET, 0));
	TRY("pair-mptcp", ({ int p[2]; socketpair(AF_INET, SOCK_STREAM, 262, p) < 0 && errno != EOPNOTSUPP ? -1 : 0; }));
	TRY("pair-udplite", ({ int p[2]; socketpair(AF_INET6, SOCK_DGRAM, 136, p) < 0 && errno != EOPNOTSUPP ? -1 : 0; }));
	TRY("pair-inet", ({ int p[2]; socketpair(AF_INET, SOCK_STREAM, 0, p) < 0 && errno != EOPNOTSUPP ? -1 : 0; }));
	TRY("ulp-tls", ({ int s = socket(AF_INET, SOCK_STREAM, 0); setsockopt(s, 6, 31, "tls", 3) < 0 && errno != ENOTCONN ? -1 : 0; }));
	/* In a namespace of its own, should there be one: the same sockets, with every capability in it. */
	TRY("nested-raw", unshare(CLONE_NEWUSER | CLONE_NEWNET) < 0 ? -1 : socket(AF_INET, SOCK_RAW, 6));
	TRY("nested-packet-type", unshare(CLONE_NEWUSER | CLONE_NEWNET) < 0 ? -1 : socket(AF_INET, SOCK_PACKET, 0x0300));
	TRY("nested-packet", unshare(CLONE_NEWUSER | CLONE_NEWNET) < 0 ? -1 : socket(AF_PACKET, SOCK_RAW, 0x0300));
	TRY("ok-tcp", socket(AF_INET, SOCK_STREAM, 0)); TRY("ok-tcp6", socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 6));
	TRY("ok-udp", socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 17)); TRY("ok-unix", socket(AF_UNIX, SOCK_SEQPACKET, 0));
	TRY("ok-pair", ({ int p[2]; socketpair(AF_UNIX, SOCK_DGRAM, 0, p); })); TRY("ok-route", socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, 0));
	TRY("ok-files", unshare(CLONE_FILES | CLONE_FS));
	printf("}\n");
	return 0;
}
"""
NAMESPACES = {"ns-user", "ns-user-net", "ns-user-mount", "ns-user-time", "ns-clone", "ns-clone-thread", "ns-clone3", "ns-high"}


def rows_of(lab, *options):
    tool = compile_c(lab, SOURCE, "h6", static=True)
    r = lab.run([*options, "--dir", lab.path("project"), "--", tool])
    assert r.code == 0, r
    rows = json.loads(r.out)
    works = {name for name, rc in rows.items() if rc == 0}
    need = {name for name in rows if name.startswith("ok-")} - ({"ok-files"} if "codex" in options else set())
    assert need <= works, {n: rows[n] for n in need - works}
    return works - need - {"ok-files"}


@pytest.mark.parametrize("options", [["--compatibility-mode", m] for m in ("codex", "claude", "gemini", "native")] +
                         [["--profile", p] for p in ("permissive", "moderate", "restrictive")], ids=lambda o: o[1])
def test_h6_no_namespace_and_no_odd_socket_by_default(any_user, options):
    assert rows_of(any_user, *options) == set()


def test_h6_asking_for_namespaces_gives_namespaces_and_nothing_else(lab):
    with lab.acting_as("user"):
        assert rows_of(lab, "--compatibility-mode", "claude", "--nested-namespaces") - NAMESPACES == set()
        r = lab.run(["--nested-namespaces", "--", "unshare", "-Ur", "id", "-u"])
        assert r.code == 0 and r.out == "0\n", r


def test_h6_the_limit_of_the_namespace_itself_is_zero(any_user):
    """Not only the filter: the kernel's own count is 0."""
    r = any_user.run(["--", "cat", "/proc/sys/user/max_user_namespaces"])
    assert r.code == 0 and r.out == "0\n", r


def test_h6_strict_isolation_and_root_never_get_them(lab):
    with lab.acting_as("user"):
        r = lab.run(["--compatibility-mode", "codex", "--nested-namespaces", "--", "true"])
        assert r.code == 2 and "--nested-namespaces" in r.err, r
    if lab.is_root:
        with lab.acting_as("root"):
            r = lab.run(["--nested-namespaces", "--", "true"])
            assert r.code == 2 and "root" in r.err, r


def test_h6_a_persistent_sandbox_keeps_the_answer(lab):
    with lab.acting_as("user"), contextlib.closing(Boxes(lab)) as boxes:
        boxes.up("plain")
        boxes.up("nests", "--nested-namespaces")
        for _ in range(2):
            assert boxes.exec("plain", "unshare", "-Ur", "true").code != 0
            assert boxes.exec("nests", "unshare", "-Ur", "true").code == 0
            boxes.ak("stop", "nests", "plain")
            boxes.ak("start", "nests", "plain")
