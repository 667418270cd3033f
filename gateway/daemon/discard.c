/*
 * A sandbox whose record on disk cannot be read, or was written by a newer version, cannot be started, adopted or shown, but it can be
 * removed. If its supervisor still runs, we find it by name: the supervisor's socket is named after the sandbox.
 */
#include "gateway/daemon/internal.h"

#include "gateway/base/cleanup.h"
#include "gateway/super/super.h"

#include <errno.h>
#include <string.h>

/* A placeholder that is never written, hosted or started: see dsb.damaged. */
static int stand_in(struct daemon *d, const char *name, struct dsb **ret, struct ak_err *err)
{
	struct state_sandbox s = { .no_network = true };

	memcpy(s.name, name, strlen(name) + 1);
	if (dsb_new(d, &s, ret) < 0)
		return ak_fail(err, ENOMEM, "out of memory");
	(*ret)->damaged = true;
	return 0;
}

int dsb_get_damaged(struct daemon *d, const char *name, struct dsb **ret, struct ak_err *err)
{
	int sock = super_connect(d->paths, name, err), rc;
	struct dsb *sb = NULL;

	if (sock < 0 && sock != -ENOENT && sock != -ECONNREFUSED)
		return ak_err_prefix(err, sock, "cannot tell whether sandbox '%s' is running", name);
	rc = stand_in(d, name, &sb, err);
	if (rc < 0) {
		ak_close(sock);
		return rc;
	}
	if (sock >= 0) {
		if (ipc_server_adopt(d->supers, sock, sb, &sb->super) < 0) {
			dsb_free(sb);
			return ak_fail(err, ENOMEM, "out of memory");
		}
		sb->super_pid = ipc_peer_pid(sb->super);
		sb->status = DSB_RUNNING;
	}
	*ret = sb;
	return 0;
}
