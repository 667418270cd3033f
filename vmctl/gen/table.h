/*
 * Build time: a libseccomp filter as a C table. libseccomp needs half a millisecond to compile one, which is a tenth of a sandbox's whole start.
 */
#ifndef AK_VMCTL_GEN_TABLE_H
#define AK_VMCTL_GEN_TABLE_H

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <seccomp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

static inline int table_check(int rc, const char *what)
{
	if (rc < 0)
		fprintf(stderr, "seccomp table: %s: error %d\n", what, -rc);
	return rc;
}

static inline void table_row(FILE *out, const struct sock_filter *insn)
{
	fprintf(out, "\t{ 0x%02x, %u, %u, 0x%08x },\n", insn->code, insn->jt, insn->jf, insn->k);
}

/*
 * The filter as "static const struct sock_filter seccomp_NAME[]". Calls from the number FIRST_UNKNOWN on are ENOSYS, in front of everything else, unless it is 0:
 * a filter of its own for that would be translated at every start and run at every call.
 */
static inline int table_print(FILE *out, scmp_filter_ctx ctx, const char *name, uint32_t first_unknown)
{
	const struct sock_filter gate[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, first_unknown, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
	};
	struct sock_filter insn;
	FILE *raw = tmpfile();

	if (!raw || table_check(seccomp_export_bpf(ctx, fileno(raw)), "export") < 0)
		return -1;
	rewind(raw);
	fprintf(out, "static const struct sock_filter seccomp_%s[] = {\n", name);
	for (size_t i = 0; first_unknown && i < sizeof(gate) / sizeof(gate[0]); i++)
		table_row(out, &gate[i]);
	while (fread(&insn, sizeof(insn), 1, raw) == 1)
		table_row(out, &insn);
	fprintf(out, "};\n");
	fclose(raw);
	return 0;
}

#endif
