/*
 * `network selftest`: runs the attack catalogue against the live code on the user's own machine, in a private Internet.
 *
 *   selftest/selftest.c  the private machine: namespaces, one `agentkernel run` after the other, and its report
 *   selftest/internet.c  the far side: owns every address, runs servers, and counts what arrives
 *   selftest/zone.c      the answers of its DNS
 *   selftest/rows.c      the catalogue: rows of vectors
 *   selftest/probe.c     the program inside the sandbox (this program, started as SELFTEST_PROBE); dial.c and calls.c try the vectors
 *   selftest/frames.c    raw frames on the sandbox's link, sent as root, which the sandbox never is
 *   selftest/judge.c     compares far side, client and log with the catalogue
 *
 * A vector is one attempt. It holds if the client got the expected result in time, the far side counted the expected packets
 * (mostly none), and the log recorded it. A row passes if all its vectors hold.
 */
#ifndef AK_SELFTEST_H
#define AK_SELFTEST_H

#include "gateway/base/addr.h"
#include "gateway/base/err.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define SELFTEST_PROBE "selftest-probe" /* hidden command: the program inside the sandbox */

/* ---- public functions ---- */

enum selftest_result { SELFTEST_SKIPPED, SELFTEST_PASSED, SELFTEST_FAILED, SELFTEST_RESULT_NUM };

#define SELFTEST_ROWS_MAX 80
#define SELFTEST_REASON_MAX 700

struct selftest_row {
	const char *id; /* of the row in the catalogue */
	const char *what;
	enum selftest_result result;
	char reason[SELFTEST_REASON_MAX];
	unsigned vectors;
};

struct selftest_report {
	struct selftest_row rows[SELFTEST_ROWS_MAX];
	size_t n_rows;
	unsigned passed, failed, skipped;
	uint64_t duration_ms;
};

/* Returns -errno with a reason if the self-test could not run at all. */
int selftest_run(struct selftest_report *ret, struct ak_err *err);

/* The program inside the sandbox: argv[1] is the number of the run. */
int selftest_probe(int argc, char **argv);

/* ---- the catalogue ---- */

/* One sandbox per run. */
enum st_run {
	ST_LIST, /* codex mode with a small allowlist */
	ST_NATIVE, /* native mode: everything public */
	ST_EMPTY, /* claude mode with a policy that allows nothing */
	ST_DEAD, /* native mode with a killed gateway */
	ST_RUN_NUM
};

enum st_kind {
	ST_DNS, /* query HOST with type TYPE at the sandbox's resolver, or at the address NAME */
	ST_DNS_TCP, /* the same over TCP */
	ST_RAW, /* malformed message number TYPE */
	ST_TCP, /* connect, send, wait for an echo */
	ST_UDP,
	ST_TLS, /* a ClientHello of form TYPE with SNI NAME */
	ST_HTTP, /* a request with Host NAME, and a second one with Host DETAIL if that is set */
	ST_CALL, /* call FN */
	ST_FRAMES, /* frames of set TYPE on the link, sent from outside */
	ST_GATEWAY, /* inspect the gateway process from outside; TYPE 1: kill it first */
	ST_KIND_NUM
};

enum st_far {
	ST_NOTHING, /* the far side must not have seen it */
	ST_SOMETHING,
	ST_AT_MOST, /* at most TYPE queries below HOST */
	ST_UNSEEN, /* not checked */
	ST_FAR_NUM
};

/* The result of an attempt. WORD is compared with the vector's list of expected words. */
struct st_outcome {
	const char *word; /* "works", "refused", "answer", "nxdomain" … */
	char detail[160];
};

struct st_vector;
typedef void (*st_call)(const struct st_vector *v, struct st_outcome *ret);

struct st_vector {
	const char *row;
	unsigned runs; /* bits of enum st_run */
	enum st_kind kind;
	const char *host; /* name or address */
	uint16_t port;
	const char *name;
	unsigned type;
	const char *want; /* "nxdomain|formerr" */
	const char *detail; /* the expected detail of the outcome; NULL: any */
	enum st_far far;
	const char *log; /* NULL: need not be logged; else a part of the record's rule or reason */
	unsigned within_ms; /* 0: one second */
	bool ipv6; /* only if the kernel supports it */
	st_call fn;
};

