/* The reader of dynamic sections: whatever is in the file, its answers are strings that end, of paths that are not cut, and the same twice. */
#include "fuzz.h"
#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/project/tools_internal.h"

static void check(const struct elf_needs *n)
{
	must(strlen(n->interpreter) < PATH_MAX - 1 && n->n_needed <= ELF_NEEDED_MAX);
	must(strlen(n->path[ELF_RPATH]) < PATH_MAX - 1 && strlen(n->path[ELF_RUNPATH]) < PATH_MAX - 1);
	for (size_t i = 0; i < n->n_needed; i++)
		must(n->needed[i][0] && strlen(n->needed[i]) < NAME_MAX);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct elf_needs first, again;
	_cleanup_close_ int fd = size > 1u << 16 ? -1 : ak_memory_file("elf", data, size);
	bool known;

	if (fd < 0)
		return 0;
	memset(&first, 0xff, sizeof(first));
	known = elf_needs_read(fd, &first);
	must(elf_needs_read(fd, &again) == known);
	if (!known)
		return 0;
	check(&first);
	must(first.n_needed == again.n_needed && !strcmp(first.interpreter, again.interpreter));
	return 0;
}
