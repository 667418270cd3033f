"""b13: musl's and glibc's resolvers fail fast on denied names and resolve v4-only ones; b14: internal names, even with everything allowed."""
import json

from expect import METADATA, NATIVE, SHORTEST_WAIT_MS, allow, ask, compile_c, denied, refused, reply

CLIENT = r"""
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <arpa/inet.h>

int main(int argc, char **argv)
{
	printf("[");
	for (int i = 1; i < argc; i++) {
		struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *res = NULL;
		struct timespec a, b;
		char text[64] = "";

		clock_gettime(CLOCK_MONOTONIC, &a);
		int rc = getaddrinfo(argv[i], "443", &hints, &res);
		clock_gettime(CLOCK_MONOTONIC, &b);
		if (rc == 0)
			getnameinfo(res->ai_addr, res->ai_addrlen, text, sizeof(text), NULL, 0, NI_NUMERICHOST);
		printf("%s{\"rc\":%d,\"none\":%s,\"addr\":\"%s\",\"ms\":%.2f}", i > 1 ? "," : "", rc, rc == EAI_NONAME ? "true" : "false", text,
			(b.tv_sec - a.tv_sec) * 1e3 + (b.tv_nsec - a.tv_nsec) / 1e6);
	}
	printf("]\n");
	return 0;
}
"""
NAMES = ["evil.test", "deep.in.evil.test", "nx.wild.test.evil", "v4.test", "ok.test", "evil.test"]


def test_b13_clients_fail_fast_and_resolve_v4_only(lab):
    for static in (True, False):
        tool = compile_c(lab, CLIENT, "client-musl" if static else "client-glibc", static=static)
        r = lab.run([*allow("ok.test", "v4.test"), "--", tool, *NAMES])
        assert r.code == 0, r
        rows = json.loads(r.out)
        for i in (0, 1, 2, 5):
            assert rows[i]["none"] and rows[i]["ms"] < SHORTEST_WAIT_MS, (static, rows)
        assert rows[3]["addr"] == "11.1.0.7" and rows[4]["addr"] in ("11.1.0.5", "2a00:1::5"), rows
        assert rows[3]["ms"] < SHORTEST_WAIT_MS, (static, rows)


INTERNAL = ["metadata.google.internal", "metadata", "metadata.internal", "db.internal", "x.y.internal", "printer.local", "intranet", "wpad", "instance-data",
            "localhost.localdomain", "host.docker.internal", "gateway.docker.internal", "kubernetes.default.svc.cluster.local", "router.lan", "nas.home.arpa"]


def test_b14_internal_names_are_refused_with_everything_allowed(lab):
    for name in INTERNAL:
        lab.dns.set(name, A="11.66.5.5")
    got = lab.probe(NATIVE, [ask(name) for name in INTERNAL] + [ask("use-application-dns.net")])
    wrong = [(name, reply(row)) for name, row in zip(INTERNAL[:8], got) if reply(row)["rcode"] != 3 or reply(row)["answers"]]
    assert not wrong, wrong
    assert not reply(got[-1])["answers"] and reply(got[-1])["rcode"] == 3
    leaked = set(lab.dns.names()) & set(INTERNAL[:8] + ["use-application-dns.net"])
    assert not leaked, leaked
    log = lab.netlog()
    denied(log, METADATA, event="dns", name="metadata.google.internal")
    denied(log, ("builtin: internal", "internal name"), event="dns", name="intranet")


def test_b14_an_explicit_rule_does_not_open_metadata(lab):
    r = lab.run([*allow("metadata.google.internal"), "--", *lab.probe_command([["resolve", "metadata.google.internal"], ["tcp", "169.254.169.254", 80]])])
    if r.out:
        for row in r.json():
            refused(row)
    else:
        assert r.code == 2, r
    assert lab.strangers() == [] and lab.dns.log() == []
