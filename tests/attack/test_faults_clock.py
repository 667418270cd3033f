"""Faults: the wall clock jumps, a year ahead and a year back, under the daemon, its gateway and its supervisors. (No namespace has a wall clock of its own, so the C library's answer is moved.)
What was granted for a while ends in time, what was learned lives on, flows go on, and the log stays whole."""
import os
import struct
import time

import pytest
from expect import CUT, allowed, compile_c, denied, refused, worked
from lab import wait_for
from persist import FLOW, TELL, open_flow

YEAR_S = 365 * 86400

SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static const volatile long *moved; /* mapped before anyone gives up the right to open files */

__attribute__((constructor)) static void begin(void)
{
	const char *path = getenv("CLOCK_MOVED");
	int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	void *p = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof(long), PROT_READ, MAP_SHARED, fd, 0);

	if (fd >= 0)
		close(fd);
	moved = p == MAP_FAILED ? NULL : p;
}

int clock_gettime(clockid_t clock, struct timespec *ts)
{
	static int (*real)(clockid_t, struct timespec *);

	if (!real)
		real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
	int rc = real(clock, ts);
	if (rc == 0 && moved && clock == CLOCK_REALTIME)
		ts->tv_sec += *moved;
	return rc;
}

time_t time(time_t *ret)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	if (ret)
		*ret = ts.tv_sec;
	return ts.tv_sec;
}
"""


class Clock:
    def __init__(self, lab):
        self.path = lab.path("clock")
        self.set(0)
        self.env = {"LD_PRELOAD": compile_c(lab, SHIM, "clock.so", flags=("-shared", "-fPIC", "-ldl")), "CLOCK_MOVED": self.path}

    def set(self, seconds):
        with open(self.path, "r+b" if os.path.exists(self.path) else "wb") as f:
            f.write(struct.pack("l", seconds))


@pytest.fixture
def clock(boxes):
    clock = Clock(boxes.lab)
    boxes.ak("daemon", "start", env=clock.env)
    return clock


@pytest.mark.parametrize("jump", [-YEAR_S, YEAR_S], ids=["back", "ahead"])
def test_faults_a_grant_ends_in_time_when_the_clock_jumps(boxes, clock, jump):
    b = boxes
    b.up("x", "--compatibility-mode", "codex")
    with b.holding("x", FLOW) as (proc, do):
        b.ak("network", "policy", "x", "--allow-host", "ok.test:7", "--for", "3s")
        worked(do([open_flow("f", "ok.test")])[0])
        clock.set(jump)
        wait_for(lambda: do([TELL])[0]["ok"]["f"]["dead"])
        refused(do([["tcp", "ok.test", 7, b"x".hex()]])[0])
    denied(b.netlog("x"), ("default", CUT), event="flow", name="ok.test")
    b.ak("audit", "verify")


def test_faults_flows_and_learned_addresses_outlive_every_jump(boxes, clock):
    b = boxes
    b.up("x", "--compatibility-mode", "codex", "--allow-host", "ok.test:7")
    with b.holding("x", FLOW) as (proc, do):
        worked(do([open_flow("f", "ok.test")])[0])
        for seconds in (YEAR_S, -YEAR_S, 0, 1, -1):
            clock.set(seconds)
            before = do([TELL])[0]["ok"]["f"]["echoes"]
            worked(do([["tcp", "ok.test", 7, b"x".hex()]])[0])
            refused(do([["tcp", "evil.test", 7, b"x".hex()]])[0])
            wait_for(lambda: do([TELL])[0]["ok"]["f"]["echoes"] > before + 5)
            b.ak("network", "policy", "x", "--allow-host", "other%d.test" % abs(seconds))
        assert do([TELL])[0]["ok"]["f"]["dead"] is None
    log = b.netlog("x")
    assert [r["seq"] for r in log] == sorted(r["seq"] for r in log)
    years = {int(r["time"][:4]) for r in allowed(log, event="flow", name="ok.test")}
    assert len(years) >= 2, years  # the clock that the records were given has really jumped
    assert b.lab.arrived("11.66.0.1") == 0
    b.ak("audit", "verify")
