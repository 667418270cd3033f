/*
 * What crosses the port of a guest, in both directions: a head that is taken names a frame within its limits, and a request that is taken comes apart into exactly its
 * strings, all inside the message.
 */
#include "vmctl/vm_wire.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool ok)
{
	if (!ok)
		abort();
}

static void check_head(const uint8_t *data, bool from_guest)
{
	uint8_t again[VM_HEAD];
	struct vm_head h;

	if (vm_head_get(data, from_guest, &h) < 0)
		return;
	must(h.len <= VM_PAYLOAD_MAX && h.id < VM_COMMANDS_MAX && h.type < VM_TYPE_NUM);
	vm_head_put(again, (enum vm_frame_type)h.type, h.id, h.len);
	must(!memcmp(again, data, VM_HEAD));
}

static void check_request(const char *data, size_t size)
{
	struct vm_request r;
	const char *workdir;
	char **argv, **envp;

	if (vm_request_check(data, size, &r) < 0)
		return;
	argv = calloc(r.argc + 1u, sizeof(*argv));
	envp = calloc(r.envc + 1u, sizeof(*envp));
	must(argv && envp);
	vm_request_strings(data, &r, &workdir, argv, envp);
	for (uint32_t i = 0; i < r.argc; i++)
		must(argv[i] > data && argv[i] + strlen(argv[i]) < data + size);
	for (uint32_t i = 0; i < r.envc; i++)
		must(envp[i] > data && envp[i] + strlen(envp[i]) < data + size);
	must(!argv[r.argc] && !envp[r.envc]);
	free(argv);
	free(envp);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *copy;

	if (size >= VM_HEAD) {
		check_head(data, true);
		check_head(data, false);
	}
	copy = malloc(size + 1); /* of its exact size: a sanitizer sees a step too far */
	if (copy && size) {
		memcpy(copy, data, size);
		check_request(copy, size);
	}
	free(copy);
	return 0;
}
