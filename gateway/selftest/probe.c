/*
 * The program inside the sandbox: tries the vectors of the catalogue in order and prints the result of each on standard output:
 * "NUMBER MILLISECONDS WORD<tab>DETAIL". If the outside must act, it prints "pause NUMBER" and waits for a line.
 */
#include "gateway/selftest/selftest.h"

#include "gateway/base/io.h"
#include "gateway/base/say.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

/* The process outside determines the outcome; the sandbox only waits. */
static void pause_for(size_t number, struct st_outcome *ret)
{
	char byte;

	printf("pause %zu\n", number);
	fflush(stdout);
	st_say(ret, read(STDIN_FILENO, &byte, 1) == 1 ? "done" : "error", "%s", "");
}

static void attempt(const struct st_vector *v, size_t number, struct st_outcome *ret)
{
	switch (v->kind) {
	case ST_DNS:
	case ST_DNS_TCP:
		st_dns_ask(v->name, v->kind == ST_DNS_TCP, v->host, (uint16_t)v->type, false, ret, NULL);
		break;
	case ST_RAW:
		st_dial_raw(v, ret);
		break;
	case ST_TCP:
		st_dial_tcp(v, ret);
		break;
	case ST_UDP:
		st_dial_udp(v, ret);
		break;
	case ST_TLS:
		st_dial_tls(v, ret);
		break;
	case ST_HTTP:
		st_dial_http(v, ret);
		break;
	case ST_CALL:
		v->fn(v, ret);
		break;
	case ST_FRAMES:
	case ST_GATEWAY:
		pause_for(number, ret);
		break;
	case ST_KIND_NUM:
		break;
	}
}

/* Resolve the names that the vectors connect to, then wait until one is reachable: c1 tests that, the other vectors test refusals. */
static void warm_up(enum st_run run)
{
	static const struct st_vector open = { .host = "11.1.0.5", .port = 443, .name = "ok.test" };
	uint64_t until = ak_now_ms() + 2000;
	struct st_outcome o;

	if (run != ST_LIST)
		return;
	for (const char *const *name = st_warm_names; *name; name++) {
		st_dns_ask(NULL, false, *name, 1, false, &o, NULL);
		st_dns_ask(NULL, false, *name, 28, false, &o, NULL);
	}
	for (;;) {
		st_dial_tls(&open, &o);
		if (!strcmp(o.word, "works") || ak_now_ms() >= until)
			return;
		(void)poll(NULL, 0, 10); /* every refusal is logged, at a limited rate */
	}
}

/*
 * The vectors must never run on a real machine. Run only in a sandbox, without privileges, with a resolver at the end of a
 * sandbox's link, and in the folder that the self-test has marked.
 */
static bool in_the_private_machine(void)
{
	return getenv("AGENTKERNEL_SANDBOX") && prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1 && geteuid() != 0 &&
		!strncmp(st_resolver(), "100.64.", 7) && access(ST_MARK, F_OK) == 0;
}

int selftest_probe(int argc, char **argv)
{
	unsigned run = argc > 1 ? (unsigned)atoi(argv[1]) : ST_RUN_NUM;

	if (run >= ST_RUN_NUM || !in_the_private_machine()) {
		ak_say("%s is a part of 'agentkernel network selftest' and runs only in its sandbox", SELFTEST_PROBE);
		return AK_EXIT_USAGE;
	}
	signal(SIGPIPE, SIG_IGN);
	warm_up((enum st_run)run);
	for (size_t i = 0; st_vectors[i].row; i++) {
		struct st_outcome o = { .word = "nothing" };
		uint64_t began = ak_now_ms();

		if (!(st_vectors[i].runs & 1u << run))
			continue;
		attempt(&st_vectors[i], i, &o);
		printf("%zu %u %s\t%s\n", i, (unsigned)(ak_now_ms() - began), o.word, o.detail);
		fflush(stdout);
	}
	printf("end\n");
	return 0;
}
