/* Wait for changes in a folder: see log/follow.h. */
#include "gateway/log/follow.h"

#include "gateway/base/cleanup.h"

#include <limits.h>
#include <poll.h>
#include <sys/inotify.h>
#include <unistd.h>

void ak_follow_init(struct ak_follow *f, const char *dir)
{
	f->fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	if (f->fd >= 0 && inotify_add_watch(f->fd, dir, IN_MODIFY | IN_CREATE | IN_MOVED_TO | IN_DELETE | IN_DELETE_SELF) < 0)
		f->fd = ak_close(f->fd);
}

void ak_follow_done(struct ak_follow *f)
{
	f->fd = ak_close(f->fd);
}

void ak_follow_wait(struct ak_follow *f, int timeout_ms)
{
	struct pollfd p = { .fd = f->fd, .events = POLLIN };
	char events[16 * (sizeof(struct inotify_event) + NAME_MAX + 1)];

	if (poll(&p, 1, timeout_ms) <= 0) /* poll ignores a negative descriptor */
		return;
	while (read(f->fd, events, sizeof(events)) > 0)
		continue;
}
