"""g1: programs that know nothing of proxies, static binaries and unusual system calls get the same verdicts."""
import json

from expect import NOT_LEARNED, allow, compile_c, denied

CLIENT = r"""
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

static struct sockaddr_in to(const char *ip, int port)
{
	struct sockaddr_in sa = { .sin_family = AF_INET, .sin_port = htons(port) };

	inet_pton(AF_INET, ip, &sa.sin_addr);
	return sa;
}

static int try_connect(const char *ip, int port)
{
	struct sockaddr_in sa = to(ip, port);
	int s = socket(AF_INET, SOCK_STREAM, 0), rc = connect(s, (void *)&sa, sizeof(sa)) ? errno : 0;

	close(s);
	return rc;
}

static int try_sendmmsg(const char *ip, int port)
{
	struct sockaddr_in sa = to(ip, port);
	struct iovec iov = { "datagram", 8 };
	struct mmsghdr msgs[4];
	struct pollfd p;
	int s = socket(AF_INET, SOCK_DGRAM, 0), err = 0;
	socklen_t len = sizeof(err);

	memset(msgs, 0, sizeof(msgs));
	for (int i = 0; i < 4; i++)
		msgs[i].msg_hdr = (struct msghdr){ .msg_name = &sa, .msg_namelen = sizeof(sa), .msg_iov = &iov, .msg_iovlen = 1 };
	setsockopt(s, IPPROTO_IP, 11 /* IP_RECVERR */, &(int){ 1 }, sizeof(int));
	if (syscall(SYS_sendmmsg, s, msgs, 4, 0) < 0)
		return errno;
	p = (struct pollfd){ s, POLLIN, 0 };
	if (poll(&p, 1, 1000) <= 0)
		return -1;
	getsockopt(s, SOL_SOCKET, SO_ERROR, &err, &len);
	char c;
	return err ? err : recv(s, &c, 1, MSG_DONTWAIT) < 0 ? errno : 0;
}

static int try_fast_open(const char *ip, int port)
{
	struct sockaddr_in sa = to(ip, port);
	int s = socket(AF_INET, SOCK_STREAM, 0);

	if (sendto(s, "data in the syn", 15, MSG_FASTOPEN, (void *)&sa, sizeof(sa)) < 0)
		return errno;
	char c;
	return recv(s, &c, 1, 0) < 0 ? errno : 0;
}

/* A connect through io_uring, by hand: one SQE, one CQE. */
static int try_uring(const char *ip, int port)
{
	struct { uint32_t sq, cq, flags, cpu, idle, features, wq, r[3]; uint32_t so[10]; uint32_t co[10]; } p;
	struct sockaddr_in sa = to(ip, port);

	memset(&p, 0, sizeof(p));
	int fd = syscall(425, 4, &p);
	if (fd < 0)
		return errno;
	char *sq = mmap(NULL, 4096 * 4, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	char *cq = mmap(NULL, 4096 * 4, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0x8000000);
	char *sqe = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0x10000000);
	if (sq == MAP_FAILED || cq == MAP_FAILED || sqe == MAP_FAILED)
		return errno;
	int s = socket(AF_INET, SOCK_STREAM, 0);
	memset(sqe, 0, 64);
	sqe[0] = 16; /* IORING_OP_CONNECT */
	*(int32_t *)(sqe + 4) = s;
	*(uint64_t *)(sqe + 8) = sizeof(sa);
	*(uint64_t *)(sqe + 16) = (uint64_t)(uintptr_t)&sa;
	*(uint32_t *)(sq + p.so[6]) = 0;
	*(uint32_t *)(sq + p.so[1]) = 1;
	if (syscall(426, fd, 1, 1, 1, NULL, 0) < 0)
		return errno;
	int res = *(int32_t *)(cq + p.co[5] + 8);
	return res < 0 ? -res : 0;
}

int main(void)
{
	printf("{\"denied\":%d,\"metadata\":%d,\"private\":%d,\"sendmmsg\":%d,\"fastopen\":%d,\"uring\":%d,\"proxy\":\"%s\"}\n", try_connect("11.66.0.1", 443),
		try_connect("169.254.169.254", 80), try_connect("10.0.0.1", 80), try_sendmmsg("11.66.0.1", 5000), try_fast_open("11.66.0.1", 443),
		try_uring("11.66.0.1", 443), getenv("HTTPS_PROXY") ? "set" : "");
	return 0;
}
"""


def test_g1_static_and_unusual_clients_meet_the_same_fence(lab):
    for static in (True, False):
        tool = compile_c(lab, CLIENT, "g1-musl" if static else "g1-glibc", static=static)
        for mode in ("codex", "claude"):
            r = lab.run([*allow("ok.test", mode=mode), "--", tool])
            assert r.code == 0, r
            row = json.loads(r.out)
            for key in ("denied", "metadata", "private", "sendmmsg", "fastopen", "uring"):
                assert row[key] != 0, (static, mode, row)
            assert row["sendmmsg"] != -1, "the datagram was dropped in silence"
    assert lab.strangers() == []
    denied(lab.netlog(), NOT_LEARNED, dst="11.66.0.1", port=443, proto="tcp")


def test_g1_proxy_variables_change_nothing(lab):
    for env in ([], ["-e", "HTTPS_PROXY=http://11.66.0.1:3128", "-e", "NO_PROXY=*"], ["-e", "NO_PROXY=*"]):
        got = lab.probe([*allow("ok.test"), *env], [["tls", "ok.test", 443, "ok.test"], ["tcp", "11.66.0.1", 3128], ["tls", "11.1.0.5", 443, "evil.test"]])
        assert "ok" in got[0] and "err" in got[1] and "err" in got[2], got
    assert lab.arrived("11.66.0.1") == 0
