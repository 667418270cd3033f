"""g7: a gateway that cannot enforce refuses to start the command, says why, and what to do. What merely looks like an obstacle is none."""
import os

import pytest
from expect import CODEX, NATIVE, allow, compile_c, refused, worked
from lab import PYTHON

MODES = [CODEX, NATIVE]


def refuses(lab, *words, args=CODEX, code=(125,), **kw):
    r = lab.run([*args, "--", "sh", "-c", "echo ran"], **kw)
    assert r.code in code and r.out == "", r
    assert r.err.startswith("agentkernel: ") and any(w in r.err for w in words), r
    assert lab.strangers() == [] and lab.leaks() == "", lab.leaks()
    return r


@pytest.mark.parametrize("text", ["", "# nothing\n", "search example.org\noptions ndots:1\n", "nameserver\n", "nameserver bad.name\nnameserver 1.2.3\n", "nameserver 300.1.1.1\n", "nameserver ::zz\n"])
def test_g7_no_resolver(any_user, text):
    lab = any_user
    lab.resolv(text)
    try:
        for args in MODES:
            r = refuses(lab, "resolv", args=args)
            assert "nameserver" in r.err and "--no-network" in r.err, r
        assert lab.run(["--no-network", *CODEX, "--", "sh", "-c", "echo ran"]).out == "ran\n", "what the message advises works"
    finally:
        lab.resolv("nameserver 11.0.0.53\nnameserver 2a00::53\n")


def test_g7_a_resolver_that_is_not_there_is_an_answer_not_a_hang(any_user):
    lab = any_user
    lab.resolv("nameserver 11.0.0.99\n")  # every address answers in the lab, but this one is made deaf
    lab.dns.behave("ok.test", drop=True)
    try:
        got = lab.probe(allow("ok.test", "other.test"), [["resolve", "ok.test", 4], ["resolve", "other.test", 4], ["resolve", "evil.test"]])
        assert "err" in got[0] and got[0]["ms"] < 8000, got[0]
        worked(got[1])
        refused(got[2])
    finally:
        lab.resolv("nameserver 11.0.0.53\nnameserver 2a00::53\n")


def test_g7_taken_ports_of_the_host_do_not_matter(any_user):
    """Ours are in a namespace of our own."""
    lab = any_user
    code = ("import socket\nkeep=[]\nfor p in (53,15001,15002,853):\n for f,a in ((socket.AF_INET,'0.0.0.0'),(socket.AF_INET6,'::')):\n  for t in (1,2):\n   s=socket.socket(f,t)\n"
            "   if f==socket.AF_INET6: s.setsockopt(41,26,1)\n   s.bind((a,p)); keep.append(s)\n   if t==1: s.listen()\nprint('up',flush=True)\nimport signal; signal.pause()")
    holder = lab.spawn([PYTHON, "-c", code], who="root")
    try:
        holder.wait_output(b"up\n")
        worked(lab.probe(allow("ok.test"), [["tls", "ok.test", 443, "ok.test"]])[0])
    finally:
        holder.signal(9)
        holder.wait()


@pytest.mark.parametrize("what", ["user", "net", "pid", "mnt"])
def test_g7_no_namespaces(lab, what):
    """In a user namespace whose limit for that kind is 0, as an administrator would set it for all."""
    with lab.acting_as("user"):
        script = "echo 0 > /proc/sys/user/max_%s_namespaces || exit 99; exec \"$@\"" % what
        r = lab.spawn(["unshare", "-Ur", "sh", "-c", script, "sh", lab.binary, "run", *CODEX, "--", "sh", "-c", "echo ran"], env=lab.env(), who="user").wait(30)
        if r.code == 99:
            pytest.skip("this kernel has no such limit")
        assert r.code == 125 and r.out == "", r
        assert r.err.startswith("agentkernel: ") and "namespace" in r.err, r
    assert lab.strangers() == []


def test_g7_a_state_folder_that_cannot_be_written(any_user):
    lab = any_user
    cases = {"is a file": os.path.join(lab.path("home"), "file"), "in proc": "/proc/1/state", "in sys": "/sys/kernel"}
    with open(cases["is a file"], "w") as f:
        f.write("x")
    for where in cases.values():
        env = {"XDG_STATE_HOME": where}
        if lab.who == "root":
            lab.host(["mkdir", "-p", "/var/lib"])
            assert lab.host(["mount", "-o", "ro,bind", "/var/lib", "/var/lib"]).code == 0
        try:
            r = lab.run([*CODEX, "--", "sh", "-c", "echo ran"], env=env)
        finally:
            if lab.who == "root":
                lab.host(["umount", "/var/lib"])
        assert r.code == 125 and r.out == "" and r.err.startswith("agentkernel: ") and where in r.err, (where, r)
    assert lab.strangers() == []


def test_g7_a_read_only_state_folder(any_user):
    lab = any_user
    if lab.who == "root":
        pytest.skip("root writes where it likes: the mount above is its case")
    os.chmod(lab.path("state"), 0o555)
    try:
        r = lab.run([*CODEX, "--", "sh", "-c", "echo ran"])
        assert r.err.startswith("agentkernel: ") and lab.path("state") in r.err and r.code == 125 and r.out == "", r
    finally:
        os.chmod(lab.path("state"), 0o755)


def test_g7_a_missing_policy_is_told(any_user):
    lab = any_user
    folder = lab.path("home", "empty")
    os.makedirs(os.path.join(folder, "policies"))
    refuses(lab, "policy", "policies", env={"AGENTKERNEL_DATA_DIR": folder}, code=(125,))


# The kernel is asked for an expression that it really does not have, in place of one that it does.
WITHOUT = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

ssize_t sendto(int fd, const void *buf, size_t len, int flags, const struct sockaddr *to, socklen_t to_len)
{
	ssize_t (*real)(int, const void *, size_t, int, const struct sockaddr *, socklen_t) = dlsym(RTLD_NEXT, "sendto");
	const char *name = getenv("WITHOUT");
	size_t n = name ? strlen(name) + 1 : 0;
	char *at = (char *)buf;

	while (n && (at = memmem(at, (size_t)((const char *)buf + len - at), name, n)))
		*at++ = 'Z';
	return real(fd, buf, len, flags, to, to_len);
}
"""


@pytest.mark.parametrize("part", ["tproxy", "socket", "limit", "log", "reject"])
def test_g7_a_kernel_without(any_user, part):
    lab = any_user
    shim = compile_c(lab, WITHOUT, "without.so", flags=("-shared", "-fPIC", "-ldl"))
    for args in MODES:
        r = refuses(lab, "nft_" + part, args=args, env={"LD_PRELOAD": shim, "WITHOUT": part})
        assert "modprobe" in r.err, r
    worked(lab.probe(allow("ok.test"), [["tls", "ok.test", 443, "ok.test"]], env={"LD_PRELOAD": shim})[0])
