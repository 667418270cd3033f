/*
 * What the kernel says to a batch of rules, to a question for counters and to a link's settings. Whatever comes: only the right acknowledgements, with no
 * refusal beside them and nothing lost, mean success, and every failure has a reason.
 *
 * Input: which talk, how sending goes, then the kernel's datagrams (kernel.h).
 */
#include "tests/fuzz/kernel.h"

#include "nft/batch.h"
#include "nft/counts.h"
#include "nft/ruleset.h"
#include "vmctl/rtnl.h"

enum talk { TALK_LEARN, TALK_SANDBOX, TALK_NOTHING, TALK_FAILED, TALK_COUNTS, TALK_LINK, TALK_NUM };
#define FIRST_SEQ 100

static bool said(const struct input *all, uint32_t seq)
{
	return memmem(all->data, all->len, &seq, sizeof(seq)) != NULL;
}

static void build(struct fw_batch *b, enum talk talk)
{
	static const struct fw_link link = {
		.id = 7, .ifname = "ak7", .addr4 = { AF_INET, { 100, 64, 0, 30 } }, .gw4 = { AF_INET, { 100, 64, 0, 29 } }
	};
	static const char text[] = "{\"version\":1,\"allow\":[\"a.example:443\"]}";
	static struct policy *p;
	struct fw_elem e = { .addr = ak_addr_v4(0x0b000001), .port = 443, .timeout_s = 1 };
	struct ak_err err;

	if (!p)
		must(policy_parse(text, sizeof(text) - 1, "fuzz", NULL, NULL, 0, &p, &err) == 0);
	fw_batch_begin(b, FIRST_SEQ);
	if (talk == TALK_SANDBOX)
		fw_build_sandbox(b, &link, p);
	else if (talk != TALK_NOTHING)
		fw_build_learn(b, 7, &e, 1, false);
	if (talk == TALK_FAILED)
		fw_batch_fail(b, -ENOSPC);
}

static int batch_talk(enum talk talk, const struct input *all, struct ak_err *err)
{
	static struct fw_batch b;
	int rc;

	build(&b, talk);
	rc = fw_batch_send(&b, -1, err);
	must(rc < 0 || talk == TALK_NOTHING || (talk != TALK_FAILED && said(all, FIRST_SEQ + (uint32_t)b.n)));
	return rc;
}

static int counts_talk(const struct input *all, struct ak_err *err)
{
	uint32_t seq = FIRST_SEQ;
	struct fw_counts counts;
	int rc = fw_counts_read(-1, &seq, 7, &counts, err);

	for (uint32_t i = FIRST_SEQ; rc == 0 && i < seq; i++)
		must(said(all, i));
	return rc;
}

static int link_talk(const struct input *all, struct ak_err *err)
{
	struct rtnl_batch b = { .len = 0 };
	uint32_t index = 7;
	int rc;

	for (int i = 0; i < 3; i++) {
		rtnl_begin(&b, "link", 16, 0, &index, sizeof(index));
		rtnl_attr_str(&b, 3, "ak7");
	}
	rc = rtnl_send(-1, &b, err);
	for (uint32_t i = 0; rc == 0 && i < b.n; i++)
		must(said(all, i));
	return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const int send_errors[] = { 0, -1, EINTR, EMSGSIZE, EPERM };
	struct input in = { data, size };
	enum talk talk = take_byte(&in) % TALK_NUM;
	struct ak_err err = { "" };
	int rc;

	kernel.send_error = send_errors[take_byte(&in) % 5];
	kernel.lost = 0;
	kernel.in = in;
	rc = talk == TALK_COUNTS    ? counts_talk(&in, &err)
		: talk == TALK_LINK ? link_talk(&in, &err)
				    : batch_talk(talk, &in, &err);
	must(rc <= 0 && (rc == 0 || err.text[0]) && (rc < 0 || kernel.lost == 0));
	return 0;
}
