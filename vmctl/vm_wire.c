/* Frames between host and guest. See vm_wire.h. */
#include "vmctl/vm_wire.h"

#include <string.h>

void vm_put32(uint8_t *p, uint32_t v)
{
	for (int i = 0; i < 4; i++)
		p[i] = (uint8_t)(v >> 8 * i);
}

uint32_t vm_get32(const uint8_t *p)
{
	return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

void vm_head_put(uint8_t buf[VM_HEAD], enum vm_frame_type type, uint16_t id, uint32_t len)
{
	vm_put32(buf, len);
	vm_put32(buf + 4, (uint32_t)type | (uint32_t)id << 16);
}

/* Who sends a type, and the least length of its payload. */
static const struct {
	bool host, guest;
	uint32_t min, max;
} types[VM_TYPE_NUM] = {
	[VM_HELLO] = { .guest = true, .min = 4, .max = 4 },
	[VM_CONFIG] = { .host = true, .min = sizeof(struct vm_config), .max = sizeof(struct vm_config) },
	[VM_READY] = { .guest = true },
	[VM_REFUSED] = { .guest = true, .max = 512 },
	[VM_REQUEST] = { .host = true, .max = VM_PAYLOAD_MAX },
	[VM_RUN] = { .host = true },
	[VM_STARTED] = { .guest = true },
	[VM_FAILED] = { .guest = true, .min = 4, .max = 512 },
	[VM_DATA] = { .host = true, .guest = true, .min = 1, .max = VM_PAYLOAD_MAX },
	[VM_CREDIT] = { .host = true, .guest = true, .min = 5, .max = 5 },
	[VM_SIGNAL] = { .host = true, .min = 4, .max = 4 },
	[VM_SIZE] = { .host = true, .min = 4, .max = 4 },
	[VM_KILL] = { .host = true },
	[VM_EXITED] = { .guest = true, .min = 8, .max = 8 },
	[VM_SHUTDOWN] = { .host = true },
	[VM_CONNECT] = { .host = true, .min = 8, .max = 8 },
	[VM_STOPPED] = { .guest = true },
};

int vm_head_get(const uint8_t buf[VM_HEAD], bool from_guest, struct vm_head *ret)
{
	uint32_t len = vm_get32(buf), rest = vm_get32(buf + 4);
	uint16_t type = (uint16_t)rest, id = (uint16_t)(rest >> 16);

	if (type >= VM_TYPE_NUM || id >= VM_COMMANDS_MAX || !(from_guest ? types[type].guest : types[type].host))
		return -1;
	if (len < types[type].min || len > types[type].max)
		return -1;
	*ret = (struct vm_head){ .len = len, .type = type, .id = id };
	return 0;
}

int vm_request_check(const char *data, size_t len, struct vm_request *ret)
{
	size_t strings = 0;

	if (len <= sizeof(*ret) || data[len - 1] != '\0')
		return -1;
	memcpy(ret, data, sizeof(*ret));
	for (size_t i = sizeof(*ret); i < len; i++)
		strings += data[i] == '\0';
	return ret->argc > 0 && ret->argc <= VM_REQUEST_MAX && ret->envc <= VM_REQUEST_MAX &&
			strings == 1u + ret->argc + ret->envc
		? 0
		: -1;
}

void vm_request_strings(const char *data, const struct vm_request *r, const char **ret_workdir, char **argv, char **envp)
{
	const char *at = data + sizeof(*r);

	*ret_workdir = at;
	for (uint32_t i = 0; i < r->argc; i++) {
		at += strlen(at) + 1;
		argv[i] = (char *)at;
	}
	argv[r->argc] = NULL;
	for (uint32_t i = 0; i < r->envc; i++) {
		at += strlen(at) + 1;
		envp[i] = (char *)at;
	}
	envp[r->envc] = NULL;
}
