/* Has a run or a sandbox ended? For commands that follow its log. See service/service.h. */
#include "gateway/service/service.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/json.h"
#include "gateway/daemon/daemon.h"
#include "gateway/store/runs.h"
#include "gateway/store/state.h"
#include "gateway/super/super.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

static bool process_gone(const cJSON *run)
{
	struct ak_err ignored;
	uint64_t pid = 0;

	if (json_get_uint(run, "pid", 1u << 22, &pid, &ignored) <= 0 || pid == 0)
		return false;
	return kill((pid_t)pid, 0) < 0 && errno == ESRCH;
}

static bool run_ended(const char *dir)
{
	_cleanup_json_ cJSON *run = NULL;
	const char *ended = "";
	struct ak_err ignored;
	int rc = runs_record(dir, &run);

	if (rc == -EBADMSG)
		return false; /* the line is being written */
	if (rc < 0)
		return access(dir, F_OK) < 0; /* not written yet: the run is just starting */
	return (json_get_string(run, "ended", &ended, &ignored) > 0 && ended[0]) || process_gone(run);
}

/* A persistent sandbox has ended if the daemon recorded that in its state, or if neither its supervisor nor a daemon is running. */
static bool persistent_ended(const struct ak_paths *p, const char *name)
{
	struct state_sandbox s = { 0 };
	struct ak_err ignored;
	_cleanup_close_ int daemon = -1;
	bool running;

	if (state_load(p, name, &s, &ignored) < 0)
		return true;
	running = s.running;
	state_done(&s);
	if (!running)
		return true;
	_cleanup_close_ int sock = super_connect(p, name, &ignored);

	if (sock >= 0 || sock == -EPERM)
		return false;
	daemon = daemon_connect(p, false, &ignored);
	return daemon < 0;
}

bool service_ended(const struct ak_paths *p, const char *dir)
{
	const char *name = strrchr(dir, '/'), *folder = "/sandboxes";
	size_t len = name ? (size_t)(name - dir) : 0;

	if (len > strlen(folder) && !strncmp(dir + len - strlen(folder), folder, strlen(folder)))
		return persistent_ended(p, name + 1);
	return run_ended(dir);
}
