"""Invariant 6: the process that parses a sandbox's bytes can neither open a file nor run a program, even when an attacker runs code in it.

The attacker is played by a debugger: it makes the gateway execute system calls of our choice.
"""
import platform

import pytest
from expect import INSIDE, allow, compile_c, gateway_pid, holding, processes, worked
from lab import PYTHON

INJECT = r"""
#include <errno.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* inject PID NR A1 A2 A3 A4 …: make PID execute the system call and print its result. @text becomes a pointer to that text. */
int main(int argc, char **argv)
{
	pid_t pid = atoi(argv[1]);
	struct user_regs_struct saved, regs;
	unsigned long long *slot[6];
	time_t until = time(NULL) + 10;
	int status;

	/* Caught asleep in a system call, its instruction (0f 05) is the one before: that one will be executed again. */
	for (;;) {
		if (time(NULL) > until || ptrace(PTRACE_ATTACH, pid, 0, 0) < 0)
			return perror("attach"), 1;
		waitpid(pid, &status, __WALL);
		ptrace(PTRACE_GETREGS, pid, 0, &saved);
		if ((ptrace(PTRACE_PEEKTEXT, pid, saved.rip - 2, 0) & 0xffff) == 0x050f)
			break;
		ptrace(PTRACE_DETACH, pid, 0, 0);
		sched_yield();
	}
	regs = saved;
	slot[0] = &regs.rdi, slot[1] = &regs.rsi, slot[2] = &regs.rdx, slot[3] = &regs.r10, slot[4] = &regs.r8, slot[5] = &regs.r9;
	uint64_t at = (saved.rsp - 4096) & ~15ull;
	regs.rax = strtoull(argv[2], NULL, 0);
	regs.orig_rax = -1;
	regs.rip = saved.rip - 2;
	for (int i = 0; i < 6; i++)
		*slot[i] = 0;
	for (int i = 3; i < argc; i++) {
		if (argv[i][0] != '@') {
			*slot[i - 3] = strtoull(argv[i], NULL, 0);
			continue;
		}
		char buf[256] = { 0 };
		strncpy(buf, argv[i] + 1, sizeof(buf) - 1);
		for (size_t k = 0; k < sizeof(buf); k += 8) {
			long word;
			memcpy(&word, buf + k, 8);
			ptrace(PTRACE_POKEDATA, pid, at + k, word);
		}
		*slot[i - 3] = at;
		at += sizeof(buf);
	}
	ptrace(PTRACE_SETREGS, pid, 0, &regs);
	ptrace(PTRACE_SINGLESTEP, pid, 0, 0);
	waitpid(pid, &status, __WALL);
	if (!WIFSTOPPED(status) || WSTOPSIG(status) != SIGTRAP) {
		printf("killed %d\n", WIFSIGNALED(status) ? WTERMSIG(status) : WSTOPSIG(status));
		ptrace(PTRACE_DETACH, pid, 0, WIFSTOPPED(status) ? WSTOPSIG(status) : 0);
		return 0;
	}
	ptrace(PTRACE_GETREGS, pid, 0, &regs);
	printf("%lld\n", (long long)regs.rax);
	ptrace(PTRACE_SETREGS, pid, 0, &saved);
	ptrace(PTRACE_DETACH, pid, 0, 0);
	return 0;
}
"""
NR = {"open": 2, "openat": 257, "execve": 59, "execveat": 322, "ptrace": 101, "socket": 41, "unshare": 272, "setns": 308, "mount": 165,
      "fork": 57, "kill": 62, "unlinkat": 263, "mkdirat": 258, "process_vm_readv": 310, "init_module": 175, "bpf": 321, "io_uring_setup": 425,
      "getpid": 39, "connect": 42, "userfaultfd": 323, "keyctl": 250, "symlink": 88, "chmod": 90, "truncate": 76, "readlink": 89}


def inject(lab, tool, pid, name, *args):
    r = lab.host([tool, str(pid), str(NR[name]), *map(str, args)])
    assert r.code == 0, r
    return r.out.strip()


def failed(result):
    return result.startswith("killed") or int(result) < 0


TRIES = [("openat", -100, "@/etc/passwd", 0), ("openat", -100, "@/tmp/made-by-gateway", 0o101, 0o600), ("open", "@/etc/hosts", 0),
         ("execve", "@/bin/true", 0, 0), ("execveat", -100, "@/bin/true", 0, 0, 0), ("ptrace", 16, 1), ("unshare", 0x10000000),
         ("mount", "@none", "@/", 0, 0x44000, 0), ("fork",), ("unlinkat", -100, "@/etc/hostname", 0), ("mkdirat", -100, "@/tmp/made-dir", 0o700),
         ("process_vm_readv", 1, 0, 0, 0, 0), ("bpf", 0, 0, 0), ("io_uring_setup", 8, 0), ("socket", 17, 3, 0), ("socket", 16, 3, 0),
         ("socket", 1, 1, 0), ("keyctl", 0, -3, 1), ("symlink", "@/etc/passwd", "@/tmp/made-link"), ("chmod", "@/etc/hosts", 0o777),
         ("truncate", "@/etc/hosts", 0)]


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the injector speaks x86-64")
def test_injected_system_calls_get_nothing(any_user):
    lab = any_user
    tool = compile_c(lab, INJECT, "inject")
    with holding(lab, allow("ok.test")) as (proc, do):
        pid = gateway_pid(lab, proc)
        # The injector itself works: the same call in an unconfined process succeeds.
        other = lab.spawn(["sleep", "100"], who="root")
        assert int(inject(lab, tool, other.pid, "openat", -100, "@/etc/passwd", 0)) >= 0
        other.signal(9)
        other.wait()
        got = {}
        for name, *args in TRIES:
            got[name, str(args)] = inject(lab, tool, pid, name, *args)
            if got[name, str(args)].startswith("killed"):
                break
        assert all(map(failed, got.values())), {k: v for k, v in got.items() if not failed(v)}
        if not any(v.startswith("killed") for v in got.values()):
            worked(do([["tls", "ok.test", 443, "ok.test"]])[0])


def test_the_gateway_has_no_capability_and_no_way_to_gain_any(any_user):
    lab = any_user
    with holding(lab, allow("ok.test")) as (proc, do):
        row = processes(lab, proc)[gateway_pid(lab, proc)]
        assert row["nnp"] == "1" and row["seccomp"] == "2", row
        assert set(row["caps"]) == {"0" * 16}, row
        assert row["rss_kib"] < 8 << 10, row


def test_the_gateway_holds_only_its_own_descriptors(lab):
    with holding(lab, allow("ok.test")) as (proc, do):
        pid = gateway_pid(lab, proc)
        rows = [line.split(" ", 2) for line in lab.host([PYTHON, INSIDE, "fds", str(pid)]).out.splitlines()]
        files = [(mode, what) for _, mode, what in rows if what.startswith("/") and what != "/dev/null"]
        assert len(rows) > 3 and [mode for mode, _ in files] == ["write"] and files[0][1].endswith("network.jsonl"), rows
