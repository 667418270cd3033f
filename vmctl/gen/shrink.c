/* Shorten a system-call filter: see shrink.h. */
#include "vmctl/gen/shrink.h"

#include <linux/seccomp.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { LOAD = BPF_LD | BPF_W | BPF_ABS, AND = BPF_ALU | BPF_AND | BPF_K, RETURN = BPF_RET | BPF_K };
enum { GOTO = BPF_JMP | BPF_JA, EQUAL = BPF_JMP | BPF_JEQ | BPF_K, BIT = BPF_JMP | BPF_JSET | BPF_K };
enum { ABOVE = BPF_JMP | BPF_JGT | BPF_K, AT_LEAST = BPF_JMP | BPF_JGE | BPF_K };

/* An instruction and its successors. In filters every jump goes forward. */
struct insn {
	uint16_t code;
	uint32_t k;
	size_t yes, no; /* the same unless it is a comparison */
	bool gone; /* removed; control passes to its successor */
};

static bool compares(const struct insn *i)
{
	return i->code == EQUAL || i->code == BIT || i->code == ABOVE || i->code == AT_LEAST;
}

static int read_in(const struct sock_filter *prog, size_t n, struct insn *ret)
{
	for (size_t i = 0; i < n; i++) {
		struct insn *in = &ret[i];

		*in = (struct insn){ .code = prog[i].code, .k = prog[i].k, .yes = i + 1, .no = i + 1 };
		if (compares(in)) {
			in->yes += prog[i].jt;
			in->no += prog[i].jf;
		} else if (in->code == GOTO) {
			in->yes = in->no = i + 1 + in->k;
		} else if (in->code != LOAD && in->code != AND && in->code != RETURN) {
			fprintf(stderr, "seccomp table: instruction %zu: code %#x is not known\n", i, in->code);
			return -1;
		}
		if (in->code != RETURN && (in->yes >= n || in->no >= n))
			return -1;
	}
	return 0;
}

/* ---- removing instructions ---- */

/* The successor AT, skipping removed instructions. A comparison can jump over 255 instructions; the distance only shrinks. */
static size_t follow(const struct insn *prog, size_t from, size_t at)
{
	while (prog[at].gone || (prog[at].code == GOTO && prog[at].yes - from - 1 <= UINT8_MAX))
		at = prog[at].yes;
	return at;
}

/* Whether the accumulator is loaded again after AT before anything reads it. */
static bool forgets(const struct insn *prog, size_t at)
{
	while (prog[at].gone || prog[at].code == GOTO)
		at = prog[at].yes;
	return prog[at].code == LOAD || prog[at].code == RETURN;
}

/* Whether AT can be reached only from the instruction before it. */
static bool follows_only(const struct insn *prog, size_t at)
{
	for (size_t i = 0; i < at; i++) {
		if (prog[i].code != RETURN && (prog[i].yes == at || prog[i].no == at) && (i + 1 != at || compares(&prog[i])))
			return false;
	}
	return true;
}

static void drop(struct insn *in, size_t to)
{
	in->gone = true;
	in->yes = in->no = to;
}

/* "load; and 0; equal 0": always true. */
static void drop_empty_masks(struct insn *prog, size_t n)
{
	for (size_t i = 0; i + 3 < n; i++) {
		struct insn *in = &prog[i];

		if (in[0].code != LOAD || in[1].code != AND || in[1].k != 0 || in[2].code != EQUAL || in[2].k != 0)
			continue;
		if (!follows_only(prog, i + 1) || !follows_only(prog, i + 2) || in[2].yes != i + 3 || !forgets(prog, i + 3))
			continue;
		for (size_t j = 0; j < 3; j++)
			drop(&in[j], i + 3);
	}
}

/* "and BIT; equal BIT" becomes one instruction. That leaves the accumulator unmasked, so nothing may use it afterwards. */
static void join_bits(struct insn *prog, size_t n)
{
	for (size_t i = 0; i + 1 < n; i++) {
		struct insn *in = &prog[i];

		if (in[0].gone || in[0].code != AND || in[1].gone || in[1].code != EQUAL || in[0].k != in[1].k)
			continue;
		if (!in[0].k || (in[0].k & (in[0].k - 1)) || !follows_only(prog, i + 1))
			continue;
		if (!forgets(prog, in[1].yes) || !forgets(prog, in[1].no))
			continue;
		in[1].code = BIT;
		drop(&in[0], i + 1);
	}
}

/* Content of the accumulator: an offset in the call's data, or something else. */
enum { HOLDS_NOTHING_YET = -2, HOLDS_OTHER = -1 };

static void meet(int64_t *holds, int64_t now)
{
	*holds = *holds == HOLDS_NOTHING_YET || *holds == now ? now : HOLDS_OTHER;
}

static void drop_loads(struct insn *prog, size_t n)
{
	int64_t holds[SHRINK_MAX];

	for (size_t i = 0; i < n; i++)
		holds[i] = i ? HOLDS_NOTHING_YET : HOLDS_OTHER;
	for (size_t i = 0; i < n; i++) {
		struct insn *in = &prog[i];
		int64_t now = holds[i];

		if (now == HOLDS_NOTHING_YET || in->code == RETURN) /* unreachable, or the end */
			continue;
		if (!in->gone && in->code == LOAD && now == in->k)
			drop(in, in->yes);
		else if (!in->gone && in->code == LOAD)
			now = in->k;
		else if (!in->gone && in->code == AND)
			now = HOLDS_OTHER;
		meet(&holds[in->yes], now);
		if (in->no != in->yes)
			meet(&holds[in->no], now);
	}
}