extern const struct st_vector st_vectors[]; /* ends with row NULL */
/* One row, without room for a result: whatever holds a pointer is rewritten at the start of every command. */
struct st_row {
	const char *id, *what;
};
extern const struct st_row st_rows[]; /* ends with id NULL */

/* The policies of the runs: file name, text. */
struct st_policy {
	const char *mode, *text;
};
extern const struct st_policy st_policies[ST_RUN_NUM];

/* Names resolved before the first vector, so that their addresses are open when needed. */
extern const char *const st_warm_names[]; /* ends with NULL */

enum {
	ST_HELLO_PLAIN,
	ST_HELLO_NONE,
	ST_HELLO_ECH,
	ST_HELLO_GREASE,
	ST_HELLO_SSL2,
	ST_HELLO_GARBAGE,
	ST_HELLO_DRIPPED,
	ST_HELLO_RECORDS,
	ST_HELLO_BIG
};
enum {
	ST_RAW_POINTER,
	ST_RAW_LOOP,
	ST_RAW_LONG_LABEL,
	ST_RAW_LONG_NAME,
	ST_RAW_CUT,
	ST_RAW_NO_QUESTION,
	ST_RAW_TWO,
	ST_RAW_OPCODE,
	ST_RAW_CLASS,
	ST_RAW_RESPONSE,
	ST_RAW_RECORDS,
	ST_RAW_NUM
};
enum {
	ST_FRAMES_SPOOF4,
	ST_FRAMES_SPOOF6,
	ST_FRAMES_MAC,
	ST_FRAMES_ARP,
	ST_FRAMES_ROGUE,
	ST_FRAMES_ETHER,
	ST_FRAMES_FRAGMENTS,
	ST_FRAMES_OPTIONS,
	ST_FRAMES_EXTENSIONS,
	ST_FRAMES_PROTOCOLS,
	ST_FRAMES_ICMP
};

/* ---- folders and ports of the private machine ---- */

#define ST_SCRATCH "/tmp"
#define ST_PROJECT ST_SCRATCH "/project"
#define ST_PROGRAM ST_PROJECT "/agentkernel"
#define ST_MARK ST_PROJECT "/selftest" /* the probe refuses to run without it */
#define ST_SECRET ST_SCRATCH "/secret"
#define ST_UNIX ST_SCRATCH "/host.sock"
#define ST_ABSTRACT "agentkernel-selftest"
#define ST_RESOLVER "11.0.0.53"
#define ST_HOST_PORT 8099 /* a service of the machine that no sandbox may reach */
#define ST_OPEN_PORT 8098 /* a service that a rule opens */

/* ---- the far side ---- */

enum st_event_kind { ST_EV_PACKET, ST_EV_QUESTION, ST_EV_TLS, ST_EV_HTTP };

struct st_event {
	enum st_event_kind kind;
	struct ak_addr dst;
	uint16_t port;
	uint8_t proto;
	uint16_t qtype;
	bool odd; /* a query with more content than ours: options, flags */
	char name[256]; /* queried name, SNI or Host; escaped */
	unsigned count;
};

#define ST_EVENTS_MAX 4096

/* In memory shared by both sides. The far side does not write to it while it is asked to be quiet. */
struct st_events {
	size_t n;
	bool overflow;
	struct st_event e[ST_EVENTS_MAX];
};

/* Run the far side: set the link up, serve, and reply to each byte on CONTROL after counting everything that has arrived. */
int st_internet(struct st_events *events, int control, struct ak_err *err);

/* Build the DNS reply to a query; returns its length, 0 for none. */
size_t st_zone_answer(const uint8_t *msg, size_t len, uint8_t *reply, size_t cap, struct st_event *ret);

/* ---- a minimal DNS codec ---- */

#define ST_DNS_MAX 4096

/* "a\000b.test": a backslash and three digits are one octet. Returns the length including the root octet, 0 if it does not fit. */
size_t st_name_wire(const char *text, uint8_t out[static 256]);
/* The name at *AT, escaped; false if it is malformed. */
bool st_name_text(const uint8_t *msg, size_t len, size_t *at, char *ret, size_t size);
size_t st_dns_query(uint8_t *out, uint16_t id, const char *name, uint16_t qtype, bool loaded);
/* Set the word for a reply, and its addresses in DETAIL. */
void st_dns_read(const uint8_t *msg, size_t len, const uint8_t *query, size_t query_len, struct st_outcome *ret);

