/* The guest's serial console: see vm_internal.h. What a guest prints is never trusted to be text. */
#include "vmctl/vm_internal.h"

#include "gateway/base/io.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void vm_console_notice(struct vm_console *c, const char *text)
{
	struct ak_err notice;

	if (c->n_notices++ >= VM_NOTICES_MAX)
		return;
	snprintf(notice.text, sizeof(notice.text), "%s", text);
	(void)!write(c->notices, &notice, sizeof(notice));
}

/* The words of the kernel that users should see: "Kernel panic - not syncing: ...", "Out of memory: Killed process 77 (python3) ...". */
static void look_for(struct vm_console *c, const char *words, const char *what)
{
	const char *found = strstr(c->line, words);
	char text[AK_ERR_MAX];

	if (!found)
		return;
	snprintf(text, sizeof(text), "%s: %.120s", what, found);
	vm_console_notice(c, text);
}

static void take_line(struct vm_console *c)
{
	char out[sizeof(c->line) + 32];

	c->line[c->len] = '\0';
	if (!c->len)
		return;
	look_for(c, "Kernel panic", "the guest's kernel failed");
	look_for(c, "Out of memory: Killed process", "the guest ran out of memory (--memory gives it more)");
	if (strstr(c->line, VM_PIDS_WORDS))
		vm_console_notice(c, "the sandbox reached its process limit (--pids)");
	if (c->debug >= 0) {
		int n = snprintf(out, sizeof(out), "agentkernel: guest: %s%s\n", c->line, isatty(c->debug) ? "\r" : "");

		(void)!write(c->debug, out, (size_t)n);
	}
	c->len = 0;
}

bool vm_console_read(struct vm_console *c)
{
	char buf[4096];
	ssize_t n = read(c->fd, buf, sizeof(buf));

	if (n <= 0)
		return n < 0 && (errno == EAGAIN || errno == EINTR);
	for (ssize_t i = 0; i < n; i++) {
		if (buf[i] == '\n' || c->len + 1 == sizeof(c->line))
			take_line(c);
		if (buf[i] >= ' ' && buf[i] < 127)
			c->line[c->len++] = buf[i];
	}
	return true;
}
