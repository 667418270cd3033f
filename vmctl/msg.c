/* The control socket between the processes of a sandbox and its caller. */
#include "vmctl/internal.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

int sb_send_fds(int ctl, enum sb_msg_type type, uint32_t id, int value, const char *text, const int *fds, size_t n_fds)
{
	struct sb_msg msg = { .type = type, .id = id, .value = value };
	size_t len = offsetof(struct sb_msg, text);

	if (text) {
		snprintf(msg.text, sizeof(msg.text), "%s", text);
		len += strlen(msg.text) + 1;
	}
	return ak_send_fds(ctl, &msg, len, fds, n_fds);
}

int sb_send(int ctl, enum sb_msg_type type, int value, const char *text, int fd)
{
	return sb_send_fds(ctl, type, 0, value, text, &fd, fd >= 0 ? 1 : 0);
}

int sb_recv(int ctl, struct sb_msg *ret, int fds[static SB_FDS_MAX], size_t *n_fds)
{
	ssize_t n;

	ret->type = SB_MSG_NUM;
	ret->text[0] = '\0';
	*n_fds = SB_FDS_MAX;
	n = ak_recv_fds(ctl, ret, sizeof(*ret), fds, n_fds);
	if (n <= 0)
		return n == -ECONNRESET ? 0 : (int)n;
	if ((size_t)n < offsetof(struct sb_msg, text)) {
		for (size_t i = 0; i < *n_fds; i++)
			ak_close(fds[i]);
		*n_fds = 0;
		return -EBADMSG;
	}
	/* Terminate the text at the end of the message or of the buffer. */
	n -= (ssize_t)offsetof(struct sb_msg, text);
	ret->text[(size_t)n < sizeof(ret->text) ? (size_t)n : sizeof(ret->text) - 1] = '\0';
	return 1;
}
