/*
 * Published ports in the daemon: it opens the host's ports, because the gateway process may not, and hands them over together with a channel to the
 * sandbox's init.
 */
#include "gateway/daemon/internal.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/say.h"

static void on_published(void *ctx, int rc, const struct gw_msg *answer, const struct ak_err *err)
{
	if (rc < 0)
		ak_say("%s", err->text);
}

void port_send(struct daemon *d, uint32_t id, const struct ak_publish *at, int listener, int channel)
{
	struct gw_msg msg = { .type = GW_MSG_PUBLISH, .id = id, .publish = *at };

	(void)dgw_send(d, &msg, (const int[]){ listener, channel }, 2, on_published, NULL);
}