/* ---- inside the sandbox ---- */

/* The first nameserver of the sandbox: the gateway's end of the link. */
const char *st_resolver(void);
size_t st_dns_exchange(const char *server, bool tcp, const uint8_t *query, size_t len, uint8_t *reply, int timeout_ms);
/* Query and read the reply; *RET_ADDR is the first address, if any. */
void st_dns_ask(const char *server, bool tcp, const char *name, uint16_t qtype, bool loaded, struct st_outcome *ret,
	struct ak_addr *ret_addr);
/* 0 and a connected socket, or -errno (-ETIMEDOUT after TIMEOUT_MS). */
int st_connect(const char *host, uint16_t port, int timeout_ms, int *ret_fd);
/* "works" if a byte comes back, else the word for the error. */
void st_await(int fd, int timeout_ms, struct st_outcome *ret);
const char *st_errno_word(int error);
void st_dial_tcp(const struct st_vector *v, struct st_outcome *ret);
void st_dial_udp(const struct st_vector *v, struct st_outcome *ret);
void st_dial_tls(const struct st_vector *v, struct st_outcome *ret);
void st_dial_http(const struct st_vector *v, struct st_outcome *ret);
void st_dial_raw(const struct st_vector *v, struct st_outcome *ret);
void st_say(struct st_outcome *o, const char *word, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* selftest/calls.c */
void st_call_budget(const struct st_vector *v, struct st_outcome *ret);
void st_call_loaded_query(const struct st_vector *v, struct st_outcome *ret);
void st_call_tcp_pipeline(const struct st_vector *v, struct st_outcome *ret);
void st_call_tcp_drip(const struct st_vector *v, struct st_outcome *ret);
void st_call_tcp_huge(const struct st_vector *v, struct st_outcome *ret);
void st_call_tcp_idle(const struct st_vector *v, struct st_outcome *ret);
void st_call_at_once(const struct st_vector *v, struct st_outcome *ret);
void st_call_multicast(const struct st_vector *v, struct st_outcome *ret);
void st_call_unix(const struct st_vector *v, struct st_outcome *ret);
void st_call_sendmmsg(const struct st_vector *v, struct st_outcome *ret);
void st_call_io_uring(const struct st_vector *v, struct st_outcome *ret);
void st_call_mark(const struct st_vector *v, struct st_outcome *ret);
void st_call_route(const struct st_vector *v, struct st_outcome *ret);
void st_call_nested(const struct st_vector *v, struct st_outcome *ret);
void st_call_descriptors(const struct st_vector *v, struct st_outcome *ret);
void st_call_processes(const struct st_vector *v, struct st_outcome *ret);
void st_call_power(const struct st_vector *v, struct st_outcome *ret);
void st_call_filter(const struct st_vector *v, struct st_outcome *ret);
void st_call_syscalls(const struct st_vector *v, struct st_outcome *ret);
void st_call_sockets(const struct st_vector *v, struct st_outcome *ret);
void st_call_set_ids(const struct st_vector *v, struct st_outcome *ret);
void st_call_nesting(const struct st_vector *v, struct st_outcome *ret);
void st_call_odd_sockets(const struct st_vector *v, struct st_outcome *ret);
void st_call_left_behind(const struct st_vector *v, struct st_outcome *ret);
void st_call_words(const struct st_vector *v, struct st_outcome *ret);
void st_call_records(const struct st_vector *v, struct st_outcome *ret);

/* ---- outside ---- */

/* Send set SET of frames on the link of the sandbox that contains process INSIDE, from a child process. */
int st_frames_send(pid_t inside, const struct st_vector *v, struct ak_err *err);

/* The facts after a run. */
struct st_facts {
	enum st_run run;
	bool ran; /* the probe finished */
	char why_not[240];
	struct st_outcome *outcomes; /* indexed by vector; word NULL: not tried */
	unsigned *took_ms;
	const struct st_events *events;
	unsigned host_accepts; /* connections at ST_HOST_PORT and the two unix sockets */
	struct netlog_rec *log;
	size_t n_log;
	bool log_clean; /* every line is one of our records */
};

void st_judge(const struct st_facts *f, struct selftest_report *report);

#endif
