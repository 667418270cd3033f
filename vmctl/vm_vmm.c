/* Which virtual machine monitor is used, and what their drivers share. */
#include "vmctl/vm_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void vm_arg(struct vm_args *a, const char *fmt, ...)
{
	size_t room = sizeof(a->text) - a->used;
	va_list ap;
	int len;

	va_start(ap, fmt);
	len = vsnprintf(a->text + a->used, room, fmt, ap);
	va_end(ap);
	if (len < 0 || (size_t)len >= room || a->n == VM_ARGS_MAX)
		abort(); /* fixed texts and numbers */
	a->argv[a->n++] = a->text + a->used;
	a->used += (size_t)len + 1;
}

const struct vmm *vmm_get(void)
{
	return &vmm_qemu;
}
