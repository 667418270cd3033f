/* Print a filter as a C table: see table.h. */
#include "vmctl/gen/table.h"

#include "vmctl/gen/shrink.h"

#include <errno.h>
#include <linux/seccomp.h>
#include <stddef.h>

int table_check(int rc, const char *what)
{
	if (rc < 0)
		fprintf(stderr, "seccomp table: %s: error %d\n", what, -rc);
	return rc;
}

static void print_rows(FILE *out, const struct sock_filter *insns, size_t n)
{
	for (size_t i = 0; i < n; i++)
		fprintf(out, "\t{ 0x%02x, %u, %u, 0x%08x },\n", insns[i].code, insns[i].jt, insns[i].jf, insns[i].k);
}

static int export(scmp_filter_ctx ctx, struct sock_filter ret[static SHRINK_MAX])
{
	FILE *raw = tmpfile();
	size_t n;

	if (!raw || table_check(seccomp_export_bpf(ctx, fileno(raw)), "export") < 0)
		return -1;
	rewind(raw);
	n = fread(ret, sizeof(*ret), SHRINK_MAX, raw);
	fclose(raw);
	return shrink(ret, n);
}

int table_print(FILE *out, scmp_filter_ctx ctx, const char *name, uint32_t first_unknown)
{
	const struct sock_filter gate[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, first_unknown, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
	};
	static struct sock_filter insns[SHRINK_MAX];
	int n = export(ctx, insns);

	if (n < 0)
		return -1;
	fprintf(out, "static const struct sock_filter seccomp_%s[] = {\n", name);
	print_rows(out, gate, first_unknown ? sizeof(gate) / sizeof(gate[0]) : 0);
	print_rows(out, insns, (size_t)n);
	fprintf(out, "};\n");
	return 0;
}