/* ---- writing the result ---- */

static size_t mark_reached(const struct insn *prog, size_t n, size_t ret[static SHRINK_MAX])
{
	static bool reached[SHRINK_MAX];
	size_t left = 0;

	memset(reached, 0, sizeof(reached));
	reached[0] = true;
	for (size_t i = 0; i < n; i++) {
		ret[i] = left;
		if (!reached[i])
			continue;
		left += !prog[i].gone;
		if (prog[i].code == RETURN)
			continue;
		reached[prog[i].yes] = reached[prog[i].no] = true;
	}
	for (size_t i = 0; i < n; i++)
		ret[i] = reached[i] && !prog[i].gone ? ret[i] : SIZE_MAX;
	return left;
}

static int write_out(const struct insn *prog, size_t n, struct sock_filter *ret)
{
	static size_t place[SHRINK_MAX];
	size_t left = mark_reached(prog, n, place);

	for (size_t i = 0; i < n; i++) {
		size_t at = place[i], yes, no;
		struct sock_filter *out = &ret[at];

		if (at == SIZE_MAX)
			continue;
		*out = (struct sock_filter){ .code = prog[i].code, .k = prog[i].k };
		yes = place[prog[i].yes] - at - 1;
		no = place[prog[i].no] - at - 1;
		if (prog[i].code == GOTO)
			out->k = (uint32_t)yes;
		else if (prog[i].code != RETURN && (yes > UINT8_MAX || no > UINT8_MAX || (!compares(&prog[i]) && yes > 0)))
			return -1;
		if (compares(&prog[i])) {
			out->jt = (uint8_t)yes;
			out->jf = (uint8_t)no;
		}
	}
	return (int)left;
}

/* ---- comparing with the original ---- */

static uint32_t word_of(const struct seccomp_data *data, uint32_t at)
{
	uint32_t word;

	memcpy(&word, (const char *)data + at, sizeof(word));
	return word;
}

static uint32_t run(const struct sock_filter *prog, const struct seccomp_data *data)
{
	uint32_t a = 0;

	for (size_t i = 0;; i++) {
		const struct sock_filter *in = &prog[i];

		switch (in->code) {
		case LOAD:
			a = word_of(data, in->k);
			break;
		case AND:
			a &= in->k;
			break;
		case GOTO:
			i += in->k;
			break;
		case EQUAL:
			i += a == in->k ? in->jt : in->jf;
			break;
		case BIT:
			i += a & in->k ? in->jt : in->jf;
			break;
		case ABOVE:
			i += a > in->k ? in->jt : in->jf;
			break;
		case AT_LEAST:
			i += a >= in->k ? in->jt : in->jf;
			break;
		default:
			return in->k;
		}
	}
}

static uint32_t chance(void)
{
	static uint64_t state = 88172645463325252u; /* xorshift: the same test calls in every build */

	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (uint32_t)(state >> 16);
}

/* A half of an argument: mostly a value that the filter compares with, a neighbour of one, or a combination of two. */
static uint32_t half(const struct sock_filter *prog, size_t n)
{
	uint32_t k = prog[chance() % n].k;

	switch (chance() % 8) {
	case 0:
		return chance();
	case 1:
		return 0;
	case 2:
		return k + 1;
	case 3:
		return k - 1;
	case 4:
		return k | prog[chance() % n].k;
	default:
		return k;
	}
}

static bool same(const struct sock_filter *before, size_t n, const struct sock_filter *after)
{
	enum { CALLS = 520, TRIES = 4000 };

	for (int nr = 0; nr < CALLS; nr++) {
		for (int try = 0; try < TRIES; try++) {
			struct seccomp_data data = { .nr = nr, .arch = before[1].k };

			for (size_t i = 0; i < sizeof(data.args) / sizeof(data.args[0]); i++)
				data.args[i] = half(before, n) | (chance() % 4 ? 0 : (uint64_t)half(before, n) << 32);
			if (try % 64 == 0)
				data.nr |= 0x40000000; /* x32 */
			if (try % 64 == 1)
				data.arch = half(before, n);
			if (run(before, &data) != run(after, &data))
				return false;
		}
	}
	return true;
}

int shrink(struct sock_filter *prog, size_t n)
{
	static struct sock_filter before[SHRINK_MAX];
	static struct insn insns[SHRINK_MAX];
	int left;

	if (n < 2 || n > SHRINK_MAX || read_in(prog, n, insns) < 0)
		return -1;
	memcpy(before, prog, n * sizeof(*prog));
	drop_empty_masks(insns, n);
	join_bits(insns, n);
	drop_loads(insns, n);
	for (size_t i = 0; i < n; i++) {
		insns[i].yes = insns[i].code == RETURN ? i : follow(insns, i, insns[i].yes);
		insns[i].no = insns[i].code == RETURN ? i : follow(insns, i, insns[i].no);
	}
	left = write_out(insns, n, prog);
	if (left < 0 || !same(before, n, prog)) {
		fprintf(stderr, "seccomp table: the shorter filter decides otherwise\n");
		return -1;
	}
	return left;
}
